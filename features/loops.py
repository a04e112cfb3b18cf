"""How far each loop walks: bounds, extents, and what is not known before launch.

A loop is FREE (shapes decide its extent), INSIDE a tile of an outer loop (split-K,
row chunks), a PREFIX of the outer loop up to its tile (causal attention), or decided
by DATA in memory (jagged rows, grouped GEMM). For DATA the trip count is unknown; the
documented stand-in is an even split: all elements of the tensor that the loop walks,
spread over the loops around it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from costmodel.features.blocks import Block
from costmodel.features.blocks import BlockMap
from costmodel.features.indices import DimKind
from costmodel.features.indices import IndexTracer
from costmodel.features.memory import Access
from costmodel.features.nodes import RawGraph
from costmodel.features.ops import OpKind
from costmodel.features.regions import Region
from costmodel.features.regions import RegionKind
from costmodel.features.symbols import evaluate
from costmodel.features.symbols import literal
from costmodel.features.symbols import names_in
from costmodel.frozen import dataclass


class BoundKind(enum.StrEnum):
    """What decides how far a loop axis walks."""

    FREE = "free"
    INSIDE = "inside"
    PREFIX = "prefix"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class LoopAxisFact:
    """One axis of a loop or of a grid body.

    Attributes:
        block: Key of the block that walks it.
        extent: Elements walked; for INSIDE and PREFIX those of the outer loop, for
            DATA the stand-in.
        known: Whether shapes decide `extent`.
        bound: What decides the range.
        outer: Key of the outer block for INSIDE and PREFIX, else None.
        moves: Whether it starts at a place that differs from program to program, so
            that the compiler does not see how far it walks.
    """

    block: int
    extent: int
    known: bool
    bound: BoundKind
    outer: int | None
    moves: bool = False


# Stand-in where nothing at all is known of a loop; Helion's own size hint for a
# data-dependent extent is 8192, and hints this size keep every tile choice open.
_UNKNOWN_EXTENT = 8192


def resolve_loops(
    raw: RawGraph,
    regions: Mapping[int, Region],
    block_map: BlockMap,
    accesses: tuple[Access, ...],
    tracer: IndexTracer,
    sizes: Mapping[str, int],
) -> tuple[tuple[Block, ...], dict[int, tuple[LoopAxisFact, ...]]]:
    """Resolve every loop axis; returns blocks with extents, and axes by graph id.

    Args:
        raw: The graph.
        regions: Its nest.
        block_map: Blocks and the axes that the source declares.
        accesses: Memory operations, aligned.
        tracer: Follows bound operands back to tiles and loads.
        sizes: Values of host symbols (size hints of dynamic shapes).
    """
    walked = _walked_extents(accesses, block_map, sizes)
    extents: dict[int, int] = {}
    known: dict[int, bool] = {}
    loops: dict[int, tuple[LoopAxisFact, ...]] = {}
    for graph_id in _outer_first(regions):
        if graph_id not in block_map.axes:
            continue
        region = regions[graph_id]
        bounds = _bounds(raw, region, tracer, block_map)
        facts: list[LoopAxisFact] = []
        declared = block_map.axes[graph_id]
        for part in declared:
            source = None if part.axis is None else part.axis.extent
            is_open = part.axis is None or source is None
            axis = LoopAxisFact(part.block, 0, True, BoundKind.FREE, None)
            if is_open and bounds is not None:
                half = part.axis is not None and part.axis.begin is not None
                axis = replace(axis, bound=bounds.kind(half), outer=bounds.outer)
            extent = source if source is not None else walked.get(part.block)
            if is_open and bounds is not None and bounds.span is not None:
                axis, extent = replace(axis, bound=BoundKind.FREE), bounds.span
                axis = replace(axis, outer=None, moves=True)
            if axis.outer is not None and axis.bound is not BoundKind.DATA:
                extent = extents.get(axis.outer, extent)
            if axis.bound is BoundKind.DATA or extent is None:
                stand_in = _even_split(
                    part.block, accesses, block_map, {**walked, **extents}, bounds
                )
                axis = replace(axis, extent=stand_in, known=False, outer=None)
            else:
                axis = replace(axis, extent=max(1, extent))
            facts.append(axis)
            extents[part.block] = max(extents.get(part.block, 0), axis.extent)
            known[part.block] = known.get(part.block, True) and axis.known
        loops[graph_id] = tuple(facts)
    blocks = tuple(
        replace(
            block,
            extent=extents.get(block.key, walked.get(block.key, _UNKNOWN_EXTENT)),
            extent_known=known.get(block.key, block.key in walked),
        )
        for block in block_map.blocks
    )
    return blocks, loops


def _outer_first(regions: Mapping[int, Region]) -> list[int]:
    """Graph ids with every region after the region around it."""
    return sorted(regions, key=lambda g: (_depth(g, regions), g))


def _depth(graph_id: int, regions: Mapping[int, Region]) -> int:
    depth, current = 0, regions[graph_id].parent
    while current is not None and depth <= len(regions):
        depth, current = depth + 1, regions[current].parent
    return depth


def _walked_extents(
    accesses: tuple[Access, ...], block_map: BlockMap, sizes: Mapping[str, int]
) -> dict[int, int]:
    """Largest host dimension that each block indexes directly."""
    found: dict[int, int] = {}
    loose: dict[int, int] = {}
    for access in accesses:
        for dim in access.dims:
            host = literal(dim.size)
            host = sizes.get(dim.size) if host is None else host
            if host is None or len(dim.symbols) != 1:
                continue
            key = block_map.by_symbol.get(next(iter(dim.symbols)))
            if key is None:
                continue
            if dim.kind in (DimKind.TILE, DimKind.SCALAR):
                found[key] = max(found.get(key, 0), host)
            elif dim.kind is DimKind.AFFINE:
                loose[key] = max(loose.get(key, 0), host)
    return {**loose, **found}


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What a loop's begin and end are made of."""

    outer: int | None
    n_scalars: int
    loaded: bool
    depends: frozenset[int]
    span: int | None

    def kind(self, begin_known: bool) -> BoundKind:
        if self.loaded:
            return BoundKind.DATA
        if self.outer is None:
            return BoundKind.FREE
        one_sided = begin_known or self.n_scalars < 2
        return BoundKind.PREFIX if one_sided else BoundKind.INSIDE


