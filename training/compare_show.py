"""A comparison as tables, as JSON and as a plot."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from costmodel.training.compare import Comparison
from costmodel.training.compare import Verdict
from costmodel.training.plots import BLUE
from costmodel.training.plots import GREY
from costmodel.training.plots import ORANGE
from costmodel.training.plots import canvas

_STYLE = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.NOISE: "dim"}
_MAX_PLOTTED = 60


def show(found: Comparison, a: str, b: str, console: Console, limit: int = 30) -> None:
    """Print groups, then the workloads whose pick changed, then a summary."""
    console.print(group_table(found))
    changed = [one for one in found.workloads if not one.same_pick]
    table = Table(
        title=f"Workloads whose pick changed ({len(changed)})", title_justify="left"
    )
    for name in ("kernel", "family", "class"):
        table.add_column(name, overflow="fold")
    for name in ("default us", "A", "B", "best", "B / A"):
        table.add_column(name, justify="right")
    table.add_column("reads")
    for one in changed[:limit]:
        row_a, row_b = one.a, one.b
        table.add_row(
            row_a["kernel"],
            row_a["family"],
            row_a["kernel_class"],
            f"{row_a['default_us']:.1f}",
            *(f"{row['speedup']:.3f}{'!' * row['is_harm']}" for row in (row_a, row_b)),
            f"{row_a['best_speedup']:.3f}",
            f"{one.ratio:.3f}",
            one.verdict.value,
            style=_STYLE[one.verdict],
        )
    if changed:
        console.print(table)
    if len(changed) > limit:
        console.print(f"... and {len(changed) - limit} more with a smaller change")
    for line in summary_lines(found, a, b):
        console.print(line, highlight=False)


def group_table(found: Comparison) -> Table:
    """One row for all workloads and for each class, family and GPU."""
    table = Table(title="Speed-up of B over A", title_justify="left")
    table.add_column("group")
    table.add_column("name", overflow="fold")
    for name in ("workloads", "kernels", "B / A", "95% interval", "harm A", "harm B"):
        table.add_column(name, justify="right")
    table.add_column("reads")
    for one in found.groups:
        table.add_row(
            one.kind,
            one.name,
            str(one.n_workloads),
            str(one.n_kernels),
            f"{one.ratio:.3f}",
            f"{one.low:.3f}-{one.high:.3f}",
            f"{one.harm_a:.1%}",
            f"{one.harm_b:.1%}",
            one.verdict.value,
            style=_STYLE[one.verdict],
        )
    return table


def summary_lines(found: Comparison, a: str, b: str) -> list[str]:
    """What the numbers show, in words."""
    all_ = found.overall
    lines = [
        f"A = {a}, B = {b}: B is {all_.ratio:.3f}x A over {all_.n_workloads} workloads "
        f"of {all_.n_kernels} kernels ({all_.low:.3f} to {all_.high:.3f}): "
        f"{all_.verdict.value}.",
        f"Workloads: {found.count(Verdict.BETTER)} better, "
        f"{found.count(Verdict.WORSE)} worse, {found.count(Verdict.NOISE)} within "
        "noise. A mark '!' is slower than Helion's default beyond noise.",
    ]
    for verdict in (Verdict.BETTER, Verdict.WORSE):
        names = [
            f"{one.kind} {one.name}"
            for one in found.groups[1:]
            if one.verdict is verdict and one.kind != "gpu"
        ]
        if names:
            lines.append(f"Beyond noise {verdict.value}: {', '.join(names)}.")
    if not found.same_evaluation:
        lines.append(
            "The two were not judged on the same evaluation (measurements, folds or "
            f"workloads differ; only in A: {len(found.only_a)}, only in B: "
            f"{len(found.only_b)}): the difference is not of the models alone."
        )
    return lines


def as_facts(found: Comparison, a: str, b: str) -> dict[str, Any]:
    """Everything as plain values, for JSON."""
    return {
        "a": a,
        "b": b,
        "same_evaluation": found.same_evaluation,
        "only_a": list(found.only_a),
        "only_b": list(found.only_b),
        "groups": [
            {
                "kind": one.kind,
                "name": one.name,
                "n_workloads": one.n_workloads,
                "n_kernels": one.n_kernels,
                "ratio": one.ratio,
                "low": one.low,
                "high": one.high,
                "harm_a": one.harm_a,
                "harm_b": one.harm_b,
                "verdict": one.verdict.value,
            }
            for one in found.groups
        ],
        "workloads": [
            {
                "workload_id": one.a["workload_id"],
                "kernel": one.a["kernel"],
                "family": one.a["family"],
                "kernel_class": one.a["kernel_class"],
                "speedup_a": one.a["speedup"],
                "speedup_b": one.b["speedup"],
                "best_speedup": one.a["best_speedup"],
                "pick_a": one.a["pick_config_id"],
                "pick_b": one.b["pick_config_id"],
                "ratio": one.ratio,
                "verdict": one.verdict.value,
            }
            for one in found.workloads
        ],
    }


def figure(found: Comparison, a: str, b: str) -> Figure:
    """Speed-ups of both as a dumbbell per workload, largest change on top."""
    changed = [one for one in found.workloads if not one.same_pick]
    shown = list(reversed((changed or list(found.workloads))[:_MAX_PLOTTED]))
    drawn, axes = canvas(9.0, 1.9 + 0.3 * max(3, len(shown)))
    places = np.arange(len(shown))
    first = np.array([one.a["speedup"] for one in shown])
    second = np.array([one.b["speedup"] for one in shown])
    axes.hlines(places, first, second, color=GREY, linewidth=2.0, zorder=1)
    axes.plot(first, places, "o", color=ORANGE, label=f"A: {a}", zorder=2)
    axes.plot(second, places, "o", color=BLUE, label=f"B: {b}", zorder=3)
    axes.axvline(1.0, color="black", linewidth=1.0)
    axes.set_ylim(-0.7, len(shown) - 0.3)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.set_yticks(places, [one.a["kernel"][:34] for one in shown], fontsize=9)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("speed-up over Helion's default", fontsize=11)
    all_ = found.overall
    axes.set_title(
        f"B is {all_.ratio:.3f}x A ({all_.low:.3f} to {all_.high:.3f}); "
        f"{len(changed)} of {len(found.workloads)} picks changed",
        fontsize=12,
    )
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.06), ncols=2, frameon=False)
    return drawn
