"""What the trees are asked to predict, as rows, targets and weights.

Three questions about configs of one workload:

* *pairs*: ln(time of i / time of j), for each i against the default and against a few
  references j that are within 2x of the best. The unit of the answer is a log ratio, so
  a margin can be set on it; ranking losses lost this and were worse (design notes).
* *regression*: ln(time / best time), the plain question, averaged with the first.
* *validity*: does it run, and not many times slower than the default?

Each workload weighs the same in each, however many configs it has. Weights towards the
fast configs made catastrophes likelier (design notes), so there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costmodel.layout import RowLayout
from costmodel.training.labelled import LabelledWorkload
from costmodel.types import FloatArray

# A reference farther than ln 2 from the best teaches nothing about the fast region.
NEAR_BEST_LOG = float(np.log(2.0))
# Beyond e^1.5 = 4.5x a pair says "much slower"; the exact factor is only leverage.
PAIR_CLIP_LOG = 1.5
REGRESSION_CLIP_LOG = 3.0
# "Many times slower than the default" for the validity model (design notes: 3x).
MUCH_SLOWER = 3.0


@dataclass(frozen=True, slots=True)
class Examples:
    """Rows to fit on.

    Attributes:
        rows: float32[n, n_features].
        target: float32[n].
        weight: float32[n], mean 1.
        origin: int32[n], which of the workloads each row is of.
    """

    rows: FloatArray
    target: FloatArray
    weight: FloatArray
    origin: npt.NDArray[np.int32]


def pair_examples(
    workloads: Sequence[LabelledWorkload],
    layout: RowLayout,
    workload_weight: npt.NDArray[np.float64],
    n_references: int,
    rng: np.random.Generator,
) -> Examples:
    """Each measured config against the default, and against near-best references.

    Args:
        workloads: What to learn from.
        layout: Column blocks of their rows.
        workload_weight: float64[n_workloads], total weight of each.
        n_references: References per workload besides the default, drawn by `rng`.
        rng: Draws the references.
    """
    parts = []
    for at, (workload, weight) in enumerate(
        zip(workloads, workload_weight, strict=True)
    ):
        measured = np.flatnonzero(workload.is_ok)
        logs = workload.log_ratio
        near = measured[logs[measured] <= workload.best_log + NEAR_BEST_LOG]
        n_drawn = min(n_references, len(near))
        drawn = rng.choice(near, n_drawn, replace=False)
        # The default weighs double: it is the reference at the time of use.
        references = [workload.default_index, *drawn]
        rows = workload.features[measured]
        share = weight / ((len(references) + 1) * len(measured))
        for place, reference in enumerate(references):
            parts.append(
                (
                    layout.against(rows, workload.features[reference]),
                    np.clip(
                        logs[measured] - logs[reference], -PAIR_CLIP_LOG, PAIR_CLIP_LOG
                    ),
                    np.full(len(measured), 2.0 * share if place == 0 else share),
                    at,
                )
            )
    return _joined(parts)


def regression_examples(
    workloads: Sequence[LabelledWorkload], workload_weight: npt.NDArray[np.float64]
) -> Examples:
    """Each measured config's distance to the best of its workload."""
    parts = []
    for at, (workload, weight) in enumerate(
        zip(workloads, workload_weight, strict=True)
    ):
        measured = np.flatnonzero(workload.is_ok)
        above_best = workload.log_ratio[measured] - workload.best_log
        target = np.clip(above_best, 0.0, REGRESSION_CLIP_LOG)
        share = np.full(len(measured), weight / len(measured))
        parts.append((workload.features[measured], target, share, at))
    return _joined(parts)


def validity_examples(
    workloads: Sequence[LabelledWorkload], workload_weight: npt.NDArray[np.float64]
) -> Examples:
    """Each tried config: 1 where it ran and was not many times slower, else 0."""
    parts = []
    for at, (workload, weight) in enumerate(
        zip(workloads, workload_weight, strict=True)
    ):
        runs_well = ~workload.is_slow_or_failed(MUCH_SLOWER)
        share = np.full(workload.n_rows, weight / workload.n_rows)
        target = runs_well.astype(np.float64)
        parts.append((workload.features, target, share, at))
    return _joined(parts)


def _joined(parts: list[tuple[FloatArray, np.ndarray, np.ndarray, int]]) -> Examples:
    rows, targets, weights, places = zip(*parts, strict=True)
    weight = np.concatenate(weights)
    return Examples(
        rows=np.ascontiguousarray(np.concatenate(rows), dtype=np.float32),
        target=np.concatenate(targets).astype(np.float32),
        weight=(weight / weight.mean()).astype(np.float32),
        origin=np.repeat(
            np.array(places, dtype=np.int32), [len(one) for one in targets]
        ),
    )
