"""Several products in one program: attention, gated and chunked linear kernels.

1. A knob is a *row* knob where it is some product's rows, a *step* knob where a loop
   walks it, else *lanes*. Axes that no product spans get the smallest tile.
2. Rows want whole warp groups (64 each), steps and lanes 32 to 128.
3. All results that live together must fit the register file: that, not shared memory,
   decides how many rows and warps.
4. One stage has no prefetch; more than three only pay where trips are short.

Every legal combination is ranked by one estimate, so that the trade between rows,
steps, warps and stages is the target's, not a table's.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costmodel.hardware import Hardware
from costmodel.heuristics.drafts import Draft
from costmodel.heuristics.drafts import changed
from costmodel.heuristics.drafts import with_blocks
from costmodel.heuristics.facts import Axis
from costmodel.heuristics.facts import Dot
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.facts import Knob
from costmodel.heuristics.facts import power_above
from costmodel.heuristics.mma import EXACT_FP8_SUM
from costmodel.heuristics.mma import mma_rate
from costmodel.heuristics.mma import sums_fp8_inexactly
from costmodel.heuristics.mma import uses_group_instruction
from costmodel.heuristics.tiles import MEMORY_LATENCY_US
from costmodel.types import Config

Array = npt.NDArray[np.float64]

_ROWS = (32, 64, 128, 256)
_STEPS = (16, 32, 64, 128)
_WARPS = (4, 8)
_STAGES = (1, 2, 3, 4)
_MOST_COMBINATIONS = 1024
_STEP_US = 0.05  # barrier, addresses and the exchange of a row, about 90 clocks
_L2_BYTES_PER_CLOCK = 0.6 * 64.0  # as in `tiles`
_SPECIAL_LANES = 16.0  # special functions an SM does in a clock (programming guide)
_BASE_REGISTERS = 48.0  # addresses, carries and loop state of such kernels
_SHAPES = 8


@dataclass(frozen=True, slots=True)
class _Grid:
    """All combinations: sizes of each knob, warps and stages; float64[n] each."""

    sizes: dict[int, Array]
    num_warps: Array
    num_stages: Array


def propose_multi_dot(facts: Facts, base: Config, hardware: Hardware) -> list[Draft]:
    """Ranked drafts for a kernel with several products; the first is the pick."""
    grid = _combinations(facts)
    time_us, keep = _estimate(facts, grid, hardware)
    order = [int(i) for i in np.lexsort((grid.num_warps, time_us)) if keep[i]]
    if not order:
        order = [int(np.argmin(time_us))]
    drafts: list[Draft] = []
    for index in _different(facts, grid, order):
        sizes = {slot: int(values[index]) for slot, values in grid.sizes.items()}
        num_warps, num_stages = int(grid.num_warps[index]), int(grid.num_stages[index])
        config = changed(
            with_blocks(base, sizes), num_warps=num_warps, num_stages=num_stages
        )
        drafts.append(
            Draft(config, _words(facts, sizes, num_warps, num_stages, hardware))
        )
    return drafts


def _different(facts: Facts, grid: _Grid, order: list[int]) -> list[int]:
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


def _combinations(facts: Facts) -> _Grid:
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
    return _Grid(
        sizes={knob.slot: table[:, i] for i, knob in enumerate(facts.knobs)},
        num_warps=table[:, n_knobs],
        num_stages=table[:, n_knobs + 1],
    )


def _options(facts: Facts, knob: Knob) -> tuple[int, ...]:
    rows = any(dot.m.knob == knob.slot for dot in facts.dots)
    used = any(knob.slot in (dot.n.knob, dot.k.knob) for dot in facts.dots)
    if not rows and not used:
        return (knob.choices[0],)
    wanted = _ROWS if rows and knob.on_grid else _STEPS
    top = power_above(knob.extent)
    sizes = tuple(c for c in knob.choices if c in wanted and c <= max(16, top))
    return sizes or (knob.nearest(min(top, 64)),)


def _tile(axis: Axis, grid: _Grid) -> Array:
    if axis.knob is None:
        return np.full_like(grid.num_warps, float(axis.tile))
    return grid.sizes[axis.knob]


def _whole(axis: Axis, grid: _Grid) -> Array:
    """Elements of an axis after padding to whole tiles."""
    tile = _tile(axis, grid)
    return np.asarray(np.ceil(axis.extent / tile) * tile)


def _estimate(
    facts: Facts, grid: _Grid, hardware: Hardware
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Relative time of each combination, and which of them may be used."""
    programs = np.full_like(grid.num_warps, float(facts.fixed_programs))
    trips = np.ones_like(programs)
    for knob in facts.knobs:
        count = np.ceil(knob.extent / grid.sizes[knob.slot])
        if knob.on_grid:
            programs = programs * count
        else:
            trips = trips * count
    per_sm = np.ceil(programs / hardware.n_sms)
    threads = 32.0 * grid.num_warps
    registers = _registers(facts, grid) / (4.0 * threads) + _BASE_REGISTERS
    shared, step_bytes = _shared(facts, grid)
    resident = np.minimum(
        hardware.smem_per_sm_bytes / (shared + 1024.0),
        np.minimum(
            hardware.max_threads_per_sm / threads,
            hardware.regs_per_sm / (np.minimum(registers, 255.0) * threads),
        ),
    )
    resident = np.clip(np.floor(resident), 1.0, per_sm)
    math_us = _math_us(facts, grid, programs, hardware) * per_sm
    special_us = _special_us(facts, grid, programs, hardware) * per_sm
    traffic_us = (
        per_sm * trips * step_bytes / (_L2_BYTES_PER_CLOCK * hardware.clock_ghz * 1e3)
    )
    groups = resident * grid.num_warps / 4.0
    # Special functions hide behind products only if another warp group is at work.
    work_us = np.where(
        groups >= 2.0,
        np.maximum(math_us, special_us) + 0.3 * np.minimum(math_us, special_us),
        math_us + special_us,
    )
    alone = (grid.num_stages < 2) & (trips > 1)
    exposed = np.where(alone, 1.0, 0.6 / np.maximum(grid.num_stages - 1.0, 1.0))
    # Beyond three stages the ring only takes shared memory from other programs.
    wait_us = per_sm * trips * MEMORY_LATENCY_US * exposed / (2.0 * resident)
    total = np.maximum(work_us, traffic_us) + wait_us * np.where(alone, 1.0, 0.25)
    total = total + per_sm * trips * _STEP_US / resident
    total = total + per_sm / resident * MEMORY_LATENCY_US
    limit = min(255.0, hardware.max_regs_per_thread)
    spill = np.maximum(0.0, registers / limit - 0.9)
    total = total * (1.0 + 4.0 * spill)
    keep = (shared <= hardware.smem_per_cta_bytes - 2048) & (registers <= 1.1 * limit)
    for dot in facts.dots:
        keep &= ~_inexact(dot, grid, hardware)
    staged = keep & ~alone
    # A pick is used unmeasured: one stage only where nothing else fits.
    return total, staged if staged.any() else keep


