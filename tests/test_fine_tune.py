"""Fine-tuning: a user's logs help where they tell something, and never hurt."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from synthetic import SCHEMA
from synthetic import make_corpus

from costmodel.cli import main
from costmodel.errors import NotEnoughDataError
from costmodel.learned import LearnedModel
from costmodel.training.eval_table import evaluation_rows
from costmodel.training.fine_tune import ELSEWHERE
from costmodel.training.fine_tune import KERNELS
from costmodel.training.fine_tune import SHAPES
from costmodel.training.fine_tune import deduplicated
from costmodel.training.fine_tune import fine_tune
from costmodel.training.fine_tune import kernel_folds
from costmodel.training.fit import FitSettings
from costmodel.training.no_worse import part
from costmodel.training.recipe import Recipe
from costmodel.training.train import train

SAMPLE = Path(__file__).parent.parent / "datasets" / "corpora" / "h200_sample"
QUICK = FitSettings(n_bags=2, n_trees=15, n_validity_trees=5, learning_rate=0.3)
TINY = FitSettings(n_bags=1, n_trees=8, n_validity_trees=3, learning_rate=0.3)
TINY_RECIPE = Recipe(model=TINY)


def _theirs(seed: int, n_families: int, *, n_shapes: int = 1, against: bool = False):
    """A user's workloads; `against`: their times are the reverse of the planted law."""
    found = []
    for one in make_corpus(
        seed, planted=True, n_families=n_families, n_shapes=n_shapes, n_configs=25
    ):
        sign = -1.0 if against else 1.0
        found.append(
            dataclasses.replace(
                one,
                workload_id=f"mine-{one.workload_id}",
                family=f"mine {one.family}",
                source_digest=f"mine-{one.source_digest}",
                log_ratio=sign * one.log_ratio,
            )
        )
    return found


@pytest.fixture(scope="module")
def base():
    return make_corpus(3, planted=True, n_families=4, n_configs=25)


def test_one_workload_cannot_be_judged_and_does_not_hurt(base) -> None:
    made = fine_tune(base, _theirs(8, 1, against=True), SCHEMA, "d", TINY_RECIPE)
    assert made.n_mine == 1
    for attempt in made.attempts:
        assert [one.name for one in attempt.parts] == [ELSEWHERE]
    kept = made.attempts[-1]
    if made.weight:
        (elsewhere,) = kept.parts
        assert elsewhere.found.overall.ratio >= 0.995
        numbers = elsewhere.as_json()
        assert numbers["n_harmed_after"] <= numbers["n_harmed_before"]


def test_what_hurts_is_not_kept(base, monkeypatch) -> None:
    # With every change refused, what is returned is the base, to the byte.
    from costmodel.training import no_worse

    monkeypatch.setattr(no_worse, "MAX_MEAN_LOSS", -10.0)
    made = fine_tune(base, _theirs(8, 2), SCHEMA, "d", TINY_RECIPE)
    assert [one.weight for one in made.attempts] == [2.0, 1.0]  # 4 > base / logs
    assert all(one.refusal for one in made.attempts)
    assert made.weight == 0.0
    alone = train(base, SCHEMA, "d", TINY)
    assert made.training.trees == alone.trees
    assert made.training.model.card == alone.model.card


def test_kernels_and_shapes_are_left_out_and_the_logs_are_learned_from(base) -> None:
    mine = _theirs(9, 2, n_shapes=2)
    made = fine_tune(base, mine, SCHEMA, "d", Recipe(model=QUICK), weights=(1.0,))
    names = {one.name: one for one in made.attempts[0].parts}
    assert set(names) == {KERNELS, SHAPES, ELSEWHERE}
    assert len(names[KERNELS].found.workloads) == len(mine)
    assert len(names[SHAPES].found.workloads) == len(mine)
    assert len(names[ELSEWHERE].found.workloads) == len(base)
    card = made.training.model.card
    n_learned = len(base) + (len(mine) if made.weight else 0)
    assert card.n_workloads == n_learned


def test_logs_that_are_the_base_itself_are_named(base) -> None:
    with pytest.raises(NotEnoughDataError, match="name another base"):
        fine_tune(base, base, SCHEMA, "d", TINY_RECIPE)


