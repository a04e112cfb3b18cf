"""Which tiles pass through shared memory, and in which loop; config-independent.

Triton keeps operands of a dot in shared memory and overlaps their loads with arithmetic
by buffers in the innermost loop that is left. Which loop that is depends on the config:
a loop of one trip disappears, and a persistent grid is a loop itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.features.chains import DotChains
from costmodel.features.chains import find_chains
from costmodel.features.compute import Dot
from costmodel.features.fusion import FusedPair
from costmodel.features.fusion import find_pairs
from costmodel.features.graph import KernelGraph
from costmodel.features.indices import DimKind
from costmodel.features.knobs import range_slots
from costmodel.features.loops import BoundKind
from costmodel.features.memory import Access
from costmodel.features.nodes import Node
from costmodel.features.ops import OpKind
from costmodel.features.ops import item_bytes
from costmodel.features.regions import RegionKind
from costmodel.frozen import dataclass

Tile = tuple[tuple[str, ...], int]
"""Shape as text, and bytes of one element."""

_ELEMENTWISE = (OpKind.POINTWISE, OpKind.CONVERT, OpKind.ALIAS)
_TRANSPOSES = ("permute", "transpose", "t")


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a dot.

    Attributes:
        tile: What the tensor cores read.
        source: The load it comes from, where arithmetic on nothing else lies between.
        source_tile: What that load brings, or None.
        is_plain: Whether only renames and transposes lie between.
        is_reshaped: Whether its shape changes on the way.
        is_viewed: Whether it is reshaped or transposed on the way.
        has_run_of_k: Whether the contracted dimension is contiguous in memory.
        is_product: Whether another dot's result goes into it.
        is_narrowed: Whether it is made from a load of wider elements.
        fits_group: Whether a warp-group MMA can read it as it lies in memory.
    """

    tile: Tile
    source: str | None
    source_tile: Tile | None
    is_plain: bool
    is_reshaped: bool
    is_viewed: bool
    has_run_of_k: bool
    is_product: bool
    is_narrowed: bool
    fits_group: bool


