"""One training, end to end: cross-fit, judge, calibrate, fit on everything.

The published model is fitted on all workloads; its gate is calibrated on the outer
held-out predictions, and its card carries the cross-validated metrics. The metrics are
of the protocol, not of the published trees: those have seen every workload.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.card import ModelCard
from costmodel.features.schema import FeatureSchema
from costmodel.layout import RowLayout
from costmodel.learned import BUNDLED_NAME
from costmodel.learned import LearnedModel
from costmodel.training.calibrate import SHIPPED_LIMITS
from costmodel.training.calibrate import GateLimits
from costmodel.training.calibrate import HeldOutPrediction
from costmodel.training.calibrate import calibrated_gate
from costmodel.training.code_settings import CodeSettings
from costmodel.training.code_stage import CompiledRuns
from costmodel.training.code_stage import SecondStage
from costmodel.training.code_stage import second_stage
from costmodel.training.crossfit import Fold
from costmodel.training.crossfit import FoldResult
from costmodel.training.crossfit import cross_fit
from costmodel.training.crossfit import family_folds
from costmodel.training.crossfit import shape_folds
from costmodel.training.fit import Curves
from costmodel.training.fit import FitSettings
from costmodel.training.fit_engine import IN_MEMORY
from costmodel.training.fit_engine import Fitter
from costmodel.training.judge import Evaluation
from costmodel.training.judge import judge
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.round_curves import pooled

FAMILY_PROTOCOL = "leave one family out"
BLOCK_PROTOCOL = "leave blocks of families out"
SHAPE_PROTOCOL = "leave one shape out"
FIXED_PROTOCOL = "leave given blocks of families out"

_LIBRARIES = ("helion", "helion-costmodel", "numpy", "scikit-learn", "torch", "xgboost")


@dataclass(frozen=True, slots=True)
class Training:
    """What one training made.

    Attributes:
        model: Fitted on everything, gated, ready to publish.
        trees: The booster's UBJ bytes.
        by_family: Cross-validated by family, or blocks of families.
        by_shape: Cross-validated by shape; may say that it is not applicable.
        curves: Error by boosting round, averaged over the family folds.
        settings: Numbers of the fit.
        folds: What was left out in turn and what was said of it.
        second: The second stage, where enough configs were compiled.
    """

    model: LearnedModel
    trees: bytes
    by_family: Evaluation
    by_shape: Evaluation
    curves: Curves
    settings: FitSettings
    folds: tuple[FoldResult, ...] = ()
    second: SecondStage | None = None


def train(
    workloads: Sequence[LabelledWorkload],
    schema: FeatureSchema,
    corpus_digest: str,
    settings: FitSettings | None = None,
    name: str = BUNDLED_NAME,
    git_commit: str = "unknown",
    compiled: CompiledRuns | None = None,
    folds: Sequence[Fold] | None = None,
    limits: GateLimits = SHIPPED_LIMITS,
    code_settings: CodeSettings | None = None,
    fitter: Fitter = IN_MEMORY,
) -> Training:
    """Train, judge and calibrate.

    Args:
        workloads: Labelled workloads of at least two families.
        schema: Schema of their features.
        corpus_digest: Digest of the measurements, for the card.
        settings: Numbers of the fit.
        name: Registered name.
        git_commit: Of this project, for the card.
        compiled: What a compiler made of their configs, for a second stage.
        folds: What to leave out in turn; None means families, or blocks of them.
        limits: What the gates are calibrated to.
        code_settings: Numbers of the second stage.
        fitter: Who fits the first stage: in memory, from disk, or on a cluster.

    Raises:
        NotEnoughDataError: Fewer than two families, so nothing can be left out.
    """
    settings = settings or FitSettings()
    protocol = FIXED_PROTOCOL
    if folds is None:
        folds = family_folds(workloads)
        in_blocks = len(folds) < len({one.family for one in workloads})
        protocol = BLOCK_PROTOCOL if in_blocks else FAMILY_PROTOCOL
    results = cross_fit(
        workloads, folds, schema, settings, limits=limits, fitter=fitter
    )
    by_family = judge(protocol, results, schema)
    held_out = [one for result in results for one in result.predictions]
    by_shape = _judge_shapes(workloads, schema, settings, held_out, limits, fitter)
    gate = calibrated_gate(held_out, workloads, schema, limits)
    forest, _ = fitter(workloads, RowLayout.of(schema), settings, schema.hash)
    trees = bytes(forest.booster.save_raw("ubj"))
    card = ModelCard(
        name=name,
        schema_hash=schema.hash,
        group_hashes=dict(schema.group_hashes),
        feature_names=tuple(schema.names),
        n_bags=forest.n_bags,
        n_rank_trees=forest.n_rank_trees,
        n_trees=forest.n_trees,
        booster_sha256=hashlib.sha256(trees).hexdigest(),
        gate=gate,
        corpus_digest=corpus_digest,
        families=tuple(sorted({one.family for one in workloads})),
        hardware=tuple(sorted({one.hardware for one in workloads})),
        n_workloads=len(workloads),
        n_rows=sum(one.n_rows for one in workloads),
        metrics=by_family.metrics(),
        parameters=settings.as_parameters(),
        versions=library_versions(),
        git_commit=git_commit,
    )
    model = LearnedModel(forest.booster, card, schema)
    second = None
    if compiled is not None:
        second = second_stage(
            workloads,
            compiled,
            results,
            schema,
            model.model_id,
            code_settings,
            limits,
        )
    return Training(
        model=model,
        trees=trees,
        by_family=by_family,
        by_shape=by_shape,
        curves=_mean_curves(results),
        settings=settings,
        folds=tuple(results),
        second=second,
    )


def _judge_shapes(
    workloads: Sequence[LabelledWorkload],
    schema: FeatureSchema,
    settings: FitSettings,
    calibration: Sequence[HeldOutPrediction],
    limits: GateLimits,
    fitter: Fitter,
) -> Evaluation:
    folds = shape_folds(workloads)
    if not folds:
        return Evaluation(SHAPE_PROTOCOL, (), "not applicable (one shape per kernel)")
    # Siblings stay in training, so this answers "another shape of a known kernel".
    results = cross_fit(
        workloads, folds, schema, settings, calibration, limits, fitter=fitter
    )
    return judge(SHAPE_PROTOCOL, results, schema)


def _mean_curves(results: Sequence[FoldResult]) -> Curves:
    """Average over folds, round by round."""

    def mean(curves: list[tuple[float, ...]]) -> tuple[float, ...]:
        return tuple(sum(column) / len(curves) for column in zip(*curves, strict=True))

    return Curves(
        train_rmse=mean([one.curves.train_rmse for one in results]),
        held_out_rmse=mean([one.curves.held_out_rmse for one in results]),
        groups=pooled([one.curves.groups for one in results]),
    )


def library_versions() -> dict[str, str]:
    """Versions of what a model depends on, as installed."""
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return found
