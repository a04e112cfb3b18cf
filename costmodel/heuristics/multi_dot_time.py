"""How long combinations of tiles, warps and stages take, with several products.

Three resources run side by side: the matrix unit, the units that work by element, and
loads. What a config cannot change is left out: this ranks, it does not predict.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.heuristics.facts import Axis
from costmodel.heuristics.facts import Dot
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.mma import EXACT_FP8_SUM
from costmodel.heuristics.mma import GROUP_ROWS
from costmodel.heuristics.mma import GROUP_WARPS
from costmodel.heuristics.mma import mma_rate
from costmodel.heuristics.mma import sums_fp8_inexactly
from costmodel.heuristics.mma import uses_group_instruction
from costmodel.heuristics.tiles import MEMORY_LATENCY_US

Array = npt.NDArray[np.float64]

_STEP_US = 0.05  # barrier, addresses and the exchange of a row, about 90 clocks
_L2_BYTES_PER_CLOCK = 0.6 * 64.0  # as in `tiles`
_SPECIAL_LANES = 16.0  # special functions an SM does in a clock (programming guide)
_BUSY_WARPS = 8.0  # on an SM: two a scheduler hide most of an instruction's 4 clocks
_PLAIN_INSTRUCTIONS = 1.5  # an operation: itself, and half a move or conversion
_BASE_REGISTERS = 48.0  # addresses, carries and loop state of such kernels


@dataclass(frozen=True, slots=True)
class Grid:
    """All combinations: sizes of each knob, warps and stages; float64[n] each."""

    sizes: dict[int, Array]
    num_warps: Array
    num_stages: Array

    def take(self, rows: Sequence[int]) -> Grid:
        """Some of them."""
        return Grid(
            {slot: values[rows] for slot, values in self.sizes.items()},
            self.num_warps[rows],
            self.num_stages[rows],
        )

    def blocks(self, row: int) -> dict[int, int]:
        """Block sizes of one of them."""
        return {slot: int(values[row]) for slot, values in self.sizes.items()}


@dataclass(frozen=True, slots=True)
class Held:
    """What a program of each combination holds; float64[n] each.

    Attributes:
        registers: Of a thread, not cut off at the limit.
        shared_bytes: Of a program.
    """

    registers: Array
    shared_bytes: Array


def estimate(
    facts: Facts, grid: Grid, hardware: Hardware, held: Held
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Relative time of each combination, and which of them may be used."""
    programs = programs_of(facts, grid)
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
    rows = rows_of(facts, grid)
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
        # The best recorded config with one stage beat the best with more by 2.1 to 4.4
        # on each of three shapes (4-bit weights with looked-up scales, H200, 2026-11).
        keep &= alone
        return total, keep
    staged = keep & ~alone
    # A pick is used unmeasured: one stage only where nothing else fits.
    return total, staged if staged.any() else keep


def guess(facts: Facts, grid: Grid) -> Held:
    """What products alone hold: quick, and below what the kernel needs."""
    shared, _ = _shared(facts, grid)
    threads = 32.0 * grid.num_warps
    return Held(_results(facts, grid) / (4.0 * threads) + _BASE_REGISTERS, shared)


def rows_of(facts: Facts, grid: Grid) -> Array:
    """Rows of the product with the most of them."""
    most = np.zeros_like(grid.num_warps)
    for dot in facts.dots:
        most = np.maximum(most, tile_of(dot.m, grid))
    return most


def programs_of(facts: Facts, grid: Grid) -> Array:
    """Programs of the launch; float64[n]."""
    programs = np.full_like(grid.num_warps, float(facts.fixed_programs))
    for knob in facts.knobs:
        if knob.on_grid:
            programs = programs * np.ceil(knob.extent / grid.sizes[knob.slot])
    return programs


def dram_us(facts: Facts, hardware: Hardware) -> float:
    """Time to move every tensor once."""
    bytes_of: dict[str, int] = {}
    for access in facts.accesses:
        moved = access.elements * access.item_bytes
        bytes_of[access.tensor] = max(moved, bytes_of.get(access.tensor, 0))
    return sum(bytes_of.values()) / (hardware.dram_gb_per_s * 1e3)


def tile_of(axis: Axis, grid: Grid) -> Array:
    """Elements of an axis that a program holds at once; float64[n]."""
    if axis.knob is None:
        return np.full_like(grid.num_warps, float(axis.tile))
    return grid.sizes[axis.knob]


def _whole(axis: Axis, grid: Grid) -> Array:
    """Elements of an axis after padding to whole tiles."""
    tile = tile_of(axis, grid)
    return np.asarray(np.ceil(axis.extent / tile) * tile)


def _breaks(dot: Dot, grid: Grid, grouped: Array) -> npt.NDArray[np.bool_]:
    """Where Triton 3.6 ends in an error on Hopper: a batched product that adds to a
    rescaled sum, staged, whose depth is not its width. On an H200 34 of 38 such
    attempts failed, and all 6 of equal sides with 64 rows a warp group ran (attention
    forward in three dimensions, 2026-11)."""
    batched = dot.rescaled and bool(dot.batch)
    unlike = tile_of(dot.k, grid) != tile_of(dot.n, grid)
    return np.asarray(batched & unlike & grouped & (grid.num_stages > 1), dtype=bool)


def _inexact(dot: Dot, grid: Grid, hardware: Hardware) -> npt.NDArray[np.bool_]:
    depth = float(dot.k.extent) if dot.carries else tile_of(dot.k, grid)
    bad = sums_fp8_inexactly(hardware, tile_of(dot.m, grid), grid.num_warps)
    return np.asarray(dot.is_fp8 & bad & (depth > EXACT_FP8_SUM), dtype=bool)


def _results(facts: Facts, grid: Grid) -> Array:
    """Bytes of fp32 results that surely live together: the largest carried one, and
    the largest other one and a half times (it becomes the next product's operand)."""
    carried = np.zeros_like(grid.num_warps)
    passing = np.zeros_like(grid.num_warps)
    for dot in facts.dots:
        size = 4.0 * tile_of(dot.m, grid) * tile_of(dot.n, grid)
        for axis in dot.batch:
            size = size * tile_of(axis, grid)
        if dot.carries:
            carried = np.maximum(carried, size)
        else:
            passing = np.maximum(passing, size)
    return carried + 1.5 * passing


def _shared(facts: Facts, grid: Grid) -> tuple[Array, Array]:
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
            size = size * tile_of(axis, grid)
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


def _math_us(facts: Facts, grid: Grid, programs: Array, hardware: Hardware) -> Array:
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
            hardware,
            dot.rate,
            tile_of(dot.m, grid),
            tile_of(dot.n, grid),
            grid.num_warps,
        )
        total = total + flop / programs / rate
    return total


def _maps_us(facts: Facts, grid: Grid, programs: Array, hardware: Hardware) -> Array:
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
