"""What an access covers over a launch, whatever the config: elements and lanes."""

from __future__ import annotations

import math

from costmodel.features.blocks import scalar_aliases
from costmodel.features.graph import KernelGraph
from costmodel.features.indices import DimKind
from costmodel.features.memory import Access
from costmodel.features.ops import OpKind
from costmodel.features.regions import RegionKind
from costmodel.features.symbols import literal
from costmodel.features.symbols import names_in

# An access matters to how a kernel streams if it covers an eighth of what the widest
# one does; the decision lists use the same share (`heuristics/facts.py`).
LARGE_SHARE = 1.0 / 8.0


def live_accesses(graph: KernelGraph) -> tuple[Access, ...]:
    """Accesses of the program as written, without rolled alternatives."""
    return tuple(
        access
        for access in graph.accesses
        if graph.regions[access.graph_id].kind
        not in (RegionKind.ROLLED, RegionKind.HELPER)
    )


def extent_of(graph: KernelGraph, text: str) -> int:
    """Elements along the axis that a tile size stands for, over the whole launch."""
    number = literal(text)
    if number is not None:
        return max(1, number)
    total = 1
    for name in sorted(names_in(text)):
        key = graph.by_symbol.get(name)
        if key is not None:
            total *= max(1, graph.blocks[key].extent)
        else:
            total *= max(1, graph.size_hints.get(name, 1))
    return total


def host_extent(graph: KernelGraph, text: str) -> int:
    """A size of a tensor, by its hint where it is dynamic; 1 where unknown."""
    number = literal(text)
    return max(1, graph.size_hints.get(text, 1) if number is None else number)


def host_stride(graph: KernelGraph, text: str) -> int | None:
    """A stride of a tensor in elements, or None where it is not known."""
    number = literal(text)
    return graph.size_hints.get(text) if number is None else number


def moving_blocks(graph: KernelGraph, access: Access) -> frozenset[int]:
    """Keys of the blocks that move an access's address."""
    return frozenset(
        graph.by_symbol[symbol]
        for dim in access.dims
        if dim.stride != "0"
        for symbol in dim.symbols
        if symbol in graph.by_symbol
    )


def covered_elements(graph: KernelGraph, access: Access) -> int:
    """Elements that an access touches in a launch, whatever loops repeat it.

    A gathered element counts as often as it is gathered.
    """
    total = 1
    for dim in access.dims:
        if dim.stride == "0" or dim.kind is DimKind.CONST:
            continue
        size = host_extent(graph, dim.size)
        if dim.kind in (DimKind.TILE, DimKind.SLICE):
            total *= min(size, _reach(graph, dim.tile, size))
            continue
        walked = math.prod(
            max(1, graph.blocks[graph.by_symbol[symbol]].extent)
            for symbol in dim.symbols
            if symbol in graph.by_symbol
        )
        if dim.kind is DimKind.GATHER:
            total *= walked * (literal(dim.tile) or 1)
        else:
            total *= min(size, walked)
    return total


def _reach(graph: KernelGraph, tile: str, size: int) -> int:
    """Elements along an axis that all programs reach together."""
    number = literal(tile)
    if number is not None:
        return number
    key = graph.by_symbol.get(tile)
    # Loops that walk a part each may walk it all together; the grid walks what it says.
    if key is not None and graph.blocks[key].in_grid:
        return graph.blocks[key].extent
    return size


def large_accesses(graph: KernelGraph) -> tuple[Access, ...]:
    """Accesses of tiles that decide how a kernel streams."""
    return _largest(graph, [a for a in live_accesses(graph) if a.shape])


def large_of_each_side(graph: KernelGraph) -> tuple[Access, ...]:
    """Loads that are large beside other loads, and stores beside stores."""
    live = [access for access in live_accesses(graph) if access.shape]
    loads = _largest(graph, [a for a in live if not is_store(a)])
    return (*loads, *_largest(graph, [a for a in live if is_store(a)]))


def _largest(graph: KernelGraph, accesses: list[Access]) -> tuple[Access, ...]:
    covers = [covered_elements(graph, access) for access in accesses]
    least = LARGE_SHARE * max(covers, default=0)
    return tuple(a for a, n in zip(accesses, covers, strict=True) if n >= least)


def lane_axes(access: Access) -> tuple[str, ...]:
    """Tile sizes along which neighbouring lanes touch neighbouring elements.

    Innermost first, and several where dimensions follow each other without a gap, such
    as pairs in a row; none where no dimension of stride 1 is walked lane by lane.
    """
    found: list[str] = []
    by_stride = {dim.stride: dim for dim in access.dims if dim.size != "1"}
    dim = by_stride.get("1")
    while dim is not None and dim.unit is not None and dim.unit not in found:
        found.append(dim.unit)
        if dim.kind is not DimKind.SLICE:
            break
        step = (literal(dim.size) or 0) * (literal(dim.stride) or 0)
        dim = by_stride.get(str(step))
    return tuple(found)


def bound_blocks(graph: KernelGraph, graph_id: int) -> frozenset[int]:
    """Blocks that a loop's begin or end depends on, by key."""
    region = graph.regions[graph_id]
    if region.control is None or region.kind is not RegionKind.LOOP:
        return frozenset()
    raw = graph.raw
    inside = raw.regions[graph_id].node_ids
    n_passed = sum(raw.nodes[i].kind is OpKind.PLACEHOLDER for i in inside)
    operands = raw.nodes[region.control].inputs
    aliases = scalar_aliases(raw)
    found = set[int]()
    for node_id in operands[: max(0, len(operands) - n_passed)]:
        for name in names_in(raw.nodes[node_id].value or ""):
            key = graph.by_symbol.get(aliases.get(name, name))
            if key is not None:
                found.add(key)
    return frozenset(found)


def is_store(access: Access) -> bool:
    """Whether an access writes."""
    return access.kind in (OpKind.STORE, OpKind.ATOMIC)
