"""Charts of the page: plain HTML and SVG strings, drawn without a library.

Bars are HTML, so that their text keeps its size on a phone; the scatter is SVG in two
shapes of which the style sheet shows one. Position and shape of a mark say what its
colour says, for readers who do not tell colours apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

Json = dict[str, Any]

_SPEEDUPS = (0.1, 0.2, 0.5, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_MICROSECONDS = tuple(
    step * 10.0**power for power in range(-1, 7) for step in (1.0, 2.0, 5.0)
)
# Closer than this share of the axis two tick labels touch on a phone.
_TICK_DISTANCE = 0.11
# One above the other they need the height of a line only.
_UPRIGHT_DISTANCE = 0.05


@dataclass(frozen=True, slots=True)
class LogAxis:
    """Maps positive values to 0..1, by their logarithm."""

    low: float
    high: float

    @classmethod
    def around(cls, values: Sequence[float], least: float, most: float) -> LogAxis:
        """An axis that holds all values and at least `least` to `most`, with room."""
        low, high = min([least, *values]), max([most, *values])
        room = 0.04 * math.log(high / low)
        return cls(low * math.exp(-room), high * math.exp(room))

    def at(self, value: float) -> float:
        """Share of the axis, 0 at its low end."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return min(1.0, max(0.0, share))

    def ticks(
        self,
        round_values: Sequence[float] = _SPEEDUPS,
        distance: float = _TICK_DISTANCE,
    ) -> list[float]:
        """Round values inside, far enough apart, 1 always among them if inside."""
        inside = [one for one in round_values if self.low <= one <= self.high]
        kept: list[float] = []
        for one in sorted(inside, key=lambda tick: (tick != 1.0, -tick)):
            if all(abs(self.at(one) - self.at(old)) >= distance for old in kept):
                kept.append(one)
        return sorted(kept)


def times(value: float) -> str:
    """A speed-up for people: 1.08x, 12.3x."""
    return f"{value:.1f}x" if value >= 10.0 else f"{value:.2f}x"


def micros(value: float | None) -> str:
    """Microseconds with three digits."""
    if value is None:
        return "failed"
    if value >= 10_000.0:
        return f"{value / 1000.0:,.1f} ms"
    digits = 0 if value >= 100.0 else 1 if value >= 10.0 else 2
    return f"{value:,.{digits}f} us"


