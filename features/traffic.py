"""Work of a whole launch: bytes from L2 and DRAM, arithmetic, vector widths.

A memory operation moves each element its loops walk, once for every trip of every
enclosing loop that does not move its address: those are the re-reads a larger tile
saves. Arithmetic counts whole tiles, masked lanes included, as the hardware does.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from costmodel.features.blocks import BlockKind
from costmodel.features.graph import KernelGraph
from costmodel.features.knobs import active_weight
from costmodel.features.movement import contiguous_bytes
from costmodel.features.movement import elements_moved
from costmodel.features.movement import footprint
from costmodel.features.movement import home_region
from costmodel.features.ops import OpKind
from costmodel.features.ops import math_dtype
from costmodel.features.symbols import Sizes
from costmodel.features.symbols import ceil_div
from costmodel.features.tiles import Tiles
from costmodel.features.tiles import axis_length
from costmodel.frozen import dataclass

_ONE = np.ones(1)
# Widest access of one thread in bytes (ld.global.v4.b32).
VECTOR_BYTES = 16.0
# Least that DRAM and L2 move at once: one sector (CUDA programming guide).
SECTOR_BYTES = 32.0


@dataclass(frozen=True, slots=True)
class Work:
    """Totals of one launch for n configs, float64[n] each.

    Attributes:
        load_bytes: Bytes that programs load, from L2 or beyond.
        store_bytes: Bytes that they store, atomics counted twice.
        unique_bytes: Bytes of distinct elements touched, what DRAM must move.
        flops: Tensor-core operations by rate name.
        wgmma_flops: Of these, in dots large enough for warp-group MMA.
        arithmetic: Elementwise and reduction operations.
        special: Operations of the special function unit.
        waste: Padded over useful iterations, at least 1.
        vector_bytes: Bytes a thread moves at once, mean over bytes moved.
        vector_bytes_min: Narrowest of the accesses that matter.
        contiguous_bytes_min: Shortest contiguous run of a tile.
        sector_waste: Bytes moved in whole sectors over bytes wanted.
        trips: Trips of all loops of one program, of its longest nest.
        reduction_trips: Trips of rolled reductions.
    """

    load_bytes: Sizes
    store_bytes: Sizes
    unique_bytes: Sizes
    flops: Mapping[str, Sizes]
    wgmma_flops: Sizes
    arithmetic: Sizes
    special: Sizes
    waste: Sizes
    vector_bytes: Sizes
    vector_bytes_min: Sizes
    contiguous_bytes_min: Sizes
    sector_waste: Sizes
    trips: Sizes
    reduction_trips: Sizes


def executions(graph: KernelGraph, tiles: Tiles, graph_id: int) -> Sizes:
    """How often the whole launch runs a region."""
    home = home_region(graph, graph_id)
    root = graph.regions[home].root
    return tiles.runs[home] * tiles.programs.get(root, _ONE)


def reduction_trips(graph: KernelGraph, tiles: Tiles, shape: Sequence[str]) -> Sizes:
    """Trips of rolled reductions that a tile of this shape takes part in."""
    total = _ONE
    for part in shape:
        key = graph.by_symbol.get(part)
        if key is not None and key in tiles.rolled:
            extent = np.array([float(graph.blocks[key].extent)])
            total = total * ceil_div(extent, tiles.size[key])
    return total


def estimate_work(
    graph: KernelGraph,
    tiles: Tiles,
    threads: Sizes,
    scattered: Mapping[int, Sizes] | None = None,
) -> Work:
    """Estimate the work of n configs.

    Args:
        graph: The kernel.
        tiles: Tile sizes of n configs.
        threads: float64[n], threads of one program.
        scattered: For blocks of flattened grids, 1 where neighbouring lanes walk
            another block instead, by block key; see `knobs.scattered_blocks`.
    """
    memory = _memory(graph, tiles, threads, scattered or {})
    arithmetic, special = _arithmetic(graph, tiles)
    flops, wgmma = _dots(graph, tiles)
    n = tiles.n
    return Work(
        load_bytes=_full(memory.loads, n),
        store_bytes=_full(memory.stores, n),
        unique_bytes=_full(memory.unique, n),
        flops={name: _full(value, n) for name, value in flops.items()},
        wgmma_flops=_full(wgmma, n),
        arithmetic=_full(arithmetic, n),
        special=_full(special, n),
        waste=_full(_waste(graph, tiles), n),
        vector_bytes=_full(memory.vector / np.maximum(memory.weight, 1.0), n),
        vector_bytes_min=_full(memory.vector_min, n),
        contiguous_bytes_min=_full(memory.contiguous_min, n),
        sector_waste=_full(memory.sectors / np.maximum(memory.weight, 1.0), n),
        trips=_full(_longest(graph, tiles), n),
        reduction_trips=_full(_rolled_trips(graph, tiles), n),
    )


def _full(values: Sizes, n: int) -> Sizes:
    if len(values) == n:
        return np.ascontiguousarray(values)
    return np.full(n, values[0])


@dataclass(slots=True)
class _Memory:
    loads: Sizes
    stores: Sizes
    unique: Sizes
    vector: Sizes
    weight: Sizes
    vector_min: Sizes
    contiguous_min: Sizes
    sectors: Sizes


def _memory(
    graph: KernelGraph,
    tiles: Tiles,
    threads: Sizes,
    scattered: Mapping[int, Sizes],
) -> _Memory:
    zero = np.zeros(1)
    total = _Memory(
        zero, zero, zero, zero, zero, np.full(1, VECTOR_BYTES), np.full(1, 4096.0), zero
    )
    unique: dict[tuple[str, bool], Sizes] = {}
    for index, access in enumerate(graph.accesses):
        active = active_weight(graph, tiles, index)
        moved = elements_moved(graph, tiles, access) * float(access.itemsize) * active
        if access.kind is OpKind.LOAD:
            total.loads = total.loads + moved
        else:
            passes = 2.0 if access.kind is OpKind.ATOMIC else 1.0
            total.stores = total.stores + moved * passes
        key = (access.tensor, access.kind is OpKind.LOAD)
        size = np.minimum(moved, footprint(graph, tiles, access))
        unique[key] = np.maximum(unique.get(key, zero), size)
        run = contiguous_bytes(graph, tiles, access)
        for dim in access.dims:
            block = graph.by_symbol.get(dim.unit or "")
            if dim.stride == "1" and block is not None and block in scattered:
                run = np.where(scattered[block] > 0.0, float(access.itemsize), run)
        numel = tiles.numel(access.shape)
        per_thread = np.maximum(1.0, numel / threads) * access.itemsize
        vector = np.minimum(np.minimum(run, per_thread), VECTOR_BYTES)
        sectors = np.ceil(run / SECTOR_BYTES) * SECTOR_BYTES / run
        total.vector = total.vector + vector * moved
        total.sectors = total.sectors + sectors * moved
        total.weight = total.weight + moved
        # A scalar or a short vector says nothing of how the kernel streams.
        matters = (numel > 64.0) & (active > 0.0)
        total.vector_min = np.where(
            matters, np.minimum(total.vector_min, vector), total.vector_min
        )
        total.contiguous_min = np.where(
            matters, np.minimum(total.contiguous_min, run), total.contiguous_min
        )
    for size in unique.values():
        total.unique = total.unique + size
    total.unique = np.maximum(total.unique, 1.0)
    return total


def _arithmetic(graph: KernelGraph, tiles: Tiles) -> tuple[Sizes, Sizes]:
    groups: dict[tuple[int, tuple[str, ...], bool], int] = {}
    for op in graph.elementwise:
        key = (op.graph_id, op.shape, op.special)
        groups[key] = groups.get(key, 0) + 1
    for reduction in graph.reductions:
        key = (reduction.graph_id, reduction.shape, False)
        groups[key] = groups.get(key, 0) + 1
    arithmetic, special = np.zeros(1), np.zeros(1)
    for (graph_id, shape, is_special), count in groups.items():
        runs = executions(graph, tiles, graph_id)
        loops = reduction_trips(graph, tiles, shape)
        total = tiles.numel(shape) * runs * loops * float(count)
        if is_special:
            special = special + total
        else:
            arithmetic = arithmetic + total
    return arithmetic, special


def _dots(graph: KernelGraph, tiles: Tiles) -> tuple[dict[str, Sizes], Sizes]:
    flops: dict[str, Sizes] = {}
    large = np.zeros(1)
    for dot in graph.dots:
        numel = tiles.numel((*dot.batch, dot.m, dot.n, dot.k))
        total = 2.0 * numel * executions(graph, tiles, dot.graph_id)
        name = math_dtype(dot.lhs_dtype)
        flops[name] = flops.get(name, np.zeros(1)) + total
        large = large + np.where(tiles.dim(dot.m) >= 64.0, total, 0.0)
    return flops, large


def _waste(graph: KernelGraph, tiles: Tiles) -> Sizes:
    """Padded iterations over useful ones, over all axes of all loops."""
    total = _ONE
    seen: set[int] = set()
    for graph_id, axes in graph.loops.items():
        for axis, trips in zip(axes, tiles.axis_trips[graph_id], strict=True):
            if axis.block in seen:
                continue
            seen.add(axis.block)
            length = np.maximum(axis_length(axis, tiles.size), 1.0)
            total = total * np.maximum(1.0, trips * tiles.size[axis.block] / length)
    for block in graph.blocks:
        if block.kind is BlockKind.REDUCTION:
            extent = float(max(1, block.extent))
            size = tiles.size[block.key]
            trips = ceil_div(np.array([extent]), size)
            total = total * np.maximum(1.0, trips * size / extent)
    return total


def _longest(graph: KernelGraph, tiles: Tiles) -> Sizes:
    longest = _ONE
    for runs in tiles.runs.values():
        longest = np.maximum(longest, runs)
    return longest


def _rolled_trips(graph: KernelGraph, tiles: Tiles) -> Sizes:
    total = _ONE
    for key in tiles.rolled:
        extent = np.array([float(graph.blocks[key].extent)])
        total = total * ceil_div(extent, tiles.size[key])
    return total
