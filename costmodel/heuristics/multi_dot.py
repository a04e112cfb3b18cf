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
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costmodel.features.resources import Resources
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
from costmodel.heuristics.mma import GROUP_ROWS
from costmodel.heuristics.mma import GROUP_WARPS
from costmodel.heuristics.mma import mma_rate
from costmodel.heuristics.mma import sums_fp8_inexactly
from costmodel.heuristics.mma import uses_group_instruction
from costmodel.heuristics.tiles import MEMORY_LATENCY_US
from costmodel.types import Config

Array = npt.NDArray[np.float64]

_ROWS = (32, 64, 128, 256)
_STEPS = (16, 32, 64, 128)
_LANES = (16, 32, 64, 128, 256)
_WARPS = (4, 8)
_STAGES = (1, 2, 3, 4)
_MOST_COMBINATIONS = 1024
_STEP_US = 0.05  # barrier, addresses and the exchange of a row, about 90 clocks
_L2_BYTES_PER_CLOCK = 0.6 * 64.0  # as in `tiles`
_SPECIAL_LANES = 16.0  # special functions an SM does in a clock (programming guide)
_BUSY_WARPS = 8.0  # on an SM: two a scheduler hide most of an instruction's 4 clocks
_PLAIN_INSTRUCTIONS = 1.5  # an operation: itself, and half a move or conversion
_BASE_REGISTERS = 48.0  # addresses, carries and loop state of such kernels
_TIE = 1.05  # the estimate does not tell 5 % apart
_SWIZZLE_BYTES = 128.0
_SHAPES = 8
_SHORTLIST = 96  # combinations that the analyser looks at

ResourcesOf = Callable[[Sequence[Config]], Resources]


@dataclass(frozen=True, slots=True)
class _Grid:
    """All combinations: sizes of each knob, warps and stages; float64[n] each."""

    sizes: dict[int, Array]
    num_warps: Array
    num_stages: Array

    def take(self, rows: Sequence[int]) -> _Grid:
        """Some of them."""
        return _Grid(
            {slot: values[rows] for slot, values in self.sizes.items()},
            self.num_warps[rows],
            self.num_stages[rows],
        )

    def blocks(self, row: int) -> dict[int, int]:
        """Block sizes of one of them."""
        return {slot: int(values[row]) for slot, values in self.sizes.items()}


@dataclass(frozen=True, slots=True)
class _Held:
    """What a program of each combination holds; float64[n] each.

    Attributes:
        registers: Of a thread, not cut off at the limit.
        shared_bytes: Of a program.
    """

    registers: Array
    shared_bytes: Array


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
    order = _ranked(facts, grid, hardware, _guess(facts, grid))[:_SHORTLIST]
    grid = grid.take(order)
    found = resources_of([_config(facts, base, grid, i) for i in range(len(order))])
    held = _Held(found.regs_per_thread, found.smem_bytes)
    order = _ranked(facts, grid, hardware, held)
    drafts: list[Draft] = []
    for index in _different(grid, order):
        words = _words(facts, grid, index, hardware, held)
        drafts.append(Draft(_config(facts, base, grid, index), words))
    return drafts


def _config(facts: Facts, base: Config, grid: _Grid, row: int) -> Config:
    config = changed(
        with_blocks(base, grid.blocks(row)),
        num_warps=int(grid.num_warps[row]),
        num_stages=int(grid.num_stages[row]),
    )
    return {**config, "block_sizes": facts.bounded(config["block_sizes"])}


def _ranked(facts: Facts, grid: _Grid, hardware: Hardware, held: _Held) -> list[int]:
    """Rows of the grid that may be used, fastest first; one at least."""
    time_us, keep = _estimate(facts, grid, hardware, held)
    floor_us = _dram_us(facts, hardware)
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
            np.where(time_us <= floor_us, _programs(facts, grid), 0.0),
            # Up to three stages a slow load is forgiven; more take room from others.
            -np.minimum(grid.num_stages, 3.0),
            np.floor(np.maximum(steps, 0.0) / math.log(_TIE)),
        )
    )
    return [int(i) for i in order if keep[i]] or [int(np.argmin(time_us))]


def _off_swizzle(facts: Facts, grid: _Grid) -> Array:
    """Doublings between the depth of the tiles and a swizzle's width of 128 bytes."""
    total = np.zeros_like(grid.num_warps)
    for dot in facts.dots:
        if dot.k.knob is not None:
            depth_bytes = _tile(dot.k, grid) * max(dot.lhs_bytes, dot.rhs_bytes)
            total = total + np.abs(np.log2(depth_bytes / _SWIZZLE_BYTES))
    return total


