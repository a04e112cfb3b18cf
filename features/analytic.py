"""A first-principles estimate of kernel time, for ranking where no model decides.

Time is launch plus the slowest of: DRAM at the bandwidth that bytes in flight can
draw, the busiest SM's share of tensor, arithmetic and L2 work, and the latency chain
of one program times the rounds that the grid needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from costmodel.features.graph import KernelGraph
from costmodel.features.knobs import encoded
from costmodel.features.knobs import number
from costmodel.features.resources import Resources
from costmodel.features.symbols import Sizes
from costmodel.features.tiles import Tiles
from costmodel.features.traffic import Work
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.types import Config

# Latency of one dependent trip to DRAM and to L2, in microseconds: about 800 and 270
# cycles at 1.7 GHz (microbenchmarks of Hopper, Luo et al. 2024, arXiv 2402.13499).
_DRAM_LATENCY_US = 0.48
_L2_LATENCY_US = 0.16
# What a launch costs between dispatch and the first instruction, as CUDA events see
# it back to back, in microseconds; and what a program costs to start and to retire.
_LAUNCH_US = 2.0
_PROGRAM_US = 0.6
# What a dot and a reduction add to the chain of dependent instructions of a trip, in
# microseconds: attention with small tiles takes 1.2 to 1.9 us a trip on an H200, a
# skinny product 0.25 (this project's sample).
_DOT_US = 0.25
_REDUCE_US = 0.3
# Slowdown of a dot loop per share of the registers that spill in it.
_LOOP_SPILL = 8.0
# Warps an SM needs to keep its issue slots busy on independent arithmetic.
_BUSY_WARPS = 8.0
# Lanes for arithmetic and for special functions per SM and clock (CUDA C++
# programming guide, arithmetic throughput, 9.0).
_ARITHMETIC_LANES = 128.0
_SPECIAL_LANES = 16.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Times of n configs in microseconds, float64[n], and what they rest on.

    Attributes:
        total_us: The estimate.
        dram_us: DRAM at full bandwidth.
        l2_us: L2 at full bandwidth.
        tensor_us: Dots at the rate their tiles allow.
        issue_us: Arithmetic and special functions.
        latency_us: Chain of dependent trips, over all rounds.
        roofline_us: Slowest of the first four, spread evenly.
        waves: Programs over what one round holds.
        tail: Useful share of the last round.
        busy_programs: Programs of the busiest SM over the mean.
        in_flight_bytes: Bytes one SM has on their way.
        bandwidth_share: Share of DRAM bandwidth that those can draw.
        launch_us: What a launch costs whatever the kernel does.
        memory_us: DRAM at the bandwidth that the bytes in flight draw, whole sectors
            counted.
        compute_us: The busiest SM's share of tensor, arithmetic and L2 work, slowed
            down by what spills.
        exposed_us: What the slowest of memory, compute and latency fails to hide of
            the other two; `total_us` is launch, the slowest and this.
    """

    total_us: Sizes
    dram_us: Sizes
    l2_us: Sizes
    tensor_us: Sizes
    issue_us: Sizes
    latency_us: Sizes
    roofline_us: Sizes
    waves: Sizes
    tail: Sizes
    busy_programs: Sizes
    in_flight_bytes: Sizes
    bandwidth_share: Sizes
    launch_us: Sizes
    memory_us: Sizes
    compute_us: Sizes
    exposed_us: Sizes


