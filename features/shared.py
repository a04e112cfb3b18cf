"""Shared memory of one program: buffers of loops, operands, changes of layout.

Triton gives shared memory to tiles by the time they live: buffers of a loop and
descriptor stores inside it at once, everything that comes and goes within a step in the
same place. The rules below were read off the allocations of compiled kernels.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from costmodel.features.knobs import active_weight
from costmodel.features.launch import CompiledLoop
from costmodel.features.launch import Flags
from costmodel.features.launch import Launch
from costmodel.features.operands import carried_bytes
from costmodel.features.operands import operand_bytes
from costmodel.features.operands import readers
from costmodel.features.operands import result_bytes
from costmodel.features.ops import OpKind
from costmodel.features.regions import RegionKind
from costmodel.features.staging import LoopPlan
from costmodel.features.staging import StagingPlan
from costmodel.features.symbols import Sizes
from costmodel.frozen import dataclass

_ASYNC_BYTES = 4.0  # least that cp.async copies for a thread (PTX ISA)
_BARRIER_BYTES = 8.0  # an mbarrier is one 64-bit word


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Shared memory of n configs in bytes, float64[n] or float64[1].

    Attributes:
        total: Best estimate.
        ring: Buffers that stages multiply.
        stage: Bytes of one stage of them.
        stages: Stages of that loop.
    """

    total: Sizes
    ring: Sizes
    stage: Sizes
    stages: Sizes


def shared_memory(launch: Launch, plan: StagingPlan) -> SharedMemory:
    """Estimate shared memory of n configs."""
    tiles, loops = launch.tiles, launch.loops
    kept = _kept_stores(launch)
    zero = np.zeros(tiles.n)
    total, best, stage, stages = zero, zero, zero, np.ones(tiles.n)
    pairs = {pair.loop: pair for pair in plan.pairs}
    bodies = {one.graph_id: one for one in plan.loops}
    for one in plan.loops:
        how = loops[one.graph_id]
        pair = pairs.get(one.graph_id) if how.fused.any() else None
        innermost = np.ones(1, dtype=np.bool_)
        for graph_id in one.inner:
            innermost = innermost & ~loops[graph_id].is_loop
        pipelined = how.is_loop & innermost & (how.stages > 1.0)
        scattered = frozenset[str]() if pair is None else pair.scattered
        ring, one_stage, staged = _ring(launch, one, how, pipelined, scattered)
        passing = _passing(launch, one, staged, kept, pipelined)
        resident = np.zeros(1)
        for tile in one.resident:
            resident = resident + launch.size(tile)
        if pair is not None:
            twice, moved = carried_bytes(launch, one)
            resident = np.where(how.fused, twice, resident)
            moved = np.maximum(moved, _stored(launch, bodies[pair.grid], kept))
            passing = np.where(how.fused, np.maximum(passing, moved), passing)
        applies = np.ones(1, dtype=np.bool_) if one.is_grid else how.is_loop
        need = ring + np.where(applies, resident + passing, 0.0)
        if one.is_grid and not launch.graph.dots:
            need = np.maximum(need, ring + launch.scratch.largest())
        total = np.maximum(total, need)
        larger = ring > best
        best = np.maximum(best, ring)
        stage = np.where(larger, one_stage, stage)
        stages = np.where(larger, how.stages, stages)
    always = sum(kept.values(), np.zeros(1))
    return SharedMemory(total + always, best, stage, stages)


def _ring(
    launch: Launch,
    loop: LoopPlan,
    how: CompiledLoop,
    pipelined: Flags,
    scattered: frozenset[str],
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
        if one.run_unit in scattered:
            run = np.where(how.fused, 1.0, run)
        each_thread = np.maximum(launch.tiles.numel(one.tile[0]) / launch.threads, 1.0)
        together = np.minimum(run, each_thread) * access.itemsize
        takes = takes & (described | (together >= _ASYNC_BYTES))
        extra, unfit = readers(launch, loop, access.node_id)
        takes = takes & (described | ~unfit)
        # With too few stages for that, what others wait for is not in the pipeline.
        own = np.where((apart > 0.0) | bool(one.level), apart, how.stages - 1.0)
        buffers = np.where(own > 0.0, own + extra, 0.0)
        takes = takes & (buffers > 0.0)
        each = launch.size(one.tile) + np.where(described, _BARRIER_BYTES, 0.0)
        ring = ring + np.where(takes, each * buffers * how.copies, 0.0)
        stage = stage + np.where(takes, each * how.copies, 0.0)
        staged[one.index] = takes
    return ring, stage, staged


def _passing(
    launch: Launch,
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
    for index, one in enumerate(loop.dots):
        need = operand_bytes(launch, one, by_node, inside, pipelined)
        for source, tile in loop.between.get(index, ()):
            in_ring = by_node.get(source, np.zeros(1, dtype=np.bool_))
            need = need + np.where(in_ring, 0.0, launch.size(tile))
        most = np.maximum(most, need)
    most = np.maximum(most, _stored(launch, loop, kept))
    for load in loop.loads:
        described = launch.uses_descriptor(load.index)
        if described.any():
            active = active_weight(graph, launch.tiles, load.index) > 0.0
            described = described & active
            described = described & ~staged.get(load.index, described & False)
            size = launch.size(load.tile) + _BARRIER_BYTES
            most = np.maximum(most, np.where(described, size, 0.0))
    return most


def _stored(launch: Launch, loop: LoopPlan, kept: Mapping[int, Sizes]) -> Sizes:
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
            need = np.where(described, here, result_bytes(launch, index))
        most = np.maximum(most, need)
    return most


def _kept_stores(launch: Launch) -> dict[int, Sizes]:
    """Tiles of descriptor stores that a loop keeps from trip to trip, by access."""
    found: dict[int, Sizes] = {}
    for index, access in enumerate(launch.graph.accesses):
        described = launch.uses_descriptor(index)
        if access.kind is OpKind.LOAD or not described.any():
            continue
        keeps = np.zeros(1, dtype=np.bool_)
        for graph_id in launch.graph.enclosing(access.graph_id):
            if graph_id in launch.loops:
                how = launch.loops[graph_id]
                keeps = keeps | (how.is_loop & (how.stages > 1.0))
        if launch.graph.regions[access.graph_id].kind is RegionKind.ROLLED:
            keeps = launch.stages > 1.0
        active = active_weight(launch.graph, launch.tiles, index) > 0.0
        size = launch.tiles.numel(access.shape) * float(access.itemsize)
        found[index] = np.where(described & active & keeps, size, 0.0)
    return found