def counted(n: int, noun: str) -> str:
    """One kernel, two kernels."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def bars(rows: Sequence[Json], axis: LogAxis, name_of: str) -> str:
    """Speed-ups as bars from 1, with intervals and the best known as a hollow mark.

    Args:
        rows: Each with `speedup`, and if it has them `low`, `high`, `best`, `n`,
            `n_kernels`, `n_harmed`.
        axis: Shared by all bars of the page that are to be compared.
        name_of: Key of a row's name.
    """
    return f'<div class="bars">{_scale(axis)}{"".join(_bar(row, axis, name_of) for row in rows)}</div>'  # noqa: E501


def _scale(axis: LogAxis) -> str:
    ticks = "".join(
        f'<span style="left:{_percent(axis.at(tick))}">{tick:g}x</span>'
        for tick in axis.ticks()
    )
    return f'<div class="bar scale" aria-hidden="true"><div class="track">{ticks}</div></div>'  # noqa: E501


def _bar(row: Json, axis: LogAxis, name_of: str) -> str:
    one, value = axis.at(1.0), axis.at(row["speedup"])
    left, width = min(one, value), abs(value - one)
    kind = "loss" if row["speedup"] < 1.0 else "gain"
    grid = "".join(
        f'<i class="grid{" one" if tick == 1.0 else ""}" '
        f'style="left:{_percent(axis.at(tick))}"></i>'
        for tick in axis.ticks()
    )
    marks = (
        f'<i class="fill {kind}" style="left:{_percent(left)};'
        f'width:{_percent(width)}"></i>'
    )
    text = times(row["speedup"])
    title = f"{row[name_of]}: {text}"
    note = ""
    if "low" in row:
        low, high = axis.at(row["low"]), axis.at(row["high"])
        marks += (
            f'<i class="whisker" style="left:{_percent(low)};'
            f'width:{_percent(high - low)}"></i>'
        )
        between = f"{row['low']:.2f}-{row['high']:.2f}"
        title += f", 95 % interval {between}"
        note = f"<small>{between}</small>"
    if "best" in row:
        marks += f'<i class="best" style="left:{_percent(axis.at(row["best"]))}"></i>'
        title += f", best known {times(row['best'])}"
    under = ""
    if "n" in row:
        words = counted(row["n"], "workload")
        if "n_kernels" in row:
            words += f" of {counted(row['n_kernels'], 'kernel')}"
        under = f"<small>{words}</small>"
        title += f"; {words}"
    harmed = row.get("n_harmed", 0)
    harm = f'<b class="harm">▼ {harmed} slower</b>' if harmed else ""
    return (
        f'<div class="bar" title="{escape(title)}">'
        f'<div class="name">{escape(str(row[name_of]))}{under}</div>'
        f'<div class="track">{grid}{marks}</div>'
        f'<div class="value">{text}{note}{harm}</div></div>'
    )


def _percent(share: float) -> str:
    return f"{100.0 * share:.2f}%"


def scatter(points: Sequence[Json]) -> str:
    """Default against pick and best known of each workload, wide and narrow."""
    wide = _scatter(points, 1120, 520, "wide")
    return wide + _scatter(points, 360, 420, "narrow")


def _scatter(points: Sequence[Json], width: int, height: int, kind: str) -> str:
    left, right, top, bottom = 46.0, width - 22.0, 14.0, height - 44.0
    x_axis = LogAxis.around([one["default_us"] for one in points], 10.0, 100.0)
    speedups = [one["speedup"] for one in points]
    y_axis = LogAxis.around(
        [*speedups, *(one["best_speedup"] for one in points)], 0.8, 2.0
    )

    def x_of(value: float) -> float:
        return left + (right - left) * x_axis.at(value)

    def y_of(value: float) -> float:
        return bottom - (bottom - top) * y_axis.at(value)

    lines = []
    for tick in y_axis.ticks(distance=_UPRIGHT_DISTANCE):
        y = y_of(tick)
        style = "one" if tick == 1.0 else "grid"
        lines.append(
            f'<line class="{style}" x1="{left:.1f}" x2="{right:.1f}" '
            f'y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="end" x="{left - 6:.1f}" y="{y + 4:.1f}">{tick:g}x</text>'
        )
    for tick in x_axis.ticks(_MICROSECONDS):
        x = x_of(tick)
        lines.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" '
            f'y1="{top:.1f}" y2="{bottom:.1f}"/>'
            f'<text class="middle" x="{x:.1f}" y="{bottom + 18:.1f}">'
            f"{_short_micros(tick)}</text>"
        )
    lines.append(
        f'<text class="middle axis" x="{(left + right) / 2:.1f}" '
        f'y="{height - 6:.1f}">time of Helion\'s default</text>'
    )
    # Harm last, so that nothing hides it.
    drawn = sorted(points, key=lambda one: (one["is_harm"], one["speedup"]))
    marks = "".join(
        _mark(one, x_of(one["default_us"]), y_of(one["speedup"]), y_of) for one in drawn
    )
    label = f"Speed-up over Helion's default of {len(points)} workloads, by its time"
    return (
        f'<svg class="scatter {kind}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(label)}">{"".join(lines)}{marks}</svg>'
    )


def _short_micros(value: float) -> str:
    return f"{value / 1000.0:g} ms" if value >= 1000.0 else f"{value:g} us"


def _mark(one: Json, x: float, y: float, y_of: Any) -> str:
    best = y_of(one["best_speedup"])
    title = (
        f"{one['kernel']} {one['shapes']}\n"
        f"default {micros(one['default_us'])}, pick {micros(one['pick_us'])} "
        f"({times(one['speedup'])}), best known {micros(one['best_us'])} "
        f"({times(one['best_speedup'])})\n{one['family']}, {one['class']}\n"
        f"{one['source']}: {one['detail']}"
    )
    stem = (
        f'<line class="stem" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{best:.1f}"/>'
    )
    top = f'<circle class="known" cx="{x:.1f}" cy="{best:.1f}" r="2.6"/>'
    if one["is_harm"]:
        shape = f'<path class="harm" d="M{x - 5:.1f} {y - 4:.1f}h10l-5 9z"/>'  # down
    elif not one["has_rule"]:
        shape = f'<rect class="norule" x="{x - 3.6:.1f}" y="{y - 3.6:.1f}" width="7.2" height="7.2"/>'  # noqa: E501
    elif one["source"] == "default":
        shape = f'<circle class="kept" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
    else:
        shape = f'<circle class="pick" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    return f"<g>{stem}{top}{shape}<title>{escape(title)}</title></g>"
