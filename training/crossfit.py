"""Predict each workload by a model that never saw its family, or its shape.

The gate is part of what is judged, so it is calibrated inside: for each outer fold,
smaller inner fits on the training part alone predict blocks of its families, and the
margins come from those. Nothing of a held-out workload reaches its own prediction or
its own margin.
"""

from __future__ import annotations

import os
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
from costmodel.training.calibrate import HeldOutPrediction
from costmodel.training.calibrate import calibrated_gate
from costmodel.training.calibrate import uncalibrated_gate
from costmodel.training.fit import Curves
from costmodel.training.fit import FitSettings
from costmodel.training.fit import fit
from costmodel.training.labelled import LabelledWorkload

# Four blocks of families keep the inner fits few; an inner model misses a quarter of
# the families, so its margins err on the careful side.
N_INNER_BLOCKS = 4


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
        gate: Calibrated inside the training part.
        neighbour: The nearest-neighbour baseline of the same training part.
        curves: Error by boosting round.
    """

    fold: Fold
    predictions: tuple[HeldOutPrediction, ...]
    gate: GateCard
    neighbour: Pipeline
    curves: Curves


def family_folds(workloads: Sequence[LabelledWorkload]) -> list[Fold]:
    """Leave one family out.

    Raises:
        NotEnoughDataError: Fewer than two families.
    """
    splits = leave_one_group_out([one.family for one in workloads])
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
) -> list[FoldResult]:
    """Fit, calibrate and predict each fold.

    Folds run side by side in threads (XGBoost releases the interpreter lock); each fit
    is single-threaded, so the results do not depend on how many run at once.
    """

    def run(fold: Fold) -> FoldResult:
        return _run_fold(workloads, fold, schema, settings)

    with ThreadPoolExecutor(max_workers=max(1, min(4, os.cpu_count() or 1))) as pool:
        return list(pool.map(run, folds))


def _run_fold(
    workloads: Sequence[LabelledWorkload],
    fold: Fold,
    schema: FeatureSchema,
    settings: FitSettings,
) -> FoldResult:
    train = [workloads[i] for i in fold.train]
    test = [workloads[i] for i in fold.test]
    layout = RowLayout.of(schema)
    forest, curves = fit(train, layout, settings, schema.hash, held_out=test)
    predictions = predict(forest, train, test, schema)
    return FoldResult(
        fold=fold,
        predictions=tuple(predictions),
        gate=calibrated_gate(
            _inner_predictions(train, schema, settings), train, schema
        ),
        neighbour=nearest_neighbour(train),
        curves=curves,
    )


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


def _inner_predictions(
    train: Sequence[LabelledWorkload], schema: FeatureSchema, settings: FitSettings
) -> list[HeldOutPrediction]:
    """Held-out predictions within a training part, by cheaper fits."""
    families = [one.family for one in train]
    if len(set(families)) < 2:
        return []
    # Half the bags and two thirds of the rounds: a third of the time of a full fit.
    cheap = replace(
        settings,
        n_bags=max(1, settings.n_bags // 2),
        n_trees=max(1, 2 * settings.n_trees // 3),
        n_validity_trees=max(1, 2 * settings.n_validity_trees // 3),
        learning_rate=1.5 * settings.learning_rate,
    )
    predictions = []
    for _, fit_on, predict_on in group_k_fold(families, N_INNER_BLOCKS):
        part = [train[i] for i in fit_on]
        forest, _ = fit(part, RowLayout.of(schema), cheap, schema.hash)
        held_out = [train[i] for i in predict_on]
        predictions += predict(forest, part, held_out, schema)
    return predictions
