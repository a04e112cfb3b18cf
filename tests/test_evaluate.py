"""`evaluate_logs`: judges on any log, never peeks, never crashes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import costmodel.training.evaluate as evaluate_module
from costmodel.card import ModelCard
from costmodel.datasets.load import load_logs
from costmodel.datasets.record import LabelQuality
from costmodel.datasets.record import Status
from costmodel.datasets.store_schema import run_key
from costmodel.datasets.workload_data import WorkloadData
from costmodel.features.schema import SCHEMA
from costmodel.layout import RowLayout
from costmodel.learned import LearnedModel
from costmodel.training.calibrate import uncalibrated_gate
from costmodel.training.evaluate import evaluate_logs
from costmodel.training.fit import FitSettings
from costmodel.training.fit import fit
from costmodel.training.label import label_all
from costmodel.training.trained_on import digest_of_keys
from costmodel.training.trained_on import seen_in_training

LOGS = Path(__file__).parent.parent / "datasets" / "corpora" / "h200_sample"
QUICK = FitSettings(n_bags=1, n_trees=40, n_validity_trees=20, learning_rate=0.2)

# What `costmodel evaluate --json` promises its readers.
FIELDS = {
    "log",
    "run_id",
    "run_ordinal",
    "kernel",
    "family",
    "n_attempts",
    "default_config_id",
    "default_ms",
    "pick_config_id",
    "pick_ms",
    "best_config_id",
    "best_ms",
    "speedup",
    "regret",
    "source",
    "reason",
    "top5_config_ids",
}


@pytest.fixture(scope="module")
def runs():
    return load_logs([LOGS]).usable


@pytest.fixture(scope="module")
def labelled(runs):
    return label_all([WorkloadData.from_clean_run(run) for run in runs])


@pytest.fixture(scope="module")
def model(labelled):
    forest, _ = fit(labelled.workloads, RowLayout.of(SCHEMA), QUICK, SCHEMA.hash)
    card = ModelCard(
        name="quick",
        schema_hash=SCHEMA.hash,
        group_hashes=dict(SCHEMA.group_hashes),
        feature_names=SCHEMA.names,
        n_bags=forest.n_bags,
        n_rank_trees=forest.n_rank_trees,
        n_trees=forest.n_trees,
        booster_sha256="0" * 64,
        gate=uncalibrated_gate(labelled.workloads),  # acts wherever it sees a gain
        corpus_digest="",
        families=(),
        hardware=(),
        n_workloads=0,
        n_rows=0,
        metrics={},
        parameters={},
        versions={},
        git_commit="unknown",
    )
    return LearnedModel(forest.booster, card)


@pytest.fixture(scope="module")
def report(runs, model):
    return evaluate_logs(runs, model)


def test_bundled_logs_are_labelled(labelled) -> None:
    assert labelled.skipped == ()
    assert len(labelled.workloads) == 8
    for one in labelled.workloads:
        assert one.log_ratio[one.default_index] == 0.0
        assert one.is_ok[one.default_index]
        assert one.features.shape == (one.n_rows, len(SCHEMA))
        default_row = one.features[one.default_index]
        assert not default_row[SCHEMA.columns("difference")].any()
        assert 0.0 < one.harm_floor_log <= one.noise_floor_log


def test_the_layout_and_the_extractor_agree_on_differences(labelled, runs) -> None:
    # Pair training subtracts with the layout; serving with the extractor.
    from costmodel.training.label import extractor_of

    layout = RowLayout.of(SCHEMA)
    one = labelled.workloads[0]
    extractor = extractor_of(WorkloadData.from_clean_run(runs[0]))
    reference = 5
    by_layout = layout.against(one.features, one.features[reference])
    by_extractor = extractor.matrix(list(one.configs), one.configs[reference])
    assert (by_layout == by_extractor).all()


def test_rows_have_the_fields_of_the_contract(report, runs) -> None:
    assert len(report["workloads"]) == len(runs)
    for row, run in zip(report["workloads"], runs, strict=True):
        assert set(row) >= FIELDS
        assert "error" not in row
        ids = {one.config_id for one in run.run.attempts}
        named = [row[f"{what}_config_id"] for what in ("default", "pick", "best")]
        assert ids >= {*named, *row["top5_config_ids"]}
        assert row["default_config_id"] not in row["top5_config_ids"]
        assert len(set(row["top5_config_ids"])) == len(row["top5_config_ids"]) == 5
        assert row["speedup"] == pytest.approx(row["default_ms"] / row["pick_ms"])
        assert row["regret"] == pytest.approx(row["pick_ms"] / row["best_ms"] - 1.0)
        assert row["best_ms"] <= min(row["default_ms"], row["pick_ms"])
        if row["source"] == "default":
            assert row["pick_config_id"] == row["default_config_id"]
        else:
            assert row["top5_config_ids"][0] == row["pick_config_id"]


def test_the_report_is_plain_json(report) -> None:
    text = json.dumps(report, allow_nan=False)
    assert json.loads(text) == report


def test_the_aggregate_adds_up(report) -> None:
    aggregate, rows = report["aggregate"], report["workloads"]
    assert aggregate["n_workloads"] == len(rows)
    assert aggregate["n_errors"] == 0
    assert sum(aggregate["sources"].values()) == len(rows)
    product = 1.0
    for row in rows:
        product *= row["speedup"]
    assert aggregate["speedup_geomean"] == pytest.approx(product ** (1 / len(rows)))
    assert aggregate["baseline"] == "auto"


def _spoiled(run, keep: str):
    """The same run where every config but one failed."""
    spoiled = tuple(
        one
        if one.config_id == keep
        else dataclasses.replace(
            one,
            status=Status.ERROR,
            latency_us=None,
            readings_us=(),
            noise_floor_log=float("nan"),
            label_quality=LabelQuality.NONE,
        )
        for one in run.measurements
    )
    return dataclasses.replace(run, measurements=spoiled)


def test_ranking_never_peeks_at_statuses_or_times(report, runs, model) -> None:
    spoiled = [
        _spoiled(run, row["default_config_id"])
        for run, row in zip(runs, report["workloads"], strict=True)
    ]
    again = evaluate_logs(spoiled, model)
    acted = 0
    for before, after in zip(report["workloads"], again["workloads"], strict=True):
        for field in ("pick_config_id", "top5_config_ids", "source", "reason"):
            assert after[field] == before[field]
        if after["source"] != "default":
            acted += 1
            assert after["pick_ms"] is None
            assert after["speedup"] == pytest.approx(0.1)
            assert after["is_harm"]
    assert acted > 0, "no learned pick: the test shows nothing"
    assert again["aggregate"]["n_harmed"] == acted
    json.dumps(again, allow_nan=False)


def test_the_order_of_attempts_does_not_matter(report, runs, model) -> None:
    # Measurements are sorted by `clean`; a gate that used positions would show here.
    turned = [
        dataclasses.replace(run, measurements=run.measurements[::-1]) for run in runs
    ]
    again = evaluate_logs(turned, model)
    for before, after in zip(report["workloads"], again["workloads"], strict=True):
        assert after["pick_config_id"] == before["pick_config_id"]
        assert after["top5_config_ids"] == before["top5_config_ids"]


def test_without_a_helion_rule_every_run_gets_a_pick(runs, model) -> None:
    unruled = [
        dataclasses.replace(
            run,
            run=dataclasses.replace(
                run.run, side=dataclasses.replace(run.run.side, promoted=False)
            ),
        )
        for run in runs
    ]
    report = evaluate_logs(unruled, model)
    assert report["aggregate"]["n_errors"] == 0
    assert report["aggregate"]["sources"].get("learned", 0) > 0
    # In-sample, so no evidence of skill; but a wrong sign somewhere would show.
    assert report["aggregate"]["speedup_geomean"] > 1.0


def test_a_run_with_a_problem_is_an_error_row_that_counts_as_default(
    runs, model
) -> None:
    broken = dataclasses.replace(
        runs[0], run=dataclasses.replace(runs[0].run, problem="cut in half")
    )
    report = evaluate_logs([broken, runs[1]], model)
    row = report["workloads"][0]
    assert set(row) >= FIELDS
    assert row["error"] == "cut in half"
    assert row["source"] == "default"
    assert row["speedup"] == 1.0
    assert row["pick_config_id"] == row["default_config_id"]
    assert report["aggregate"]["n_errors"] == 1
    assert "error" not in report["workloads"][1]


def test_a_graph_that_cannot_be_read_is_an_error_row_with_times(runs, model) -> None:
    record = dataclasses.replace(runs[0].run.record, ir_graph={"nodes": 7})
    broken = dataclasses.replace(
        runs[0], run=dataclasses.replace(runs[0].run, record=record)
    )
    (row,) = evaluate_logs([broken], model)["workloads"]
    assert "ir_graph" in row["error"]
    assert row["pick_ms"] == row["default_ms"] > 0
    assert row["regret"] == pytest.approx(row["default_ms"] / row["best_ms"] - 1.0)


def test_a_bug_of_ours_in_one_run_spares_the_others(runs, model, monkeypatch) -> None:
    real = evaluate_module.extractor_of

    def buggy(recorded):
        if recorded.record.kernel_name == runs[0].run.kernel_name:
            raise ZeroDivisionError("ours")
        return real(recorded)

    monkeypatch.setattr(evaluate_module, "extractor_of", buggy)
    report = evaluate_logs(runs, model)
    bad = report["workloads"][0]
    assert bad["error"] == "ZeroDivisionError: ours"
    assert bad["reason"] == "internal_error"
    assert report["aggregate"]["n_errors"] == 1


def test_a_run_without_its_default_is_an_error_row(runs, model) -> None:
    lost = tuple(one for one in runs[0].measurements if not one.is_default)
    (row,) = evaluate_logs([dataclasses.replace(runs[0], measurements=lost)], model)[
        "workloads"
    ]
    assert "does not hold Helion's default" in row["error"]
    assert row["speedup"] == 1.0


def test_an_evaluation_says_what_the_model_was_trained_on(runs, model) -> None:
    keys = [run_key(one) for one in runs]
    families = tuple(sorted({one.family for one in runs}))
    of_these = dataclasses.replace(
        model.card, corpus_digest=digest_of_keys(keys), families=families
    )
    assert "these very runs" in seen_in_training(runs, of_these)
    assert "these very runs" in seen_in_training(runs[::-1], of_these)
    n_known = sum(one.family == runs[0].family for one in runs[1:])
    some = dataclasses.replace(of_these, families=(runs[0].family,))
    said = seen_in_training(runs[1:], some)
    assert said.startswith(f"{n_known} of {len(runs) - 1} runs") or not n_known
    other = dataclasses.replace(some, corpus_digest="0" * 64, families=("other",))
    assert seen_in_training(runs, other) == "" == seen_in_training([], of_these)


def test_no_runs_at_all(model) -> None:
    report = evaluate_logs([], model)
    assert report["workloads"] == []
    assert report["aggregate"]["speedup_geomean"] == 1.0


def test_rows_count_attempts_as_the_log_does(report, runs) -> None:
    for row, run in zip(report["workloads"], runs, strict=True):
        assert row["n_attempts"] == run.run.n_attempts
        assert row["run_ordinal"] == run.run.run_ordinal


def _recorded_on(run, device: str) -> WorkloadData:
    recorded = WorkloadData.from_clean_run(run)
    record = dataclasses.replace(recorded.record, hardware=device)
    return dataclasses.replace(recorded, record=record, hardware=device)


def test_logs_of_a_described_device_can_be_learned_from(runs) -> None:
    # The shipped model never saw an A100; a user's own model may.
    labelled = label_all([_recorded_on(runs[0], "NVIDIA A100-SXM4-80GB")])
    assert labelled.skipped == ()
    assert labelled.workloads[0].hardware == "NVIDIA A100-SXM4-80GB"


def test_logs_of_a_device_without_a_description_are_left_out(runs) -> None:
    labelled = label_all([_recorded_on(runs[0], "Some Accelerator 3")])
    assert labelled.workloads == ()
    assert len(labelled.skipped) == 1
