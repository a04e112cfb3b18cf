"""Shared memory of one program: buffers of loops, operands, changes of layout.

Triton gives shared memory to tiles by the time they live: buffers of a loop and
descriptor stores inside it at once, everything that comes and goes within a step in the
same place. The rules below were read off the allocations of compiled kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costmodel.features.dottiles import WGMMA_MIN_ROWS
from costmodel.features.dottiles import WGMMA_MIN_THREADS
from costmodel.features.graph import KernelGraph
from costmodel.features.knobs import DEFAULT_NUM_STAGES
from costmodel.features.knobs import active_weight
from costmodel.features.knobs import asked_descriptors
from costmodel.features.knobs import encoded
from costmodel.features.knobs import fitting_descriptor
from costmodel.features.knobs import number
from costmodel.features.knobs import range_values
from costmodel.features.layouts import VECTOR_BYTES
from costmodel.features.layouts import Bits
from costmodel.features.layouts import bits
from costmodel.features.layouts import blocked
from costmodel.features.layouts import conversion_bytes
from costmodel.features.layouts import dot_operand
from costmodel.features.layouts import mma
from costmodel.features.layouts import mma_warps
from costmodel.features.ops import OpKind
from costmodel.features.regions import RegionKind
from costmodel.features.scratch import Scratch
from costmodel.features.staging import DotPlan
from costmodel.features.staging import LoopPlan
from costmodel.features.staging import Operand
from costmodel.features.staging import StagingPlan
from costmodel.features.staging import Tile
from costmodel.features.symbols import Sizes
from costmodel.features.tiles import Tiles
from costmodel.hardware import Hardware
from costmodel.types import Config

Flags = npt.NDArray[np.bool_]

_ASYNC_BYTES = 4.0  # least that cp.async copies for a thread (PTX ISA)
_BARRIER_BYTES = 8.0  # an mbarrier is one 64-bit word


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Shared memory of n configs in bytes, float64[n] or float64[1].

    Attributes:
        total: Best estimate.
        floor: Its buffers of the largest loop alone.
        ring: Buffers that stages multiply.
        stage: Bytes of one stage of them.
        stages: Stages of that loop.
    """

    total: Sizes
    floor: Sizes
    ring: Sizes
    stage: Sizes
    stages: Sizes


class _Launch:
    """What is the same for all loops of n configs."""

    def __init__(
        self,
        graph: KernelGraph,
        plan: StagingPlan,
        tiles: Tiles,
        configs: Sequence[Config],
        threads: Sizes,
        hardware: Hardware,
    ) -> None:
        self.graph, self.tiles, self.hardware = graph, tiles, hardware
        self.threads = threads
        self.warps = bits(threads / float(hardware.warp_size))
        self.stages = np.maximum(number(configs, "num_stages", DEFAULT_NUM_STAGES), 1.0)
        asked = asked_descriptors(graph, configs, tiles)
        self.descriptors = {
            index: wants * fitting_descriptor(graph, index, tiles) > 0.0
            for index, wants in asked.items()
        }
        self._bits: dict[str, Bits] = {}
        self.groups: dict[str, Flags] = {}
        asks = np.zeros(1)
        for column in asked.values():
            asks = np.maximum(asks, column)
        on_host = encoded(
            configs, "host_tensor_descriptors", lambda v: (float(v is True),)
        )[0]
        # Helion takes these back where a descriptor is asked for.
        self.no_range_stages = (asks > 0.0) & (on_host <= 0.0)
        self.no_unroll = (asks > 0.0) & (self.stages > 1.0)
        self.persistent = encoded(configs, "pid_type", _persists)[0] > 0.0
        self.range_stages = range_values(plan.range_slots, configs, "range_num_stages")
        self.unrolls = range_values(plan.range_slots, configs, "range_unroll_factors")

    def bits(self, text: str) -> Bits:
        """log2 of a tile dimension."""
        found = self._bits.get(text)
        if found is None:
            found = self._bits[text] = bits(self.tiles.dim(text))
        return found

    def size(self, tile: Tile) -> Sizes:
        """Bytes of a tile."""
        return self.tiles.numel(tile[0]) * float(tile[1])

    def uses_descriptor(self, index: int) -> Flags:
        """For each config, whether an access goes through a descriptor."""
        found = self.descriptors.get(index)
        return np.zeros(1, dtype=np.bool_) if found is None else found


def _persists(value: object) -> tuple[float, ...]:
    return (float(str(value or "").startswith("persistent")),)


@dataclass(frozen=True, slots=True)
class _Loop:
    """How one loop is compiled: bool[n] or float64[n]."""

    is_loop: Flags
    is_innermost: Flags
    stages: Sizes
    own_stages: Sizes
    copies: Sizes