def test_no_fold_learns_from_what_it_judges(base) -> None:
    from costmodel.training.crossfit import family_folds
    from costmodel.training.fine_tune import _with_mine

    akin = dataclasses.replace(_theirs(8, 1)[0], family=base[0].family)
    same = dataclasses.replace(_theirs(8, 1)[0], source_digest=base[1].source_digest)
    mine = [akin, same, *_theirs(9, 3, n_shapes=2)]
    everyone = [*base, *mine]
    folds = [_with_mine(one, base, mine) for one in family_folds(base)]
    assert any(i >= len(base) for fold in folds for i in fold.train)
    for fold in folds:
        test = [everyone[i] for i in fold.test]
        for i in fold.train:
            assert everyone[i].family not in {one.family for one in test}
            assert everyone[i].source_digest not in {one.source_digest for one in test}
    own = kernel_folds(len(base), mine)
    assert sorted(i for fold in own for i in fold.test) == list(
        range(len(base), len(everyone))
    )
    for fold in own:
        assert not set(fold.test) & set(fold.train)
        left_out = {everyone[i].source_digest for i in fold.test}
        learned = {everyone[i].source_digest for i in fold.train if i >= len(base)}
        assert not left_out & learned


def test_a_run_counts_once_and_the_users_own_wins(base) -> None:
    again = dataclasses.replace(base[0], workload_id="recorded again")
    moved = dataclasses.replace(
        again, workload_id="elsewhere", log_ratio=again.log_ratio + 0.0
    )
    other = dataclasses.replace(again, log_ratio=again.log_ratio * 1.01)
    kept, own, n_repeated = deduplicated(base, [again, moved, other])
    assert n_repeated == 1
    assert len(own) == 2
    assert kept == list(base[1:])
    assert len({one.workload_id for one in [*kept, *own]}) == len(kept) + len(own)
    # The order of a log's rows is no difference.
    order = np.arange(again.n_rows)[::-1]
    turned = dataclasses.replace(
        again,
        log_ratio=again.log_ratio[order],
        config_ids=tuple(again.config_ids[i] for i in order),
    )
    assert deduplicated(base, [again, turned])[2] == 1


def test_a_weight_tells_a_fit_what_counts() -> None:
    # Two kinds of workload that contradict each other: the heavier is believed.
    from costmodel.layout import RowLayout
    from costmodel.training.fit import fit

    plain = make_corpus(5, planted=True, n_families=2, n_configs=40, failure_share=0.0)
    reverse = [
        dataclasses.replace(one, log_ratio=-one.log_ratio)
        for one in make_corpus(
            5, planted=True, n_families=2, n_configs=40, failure_share=0.0
        )
    ]
    layout = RowLayout.of(SCHEMA)

    def agreement(weight: float) -> float:
        heavy = [dataclasses.replace(one, weight=weight) for one in reverse]
        forest, _ = fit([*plain, *heavy], layout, QUICK, SCHEMA.hash)
        said = forest.predict(plain[0].features).gain_log
        return float(np.corrcoef(said, -plain[0].log_ratio)[0, 1])

    assert agreement(0.1) > 0.5
    assert agreement(10.0) < -0.5


def test_a_change_counts_both_ways(base) -> None:
    made = train(base, SCHEMA, "d", TINY)
    rows = evaluation_rows(made.by_family, made.folds)
    same = part("all", rows, rows)
    assert same.found.overall.ratio == 1.0
    assert same.worse == "" and same.as_json()["changed"] == []
    slow = [
        row | {"speedup": row["speedup"] / 2.0, "pick_config_id": "slow"}
        for row in rows
    ]
    assert part("all", rows, slow).worse
    assert part("all", slow, rows).worse == ""
    assert part("all", slow, rows).found.overall.ratio == pytest.approx(2.0)
    # One newly harmed workload of many is too many, whatever the mean says.
    harmed = [rows[0] | {"is_harm": True}, *rows[1:]]
    assert "slower than the default" in part("all", rows, harmed).worse
    assert part("none", rows, []) is None


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "1e9", "x"])
def test_a_weight_that_is_none_is_wrong_usage(weight) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["fine-tune", str(SAMPLE), f"--weight={weight}"])
    assert stop.value.code == 2


def test_a_folder_without_logs_is_one_line(tmp_path, capsys) -> None:
    assert main(["fine-tune", str(tmp_path), "--base", str(SAMPLE)]) == 1
    err = capsys.readouterr().err.strip().splitlines()
    assert err[-1].startswith("costmodel: ") and "Traceback" not in "".join(err)


