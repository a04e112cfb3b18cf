"""Several products in one program: attention, gated and chunked linear kernels.

1. A knob is a *row* knob where it is some product's rows, a *step* knob where a loop
   walks it, else *lanes*. Axes that no product spans get the smallest tile.
2. Rows want whole warp groups (64 each), steps and lanes 32 to 128.
3. All results that live together must fit the register file: that, not shared memory,
   decides how many rows and warps.
4. One stage has no prefetch; more than three only pay where trips are short.
5. A second warp group wants 64 rows of its own, else both read all of the other
   operand.

Every legal combination is ranked by one estimate, so that the trade between rows,
steps, warps and stages is the target's, not a table's. The best are ranked again with
the resources that the analyser finds for them, operands beside the products included.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from costmodel.features.resources import Resources
from costmodel.hardware import Hardware
from costmodel.heuristics.drafts import Draft
from costmodel.heuristics.drafts import changed
from costmodel.heuristics.drafts import with_blocks
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.facts import Knob
from costmodel.heuristics.facts import power_above
from costmodel.heuristics.mma import uses_group_instruction
from costmodel.heuristics.multi_dot_time import Grid
from costmodel.heuristics.multi_dot_time import Held
from costmodel.heuristics.multi_dot_time import dram_us
from costmodel.heuristics.multi_dot_time import estimate
from costmodel.heuristics.multi_dot_time import guess
from costmodel.heuristics.multi_dot_time import programs_of
from costmodel.heuristics.multi_dot_time import rows_of
from costmodel.heuristics.multi_dot_time import tile_of
from costmodel.types import Config

Array = npt.NDArray[np.float64]

_ROWS = (32, 64, 128, 256)
_PASS_STEP = 128  # elements of a pass beside the products: two lines of bf16
_STEPS = (16, 32, 64, 128)
_LANES = (16, 32, 64, 128, 256)
_WARPS = (4, 8)
_STAGES = (1, 2, 3, 4)
_MOST_COMBINATIONS = 1024
_TIE = 1.05  # the estimate does not tell 5 % apart
_SWIZZLE_BYTES = 128.0
_SHAPES = 8
_SHORTLIST = 96  # combinations that the analyser looks at

ResourcesOf = Callable[[Sequence[Config]], Resources]


def propose_multi_dot(
    facts: Facts, base: Config, hardware: Hardware, resources_of: ResourcesOf
) -> list[Draft]:
    """Ranked drafts for a kernel with several products; the first is the pick.

    Args:
        facts: The kernel.
        base: A full config to start from.
        hardware: The target.
        resources_of: What the analyser says that full configs need.
    """
    grid = _combinations(facts)
    order = _ranked(facts, grid, hardware, guess(facts, grid))[:_SHORTLIST]
    grid = grid.take(order)
    found = resources_of([_config(facts, base, grid, i) for i in range(len(order))])
    held = Held(found.regs_per_thread, found.smem_bytes)
    order = _ranked(facts, grid, hardware, held)
    drafts: list[Draft] = []
    for index in _different(grid, order):
        words = _words(facts, grid, index, hardware, held)
        drafts.append(Draft(_config(facts, base, grid, index), words))
    return drafts


def _config(facts: Facts, base: Config, grid: Grid, row: int) -> Config:
    config = changed(
        with_blocks(base, grid.blocks(row)),
        num_warps=int(grid.num_warps[row]),
        num_stages=int(grid.num_stages[row]),
    )
    return {**config, "block_sizes": facts.bounded(config["block_sizes"])}


def _ranked(facts: Facts, grid: Grid, hardware: Hardware, held: Held) -> list[int]:
    """Rows of the grid that may be used, fastest first; one at least."""
    time_us, keep = estimate(facts, grid, hardware, held)
    floor_us = dram_us(facts, hardware)
    time_us = np.maximum(time_us, floor_us)
    if facts.scatters:
        order = np.lexsort((time_us, *_unpacking(facts, grid, hardware)))
        return [int(i) for i in order if keep[i]] or [int(np.argmin(time_us))]
    steps = np.log(time_us / time_us[keep].min() if keep.any() else time_us)
    order = np.lexsort(
        (
            time_us,
            grid.num_warps,
            _off_swizzle(facts, grid),
            # Where memory decides, the fewest programs read least twice.
            np.where(time_us <= floor_us * _TIE, programs_of(facts, grid), 0.0),
            # Up to three stages a slow load is forgiven; more take room from others.
            -np.minimum(grid.num_stages, 3.0),
            np.floor(np.maximum(steps, 0.0) / math.log(_TIE)),
        )
    )
    return [int(i) for i in order if keep[i]] or [int(np.argmin(time_us))]


def _off_swizzle(facts: Facts, grid: Grid) -> Array:
    """Doublings between the depth of the tiles and a swizzle's width of 128 bytes."""
    total = np.zeros_like(grid.num_warps)
    for dot in facts.dots:
        if dot.k.knob is not None:
            depth_bytes = tile_of(dot.k, grid) * max(dot.lhs_bytes, dot.rhs_bytes)
            total = total + np.abs(np.log2(depth_bytes / _SWIZZLE_BYTES))
    return total