def _unpacking(facts: Facts, grid: _Grid, hardware: Hardware) -> tuple[Array, Array]:
    """Sort keys, the last first, where operands are looked up element by element.

    Every program that shares columns repeats that work, so the fewest programs that
    fill the SMs are best, and a thread should have 64 elements of it in flight.
    """
    programs = _programs(facts, grid)
    few = np.where(programs < 0.8 * hardware.n_sms, np.inf, programs)
    looked_up = np.ones_like(programs)
    for maps in facts.maps:
        size = np.ones_like(programs)
        for axis in maps.axes:
            size = size * _tile(axis, grid)
        looked_up = np.maximum(looked_up, size * (maps.n_plain > 8))
    each = looked_up / (32.0 * grid.num_warps)
    return np.abs(np.log2(each / 64.0)), few


def _programs(facts: Facts, grid: _Grid) -> Array:
    programs = np.full_like(grid.num_warps, float(facts.fixed_programs))
    for knob in facts.knobs:
        if knob.on_grid:
            programs = programs * np.ceil(knob.extent / grid.sizes[knob.slot])
    return programs


def _dram_us(facts: Facts, hardware: Hardware) -> float:
    """Time to move every tensor once."""
    bytes_of: dict[str, int] = {}
    for access in facts.accesses:
        moved = access.elements * access.item_bytes
        bytes_of[access.tensor] = max(moved, bytes_of.get(access.tensor, 0))
    return sum(bytes_of.values()) / (hardware.dram_gb_per_s * 1e3)


