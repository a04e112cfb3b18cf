"""Which matrix instruction a tile gets, how fast it is, and whether it is exact.

The instruction follows from the tile alone: Hopper's and data-centre Blackwell's want
64 rows and whole warp groups, everything else falls back to the warp-wide `mma.sync`.
Checked on the PTX that Triton 3.9 makes for sm90: 64 rows with 4 warps give
`wgmma.mma_async`, with 2 warps `mma.sync`, and so do 32 rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from costmodel.hardware import Hardware

Array = npt.NDArray[np.float64]

GROUP_ROWS = 64  # rows of one wgmma / tcgen05 instruction (PTX ISA)
GROUP_WARPS = 4  # warps that issue it together

# mma.sync on Hopper reaches 0.63 of the peak (Luo et al., "Benchmarking and Dissecting
# the Nvidia Hopper GPU Architecture", 2024, table of tensor core throughput).
_SYNC_ON_GROUP_HARDWARE = 0.63
# Data-centre Blackwell keeps mma.sync at about Ampere's rate: a quarter of its peak.
_SYNC_ON_TCGEN05 = 0.25
# An fp8 wgmma keeps about 14 bits while it adds, and Triton on Hopper never moves the
# sum to full registers unless the kernel asks, which Helion cannot. On an H200 all 25
# recorded attempts with it, sums of 128 to 8192, ended in an error though they compile:
# Helion holds every config against the default's full sums (helion 1.5.0, triton
# 3.6.0, 2026-11). None of 64 or fewer was recorded.
EXACT_FP8_SUM = 64
# Where 8-bit values become 16-bit ones first, every warp turns what it reads: on an
# H200 about 4 a clock and warp, 16 a clock and SM, by times of six 8-bit products of 8
# to 360 us that nothing else explains (helion 1.5.0, triton 3.6.0, 2026-11).
_CONVERTED_BY_WARP = 4.0
_CONVERTED_BY_SM = 16.0


def uses_group_instruction(hardware: Hardware, rows: Any, num_warps: Any) -> Any:
    """Whether a tile of so many rows gets wgmma or tcgen05; scalars or arrays."""
    has = hardware.has_wgmma or hardware.has_tcgen05
    return has & (rows >= GROUP_ROWS) & (num_warps % GROUP_WARPS == 0)


def sums_fp8_inexactly(hardware: Hardware, rows: Any, num_warps: Any) -> Any:
    """Whether an 8-bit float product of this tile would lose bits of its sum."""
    inexact = hardware.has_wgmma and not hardware.has_tcgen05
    return uses_group_instruction(hardware, rows, num_warps) & inexact


def converts_fp8(hardware: Hardware, rate: str) -> bool:
    """Whether 8-bit floats are made 16-bit ones, as Hopper's `mma.sync` has none."""
    return rate == "fp8" and hardware.has_wgmma and not hardware.has_tcgen05


def converted_per_us(hardware: Hardware, warps: Array) -> Array:
    """8-bit values that the warps at work on one SM make 16-bit ones; float64[n]."""
    clock = hardware.clock_ghz * 1e3
    return np.minimum(_CONVERTED_BY_SM, _CONVERTED_BY_WARP * warps) * clock


def mma_rate(
    hardware: Hardware, rate: str, rows: Array, columns: Array, num_warps: Array
) -> Array:
    """Flop per microsecond that one SM reaches on tiles of this shape.

    Args:
        hardware: One GPU.
        rate: Key of `Hardware.peak_tflops`.
        rows: float64[n], rows of the tile.
        columns: float64[n], columns of the tile.
        num_warps: float64[n].

    Returns:
        float64[n], > 0. An upper bound: no waits, no conversions.
    """
    grouped = uses_group_instruction(hardware, rows, num_warps)
    # Hopper has no 8-bit mma.sync: Triton converts the operands to fp16 first.
    sync_kind = "fp16" if rate == "fp8" and hardware.has_wgmma else rate
    flop_per_us = 1e6 / hardware.n_sms
    group_peak = hardware.peak_tflops[rate] * flop_per_us
    sync_peak = hardware.peak_tflops[sync_kind] * flop_per_us
    # A group instruction of n columns takes n/2 clocks on bf16 and reads its operands
    # from shared memory in 16 + n/4 clocks: narrow tiles wait for shared memory.
    group_share = np.minimum(1.0, (columns / 2.0) / (16.0 + columns / 4.0))
    # A warp's own tile decides how often mma.sync finds its operands in registers: a
    # square of side s reads 2 s^2 / s elements for s^2 results.
    side = np.sqrt(np.maximum(rows, 16.0) * columns / num_warps)
    sync_share = np.minimum(1.0, side / 56.0)
    if hardware.has_tcgen05:
        sync_share = sync_share * _SYNC_ON_TCGEN05
    elif hardware.has_wgmma:
        sync_share = sync_share * _SYNC_ON_GROUP_HARDWARE
    # 0.85: what the best kernels of each kind reach of the peak under load.
    return np.asarray(
        0.85 * np.where(grouped, group_peak * group_share, sync_peak * sync_share)
    )