@pytest.mark.slow
def test_logs_of_one_kernel_make_a_model_that_loads(tmp_path, capsys) -> None:
    own = tmp_path / "mine"
    own.mkdir()
    for file in SAMPLE.glob("rms_norm.*"):
        (own / file.name).write_bytes(file.read_bytes())
    output = tmp_path / "model"
    command = ["fine-tune", str(own), "--base", str(SAMPLE), "--output", str(output)]
    assert main([*command, "--weight", "2", "--json", "--no-track"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["n_mine"] == facts["n_replaced"] == 1
    model = LearnedModel.load(facts["model"])
    assert model.model_id == facts["model_id"]
    assert model.card.n_workloads == (8 if facts["weight"] else 7)


@pytest.mark.slow
def test_a_fine_tuning_is_a_run_with_its_attempts(base, tmp_path, monkeypatch) -> None:
    from costmodel.training import no_worse
    from costmodel.training.fine_tune_record import fine_tune_extra
    from costmodel.training.mlflow_store import URI_VARIABLE
    from costmodel.training.mlflow_store import opened
    from costmodel.training.run_extra import Input
    from costmodel.training.tracking import track

    monkeypatch.delenv(URI_VARIABLE, raising=False)
    mine = _theirs(9, 2, n_shapes=2)

    def record(made):
        extra = fine_tune_extra(
            made, Input("team", "b" * 64, base, "base"), Input("mine", "m" * 64, mine)
        )
        return track(
            made.training,
            made.learned_from,
            audit_text="kept all",
            corpus_name="both",
            root=tmp_path,
            extra=extra,
        )

    # The base alone first: nothing new, so nothing is registered.
    with monkeypatch.context() as refusing:
        refusing.setattr(no_worse, "MAX_MEAN_LOSS", -10.0)
        refused = fine_tune(base, mine, SCHEMA, "d" * 64, TINY_RECIPE)
    tracked = record(refused)
    assert tracked.model_version == "" and not tracked.is_champion
    made = fine_tune(base, mine, SCHEMA, "d" * 64, TINY_RECIPE, weights=(1.0,))
    kept = record(made)
    with opened(tmp_path) as store:
        runs = store.client.search_runs(["1"], max_results=200)
        by_id = {one.info.run_id: one for one in runs}
        first, run = by_id[tracked.run_id], by_id[kept.run_id]
        for parent, what in ((first, refused), (run, made)):
            assert parent.data.tags["kind"] == "fine-tune"
            assert parent.data.tags["refusal"] == what.attempts[-1].refusal
            inputs = {
                one.dataset.name: one.dataset.digest
                for one in parent.inputs.dataset_inputs
            }
            assert inputs == {"team": "b" * 36, "mine": "m" * 36}
            nested = [
                one
                for one in runs
                if one.data.tags.get("mlflow.parentRunId") == parent.info.run_id
            ]
            tried = [one for one in nested if one.data.tags["kind"] == "attempt"]
            weights = [float(one.data.params["weight"]) for one in tried]
            assert sorted(weights) == sorted(one.weight for one in what.attempts)
            assert any(one.data.tags["kind"] == "fold" for one in nested)
        change = made.attempts[0].parts[0].found.overall.ratio
        assert run.data.metrics["fine_tune/your_kernels/change"] == pytest.approx(
            change
        )
        files = {
            one.path for one in store.client.list_artifacts(kept.run_id, "fine_tune")
        }
        assert "fine_tune/before_after.json" in files
        assert "fine_tune/elsewhere.html" in files
        plots = {one.path for one in store.client.list_artifacts(kept.run_id, "plots")}
        assert "plots/before_after_your_kernels.png" in plots


def test_train_with_a_base_and_logs_is_a_fine_tuning(monkeypatch, tmp_path) -> None:
    from costmodel import cli_fine_tune

    asked = []
    monkeypatch.setattr(
        cli_fine_tune, "run_fine_tune", lambda *a, **k: asked.append((a, k)) or 0
    )
    recipe = tmp_path / "mine.toml"
    recipe.write_text("name = 'mine'\n[model]\nn_trees = 7\n")
    assert main(["train", "--base", "bundled", "--logs", "a", "b"]) == 0
    (logs, base, plain, _), options = asked[0]
    assert (logs, base) == (["a", "b"], ["bundled"])
    assert plain == Recipe().with_columns() and options["is_tracked"]
    assert main(["train", str(recipe), "--logs", "a", "--no-track"]) == 0
    (logs, base, given, _), options = asked[1]
    assert base == ["bundled"] and given.model.n_trees == 7 and given.name == "mine"
    assert not options["is_tracked"]
    for argv in (["--base", "bundled"], ["corpus", "--logs", "a"]):
        assert main(["train", *argv]) == 1
    assert len(asked) == 2