def _unpacking(facts: Facts, grid: Grid, hardware: Hardware) -> tuple[Array, Array]:
    """Sort keys, the last first, where operands are looked up element by element.

    Every program that shares columns repeats that work, so the fewest programs that
    fill the SMs are best, and a thread should have 64 elements of it in flight.
    """
    programs = programs_of(facts, grid)
    few = np.where(programs < 0.8 * hardware.n_sms, np.inf, programs)
    looked_up = np.ones_like(programs)
    for maps in facts.maps:
        size = np.ones_like(programs)
        for axis in maps.axes:
            size = size * tile_of(axis, grid)
        looked_up = np.maximum(looked_up, size * (maps.n_plain > 8))
    each = looked_up / (32.0 * grid.num_warps)
    return np.abs(np.log2(each / 64.0)), few


def _different(grid: Grid, order: list[int]) -> list[int]:
    """The best of each tile shape, then other warps and stages for the best shape."""
    shapes: dict[tuple[int, ...], list[int]] = {}
    for index in order:
        shape = tuple(int(values[index]) for values in grid.sizes.values())
        shapes.setdefault(shape, []).append(index)
    groups = list(shapes.values())[:_SHAPES]
    chosen = [group[0] for group in groups]
    best = groups[0][0]
    for index in groups[0][1:]:
        warps = grid.num_warps[index] != grid.num_warps[best]
        stages = grid.num_stages[index] != grid.num_stages[best]
        if warps != stages:
            chosen.append(index)
    return chosen[: _SHAPES + 4]


def _combinations(facts: Facts) -> Grid:
    """Every combination that the rules of the module allow."""
    options = [_options(facts, knob) for knob in facts.knobs]
    while (
        math.prod(map(len, options)) * len(_WARPS) * len(_STAGES) > _MOST_COMBINATIONS
    ):
        longest = max(range(len(options)), key=lambda i: len(options[i]))
        kept = options[longest][1:-1] or options[longest][:1]
        options[longest] = kept
        if all(len(option) == 1 for option in options):
            break
    table = np.array(
        list(itertools.product(*options, _WARPS, _STAGES)), dtype=np.float64
    )
    n_knobs = len(options)
    return Grid(
        sizes={knob.slot: table[:, i] for i, knob in enumerate(facts.knobs)},
        num_warps=table[:, n_knobs],
        num_stages=table[:, n_knobs + 1],
    )


def _options(facts: Facts, knob: Knob) -> tuple[int, ...]:
    rows = any(dot.m.knob == knob.slot for dot in facts.dots)
    used = any(knob.slot in (dot.n.knob, dot.k.knob) for dot in facts.dots)
    if not rows and not used and knob in facts.passes():
        return (knob.nearest(min(power_above(knob.extent), _PASS_STEP)),)
    if not rows and not used:
        return (knob.choices[0],)
    wanted = (_ROWS if rows else _LANES) if knob.on_grid else _STEPS
    if facts.scatters:
        wanted = _LANES
    top = power_above(knob.extent)
    sizes = tuple(c for c in knob.choices if c in wanted and c <= max(16, top))
    return sizes or (knob.nearest(min(top, 64)),)


def _words(facts: Facts, grid: Grid, row: int, hardware: Hardware, held: Held) -> str:
    num_warps, num_stages = int(grid.num_warps[row]), int(grid.num_stages[row])
    rows = int(rows_of(facts, grid)[row])
    if uses_group_instruction(hardware, rows, num_warps):
        how = f"{num_warps // 4} warp group" + "s" * (num_warps > 4)
    else:
        how = "warp-wide MMA"
    steps = [str(int(grid.sizes[k.slot][row])) for k in facts.loop_knobs]
    words = f"{num_warps} warps: {rows} rows, {how}"
    if steps:
        words += f", steps of {' x '.join(steps)}"
    words += f", {num_stages} stage" + "s" * (num_stages > 1)
    return (
        f"{words}, about {held.registers[row]:.0f} registers a thread and "
        f"{held.shared_bytes[row] / 1024:.0f} KiB shared"
    )
