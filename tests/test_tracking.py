"""MLflow: one run with everything in it, and a champion only for a better result."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from synthetic import SCHEMA
from synthetic import make_corpus

from costmodel.cli_measured import Measured
from costmodel.cli_record import recorded
from costmodel.datasets.audit import Audit
from costmodel.errors import TrackingError
from costmodel.training.champion import Standing
from costmodel.training.champion import beats
from costmodel.training.fit import FitSettings
from costmodel.training.mlflow_store import CHAMPION
from costmodel.training.mlflow_store import URI_VARIABLE
from costmodel.training.mlflow_store import tracking_uri
from costmodel.training.mlflow_store import ui_command
from costmodel.training.recipe import Recipe
from costmodel.training.tracking import track
from costmodel.training.train import train

QUICK = FitSettings(n_bags=1, n_trees=10, n_validity_trees=5, learning_rate=0.3)

STANDING = Standing(
    corpus_digest="abc",
    protocol="leave one family out",
    n_workloads=8,
    harm_share=0.0,
    speedup=1.05,
    regret_at_5=0.02,
)


@pytest.fixture(scope="module")
def corpus():
    return make_corpus(0, planted=True, n_families=3, n_configs=20)


@pytest.fixture(scope="module")
def training(corpus):
    return train(corpus, SCHEMA, "d" * 64, QUICK, name="toy")


@pytest.fixture
def own_store(monkeypatch, tmp_path):
    monkeypatch.delenv(URI_VARIABLE, raising=False)
    return tmp_path


def _track(training, corpus, root, **options):
    return track(
        training, corpus, audit_text="kept 60", corpus_name="toys", root=root, **options
    )


def test_ctrl_c_while_recording_says_how_to_record(
    training, corpus, monkeypatch, tmp_path, capsys
) -> None:
    def stopped(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("costmodel.cli_record.track", stopped)
    measured = Measured(("logs",), (), (), Audit())
    with pytest.raises(KeyboardInterrupt):
        recorded(training, corpus, measured, "", tmp_path / "toy.ubj", Recipe())
    said = capsys.readouterr().err
    assert "toy.ubj is published" in said and "the same command again" in said


@pytest.mark.slow
def test_one_run_holds_everything(training, corpus, own_store) -> None:
    import mlflow

    tracked = _track(
        training,
        corpus,
        own_store,
        artifacts={"toy.json": b"{}"},
        labels={one.workload_id: "4 by 4 tiles" for one in corpus},
    )
    assert URI_VARIABLE not in os.environ
    assert tracked.is_champion
    assert tracked.why == "first version of this model"
    client = mlflow.MlflowClient(tracking_uri=tracked.uri)
    run = client.get_run(tracked.run_id)
    assert float(run.data.params["n_trees"]) == QUICK.n_trees
    assert run.data.tags["schema_hash"] == SCHEMA.hash
    assert run.data.tags["corpus_digest"] == "d" * 64
    assert "git_commit" in run.data.tags
    assert "version.xgboost" in run.data.tags
    metrics = training.model.card.metrics
    for name in ("speedup_geomean", "harm_share", "regret_at_5"):
        assert run.data.metrics[name] == pytest.approx(metrics[name])
    curve = client.get_metric_history(tracked.run_id, "round_held_out_rmse")
    assert [point.step for point in curve] == list(range(QUICK.n_trees))
    # The same by class, family and GPU; the only GPU's is that of all.
    for group in ("class/matmul", "class/reduction", "family/family1"):
        name = f"{group}/round_held_out_rmse"
        points = client.get_metric_history(tracked.run_id, name)
        assert [point.step for point in points] == list(range(QUICK.n_trees))
        assert points[-1].value < points[0].value
    (used,) = run.inputs.dataset_inputs
    assert used.dataset.digest == "d" * 36
    assert used.dataset.name == "toys"
    lineage = {tag.key: tag.value for tag in used.tags}["lineage"]
    text = client.download_artifacts(tracked.run_id, lineage)
    assert Path(text).read_text() == "kept 60"
    files = {
        file.path
        for folder in ("", "evaluation", "plots", "published")
        for file in client.list_artifacts(tracked.run_id, folder)
    }
    assert {
        "audit.txt",
        "model_card.json",
        "evaluation/leave_one_family_out.txt",
        "evaluation/leave_one_family_out.parquet",
        "evaluation/leave_one_family_out.html",
        "evaluation/worst_picks.html",
        "evaluation/report.html",
        "plots/speedup.png",
        "plots/regret.png",
        "plots/regret_cdf.png",
        "plots/gain_calibration.png",
        "plots/validity_calibration.png",
        "plots/partial_dependence.png",
        "plots/importance.png",
        "published/toy.json",
    } <= files
    page = Path(client.download_artifacts(tracked.run_id, "evaluation/report.html"))
    assert "http" not in page.read_text().replace("http://www.w3.org", "")
    assert "4 by 4 tiles" in page.read_text()
    version = client.get_model_version_by_alias("toy", CHAMPION)
    assert str(version.version) == tracked.model_version
    assert (own_store / "mlruns" / "mlflow.db").exists()
    # The same result again is no better.
    again = _track(training, corpus, own_store)
    assert not again.is_champion
    assert again.why.startswith("equal to champion version 1; ")
    # The logged trees predict what the model's ranking trees do.
    mlflow.set_tracking_uri(tracked.uri)
    try:
        loaded = mlflow.xgboost.load_model(f"models:/toy@{CHAMPION}")
    finally:
        os.environ.pop(URI_VARIABLE, None)
    assert loaded.num_boosted_rounds() == training.model.card.n_rank_trees


def test_curves_of_groups_add_up_to_the_whole(training) -> None:
    curves = training.curves
    kinds = {kind for kind, _ in curves.groups}
    assert kinds == {"class", "family", "gpu"}
    for kind in kinds:
        some = [one for (of, _), one in curves.groups.items() if of == kind]
        weights = [one.weight for one in some]
        mse = np.average([one.mse for one in some], axis=0, weights=weights)
        (whole,) = [one for (of, _), one in curves.groups.items() if of == "gpu"]
        assert mse == pytest.approx(whole.mse)
    # XGBoost's own error of each fold is that of the fold's rows.
    for fold in training.folds:
        (whole,) = [one for (of, _), one in fold.curves.groups.items() if of == "gpu"]
        assert np.sqrt(whole.mse) == pytest.approx(fold.curves.held_out_rmse, rel=1e-4)


def test_a_store_that_cannot_be_is_one_clear_line(training, corpus, own_store) -> None:
    blocker = own_store / "file"
    blocker.write_text("not a folder")
    with pytest.raises(TrackingError, match="the model is not lost") as caught:
        _track(training, corpus, blocker)
    assert "\n" not in str(caught.value)
    assert URI_VARIABLE not in os.environ


def test_the_store_of_the_environment_wins(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv(URI_VARIABLE, "http://team:5000")
    assert tracking_uri(tmp_path) == "http://team:5000"
    assert ui_command().endswith("http://team:5000")
    monkeypatch.delenv(URI_VARIABLE)
    assert tracking_uri() == "sqlite:///mlruns/mlflow.db"
    assert ui_command() == "mlflow ui --backend-store-uri sqlite:///mlruns/mlflow.db"


def test_the_first_version_is_champion() -> None:
    assert beats(STANDING, None, "") == (True, "first version of this model")


@pytest.mark.parametrize(
    ("change", "won"),
    [
        ({"speedup": 1.06}, True),
        ({"speedup": 1.04}, False),
        ({"harm_share": 0.1, "speedup": 1.5}, False),
        ({"regret_at_5": 0.01}, True),
        ({"regret_at_5": 0.03}, False),
        ({}, False),
    ],
)
def test_only_better_on_the_same_evaluation(change, won) -> None:
    mine = dataclasses.replace(STANDING, **change)
    assert beats(mine, STANDING, "3")[0] is won
    if change:
        assert beats(STANDING, mine, "3")[0] is not won


@pytest.mark.parametrize("field", ["corpus_digest", "protocol"])
def test_other_evaluations_are_not_compared(field) -> None:
    mine = dataclasses.replace(STANDING, speedup=2.0, **{field: "other"})
    won, why = beats(mine, STANDING, "3")
    assert not won
    assert "not comparable" in why


def test_a_foreign_champion_stays() -> None:
    assert Standing.from_tags({"who": "else"}) is None
    assert not beats(STANDING, None, "7")[0]


def test_a_standing_round_trips() -> None:
    assert Standing.from_tags(STANDING.as_tags()) == STANDING
