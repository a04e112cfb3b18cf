"""Laws of the metrics: what counts as harm, as regret, as a tie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.training.metrics import FAILED_SPEEDUP
from costmodel.training.metrics import bootstrap_interval
from costmodel.training.metrics import geomean
from costmodel.training.metrics import outcome
from costmodel.training.metrics import summary


def _outcome(times_us: list[float], pick: int, order=(), floor: float = 0.03):
    """Outcome where config 0 is the default and NaN is a failure."""
    times = np.array(times_us)
    is_ok = np.isfinite(times)
    logs = np.log(times / times[0])
    return outcome(logs, is_ok, 0, pick, order, floor, floor)


def test_the_default_is_worth_one() -> None:
    found = _outcome([10.0, 5.0, 20.0], pick=0)
    assert found.speedup == 1.0
    assert not found.is_harm
    assert found.regret == pytest.approx(1.0)
    assert found.best_speedup == pytest.approx(2.0)


def test_a_failed_pick_is_charged_and_is_harm() -> None:
    found = _outcome([10.0, float("nan"), 8.0], pick=1, order=(1, 2))
    assert found.speedup == pytest.approx(FAILED_SPEEDUP)
    assert found.failed
    assert found.is_harm
    # Measuring would have shown the failure: the default stays in hand.
    assert found.regret_at[1] == pytest.approx(0.25)
    assert found.regret_at[3] == 0.0


def test_within_noise_is_neither_harm_nor_regret() -> None:
    found = _outcome([10.0, 10.2, 9.9], pick=1, floor=0.03)
    assert found.speedup < 1.0
    assert not found.is_harm
    assert found.regret == 0.0


def test_beyond_noise_is_harm() -> None:
    assert _outcome([10.0, 10.5], pick=1, floor=0.03).is_harm


@given(
    st.lists(st.floats(1.0, 1e4), min_size=2, max_size=12),
    st.randoms(use_true_random=False),
)
def test_measuring_more_never_costs(times: list[float], random) -> None:
    order = list(range(len(times)))
    random.shuffle(order)
    found = outcome(
        np.log(np.array(times) / times[0]),
        np.ones(len(times), dtype=bool),
        0,
        order[0],
        order,
        0.0,
        0.0,
        ks=range(1, len(times) + 1),
    )
    regrets = list(found.regret_at.values())
    assert regrets == sorted(regrets, reverse=True)
    assert regrets[-1] == 0.0
    # With the default in hand, one measured pick is never worse than the pick itself.
    assert found.regret_at[1] <= found.regret + 1e-9
    assert found.speedup <= found.best_speedup + 1e-9


@given(st.lists(st.floats(0.1, 40.0), min_size=1, max_size=20), st.floats(0.1, 10.0))
def test_geomean_scales(values: list[float], factor: float) -> None:
    scaled = geomean([value * factor for value in values])
    assert scaled == pytest.approx(geomean(values) * factor)


def test_interval_holds_the_mean_and_widens_with_fewer_kernels() -> None:
    rng = np.random.default_rng(0)
    values = np.exp(rng.normal(0.1, 0.2, 60)).tolist()
    many = bootstrap_interval(values, [f"k{i}" for i in range(60)])
    few = bootstrap_interval(values, [f"k{i % 4}" for i in range(60)])
    assert many[0] < geomean(values) < many[1]
    # All workloads alike within a kernel are no more evidence than one each.
    alike = [1.1] * 30 + [1.3] * 30
    as_two = bootstrap_interval(alike, ["a"] * 30 + ["b"] * 30)
    as_sixty = bootstrap_interval(alike, [f"k{i}" for i in range(60)])
    assert as_two[1] - as_two[0] > as_sixty[1] - as_sixty[0]
    assert few != many


def test_interval_is_deterministic() -> None:
    values, groups = [1.0, 1.2, 0.9], ["a", "b", "c"]
    first = bootstrap_interval(values, groups)
    assert first == bootstrap_interval(values, groups)


def test_summary_counts_harm_and_failures() -> None:
    outcomes = [
        _outcome([10.0, 5.0], 1, (1,)),
        _outcome([10.0, 20.0], 1, (1,)),
        _outcome([10.0, float("nan")], 1, (1,)),
        _outcome([10.0, 20.0], 0, (1,)),
    ]
    numbers = summary(outcomes, list("abcd"))
    assert numbers["n_workloads"] == 4
    assert numbers["harm_share"] == 0.5
    assert numbers["failed_share"] == 0.25
    assert numbers["speedup_worst"] == pytest.approx(0.1)
    assert numbers["speedup_geomean"] == pytest.approx((2 * 0.5 * 0.1) ** 0.25)


def test_summary_of_nothing() -> None:
    assert summary([], [])["speedup_geomean"] == 1.0
