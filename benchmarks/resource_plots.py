"""Plots of the resource estimates against the compiler.

Figures are made without pyplot, so that no display is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from resource_tables import Estimated

_DPI = 90
# Okabe and Ito's palette: told apart by colour-blind readers and in grey.
_BLUE, _ORANGE, _GREY = "#0072B2", "#E69F00", "#999999"
_MOST_POINTS = 2500  # a panel; more only make the file larger
_SEED = 0


def write_plots(found: Sequence[Estimated], folder: Path) -> list[Path]:
    """Write `resources_shared_memory.png`, `_registers.png` and `_spills.png`."""
    made: dict[str, Callable[[Sequence[Estimated]], Figure]] = {
        "shared_memory": shared_figure,
        "registers": register_figure,
        "spills": spill_figure,
    }
    paths = []
    for name, make in made.items():
        path = folder / f"resources_{name}.png"
        make(found).savefig(path)
        paths.append(path)
    return paths


def _panels(found: Sequence[Estimated]) -> dict[str, list[Estimated]]:
    panels = {
        name: [one for one in found if one.kernel_class == name]
        for name in sorted({one.kernel_class for one in found})
    }
    return panels


def _figure(n_panels: int) -> tuple[Figure, list[Axes]]:
    columns = 3
    rows = -(-n_panels // columns)
    figure = Figure(figsize=(9.0, 3.0 * rows), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for spare in axes[n_panels:]:
        spare.set_visible(False)
    return figure, list(axes[:n_panels])


def _scatter(
    axes: Axes, recorded: np.ndarray, estimate: np.ndarray, title: str
) -> None:
    keep = np.random.default_rng(_SEED).permutation(len(recorded))[:_MOST_POINTS]
    axes.plot(recorded[keep], estimate[keep], ".", color=_BLUE, markersize=2, alpha=0.4)
    axes.set_title(f"{title}, {len(recorded)} configs", fontsize=9)
    axes.tick_params(labelsize=7)


def shared_figure(found: Sequence[Estimated]) -> Figure:
    """Shared memory, estimated over recorded, by class; both axes in KiB."""
    panels = _panels(found)
    figure, places = _figure(len(panels))
    for axes, (name, members) in zip(places, panels.items(), strict=True):
        recorded = np.concatenate([one.smem for one in members]) / 1024
        estimate = np.concatenate([one.smem_estimate for one in members]) / 1024
        limit = members[0].smem_limit / 1024
        _scatter(axes, recorded + 0.125, np.minimum(estimate, 4 * limit) + 0.125, name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.plot([0.125, limit], [0.125, limit], color=_GREY, linewidth=0.8)
        axes.axhline(limit, color=_ORANGE, linewidth=0.8)
    figure.supxlabel("shared memory recorded, KiB (+ 1/8)", fontsize=9)
    figure.supylabel("estimated; orange: the limit", fontsize=9)
    return figure


def register_figure(found: Sequence[Estimated]) -> Figure:
    """Registers a thread, estimated and cut off at the cap, over recorded."""
    panels = _panels(found)
    figure, places = _figure(len(panels))
    for axes, (name, members) in zip(places, panels.items(), strict=True):
        recorded = np.concatenate([one.registers for one in members])
        estimate = np.concatenate([one.registers_estimate for one in members])
        _scatter(axes, recorded, estimate, name)
        axes.plot([8, 255], [8, 255], color=_GREY, linewidth=0.8)
    figure.supxlabel("registers of a thread, recorded", fontsize=9)
    figure.supylabel("estimated", fontsize=9)
    return figure


def spill_figure(found: Sequence[Estimated]) -> Figure:
    """Spills found over false alarms, by class."""
    figure = Figure(figsize=(5.0, 4.5), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    styles = ("-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1)))
    for style, (name, members) in zip(styles, _panels(found).items(), strict=False):
        spilled = np.concatenate([one.spilled for one in members])
        score = np.concatenate([one.spill_score for one in members])
        if not spilled.any():
            continue
        order = np.argsort(-score, kind="stable")
        hit = np.cumsum(spilled[order]) / spilled.sum()
        alarm = np.cumsum(~spilled[order]) / (~spilled).sum()
        axes.plot(alarm, hit, linestyle=style, label=f"{name} ({spilled.sum()})")
    axes.plot([0, 1], [0, 1], color=_GREY, linewidth=0.8)
    axes.set_xlabel("false alarms")
    axes.set_ylabel("spills found")
    axes.legend(fontsize=8, title="class (configs that spill)", title_fontsize=8)
    return figure
