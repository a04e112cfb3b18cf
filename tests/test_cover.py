"""Laws of choosing few configs for many shapes, against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel import cover as cover_module
from costmodel.bucket_split import split_rows
from costmodel.cover import choose_cover

LOSS = st.one_of(st.floats(0.0, 3.0), st.just(math.inf), st.just(0.0))


@st.composite
def tables(draw: st.DrawFn, rows: int = 6, columns: int = 6) -> tuple[np.ndarray, list]:
    n = draw(st.integers(1, rows))
    m = draw(st.integers(1, columns))
    cells = draw(st.lists(LOSS, min_size=n * m, max_size=n * m))
    weights = draw(st.lists(st.floats(0.1, 10.0), min_size=n, max_size=n))
    return np.array(cells).reshape(n, m), weights


def merit(
    loss: np.ndarray, weights: list, columns: tuple[int, ...], bound: float, cost: float
) -> tuple[int, float, float]:
    """The statement of `choose_cover`, spelled out."""
    best = [min(loss[i, j] for j in columns) for i in range(len(loss))]
    served = [(b, w) for b, w in zip(best, weights, strict=True) if b < math.inf]
    mean = worst = 0.0
    if served:
        mean = sum(b * w for b, w in served) / sum(w for _, w in served)
        worst = max(b for b, _ in served)
    total = mean + worst + cost * (len(columns) - 1)
    # Rounded as there, so that a difference of 1e-38 decides nothing.
    return len(best) - len(served), round(max(0.0, worst - bound), 9), round(total, 9)


def brute_force(
    loss: np.ndarray, weights: list, limit: int, bound: float, cost: float
) -> tuple[int, float, float]:
    sets = (
        chosen
        for size in range(1, limit + 1)
        for chosen in itertools.combinations(range(loss.shape[1]), size)
    )
    return min(merit(loss, weights, chosen, bound, cost) for chosen in sets)


@settings(max_examples=60)
@given(tables(5, 5), st.integers(1, 5), st.floats(0.0, 2.0), st.floats(0.0, 0.3))
def test_small_tables_are_solved_exactly(
    table: tuple[np.ndarray, list], limit: int, bound: float, cost: float
) -> None:
    loss, weights = table
    found = choose_cover(loss, weights, limit, worst_bound_log=bound, cost_log=cost)
    assert len(found.columns) <= limit
    assert found.is_exact
    mine = merit(loss, weights, found.columns, bound, cost)
    assert mine == pytest.approx(brute_force(loss, weights, limit, bound, cost))


@settings(max_examples=25)
@given(tables(6, 6))
def test_a_larger_limit_is_never_worse_even_without_exactness(
    table: tuple[np.ndarray, list],
) -> None:
    loss, weights = table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cover_module, "MOST_SETS", 8)  # two or more: swaps decide
        found = [choose_cover(loss, weights, limit) for limit in range(1, 7)]
    merits = [merit(loss, weights, one.columns, math.inf, 0.0) for one in found]
    for smaller, larger in itertools.pairwise(merits):
        assert larger <= (smaller[0], smaller[1] + 1e-8, smaller[2] + 1e-8)
    for limit, one in enumerate(found, start=1):
        best = brute_force(loss, weights, limit, math.inf, 0.0)
        mine = merit(loss, weights, one.columns, math.inf, 0.0)
        assert mine >= (best[0], best[1] - 1e-8, best[2] - 1e-8)


def test_swaps_leave_what_only_adding_cannot() -> None:
    # The best single column (2) is in no best pair: adding to it alone stays worse.
    loss = np.array([[0.0, 2.0, 0.9], [0.0, 2.0, 0.9], [2.0, 0.0, 0.9], [2, 0, 0.9]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cover_module, "MOST_SETS", 0)
        assert choose_cover(loss, [1] * 4, 1).columns == (2,)
        assert choose_cover(loss, [1] * 4, 2).columns == (0, 1)


@settings(max_examples=40)
@given(tables(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_order_of_shapes_decides_nothing(
    table: tuple[np.ndarray, list], limit: int, random: object
) -> None:
    loss, weights = table
    order = list(range(len(loss)))
    random.shuffle(order)  # type: ignore[attr-defined]
    one = choose_cover(loss, weights, limit)
    other = choose_cover(loss[order], [weights[i] for i in order], limit)
    assert one.columns == other.columns
    assert [one.serves[i] for i in order] == list(other.serves)


@settings(max_examples=40)
@given(tables(), st.integers(1, 6))
def test_every_shape_is_served_by_the_best_that_was_chosen(
    table: tuple[np.ndarray, list], limit: int
) -> None:
    loss, weights = table
    found = choose_cover(loss, weights, limit)
    for row, column in enumerate(found.serves):
        best = min(loss[row, j] for j in found.columns)
        assert (column == -1) == (best == math.inf)
        if column >= 0:
            assert column in found.columns
            assert loss[row, column] == best


def test_no_more_configs_than_help() -> None:
    loss = np.array([[0.0, 0.0, 0.3], [0.5, 0.0, 0.1]])
    assert choose_cover(loss, [1, 1], 3).columns == (1,)
    costly = np.array([[0.0, 0.1], [0.1, 0.0]])
    assert len(choose_cover(costly, [1, 1], 2).columns) == 2
    assert len(choose_cover(costly, [1, 1], 2, cost_log=0.2).columns) == 1


@pytest.mark.parametrize("bad", ["empty", "limit", "weight"])
def test_what_makes_no_sense_is_refused(bad: str) -> None:
    loss = np.zeros((0, 2)) if bad == "empty" else np.zeros((1, 2))
    weights = [0.0] if bad == "weight" else [1.0] * len(loss)
    for solve in (choose_cover, split_rows):
        with pytest.raises(ValueError, match="expected"):
            solve(loss, weights, 0 if bad == "limit" else 1)


def brute_force_split(
    loss: np.ndarray, weights: list, limit: int, cost: float
) -> float:
    n = len(loss)
    totals = []
    for size in range(1, min(limit, n) + 1):
        for cuts in itertools.combinations(range(1, n), size - 1):
            edges = [0, *cuts, n]
            mean = 0.0
            for low, high in itertools.pairwise(edges):
                part = loss[low:high] * np.array(weights[low:high])[:, None]
                mean += part.sum(axis=0).min()
            totals.append(mean / sum(weights) + cost * (size - 1))
    return min(totals)


FINITE = st.floats(0.0, 3.0)


@st.composite
def finite_tables(draw: st.DrawFn) -> tuple[np.ndarray, list]:
    n, m = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    cells = draw(st.lists(FINITE, min_size=n * m, max_size=n * m))
    weights = draw(st.lists(st.floats(0.1, 10.0), min_size=n, max_size=n))
    return np.array(cells).reshape(n, m), weights


@settings(max_examples=40)
@given(finite_tables(), st.integers(1, 7), st.floats(0.0, 0.3))
def test_a_split_is_the_best_of_all_splits(
    table: tuple[np.ndarray, list], limit: int, cost: float
) -> None:
    loss, weights = table
    found = split_rows(loss, weights, limit, cost_log=cost)
    best = brute_force_split(loss, weights, limit, cost)
    assert found.total_log == pytest.approx(best, abs=1e-7)
    spent = found.mean_log + cost * (len(found.segments) - 1)
    assert spent == pytest.approx(found.total_log, abs=1e-7)
    assert found.can_serve


@settings(max_examples=40)
@given(tables(8, 5), st.floats(0.0, 0.3))
def test_more_buckets_are_never_worse_and_hold_each_row_once(
    table: tuple[np.ndarray, list], cost: float
) -> None:
    loss, weights = table
    found = [split_rows(loss, weights, k, cost_log=cost) for k in range(1, 10)]
    for limit, one in enumerate(found, start=1):
        assert len(one.segments) <= limit
        rows = [i for s in one.segments for i in range(s.first, s.last + 1)]
        assert rows == list(range(len(loss)))
    for smaller, larger in itertools.pairwise(found):
        assert larger.total_log <= smaller.total_log
    if bool(np.isfinite(loss).any(axis=1).all()):
        assert found[len(loss) - 1].can_serve or cost > 0.0
