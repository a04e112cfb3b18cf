"""Predict each workload by a model that never saw its family, or its shape.

The gate is part of what is judged, so its margins are calibrated crosswise: those of
one fold come from what the other folds' models said of their own held-out workloads.
No workload's times reach its own prediction, and none its own margin's calibration
points; that the other folds' models were trained on it is the price of fitting each
model once instead of once more per fold, and makes a margin depend on it only through
models that did not predict it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import replace

import numpy as np
from sklearn.pipeline import Pipeline

from costmodel.card import GateCard
from costmodel.datasets.split import group_k_fold
from costmodel.datasets.split import leave_one_group_out
from costmodel.features.schema import FeatureSchema
from costmodel.forest import Forest
from costmodel.gate import Gate
from costmodel.hybrid import merit_of
from costmodel.layout import RowLayout
from costmodel.training.baselines import analytic_ranking
from costmodel.training.baselines import nearest_neighbour
from costmodel.training.calibrate import SHIPPED_LIMITS
from costmodel.training.calibrate import GateLimits
from costmodel.training.calibrate import HeldOutPrediction
from costmodel.training.calibrate import calibrated_gate
from costmodel.training.calibrate import uncalibrated_gate
from costmodel.training.fit import Curves
from costmodel.training.fit import FitSettings
from costmodel.training.fit_engine import IN_MEMORY
from costmodel.training.fit_engine import Fitter
from costmodel.training.labelled import LabelledWorkload

# Up to this many families each is left out alone. With more, blocks of whole families
# are: the same question at a fixed number of fits, and each model misses an eighth of
# the families where the published one misses none, so the answer errs on the careful
# side.
MAX_SINGLE_FAMILIES = 10
N_FAMILY_BLOCKS = 8


@dataclass(frozen=True, slots=True)
class Fold:
    """Indices of workloads: learned from, and judged on."""

    name: str
    train: tuple[int, ...]
    test: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FoldResult:
    """One fold's models and what they say of the held-out workloads.

    Attributes:
        fold: Which workloads were learned from and held out.
        predictions: One per held-out workload, in the fold's order.
        gate: Margins from other folds' held-out predictions; range of its own training.
        neighbour: The nearest-neighbour baseline of the same training part.
        curves: Error by boosting round.
        forest: The fold's own trees.
    """

    fold: Fold
    predictions: tuple[HeldOutPrediction, ...]
    gate: GateCard
    neighbour: Pipeline
    curves: Curves
    forest: Forest


def family_folds(workloads: Sequence[LabelledWorkload]) -> list[Fold]:
    """Leave one family out, or a block of families where there are many.

    Raises:
        NotEnoughDataError: Fewer than two families.
    """
    families = [one.family for one in workloads]
    if len(set(families)) <= MAX_SINGLE_FAMILIES:
        splits = leave_one_group_out(families)
    else:
        splits = group_k_fold(families, N_FAMILY_BLOCKS)
    return [_fold(name, train, test) for name, train, test in splits]


def shape_folds(workloads: Sequence[LabelledWorkload]) -> list[Fold]:
    """Leave one shape of each kernel out, its siblings stay; empty without siblings.

    Fold k holds the k-th shape of every kernel that has several, so that there are as
    many fits as a kernel has shapes and not as many as there are workloads.
    """
    shapes: dict[str, set[str]] = {}
    for one in workloads:
        shapes.setdefault(one.source_digest, set()).add(one.shape_id)
    ordinal = {
        (kernel, shape): k
        for kernel, ids in shapes.items()
        if len(ids) > 1
        for k, shape in enumerate(sorted(ids))
    }
    of_each = [ordinal.get((one.source_digest, one.shape_id)) for one in workloads]
    folds = []
    for k in range(max(ordinal.values(), default=-1) + 1):
        test = np.flatnonzero([mine == k for mine in of_each])
        train = np.flatnonzero([mine != k for mine in of_each])
        folds.append(_fold(f"shape {k}", train, test))
    return folds


def _fold(name: str, train: np.ndarray, test: np.ndarray) -> Fold:
    return Fold(name, tuple(map(int, train)), tuple(map(int, test)))


def cross_fit(
    workloads: Sequence[LabelledWorkload],
    folds: Sequence[Fold],
    schema: FeatureSchema,
    settings: FitSettings,
    calibration: Sequence[HeldOutPrediction] = (),
    limits: GateLimits = SHIPPED_LIMITS,
    watch: Callable[[FoldResult], None] = lambda _: None,
    fitter: Fitter = IN_MEMORY,
) -> list[FoldResult]:
    """Fit and predict each fold, then give each a gate that its own did not make.

    Folds run side by side in threads (XGBoost releases the interpreter lock); each fit
    is single-threaded, so the results do not depend on how many run at once.

    Args:
        workloads: What to split.
        folds: Who is learned from and who is held out.
        schema: Of the features.
        settings: Numbers of the fit.
        calibration: Predictions of workloads whose family was left out, to set the
            margins by; those of a fold's own test workloads are not used. None given
            means those of the folds themselves.
        limits: What the gates are calibrated to.
        watch: Told of each fold in their order, before it has its margins; what it
            raises ends the cross-fit, and folds not yet begun are not.
        fitter: Who fits: in memory, from disk, or on a cluster.
    """

    def run(fold: Fold) -> FoldResult:
        return _run_fold(workloads, fold, schema, settings, fitter)

    n_at_once = max(1, min(fitter.n_parallel, os.cpu_count() or 1))
    with ThreadPoolExecutor(max_workers=n_at_once) as pool:
        results = []
        for result in pool.map(run, folds):
            watch(result)
            results.append(result)
    made = [one for result in results for one in result.predictions]
    return [
        _gated(result, workloads, calibration or made, schema, limits)
        for result in results
    ]


def _run_fold(
    workloads: Sequence[LabelledWorkload],
    fold: Fold,
    schema: FeatureSchema,
    settings: FitSettings,
    fitter: Fitter,
) -> FoldResult:
    train = [workloads[i] for i in fold.train]
    test = [workloads[i] for i in fold.test]
    layout = RowLayout.of(schema)
    forest, curves = fitter(train, layout, settings, schema.hash, held_out=test)
    return FoldResult(
        fold=fold,
        predictions=tuple(predict(forest, train, test, schema)),
        gate=uncalibrated_gate(train),
        neighbour=nearest_neighbour(train),
        curves=curves,
        forest=forest,
    )


def _gated(
    result: FoldResult,
    workloads: Sequence[LabelledWorkload],
    calibration: Sequence[HeldOutPrediction],
    schema: FeatureSchema,
    limits: GateLimits = SHIPPED_LIMITS,
) -> FoldResult:
    """The same fold with margins from predictions of other workloads."""
    train = [workloads[i] for i in result.fold.train]
    mine = {workloads[i].workload_id for i in result.fold.test}
    others = [one for one in calibration if one.workload.workload_id not in mine]
    return replace(result, gate=calibrated_gate(others, train, schema, limits))


def predict(
    forest: Forest,
    train: Sequence[LabelledWorkload],
    test: Sequence[LabelledWorkload],
    schema: FeatureSchema,
) -> list[HeldOutPrediction]:
    """What a forest says of workloads, and how strange they are to its training."""
    gate = Gate(uncalibrated_gate(train), schema)
    predictions = []
    for one in test:
        default_row = one.features[[one.default_index]]
        outside = float(gate.outside_share(default_row)[0])
        said = forest.predict(one.features)
        merit = merit_of(
            forest.predict,
            forest.layout,
            one.features,
            said,
            default_index=one.default_index,
            promoted=one.promoted,
            analytic_order=analytic_ranking(one),
        )
        predictions.append(HeldOutPrediction(one, said, merit, outside))
    return predictions
