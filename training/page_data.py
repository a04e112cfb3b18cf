"""The numbers behind the page: one evaluation as plain JSON values.

Everything that the page shows is here, so that what a person reads and what a script
reads are the same numbers. Computed from cross-fitted folds, whose forests never saw
the workloads they are asked about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodel.datasets.workload_data import WorkloadData
from costmodel.features.schema import FeatureSchema
from costmodel.training.crossfit import FoldResult
from costmodel.training.judge import GATED
from costmodel.training.judge import UNGATED
from costmodel.training.judge import Evaluation
from costmodel.training.judge import JudgedWorkload
from costmodel.training.label import labelled_id
from costmodel.training.metrics import bootstrap_interval
from costmodel.training.metrics import geomean
from costmodel.training.page_explain import explained
from costmodel.training.table import reading
from costmodel.training.train import library_versions
from costmodel.types import PickSource

PAGE_FORMAT = 1
N_WORST = 10
N_FEATURES = 15

Json = dict[str, Any]


def page_data(
    evaluation: Evaluation,
    results: Sequence[FoldResult],
    schema: FeatureSchema,
    *,
    corpus_digest: str,
    labels: Mapping[str, str] | None = None,
    facts: Mapping[str, str] | None = None,
) -> Json:
    """Everything the page shows.

    Args:
        evaluation: The judged folds, at least one workload.
        results: The folds themselves, with their forests.
        schema: Of the features.
        corpus_digest: Digest of the measurements.
        labels: Shapes and dtypes by workload id, for people.
        facts: Further lines of provenance by name, such as the commit.
    """
    judged = evaluation.judged
    words = labels or {}
    worst = sorted(judged, key=_loss, reverse=True)[:N_WORST]
    return {
        "page_format": PAGE_FORMAT,
        "provenance": _provenance(evaluation, schema, corpus_digest, facts or {}),
        "headline": _headline(evaluation),
        "reading": _reading(evaluation),
        "classes": [
            _group(evaluation, name, promoted)
            for promoted in (True, False)
            for name in evaluation.classes
            if evaluation.summary_of(GATED, name, promoted)["n_workloads"]
        ],
        "families": _families(judged),
        "points": [_point(one, words) for one in judged],
        "worst": [
            {**_point(one, words), **explained(one, _fold_of(results, one), schema)}
            for one in worst
            if _loss(one) > 0.0
        ],
        "gate": _gate(judged),
        "coverage": _coverage(judged),
        "importance": _importance(results, schema),
    }


def shape_labels(recorded: Iterable[WorkloadData]) -> dict[str, str]:
    """Shapes and dtypes in words, by the id of the labelled workload."""
    return {
        labelled_id(one): " ".join(
            f"{dtype.removeprefix('torch.')}{list(shape)}"
            for dtype, shape in zip(
                one.record.dtypes, one.record.input_shapes, strict=False
            )
        )
        for one in recorded
    }


def _provenance(
    evaluation: Evaluation,
    schema: FeatureSchema,
    corpus_digest: str,
    facts: Mapping[str, str],
) -> Json:
    workloads = [one.workload for one in evaluation.judged]
    return {
        "protocol": evaluation.protocol,
        "corpus_digest": corpus_digest,
        "schema_hash": schema.hash,
        "n_features": len(schema.names),
        "n_workloads": len(workloads),
        "n_kernels": len({one.source_digest for one in workloads}),
        "n_families": len({one.family for one in workloads}),
        "n_configs": sum(one.n_rows for one in workloads),
        "gpus": dict(sorted(Counter(one.hardware for one in workloads).items())),
        "noise_floor": float(np.median([one.noise_floor_log for one in workloads]))
        if workloads
        else 0.0,
        "versions": library_versions(),
        "facts": dict(facts),
    }


def _numbers(evaluation: Evaluation, name: str | None, promoted: bool | None) -> Json:
    """Gated numbers of some workloads, with what no gate would have done."""
    gated = evaluation.summary_of(GATED, name, promoted)
    blind = evaluation.summary_of(UNGATED, name, promoted)
    chosen = [
        one
        for one in evaluation.judged
        if name in (None, one.workload.kernel_class)
        and promoted in (None, one.workload.promoted)
    ]
    return {
        "n": len(chosen),
        "n_kernels": len({one.workload.source_digest for one in chosen}),
        "speedup": gated["speedup_geomean"],
        "low": gated["speedup_low"],
        "high": gated["speedup_high"],
        "worst": gated["speedup_worst"],
        "best": gated["best_geomean"],
        "headroom_share": gated["headroom_share"],
        "n_harmed": sum(one.gated.is_harm for one in chosen),
        "n_failed": sum(one.gated.failed for one in chosen),
        "n_acted": sum(_acted(one) for one in chosen),
        "no_gate_speedup": blind["speedup_geomean"],
        "n_no_gate_harmed": sum(one.ungated.is_harm for one in chosen),
    }


def _headline(evaluation: Evaluation) -> list[Json]:
    parts = (("with", True), ("without", False), ("all", None))
    found = [
        {"rule": rule, **_numbers(evaluation, None, promoted)}
        for rule, promoted in parts
    ]
    return [one for one in found if one["n"]]


def _reading(evaluation: Evaluation) -> str:
    """What the numbers do and do not show; the table's own words, but its legend."""
    return " ".join(reading(evaluation).splitlines()[:-1])


