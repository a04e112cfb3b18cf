"""What a bench shows: geomeans with intervals, harm, worst, headroom, failures.

One number per workload and column comes from `costmodel.datasets.bench_score`; here
they are put together as the training protocol puts together its replays, so that the
two can be laid side by side: intervals are bootstraps over kernels, a failure counts
as 0.1x, harm is slower than the default by more than the noise of both.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.datasets.bench_file import DEFAULT
from costmodel.datasets.bench_file import BenchResult
from costmodel.datasets.bench_score import ColumnScore
from costmodel.datasets.bench_score import WorkloadScore
from costmodel.datasets.bench_score import score
from costmodel.training.metrics import bootstrap_interval
from costmodel.training.metrics import geomean

WITH_RULE = "Helion has a rule"
WITHOUT_RULE = "Helion has no rule"


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """One column over some workloads.

    Attributes:
        name: Of the column.
        n: Workloads that have this column.
        speedup: Geometric mean over the default.
        low: Lower end of the 95 % interval over kernels.
        high: Upper end.
        best: Geometric mean of the best config timed, on the same workloads.
        headroom_share: Share of the log headroom over the default that it recovers.
        n_harm: Slower than the default beyond noise, failures included.
        n_gain: Faster beyond noise.
        n_failed: Did not run, or was wrong.
        failed_upper: Upper 95 % bound of the share that fails, as if workloads were
            independent.
        worst: Smallest speed-up.
        decide_s: Median seconds to decide, None where unknown.
        n_measured: Mean number of configs measured to decide.
    """

    name: str
    n: int
    speedup: float
    low: float
    high: float
    best: float
    headroom_share: float
    n_harm: int
    n_gain: int
    n_failed: int
    failed_upper: float
    worst: float
    decide_s: float | None
    n_measured: float


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the workloads, with every column's summary."""

    title: str
    n: int
    n_kernels: int
    best: float
    columns: tuple[ColumnSummary, ...]


@dataclass(frozen=True, slots=True)
class BenchReport:
    """All of a bench.

    Attributes:
        scores: Workloads whose default ran, in the order measured.
        unscored: Those whose default did not.
        parts: By whether Helion has a rule.
        classes: By class and rule.
        columns: Names of all columns, in the order planned.
        floor_log: Median noise floor of the default against itself.
    """

    scores: tuple[WorkloadScore, ...]
    unscored: tuple[BenchResult, ...]
    parts: tuple[Part, ...]
    classes: tuple[Part, ...]
    columns: tuple[str, ...]
    floor_log: float | None


def make_report(results: Iterable[BenchResult]) -> BenchReport:
    """Score all results and sum them up."""
    scores: list[WorkloadScore] = []
    unscored: list[BenchResult] = []
    for result in results:
        scored = score(result)
        if scored is None:
            unscored.append(result)
        else:
            scores.append(scored)
    names = dict.fromkeys(
        name for one in scores for name in one.columns if name != DEFAULT
    )
    rules: list[tuple[str, Callable[[WorkloadScore], bool]]] = [
        (WITH_RULE, lambda one: one.result.planned.promoted),
        (WITHOUT_RULE, lambda one: not one.result.planned.promoted),
    ]
    classes = [
        (_part_title(name, promoted), _of_class(name, promoted))
        for name in sorted({_class(one) for one in scores})
        for promoted in (True, False)
    ]
    floors = [
        one.result.noise_floor_log
        for one in scores
        if one.result.noise_floor_log is not None
    ]
    return BenchReport(
        scores=tuple(scores),
        unscored=tuple(unscored),
        parts=_parts(rules, scores, names),
        classes=_parts(classes, scores, names),
        columns=tuple(names),
        floor_log=statistics.median(floors) if floors else None,
    )


def _class(one: WorkloadScore) -> str:
    return one.result.planned.kernel_class


def _part_title(kernel_class: str, promoted: bool) -> str:
    return f"{kernel_class}, {'rule' if promoted else 'no rule'}"


def _of_class(kernel_class: str, promoted: bool) -> Callable[[WorkloadScore], bool]:
    return lambda one: (
        _class(one) == kernel_class and one.result.planned.promoted == promoted
    )


def _parts(
    kinds: Iterable[tuple[str, Callable[[WorkloadScore], bool]]],
    scores: Sequence[WorkloadScore],
    names: Iterable[str],
) -> tuple[Part, ...]:
    names = list(names)
    made = [
        _part(title, [one for one in scores if keep(one)], names)
        for title, keep in kinds
    ]
    return tuple(one for one in made if one.n)


def _part(title: str, scores: Sequence[WorkloadScore], names: Iterable[str]) -> Part:
    kernels = {one.result.planned.kernel_digest for one in scores}
    summaries = [_summary(name, scores) for name in names]
    return Part(
        title=title,
        n=len(scores),
        n_kernels=len(kernels),
        best=geomean([one.best_speedup for one in scores]),
        columns=tuple(one for one in summaries if one is not None),
    )


