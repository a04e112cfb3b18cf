"""Time of a matrix product by the shape of its tiles, for many shapes at once.

Four clocks run against each other: the matrix units, the way from L2 to the SM, the
bytes that loads in flight can bring in one memory latency, and DRAM. Whole waves of
programs pay the slowest of them; a launch and one trip through an empty pipeline come
on top. Everything a config cannot change is left out: this ranks, it does not predict.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.heuristics.mma import converted_per_us
from costmodel.heuristics.mma import converts_fp8
from costmodel.heuristics.mma import mma_rate
from costmodel.heuristics.mma import uses_group_instruction

Array = npt.NDArray[np.float64]

# One DRAM read on A100, H100 and B200 takes 0.5-0.9 us under load (public pointer-chase
# microbenchmarks); the first read of a program waits for it once.
MEMORY_LATENCY_US = 0.7
# What a pipeline step costs beside its work: a barrier and address arithmetic, about 50
# clocks on sm80 and later. It is why deep tiles beat shallow ones of equal traffic.
_STEP_US = 0.03
# An SM takes 64 bytes a clock from L2 (A100 white paper); 0.6 of that under load, which
# agrees with the 8.9 TB/s that a 750 Tflop/s GEMM of 128 x 256 tiles draws on an H200.
_L2_BYTES_PER_CLOCK = 0.6 * 64.0


@dataclass(frozen=True, slots=True)
class Problem:
    """One product, per program grid.

    Attributes:
        m: Rows, n: columns, k: depth, in elements.
        programs: Programs along other axes, such as a batch.
        lhs_bytes: Bytes of an element of the left operand.
        rhs_bytes: Bytes of an element of the right operand.
        out_bytes: Bytes of an element of the result.
        rate: Key of `Hardware.peak_tflops`.
        rows_on_grid: Whether programs are spread along rows; else a loop walks them.
        columns_on_grid: The same of columns.
    """

    m: int
    n: int
    k: int
    programs: int
    lhs_bytes: int
    rhs_bytes: int
    out_bytes: int
    rate: str
    rows_on_grid: bool = True
    columns_on_grid: bool = True


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tile shapes and launch knobs, one entry per choice; float64[n] each."""

    m: Array
    n: Array
    k: Array
    num_warps: Array
    num_stages: Array

    def take(self, keep: npt.NDArray[np.bool_]) -> Tiles:
        """Some of them."""
        return Tiles(
            self.m[keep],
            self.n[keep],
            self.k[keep],
            self.num_warps[keep],
            self.num_stages[keep],
        )


def make_tiles(
    m: tuple[int, ...],
    n: tuple[int, ...],
    k: tuple[int, ...],
    num_warps: tuple[int, ...],
    num_stages: tuple[int, ...],
) -> Tiles:
    """Every combination."""
    axes = [np.asarray(a, dtype=np.float64) for a in (m, n, k, num_warps, num_stages)]
    return Tiles(*(grid.ravel() for grid in np.meshgrid(*axes, indexing="ij")))


def stage_bytes(problem: Problem, tiles: Tiles) -> Array:
    """Shared memory of one pipeline stage; float64[n]."""
    return tiles.k * (tiles.m * problem.lhs_bytes + tiles.n * problem.rhs_bytes)


def shared_bytes(problem: Problem, tiles: Tiles) -> Array:
    """Shared memory of a program: the ring of stages; float64[n]."""
    return stage_bytes(problem, tiles) * tiles.num_stages


def accumulator_registers(tiles: Tiles) -> Array:
    """Registers a thread holds of the result in fp32; float64[n]."""
    return tiles.m * tiles.n / (32.0 * tiles.num_warps)


