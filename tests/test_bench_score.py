"""Speed-ups from readings: laws that hold whatever was read."""

from __future__ import annotations

import dataclasses
import math

import pytest
from bench_builder import config
from bench_builder import result
from hypothesis import given
from hypothesis import strategies as st

from costmodel.datasets.bench_file import BenchResult
from costmodel.datasets.bench_score import FAILED_SPEEDUP
from costmodel.datasets.bench_score import WorkloadScore
from costmodel.datasets.bench_score import score
from costmodel.features.canonical import config_id
from costmodel.training import metrics

TIMES = st.floats(1.0, 1000.0)
ROUNDS = st.lists(
    st.fixed_dictionaries({"d": TIMES, "p": TIMES, "q": TIMES}), min_size=1, max_size=6
)
COLUMNS = {"pick": ["p"], "top2": ["d", "p", "q"]}


def _score(one: BenchResult) -> WorkloadScore:
    found = score(one)
    assert found is not None
    return found


@given(ROUNDS, st.lists(st.floats(0.5, 2.0), min_size=6, max_size=6))
def test_a_drift_that_all_share_changes_nothing(
    rounds: list[dict[str, float]], drift: list[float]
) -> None:
    drifted = [
        {name: us * factor for name, us in times.items()}
        for times, factor in zip(rounds, drift, strict=False)
    ]
    before = _score(result(COLUMNS, rounds))
    after = _score(result(COLUMNS, drifted))
    for name, column in before.columns.items():
        assert after.columns[name].speedup == pytest.approx(column.speedup)
        assert after.columns[name].chosen == column.chosen


@given(ROUNDS)
def test_no_column_beats_the_best(rounds: list[dict[str, float]]) -> None:
    scored = _score(result(COLUMNS, rounds))
    for column in scored.columns.values():
        assert column.speedup <= scored.best_speedup * (1 + 1e-9)
    assert scored.best_speedup >= 1.0
    assert scored.columns["default"].speedup == 1.0
    assert not scored.columns["default"].is_harm


@given(ROUNDS)
def test_measuring_chooses_by_the_first_round_alone(
    rounds: list[dict[str, float]],
) -> None:
    chosen = _score(result(COLUMNS, rounds)).columns["top2"].chosen
    first = rounds[0]
    fastest = min(first.values())
    (name,) = [n for n in first if config_id(config(n)) == chosen]
    if len(rounds) > 1:
        assert first[name] == pytest.approx(fastest)


def test_luck_in_choosing_is_not_counted_as_speed() -> None:
    # `p` has one lucky reading, in the round that chooses.
    rounds = [{"d": 10.0, "p": 5.0, "q": 9.0}, {"d": 10.0, "p": 10.0, "q": 9.0}]
    column = _score(result(COLUMNS, rounds)).columns["top2"]
    assert column.chosen == config_id(config("p"))
    assert column.speedup == pytest.approx(1.0)


def test_a_failure_is_charged_as_in_training() -> None:
    rounds = [{"d": 10.0, "q": 5.0}] * 3
    assert FAILED_SPEEDUP == metrics.FAILED_SPEEDUP
    for status in ("error", "wrong", "timeout", "refused"):
        scored = _score(result(COLUMNS, rounds, failed={"p": status}))
        pick = scored.columns["pick"]
        assert (pick.status, pick.speedup) == (status, FAILED_SPEEDUP)
        assert pick.is_harm and pick.is_failure
        # Whoever measures sees that it fails, and takes another.
        assert scored.columns["top2"].speedup == pytest.approx(2.0)


def test_harm_and_gain_are_beyond_the_noise_of_both() -> None:
    def pick(rounds: list[dict[str, float]]) -> tuple[bool, bool]:
        column = _score(result({"pick": ["p"]}, rounds)).columns["pick"]
        return column.is_harm, column.is_gain

    steady = [10.0, 10.001, 9.999, 10.0]
    assert pick([{"d": us, "p": 1.002 * us} for us in steady]) == (False, False)
    assert pick([{"d": us, "p": 1.02 * us} for us in steady]) == (True, False)
    assert pick([{"d": us, "p": us / 1.02} for us in steady]) == (False, True)
    restless = [10.0, 11.0, 9.0, 10.5]
    assert pick([{"d": us, "p": 1.02 * us} for us in restless]) == (False, False)
    # One restless side is enough.
    assert pick([{"d": 10.0, "p": 1.02 * us} for us in restless]) == (False, False)
    assert pick([{"d": us, "p": 10.2} for us in restless]) == (False, False)


def test_seconds_of_a_measured_column_hold_what_measuring_took() -> None:
    scored = _score(result(COLUMNS, [{"d": 10.0, "p": 9.0, "q": 8.0}] * 2))
    assert scored.columns["pick"].decide_s == pytest.approx(0.01)
    assert scored.columns["pick"].n_measured == 0
    # All three configs: the whole compiling and all first readings.
    assert scored.columns["top2"].decide_s == pytest.approx(0.01 + 4.0 + 2.0)
    assert scored.columns["top2"].n_measured == 3


def test_a_default_without_a_time_scores_nothing() -> None:
    assert score(result(COLUMNS, [{"p": 9.0, "q": 8.0}], failed={"d": "error"})) is None


def test_the_same_machine_code_is_said() -> None:
    one = result({"pick": ["p"]}, [{"d": 10.0, "p": 10.0}] * 3)
    assert not _score(one).columns["pick"].same_code
    same = {
        name: dataclasses.replace(found, code_digest="one")
        for name, found in one.results.items()
    }
    assert _score(dataclasses.replace(one, results=same)).columns["pick"].same_code


def test_a_foreign_callable_does_not_raise_the_headroom() -> None:
    one = result({"pick": ["p"]}, [{"d": 10.0, "p": 5.0, "x": 1.0}] * 3)
    foreign = config_id(config("x"))
    results = dict(one.results)
    results["theirs"] = dataclasses.replace(results.pop(foreign), config=None)
    scored = _score(dataclasses.replace(one, results=results))
    assert math.isclose(scored.best_speedup, 2.0)