def _group(evaluation: Evaluation, name: str, promoted: bool) -> Json:
    rule = "with" if promoted else "without"
    return {"name": name, "rule": rule, **_numbers(evaluation, name, promoted)}


def _families(judged: Sequence[JudgedWorkload]) -> list[Json]:
    """One entry for each family, largest gain first."""
    found = []
    for family in sorted({one.workload.family for one in judged}):
        mine = [one for one in judged if one.workload.family == family]
        speedups = [one.gated.speedup for one in mine]
        kernels = [one.workload.source_digest for one in mine]
        low, high = bootstrap_interval(speedups, kernels)
        found.append(
            {
                "name": family,
                "n": len(mine),
                "n_kernels": len(set(kernels)),
                "speedup": geomean(speedups),
                "low": low,
                "high": high,
                "best": geomean([one.gated.best_speedup for one in mine]),
                "n_harmed": sum(one.gated.is_harm for one in mine),
            }
        )
    return sorted(found, key=lambda one: (-one["speedup"], one["name"]))


def _point(one: JudgedWorkload, labels: Mapping[str, str]) -> Json:
    workload, gated = one.workload, one.gated
    return {
        "workload": workload.workload_id,
        "kernel": workload.kernel,
        "shapes": labels.get(workload.workload_id, ""),
        "family": workload.family,
        "class": str(workload.kernel_class),
        "gpu": workload.hardware,
        "has_rule": workload.promoted,
        "default_us": workload.default_us,
        "pick_us": None if gated.failed else workload.default_us / gated.speedup,
        "best_us": workload.default_us / gated.best_speedup,
        "speedup": gated.speedup,
        "best_speedup": gated.best_speedup,
        "no_gate_speedup": one.ungated.speedup,
        "is_harm": gated.is_harm,
        "failed": gated.failed,
        "regret": gated.regret,
        "source": one.choice.source.value,
        "reason": one.choice.reason.value,
        "detail": one.choice.detail,
    }


def _loss(one: JudgedWorkload) -> float:
    """What to be sorriest about: harm before missed gains, each by its size in logs."""
    behind = float(np.log(one.gated.best_speedup / one.gated.speedup))
    missed = behind if one.gated.regret > 0.0 else 0.0
    return missed + (100.0 if one.gated.is_harm else 0.0)


def _fold_of(results: Sequence[FoldResult], one: JudgedWorkload) -> FoldResult:
    """The fold that held a workload out."""
    name = one.workload.workload_id
    return next(
        result
        for result in results
        if any(said.workload.workload_id == name for said in result.predictions)
    )


def _acted(one: JudgedWorkload) -> bool:
    return one.choice.index != one.workload.default_index


