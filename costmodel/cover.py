"""Few configs for many shapes: which ones lose least, on average and at worst.

Pure arithmetic on a table of losses. Small tables are solved exactly, larger ones by
the best addition followed by swaps, always starting from the answer for one config
less, so that a larger limit never gives a worse answer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from costmodel.frozen import dataclass

Losses: TypeAlias = npt.NDArray[np.float64]

# Sets of configs that are tried one by one: about 0.3 s on one core.
MOST_SETS = 20_000
# Losses are compared to this many decimals, so that the order in which shapes are
# summed decides nothing.
_DECIMALS = 9

_Merit: TypeAlias = tuple[int, float, float]


@dataclass(frozen=True, slots=True)
class Cover:
    """Chosen columns of a table of losses.

    Attributes:
        columns: Chosen columns, rising.
        serves: For each row the chosen column that loses least there; -1 where no
            chosen column can serve the row.
        mean_log: Weighted mean over the served rows of the loss there.
        worst_log: Largest of these losses.
        is_exact: Whether every set of this size was considered.
    """

    columns: tuple[int, ...]
    serves: tuple[int, ...]
    mean_log: float
    worst_log: float
    is_exact: bool

    @property
    def unserved(self) -> tuple[int, ...]:
        """Rows that no chosen column can serve."""
        return tuple(i for i, column in enumerate(self.serves) if column < 0)


def choose_cover(
    loss_log: Losses,
    weights: Sequence[float],
    limit: int,
    *,
    worst_share: float = 1.0,
    worst_bound_log: float = math.inf,
    cost_log: float = 0.0,
) -> Cover:
    """Choose at most `limit` columns that together lose least.

    Sets are compared by rows that they cannot serve, then by how far the worst loss
    exceeds the bound, then by mean + `worst_share` x worst + `cost_log` for each
    column after the first. Of equal sets the smaller wins, then the earlier columns.

    Args:
        loss_log: float64[n_rows, n_columns], >= 0; inf where a column cannot serve.
        weights: Of the rows, > 0; only their ratios matter.
        limit: Most columns, >= 1.
        worst_share: What the worst row counts beside the mean.
        worst_bound_log: Losses above it are avoided before anything else.
        cost_log: What one more column must save to be taken.

    Raises:
        ValueError: An empty table, a limit below 1 or weights that are not positive.
    """
    table = _Table(loss_log, weights, worst_share, worst_bound_log, cost_log)
    if limit < 1:
        raise ValueError(f"expected a limit of at least 1, found {limit}")
    columns = table.undominated()
    chosen: tuple[int, ...] = ()
    best: tuple[_Merit, tuple[int, ...], bool] | None = None
    for size in range(1, min(limit, len(columns)) + 1):
        is_exact = math.comb(len(columns), size) <= MOST_SETS
        if is_exact:
            sets = itertools.combinations(columns, size)
            chosen = min(sets, key=lambda one: (table.merit(one), one))
        else:
            chosen = _improved(table, columns, chosen)
        merit = table.merit(chosen)
        if best is None or merit < best[0]:
            best = (merit, chosen, is_exact)
    assert best is not None
    return table.cover(best[1], best[2])


class _Table:
    """Losses with what makes one set of columns better than another."""

    def __init__(
        self,
        loss_log: Losses,
        weights: Sequence[float],
        worst_share: float,
        worst_bound_log: float,
        cost_log: float,
    ) -> None:
        self._loss = np.asarray(loss_log, dtype=np.float64)
        if self._loss.ndim != 2 or 0 in self._loss.shape:
            raise ValueError(f"expected a table, found shape {self._loss.shape}")
        share = np.asarray(weights, dtype=np.float64)
        if share.shape != self._loss.shape[:1] or not bool((share > 0).all()):
            raise ValueError("expected one weight > 0 for each row")
        self._weights = share / share.sum()
        self._worst_share = worst_share
        self._bound = worst_bound_log
        self._cost = cost_log

    def undominated(self) -> list[int]:
        """Columns that no other is at least as good as in every row.

        Dropping the others changes no best set: each can be replaced in any set.
        """
        loss = self._loss
        kept: list[int] = []
        for j in range(loss.shape[1]):
            below = (loss <= loss[:, [j]]).all(axis=0)
            same = (loss == loss[:, [j]]).all(axis=0)
            beaten = below & ~same
            beaten |= same & (np.arange(loss.shape[1]) < j)
            if not beaten.any():
                kept.append(j)
        return kept

    def merit(self, columns: Sequence[int]) -> _Merit:
        """What sets are compared by; smaller is better."""
        best = self._loss[:, list(columns)].min(axis=1)
        served = np.isfinite(best)
        mean, worst = self._mean_worst(best, served)
        excess = max(0.0, worst - self._bound)
        total = mean + self._worst_share * worst + self._cost * (len(columns) - 1)
        return (
            int((~served).sum()),
            round(excess, _DECIMALS),
            round(total, _DECIMALS),
        )

    def cover(self, columns: tuple[int, ...], is_exact: bool) -> Cover:
        """The set with everything that is told about it."""
        part = self._loss[:, list(columns)]
        best = part.min(axis=1)
        served = np.isfinite(best)
        at = part.argmin(axis=1)
        mean, worst = self._mean_worst(best, served)
        return Cover(
            columns=columns,
            serves=tuple(
                columns[int(place)] if ok else -1
                for place, ok in zip(at, served, strict=True)
            ),
            mean_log=mean,
            worst_log=worst,
            is_exact=is_exact,
        )

    def _mean_worst(
        self, best: Losses, served: npt.NDArray[np.bool_]
    ) -> tuple[float, float]:
        if not served.any():
            return 0.0, 0.0
        weights = self._weights[served]
        mean = float(weights @ best[served] / weights.sum())
        return mean, float(best[served].max())


def _improved(
    table: _Table, columns: Sequence[int], start: tuple[int, ...]
) -> tuple[int, ...]:
    """The best addition to a set, then swaps for as long as one helps."""
    additions = [tuple(sorted((*start, c))) for c in columns if c not in start]
    chosen = min(additions, key=lambda one: (table.merit(one), one))
    while True:
        swaps = [
            tuple(sorted((*chosen[:place], *chosen[place + 1 :], column)))
            for place in range(len(chosen))
            for column in columns
            if column not in chosen
        ]
        if not swaps:
            return chosen
        better = min(swaps, key=lambda one: (table.merit(one), one))
        if table.merit(better) >= table.merit(chosen):
            return chosen
        chosen = better
