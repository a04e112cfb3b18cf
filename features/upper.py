"""Shared memory that a config never exceeds, for what must not be refused.

The estimate of `shared.py` says what is likely; this counts everything that could pass
through shared memory at its full size: each tile of a loop in a buffer of every stage,
each descriptor store kept, and the largest change of layout in whole. Most configs need
far less, so a config above the limit by this bound alone is not refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodel.features.graph import KernelGraph
from costmodel.features.knobs import DEFAULT_NUM_WARPS
from costmodel.features.knobs import active_weight
from costmodel.features.knobs import as_columns
from costmodel.features.knobs import number
from costmodel.features.launch import Launch
from costmodel.features.ops import OpKind
from costmodel.features.ops import item_bytes
from costmodel.features.regions import RegionKind
from costmodel.features.scratch import walk_of
from costmodel.features.shared import shared_memory
from costmodel.features.staging import LoopPlan
from costmodel.features.staging import StagingPlan
from costmodel.features.symbols import Sizes
from costmodel.features.tiles import Tiles
from costmodel.features.tiles import make_tiles
from costmodel.hardware import Hardware
from costmodel.types import Config

_POINTER_BYTES = 8.0
_LEAST_BYTES = 4.0  # partial results and most arithmetic are 32 bits wide
_BARRIER_BYTES = 8.0
# Alignment of buffers: a swizzled tile starts at a multiple of 1 KiB (PTX ISA, wgmma
# matrix descriptors), a descriptor's own block is 128 bytes.
_ALIGNED_BYTES = 1024.0


def shared_memory_upper(
    graph: KernelGraph,
    plan: StagingPlan,
    configs: Sequence[Config],
    hardware: Hardware,
) -> Sizes:
    """Bytes that a program of each config does not exceed: float64[n].

    Raises:
        UnreadableKernelError: A config does not fit this kernel.
    """
    configs = as_columns(configs)
    tiles = make_tiles(graph, configs)
    warps = np.maximum(number(configs, "num_warps", DEFAULT_NUM_WARPS), 1.0)
    threads = warps * float(hardware.warp_size)
    launch = Launch(graph, plan, tiles, configs, threads, hardware)
    best = shared_memory(launch, plan).total
    most = np.zeros(1)
    for loop in plan.loops:
        most = np.maximum(most, _loop_bytes(launch, loop))
    total = most + _kept(launch) + _whole_tile(graph, tiles, warps)
    return np.ascontiguousarray(np.broadcast_to(np.maximum(best, total), (tiles.n,)))


def _loop_bytes(launch: Launch, loop: LoopPlan) -> Sizes:
    """Every load in a buffer of each stage, and both operands of the largest dot."""
    # A loop inside another may end up in the other's pipeline, so the most that any
    # asks for counts, and what Helion takes back counts too.
    own, copies = np.zeros(1), _most_copies(launch)
    for found in launch.range_stages.values():
        own = np.maximum(own, found)
    # Whether a loop of one trip disappears depends on what the compiler can prove.
    is_loop = launch.persistent | bool(loop.inner) | (not loop.is_grid)
    depth_of_all = np.maximum(launch.stages, own) * copies
    total, n_buffers = np.zeros(1), 0
    for one in loop.loads:
        in_pipeline = (one.level is not None) | (own > 1.0)
        depth: Sizes = np.where(in_pipeline & is_loop, depth_of_all, 0.0)
        active = active_weight(launch.graph, launch.tiles, one.index) > 0.0
        size = launch.size(one.tile) + _BARRIER_BYTES
        passes = np.where(launch.uses_descriptor(one.index), 1.0, 0.0)
        total = total + np.where(active, size * np.maximum(depth, passes), 0.0)
        n_buffers += 1
    for index, access in enumerate(launch.graph.accesses):
        region = launch.graph.regions[access.graph_id]
        if access.kind is OpKind.LOAD and region.kind is RegionKind.ROLLED:
            depth = np.where((own > 1.0) & is_loop, depth_of_all, 1.0)
            weight = active_weight(launch.graph, launch.tiles, index)
            size = launch.tiles.numel(access.shape) * float(access.itemsize)
            total = total + weight * depth * (size + _BARRIER_BYTES)
    for tile in loop.resident:
        total, n_buffers = total + launch.size(tile), n_buffers + 1
    operands = np.zeros(1)
    for dot in loop.dots:
        both = np.zeros(1)
        for operand in (dot.left, dot.right):
            size = launch.size(operand.tile)
            if operand.source_tile is not None:
                size = np.maximum(size, launch.size(operand.source_tile))
            both = both + size
        operands = np.maximum(operands, both)
    return total + operands + _ALIGNED_BYTES * (1.0 + n_buffers)


def _kept(launch: Launch) -> Sizes:
    """All descriptor stores at once, of every copy of an unrolled body."""
    total = np.zeros(1)
    for index, access in enumerate(launch.graph.accesses):
        described = launch.uses_descriptor(index)
        if access.kind is not OpKind.LOAD and described.any():
            active = active_weight(launch.graph, launch.tiles, index) > 0.0
            size = launch.tiles.numel(access.shape) * float(access.itemsize)
            total = total + np.where(described & active, size, 0.0)
    return total * _most_copies(launch)


def _most_copies(launch: Launch) -> Sizes:
    most = np.ones(1)
    for found in launch.unrolls.values():
        most = np.maximum(most, found)
    return most


def _whole_tile(graph: KernelGraph, tiles: Tiles, warps: Sizes) -> Sizes:
    """The largest tile in whole, as values or as pointers, and a partial a warp."""
    most = np.zeros(1)
    for access in graph.accesses:
        is_scattered = walk_of(access).is_scattered or access.gathers
        width = _POINTER_BYTES if is_scattered else float(access.itemsize)
        width = max(width, _LEAST_BYTES)
        most = np.maximum(most, tiles.numel(access.shape) * width)
    for node in graph.raw.nodes.values():
        if node.shape and node.kind is not OpKind.HOST_TENSOR:
            width = max(float(item_bytes(node.dtype)), _LEAST_BYTES)
            most = np.maximum(most, tiles.numel(node.shape) * width)
    for one in graph.reductions:
        shape = one.shape
        partial = np.zeros(1)
        for part in shape:
            across = tiles.numel(shape) / tiles.dim(part)
            partial = np.maximum(partial, across * warps * _LEAST_BYTES)
        most = np.maximum(most, partial)
    return most
