"""Three plots of one training: what was won, what measuring buys, what matters.

Figures are made without pyplot, so that nothing global is touched and no display is
needed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from costmodel.training.judge import ANALYTIC
from costmodel.training.judge import CURVE_KS
from costmodel.training.judge import GATED
from costmodel.training.judge import NEIGHBOUR
from costmodel.training.judge import RANDOM
from costmodel.training.judge import UNGATED
from costmodel.training.judge import Evaluation

_DPI = 130
# Okabe and Ito's palette: told apart by colour-blind readers and in grey.
BLUE, ORANGE, GREEN, GREY, PURPLE = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#999999",
    "#CC79A7",
)
_N_FEATURES = 20


def speedup_figure(evaluation: Evaluation) -> Figure:
    """Speed-up over the default per workload: best known, with gate, without gate."""
    judged = sorted(evaluation.judged, key=lambda one: one.gated.best_speedup)
    n = len(judged)
    figure, axes = canvas(9.0, 1.9 + 0.34 * max(n, 3))
    rows = np.arange(n)
    best = np.array([one.gated.best_speedup for one in judged])
    floor = np.array([one.workload.harm_floor_log for one in judged])
    axes.barh(
        rows,
        np.exp(floor) - np.exp(-floor),
        left=np.exp(-floor),
        height=0.92,
        color=GREY,
        alpha=0.28,
        label="within noise of the default",
    )
    axes.barh(
        rows, best - 1.0, left=1.0, height=0.5, color="#BFD9EA", label="best measured"
    )
    ungated = [one.ungated.speedup for one in judged]
    gated = [one.gated.speedup for one in judged]
    axes.plot(
        ungated,
        rows,
        "D",
        markersize=7,
        markerfacecolor="none",
        markeredgewidth=1.6,
        color=ORANGE,
        label="pick without the gate",
    )
    axes.plot(gated, rows, "o", markersize=7, color=BLUE, label="pick with the gate")
    axes.axvline(1.0, color="black", linewidth=1.0)
    axes.set_yticks(rows, [_label(one.workload.kernel) for one in judged], fontsize=10)
    axes.set_ylim(-0.7, n - 0.3)
    axes.set_xscale("log", base=2)
    low = min(0.8, 0.93 * min([*ungated, *gated, 1.0]))
    high = 1.08 * max([*best, *ungated, *gated, 1.25])
    axes.set_xlim(low, high)
    ticks = [t for t in (0.1, 0.2, 0.5, 0.8, 1, 1.25, 1.5, 2, 4, 8, 16, 32, 64)]
    ticks = [t for t in ticks if low <= t <= high]
    axes.set_xticks(ticks, [f"{t:g}x" for t in ticks], fontsize=10)
    axes.minorticks_off()
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("speed-up over Helion's default (failed pick: 0.1x)", fontsize=11)
    axes.set_title(f"Speed-up per workload, {evaluation.protocol}", fontsize=12)
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.45, -0.55 / max(1.0, 0.34 * n)),
        ncols=2,
        fontsize=9,
        frameon=False,
    )
    return figure


def regret_figure(evaluation: Evaluation) -> Figure:
    """Mean regret after measuring the default and the k best-ranked configs."""
    figure, axes = canvas(8.0, 4.8)
    styles = {
        RANDOM: (GREY, "s:"),
        NEIGHBOUR: (PURPLE, "v--"),
        ANALYTIC: (GREEN, "^--"),
        UNGATED: (ORANGE, "D-"),
        GATED: (BLUE, "o-"),
    }
    none = evaluation.summary_of("Helion default")["regret_mean"]
    for method, (colour, style) in styles.items():
        numbers = evaluation.summary_of(method)
        curve = [none, *(numbers[f"regret_at_{k}"] for k in CURVE_KS)]
        axes.plot(
            (0, *CURVE_KS),
            np.array(curve) * 100.0,
            style,
            color=colour,
            label=method,
            markersize=6,
        )
    floors = [one.workload.noise_floor_log for one in evaluation.judged]
    noise = 100.0 * float(np.expm1(np.median(floors)))
    axes.axhspan(0.0, noise, color=GREY, alpha=0.2, label="median noise floor")
    axes.set_ylim(bottom=0.0)
    axes.set_xticks((0, *CURVE_KS))
    axes.tick_params(labelsize=10)
    axes.grid(alpha=0.3)
    axes.set_xlabel("k configs measured besides the default", fontsize=11)
    axes.set_ylabel("mean regret against the best measured, %", fontsize=11)
    axes.set_title(f"Regret over k, {evaluation.protocol}", fontsize=12)
    axes.legend(fontsize=10)
    return figure


def importance_figure(importance: Mapping[str, float]) -> Figure:
    """Share of the ranking trees' gain by feature, the largest twenty."""
    top = sorted(importance.items(), key=lambda item: (-item[1], item[0]))
    top = list(reversed(top[:_N_FEATURES]))
    figure, axes = canvas(8.0, 1.3 + 0.29 * max(len(top), 3))
    rows = np.arange(len(top))
    shares = np.array([share for _, share in top]) * 100.0
    axes.barh(rows, shares, color=BLUE, height=0.7)
    axes.set_yticks(rows, [name for name, _ in top], fontsize=10)
    axes.tick_params(axis="x", labelsize=10)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("share of the total gain of all splits, %", fontsize=11)
    axes.set_title(f"Feature importance (top {len(top)})", fontsize=12)
    return figure


def canvas(width_in: float, height_in: float) -> tuple[Figure, Axes]:
    """A figure with one pair of axes that its own canvas can draw."""
    figure = Figure(figsize=(width_in, height_in), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _label(kernel: str) -> str:
    return kernel if len(kernel) <= 34 else kernel[:31] + "..."
