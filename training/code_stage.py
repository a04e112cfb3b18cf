"""Cross-fit, calibrate and judge the second stage: gains from machine code.

The folds are those of the first stage, so that a blended prediction comes from two
models neither of which saw the workload's family. Evaluation is over the compiled
configs of a workload: what a second stage would have been given is a part of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.code_model import CodeCard
from costmodel.code_model import CodeForest
from costmodel.code_model import Opinion
from costmodel.datasets.compiled_table import CompiledTable
from costmodel.features.compiled import CODE_SCHEMA_HASH
from costmodel.features.schema import FeatureSchema
from costmodel.forest import Predictions
from costmodel.gate import CLASS_GROUPS
from costmodel.gate import Decision
from costmodel.gate import Gate
from costmodel.gate import class_group
from costmodel.hybrid import canonical_text
from costmodel.training.calibrate import SHIPPED_LIMITS
from costmodel.training.calibrate import CalibrationPoint
from costmodel.training.calibrate import GateLimits
from costmodel.training.calibrate import HeldOutPrediction
from costmodel.training.calibrate import margin_of
from costmodel.training.calibrate import uncalibrated_gate
from costmodel.training.code_fit import CodeWorkload
from costmodel.training.code_fit import code_workloads
from costmodel.training.code_fit import fit_code
from costmodel.training.code_settings import CodeSettings
from costmodel.training.crossfit import FoldResult
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.metrics import Outcome
from costmodel.training.metrics import outcome
from costmodel.training.metrics import summary
from costmodel.types import FloatArray


@dataclass(frozen=True, slots=True)
class CompiledRuns:
    """What a compiler made of a corpus's configs.

    Attributes:
        table: By Helion's run id and config.
        run_ids: Run id by the `workload_id` of labelled workloads.
        toolchains: Versions that compiled them.
    """

    table: CompiledTable
    run_ids: Mapping[str, str]
    toolchains: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SecondStage:
    """A fitted second stage, ready to publish beside its first.

    Attributes:
        forest: Fitted on everything.
        trees: The booster's UBJ bytes.
        card: Its card.
        predictions: Of families left out.
    """

    forest: CodeForest
    trees: bytes
    card: CodeCard
    predictions: tuple[CodePrediction, ...]


@dataclass(frozen=True, slots=True)
class CodePrediction:
    """Both stages of a workload whose family neither saw; arrays over `code.rows`."""

    code: CodeWorkload
    first: Predictions
    opinion: Opinion
    blended: Opinion


def predicted(
    forest: CodeForest, one: CodeWorkload, said: Predictions
) -> CodePrediction:
    """The two stages' predictions for a workload's compiled configs.

    Args:
        forest: The second stage.
        one: The workload.
        said: First-stage predictions of all its rows.
    """
    first = Predictions(
        said.gain_log[one.rows],
        said.spread_log[one.rows],
        said.valid_probability[one.rows],
    )
    opinion = forest.opinion(one.code, one.code[one.default])
    return CodePrediction(
        one, first, opinion, opinion.blended(first.gain_log, first.spread_log)
    )


def cross_fit_code(
    codes: Sequence[CodeWorkload],
    results: Sequence[FoldResult],
    settings: CodeSettings,
) -> list[CodePrediction]:
    """Predict each compiled workload by two models that never saw its family."""
    by_id = {one.workload.workload_id: one for one in codes}
    made = []
    for result in results:
        said: dict[str, HeldOutPrediction] = {
            one.workload.workload_id: one for one in result.predictions
        }
        test = [by_id[name] for name in said if name in by_id]
        train = [one for one in codes if one.workload.workload_id not in said]
        if not test or not train:
            continue
        forest = fit_code(train, settings)
        made += [
            predicted(forest, one, said[one.workload.workload_id].said) for one in test
        ]
    return made


def decision_of(
    one: CodePrediction, gate: Gate, margin_log: float, spread_weight: float
) -> tuple[Decision, FloatArray]:
    """What the second stage decides for a workload, and the lower bounds it used."""
    lower = one.blended.lower_log(spread_weight, margin_log)
    workload, rows = one.code.workload, one.code.rows
    decision = gate.decide_compiled(
        workload.features[rows],
        one.first.valid_probability,
        one.blended.gain_log,
        lower,
        default_index=one.code.default,
        keys=[canonical_text(workload.configs[i]) for i in rows],
    )
    return decision, lower


def calibrated_margins(
    predictions: Sequence[CodePrediction],
    schema: FeatureSchema,
    settings: CodeSettings,
    limits: GateLimits = SHIPPED_LIMITS,
    without: Sequence[str] = (),
) -> dict[str, float]:
    """Margins by class group, as the first stage's are set; see `calibrate`.

    Args:
        predictions: Of families left out.
        schema: Of the first-stage features.
        settings: Numbers of the second stage.
        limits: What margins are calibrated to.
        without: Workload ids whose outcomes must not be used.
    """
    group_of = class_group(schema)
    points: list[CalibrationPoint] = []
    totals = dict.fromkeys(CLASS_GROUPS, 0)
    gate = Gate(uncalibrated_gate([one.code.workload for one in predictions]), schema)
    for one in predictions:
        workload = one.code.workload
        if not workload.promoted or workload.workload_id in without:
            continue
        group = group_of(workload.features[:1])[0]
        totals[group] += 1
        decision, lower = decision_of(one, gate, 0.0, settings.spread_weight)
        if decision.index is None:
            continue
        ran = one.code.is_ok[decision.index]
        kept = -one.code.log_ratio[decision.index] if ran else np.log(0.1)
        points.append(
            CalibrationPoint(
                group,
                float(lower[decision.index]),
                float(kept),
                workload.harm_floor_log,
            )
        )
    n_workloads = sum(totals.values())
    return {
        group: margin_of(
            [point for point in points if point.group == group],
            totals[group],
            limits.prior_margin(group, n_workloads),
            limits,
        )
        for group in CLASS_GROUPS
    }


def outcomes_of(
    predictions: Sequence[CodePrediction],
    results: Sequence[FoldResult],
    schema: FeatureSchema,
    settings: CodeSettings,
    limits: GateLimits = SHIPPED_LIMITS,
) -> list[tuple[CodePrediction, Outcome]]:
    """What the second stage's picks did, each judged by margins of other workloads."""
    group_of = class_group(schema)
    fold_of = {
        prediction.workload.workload_id: place
        for place, result in enumerate(results)
        for prediction in result.predictions
    }
    made = []
    for place, result in enumerate(results):
        mine = [
            one
            for one in predictions
            if fold_of[one.code.workload.workload_id] == place
        ]
        if not mine:
            continue
        ids = [one.code.workload.workload_id for one in mine]
        margins = calibrated_margins(predictions, schema, settings, limits, ids)
        gate = Gate(result.gate, schema)
        for one in mine:
            workload = one.code.workload
            if not workload.promoted:
                continue
            group = group_of(workload.features[:1])[0]
            decision, _ = decision_of(one, gate, margins[group], settings.spread_weight)
            pick = one.code.default if decision.index is None else decision.index
            made.append((one, _outcome(one, pick, _distinct(one, decision.order))))
    return made