@dataclass(frozen=True, slots=True)
class DotPlan:
    """A dot and its operands, left and right."""

    dot: Dot
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A load of a tile, or of a number that other loads wait for.

    Attributes:
        index: In `graph.accesses`.
        tile: What it brings.
        run_unit: Size along the contiguous dimension as text, or None for gathers.
        level: Loads between it and the dot that it feeds in the same loop; None where
            it feeds none.
    """

    index: int
    tile: Tile
    run_unit: str | None
    level: int | None


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """What is in shared memory if a loop, or a persistent grid, is the innermost.

    Attributes:
        graph_id: The loop or grid body.
        is_grid: Whether it loops only if the grid is persistent.
        inner: Loops inside it, all of which must have disappeared.
        loads: Loads inside.
        dots: Dots inside.
        stores: Indices in `graph.accesses` of stores and atomics inside.
        resident: Operands of its dots that are loaded outside.
        between: By place of a dot in `dots`, loads inside that a dot before it and a
            dot after it read: node and tile.
        trips_known: Whether the compiler knows how often it runs.
    """

    graph_id: int
    is_grid: bool
    inner: tuple[int, ...]
    loads: tuple[LoadPlan, ...]
    dots: tuple[DotPlan, ...]
    stores: tuple[int, ...]
    resident: tuple[Tile, ...]
    between: Mapping[int, tuple[tuple[str, Tile], ...]]
    trips_known: bool


@dataclass(frozen=True, slots=True)
class StagingPlan:
    """All that may take shared memory.

    Attributes:
        loops: Loops and grid bodies, by ascending graph id.
        range_slots: Slot of each region in the `range_*` lists.
        chains: Which dots meet others.
        pairs: Grids and loops that may become one.
    """

    loops: tuple[LoopPlan, ...]
    range_slots: Mapping[int, int]
    chains: DotChains
    pairs: tuple[FusedPair, ...]


def make_staging_plan(graph: KernelGraph) -> StagingPlan:
    """Find what each loop would keep in shared memory."""
    by_node = {access.node_id: i for i, access in enumerate(graph.accesses)}
    dots = {dot.node_id: _dot_plan(graph, dot, by_node) for dot in graph.dots}
    loops = tuple(
        _loop_plan(graph, graph_id, by_node, dots)
        for graph_id, region in graph.regions.items()
        if region.kind in (RegionKind.LOOP, RegionKind.ROOT)
    )
    return StagingPlan(loops, range_slots(graph), find_chains(graph), find_pairs(graph))


def _loop_plan(
    graph: KernelGraph,
    graph_id: int,
    by_node: Mapping[str, int],
    dots: Mapping[str, DotPlan],
) -> LoopPlan:
    members = {g for g in graph.regions if graph_id in graph.enclosing(g)}
    own_dots = tuple(d for d in dots.values() if d.dot.graph_id in members)
    levels: dict[str, int] = {}
    for one in own_dots:
        _levels(graph, one.dot.node_id, members, 0, levels, set())
    loads: list[LoadPlan] = []
    stores: list[int] = []
    for index, access in enumerate(graph.accesses):
        if access.graph_id not in members:
            continue
        if access.kind is not OpKind.LOAD:
            stores.append(index)
        elif access.shape or access.node_id in levels:
            loads.append(
                LoadPlan(index, _tile(access), _run(access), levels.get(access.node_id))
            )
    resident: dict[str, Tile] = {}
    for one in own_dots:
        for operand in (one.left, one.right):
            source = operand.source
            if source is None or operand.source_tile is None:
                continue
            if graph.raw.nodes[source].graph_id not in members:
                resident[source] = operand.source_tile
    axes = graph.loops.get(graph_id, ())
    return LoopPlan(
        graph_id=graph_id,
        is_grid=graph.regions[graph_id].kind is RegionKind.ROOT,
        inner=tuple(
            g
            for g in sorted(members - {graph_id})
            if graph.regions[g].kind is RegionKind.LOOP
        ),
        loads=tuple(loads),
        dots=own_dots,
        stores=tuple(stores),
        resident=tuple(resident.values()),
        between=_between(graph, own_dots, members),
        # A loop inside a tile of another, or up to it, has bounds that move with it.
        trips_known=not graph.size_hints
        and all(
            axis.known and axis.bound is BoundKind.FREE and not axis.moves
            for axis in axes
        ),
    )


def _between(
    graph: KernelGraph, dots: tuple[DotPlan, ...], members: set[int]
) -> dict[int, tuple[tuple[str, Tile], ...]]:
    """Loads that wait in shared memory while a dot between their readers runs."""
    readers: dict[str, list[int]] = {}
    tiles: dict[str, Tile] = {}
    for place, one in enumerate(dots):
        for operand in (one.left, one.right):
            source, tile = operand.source, operand.source_tile
            if source is None or tile is None:
                continue
            if graph.raw.nodes[source].graph_id in members:
                readers.setdefault(source, []).append(place)
                tiles[source] = tile
    found: dict[int, tuple[tuple[str, Tile], ...]] = {}
    for source, places in readers.items():
        for place in range(min(places), max(places)):
            if place not in places:
                found[place] = (*found.get(place, ()), (source, tiles[source]))
    return found


def _tile(access: Access) -> Tile:
    return (access.shape, access.itemsize)


def _run(access: Access) -> str | None:
    """Size of the tile along the tensor's contiguous dimension; None if scattered."""
    for dim in access.dims:
        if dim.stride == "1" and dim.unit is not None:
            return dim.tile if dim.kind is not DimKind.GATHER else None
    return None


def _levels(
    graph: KernelGraph,
    node_id: str,
    members: set[int],
    level: int,
    found: dict[str, int],
    seen: set[tuple[str, int]],
) -> None:
    """Loads that a node depends on in the same loop, and loads between."""
    stack = list(graph.raw.nodes[node_id].inputs)
    while stack:
        node = graph.raw.source(stack.pop())
        if (node.id, level) in seen or node.graph_id not in members:
            continue
        seen.add((node.id, level))
        if node.kind is OpKind.LOAD:
            if found.get(node.id, -1) < level:
                found[node.id] = level
                _levels(graph, node.id, members, level + 1, found, seen)
        elif node.kind not in (OpKind.HOST_TENSOR, OpKind.FOR_LOOP):
            stack.extend(node.inputs)