def estimate_time(
    graph: KernelGraph,
    tiles: Tiles,
    resources: Resources,
    work: Work,
    configs: Sequence[Config],
    hardware: Hardware,
) -> Estimate:
    """Estimate times of n configs on one GPU."""
    n_sms = float(hardware.n_sms)
    programs = np.maximum(np.broadcast_to(tiles.total_programs, (tiles.n,)), 1.0)
    resident = _resident(resources, programs, configs, n_sms)
    # One program after another in the same CTA: the next cannot load while the last
    # one stores.
    is_persistent = encoded(configs, "pid_type", _is_persistent)[0]
    waves = programs / (n_sms * resident)
    rounds = np.ceil(waves)
    # The busiest SM decides: programs come in whole numbers.
    busiest = np.ceil(programs / n_sms) * n_sms / programs
    moved = work.load_bytes + work.store_bytes
    dram_us = work.unique_bytes / (hardware.dram_gb_per_s * 1e3)
    l2_us = moved * work.sector_waste / (hardware.l2_gb_per_s * 1e3)
    tensor_us = _tensor_us(work, resources, hardware)
    issue_us = _issue_us(work, resources, resident, hardware)
    in_flight, share = _bandwidth_share(
        graph, resources, work, programs, resident / (1.0 + is_persistent), hardware
    )
    latency_us = rounds * (
        _chain_us(graph, resources, work) + is_persistent * _DRAM_LATENCY_US
    )
    engines = np.maximum(np.maximum(tensor_us, issue_us), l2_us)
    shown = _shown_share(graph, resources, work) * np.minimum(tensor_us, l2_us)
    spread = busiest * (engines + shown)
    spill = _spill_factor(graph, resources, hardware)
    memory_us = dram_us * work.sector_waste / share
    overlap = np.maximum(np.maximum(memory_us, spread * spill), latency_us)
    # Phases overlap imperfectly: a fifth of what the slowest hides still shows.
    rest = 0.2 * (memory_us + spread * spill + latency_us - overlap)
    roofline = np.maximum(np.maximum(dram_us, l2_us), np.maximum(tensor_us, issue_us))
    return Estimate(
        total_us=_LAUNCH_US + overlap + rest,
        dram_us=dram_us,
        l2_us=l2_us,
        tensor_us=tensor_us,
        issue_us=issue_us,
        latency_us=latency_us,
        roofline_us=roofline,
        waves=waves,
        tail=waves / rounds,
        busy_programs=busiest,
        in_flight_bytes=in_flight,
        bandwidth_share=share,
        launch_us=np.full(tiles.n, _LAUNCH_US),
        memory_us=memory_us,
        compute_us=spread * spill,
        exposed_us=rest,
    )


def _resident(
    resources: Resources, programs: Sizes, configs: Sequence[Config], n_sms: float
) -> Sizes:
    """Programs that share an SM; a persistent launch starts only so many."""
    resident = np.minimum(resources.occupancy_ctas, programs / n_sms)
    persistent = encoded(configs, "pid_type", _is_persistent)[0] > 0.0
    launched = np.maximum(number(configs, "num_sm_multiplier", 1.0), 1.0)
    return np.where(persistent, np.minimum(resident, launched), resident)


def _is_persistent(value: object) -> tuple[float, ...]:
    return (float(str(value or "flat").startswith("persistent")),)


def _shown_share(graph: KernelGraph, resources: Resources, work: Work) -> Sizes:
    """How much of loading operands shows beside the dots of a loop.

    Without stages a trip loads, then multiplies. With two, the next load waits until
    the multiplication before has freed its buffer. From three on both overlap (H200,
    4096^3 product with tiles of 128 x 256: 460, 275 and 195 us).
    """
    if not graph.dots:
        return np.zeros(1)
    by_stages = np.clip((3.0 - resources.stages) / 2.0, 0.0, 1.0)
    return np.where(work.trips > 1.0, by_stages, 0.0)


def _spill_factor(
    graph: KernelGraph, resources: Resources, hardware: Hardware
) -> Sizes:
    """How much spilled registers slow a program down.

    Accumulators of dots that do not fit go to local memory and back in every trip, and
    the tensor cores wait for them (H200: products with 41 to 58 registers too few run
    5 to 14 times slower); what spills only in the epilogue is paid once. Code without
    dots needs no whole tile at once, whatever the live bytes say (H200: at 3 to 4
    times its registers a sum ran 1.1 times slower than the best, a row norm 1.1
    times, a gated activation 10 times).
    """
    whole = float(hardware.max_regs_per_thread)
    if not graph.dots:
        weight = 0.15 if graph.reductions else 0.4
        return 1.0 + weight * resources.spill_registers / whole
    outside = resources.spill_registers - resources.loop_spill_registers
    in_loop = _LOOP_SPILL * resources.loop_spill_registers
    return 1.0 + (in_loop + 0.15 * np.maximum(outside, 0.0)) / whole


