"""A search: seeded, resumable, in time, and blind to the families of its report."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from synthetic import SCHEMA
from synthetic import make_corpus

from costmodel.cli import main
from costmodel.errors import StoreError
from costmodel.errors import TuningError
from costmodel.training import tune
from costmodel.training.recipe import Recipe
from costmodel.training.recipe import load_recipe
from costmodel.training.recipe import parse_recipe
from costmodel.training.recipe_space import Choices
from costmodel.training.tune import BY_TIME
from costmodel.training.tune import BY_TRIALS
from costmodel.training.tune import BY_USER
from costmodel.training.tune import Tuner
from costmodel.training.tune_folds import searches_of
from costmodel.training.tune_show import as_facts
from costmodel.training.tune_show import found_recipe
from costmodel.training.tune_show import search_figure
from costmodel.training.tune_show import show
from costmodel.training.tune_show import verdict_line
from costmodel.training.tune_study import JOURNAL
from costmodel.training.tune_study import opened_studies
from costmodel.training.tune_trial import Tried

pytest.importorskip("optuna")

SAMPLE = Path(__file__).parent.parent / "datasets" / "corpora" / "h200_sample"
TEXT = """
[model]
n_bags = 1
n_trees = 6
n_validity_trees = 3
max_depth = 3
learning_rate = 0.3
[tune]
model.learning_rate = { low = 0.0001, high = 0.5, log = true }
model.n_trees = { low = 4, high = 10 }
model.pair_share = [0.25, 0.5]
"""
FACTS = {"recipe_digest": "r", "corpus_digest": "c"}


@pytest.fixture(scope="module")
def corpus():
    return make_corpus(
        2, planted=True, n_families=6, n_configs=20, gain=1.0, failure_share=0.0
    )


@pytest.fixture(scope="module")
def recipe():
    return parse_recipe(TEXT)


def _tune(recipe, corpus, folder, n_trials, *, timeout_s=None, n_outer=2, **options):
    searches = searches_of(recipe, corpus, 2, n_outer)
    with opened_studies(folder, searches, FACTS) as studies:
        tuner = Tuner(recipe, corpus, SCHEMA, folder, **options)
        return tuner.run(studies, n_trials, timeout_s)


@pytest.fixture(scope="module")
def undisturbed(recipe, corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return _tune(recipe, corpus, folder, 4), folder


def _history(made):
    return [
        (one.search, one.state, dict(one.values), one.loss, one.facts.get("regret"))
        for one in made.trials
    ]


def test_an_inner_fold_holds_nothing_of_its_outer_fold(recipe, corpus) -> None:
    first, *others = searches_of(recipe, corpus, 3, 3)
    everyone = set(range(len(corpus)))
    assert first.outer is None
    assert {i for fold in first.inner for i in fold.test} == everyone
    assert sorted(i for one in others for i in one.outer.test) == sorted(everyone)
    for one in others:
        apart = {corpus[i].family for i in one.outer.test}
        for fold in one.inner:
            seen = {corpus[i].family for i in (*fold.train, *fold.test)}
            assert not seen & apart
            held_out = {corpus[i].family for i in fold.test}
            assert not held_out & {corpus[i].family for i in fold.train}
        judged = {i for fold in one.inner for i in fold.test}
        assert judged == everyone - set(one.outer.test)


def test_folds_of_the_recipe_stay_together(corpus) -> None:
    folds = "a = ['family0', 'family5']\nb = ['family1', 'family2']\n"
    blocks = parse_recipe(f"[split.folds]\n{folds}c = ['family3', 'family4']")
    for one in searches_of(blocks, corpus, 2, 3):
        for fold in (*one.inner, *([one.outer] if one.outer else [])):
            held_out = {corpus[i].family for i in fold.test}
            for block in blocks.split.folds.values():
                assert len(held_out & set(block)) in (0, 2)


def test_the_choice_is_no_worse_than_the_recipe_on_what_it_was_made_by(
    undisturbed, recipe
) -> None:
    made, _ = undisturbed
    assert made.ended == BY_TRIALS
    assert len(made.trials) == 3 * 4
    assert (
        made.first.values
        == made.own
        == {
            "model.learning_rate": 0.3,
            "model.n_trees": 6,
            "model.pair_share": 0.5,
        }
    )
    assert made.best.loss <= made.first.loss
    for one in made.trials:
        for name, value in one.values.items():
            assert recipe.tune[name].holds(value)
            assert type(value) is type(made.own[name])


def test_the_report_is_of_each_family_once_and_of_the_folds_own_choices(
    undisturbed, corpus
) -> None:
    made, folder = undisturbed
    assert len(made.chosen) == 2
    judged = [one.a["workload_id"] for one in made.report.workloads]
    assert sorted(judged) == sorted(one.workload_id for one in corpus)
    assert made.report.same_evaluation
    assert list(folder.glob("outer/*.parquet"))
    assert not list(folder.glob("outer/*.part"))


def test_an_interrupted_search_ends_as_an_undisturbed_one(
    undisturbed, recipe, corpus, tmp_path
) -> None:
    made, _ = undisturbed

    class Stop:
        """Ctrl-C between trials once, and within a fit once."""

        left = 5

        def __call__(self, *_: object) -> None:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt

    first = _tune(recipe, corpus, tmp_path, 4, after=Stop())
    assert first.ended == BY_USER
    assert 0 < len(first.trials) < len(made.trials)
    ticks = Stop()

    def clock() -> float:
        ticks()
        return 0.0

    again = _tune(recipe, corpus, tmp_path, 4, clock=clock, timeout_s=1e9)
    assert again.ended == BY_USER
    # A process that was killed while it wrote leaves half a line and an open trial.
    with opened_studies(tmp_path, searches_of(recipe, corpus, 2, 2), FACTS) as studies:
        studies[0].ask(recipe.tune, made.own, 0)
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"op_code":5,"worker')
    last = _tune(recipe, corpus, tmp_path, 4)
    assert last.ended == BY_TRIALS
    assert sorted(map(str, _history(last))) == sorted(map(str, _history(made)))
    # All trials are there: nothing is left to be done.
    lines: list[str] = []
    _tune(recipe, corpus, tmp_path, 4, say=lines.append)
    assert lines == []


def test_another_seed_searches_elsewhere(recipe, corpus, undisturbed, tmp_path) -> None:
    other = recipe.with_values({"model.seed": 1})
    made = _tune(other, corpus, tmp_path, 2, n_outer=0)
    assert made.report is None and made.chosen == ()
    drawn = [one.values for one in made.trials if one.values != made.own]
    before = [one.values for one in undisturbed[0].trials]
    assert drawn and not any(one in before for one in drawn)


def test_the_time_limit_is_held(recipe, corpus, tmp_path) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0  # each look at the clock takes a second
        return now

    made = _tune(recipe, corpus, tmp_path, 1000, timeout_s=60.0, clock=clock)
    assert made.ended == BY_TIME
    assert 1 <= len(made.trials) < 1000
    # One look to see that time is up, and at most those of a trial given up.
    assert now < 60.0 + 5.0
    # A limit that no trial fits into makes none, and loses nothing.
    nothing = _tune(recipe, corpus, tmp_path / "b", 3, timeout_s=0.5, clock=clock)
    assert nothing.ended == BY_TIME and nothing.trials == ()


def test_a_hopeless_trial_is_stopped_and_a_good_one_is_not(
    recipe, monkeypatch, tmp_path
) -> None:
    many = make_corpus(4, planted=True, n_families=24, n_configs=8)
    kernels = sorted(one.source_digest for one in many)
    luck = np.random.default_rng(0)

    def made_up(recipe, workloads, search, schema, watch):
        # Kernels differ far more than settings do: only pairs tell them apart.
        hardness = {kernel: float(i) for i, kernel in enumerate(kernels)}
        off = 0.0 if recipe.model.pair_share == 0.5 else 0.3
        losses = {k: v + off + luck.normal(0.0, 0.1) for k, v in hardness.items()}
        for n_done, fold in enumerate(search.inner, 1):
            held_out = {workloads[i].source_digest for i in fold.test}
            watch(n_done, {k: v for k, v in losses.items() if k in held_out})
        loss = float(np.mean(list(losses.values())))
        return Tried(loss, float(np.expm1(loss)), 1.0, 0.0, ())

    monkeypatch.setattr(tune, "tried", made_up)
    made = _tune(recipe, many, tmp_path, 12, n_outer=0)
    bad = [one for one in made.trials if one.values["model.pair_share"] == 0.25]
    good = [one for one in made.trials if one.values["model.pair_share"] == 0.5]
    assert bad and len(good) > 2
    assert {one.state for one in bad} == {"pruned"}
    assert all(one.loss is None and one.facts["n_folds"] == 1 for one in bad)
    # Of trials that are as good, chance stops few.
    assert sum(one.state == "complete" for one in good) > len(good) / 2
    assert made.best.values["model.pair_share"] == 0.5


def test_a_folder_holds_one_search_at_a_time(recipe, corpus, tmp_path) -> None:
    searches = searches_of(recipe, corpus, 2, 0)
    with (
        opened_studies(tmp_path, searches, FACTS),
        pytest.raises(StoreError, match="another process"),
        opened_studies(tmp_path, searches, FACTS),
    ):
        pass
    other = {**FACTS, "corpus_digest": "other"}
    with (
        pytest.raises(TuningError, match="another corpus_digest"),
        opened_studies(tmp_path, searches, other),
    ):
        pass


def test_the_recipe_found_is_a_recipe(undisturbed, recipe, tmp_path) -> None:
    made, _ = undisturbed
    data = tmp_path / "data"
    asked = parse_recipe(TEXT + f"\n[data]\npaths = [{json.dumps(str(data))}]")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "recipe.toml").write_text(found_recipe(asked, made, folder))
    found = load_recipe(folder / "recipe.toml")
    assert [Path(one).resolve() for one in found.data.paths] == [data]
    for name, value in made.best.values.items():
        assert found.value(name) == value
    assert found.tune == asked.tune
    same = found.with_values({name: made.own[name] for name in made.own})
    assert same.digest == asked.digest
    facts = json.loads(json.dumps(as_facts(made, recipe.tune), allow_nan=False))
    assert len(facts["trials"]) == len(made.trials)
    assert len(search_figure(made, recipe.tune).axes) == 1 + len(recipe.tune)


@pytest.mark.parametrize(
    "options",
    [["--trials", "0"], ["--timeout", "0"], ["--outer-folds", "1"], ["--timeout", "x"]],
)
def test_numbers_that_are_none_are_wrong_usage(options) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["tune", "recipe.toml", *options])
    assert stop.value.code == 2


def test_the_tables_say_what_was_tried(undisturbed, recipe) -> None:
    made, _ = undisturbed
    dropped = {"features.drop": ("range_*",), "model.n_trees": 6}
    space = {"features.drop": Choices(((), ("range_*",)))}
    row = dataclasses.replace(made.best, values=dropped)
    found = dataclasses.replace(
        made,
        own={"features.drop": (), "model.n_trees": 6},
        best=row,
        trials=(row,),
        chosen=(),
    )
    with io.StringIO() as out:
        show(found, space, Console(file=out, width=120))
        # In the domain, as the value found, and as what differs.
        assert out.getvalue().count("[range_*]") == 3
        assert "0 stopped early" in out.getvalue()
    assert "within noise" in verdict_line(made) or "beyond noise" in verdict_line(made)
    assert "no outer fold" in verdict_line(dataclasses.replace(made, report=None))


def test_a_recipe_without_a_space_is_one_line(tmp_path, capsys) -> None:
    path = tmp_path / "plain.toml"
    path.write_text(f"[data]\npaths = [{json.dumps(str(SAMPLE))}]\n")
    assert main(["tune", str(path), "--output", str(tmp_path / "out")]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "expected a table [tune]" in err
    assert Recipe().tune == {}


@pytest.mark.slow
def test_the_command_goes_on_and_each_trial_is_a_nested_run(
    tmp_path, monkeypatch, capsys
) -> None:
    import mlflow

    from costmodel.training.mlflow_store import URI_VARIABLE
    from costmodel.training.mlflow_store import opened
    from costmodel.training.mlflow_store import tracking_uri

    monkeypatch.setenv(URI_VARIABLE, tracking_uri(tmp_path / "store"))
    (tmp_path / "store" / "mlruns").mkdir(parents=True)
    path = tmp_path / "tiny.toml"
    path.write_text(f"[data]\npaths = [{json.dumps(str(SAMPLE))}]\n{TEXT}")
    out = tmp_path / "out"
    command = ["tune", str(path), "--output", str(out), "--outer-folds", "0"]
    command += ["--inner-folds", "2", "--json"]
    assert main([*command, "--trials", "1", "--no-track"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert [one["values"] for one in before["trials"]] == [before["own"]]
    assert main([*command, "--trials", "2"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["trials"][0] == before["trials"][0]
    assert load_recipe(out / "recipe.toml").model.n_bags == 1
    assert (out / "tune.png").read_bytes().startswith(b"\x89PNG")
    # The third goes into the same run, and what was not recorded is recorded by then.
    assert main([*command, "--trials", "3"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["mlflow_run"] == facts["mlflow_run"]
    with opened() as store:
        client = mlflow.MlflowClient()
        parent = client.get_run(facts["mlflow_run"])
        assert parent.info.status == "FINISHED"
        assert parent.data.tags["kind"] == "tune"
        assert "tune.model.n_trees" in str(parent.data.params)
        assert parent.data.metrics["best_regret"] <= parent.data.metrics["own_regret"]
        nested = [
            one
            for one in store.client.search_runs([parent.info.experiment_id])
            if one.data.tags.get("mlflow.parentRunId") == facts["mlflow_run"]
        ]
        assert sorted(one.data.tags["trial"] for one in nested) == ["0", "1", "2"]
        assert all("model.n_trees" in one.data.params for one in nested)
        files = {one.path for one in client.list_artifacts(parent.info.run_id, "plots")}
        assert files == {"plots/search.png"}