def _dot_plan(graph: KernelGraph, dot: Dot, by_node: Mapping[str, int]) -> DotPlan:
    found = _operands(graph, dot.node_id)
    left, right = found[0], found[-1]
    return DotPlan(
        dot,
        _operand(graph, left, dot, (*dot.batch, dot.m, dot.k), by_node, -1),
        _operand(graph, right, dot, (*dot.batch, dot.k, dot.n), by_node, -2),
    )


def _operand(
    graph: KernelGraph,
    node: Node,
    dot: Dot,
    shape: tuple[str, ...],
    by_node: Mapping[str, int],
    k_place: int,
) -> Operand:
    current = graph.raw.source(node.id)
    plain, reshaped, swapped = True, bool(dot.batch), False
    while current.kind is not OpKind.LOAD:
        inputs = [i for i in current.inputs if graph.raw.nodes[i].shape]
        if current.kind is OpKind.VIEW and inputs:
            before = graph.raw.nodes[inputs[0]].shape or ()
            reshaped = reshaped or sorted(before) != sorted(current.shape or ())
            swapped = swapped or current.op in _TRANSPOSES
        elif current.kind in _ELEMENTWISE and len(inputs) == 1:
            plain = plain and current.kind is OpKind.ALIAS
        else:
            break
        current = graph.raw.source(inputs[0])
    access = None
    if current.kind is OpKind.LOAD and current.id in by_node:
        access = graph.accesses[by_node[current.id]]
    item = item_bytes(node.dtype)
    contiguous_k = True
    if access is not None and len(access.shape) >= 2:
        run = _run(access)
        contiguous_k = (
            run is None or run == shape[k_place] or run != shape[-3 - k_place]
        )
    return Operand(
        tile=(shape, item),
        source=None if access is None else current.id,
        source_tile=None if access is None else _tile(access),
        is_plain=access is not None and plain,
        is_reshaped=reshaped,
        is_viewed=reshaped or swapped,
        has_run_of_k=contiguous_k,
        is_product=_has_product(graph, node),
        is_narrowed=_widest_source(graph, node) > item,
        fits_group=item == 2 or contiguous_k,
    )


def _widest_source(graph: KernelGraph, node: Node) -> int:
    """Bytes of an element of the widest tile that an operand is made from."""
    stack, seen, widest = [node.id], set[str](), 0
    while stack:
        current = graph.raw.source(stack.pop())
        if current.id in seen or current.kind is OpKind.HOST_TENSOR:
            continue
        seen.add(current.id)
        if current.kind is OpKind.LOAD:
            if len(current.shape or ()) >= 2:
                widest = max(widest, item_bytes(current.dtype))
        else:
            stack.extend(current.inputs)
    return widest


def _has_product(graph: KernelGraph, node: Node) -> bool:
    """Whether a dot's result reaches a value within its region."""
    stack, seen = [node.id], set[str]()
    while stack:
        current = graph.raw.nodes[stack.pop()]
        if current.id in seen or current.kind is OpKind.LOAD:
            continue
        seen.add(current.id)
        if current.kind is OpKind.DOT:
            return True
        stack.extend(current.inputs)
    return False


def _operands(graph: KernelGraph, node_id: str) -> list[Node]:
    """Left and right operand of a dot node."""
    node = graph.raw.nodes[node_id]
    shaped = [graph.raw.nodes[i] for i in node.inputs if graph.raw.nodes[i].shape]
    if node.op in ("addmm", "baddbmm"):
        shaped = shaped[1:]
    if node.op in ("dot_scaled", "_scaled_mm") and len(shaped) > 2:
        return [shaped[0], shaped[2]]
    return shaped[:2]