def peak_flops_per_us(hardware: Hardware, name: str) -> float:
    """Tensor-core or FMA rate in operations per microsecond."""
    rates: Mapping[str, float] = hardware.peak_tflops
    rate = rates.get(name) or rates.get("bf16") or rates.get("fp32") or 1.0
    return rate * 1e6


def _tensor_us(work: Work, resources: Resources, hardware: Hardware) -> Sizes:
    total = np.zeros(1)
    all_flops = np.zeros(1)
    for name, flops in work.flops.items():
        total = total + flops / peak_flops_per_us(hardware, name)
        all_flops = all_flops + flops
    large = work.wgmma_flops / np.maximum(all_flops, 1.0)
    groups = resources.threads >= 128.0
    fast = np.where(groups, large, 0.0) if hardware.has_wgmma else np.ones(1)
    # Without warp-group MMA Hopper's tensor cores run at about 60 % of their rate.
    return np.broadcast_to(total, resources.threads.shape) * (fast + (1.0 - fast) / 0.6)


def _issue_us(
    work: Work, resources: Resources, resident: Sizes, hardware: Hardware
) -> Sizes:
    per_us = hardware.clock_ghz * 1e3 * hardware.n_sms
    cycles = work.arithmetic / _ARITHMETIC_LANES + work.special / _SPECIAL_LANES
    warps = np.maximum(resident, 1.0) * resources.threads / hardware.warp_size
    busy = np.minimum(1.0, warps / _BUSY_WARPS)
    return cycles / per_us / busy


def _bandwidth_share(
    graph: KernelGraph,
    resources: Resources,
    work: Work,
    programs: Sizes,
    resident: Sizes,
    hardware: Hardware,
) -> tuple[Sizes, Sizes]:
    """Bytes in flight per SM, and the share of DRAM bandwidth they sustain."""
    trips = np.maximum(work.trips * work.reduction_trips, 1.0)
    per_trip = work.load_bytes / programs / trips
    # Asynchronous copies keep stages - 1 trips on their way; plain loads what the
    # registers of one trip hold.
    depth = np.maximum(1.0, np.minimum(resources.stages - 1.0, trips))
    depth = depth if graph.dots else np.ones(1)
    in_flight = np.minimum(resident * per_trip * depth, 65536.0)
    needed = hardware.dram_gb_per_s * 1e3 * _DRAM_LATENCY_US / hardware.n_sms
    return in_flight, np.clip(in_flight / needed, 0.05, 1.0)


def _chain_us(graph: KernelGraph, resources: Resources, work: Work) -> Sizes:
    """Latency of one program: start, then every trip that nothing prefetches."""
    trips = work.trips * work.reduction_trips
    per_trip = np.full(1, _L2_LATENCY_US if graph.dots else _DRAM_LATENCY_US)
    if graph.dots:
        hidden = np.maximum(resources.stages - 1.0, 0.5)
        chain = _DOT_US * len(graph.dots)
        # Rows that several warps share are reduced through shared memory.
        chain += _REDUCE_US * len(graph.reductions)
        per_trip = np.maximum(per_trip / hidden, chain)
        dot_us: Sizes = _PROGRAM_US + _DRAM_LATENCY_US + trips * per_trip
        return dot_us
    warps = np.log2(np.maximum(resources.threads / 32.0, 1.0))
    reduce_us = _REDUCE_US * len(graph.reductions) * (1.0 + warps) / 4.0
    plain_us: Sizes = _PROGRAM_US + trips * (per_trip + reduce_us)
    return plain_us