def _distinct(one: CodePrediction, order: Sequence[int]) -> list[int]:
    """The ranking without configs whose machine code came before, or is the default's.

    Measuring the same code twice tells nothing.
    """
    seen = {one.code.digests[one.code.default]} - {""}
    kept = []
    for index in order:
        digest = one.code.digests[index]
        if digest and digest in seen:
            continue
        seen.add(digest)
        kept.append(index)
    return kept


def _outcome(one: CodePrediction, pick: int, order: Sequence[int]) -> Outcome:
    """Judged against the best of all recorded configs, compiled or not."""
    workload = one.code.workload
    return outcome(
        workload.log_ratio,
        workload.is_ok,
        workload.default_index,
        int(one.code.rows[pick]),
        [int(one.code.rows[i]) for i in order],
        workload.noise_floor_log,
        workload.harm_floor_log,
        (1, 2, 3, 5, 8),
    )


def code_card(
    forest: CodeForest,
    trees: bytes,
    first_stage_id: str,
    codes: Sequence[CodeWorkload],
    predictions: Sequence[CodePrediction],
    results: Sequence[FoldResult],
    schema: FeatureSchema,
    toolchains: Sequence[str],
    settings: CodeSettings,
    limits: GateLimits,
) -> CodeCard:
    """The card of a second stage fitted on everything."""
    judged = outcomes_of(predictions, results, schema, settings, limits)
    metrics = summary(
        [result for _, result in judged],
        [one.code.workload.source_digest for one, _ in judged],
    )
    return CodeCard(
        first_stage=first_stage_id,
        code_schema_hash=CODE_SCHEMA_HASH,
        n_bags=forest.n_bags,
        n_trees=forest.n_trees,
        booster_sha256=hashlib.sha256(trees).hexdigest(),
        margin_log=calibrated_margins(predictions, schema, settings, limits),
        spread_weight=settings.spread_weight,
        n_workloads=len(codes),
        n_rows=sum(len(one.rows) for one in codes),
        metrics=metrics,
        toolchains=tuple(sorted(set(toolchains))),
    )


def second_stage(
    workloads: Sequence[LabelledWorkload],
    compiled: CompiledRuns,
    results: Sequence[FoldResult],
    schema: FeatureSchema,
    first_stage_id: str,
    settings: CodeSettings | None = None,
    limits: GateLimits = SHIPPED_LIMITS,
) -> SecondStage | None:
    """Fit a second stage on all compiled configs, judged by the first stage's folds.

    Args:
        workloads: What the first stage was trained on.
        compiled: What a compiler made of their configs.
        results: The first stage's folds over families.
        schema: Of the first-stage features.
        first_stage_id: `model_id` of the first stage that it is published with.
        settings: Numbers of the second stage.
        limits: What its margins are calibrated to.

    Returns:
        None where none is wanted, or too few workloads have compiled configs.
    """
    settings = settings or CodeSettings()
    if not settings.enabled:
        return None
    codes = code_workloads(workloads, compiled.run_ids, compiled.table)
    if len(codes) < settings.min_workloads:
        return None
    predictions = cross_fit_code(codes, results, settings)
    forest = fit_code(codes, settings)
    trees = bytes(forest.booster.save_raw("ubj"))
    card = code_card(
        forest,
        trees,
        first_stage_id,
        codes,
        predictions,
        results,
        schema,
        compiled.toolchains,
        settings,
        limits,
    )
    return SecondStage(forest, trees, card, tuple(predictions))
