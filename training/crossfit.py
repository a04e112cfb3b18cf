"""Predict each workload by a model that never saw its family, or its shape.

The gate is part of what is judged, so it is calibrated inside: for each outer fold,
smaller inner fits on the training part alone predict blocks of its families, and the
margins come from those. Nothing of a held-out workload reaches its own prediction or
its own margin.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import replace

from sklearn.model_selection import GroupKFold
from sklearn.pipeline import Pipeline

from costmodel.card import GateCard
from costmodel.features.schema import FeatureSchema
from costmodel.forest import Forest
from costmodel.gate import Gate
from costmodel.layout import RowLayout
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
    """Leave one family out; empty where there is only one."""
    families = sorted({one.family for one in workloads})
    if len(families) < 2:
        return []
    return [
        _fold(family, workloads, lambda one, family=family: one.family == family)
        for family in families
    ]


def shape_folds(workloads: Sequence[LabelledWorkload]) -> list[Fold]:
    """Leave one shape of each kernel out, its siblings stay; empty without siblings.

    Fold k holds the k-th shape of every kernel that has several.
    """
    shapes: dict[str, list[str]] = {}
    for one in workloads:
        shapes.setdefault(one.source_digest, []).append(one.shape_id)
    several = {key: sorted(set(ids)) for key, ids in shapes.items()}
    several = {key: ids for key, ids in several.items() if len(ids) > 1}
    n_folds = max((len(ids) for ids in several.values()), default=0)

    def is_kth(one: LabelledWorkload, k: int) -> bool:
        ids = several.get(one.source_digest, [])
        return k < len(ids) and ids[k] == one.shape_id

    return [
        _fold(f"shape {k}", workloads, lambda one, k=k: is_kth(one, k))
        for k in range(n_folds)
    ]


def _fold(
    name: str,
    workloads: Sequence[LabelledWorkload],
    is_test: Callable[[LabelledWorkload], bool],
) -> Fold:
    held_out = [is_test(one) for one in workloads]
    return Fold(
        name=name,
        train=tuple(i for i, out in enumerate(held_out) if not out),
        test=tuple(i for i, out in enumerate(held_out) if out),
    )


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
        gain, valid = forest.predict(one.features)
        default_row = one.features[[one.default_index]]
        outside = float(gate.outside_share(default_row)[0])
        predictions.append(HeldOutPrediction(one, gain, valid, outside))
    return predictions


def _inner_predictions(
    train: Sequence[LabelledWorkload], schema: FeatureSchema, settings: FitSettings
) -> list[HeldOutPrediction]:
    """Held-out predictions within a training part, by cheaper fits."""
    families = [one.family for one in train]
    n_blocks = min(N_INNER_BLOCKS, len(set(families)))
    if n_blocks < 2:
        return []
    # Half the rounds at twice the rate, one bag: an eighth of the time of a full fit.
    cheap = replace(
        settings,
        n_bags=1,
        n_trees=max(1, settings.n_trees // 2),
        n_validity_trees=max(1, settings.n_validity_trees // 2),
        learning_rate=2.0 * settings.learning_rate,
    )
    predictions = []
    splits = GroupKFold(n_blocks).split(families, groups=families)
    for fit_on, predict_on in splits:
        part = [train[i] for i in fit_on]
        forest, _ = fit(part, RowLayout.of(schema), cheap, schema.hash)
        held_out = [train[i] for i in predict_on]
        predictions += predict(forest, part, held_out, schema)
    return predictions
