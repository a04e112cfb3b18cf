"""Boosting from disk: XGBoost's quantised pages in files, one batch of rows in memory.

Cuts between bins come from sketches of the batches instead of one of all rows; with the
fit's 64 bins they are nearly those of memory, and trees differ where two splits are
equally good within that difference. One thread, as in memory: the same shards in the
same batches give the same bytes.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from costmodel.training.engine import History
from costmodel.training.questions import Question
from costmodel.training.uninterrupted import uninterrupted

# Example rows made at once: 92 MB of float32 at 230 features, and as much again while
# XGBoost takes them over.
BATCH_ROWS = 100_000


class ExternalMemory:
    """An `Engine` on one machine; pages lie in a temporary folder while it boosts.

    Attributes:
        n_parallel: Fits at once: one, since each has a batch in memory.
        n_examples: Example rows learned from so far.
    """

    n_parallel = 1

    def __init__(self, batch_rows: int = BATCH_ROWS, cache: Path | None = None) -> None:
        """Set up; nothing is read yet.

        Args:
            batch_rows: Example rows in memory at once, about.
            cache: Where pages lie; default: the system's folder for temporary files.
        """
        self._batch_rows = batch_rows
        self._cache = cache
        self.n_examples = 0

    def boost(
        self,
        question: Question,
        parameters: Mapping[str, float | int | str],
        n_rounds: int,
        dropped_columns: tuple[int, ...] = (),
        watched: Question | None = None,
    ) -> tuple[xgboost.Booster, History]:
        """See `Engine.boost`."""
        with tempfile.TemporaryDirectory(dir=self._cache) as folder:
            booster, history = self._boost(
                question, parameters, n_rounds, dropped_columns, watched, folder
            )
            # The booster holds on to its data, whose files are about to go.
            booster.reset()
            gc.collect()
        self.n_examples += question.n_examples
        return booster, history

    def _boost(
        self,
        question: Question,
        parameters: Mapping[str, float | int | str],
        n_rounds: int,
        dropped_columns: tuple[int, ...],
        watched: Question | None,
        folder: str,
    ) -> tuple[xgboost.Booster, History]:
        history: dict[str, dict[str, list[float]]] = {}
        data = self._matrix(question, parameters, dropped_columns, folder, "train")
        evals = []
        if watched is not None:
            apart = self._matrix(
                watched, parameters, dropped_columns, folder, "held_out", data
            )
            evals = [(data, "train"), (apart, "held_out")]
        booster = xgboost.train(
            dict(parameters),
            data,
            num_boost_round=n_rounds,
            evals=evals,
            evals_result=history,
            verbose_eval=False,
        )
        return booster, history

    def _matrix(
        self,
        question: Question,
        parameters: Mapping[str, Any],
        dropped_columns: tuple[int, ...],
        folder: str,
        name: str,
        ref: xgboost.DMatrix | None = None,
    ) -> xgboost.ExtMemQuantileDMatrix:
        batches = question.batches(self._batch_rows)
        rows = _Batches(batches, dropped_columns, str(Path(folder) / name))
        with uninterrupted():
            return xgboost.ExtMemQuantileDMatrix(
                rows,
                max_bin=parameters["max_bin"],
                nthread=parameters.get("nthread", 1),
                ref=ref,
            )


class _Batches(xgboost.DataIter):
    """Hands XGBoost one batch after the other, as often as it asks for all of them."""

    def __init__(
        self, batches: list[Question], dropped_columns: tuple[int, ...], prefix: str
    ) -> None:
        self._batches = batches
        self._dropped = dropped_columns
        self._next = 0
        super().__init__(cache_prefix=prefix, release_data=True)

    def reset(self) -> None:
        """Begin again."""
        self._next = 0

    def next(self, input_data: Callable[..., None]) -> bool:
        """Hand over the next batch; False where there is none."""
        if self._next == len(self._batches):
            return False
        made = self._batches[self._next].examples()
        extra = {}
        if self._dropped:
            extra["feature_weights"] = feature_weights(
                made.rows.shape[1], self._dropped
            )
        input_data(data=made.rows, label=made.target, weight=made.weight, **extra)
        self._next += 1
        return True


def feature_weights(
    n_features: int, dropped_columns: tuple[int, ...]
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """float32[n_features]: a weight of 0 keeps a column from ever being offered."""
    weights = np.ones(n_features, dtype=np.float32)
    weights[list(dropped_columns)] = 0.0
    return weights
