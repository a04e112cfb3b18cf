"""Three pictures of a corpus: headroom, failures and knobs.

Figures are made without pyplot, so that nothing global is touched and no display is
needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from costmodel.datasets.describe import Description
from costmodel.datasets.describe import RunFacts

_DPI = 130
# Okabe and Ito's palette: told apart by colour-blind readers and in grey.
_BLUE, _ORANGE, _GREEN, _GREY = "#0072B2", "#E69F00", "#009E73", "#999999"
_RED = "#D55E00"
_TICKS = (1, 1.5, 2, 3, 5, 10, 20, 40, 80, 160, 320)
_MAX_VALUES = 14  # bars of one knob; rarer values are left out, and said so


def write_plots(
    facts: Sequence[RunFacts], described: Description, folder: Path
) -> list[Path]:
    """Write `headroom.png`, `failures.png` and `knobs.png`; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "headroom": headroom_figure(facts, described),
        "failures": failures_figure(described),
        "knobs": knobs_figure(described),
    }
    paths = []
    for name, figure in figures.items():
        path = folder / f"{name}.png"
        figure.savefig(path)
        paths.append(path)
    return paths


def headroom_figure(facts: Sequence[RunFacts], described: Description) -> Figure:
    """Every judged workload's default time / best time, by class and by family."""
    figure = Figure(figsize=(9.0, 12.0), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(
        2,
        1,
        height_ratios=(len(described.classes) + 2, len(described.families) + 2),
        sharex=True,
    )
    _headroom(
        above,
        [(one.name, one.headroom) for one in described.classes],
        [(one.kernel_class, one.headroom_log) for one in facts if one.best],
        "Headroom by class of kernel",
    )
    _headroom(
        below,
        [(one.name, one.headroom) for one in described.families],
        [(str(one.run["family"]), one.headroom_log) for one in facts if one.best],
        "Headroom by family",
    )
    below.set_xlabel(
        "Helion's default time / best time measured, re-timed interleaved", fontsize=11
    )
    return figure


def _headroom(
    axes: Axes,
    groups: Sequence[tuple[str, float]],
    points: Sequence[tuple[str, float]],
    title: str,
) -> None:
    """Points of each group on a line of its own, and their geometric mean."""
    names = [name for name, _ in reversed(groups)]
    place = {name: row for row, name in enumerate(names)}
    counts = {name: sum(one == name for one, _ in points) for name in names}
    rng = np.random.default_rng(0)  # spread of points that would hide each other
    rows = [place[name] + rng.uniform(-0.28, 0.28) for name, _ in points]
    ratios = [math.exp(log) for _, log in points]
    axes.plot(ratios, rows, "o", color=_BLUE, alpha=0.35, markersize=4.5)
    for name, mean in groups:
        if not math.isnan(mean):
            axes.plot(
                [mean] * 2,
                [place[name] - 0.4, place[name] + 0.4],
                color=_ORANGE,
                linewidth=3,
            )
    axes.plot([], [], "o", color=_BLUE, alpha=0.5, label="workload")
    axes.plot([], [], color=_ORANGE, linewidth=3, label="geometric mean")
    axes.set_yticks(
        range(len(names)), [f"{name} ({counts[name]})" for name in names], fontsize=10
    )
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.set_xscale("log")
    highest = 1.1 * max([*ratios, 1.25])
    ticks = [tick for tick in _TICKS if tick <= highest]
    axes.set_xlim(0.97, highest)
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks], fontsize=10)
    axes.minorticks_off()
    axes.tick_params(axis="x", labelbottom=True)
    axes.grid(axis="x", alpha=0.3)
    axes.set_title(title, fontsize=12)
    axes.legend(fontsize=9, loc="lower right")


def failures_figure(described: Description) -> Figure:
    """Share of each class' measurements that failed, by how they ended."""
    totals = {one.name: one for one in described.classes}
    names = sorted(
        (name for name in described.failures if name in totals),
        key=lambda name: totals[name].failed_share,
    )
    statuses = list(
        dict.fromkeys(s for name in names for s in described.failures[name])
    )
    figure = Figure(figsize=(9.0, 1.9 + 0.5 * len(names)), dpi=_DPI)
    figure.set_layout_engine("constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    left = np.zeros(len(names))
    colours = (_RED, _ORANGE, _GREEN, _BLUE, _GREY)
    for number, status in enumerate(statuses):
        failed = np.array([described.failures[n].get(status, 0) for n in names])
        share = np.array(
            [
                100.0 * totals[name].failed_share / max(1, _total(described, name))
                for name in names
            ]
        )
        widths = failed * share
        axes.barh(
            range(len(names)),
            widths,
            left=left,
            color=colours[number % len(colours)],
            height=0.65,
            label=status.replace("_", " "),
        )
        left += widths
    for row, name in enumerate(names):
        axes.text(
            left[row] + 0.2, row, f"{_total(described, name)}", va="center", fontsize=9
        )
    axes.set_xlim(0, 1.12 * max([*left, 1.0]))
    axes.set_yticks(range(len(names)), names, fontsize=10)
    axes.tick_params(axis="x", labelsize=10)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("share of the class' measurements, % (number: how many)")
    axes.set_title("Failures by reason", fontsize=12)
    axes.legend(fontsize=10, loc="lower right")
    return figure


def _total(described: Description, name: str) -> int:
    return sum(described.failures[name].values())


def knobs_figure(described: Description) -> Figure:
    """How often each value was measured, and how often it is in the best config."""
    knobs = {name: values for name, values in described.knobs.items() if values}
    figure = Figure(figsize=(9.0, 2.3 * max(1, len(knobs))), dpi=_DPI)
    figure.set_layout_engine("constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(max(1, len(knobs)), 1, squeeze=False)[:, 0]
    for axes, (name, values) in zip(panels, knobs.items(), strict=False):
        common = sorted(values, key=lambda v: -values[v]["measured"])[:_MAX_VALUES]
        shown = [value for value in values if value in common]
        where = np.arange(len(shown))
        for offset, kind, colour in ((-0.2, "measured", _GREY), (0.2, "best", _BLUE)):
            whole = max(1, sum(counts[kind] for counts in values.values()))
            heights = [100.0 * values[value][kind] / whole for value in shown]
            axes.bar(where + offset, heights, 0.4, color=colour, label=kind)
        axes.set_xticks(where, shown, fontsize=10)
        axes.tick_params(axis="y", labelsize=9)
        axes.set_ylabel("share, %", fontsize=10)
        rarer = f", {len(values) - len(shown)} rarer values left out"
        axes.set_title(name + (rarer if len(values) > len(shown) else ""), fontsize=11)
        axes.grid(axis="y", alpha=0.3)
    panels[0].legend(fontsize=10)
    return figure
