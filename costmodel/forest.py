"""From trees to gains: one booster that holds the whole ensemble.

The first `n_rank_trees` trees sum to ln(candidate time / reference time): equally many
pair and regression trees of each bag, bag after bag, scaled to an average by whoever
merged them (`costmodel.training.merge`). The trees after them sum to the log-odds that
a candidate compiles, runs and is not many times slower than the default. One file, one
load, a range of trees per bag.

The gain of a candidate is the sum for its default's own row minus the sum for its own.
A row holds what its default is (base minus difference), so no other row is needed, and
the default gains nothing over itself, whatever rounding does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from costmodel.layout import RowLayout
from costmodel.types import FloatArray

if TYPE_CHECKING:
    import xgboost

# Beyond this a gain says "the default is broken", not how much: the largest headroom
# measured on an H200 was 38.7x (design notes, 37 workloads, 2026-11).
_MAX_GAIN_LOG = np.float32(np.log(64.0))


@dataclass(frozen=True, slots=True)
class Predictions:
    """What the trees say of n candidates; float32[n] each, no margin taken off.

    Attributes:
        gain_log: Predicted ln(default time / candidate time), mean over bags.
        spread_log: Standard deviation of the same over bags, which were shown
            workloads with different weights: large where few workloads decide.
        valid_probability: That it runs and is not many times slower.
    """

    gain_log: FloatArray
    spread_log: FloatArray
    valid_probability: FloatArray


class Forest:
    """Owns a booster and the knowledge of which trees mean what."""

    def __init__(
        self,
        booster: xgboost.Booster,
        layout: RowLayout,
        n_bags: int,
        n_rank_trees: int,
        n_trees: int,
    ) -> None:
        # One thread: two do not help at 200 rows (measured, design notes), and a sum
        # over trees in a fixed order gives the same bits on every machine.
        booster.set_param({"nthread": 1})
        self.booster = booster
        self.layout = layout
        self.n_bags = n_bags
        self.n_rank_trees = n_rank_trees
        self.n_trees = n_trees

    def predict(self, rows: FloatArray, with_spread: bool = True) -> Predictions:
        """Predict gains over the default and validity.

        Args:
            rows: float32[n, n_features], C-contiguous.
            with_spread: Whether the bags are told apart. If not, all spreads are 0, it
                takes little more than half the time, and a mean gain may round
                differently in its last bits.

        Returns:
            0 and 1 for the default's own row.
        """
        n_rows = len(rows)
        if n_rows == 0:
            nothing = np.zeros(0, np.float32)
            return Predictions(nothing, nothing, nothing)
        references = self.layout.at_reference(rows)
        # Nearly all candidates of a workload name their default by the same bits.
        differs = (references != references[0]).any(axis=1)
        both = np.concatenate([rows, references[:1], references[differs]])
        n_parts = self.n_bags if with_spread else 1
        per_part = self.n_rank_trees // n_parts
        gains = np.empty((n_parts, n_rows), dtype=np.float32)
        for part in range(n_parts):
            slowdown = self._sum(both, part * per_part, (part + 1) * per_part)
            of_reference = np.full(n_rows, slowdown[n_rows], dtype=np.float32)
            of_reference[differs] = slowdown[n_rows + 1 :]
            gains[part] = n_parts * (of_reference - slowdown[:n_rows])
        is_reference = self.layout.is_reference(rows)
        gains[:, is_reference] = 0.0
        log_odds = self._sum(rows, self.n_rank_trees, self.n_trees).astype(np.float64)
        valid = (1.0 / (1.0 + np.exp(-log_odds))).astype(np.float32)
        valid[is_reference] = 1.0
        return Predictions(
            gain_log=np.clip(gains.mean(axis=0), -_MAX_GAIN_LOG, _MAX_GAIN_LOG),
            spread_log=gains.std(axis=0),
            valid_probability=valid,
        )

    def _sum(self, rows: FloatArray, first_tree: int, end_tree: int) -> FloatArray:
        # No name check happens on arrays; the schema hash was compared on loading.
        sums: FloatArray = self.booster.inplace_predict(
            rows,
            iteration_range=(first_tree, end_tree),
            predict_type="margin",
            validate_features=False,
        )
        return sums

    def importance(self, names: Sequence[str]) -> dict[str, float]:
        """Share of the ranking trees' total gain by feature name, largest first."""
        ranking = self.booster[: self.n_rank_trees]
        totals = ranking.get_score(importance_type="total_gain")
        by_name = {
            names[int(key[1:])]: float(np.sum(value)) for key, value in totals.items()
        }
        whole = sum(by_name.values()) or 1.0
        ordered = sorted(by_name.items(), key=lambda item: (-item[1], item[0]))
        return {name: value / whole for name, value in ordered}