def _gate(judged: Sequence[JudgedWorkload]) -> Json:
    """What the gate gained and lost, where Helion has a rule and a gate therefore acts.

    A *perfect gate* takes the blind pick exactly where that is faster.
    """
    ruled = [one for one in judged if one.workload.promoted]
    perfect = [max(1.0, one.ungated.speedup) for one in ruled]
    held = [one for one in ruled if not _acted(one)]
    acted = [one for one in ruled if _acted(one)]
    missed = [one for one in held if _is_gain(one.ungated.speedup, one)]
    spared = [one for one in held if one.ungated.is_harm]
    return {
        "n": len(ruled),
        "n_acted": len(acted),
        "n_acted_faster": sum(_is_gain(one.gated.speedup, one) for one in acted),
        "n_acted_harmed": sum(one.gated.is_harm for one in acted),
        "acted_speedup": geomean([one.gated.speedup for one in acted]),
        "n_held": len(held),
        "n_missed": len(missed),
        "missed_speedup": geomean([one.ungated.speedup for one in missed]),
        "n_spared": len(spared),
        "spared_speedup": geomean([one.ungated.speedup for one in spared]),
        "ways": [
            {"name": "Helion's default", "speedup": 1.0, "n_harmed": 0},
            {
                "name": "model, no gate",
                "speedup": geomean([one.ungated.speedup for one in ruled]),
                "n_harmed": sum(one.ungated.is_harm for one in ruled),
            },
            {
                "name": "model and gate",
                "speedup": geomean([one.gated.speedup for one in ruled]),
                "n_harmed": sum(one.gated.is_harm for one in ruled),
            },
            {
                "name": "model, perfect gate",
                "speedup": geomean(perfect),
                "n_harmed": 0,
            },
            {
                "name": "best known",
                "speedup": geomean([one.gated.best_speedup for one in ruled]),
                "n_harmed": 0,
            },
        ],
        "reasons": _reasons(judged),
    }


def _is_gain(speedup: float, one: JudgedWorkload) -> bool:
    return bool(np.log(speedup) > one.workload.noise_floor_log)


def _reasons(judged: Sequence[JudgedWorkload]) -> list[Json]:
    found = []
    for reason in sorted({one.choice.reason.value for one in judged}):
        mine = [one for one in judged if one.choice.reason.value == reason]
        found.append(
            {
                "reason": reason,
                "n": len(mine),
                "n_default": sum(
                    one.choice.source is PickSource.DEFAULT for one in mine
                ),
                "speedup": geomean([one.gated.speedup for one in mine]),
                "no_gate_speedup": geomean([one.ungated.speedup for one in mine]),
                "best": geomean([one.gated.best_speedup for one in mine]),
                "n_harmed": sum(one.gated.is_harm for one in mine),
            }
        )
    return sorted(found, key=lambda one: (-one["n"], one["reason"]))


def _coverage(judged: Sequence[JudgedWorkload]) -> Json:
    """How much data there is of each family and class."""
    workloads = [one.workload for one in judged]
    classes = sorted({str(one.kernel_class) for one in workloads})
    rows = []
    for family in sorted({one.family for one in workloads}):
        mine = [one for one in workloads if one.family == family]
        cells = []
        for name in classes:
            here = [one for one in mine if str(one.kernel_class) == name]
            cells.append(
                {
                    "workloads": len(here),
                    "kernels": len({one.source_digest for one in here}),
                    "shapes": len({one.shape_id for one in here}),
                    "configs": sum(one.n_rows for one in here),
                    "gpus": len({one.hardware for one in here}),
                }
            )
        rows.append({"family": family, "cells": cells})
    return {"classes": classes, "rows": rows}


def _importance(results: Sequence[FoldResult], schema: FeatureSchema) -> list[Json]:
    """Share of the ranking trees' gain by feature, averaged over the folds' forests."""
    total: Counter[str] = Counter()
    for result in results:
        total.update(result.forest.importance(schema.names))
    n = max(1, len(results))
    ordered = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return [
        {"feature": name, "share": share / n} for name, share in ordered[:N_FEATURES]
    ]