def shared_memory(
    graph: KernelGraph,
    plan: StagingPlan,
    tiles: Tiles,
    configs: Sequence[Config],
    threads: Sizes,
    hardware: Hardware,
) -> SharedMemory:
    """Estimate shared memory of n configs."""
    launch = _Launch(graph, plan, tiles, configs, threads, hardware)
    loops = {one.graph_id: _compiled(launch, one) for one in plan.loops}
    kept = _kept_stores(launch, loops)
    zero = np.zeros(tiles.n)
    total, floor, best, stage, stages = zero, zero, zero, zero, np.ones(tiles.n)
    for one in plan.loops:
        how = loops[one.graph_id]
        innermost = np.ones(1, dtype=np.bool_)
        for graph_id in one.inner:
            innermost = innermost & ~loops[graph_id].is_loop
        pipelined = how.is_loop & innermost & (how.stages > 1.0)
        ring, one_stage, staged = _ring(launch, one, how, pipelined)
        passing = _passing(launch, one, staged, kept, pipelined)
        resident = np.zeros(1)
        for tile in one.resident:
            resident = resident + launch.size(tile)
        applies = np.ones(1, dtype=np.bool_) if one.is_grid else how.is_loop
        need = ring + np.where(applies, resident + passing, 0.0)
        total = np.maximum(total, need)
        larger = ring > best
        best = np.maximum(best, ring)
        stage = np.where(larger, one_stage, stage)
        stages = np.where(larger, how.stages, stages)
        floor = np.maximum(floor, ring)
    always = sum(kept.values(), np.zeros(1))
    return SharedMemory(total + always, floor, best, stage, stages)


def _compiled(launch: _Launch, loop: LoopPlan) -> _Loop:
    """Whether a loop is still one after unrolling, and with how many stages."""
    own = launch.range_stages.get(loop.graph_id, np.zeros(1))
    own = np.where(launch.no_range_stages, 0.0, own)
    stages = np.where(own > 0.0, own, launch.stages)
    unroll = np.maximum(launch.unrolls.get(loop.graph_id, np.ones(1)), 1.0)
    unroll = np.where(launch.no_unroll, 1.0, unroll)
    if loop.is_grid:
        is_loop = launch.persistent
        return _Loop(is_loop, is_loop, stages, own, np.where(is_loop, unroll, 1.0))
    trips = np.ones(1)
    for count in launch.tiles.axis_trips.get(loop.graph_id, ()):
        trips = trips * count
    if not loop.trips_known:
        is_loop = np.ones(1, dtype=np.bool_)
        return _Loop(is_loop, is_loop, stages, own, unroll)
    # Fewer trips than the factor: what is left over runs unrolled by one, and without
    # stages (Triton's LoopUnroll).
    rest = trips < unroll
    is_loop = (trips > 1.0) & (trips != unroll)
    return _Loop(
        is_loop,
        is_loop,
        np.where(rest, 1.0, stages),
        np.where(rest, 0.0, own),
        np.where(rest, 1.0, unroll),
    )


def _ring(
    launch: _Launch, loop: LoopPlan, how: _Loop, pipelined: Flags
) -> tuple[Sizes, Sizes, dict[int, Flags]]:
    """Bytes of a loop's buffers, of one stage, and which loads have buffers."""
    ring, stage = np.zeros(1), np.zeros(1)
    staged: dict[int, Flags] = {}
    deepest = max((one.level or 0 for one in loop.loads), default=0)
    # Triton spreads loads that wait for other loads evenly over the stages.
    apart = np.floor((how.stages - 1.0) / (deepest + 1.0))
    for one in loop.loads:
        access = launch.graph.accesses[one.index]
        described = launch.uses_descriptor(one.index)
        active = active_weight(launch.graph, launch.tiles, one.index) > 0.0
        takes = pipelined & active
        if loop.dots and one.level is None:
            continue
        if not loop.dots:
            takes = takes & (how.own_stages > 1.0)
        run = launch.tiles.dim(one.run_unit) if one.run_unit is not None else 1.0
        takes = takes & (described | (run * access.itemsize >= _ASYNC_BYTES))
        extra, unfit = _readers(launch, loop, access.node_id)
        takes = takes & (described | ~unfit)
        buffers = np.where(apart > 0.0, apart + extra, 0.0)
        takes = takes & (buffers > 0.0)
        each = launch.size(one.tile) + np.where(described, _BARRIER_BYTES, 0.0)
        ring = ring + np.where(takes, each * buffers * how.copies, 0.0)
        stage = stage + np.where(takes, each * how.copies, 0.0)
        staged[one.index] = takes
    return ring, stage, staged


