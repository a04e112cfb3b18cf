"""One picture of a bench: what each column did to each workload."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from costmodel.datasets.bench_file import DEFAULT
from costmodel.datasets.bench_plan import PICK
from costmodel.training.bench_report import BenchReport

_DPI = 130
# Okabe and Ito's palette: told apart by colour-blind readers and in grey.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
_GREY = "#999999"


# Ticks in the order in which they claim their place; one that would touch the label
# of an earlier one is left out.
_TICKS = (1, 2, 0.5, 4, 8, 16, 32, 64, 128, 0.25, 0.1, 1.5, 0.8, 1.25)
_LABEL_SHARE = 0.07  # of the axis: a label of four characters and a gap, at 8 inches


def shown_ticks(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis whose labels do not overlap, ascending."""
    room = _LABEL_SHARE * np.log(high / low)
    shown: list[float] = []
    for tick in _TICKS:
        if low <= tick <= high and all(abs(np.log(tick / t)) >= room for t in shown):
            shown.append(float(tick))
    return sorted(shown)


def save_plot(report: BenchReport, path: Path) -> None:
    """Speed-up of each workload by column, sorted by the best config timed."""
    names = [name for name in report.columns if name != DEFAULT][: len(_COLOURS)]
    scores = sorted(report.scores, key=lambda one: one.best_speedup)
    figure = Figure(figsize=(8.0, 2.2 + 0.17 * max(len(scores), 6)), dpi=_DPI)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    rows = np.arange(len(scores))
    axes.plot(
        [one.best_speedup for one in scores],
        rows,
        "|",
        color=_GREY,
        markersize=9,
        label="best timed",
    )
    for name, colour in zip(names, _COLOURS, strict=False):
        points = [
            (one.columns[name].speedup, row)
            for row, one in enumerate(scores)
            if name in one.columns
        ]
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            "o",
            color=colour,
            markersize=5 if name == PICK else 3,
            alpha=0.9 if name == PICK else 0.6,
            label=name,
        )
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    ticks = shown_ticks(*axes.get_xlim())
    axes.set_xticks(ticks, labels=[f"{x:g}x" for x in ticks])
    axes.minorticks_off()
    labels = [one.result.planned.workload.kernel for one in scores]
    axes.set_yticks(rows, labels=labels, fontsize=5)
    axes.set_ylim(-1, max(len(scores), 1))
    axes.set_xlabel("Helion's default time / this column's time")
    axes.grid(axis="x", linewidth=0.3)
    axes.legend(loc="lower right", fontsize=7)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
