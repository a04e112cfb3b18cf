"""Which loads pass through shared memory, and in which loop.

Triton keeps the operands of a dot in shared memory and overlaps their loads with
arithmetic by `num_stages` buffers in the loop that loads them. An operand loaded
outside the loop stays resident; one that arithmetic makes (a converted weight, an
attention probability on the right) is written there once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.features.graph import KernelGraph
from costmodel.features.knobs import range_slots
from costmodel.features.memory import Access
from costmodel.features.nodes import Node
from costmodel.features.ops import OpKind
from costmodel.features.ops import item_bytes
from costmodel.features.regions import RegionKind

Tile = tuple[tuple[str, ...], int]
"""Shape as text, and bytes of one element."""

_PASSES = (OpKind.POINTWISE, OpKind.CONVERT, OpKind.VIEW, OpKind.ALIAS)


@dataclass(frozen=True, slots=True)
class StagedRegion:
    """Buffers of one region.

    Attributes:
        graph_id: The region.
        is_loop: Whether it is a loop, so that stages multiply.
        has_dot: Whether a dot consumes them.
        staged: Tiles loaded anew in every trip.
        resident: Tiles that stay for the whole loop.
    """

    graph_id: int
    is_loop: bool
    has_dot: bool
    staged: tuple[Tile, ...]
    resident: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class StagingPlan:
    """All regions with buffers, config-independent.

    Attributes:
        regions: Regions that stage something, by ascending graph id.
        range_slots: Slot of each region in the `range_*` lists.
    """

    regions: tuple[StagedRegion, ...]
    range_slots: Mapping[int, int]


def make_staging_plan(graph: KernelGraph) -> StagingPlan:
    """Find what each region keeps in shared memory."""
    regions: list[StagedRegion] = []
    for graph_id, region in graph.regions.items():
        if region.kind in (RegionKind.ROLLED, RegionKind.HELPER):
            continue
        loads = [
            a
            for a in graph.accesses
            if a.graph_id == graph_id and a.kind is OpKind.LOAD
        ]
        dots = [d for d in graph.dots if d.graph_id == graph_id]
        is_loop = region.kind is RegionKind.LOOP
        staged: list[Tile] = []
        resident: list[Tile] = []
        if dots:
            feeding = _feeding_loads(graph, graph_id)
            for access in loads:
                if access.node_id in feeding:
                    varies = not is_loop or _varies(graph, access, graph_id)
                    (staged if varies else resident).append(_tile(access))
            resident.extend(_made_operands(graph, graph_id))
        elif is_loop:
            staged.extend(_tile(a) for a in loads if _varies(graph, a, graph_id))
        if staged or resident:
            regions.append(
                StagedRegion(
                    graph_id, is_loop, bool(dots), tuple(staged), tuple(resident)
                )
            )
    return StagingPlan(tuple(regions), range_slots(graph))


def _tile(access: Access) -> Tile:
    return (access.shape, access.itemsize)


def _varies(graph: KernelGraph, access: Access, graph_id: int) -> bool:
    """Whether a load's address changes from trip to trip."""
    own = {axis.block for axis in graph.loops.get(graph_id, ())}
    keys = {graph.by_symbol.get(symbol) for symbol in access.symbols}
    return bool(own & keys) or access.gathers


def _feeding_loads(graph: KernelGraph, graph_id: int) -> set[str]:
    """Loads of a region that reach a dot of it through arithmetic on one tile."""
    found: set[str] = set()
    for dot in graph.dots:
        if dot.graph_id != graph_id:
            continue
        stack = list(graph.raw.nodes[dot.node_id].inputs)
        seen: set[str] = set()
        while stack:
            node = graph.raw.nodes[stack.pop()]
            if node.id in seen or node.graph_id != graph_id:
                continue
            seen.add(node.id)
            if node.kind is OpKind.LOAD:
                if len([p for p in node.shape or () if p != "1"]) >= 2:
                    found.add(node.id)
            elif node.kind in _PASSES:
                stack.extend(node.inputs)
    return found


def _made_operands(graph: KernelGraph, graph_id: int) -> list[Tile]:
    """Operands of dots that are loaded outside the region or made by arithmetic."""
    tiles: dict[str, Tile] = {}
    for dot in graph.dots:
        if dot.graph_id != graph_id:
            continue
        operands = _operands(graph, dot.node_id)
        for side, operand in enumerate(operands):
            source = graph.raw.source(operand.id)
            while source.kind is OpKind.VIEW and source.inputs:
                source = graph.raw.source(source.inputs[0])
            outside = source.kind is OpKind.LOAD and source.graph_id != graph_id
            made_right = side == 1 and source.kind is not OpKind.LOAD
            if outside or made_right:
                tiles[source.id] = (operand.shape or (), item_bytes(operand.dtype))
    return list(tiles.values())


def _operands(graph: KernelGraph, node_id: str) -> list[Node]:
    """Left and right operand of a dot node."""
    node = graph.raw.nodes[node_id]
    shaped = [graph.raw.nodes[i] for i in node.inputs if graph.raw.nodes[i].shape]
    if node.op in ("addmm", "baddbmm"):
        shaped = shaped[1:]
    if node.op in ("dot_scaled", "_scaled_mm") and len(shaped) > 2:
        return [shaped[0], shaped[2]]
    return shaped[:2]
