"""What one program takes of an SM: threads, registers, shared memory; what fits.

These are estimates before compiling. Registers hold the live tiles that do not go
through shared memory, plus addresses; shared memory holds the operands of dots, times
the stages of the loop that loads them, or the staging of a stored tile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodel.features.barriers import named_barriers
from costmodel.features.barriers import programs_by_barriers
from costmodel.features.graph import KernelGraph
from costmodel.features.knobs import DEFAULT_NUM_WARPS
from costmodel.features.knobs import number
from costmodel.features.launch import Launch
from costmodel.features.liveness import LiveBytes
from costmodel.features.liveness import LivePlan
from costmodel.features.registers import instruction_registers
from costmodel.features.registers import likely_registers
from costmodel.features.registers import register_need
from costmodel.features.shared import shared_memory
from costmodel.features.staging import StagingPlan
from costmodel.features.symbols import Sizes
from costmodel.features.tensor_memory import programs_by_columns
from costmodel.features.tensor_memory import tensor_memory_columns
from costmodel.features.tiles import Tiles
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.types import Config

# CUDA reserves 1 KiB of shared memory for itself in every CTA (programming guide,
# compute capability 8.0 and later).
_RESERVED_SMEM_BYTES = 1024.0
# Registers are handed out in units of 8 a thread (CUDA occupancy calculator).
_REGISTER_UNIT = 8.0


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of n configs, float64[n] each.

    Attributes:
        threads: Threads of one program.
        smem_bytes: Shared memory of one program.
        pipelined_bytes: Of it, buffers that stages multiply.
        stage_bytes: Bytes of one stage of the loop with the largest buffers.
        stages: Stages of that loop.
        regs_per_thread: Estimated need, not cut off at the hardware's limit.
        register_cap: Registers that a thread may have.
        registers_held: Registers that the compiled program is likely to have.
        instruction_registers: Registers that one instruction needs at once.
        spill_registers: Registers a thread needs beyond what it may have.
        loop_spill_registers: The same inside loops, where every trip pays for it.
        spilled_bytes: As `spill_registers` for the whole program, in bytes.
        tmem_columns: Columns of tensor memory that one program allocates.
        max_tile_numel: Elements of the largest tile.
        occupancy_ctas: Programs that fit one SM, at least 1.
        limit_threads: Programs that fit by threads alone.
        limit_registers: By registers alone.
        limit_smem: By shared memory alone.
        limit_barriers: By named barriers alone; infinite for programs without one.
    """

    threads: Sizes
    smem_bytes: Sizes
    pipelined_bytes: Sizes
    stage_bytes: Sizes
    stages: Sizes
    regs_per_thread: Sizes
    register_cap: Sizes
    registers_held: Sizes
    instruction_registers: Sizes
    spill_registers: Sizes
    loop_spill_registers: Sizes
    spilled_bytes: Sizes
    tmem_columns: Sizes
    max_tile_numel: Sizes
    occupancy_ctas: Sizes
    limit_threads: Sizes
    limit_registers: Sizes
    limit_smem: Sizes
    limit_barriers: Sizes


def estimate_resources(
    graph: KernelGraph,
    plan: StagingPlan,
    live_plan: LivePlan,
    live: LiveBytes,
    tiles: Tiles,
    configs: Sequence[Config],
    hardware: Hardware,
) -> Resources:
    """Estimate resources of n configs on one GPU."""
    n = tiles.n
    warps = np.maximum(number(configs, "num_warps", DEFAULT_NUM_WARPS), 1.0)
    threads = warps * float(hardware.warp_size)
    launch = Launch(graph, plan, tiles, configs, threads, hardware)
    shared = shared_memory(launch, plan)
    smem = shared.total
    registers = register_need(graph, plan, live_plan, launch)
    need, loop_need = registers.whole, registers.in_loops
    cap = np.minimum(
        float(hardware.max_regs_per_thread),
        np.floor(hardware.regs_per_sm / threads / _REGISTER_UNIT) * _REGISTER_UNIT,
    )
    asked = number(configs, "maxnreg", 0.0)
    cap = np.where(asked > 0.0, np.minimum(cap, asked), cap)
    spill = np.maximum(0.0, need - cap)
    loop_spill = loop_need - cap
    likely = likely_registers(need, cap, threads, bool(graph.dots))
    held = np.ceil(likely / _REGISTER_UNIT) * _REGISTER_UNIT
    by_threads = np.floor(hardware.max_threads_per_sm / threads)
    by_registers = np.floor(hardware.regs_per_sm / (held * threads))
    by_smem = np.floor(hardware.smem_per_sm_bytes / (smem + _RESERVED_SMEM_BYTES))
    columns = tensor_memory_columns(plan, launch)
    by_tmem = programs_by_columns(hardware.tmem_columns, columns)
    fit = np.minimum(np.minimum(by_threads, by_registers), by_smem)
    barriers = named_barriers(threads, hardware)
    by_barriers = programs_by_barriers(barriers, hardware)
    fit = np.minimum(np.minimum(fit, by_tmem), by_barriers)
    return Resources(
        threads=_full(threads, n),
        smem_bytes=_full(smem, n),
        pipelined_bytes=_full(shared.ring, n),
        stage_bytes=_full(shared.stage, n),
        stages=_full(shared.stages, n),
        regs_per_thread=_full(need, n),
        register_cap=_full(cap, n),
        registers_held=_full(likely, n),
        instruction_registers=_full(instruction_registers(graph, launch), n),
        spill_registers=_full(spill, n),
        loop_spill_registers=_full(np.maximum(0.0, loop_spill), n),
        spilled_bytes=_full(spill * threads * 4.0, n),
        tmem_columns=_full(columns, n),
        max_tile_numel=_full(live.largest_tile, n),
        occupancy_ctas=_full(np.clip(fit, 1.0, float(hardware.max_ctas_per_sm)), n),
        limit_threads=_full(by_threads, n),
        limit_registers=_full(by_registers, n),
        limit_smem=_full(by_smem, n),
        limit_barriers=_full(by_barriers, n),
    )


def _full(values: Sizes, n: int) -> Sizes:
    if len(values) == n:
        return np.ascontiguousarray(values)
    return np.full(n, values[0])