def _inexact(dot: Dot, grid: _Grid, hardware: Hardware) -> npt.NDArray[np.bool_]:
    depth = float(dot.k.extent) if dot.carries else _tile(dot.k, grid)
    bad = sums_fp8_inexactly(hardware, _tile(dot.m, grid), grid.num_warps)
    return np.asarray(dot.is_fp8 & bad & (depth > EXACT_FP8_SUM), dtype=bool)


def _registers(facts: Facts, grid: _Grid) -> Array:
    """Bytes of fp32 results that live together: all carried ones, and the largest
    other one twice (it is converted to be the next product's operand)."""
    carried = np.zeros_like(grid.num_warps)
    passing = np.zeros_like(grid.num_warps)
    for dot in facts.dots:
        size = 4.0 * _tile(dot.m, grid) * _tile(dot.n, grid)
        for axis in dot.batch:
            size = size * _tile(axis, grid)
        if dot.carries:
            carried = carried + size
        else:
            passing = np.maximum(passing, size)
    return carried + 1.5 * passing


def _shared(facts: Facts, grid: _Grid) -> tuple[Array, Array]:
    """Shared memory of a program, and bytes that one trip loads."""
    rings: dict[frozenset[int], Array] = {}
    resident = np.zeros_like(grid.num_warps)
    looped = {knob.slot for knob in facts.loop_knobs}
    for access in facts.accesses:
        axes = [axis for axis in access.axes if axis is not None]
        if access.is_store or len(axes) < 2:
            continue
        size = np.full_like(resident, float(access.item_bytes))
        for axis in axes:
            size = size * _tile(axis, grid)
        if not access.in_loop:
            resident = np.maximum(resident, size)
            continue
        # Loops that share no knob run one after the other and share their buffers.
        walked = frozenset(a.knob for a in axes if a.knob is not None) & looped
        for other in [o for o in rings if o & walked]:
            size = size + rings.pop(other)
            walked |= other
        rings[walked] = rings.get(walked, 0.0) + size
    ring = resident * 0.0
    for size in rings.values():
        ring = np.maximum(ring, size)
    return ring * grid.num_stages + resident, ring


def _math_us(facts: Facts, grid: _Grid, programs: Array, hardware: Hardware) -> Array:
    """Time of all products of one program at their instructions' rates."""
    total = np.zeros_like(programs)
    for dot in facts.dots:
        flop = 2.0 * _whole(dot.m, grid) * _whole(dot.n, grid) * _whole(dot.k, grid)
        for axis in dot.batch:
            flop = flop * axis.extent
        named = {a.knob for a in (dot.m, dot.n, dot.k, *dot.batch)}
        for knob in facts.knobs:
            if knob.slot not in named:
                flop = flop * np.ceil(knob.extent / grid.sizes[knob.slot])
        flop = flop * facts.fixed_programs
        rate = mma_rate(
            hardware, dot.rate, _tile(dot.m, grid), _tile(dot.n, grid), grid.num_warps
        )
        total = total + flop / programs / rate
    return total


def _special_us(
    facts: Facts, grid: _Grid, programs: Array, hardware: Hardware
) -> Array:
    """Time of special functions on results that do not stay: one an element."""
    if not facts.n_special:
        return np.zeros_like(programs)
    elements = np.zeros_like(programs)
    for dot in facts.dots:
        if not dot.carries:
            size = _whole(dot.m, grid) * _whole(dot.n, grid)
            for axis in dot.batch:
                size = size * axis.extent
            elements = np.maximum(elements, size * facts.fixed_programs)
    return elements / programs / (_SPECIAL_LANES * hardware.clock_ghz * 1e3)


def _words(
    facts: Facts,
    sizes: dict[int, int],
    num_warps: int,
    num_stages: int,
    hardware: Hardware,
) -> str:
    rows = max(
        sizes[d.m.knob] if d.m.knob is not None else d.m.tile for d in facts.dots
    )
    if uses_group_instruction(hardware, rows, num_warps):
        how = f"{num_warps // 4} warp group" + "s" * (num_warps > 4)
    else:
        how = "warp-wide MMA"
    steps = [str(sizes[k.slot]) for k in facts.loop_knobs]
    words = f"{num_warps} warps: {rows} rows, {how}"
    if steps:
        words += f", steps of {' x '.join(steps)}"
    words += f", {num_stages} stage" + "s" * (num_stages > 1)
    return words
