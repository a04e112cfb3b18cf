"""Laws of re-timing: who is read again, in what order, and what noise is."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costmodel.datasets import retime

LATENCIES = st.one_of(st.floats(0.5, 1e5), st.just(math.inf), st.just(math.nan))


@given(st.lists(st.tuples(LATENCIES, st.sampled_from("abcdefghijkl")), max_size=30))
def test_finalists_are_the_fastest_distinct_programs(
    rows: list[tuple[float, str]],
) -> None:
    latencies = [latency for latency, _ in rows]
    identities = [identity for _, identity in rows]
    chosen = retime.choose_finalists(latencies, identities, "a")
    assert len(chosen) <= retime.N_BEST
    names = [identities[i] for i in chosen]
    assert len(set(names)) == len(names)
    assert "a" not in names
    assert all(math.isfinite(latencies[i]) for i in chosen)
    usable = [value for value in latencies if math.isfinite(value)]
    times = [latencies[i] for i in chosen]
    assert times == sorted(times)
    assert all(t <= retime.KEEP_WITHIN * min(usable) for t in times)
    if len(chosen) < retime.N_BEST:
        limit = retime.KEEP_WITHIN * min(usable, default=0.0)
        near = {n for t, n in rows if t <= limit}
        assert set(names) == near - {"a"}


class ScriptedTimer:
    """Gives latencies by index; counts seconds on a clock of its own."""

    regime = "scripted"

    def __init__(self, latency_us: Callable[[int], float], seconds: float) -> None:
        self._latency_us = latency_us
        self._seconds = seconds
        self.now = 0.0

    def prepare(self, launch: Callable[..., Any], about_us: float) -> Any:
        return launch

    def latency_us(self, prepared: Any) -> float:
        self.now += self._seconds
        return self._latency_us(prepared)


@given(
    n=st.integers(1, 9),
    seconds_each=st.floats(0.001, 5.0),
    budget_s=st.floats(0.0, 60.0),
)
def test_every_finalist_is_read_equally_often_and_at_least_thrice(
    n: int, seconds_each: float, budget_s: float
) -> None:
    timer = ScriptedTimer(lambda i: 10.0 + i, seconds_each)
    readings = retime.read_interleaved(
        timer,
        list(range(n)),
        random.Random(0),
        seconds=budget_s,
        clock=lambda: timer.now,
    )
    counts = Counter(reading.index for reading in readings)
    n_rounds = counts[0] // 2
    assert retime.MIN_ROUNDS <= n_rounds <= retime.N_ROUNDS
    assert counts[0] == 2 * n_rounds
    assert all(counts[i] == n_rounds for i in range(1, n))
    for number in range(n_rounds):
        places = [r.index for r in readings if r.round == number]
        assert places[0] == places[-1] == 0
    if n_rounds < retime.N_ROUNDS:
        assert timer.now >= budget_s


def test_noise_floor_is_the_default_against_itself() -> None:
    steady = ScriptedTimer(lambda i: 10.0 + i, 0.0)
    readings = retime.read_interleaved(steady, [0, 1], random.Random(0), seconds=1.0)
    assert retime.noise_floor_log(readings) == 0.0
    rng = random.Random(1)
    noisy = ScriptedTimer(lambda i: 10.0 * math.exp(rng.choice((0.0, 0.05))), 0.0)
    readings = retime.read_interleaved(noisy, [0, 1], random.Random(0), seconds=1.0)
    assert 0.0 <= retime.noise_floor_log(readings) <= 0.05 + 1e-9
    assert math.isnan(retime.noise_floor_log([]))


def test_regime_follows_the_default() -> None:
    assert retime.choose_regime(5.0) == "graph_replay"
    assert retime.choose_regime(30.0) == "back_to_back"


@given(about_us=st.floats(0.1, 1e6), n_sets=st.integers(1, 32))
def test_readings_take_milliseconds_whatever_the_kernel(
    about_us: float, n_sets: int
) -> None:
    n_graph = retime.graph_launches(about_us, n_sets)
    assert n_sets <= n_graph <= 200  # each argument set at least once
    n_event = retime.event_launches(about_us)
    assert 1 <= n_event <= 50
    assert n_event == 1 or n_event * about_us <= 20_000


@pytest.mark.parametrize(
    ("n_bytes", "expected"),
    [
        (60_000_000, 2),  # two of 60 MB are twice an L2 of 60 MB
        (1_000_000_000, 1),  # one does not fit into the L2 anyway
        (1_000, 32),  # no more than the limit, however small
    ],
)
def test_argument_sets_exceed_the_l2_in_reason(n_bytes: int, expected: int) -> None:
    class Tensor:
        def numel(self) -> int:
            return n_bytes

        def element_size(self) -> int:
            return 1

    copies = retime.argument_copies([Tensor(), 1e-5], 60_000_000, 140 * 10**9)
    assert copies == expected
    assert retime.argument_copies([Tensor()], 60_000_000, 0) == 1
