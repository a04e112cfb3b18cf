"""Who grows the trees where examples do not fit in memory: one method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import xgboost

from costmodel.training.questions import Question

History = Mapping[str, Mapping[str, list[float]]]
"""Metric by round, by name of metric, by name of data: as XGBoost spells it."""


class Engine(Protocol):
    """Boosts on batches of examples instead of one array."""

    @property
    def n_parallel(self) -> int:
        """How many fits may run at once."""

    def boost(
        self,
        question: Question,
        parameters: Mapping[str, float | int | str],
        n_rounds: int,
        dropped_columns: tuple[int, ...] = (),
        watched: Question | None = None,
    ) -> tuple[xgboost.Booster, History]:
        """Grow trees.

        Args:
            question: What to learn.
            parameters: XGBoost's.
            n_rounds: Boosting rounds.
            dropped_columns: Columns that no tree may look at.
            watched: Only measured, round by round, as "held_out" beside "train".
        """