def _bounds(
    raw: RawGraph, region: Region, tracer: IndexTracer, block_map: BlockMap
) -> _Bounds | None:
    """Read the bound operands of a loop: those before its carried values."""
    if region.control is None or region.kind is not RegionKind.LOOP:
        return None
    members = raw.regions[region.graph_id].node_ids
    n_carried = sum(raw.nodes[m].kind is OpKind.PLACEHOLDER for m in members)
    operands = raw.nodes[region.control].inputs
    bounds = operands[: max(0, len(operands) - n_carried)]
    if not bounds:
        return None
    loaded = False
    depends: set[int] = set()
    outer: list[int] = []
    for node_id in bounds:
        facts = tracer.facts(node_id)
        is_tensor = raw.nodes[node_id].shape is not None
        loaded = loaded or facts.loaded or is_tensor
        for symbol in sorted(facts.unit | facts.other):
            key = block_map.by_symbol.get(symbol)
            if key is not None:
                depends.add(key)
                outer.append(key)
    return _Bounds(
        outer=outer[-1] if outer and not loaded else None,
        n_scalars=len(set(bounds)),
        loaded=loaded,
        depends=frozenset(depends),
        span=None if loaded else _span([raw.nodes[b].value for b in bounds]),
    )


def _span(bounds: list[str | None]) -> int | None:
    """Elements between a begin and an end that move together, or None.

    Both are expressions of symbols; if their difference is the same for two unrelated
    assignments of values it is taken as constant.
    """
    if len(bounds) != 2 or bounds[0] is None or bounds[1] is None:
        return None
    names = sorted(names_in(bounds[0]) | names_in(bounds[1]))
    spans: set[float] = set()
    for factor in (3, 7):
        values = {
            n: np.array([float(64 * factor * (i + 1))]) for i, n in enumerate(names)
        }
        begin, end = evaluate(bounds[0], values), evaluate(bounds[1], values)
        if begin is None or end is None:
            return None
        spans.add(float(end[0] - begin[0]))
    span = spans.pop()
    return int(span) if not spans and span >= 1.0 and span == int(span) else None


def _even_split(
    block: int,
    accesses: tuple[Access, ...],
    block_map: BlockMap,
    extents: Mapping[int, int],
    bounds: _Bounds | None,
) -> int:
    """Elements that a data-decided loop walks if all its data is spread evenly."""
    own = {s for s, key in block_map.by_symbol.items() if key == block}
    direct: list[int] = []
    through_memory: list[int] = []
    for access in accesses:
        if not own & access.symbols:
            continue
        # Whole slices belong to every element walked, they are no elements to walk.
        dims = [d for d in access.dims if d.kind is not DimKind.SLICE]
        numel = math.prod(literal(d.size) or 1 for d in dims if d.symbols)
        others = {block_map.by_symbol.get(s) for d in dims for s in d.symbols}
        others |= set(() if bounds is None else bounds.depends)
        others -= {block, None}
        spread = math.prod(extents.get(o, 1) for o in others if o is not None)
        per_loop = max(1, -(-numel // max(1, spread)))
        is_direct = any(
            d.kind in (DimKind.TILE, DimKind.SCALAR) and own & d.symbols for d in dims
        )
        (direct if is_direct else through_memory).append(per_loop)
    # A table that the loop indexes itself says more than what its entries point at.
    return max(direct or through_memory or [_UNKNOWN_EXTENT])
