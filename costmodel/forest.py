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

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from costmodel.booster_bytes import booster_from
from costmodel.errors import CorruptRecordError
from costmodel.frozen import dataclass
from costmodel.layout import RowLayout
from costmodel.tree_file import read_trees
from costmodel.tree_sums import TreeSums
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
    """Owns the trees and the knowledge of which trees mean what.

    Serving sums them itself, which takes half of xgboost's time, spares its import and
    gives the same bits; xgboost reads them where somebody asks for more than sums, and
    where they are of a kind that `costmodel.tree_file` does not read.
    """

    def __init__(
        self,
        trees: xgboost.Booster | bytes,
        layout: RowLayout,
        n_bags: int,
        n_rank_trees: int,
        n_trees: int,
    ) -> None:
        """Make the trees ready.

        Args:
            trees: A booster, or what it writes as UBJSON.
            layout: Column blocks of the rows.
            n_bags: Ensembles whose mean is the prediction.
            n_rank_trees: Trees that predict the gain.
            n_trees: All trees.

        Raises:
            xgboost.core.XGBoostError: Nobody can read the bytes.
        """
        self._content: bytes
        self._booster: xgboost.Booster | None = None
        if isinstance(trees, bytes):
            self._content = trees
        else:
            self._content, self._booster = bytes(trees.save_raw("ubj")), trees
        self._sums: TreeSums | None = None
        with contextlib.suppress(CorruptRecordError):
            self._sums = TreeSums(read_trees(self._content))
        if self._sums is None or self._sums.n_trees != n_trees:
            self._sums = None
            self.booster  # noqa: B018 (read now, so that it fails now)
        self.layout = layout
        self.n_bags = n_bags
        self.n_rank_trees = n_rank_trees
        self.n_trees = n_trees

    @property
    def booster(self) -> xgboost.Booster:
        """The trees as xgboost has them."""
        if self._booster is None:
            self._booster = booster_from(self._content)
        # Also for a booster that was given to us: see `booster_from`.
        self._booster.set_param({"nthread": 1})
        return self._booster

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
        parts = [(p * per_part, (p + 1) * per_part) for p in range(n_parts)]
        *slowdowns, odds = self._all_sums(
            both, [*parts, (self.n_rank_trees, self.n_trees)]
        )
        gains = np.empty((n_parts, n_rows), dtype=np.float32)
        for part, slowdown in enumerate(slowdowns):
            of_reference = np.full(n_rows, slowdown[n_rows], dtype=np.float32)
            of_reference[differs] = slowdown[n_rows + 1 :]
            gains[part] = n_parts * (of_reference - slowdown[:n_rows])
        is_reference = self.layout.is_reference(rows)
        gains[:, is_reference] = 0.0
        log_odds = odds[:n_rows].astype(np.float64)
        valid = (1.0 / (1.0 + np.exp(-log_odds))).astype(np.float32)
        valid[is_reference] = 1.0
        return Predictions(
            gain_log=np.clip(gains.mean(axis=0), -_MAX_GAIN_LOG, _MAX_GAIN_LOG),
            spread_log=gains.std(axis=0),
            valid_probability=valid,
        )

    def _all_sums(
        self, rows: FloatArray, parts: Sequence[tuple[int, int]]
    ) -> list[FloatArray]:
        """Sums of some ranges of trees, first and end of each."""
        if self._sums is not None:
            return self._sums.sums(rows, parts)
        # No name check happens on arrays; the schema hash was compared on loading.
        booster = self.booster
        return [
            booster.inplace_predict(
                rows,
                iteration_range=part,
                predict_type="margin",
                validate_features=False,
            )
            for part in parts
        ]

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
