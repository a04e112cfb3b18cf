"""Bags of trees for the small models beside the first stage, each fitted alike.

Regression on a slowdown in logs, robust to tails, one thread, fixed seeds. A bag is
told from the next by how much each group of rows weighs: a Bayesian bootstrap over
groups, as in `fit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import xgboost

from costmodel.training.merge import merged
from costmodel.types import FloatArray


class BagSettings(Protocol):
    """The numbers of such a fit; see `CodeSettings` and `PairSettings`."""

    @property
    def n_bags(self) -> int: ...
    @property
    def n_trees(self) -> int: ...
    @property
    def max_depth(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def column_share(self) -> float: ...
    @property
    def row_share(self) -> float: ...
    @property
    def min_child_weight(self) -> float: ...
    @property
    def seed(self) -> int: ...


def fit_bags(
    groups: Sequence[tuple[FloatArray, np.ndarray]],
    settings: BagSettings,
    stream: int,
    attributes: Mapping[str, str],
) -> tuple[xgboost.Booster, int, int]:
    """Fit all bags and join them.

    Args:
        groups: Rows and slowdowns of each workload or run. A group of n rows weighs
            as the root of n: more is known of it, but it is one kernel still.
        settings: Numbers of the fit.
        stream: Tells the draws of one model from those of another.
        attributes: Stored with the trees.

    Returns:
        The trees, how many bags, how many trees in all.
    """
    rows = np.ascontiguousarray(np.concatenate([r for r, _ in groups]), np.float32)
    target = np.concatenate([slow for _, slow in groups])
    parts = []
    for bag in range(settings.n_bags):
        rng = np.random.default_rng([settings.seed, bag, stream])
        heavy = rng.exponential(size=len(groups)) + 0.25
        weights = np.concatenate(
            [
                np.full(len(slow), weight / np.sqrt(max(1, len(slow))))
                for (_, slow), weight in zip(groups, heavy, strict=True)
            ]
        )
        data = xgboost.DMatrix(
            rows, label=target, weight=weights / weights.mean(), nthread=1
        )
        booster = xgboost.train(
            {
                "objective": "reg:pseudohubererror",
                "tree_method": "hist",
                "max_depth": settings.max_depth,
                "eta": settings.learning_rate,
                "subsample": settings.row_share,
                "colsample_bytree": settings.column_share,
                "min_child_weight": settings.min_child_weight,
                "base_score": 0.0,
                "nthread": 1,
                "seed": settings.seed * 1000 + bag,
            },
            data,
            num_boost_round=settings.n_trees,
            verbose_eval=False,
        )
        parts.append((booster, 1.0))
    n_trees = settings.n_bags * settings.n_trees
    return merged(parts, dict(attributes)), settings.n_bags, n_trees
