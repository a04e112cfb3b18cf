"""Drift: what is strange is said, what is ordinary is not, and codes mean something."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from costmodel.cli import main
from costmodel.datasets.load import load_logs
from costmodel.datasets.workload_data import WorkloadData
from costmodel.features.schema import SCHEMA
from costmodel.layout import RowLayout
from costmodel.learned import LearnedModel
from costmodel.training.calibrate import uncalibrated_gate
from costmodel.training.fit import FitSettings
from costmodel.training.fit import fit
from costmodel.training.label import label_all
from costmodel.training.monitor import Verdict
from costmodel.training.monitor import checks_of_counts
from costmodel.training.monitor import checks_of_runs
from costmodel.training.monitor import metrics_of
from costmodel.training.monitor_runs import SeenRun
from costmodel.training.monitor_runs import seen_runs
from costmodel.training.monitor_runs import seen_workloads

LOGS = Path(__file__).parent.parent / "datasets" / "corpora" / "h200_sample"
QUICK = FitSettings(n_bags=1, n_trees=25, n_validity_trees=10, learning_rate=0.3)


@pytest.fixture(scope="module")
def runs():
    return load_logs([LOGS]).usable


@pytest.fixture(scope="module")
def data(runs):
    return [WorkloadData.from_clean_run(run) for run in runs]


@pytest.fixture(scope="module")
def published(data, tmp_path_factory):
    """A quick model of the sample logs that acts wherever it sees a gain."""
    import hashlib

    from costmodel.card import ModelCard

    labelled = label_all(data).workloads
    forest, _ = fit(labelled, RowLayout.of(SCHEMA), QUICK, SCHEMA.hash)
    trees = bytes(forest.booster.save_raw("ubj"))
    gate = dataclasses.replace(uncalibrated_gate(labelled), max_outside=0.05)
    card = ModelCard(
        name="quick",
        schema_hash=SCHEMA.hash,
        group_hashes=dict(SCHEMA.group_hashes),
        feature_names=SCHEMA.names,
        n_bags=forest.n_bags,
        n_rank_trees=forest.n_rank_trees,
        n_trees=forest.n_trees,
        booster_sha256=hashlib.sha256(trees).hexdigest(),
        gate=gate,
        corpus_digest="",
        families=tuple(sorted({one.family for one in labelled})),
        hardware=("NVIDIA H200",),
        n_workloads=len(labelled),
        n_rows=0,
        metrics={},
        parameters={},
        versions={},
        git_commit="unknown",
    )
    path = tmp_path_factory.mktemp("model") / "quick.ubj"
    path.write_bytes(trees)
    path.with_suffix(".json").write_text(card.to_json())
    return path


@pytest.fixture(scope="module")
def model(published):
    return LearnedModel.load(published)


@pytest.fixture(scope="module")
def seen(runs, model):
    return seen_runs(runs, model)


def _named(checks):
    return {one.name: one for one in checks}


def test_what_was_trained_on_is_no_drift(seen) -> None:
    checks = _named(checks_of_runs(seen))
    assert len(seen) == 8
    for one in seen:
        assert one.problem == "" and one.gpu_kind == "exact"
        assert one.outside_share == 0.0 and one.outside == ()
    for name in ("outside_range", "unknown_kernel", "unknown_gpu", "harm"):
        assert checks[name].verdict is Verdict.FINE, checks[name]
    assert any(one.realised_log is not None for one in seen), "no pick: shows nothing"
    for one in seen:
        assert (one.realised_log is None) == (one.predicted_log is None)


def test_a_narrower_training_makes_the_same_logs_strange(data, model) -> None:
    card = model.card
    column = SCHEMA.index("w_n_dots")
    high = list(card.gate.range_high)
    low = list(card.gate.range_low)
    # As if every column had been far lower: now all rows lie outside.
    shifted = dataclasses.replace(
        card.gate,
        range_low=tuple(value - 1e6 for value in low),
        range_high=tuple(value - 1e6 for value in high),
    )
    narrow = LearnedModel(
        model._forest.booster, dataclasses.replace(card, gate=shifted)
    )
    found = seen_workloads(data[:2], narrow)
    assert all(one.is_outside and one.outside for one in found)
    assert found[0].reason == "out_of_range"
    check = _named(checks_of_runs(found))["outside_range"]
    assert check.verdict is Verdict.DRIFT and check.value == 1.0
    # One strange feature is named, and is not drift by itself.
    high[column] = low[column] = -100.0
    one_strange = dataclasses.replace(
        card.gate, range_low=tuple(low), range_high=tuple(high)
    )
    other = LearnedModel(
        model._forest.booster, dataclasses.replace(card, gate=one_strange)
    )
    (only,) = seen_workloads(data[:1], other)
    assert only.outside == ("w_n_dots",)
    assert not only.is_outside


def test_another_gpu_is_said(data, model) -> None:
    moved = dataclasses.replace(
        data[0],
        hardware="NVIDIA A100-SXM4-80GB",
        record=dataclasses.replace(data[0].record, hardware="NVIDIA A100-SXM4-80GB"),
    )
    check = _named(checks_of_runs(seen_workloads([moved, data[1]], model)))
    assert check["unknown_gpu"].verdict is Verdict.DRIFT
    assert "A100" in check["unknown_gpu"].detail


def test_a_run_that_cannot_be_read_says_why(runs, model) -> None:
    broken = dataclasses.replace(
        runs[0], run=dataclasses.replace(runs[0].run, problem="cut in half")
    )
    record = dataclasses.replace(runs[1].run.record, ir_graph={"nodes": 7})
    strange = dataclasses.replace(
        runs[1], run=dataclasses.replace(runs[1].run, record=record)
    )
    first, second = seen_runs([broken, strange], model)
    assert first.problem == "cut in half" and not first.is_unreadable
    assert second.problem and second.is_unreadable
    check = _named(checks_of_runs([first, second]))["unknown_kernel"]
    assert check.verdict is Verdict.DRIFT and check.value == 0.5


def _acted(kernel: int, predicted: float, realised: float, floor: float = 0.03):
    return SeenRun(
        log=f"log{kernel}",
        kernel=f"kernel{kernel}",
        kernel_id=str(kernel),
        hardware="NVIDIA H200",
        gpu_kind="exact",
        outside_share=0.0,
        predicted_log=predicted,
        realised_log=realised,
        noise_floor_log=floor,
    )


@pytest.mark.parametrize(
    ("short", "verdict"),
    [(0.0, Verdict.FINE), (0.02, Verdict.FINE), (0.2, Verdict.DRIFT)],
)
def test_gains_below_the_promise_are_drift_only_beyond_noise(short, verdict) -> None:
    acted = [_acted(i, 0.3, 0.3 - short) for i in range(6)]
    checks = _named(checks_of_runs(acted))
    assert checks["gain"].verdict is verdict
    assert checks["gain"].value == pytest.approx(math.exp(-short))
    assert checks["harm"].verdict is Verdict.FINE


def test_two_kernels_are_too_few_to_tell() -> None:
    acted = [_acted(i % 2, 0.3, 0.0) for i in range(20)]
    assert _named(checks_of_runs(acted))["gain"].verdict is Verdict.TOO_LITTLE


def test_one_harm_is_an_anecdote_and_many_are_drift() -> None:
    good = [_acted(i, 0.1, 0.1) for i in range(20)]
    bad = [_acted(100 + i, 0.1, -0.2) for i in range(4)]
    assert _named(checks_of_runs([*good, bad[0]]))["harm"].verdict is Verdict.FINE
    assert _named(checks_of_runs([*good, *bad]))["harm"].verdict is Verdict.DRIFT


def test_counters_of_a_provider() -> None:
    fine = _named(checks_of_counts({"gain_certain": 97, "out_of_range": 3}))
    assert {one.verdict for one in fine.values()} == {Verdict.FINE}
    worse = _named(
        checks_of_counts({"gain_certain": 80, "out_of_range": 19, "internal_error": 1})
    )
    assert worse["served_outside_range"].verdict is Verdict.DRIFT
    assert worse["served_failures"].verdict is Verdict.DRIFT
    assert "internal_error" in worse["served_failures"].detail
    assert worse["served_unknown_gpu"].verdict is Verdict.FINE
    nothing = checks_of_counts({"gain_certain": 0})
    assert {one.verdict for one in nothing} == {Verdict.TOO_LITTLE}
    assert metrics_of(worse.values())["drift_served_outside_range"] == 0.19
    assert metrics_of(worse.values())["drift_served_failures_found"] == 1.0


def test_the_command_and_its_exit_codes(published, tmp_path, capsys) -> None:
    stats = tmp_path / "stats.json"
    stats.write_text(json.dumps({"gain_certain": 1, "unknown_gpu": 1}))
    command = ["monitor", str(LOGS), "--stats", str(stats), "--model", str(published)]
    assert main([*command, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["drift"] is True
    assert len(facts["runs"]) == 8
    verdicts = {one["name"]: one["verdict"] for one in facts["checks"]}
    assert verdicts["served_unknown_gpu"] == "drift"
    assert verdicts["outside_range"] == "fine"
    assert main([*command, "--fail"]) == 3
    out = capsys.readouterr().out
    assert "drift: served_unknown_gpu" in out
    with pytest.raises(SystemExit) as stop:
        main(["monitor"])
    assert stop.value.code == 2


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "null",
        "3",
        '{"gain_certain": -1}',
        '{"gain_certain": true}',
        '{"made_up": 1}',
        '{"gain_certain": "1"}',
        "[" * 100_000,
    ],
)
def test_counters_that_are_none_are_one_line(content, published, tmp_path, capsys):
    stats = tmp_path / "stats.json"
    stats.write_text(content)
    command = ["monitor", "--stats", str(stats), "--model", str(published), "--fail"]
    assert main(command) == 1
    err = capsys.readouterr().err.strip()
    assert err.startswith("costmodel: ") and "\n" not in err
    assert "write json.dumps(costmodel.stats())" in err
    assert ("not JSON" in err) == (content in ("", "[" * 100_000))


@pytest.mark.slow
def test_a_look_is_an_mlflow_run(tmp_path, monkeypatch) -> None:
    from costmodel.training.mlflow_store import URI_VARIABLE
    from costmodel.training.mlflow_store import opened
    from costmodel.training.monitor_tracking import track_checks

    monkeypatch.delenv(URI_VARIABLE, raising=False)
    checks = checks_of_counts({"gain_certain": 3, "unknown_gpu": 1})
    facts = {"model_id": "abc", "checks": []}
    run_id = track_checks(metrics_of(checks), facts, root=tmp_path)
    with opened(tmp_path) as store:
        run = store.client.get_run(run_id)
    assert run.data.metrics["drift_served_unknown_gpu"] == 0.25
    assert run.data.tags["kind"] == "monitor"
