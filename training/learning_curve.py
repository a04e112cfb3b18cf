"""How regret falls with more families, and with more measurements of each workload.

Says what to record next: where the curve over families still falls, new kinds of kernel
help; where the one over measurements is flat, more configs of the same do not.

Every model is judged on the same families left out as the training itself, with a part
of what it would have learned from. The parts are nested: a smaller one is within the
larger, so that a curve is no lottery of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import fields
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from costmodel.features.schema import FeatureSchema
from costmodel.training.calibrate import SHIPPED_LIMITS
from costmodel.training.calibrate import GateLimits
from costmodel.training.crossfit import Fold
from costmodel.training.crossfit import FoldResult
from costmodel.training.crossfit import cross_fit
from costmodel.training.fit import FitSettings
from costmodel.training.judge import GATED
from costmodel.training.judge import UNGATED
from costmodel.training.judge import Evaluation
from costmodel.training.judge import judge
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.plots import BLUE
from costmodel.training.plots import ORANGE
from costmodel.training.plots import canvas

# Each doubles what is learned from; the whole is the training itself.
SHARES = (0.125, 0.25, 0.5)
FAMILIES = "families"
MEASUREMENTS = "measurements"
# Fewer configs than these say nothing of a workload.
_MIN_CONFIGS = 4


@dataclass(frozen=True, slots=True)
class Point:
    """One model of a part of the data.

    Attributes:
        kind: "families" or "measurements".
        share: Of what the folds learn from.
        n_families: Learned from, mean over folds.
        n_configs: Learned from, mean over folds.
        regret_mean: With the gate.
        ungated_regret_mean: Without.
        regret_at_5: After measuring five.
        speedup_geomean: Over the default, with the gate.
        harm_share: Workloads slower than the default beyond noise, with the gate.
    """

    kind: str
    share: float
    n_families: float
    n_configs: float
    regret_mean: float
    ungated_regret_mean: float
    regret_at_5: float
    speedup_geomean: float
    harm_share: float


def learning_curve(
    workloads: Sequence[LabelledWorkload],
    results: Sequence[FoldResult],
    whole: Evaluation,
    schema: FeatureSchema,
    settings: FitSettings,
    limits: GateLimits = SHIPPED_LIMITS,
    shares: Sequence[float] = SHARES,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Point, ...]:
    """Fit and judge models of parts of the data, over the folds of a training.

    Args:
        workloads: Of the training.
        results: Its folds.
        whole: Its evaluation: the last point of both curves.
        schema: Of the features.
        settings: Numbers of the fit.
        limits: What the gates are calibrated to.
        shares: Parts, below 1.
        say: Told what is being done, a line a fit.
    """
    points = []
    for kind in (FAMILIES, MEASUREMENTS):
        for share in sorted(shares):
            say(f"learning curve: {share:.0%} of the {kind} ...")
            some, folds = _part(workloads, results, kind, share, settings.seed)
            made = cross_fit(some, folds, schema, settings, limits=limits)
            judged = judge(whole.protocol, made, schema)
            points.append(_point(kind, share, some, folds, judged))
        folds = [one.fold for one in results]
        points.append(_point(kind, 1.0, workloads, folds, whole))
    return tuple(points)


def _part(
    workloads: Sequence[LabelledWorkload],
    results: Sequence[FoldResult],
    kind: str,
    share: float,
    seed: int,
) -> tuple[list[LabelledWorkload], list[Fold]]:
    """Workloads and folds that learn from a part, and are judged on the whole.

    Thinned workloads are learned from only: those that are judged stay as they are.
    """
    if kind == FAMILIES:
        folds = []
        for place, one in enumerate(results):
            names = sorted({workloads[i].family for i in one.fold.train})
            order = np.random.default_rng([seed, place]).permutation(len(names))
            n_kept = max(1, round(share * len(names)))
            kept = {names[i] for i in order[:n_kept]}
            train = [i for i in one.fold.train if workloads[i].family in kept]
            folds.append(replace(one.fold, train=tuple(train)))
        return list(workloads), folds
    n = len(workloads)
    thin = [thinned(one, share, seed) for one in workloads]
    folds = [
        replace(one.fold, train=tuple(n + i for i in one.fold.train)) for one in results
    ]
    return [*workloads, *thin], folds


def thinned(one: LabelledWorkload, share: float, seed: int) -> LabelledWorkload:
    """A workload with a share of its configs, its default among them.

    Args:
        one: The workload.
        share: Of its configs, 0 to 1.
        seed: Of the draw; a smaller share is a part of a larger one.
    """
    others = np.delete(np.arange(one.n_rows), one.default_index)
    drawn = np.random.default_rng([seed, one.n_rows]).permutation(others)
    n_kept = max(_MIN_CONFIGS, round(share * one.n_rows)) - 1
    rows = np.sort([one.default_index, *drawn[:n_kept]])
    place = {int(row): i for i, row in enumerate(rows)}
    # Not `replace`: rows of a workload may be on disk, those of its part are not.
    kept = {field.name: getattr(one, field.name) for field in fields(LabelledWorkload)}
    changed = {
        "workload_id": f"{one.workload_id}, {len(rows)} configs",
        "default_index": place[one.default_index],
        "features": one.features[rows],
        "log_ratio": one.log_ratio[rows],
        "is_ok": one.is_ok[rows],
        "analytic_us": one.analytic_us[rows],
        "analytic_order": tuple(place[i] for i in one.analytic_order if i in place),
        "configs": tuple(one.configs[i] for i in rows),
        "config_ids": tuple(one.config_ids[i] for i in rows),
    }
    return LabelledWorkload(**{**kept, **changed})


def _point(
    kind: str,
    share: float,
    workloads: Sequence[LabelledWorkload],
    folds: Sequence[Fold],
    judged: Evaluation,
) -> Point:
    learned = [[workloads[i] for i in fold.train] for fold in folds]
    gated, blind = judged.summary_of(GATED), judged.summary_of(UNGATED)
    return Point(
        kind=kind,
        share=share,
        n_families=_mean([len({one.family for one in some}) for some in learned]),
        n_configs=_mean([sum(one.n_rows for one in some) for some in learned]),
        regret_mean=gated["regret_mean"],
        ungated_regret_mean=blind["regret_mean"],
        regret_at_5=gated["regret_at_5"],
        speedup_geomean=gated["speedup_geomean"],
        harm_share=gated["harm_share"],
    )


def _mean(values: Sequence[int]) -> float:
    return float(np.mean(values))


def learning_figure(points: Sequence[Point]) -> Figure:
    """Regret over the number of families, and over the number of measured configs."""
    figure, axes = canvas(9.0, 4.4)
    axes.remove()
    first = figure.add_subplot(1, 2, 1)
    for place, (kind, unit) in enumerate(
        ((FAMILIES, "n_families"), (MEASUREMENTS, "n_configs"))
    ):
        mine = [one for one in points if one.kind == kind]
        part = figure.add_subplot(1, 2, 2, sharey=first) if place else first
        at = [getattr(one, unit) for one in mine]
        for name, label, colour in (
            ("ungated_regret_mean", "first pick, no gate", ORANGE),
            ("regret_at_5", "best of five picks", BLUE),
        ):
            values = [100.0 * getattr(one, name) for one in mine]
            part.plot(at, values, "o-", color=colour, label=label)
        part.set_xscale("log", base=2)
        part.set_xticks(at, [f"{one:,.0f}" for one in at], fontsize=9)
        part.minorticks_off()
        part.set_ylim(bottom=0.0)
        part.grid(alpha=0.3)
        part.set_xlabel(f"{kind} learned from", fontsize=11)
    first.set_ylabel("mean regret on families left out, %", fontsize=11)
    first.legend(fontsize=10)
    figure.suptitle("Learning curve", fontsize=12)
    return figure
