"""Features of machine code: what the compiler made of a config, exact where it is.

The second stage of a pick compiles its best candidates for the target and looks at
their code. Estimates stay features of the first stage; here stand exact registers,
spills, shared memory and occupancy, instructions by class in the main loop, how often
it runs, and how many bytes of loads an SM has under way. Which of these matter was
found on 2,100 compiled H200 configs (design notes, compile-informed).

A row is `[code | code - code(default)]`, so that a config with the default's code
differs in nothing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import numpy as np

from costmodel.features.schema import SCHEMA
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.types import FloatArray

CODE_FEATURES: tuple[tuple[str, str], ...] = (
    ("code_registers_log2", "log2 count"),
    ("code_stack_log2", "log2 bytes"),
    ("code_spill_log2", "log2 bytes"),
    ("code_smem_log2", "log2 bytes"),
    ("code_occupancy_ctas_log2", "log2 count"),
    ("code_resident_warps", "count"),
    ("code_active_ctas", "count"),
    ("code_waves_log2", "log2 count"),
    ("code_tail_share", "share"),
    ("code_instructions_log2", "log2 count"),
    ("code_loop_instructions_log2", "log2 count"),
    ("code_innermost_loops", "count"),
    ("code_dynamic_log2", "log2 count"),
    ("code_dynamic_total_log2", "log2 count"),
    ("code_issue_over_roofline_log2", "log2 ratio"),
    ("code_issue_us_log2", "log2 us"),
    ("code_in_flight_log2", "log2 bytes"),
    ("code_bandwidth_share", "share"),
    ("code_pending_copy_groups", "count"),
    ("code_has_wgmma", "bool"),
    ("code_has_tma", "bool"),
    ("code_is_async", "bool"),
    ("code_shared_share", "share"),
    ("code_local_share", "share"),
    ("code_barrier_share", "share"),
    ("code_conversion_share", "share"),
    ("code_special_share", "share"),
    ("code_float_share", "share"),
    ("code_integer_share", "share"),
    ("code_shuffle_share", "share"),
    ("code_memory_share", "share"),
    ("code_per_mma_log2", "log2 ratio"),
    ("code_load_bytes_log2", "log2 bytes"),
    ("code_load_width", "bytes"),
    ("code_time_us_log2", "log2 us"),
)

CODE_NAMES: tuple[str, ...] = (
    *(name for name, _ in CODE_FEATURES),
    *(f"d_{name}" for name, _ in CODE_FEATURES),
)

CODE_SCHEMA_HASH = hashlib.sha256(
    "\n".join(["v1", *(f"{name}\t{unit}" for name, unit in CODE_FEATURES)]).encode()
).hexdigest()[:16]
"""Names what a second-stage model was trained on; 16 hex digits."""

# Bytes of loads in flight on an SM that reach DRAM's full rate: latency x bandwidth,
# 32 KB on an H200 (design notes, compile-informed: 4.6 TB/s, about 0.9 us, 132 SMs).
_FULL_RATE_BYTES = 32_000.0
# Share of a pipelined CTA's shared memory that holds copies under way rather than the
# stage being read: with three stages, two of three.
_COPIES_SHARE = 0.7
_SCHEDULERS = 4  # instructions an SM issues in a cycle, since Volta
_REGISTER_UNIT = 8  # registers of a thread are handed out in eights
_WARP_UNIT = 4  # warps of an SM's registers in fours, one a scheduler
_DRIVER_SMEM_BYTES = 1024  # of each CTA, taken by the driver (CUDA guide, compute 8+)
_LEAST_BANDWIDTH_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class LoopCode:
    """An innermost loop: its length in instructions and those by class."""

    n_instructions: int
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CodeFacts:
    """One compiled kernel, as far as features need it.

    Attributes:
        registers: 32-bit registers of a thread.
        stack_bytes: Local memory of a thread.
        spill_bytes: Bytes a thread moves because of spills.
        smem_bytes: Shared memory of a CTA.
        num_warps: Warps of a CTA.
        n_instructions: Of the whole code.
        counts: Instructions by class (`costmodel.disassembly.CLASSES`).
        innermost: Its innermost loops.
        load_bytes: Bytes that a thread's loads and copies move, each counted once.
        bytes_in_flight: Most bytes of loads that a thread has waiting.
        pending_copy_groups: Copies still under way where the main loop waits, or None.
        has_wgmma: Whether warp groups multiply.
        has_tma: Whether tensors are copied by descriptor.
    """

    registers: int
    stack_bytes: int
    spill_bytes: int
    smem_bytes: int
    num_warps: int
    n_instructions: int
    counts: Mapping[str, int]
    innermost: tuple[LoopCode, ...]
    load_bytes: int
    bytes_in_flight: int
    pending_copy_groups: int | None
    has_wgmma: bool
    has_tma: bool

    @property
    def main_loop(self) -> LoopCode | None:
        """The loop that multiplies most, else loads most, else is longest."""
        return max(self.innermost, key=_work, default=None)


def _work(loop: LoopCode) -> tuple[int, int, int]:
    counts = loop.counts
    return (
        counts.get("wgmma", 0) + counts.get("mma", 0) + counts.get("tcgen05", 0),
        counts.get("global_load", 0) + counts.get("async_copy", 0),
        loop.n_instructions,
    )


def code_matrix(
    codes: list[CodeFacts],
    default: CodeFacts,
    features: FloatArray,
    default_row: FloatArray,
    hardware: Hardware,
) -> FloatArray:
    """Rows for a second-stage model.

    Args:
        codes: The machine code of n configs.
        default: That of Helion's default.
        features: float32[n, len(SCHEMA)], first-stage features of the same configs;
            programs, trips and the roofline are taken from there.
        default_row: float32[len(SCHEMA)], the default's.
        hardware: The target.

    Returns:
        float32[n, len(CODE_NAMES)].
    """
    reference = np.array(_row(default, default_row, hardware), dtype=np.float64)
    rows = np.array(
        [_row(code, row, hardware) for code, row in zip(codes, features, strict=True)],
        dtype=np.float64,
    ).reshape(len(codes), len(CODE_FEATURES))
    return np.hstack([rows, rows - reference]).astype(np.float32)


_PROGRAMS = SCHEMA.index("programs_log2")
_TRIPS = SCHEMA.index("trips_log2")
_REDUCTION_TRIPS = SCHEMA.index("reduction_trips_log2")
_ROOFLINE = SCHEMA.index("roofline_us_log2")


def occupancy_ctas(code: CodeFacts, hardware: Hardware) -> int:
    """CTAs of this code that an SM holds at a time; at least 1."""
    registers = max(code.registers, 2 * _REGISTER_UNIT)
    per_warp = -(-registers // _REGISTER_UNIT) * _REGISTER_UNIT * hardware.warp_size
    warps = hardware.regs_per_sm // per_warp // _WARP_UNIT * _WARP_UNIT
    by_registers = warps // code.num_warps
    by_smem = hardware.smem_per_sm_bytes // (code.smem_bytes + _DRIVER_SMEM_BYTES)
    by_threads = hardware.max_threads_per_sm // (code.num_warps * hardware.warp_size)
    return max(1, min(by_registers, by_smem, by_threads, hardware.max_ctas_per_sm))


def _row(code: CodeFacts, row: FloatArray, hardware: Hardware) -> list[float]:
    programs = 2.0 ** float(row[_PROGRAMS])
    trips = 2.0 ** float(row[_TRIPS] + row[_REDUCTION_TRIPS])
    roofline_us = 2.0 ** float(row[_ROOFLINE])
    occupancy = occupancy_ctas(code, hardware)
    active = min(float(occupancy), programs / hardware.n_sms)
    resident_warps = active * code.num_warps
    waves = programs / (hardware.n_sms * occupancy)

    main = code.main_loop
    counts = code.counts if main is None else main.counts
    length = max(1, code.n_instructions if main is None else main.n_instructions)
    in_loops = sum(loop.n_instructions for loop in code.innermost)
    dynamic = max(1.0, code.n_instructions - in_loops + in_loops * trips)
    dynamic_total = dynamic * code.num_warps * programs
    cycles = dynamic_total / (hardware.n_sms * _SCHEDULERS)
    issue_us = cycles / (hardware.clock_ghz * 1e3)

    copies = code.counts.get("async_copy", 0)
    is_async = copies > 0 or code.has_tma
    in_flight = code.bytes_in_flight * hardware.warp_size * resident_warps
    if is_async:
        in_flight = max(in_flight, active * code.smem_bytes * _COPIES_SHARE)
    bandwidth_share = min(1.0, in_flight / _FULL_RATE_BYTES)
    memory_us = roofline_us / max(_LEAST_BANDWIDTH_SHARE, bandwidth_share)

    def share(*kinds: str) -> float:
        return sum(counts.get(kind, 0) for kind in kinds) / length

    products = counts.get("wgmma", 0) + counts.get("mma", 0) + counts.get("tcgen05", 0)
    n_loads = code.counts.get("global_load", 0) + copies
    pending = code.pending_copy_groups
    return [
        _log2(max(code.registers, 2 * _REGISTER_UNIT)),
        _log2(1 + code.stack_bytes),
        _log2(1 + code.spill_bytes),
        _log2(1 + code.smem_bytes),
        _log2(occupancy),
        resident_warps,
        active,
        _log2(waves),
        waves / math.ceil(waves),
        _log2(code.n_instructions),
        _log2(length),
        float(len(code.innermost)),
        _log2(dynamic),
        _log2(dynamic_total),
        _log2(issue_us / roofline_us),
        _log2(issue_us),
        _log2(1 + in_flight),
        bandwidth_share,
        -1.0 if pending is None else float(pending),
        float(code.has_wgmma),
        float(code.has_tma),
        float(is_async),
        share("shared_load", "shared_store"),
        share("local_load", "local_store"),
        share("barrier"),
        share("conversion"),
        share("special"),
        share("float"),
        share("integer"),
        share("shuffle"),
        share("global_load", "global_store", "async_copy"),
        _log2(length / products) if products else 0.0,
        _log2(1 + code.load_bytes),
        code.load_bytes / max(1, n_loads),
        _log2(max(memory_us, issue_us)),
    ]


def _log2(value: float) -> float:
    return math.log2(max(value, 1e-9))