def _is_group(launch: _Launch, plan: DotPlan) -> Flags:
    """Whether a dot is large enough for warp-group MMA."""
    known = launch.groups.get(plan.dot.node_id)
    if known is None:
        known = launch.groups[plan.dot.node_id] = _find_group(launch, plan)
    return known


def _find_group(launch: _Launch, plan: DotPlan) -> Flags:
    hardware, dot = launch.hardware, plan.dot
    if not (hardware.has_wgmma or hardware.has_tcgen05):
        return np.zeros(1, dtype=np.bool_)
    found = launch.threads >= WGMMA_MIN_THREADS
    found = found & (launch.tiles.dim(dot.m) >= WGMMA_MIN_ROWS)
    found = found & (launch.tiles.dim(dot.n) >= 8.0)
    for part in dot.batch:
        found = found & (launch.tiles.dim(part) <= 1.0)
    return found


def _readers(launch: _Launch, loop: LoopPlan, node_id: str) -> tuple[Sizes, Flags]:
    """How dots read a load.

    Returns:
        1 where a warp-group MMA reads a buffer while the next ones fill, and whether
        some dot wants it in registers in an order that no buffer can have.
    """
    extra, unfit = np.zeros(1), np.zeros(1, dtype=np.bool_)
    for one in loop.dots:
        for side, operand in enumerate((one.left, one.right)):
            if operand.source != node_id:
                continue
            group = _is_group(launch, one)
            turned = operand.is_viewed and not operand.has_run_of_k
            if _stays(operand, side):
                extra = np.maximum(extra, group.astype(np.float64))
                unfit = unfit | (~group & turned)
            elif turned:
                unfit = unfit | ~group | (side == 0)
    return extra, unfit


def _stays(operand: Operand, side: int) -> bool:
    """Whether a warp-group MMA reads an operand where its load put it.

    The left one may come from registers, and does where its shape changes on the way.
    """
    if not (operand.is_plain and operand.fits_group):
        return False
    return side == 1 or not operand.is_reshaped


def _passing(
    launch: _Launch,
    loop: LoopPlan,
    staged: dict[int, Flags],
    kept: Mapping[int, Sizes],
    pipelined: Flags,
) -> Sizes:
    """The most that comes and goes within one step of a loop."""
    graph = launch.graph
    most = np.zeros(1)
    by_node = {graph.accesses[i].node_id: flags for i, flags in staged.items()}
    inside = {graph.accesses[one.index].node_id for one in loop.loads}
    for one in loop.dots:
        most = np.maximum(most, _operand_bytes(launch, one, by_node, inside, pipelined))
    most = np.maximum(most, _stored(launch, loop, kept))
    for load in loop.loads:
        described = launch.uses_descriptor(load.index)
        if described.any():
            active = active_weight(graph, launch.tiles, load.index) > 0.0
            described = described & active
            described = described & ~staged.get(load.index, described & False)
            size = launch.size(load.tile) + _BARRIER_BYTES
            most = np.maximum(most, np.where(described, size, 0.0))
    if loop.is_grid and not graph.dots:
        scratch = Scratch(graph, launch.tiles, launch.warps, launch.threads)
        most = np.maximum(most, scratch.largest())
    return most


def _operand_bytes(
    launch: _Launch,
    one: DotPlan,
    staged: dict[str, Flags],
    inside: set[str],
    pipelined: Flags,
) -> Sizes:
    """What a dot's operands take where no buffer of the loop holds them."""
    group = _is_group(launch, one)
    dot = one.dot
    m, n, k = (launch.bits(part) for part in (dot.m, dot.n, dot.k))
    rows, columns = mma_warps(m, n, launch.warps, group)
    kept, passing = np.zeros(1), np.zeros(1)
    for side, operand in enumerate((one.left, one.right)):
        size = launch.size(operand.tile)
        source = operand.source
        in_ring = np.zeros(1, dtype=np.bool_)
        loaded = size
        if source is not None and operand.source_tile is not None:
            loaded = np.minimum(launch.size(operand.source_tile), size)
            # What is loaded outside the loop is counted as resident.
            in_ring = staged.get(source, in_ring) | (source not in inside)
        if _stays(operand, side):
            for_group = np.where(in_ring, 0.0, size)
        elif side == 1:
            for_group = size
        elif operand.is_product:
            for_group = np.zeros(1)
        elif source is None:
            hoisted = pipelined & (not operand.is_narrowed)
            for_group = np.where(hoisted, 0.0, size)
        else:
            for_group = np.where(in_ring, 0.0, loaded)
        if operand.is_product:
            across = columns > 0 if side == 0 else True
            kept = kept + np.where(group, for_group, np.where(across, size, 0.0))
        elif source is not None and operand.is_viewed:
            changed = _operand_change(launch, one, side, (m, n, k), (rows, columns))
            stays = pipelined & (not operand.has_run_of_k)
            kept = kept + np.where(
                group, for_group, np.where(stays & ~in_ring, loaded, 0.0)
            )
            here = np.where(in_ring | stays | group, 0.0, changed)
            passing = np.maximum(passing, here)
        elif source is None:
            # Loads of a loop are read in the layout of the dot, arithmetic follows.
            kept = kept + np.where(group, for_group, 0.0)
            here = np.where(pipelined | group, 0.0, size)
            passing = np.maximum(passing, here)
        else:
            kept = kept + np.where(group, for_group, np.where(in_ring, 0.0, loaded))
    return np.maximum(kept, passing)