def _different(grid: _Grid, order: list[int]) -> list[int]:
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
    wanted = (_ROWS if rows else _LANES) if knob.on_grid else _STEPS
    if facts.scatters:
        wanted = _LANES
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
    facts: Facts, grid: _Grid, hardware: Hardware, held: _Held
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Relative time of each combination, and which of them may be used."""
    programs = _programs(facts, grid)
    trips = np.ones_like(programs)
    for knob in facts.knobs:
        if not knob.on_grid:
            trips = trips * np.ceil(knob.extent / grid.sizes[knob.slot])
    per_sm = np.ceil(programs / hardware.n_sms)
    threads = 32.0 * grid.num_warps
    limit = min(255.0, hardware.max_regs_per_thread)
    resident = np.minimum(
        hardware.smem_per_sm_bytes / (held.shared_bytes + 1024.0),
        np.minimum(
            hardware.max_threads_per_sm / threads,
            hardware.regs_per_sm / (np.minimum(held.registers, limit) * threads),
        ),
    )
    resident = np.clip(np.floor(resident), 1.0, per_sm)
    rows = _rows(facts, grid)
    grouped = uses_group_instruction(hardware, rows, grid.num_warps)
    math_us = _math_us(facts, grid, programs, hardware) * per_sm
    maps_us = _maps_us(facts, grid, programs, hardware) * per_sm
    maps_us = maps_us / np.minimum(1.0, resident * grid.num_warps / _BUSY_WARPS)
    _, step_bytes = _shared(facts, grid)
    traffic_us = (
        per_sm * trips * step_bytes / (_L2_BYTES_PER_CLOCK * hardware.clock_ghz * 1e3)
    )
    # Warps of one program meet at every step's barrier, so work by element hides
    # behind products of other programs, and hardly behind those of the own one.
    shorter = np.minimum(math_us, maps_us)
    alone_on_sm = (resident < 2.0) & (grid.num_warps <= GROUP_WARPS)
    hidden = np.where(resident >= 2.0, 0.7, np.where(alone_on_sm, 0.0, 0.3))
    work_us = math_us + maps_us - shorter * hidden
    rounds = np.ceil(per_sm / resident)
    # A step waits for its loads unless enough earlier ones are in flight; a group
    # instruction still reads the stage before it, which takes half a stage away.
    alone = (grid.num_stages < 2) & (trips > 1)
    ahead = np.maximum(grid.num_stages - np.where(grouped, 1.5, 1.0), 0.5)
    ahead = np.where(alone, 0.5, np.minimum(ahead, trips))
    wait_us = rounds * trips * MEMORY_LATENCY_US / ahead
    total = np.maximum(np.maximum(work_us, traffic_us), wait_us)
    total = total + rounds * (trips * _STEP_US + MEMORY_LATENCY_US)
    # What spills in a loop goes through L1 on every trip.
    spill = np.maximum(0.0, held.registers / limit - 1.0)
    total = total * (1.0 + 4.0 * spill)
    keep = held.shared_bytes <= hardware.smem_per_cta_bytes - 2048
    keep &= held.registers <= (1.5 if facts.scatters else 1.1) * limit
    keep &= ~(grouped & (rows < GROUP_ROWS * grid.num_warps / GROUP_WARPS))
    for dot in facts.dots:
        keep &= ~_inexact(dot, grid, hardware)
    for dot in facts.dots:
        keep &= ~_breaks(dot, grid, grouped)
    if facts.scatters:
        # On an H200 the fastest 40 of 60 recorded configs of a product with looked-up
        # scales had one stage, by a factor of 2 to 3 (4-bit weights, 2026-11).
        keep &= alone
        return total, keep
    staged = keep & ~alone
    # A pick is used unmeasured: one stage only where nothing else fits.
    return total, staged if staged.any() else keep


def _breaks(dot: Dot, grid: _Grid, grouped: Array) -> npt.NDArray[np.bool_]:
    """Where Triton 3.6 ends in an error on Hopper: a batched product that adds to a
    rescaled sum, staged, whose depth is not its width. 16 of 16 such attempts failed
    on an H200 (attention forward in three dimensions, 2026-11)."""
    batched = dot.rescaled and bool(dot.batch)
    unlike = _tile(dot.k, grid) != _tile(dot.n, grid)
    return np.asarray(batched & unlike & grouped & (grid.num_stages > 1), dtype=bool)


def _rows(facts: Facts, grid: _Grid) -> Array:
    """Rows of the product with the most of them."""
    most = np.zeros_like(grid.num_warps)
    for dot in facts.dots:
        most = np.maximum(most, _tile(dot.m, grid))
    return most


def _inexact(dot: Dot, grid: _Grid, hardware: Hardware) -> npt.NDArray[np.bool_]:
    depth = float(dot.k.extent) if dot.carries else _tile(dot.k, grid)
    bad = sums_fp8_inexactly(hardware, _tile(dot.m, grid), grid.num_warps)
    return np.asarray(dot.is_fp8 & bad & (depth > EXACT_FP8_SUM), dtype=bool)


def _guess(facts: Facts, grid: _Grid) -> _Held:
    """What products alone hold: quick, and below what the kernel needs."""
    shared, _ = _shared(facts, grid)
    threads = 32.0 * grid.num_warps
    return _Held(_results(facts, grid) / (4.0 * threads) + _BASE_REGISTERS, shared)


def _results(facts: Facts, grid: _Grid) -> Array:
    """Bytes of fp32 results that surely live together: the largest carried one, and
    the largest other one and a half times (it becomes the next product's operand)."""
    carried = np.zeros_like(grid.num_warps)
    passing = np.zeros_like(grid.num_warps)
    for dot in facts.dots:
        size = 4.0 * _tile(dot.m, grid) * _tile(dot.n, grid)
        for axis in dot.batch:
            size = size * _tile(axis, grid)
        if dot.carries:
            carried = np.maximum(carried, size)
        else:
            passing = np.maximum(passing, size)
    return carried + 1.5 * passing


def _shared(facts: Facts, grid: _Grid) -> tuple[Array, Array]:
    """Shared memory of a program at least, and bytes that one trip loads."""
    rings: dict[frozenset[int], tuple[Array, Array]] = {}
    none = np.zeros_like(grid.num_warps)
    resident = none
    looped = {knob.slot for knob in facts.loop_knobs}
    for access in facts.accesses:
        axes = [axis for axis in access.axes if axis is not None]
        if access.is_store or len(axes) < 2:
            continue
        size = np.full_like(none, float(access.item_bytes))
        for axis in axes:
            size = size * _tile(axis, grid)
        if not access.in_loop:
            resident = np.maximum(resident, size)
            continue
        # Loops that share no knob run one after the other and share their buffers.
        walked = frozenset(a.knob for a in axes if a.knob is not None) & looped
        largest = size
        for other in [o for o in rings if o & walked]:
            added, its_largest = rings.pop(other)
            size, largest = size + added, np.maximum(largest, its_largest)
            walked |= other
        rings[walked] = size, largest
    ring, loaded = none, none
    for size, largest in rings.values():
        # Products one after the other may share buffers, two operands cannot.
        ring = np.maximum(ring, np.minimum(size, 2.0 * largest))
        loaded = np.maximum(loaded, size)
    return ring * grid.num_stages + resident, loaded


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


def _maps_us(facts: Facts, grid: _Grid, programs: Array, hardware: Hardware) -> Array:
    """Time of all work by element of one program, products left out."""
    plain_per_us = hardware.peak_tflops["fp32"] / 2.0 * 1e6 / hardware.n_sms
    special_per_us = _SPECIAL_LANES * hardware.clock_ghz * 1e3
    total = np.zeros_like(programs)
    for maps in facts.maps:
        elements = np.full_like(programs, float(facts.fixed_programs))
        for axis in maps.axes:
            elements = elements * _whole(axis, grid)
        mine = {axis.knob for axis in maps.axes}
        for knob in facts.knobs:
            if knob.slot in maps.around and knob.slot not in mine:
                elements = elements * np.ceil(knob.extent / grid.sizes[knob.slot])
        total = total + elements * (
            _PLAIN_INSTRUCTIONS * maps.n_plain / plain_per_us
            + maps.n_special / special_per_us
        )
    return total / programs


def _words(facts: Facts, grid: _Grid, row: int, hardware: Hardware, held: _Held) -> str:
    num_warps, num_stages = int(grid.num_warps[row]), int(grid.num_stages[row])
    rows = int(_rows(facts, grid)[row])
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