def occupancy(
    problem: Problem, tiles: Tiles, hardware: Hardware
) -> tuple[Array, Array]:
    """Tiles that one SM must do, and programs at work on it together; float64[n]."""
    rows = np.ceil(problem.m / tiles.m)
    columns = np.ceil(problem.n / tiles.n)
    none = np.ones_like(rows)
    programs = (
        problem.programs
        * (rows if problem.rows_on_grid else none)
        * (columns if problem.columns_on_grid else none)
    )
    most = np.ceil(programs / hardware.n_sms)
    # Tiles that a loop walks come one after the other in every program.
    per_sm = (
        most
        * (none if problem.rows_on_grid else rows)
        * (none if problem.columns_on_grid else columns)
    )
    by_smem = hardware.smem_per_sm_bytes / (shared_bytes(problem, tiles) + 1024.0)
    by_threads = hardware.max_threads_per_sm / (32.0 * tiles.num_warps)
    registers = (accumulator_registers(tiles) + 56.0) * 32.0 * tiles.num_warps
    by_registers = hardware.regs_per_sm / registers
    resident = np.minimum(np.minimum(by_smem, by_threads), by_registers)
    return per_sm, np.clip(np.floor(resident), 1.0, np.maximum(most, 1.0))


def matmul_us(problem: Problem, tiles: Tiles, hardware: Hardware) -> Array:
    """Relative time of each choice in microseconds; float64[n], > 0."""
    steps = np.ceil(problem.k / tiles.k)
    per_sm, resident = occupancy(problem, tiles, hardware)

    flop = 2.0 * tiles.m * tiles.n * steps * tiles.k
    rate = mma_rate(hardware, problem.rate, tiles.m, tiles.n, tiles.num_warps)
    math_us = per_sm * flop / rate
    if converts_fp8(hardware, problem.rate):
        values = per_sm * steps * tiles.k * (tiles.m + tiles.n)
        turned_us = values / converted_per_us(hardware, resident * tiles.num_warps)
        math_us = np.maximum(math_us, turned_us)

    loaded = steps * stage_bytes(problem, tiles)
    l2_us = per_sm * loaded / (_L2_BYTES_PER_CLOCK * hardware.clock_ghz * 1e3)

    # A step waits for its loads unless enough earlier ones are in flight; a group
    # instruction still reads the stage before it, which takes half a stage away.
    grouped = uses_group_instruction(hardware, tiles.m, tiles.num_warps)
    ahead = np.maximum(tiles.num_stages - np.where(grouped, 1.5, 1.0), 0.5)
    in_flight = resident * np.minimum(ahead, steps) * stage_bytes(problem, tiles)
    wait_us = per_sm * loaded * MEMORY_LATENCY_US / in_flight
    step_us = per_sm * steps * _STEP_US / resident
    # Without a second stage nothing overlaps inside a program.
    alone = (tiles.num_stages < 2) & (steps > 1)
    serial_us = math_us + l2_us + per_sm * steps * MEMORY_LATENCY_US / resident

    once = problem.programs * (
        problem.m * problem.k * problem.lhs_bytes
        + problem.k * problem.n * problem.rhs_bytes
        + problem.m * problem.n * problem.out_bytes
    )
    dram_us = once / (hardware.dram_gb_per_s * 1e3)

    overlapped_us = np.maximum(np.maximum(math_us, l2_us), wait_us)
    busy = np.where(alone, serial_us, overlapped_us) + step_us
    fill_us = stage_bytes(problem, tiles) / (_L2_BYTES_PER_CLOCK * hardware.clock_ghz)
    # The result leaves through registers: nothing overlaps the last tile's store.
    store_us = (tiles.m * tiles.n * problem.out_bytes * hardware.n_sms) / (
        hardware.dram_gb_per_s * 1e3
    )
    crowded = np.maximum(0.0, accumulator_registers(tiles) / 128.0 - 1.0)
    return np.asarray(
        np.maximum(busy, dram_us) * (1.0 + crowded)
        + per_sm / resident * (MEMORY_LATENCY_US + fill_us * 1e-3)
        + np.minimum(store_us, busy)
    )