def _operand_change(
    launch: _Launch,
    one: DotPlan,
    side: int,
    sizes: tuple[Bits, Bits, Bits],
    warps: tuple[Bits, Bits],
) -> Sizes:
    """Change of layout from a load to an operand in registers."""
    operand = (one.left, one.right)[side]
    assert operand.source_tile is not None
    shape, itemsize = operand.source_tile
    rows, k = sizes[side], sizes[2]
    numel = launch.tiles.numel(shape)
    widest = int(np.log2(VECTOR_BYTES / itemsize))
    vector = np.minimum(widest, bits(numel / launch.threads))
    order = (1, 0) if operand.has_run_of_k else (0, 1)
    loaded = blocked((rows, k), order, vector, launch.warps)
    read = dot_operand(rows, k, launch.warps, warps[side], side == 0)
    return conversion_bytes(loaded, read, numel, float(itemsize), True)


def _stored(launch: _Launch, loop: LoopPlan, kept: Mapping[int, Sizes]) -> Sizes:
    """The most that a store takes to change a layout, or for its descriptor."""
    graph = launch.graph
    most = np.zeros(1)
    for index in loop.stores:
        access = graph.accesses[index]
        if len(access.shape) < 2:
            continue
        described = launch.uses_descriptor(index)
        size = launch.tiles.numel(access.shape) * float(access.itemsize)
        here = np.where(kept.get(index, np.zeros(1)) > 0.0, 0.0, size)
        need = np.where(described, here, 0.0)
        if graph.dots:
            need = np.where(described, here, _result_bytes(launch, index))
        most = np.maximum(most, need)
    return most


def _result_bytes(launch: _Launch, index: int) -> Sizes:
    """Change of layout from a dot's result to a store by pointers."""
    graph, tiles = launch.graph, launch.tiles
    access = graph.accesses[index]
    m, n = (launch.bits(part) for part in access.shape[-2:])
    dots = [d for d in graph.dots if (d.m, d.n) == access.shape[-2:]] or graph.dots
    dot = dots[-1]
    group = np.zeros(1, dtype=np.bool_)
    if launch.hardware.has_wgmma or launch.hardware.has_tcgen05:
        group = (launch.threads >= WGMMA_MIN_THREADS) & (
            tiles.dim(dot.m) >= WGMMA_MIN_ROWS
        )
    numel = tiles.numel(access.shape)
    order = (1, 0)
    if access.dims and access.dims[-1].stride != "1" and len(access.dims) >= 2:
        order = (0, 1) if access.dims[-2].stride == "1" else (1, 0)
    item = float(access.itemsize)
    vector = np.minimum(
        int(np.log2(16.0 / max(1.0, item))), bits(numel / launch.threads)
    )
    there = blocked((m, n), order, vector, launch.warps)
    return conversion_bytes(mma(m, n, launch.warps, group), there, numel, item, True)


def _kept_stores(launch: _Launch, loops: Mapping[int, _Loop]) -> dict[int, Sizes]:
    """Tiles of descriptor stores that a loop keeps from trip to trip, by access."""
    found: dict[int, Sizes] = {}
    for index, access in enumerate(launch.graph.accesses):
        described = launch.uses_descriptor(index)
        if access.kind is OpKind.LOAD or not described.any():
            continue
        keeps = np.zeros(1, dtype=np.bool_)
        for graph_id in launch.graph.enclosing(access.graph_id):
            if graph_id in loops:
                how = loops[graph_id]
                keeps = keeps | (how.is_loop & (how.stages > 1.0))
        if launch.graph.regions[access.graph_id].kind is RegionKind.ROLLED:
            keeps = launch.stages > 1.0
        active = active_weight(launch.graph, launch.tiles, index) > 0.0
        size = launch.tiles.numel(access.shape) * float(access.itemsize)
        found[index] = np.where(described & active & keeps, size, 0.0)
    return found
