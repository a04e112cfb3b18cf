"""What one memory operation moves: elements, distinct bytes, contiguous runs."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from costmodel.features.blocks import BlockKind
from costmodel.features.graph import KernelGraph
from costmodel.features.indices import DimKind
from costmodel.features.loops import BoundKind
from costmodel.features.memory import Access
from costmodel.features.regions import RegionKind
from costmodel.features.symbols import Sizes
from costmodel.features.symbols import ceil_div
from costmodel.features.symbols import evaluate
from costmodel.features.symbols import literal
from costmodel.features.tiles import Tiles
from costmodel.features.tiles import axis_length

_ONE = np.ones(1)
# A longer run is as good as this one; keeps the logarithm of a run in a narrow range.
_LONGEST_RUN_BYTES = 4096.0


def home_region(graph: KernelGraph, graph_id: int) -> int:
    """Region whose loops run a rolled reduction; any other region is its own."""
    region = graph.regions[graph_id]
    if region.kind is not RegionKind.ROLLED:
        return graph_id
    for rolled in graph.raw.rolled:
        if rolled.used and set(rolled.block_ids) & set(region.block_ids):
            return rolled.original_graph_id
    return region.root


def _symbol_keys(graph: KernelGraph, access: Access) -> set[int]:
    """Blocks that move an access's address, and outer tiles that they walk inside."""
    keys: set[int] = set()
    for dim in access.dims:
        if dim.stride == "0":
            continue
        keys |= {graph.by_symbol[s] for s in dim.symbols if s in graph.by_symbol}
    for axes in graph.loops.values():
        for axis in axes:
            inside = axis.bound is BoundKind.INSIDE and axis.outer is not None
            if inside and axis.block in keys and axis.outer is not None:
                keys.add(axis.outer)
    return keys


def elements_moved(graph: KernelGraph, tiles: Tiles, access: Access) -> Sizes:
    """Elements that a launch moves for one access, re-reads included."""
    keys = _symbol_keys(graph, access)
    home = home_region(graph, access.graph_id)
    walked: dict[int, Sizes] = {}
    again = _ONE
    for region in (*graph.enclosing(home),):
        axes = graph.loops.get(region, ())
        for axis, trips in zip(axes, tiles.axis_trips.get(region, ()), strict=True):
            if axis.block in keys:
                walked[axis.block] = axis_length(axis, tiles.size)
                if axis.bound is BoundKind.INSIDE and axis.outer is not None:
                    walked[axis.block] = _ONE  # the outer block counts the elements
            else:
                again = again * trips
    total = again
    counted: set[int] = set()
    for dim in access.dims:
        for symbol in sorted(dim.symbols):
            key = graph.by_symbol.get(symbol)
            if key is None or key in counted or dim.stride == "0":
                continue
            counted.add(key)
            total = total * _walked(graph, tiles, walked, key, dim.kind)
        if not dim.symbols and dim.kind is DimKind.SLICE and dim.stride != "0":
            total = total * float(literal(dim.tile) or 1)
    for key in keys - counted:
        if key in walked:
            total = total * walked[key]
    return np.maximum(total, 1.0)


def _walked(
    graph: KernelGraph,
    tiles: Tiles,
    walked: Mapping[int, Sizes],
    key: int,
    kind: DimKind,
) -> Sizes:
    block = graph.blocks[key]
    if kind is DimKind.SCALAR and block.kind is not BlockKind.GRID:
        length = walked.get(key, _ONE)
        return ceil_div(length, tiles.size[key])
    return walked.get(key, np.array([float(max(1, block.extent))]))


def footprint(graph: KernelGraph, tiles: Tiles, access: Access) -> Sizes:
    """Bytes of the tensor that an access can touch, stride-0 dimensions once."""
    total = np.array([float(access.itemsize)])
    for dim in access.dims:
        if dim.stride == "0" or dim.kind is DimKind.CONST:
            continue
        total = total * host_size(graph, tiles, dim.size)
    return total


def host_size(graph: KernelGraph, tiles: Tiles, text: str) -> Sizes:
    """A size of a host tensor, which may mention dynamic sizes and block sizes."""
    number = literal(text)
    if number is not None:
        return np.array([float(max(1, number))])
    values = dict(tiles.symbols)
    values.update({k: np.array([float(v)]) for k, v in graph.size_hints.items()})
    found = evaluate(text, values)
    return _ONE if found is None else np.maximum(found, 1.0)


def contiguous_bytes(graph: KernelGraph, tiles: Tiles, access: Access) -> Sizes:
    """Bytes of a tile's run along the tensor's contiguous dimension."""
    run = float(access.itemsize) * _ONE
    rows = _ONE
    for dim in reversed(access.dims):
        if dim.stride != "1":
            continue
        if dim.unit is not None:
            tile = tiles.dim(dim.tile)
            whole = host_size(graph, tiles, dim.size)
            run = np.minimum(tile, whole) * float(access.itemsize)
            # Rows that follow each other without a gap make one longer run.
            rows = np.where(tile >= whole, _rows(graph, tiles, access, dim.size), 1.0)
        break
    aligned = _alignment(graph, access)
    return (
        np.maximum(np.minimum(run * rows, _LONGEST_RUN_BYTES), 1.0)
        if aligned
        else np.maximum(np.minimum(run, float(access.itemsize)), 1.0)
    )


def _rows(graph: KernelGraph, tiles: Tiles, access: Access, inner: str) -> Sizes:
    for dim in access.dims:
        if dim.stride == inner and dim.unit is not None:
            return tiles.dim(dim.tile)
    return _ONE


def _alignment(graph: KernelGraph, access: Access) -> bool:
    """Whether rows start on a multiple of more than one element's bytes."""
    bytes_of = [
        literal(d.stride) or graph.size_hints.get(d.stride, 0) for d in access.dims
    ]
    steps = [s * access.itemsize for s in bytes_of if s > 1]
    return not steps or math.gcd(16, *steps) > access.itemsize or access.itemsize >= 16