def _summary(name: str, scores: Sequence[WorkloadScore]) -> ColumnSummary | None:
    having = [one for one in scores if name in one.columns]
    if not having:
        return None
    columns = [one.columns[name] for one in having]
    speedups = [one.speedup for one in columns]
    groups = [one.result.planned.kernel_digest for one in having]
    low, high = bootstrap_interval(speedups, groups)
    headroom_log = float(np.sum(np.log([one.best_speedup for one in having])))
    won_log = float(np.sum(np.log(speedups)))
    n_failed = sum(one.is_failure for one in columns)
    seconds = [one.decide_s for one in columns if one.decide_s is not None]
    return ColumnSummary(
        name=name,
        n=len(having),
        speedup=geomean(speedups),
        low=low,
        high=high,
        best=geomean([one.best_speedup for one in having]),
        headroom_share=won_log / headroom_log if headroom_log > 0 else 0.0,
        n_harm=sum(one.is_harm for one in columns),
        n_gain=sum(one.is_gain for one in columns),
        n_failed=n_failed,
        failed_upper=upper_share(n_failed, len(columns)),
        worst=min(speedups),
        decide_s=statistics.median(seconds) if seconds else None,
        n_measured=statistics.fmean(one.n_measured for one in columns),
    )


def upper_share(n_seen: int, n: int, certainty: float = 0.95) -> float:
    """Largest share of which `n_seen` of `n` or fewer are not too unlikely.

    The one-sided bound of Clopper and Pearson (Biometrika 1934), by bisection.
    """
    low, high = n_seen / n, 1.0
    for _ in range(60):
        share = (low + high) / 2
        fewer = sum(
            math.comb(n, k) * share**k * (1 - share) ** (n - k)
            for k in range(n_seen + 1)
        )
        low, high = (share, high) if fewer > 1 - certainty else (low, share)
    return high


def as_json(report: BenchReport) -> dict[str, Any]:
    """Everything as plain values, for scripts."""
    return {
        "n_workloads": len(report.scores),
        "n_without_default": len(report.unscored),
        "noise_floor_log": report.floor_log,
        "parts": [asdict(part) for part in report.parts],
        "classes": [asdict(part) for part in report.classes],
        "workloads": [_workload_json(one) for one in report.scores],
        "without_default": [_name(one) for one in report.unscored],
        "conditions": conditions(report),
    }


def _workload_json(one: WorkloadScore) -> dict[str, Any]:
    planned = one.result.planned
    return {
        "workload_id": planned.workload.workload_id,
        "kernel": planned.workload.kernel,
        "arguments": list(planned.workload.args),
        "family": planned.workload.family,
        "kernel_class": planned.kernel_class,
        "promoted": planned.promoted,
        "default_us": one.default_us,
        "best_speedup": one.best_speedup,
        "regime": one.result.regime,
        "judged_by": one.result.judged_by,
        "columns": {
            name: _column_json(column)
            for name, column in one.columns.items()
            if name != DEFAULT
        },
    }


def _column_json(column: ColumnScore) -> dict[str, Any]:
    return {
        "status": column.status,
        "detail": column.detail,
        "latency_us": column.latency_us,
        "speedup": column.speedup,
        "floor_log": column.floor_log,
        "is_harm": column.is_harm,
        "same_code_as_default": column.same_code,
        "decide_s": column.decide_s,
        "n_measured": column.n_measured,
        "by": column.column.by,
        "why": column.column.why,
        "predicted_speedup": column.column.predicted_speedup,
    }


def _name(result: BenchResult) -> str:
    return f"{result.planned.workload.kernel} {' '.join(result.planned.workload.args)}"


def conditions(report: BenchReport) -> dict[str, Any]:
    """What the numbers depend on: device, versions, clocks, how results were judged."""
    results = [one.result for one in report.scores] + list(report.unscored)
    return {
        "measured": _values(
            results,
            lambda one: time.strftime("%Y-%m-%d", time.gmtime(one.started_at_s)),
        ),
        "gpu": _values(results, lambda one: one.gpu.get("name")),
        "cards": _values(results, lambda one: one.gpu.get("uuid_digest")),
        "driver": _values(results, lambda one: one.gpu.get("driver_version")),
        "power_limit_w": _values(results, lambda one: one.gpu.get("power_limit_w")),
        "sm_clock_mhz": _range(results, "sm_clock_start_mhz", "sm_clock_end_mhz"),
        "temperature_c": _range(results, "temperature_start_c", "temperature_end_c"),
        "versions": {
            name: sorted({v for one in results if (v := one.versions.get(name))})
            for name in sorted({name for one in results for name in one.versions})
        },
        "other_defaults": sum(map(_has_another_default, results)),
        "judged_by": _counts(results, lambda one: one.judged_by),
        "regimes": _counts(results, lambda one: one.regime),
        "models": _values(results, lambda one: one.planned.model_id or None),
    }


def _has_another_default(result: BenchResult) -> bool:
    """Whether the measuring Helion's default is not the one that was planned.

    Knobs that only one of the two versions has do not count.
    """
    default = result.results.get(result.default_id)
    if default is None or default.config is None:
        return False
    planned = result.planned.default
    shared = planned.keys() & default.config.keys()
    return any(planned[name] != default.config[name] for name in shared)


def _values(
    results: Sequence[BenchResult], of: Callable[[BenchResult], Any]
) -> list[Any]:
    found = {of(one) for one in results} - {None}
    return sorted(found)


def _range(
    results: Sequence[BenchResult], start: str, end: str
) -> tuple[float, float] | None:
    values = [
        float(one.gpu[name])
        for one in results
        for name in (start, end)
        if one.gpu.get(name) is not None
    ]
    return (min(values), max(values)) if values else None


def _counts(
    results: Sequence[BenchResult], of: Callable[[BenchResult], str]
) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for one in results:
        counts[of(one)] = counts.get(of(one), 0) + 1
    return dict(sorted(counts.items()))
