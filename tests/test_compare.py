"""Comparisons of evaluation tables: laws that hold whatever two models did."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel.errors import CorruptRecordError
from costmodel.errors import NotEnoughDataError
from costmodel.training.compare import Verdict
from costmodel.training.compare import compare
from costmodel.training.compare_show import as_facts
from costmodel.training.compare_show import figure
from costmodel.training.eval_table import COLUMNS
from costmodel.training.eval_table import evaluation_digest
from costmodel.training.eval_table import from_parquet
from costmodel.training.eval_table import to_html
from costmodel.training.eval_table import to_parquet
from costmodel.training.eval_table import worst
from costmodel.training.run_numbers import group_metrics
from costmodel.training.run_numbers import numbers_of


def _row(i: int, speedup: float, pick: str = "", **changes):
    row = {
        "workload_id": f"w{i:03d}",
        "kernel": f"kernel{i}",
        "kernel_digest": f"source{i // 2}",
        "family": f"family{i % 5}",
        "kernel_class": "matmul" if i % 2 else "reduction",
        "hardware": "NVIDIA H200",
        "fold": f"fold {i % 5}",
        "promoted": True,
        "default_us": 100.0,
        "pick_us": 100.0 / speedup,
        "best_us": 40.0,
        "speedup": speedup,
        "ungated_speedup": speedup,
        "analytic_speedup": 1.0,
        "best_speedup": 2.5,
        "predicted_speedup": 1.1,
        "regret": 2.5 / speedup - 1.0,
        "regret_at_1": 0.1,
        "regret_at_3": 0.1,
        "regret_at_5": 0.0,
        "noise_floor_log": 0.02,
        "harm_floor_log": 0.02,
        "is_harm": bool(np.log(speedup) < -0.02),
        "failed": False,
        "source": "learned",
        "reason": "gain_certain",
        "detail": "predicted <faster>",
        "default_config_id": "d",
        "pick_config_id": pick or f"{speedup:.6f}",
        "protocol": "leave one family out",
    }
    assert tuple(sorted(row)) == tuple(sorted(COLUMNS))
    return row | changes


def _table(speedups):
    return [_row(i, speedup) for i, speedup in enumerate(speedups)]


SPEEDUPS = st.lists(st.floats(0.5, 2.5), min_size=8, max_size=24)


def test_a_model_does_not_differ_from_itself() -> None:
    rows = _table([1.0, 1.2, 0.9, 2.0])
    found = compare(rows, rows)
    assert found.same_evaluation
    assert found.overall.ratio == 1.0
    assert {one.verdict for one in (*found.groups, *found.workloads)} == {Verdict.NOISE}


@settings(max_examples=30, deadline=None)
@given(SPEEDUPS, st.randoms(use_true_random=False))
def test_turned_round_every_difference_is_its_inverse(speedups, random) -> None:
    other = [one * random.choice([1.0, 1.005, 1.3, 0.8]) for one in speedups]
    a, b = _table(speedups), _table(other)
    there, back = compare(a, b), compare(b, a)
    turned = {
        Verdict.BETTER: Verdict.WORSE,
        Verdict.WORSE: Verdict.BETTER,
        Verdict.NOISE: Verdict.NOISE,
    }
    for one, two in zip(there.groups, back.groups, strict=True):
        assert one.ratio == pytest.approx(1.0 / two.ratio)
        assert one.low <= one.ratio * (1 + 1e-9)
        assert one.ratio <= one.high * (1 + 1e-9)
        assert (one.harm_a, one.harm_b) == (two.harm_b, two.harm_a)
    by_id = {one.a["workload_id"]: one.verdict for one in back.workloads}
    for one in there.workloads:
        assert by_id[one.a["workload_id"]] is turned[one.verdict]


def test_a_class_that_got_better_is_named_and_the_other_is_not() -> None:
    a = _table([1.0] * 24)
    b = [
        # Whole kernels, which are two workloads of both classes each, change or do not.
        _row(i, 1.25 if row["kernel_class"] == "matmul" else 1.0)
        for i, row in enumerate(a)
    ]
    found = compare(a, b)
    verdicts = {one.name: one.verdict for one in found.of("class")}
    assert verdicts == {"matmul": Verdict.BETTER, "reduction": Verdict.NOISE}
    assert found.overall.verdict is Verdict.BETTER
    assert found.overall.ratio == pytest.approx(1.25**0.5)
    assert found.count(Verdict.BETTER) == 12


def test_one_lucky_kernel_among_many_is_no_proof() -> None:
    a = _table([1.0] * 24)
    b = _table([3.0, *[1.0] * 23])
    assert compare(a, b).overall.verdict is Verdict.NOISE


def test_changes_within_the_noise_of_readings_are_none() -> None:
    a = _table([1.0] * 12)
    b = _table([1.01] * 12)
    assert compare(a, b).count(Verdict.NOISE) == 12
    # Many of them together are more than noise of single readings.
    assert compare(a, b).overall.verdict is Verdict.BETTER


def test_other_measurements_are_another_evaluation() -> None:
    a = _table([1.0, 1.1, 1.2, 1.3])
    assert evaluation_digest(a) == evaluation_digest(_table([2.0, 1.0, 0.7, 1.0]))
    for change in ({"default_us": 99.0}, {"fold": "x"}, {"protocol": "other"}):
        b = [a[0] | change, *a[1:]]
        assert not compare(a, b).same_evaluation
    fewer = compare(a, a[:3])
    assert not fewer.same_evaluation
    assert fewer.only_a == ("w003",)
    with pytest.raises(NotEnoughDataError, match="found none"):
        compare(a[:1], a[1:])


def test_a_table_survives_parquet_and_foreign_files_do_not() -> None:
    rows = [*_table([1.0, 1.5]), _row(2, 0.1, failed=True, pick_us=None)]
    assert from_parquet(to_parquet(rows)) == rows
    for content in (b"no parquet", to_parquet(rows)[:-20]):
        with pytest.raises(CorruptRecordError):
            from_parquet(content)


def test_the_page_escapes_and_marks_harm() -> None:
    rows = [*_table([1.0, 1.5]), _row(2, 0.5)]
    page = to_html(rows, "A & B")
    assert "A &amp; B" in page
    assert "<faster>" not in page
    assert page.count('class="harm"') == 1
    assert page.count('class="gain"') == 1
    assert worst(rows, 1)[0]["workload_id"] == "w002"


def test_groups_add_up_to_the_whole() -> None:
    rows = _table(np.linspace(0.8, 1.6, 20))
    grouped = group_metrics(rows)
    for kind in ("class", "family", "gpu"):
        names = {k.split("/")[1] for k in grouped if k.startswith(f"{kind}/")}
        n = [grouped[f"{kind}/{name}/n_workloads"] for name in names]
        logs = [np.log(grouped[f"{kind}/{one}/speedup_geomean"]) for one in names]
        assert sum(n) == len(rows)
        assert np.average(logs, weights=n) == pytest.approx(
            np.log(numbers_of(rows)["speedup_geomean"])
        )


def test_json_and_plot_hold_every_change() -> None:
    found = compare(_table([1.0, 1.2, 0.9, 1.1]), _table([1.0, 1.5, 0.9, 0.8]))
    facts = json.loads(json.dumps(as_facts(found, "a", "b")))
    assert len(facts["workloads"]) == 4
    assert [one["verdict"] for one in facts["workloads"]].count("worse") == 1
    labels = figure(found, "a", "b").axes[0].get_yticklabels()
    assert sorted(one.get_text() for one in labels) == ["kernel1", "kernel3"]
