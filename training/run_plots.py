"""Plots of held-out predictions: are gains and doubts worth what they say?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from costmodel.learned import LearnedModel
from costmodel.training.calibrate import HeldOutPrediction
from costmodel.training.eval_table import Row
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.objective import MUCH_SLOWER
from costmodel.training.plots import BLUE
from costmodel.training.plots import GREY
from costmodel.training.plots import ORANGE
from costmodel.training.plots import canvas

FloatVector = npt.NDArray[np.float64]

_N_BINS = 10
# Rows that partial dependence is averaged over; more change no curve visibly.
_N_ROWS = 200
# The knobs of a Helion config that people turn first.
KNOBS = (
    "num_warps_log2",
    "num_stages",
    "block_max_log2",
    "grid_tile_log2",
    "loop_tile_log2",
    "l2_grouping_log2",
    "is_persistent",
    "range_unroll_max",
    "maxnreg",
)


def regret_cdf_figure(rows: Sequence[Row]) -> Figure:
    """Share of workloads within each regret: picks, after five, and the default."""
    figure, axes = canvas(8.0, 4.8)
    default = [max(0.0, row["best_speedup"] - 1.0) for row in rows]
    curves = (
        ("Helion default", default, GREY),
        ("pick", [row["regret"] for row in rows], BLUE),
        ("best of five picks", [row["regret_at_5"] for row in rows], ORANGE),
    )
    shares = np.arange(1, len(rows) + 1) / max(1, len(rows))
    for label, values, colour in curves:
        axes.step(
            100.0 * np.sort(values), shares, where="post", color=colour, label=label
        )
    axes.set_xscale("symlog", linthresh=5.0)
    axes.set_xlim(left=0.0)
    axes.set_ylim(0.0, 1.02)
    axes.grid(alpha=0.3)
    axes.set_xlabel("regret against the best measured, %", fontsize=11)
    axes.set_ylabel("share of workloads within it", fontsize=11)
    axes.set_title("Regret, as a cumulative share", fontsize=12)
    axes.legend(fontsize=10)
    return figure


def gain_calibration(
    predictions: Sequence[HeldOutPrediction],
) -> tuple[FloatVector, FloatVector]:
    """Predicted and measured log gain over the default, mean of tenths of all rows."""
    predicted = _joined([p.said.gain_log[p.workload.is_ok] for p in predictions])
    kept = _joined([-p.workload.log_ratio[p.workload.is_ok] for p in predictions])
    order = np.argsort(predicted, kind="stable")
    parts = [part for part in np.array_split(order, _N_BINS) if len(part)]
    return (
        np.array([predicted[part].mean() for part in parts]),
        np.array([kept[part].mean() for part in parts]),
    )


def validity_calibration(
    predictions: Sequence[HeldOutPrediction], times_slower: float = MUCH_SLOWER
) -> tuple[FloatVector, FloatVector]:
    """Predicted and measured share that runs well, mean of tenths of all rows."""
    predicted = _joined([p.said.valid_probability for p in predictions])
    held = _joined([~p.workload.is_slow_or_failed(times_slower) for p in predictions])
    order = np.argsort(predicted, kind="stable")
    parts = [part for part in np.array_split(order, _N_BINS) if len(part)]
    return (
        np.array([predicted[part].mean() for part in parts]),
        np.array([held[part].mean() for part in parts]),
    )


def calibration_figure(
    points: tuple[FloatVector, FloatVector], what: str, unit: str
) -> Figure:
    """Predicted against measured, of families left out; the diagonal is perfect."""
    figure, axes = canvas(5.4, 4.8)
    predicted, measured = points
    low = float(min(predicted.min(), measured.min()))
    high = float(max(predicted.max(), measured.max()))
    axes.plot([low, high], [low, high], color=GREY, linestyle="--", label="perfect")
    axes.plot(predicted, measured, "o-", color=BLUE, label="tenths of all rows")
    axes.grid(alpha=0.3)
    axes.set_xlabel(f"predicted {what}, {unit}", fontsize=11)
    axes.set_ylabel(f"measured {what}, {unit}", fontsize=11)
    axes.set_title(f"Calibration of {what}, families left out", fontsize=12)
    axes.legend(fontsize=10)
    return figure


def dependence_figure(
    model: LearnedModel, workloads: Sequence[LabelledWorkload]
) -> Figure:
    """Mean predicted gain when one knob alone is moved: what the model has learned.

    Only the knob's own column and its difference to the default move; what follows from
    it (occupancy, bytes) stays, so that this shows the trees and no real config.
    """
    names = model.card.feature_names
    knobs = [name for name in KNOBS if name in names] or [names[0]]
    rows, defaults = _sample(workloads)
    n_columns = min(3, len(knobs))
    n_lines = -(-len(knobs) // n_columns)
    figure, axes = canvas(3.2 * n_columns, 2.6 * n_lines)
    axes.remove()
    parts = []
    widest = 1.0  # per cent; finer differences are none
    for place, knob in enumerate(knobs):
        part = figure.add_subplot(n_lines, n_columns, place + 1)
        values, gains = partial_dependence(model, rows, defaults, knob)
        effects = 100.0 * np.expm1(gains - gains.mean())
        part.plot(values, effects, "o-", color=BLUE, markersize=4)
        widest = max(widest, float(np.abs(effects).max()))
        parts.append(part)
        part.axhline(0.0, color=GREY, linewidth=0.8)
        part.set_title(knob, fontsize=10)
        part.grid(alpha=0.3)
    for part in parts:
        # One scale, so that a knob that matters looks it.
        part.set_ylim(-1.08 * widest, 1.08 * widest)
    figure.supylabel("predicted speed against the knob's average, %", fontsize=10)
    return figure


def partial_dependence(
    model: LearnedModel,
    rows: npt.NDArray[np.float32],
    defaults: npt.NDArray[np.float32],
    knob: str,
) -> tuple[FloatVector, FloatVector]:
    """Values of a knob and the mean predicted log gain at each.

    Args:
        model: What is asked.
        rows: float32[n, n_features].
        defaults: float32[n, n_features], the default's row of each one's workload.
        knob: Name of a base feature.
    """
    names = list(model.card.feature_names)
    column = names.index(knob)
    moved_with = names.index(f"d_{knob}") if f"d_{knob}" in names else None
    values = np.unique(rows[:, column])
    if len(values) > _N_BINS:
        values = np.unique(np.quantile(values, np.linspace(0, 1, _N_BINS)))
    gains = []
    for value in values:
        moved = rows.copy()
        moved[:, column] = value
        if moved_with is not None:
            moved[:, moved_with] = np.float32(value) - defaults[:, column]
        gains.append(float(model.predict(moved).gain_log.mean()))
    return values.astype(np.float64), np.array(gains)


def _sample(
    workloads: Sequence[LabelledWorkload],
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    each = max(1, _N_ROWS // max(1, len(workloads)))
    rows, defaults = [], []
    for one in workloads[:: max(1, len(workloads) // _N_ROWS)]:
        some = one.features[:: max(1, one.n_rows // each)][:each]
        rows.append(some)
        default = one.features[[one.default_index]]
        defaults.append(np.repeat(default, len(some), axis=0))
    return np.concatenate(rows), np.concatenate(defaults)


def _joined(parts: Sequence[npt.NDArray[np.generic]]) -> FloatVector:
    return np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])
