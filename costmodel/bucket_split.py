"""Cut a stream of sizes into few ranges, each with one config: exact, by recursion.

A server compiles one program for each range. Where to cut is decided on the predicted
losses alone, over all ways to cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodel.cover import Losses
from costmodel.frozen import dataclass

# Stands for "cannot serve" in sums; far above any sum of finite losses of interest.
_CANNOT_LOG = 1.0e6
# Losses are compared to this many decimals, as in `costmodel.cover`.
_DECIMALS = 9


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows `first` to `last`, both included, served by one column."""

    first: int
    last: int
    column: int


@dataclass(frozen=True, slots=True)
class Split:
    """Segments in order, every row in exactly one.

    Attributes:
        segments: Rising and without gaps.
        mean_log: Weighted mean loss.
        total_log: What was minimised: the mean and what the segments cost.
        can_serve: False where some row has no column that serves its segment.
    """

    segments: tuple[Segment, ...]
    mean_log: float
    total_log: float
    can_serve: bool


def split_rows(
    loss_log: Losses,
    weights: Sequence[float],
    limit: int,
    *,
    cost_log: float = 0.0,
) -> Split:
    """Cut the rows into at most `limit` segments that lose least.

    Minimises the weighted mean loss + `cost_log` for each segment after the first. Of
    equal splits the one with fewer segments wins.

    Args:
        loss_log: float64[n_rows, n_columns], rows by rising size; inf where a column
            cannot serve.
        weights: Of the rows, > 0; only their ratios matter.
        limit: Most segments, >= 1.
        cost_log: What one more segment must save in mean loss to be made.

    Raises:
        ValueError: An empty table, a limit below 1 or weights that are not positive.
    """
    loss = np.minimum(np.asarray(loss_log, dtype=np.float64), _CANNOT_LOG)
    share = np.asarray(weights, dtype=np.float64)
    if loss.ndim != 2 or 0 in loss.shape or share.shape != loss.shape[:1]:
        raise ValueError(f"expected a table with weights, found shape {loss.shape}")
    if limit < 1 or not bool((share > 0).all()):
        raise ValueError("expected a limit of at least 1 and weights > 0")
    share = share / share.sum()
    n = len(loss)
    sums = np.zeros((n + 1, loss.shape[1]))
    np.cumsum(loss * share[:, None], axis=0, out=sums[1:])
    # cost[i, j]: rows i..j in one segment.
    cost = np.full((n, n), np.inf)
    column = np.zeros((n, n), dtype=np.int64)
    for i in range(n):
        spans = sums[i + 1 :] - sums[i]
        column[i, i:] = spans.argmin(axis=1)
        cost[i, i:] = spans.min(axis=1)
    best = cost[0].copy()  # best[j]: rows 0..j in `size` segments
    cuts: list[np.ndarray] = []  # cuts[size - 2][j]: where the last of them starts
    answers = [(round(float(best[-1]), _DECIMALS), 1)]
    for size in range(2, min(limit, n) + 1):
        longer = np.full(n, np.inf)
        start = np.zeros(n, dtype=np.int64)
        for j in range(size - 1, n):
            totals = best[size - 2 : j] + cost[size - 1 : j + 1, j]
            place = int(totals.argmin())
            longer[j], start[j] = totals[place], size - 1 + place
        best = longer
        cuts.append(start)
        total = float(best[-1]) + cost_log * (size - 1)
        answers.append((round(total, _DECIMALS), size))
    total, size = min(answers)
    segments: list[Segment] = []
    end = n - 1
    for level in range(size, 0, -1):
        first = int(cuts[level - 2][end]) if level > 1 else 0
        segments.append(Segment(first, end, int(column[first, end])))
        end = first - 1
    segments.reverse()
    lost = [
        loss[s.first : s.last + 1, s.column] @ share[s.first : s.last + 1]
        for s in segments
    ]
    can_serve = all(
        bool((loss[s.first : s.last + 1, s.column] < _CANNOT_LOG).all())
        for s in segments
    )
    return Split(tuple(segments), float(sum(lost)), total, can_serve)
