"""Error of held-out workloads over boosting rounds, by class, family and GPU.

One prediction a round over rows that XGBoost keeps the margins of, so that a round
costs one tree more for these rows, however many groups there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from costmodel.training.labelled import LabelledWorkload
from costmodel.training.objective import Examples

KINDS = ("class", "family", "gpu")


@dataclass(frozen=True, slots=True)
class GroupCurve:
    """Held-out error of some workloads.

    Attributes:
        weight: Of their rows together.
        mse: Mean squared error in log ratio, by boosting round.
    """

    weight: float
    mse: tuple[float, ...]


class WorkloadErrors(xgboost.callback.TrainingCallback):
    """Notes the squared error of each workload after each round."""

    def __init__(self, examples: Examples, data: xgboost.QuantileDMatrix) -> None:
        self._data = data
        self._examples = examples
        self._rounds: list[npt.NDArray[np.float64]] = []

    def after_iteration(
        self, model: Any, epoch: int, evals_log: Mapping[str, Any]
    ) -> bool:
        """Note one round; never stops the training."""
        found = self._examples
        error = model.predict(self._data) - found.target
        squares = np.bincount(found.origin, weights=found.weight * error * error)
        self._rounds.append(np.asarray(squares, dtype=np.float64))
        return False

    def by_group(
        self, workloads: Sequence[LabelledWorkload]
    ) -> dict[tuple[str, str], GroupCurve]:
        """Curves by kind and name of group.

        Args:
            workloads: What the examples are of, in their order.
        """
        squares = np.stack(self._rounds)
        weights = np.bincount(self._examples.origin, weights=self._examples.weight)
        curves = {}
        for kind in KINDS:
            names = np.array([group_name(kind, one) for one in workloads])
            for name in sorted(set(names)):
                mine = names == name
                weight = float(weights[mine].sum())
                mse = squares[:, mine].sum(axis=1) / weight
                curves[kind, str(name)] = GroupCurve(weight, tuple(map(float, mse)))
        return curves


def group_name(kind: str, one: LabelledWorkload) -> str:
    """A workload's group of a kind."""
    return {
        "class": str(one.kernel_class),
        "family": one.family,
        "gpu": one.hardware,
    }[kind]


def pooled(
    curves: Sequence[Mapping[tuple[str, str], GroupCurve]],
) -> dict[tuple[str, str], GroupCurve]:
    """Curves of several folds together, each by the weight of its rows."""
    found: dict[tuple[str, str], list[GroupCurve]] = {}
    for one in curves:
        for key, curve in one.items():
            found.setdefault(key, []).append(curve)
    return {
        key: GroupCurve(
            weight=sum(one.weight for one in some),
            mse=tuple(
                map(
                    float,
                    np.average(
                        np.array([one.mse for one in some]),
                        axis=0,
                        weights=[one.weight for one in some],
                    ),
                )
            ),
        )
        for key, some in sorted(found.items())
    }
