"""Traits of memory: lanes, parts, shifts, and what data decides."""

from __future__ import annotations

from costmodel.features.coverage import covered_elements
from costmodel.features.coverage import host_extent
from costmodel.features.coverage import is_store
from costmodel.features.coverage import lane_axes
from costmodel.features.coverage import large_accesses
from costmodel.features.coverage import large_of_each_side
from costmodel.features.coverage import live_accesses
from costmodel.features.coverage import moving_blocks
from costmodel.features.dataflow import Dataflow
from costmodel.features.graph import KernelGraph
from costmodel.features.indices import DimKind
from costmodel.features.loops import BoundKind
from costmodel.features.memory import Access
from costmodel.features.ops import OpKind
from costmodel.features.places import names_start
from costmodel.features.trait_names import Trait

_BIT_OPS = frozenset(
    {
        "bitwise_and",
        "__and__",
        "and_",
        "__rshift__",
        "__lshift__",
        "rshift",
        "lshift",
        "bitwise_right_shift",
        "bitwise_left_shift",
    }
)
_SPLITTING = frozenset({"split"})
_JOINING = frozenset({"join", "stack", "cat"})


def memory_traits(graph: KernelGraph, flow: Dataflow) -> set[Trait]:
    """Traits of how a kernel walks memory."""
    large = large_accesses(graph)
    found = _by_data(graph, flow, large)
    found |= _parts(graph, large_of_each_side(graph))
    if not graph.dots:
        found |= _lanes(graph, flow, large)
    if any(a.kind is OpKind.ATOMIC for a in live_accesses(graph)):
        found.add(Trait.ATOMIC)
    axes = [axis for region in graph.loops.values() for axis in region]
    if any(axis.bound is BoundKind.PREFIX for axis in axes):
        found.add(Trait.PREFIX_LOOP)
    if _unpacks(graph, flow):
        found.add(Trait.PACKED)
    return found


def _by_data(
    graph: KernelGraph, flow: Dataflow, large: tuple[Access, ...]
) -> set[Trait]:
    """What memory decides: bounds of loops, places of reads and writes."""
    found = set[Trait]()
    axes = [axis for region in graph.loops.values() for axis in region]
    if any(axis.bound is BoundKind.DATA for axis in axes):
        found.add(Trait.JAGGED)
    for access in large:
        if not access.gathers:
            continue
        if access.kind is OpKind.ATOMIC:
            found.add(Trait.SEGMENT)
        elif access.kind is OpKind.STORE:
            found.add(Trait.SCATTER)
        elif names_start(graph, flow, access):
            found.add(Trait.JAGGED)
        else:
            found.add(Trait.GATHER)
    return found


def _lanes(graph: KernelGraph, flow: Dataflow, large: tuple[Access, ...]) -> set[Trait]:
    """Along which axis large tensors are contiguous, and what is used again."""
    found = set[Trait]()
    same = _same_axes(graph)
    lanes = [
        frozenset(same.get(part, part) for part in lane_axes(access))
        for access in large
        if not _lanes_are_named(access)
    ]
    if not all(lanes):
        found.add(Trait.STRIDED)
    walked = [axes for axes in lanes if axes]
    if walked and not frozenset.intersection(*walked):
        found.add(Trait.TRANSPOSING)
    elif walked and all(lanes):
        found.add(Trait.CONTIGUOUS)
    if _has_broadcast(graph, flow):
        found.add(Trait.BROADCAST)
    return found


def _same_axes(graph: KernelGraph) -> dict[str, str]:
    """One tile size to stand for all that walk the same dimension of a tensor.

    Two loops over a row have a tile size each, and walk one axis.
    """
    first: dict[tuple[str, int], tuple[str, int]] = {}
    stands: dict[str, str] = {}
    for access in live_accesses(graph):
        for index, dim in enumerate(access.dims):
            if dim.unit is None:
                continue
            place = (access.tensor, index)
            unit, region = first.setdefault(place, (dim.unit, access.graph_id))
            if region != access.graph_id:
                stands.setdefault(dim.unit, stands.get(unit, unit))
    return stands


def _has_broadcast(graph: KernelGraph, flow: Dataflow) -> bool:
    """Whether a loaded value is used at several places of a larger tensor."""
    live = [access for access in live_accesses(graph) if access.shape]
    covers = {access.node_id: covered_elements(graph, access) for access in live}
    within = {access.node_id: _walked_around(graph, access) for access in live}
    values = _values(graph, flow)
    return any(
        moving_blocks(graph, small) <= within[large.node_id]
        and not _spans(graph, large) <= _spans(graph, small)
        and 2 * covers[small.node_id] <= covers[large.node_id]
        for small in live
        if small.node_id in values and not small.gathers and covers[small.node_id] > 1
        for large in live
    )


def _spans(graph: KernelGraph, access: Access) -> frozenset[int | str]:
    """Axes that an access covers: blocks, and whole dimensions by their size."""
    whole = {d.tile for d in access.dims if d.kind is DimKind.SLICE and not d.symbols}
    return frozenset((*moving_blocks(graph, access), *whole))


def _walked_around(graph: KernelGraph, access: Access) -> frozenset[int]:
    """Blocks that move an access, and those of the loops and the grid around it."""
    around = {
        axis.block
        for graph_id in graph.enclosing(access.graph_id)
        for axis in graph.loops.get(graph_id, ())
    }
    return moving_blocks(graph, access) | around


def _lanes_are_named(access: Access) -> bool:
    """Whether memory names each lane's place, so that no stride is to blame."""
    return any(d.stride == "1" and d.kind is DimKind.GATHER for d in access.dims)


def _values(graph: KernelGraph, flow: Dataflow) -> frozenset[str]:
    """Loads that enter results as values, not only as addresses or masks."""
    stored = [
        value
        for access in live_accesses(graph)
        if is_store(access) and (value := flow.stored_value(access.node_id)) is not None
    ]
    return flow.reach(stored, earlier_trips=True)


def _parts(graph: KernelGraph, large: tuple[Access, ...]) -> set[Trait]:
    """Tensors accessed in several pieces: halves, pairs, shifts."""
    found = set[Trait]()
    ops = {
        graph.raw.nodes[i].op
        for g, region in graph.raw.regions.items()
        for i in region.node_ids
        if graph.raw.nodes[i].kind is OpKind.VIEW
    }
    if ops & _SPLITTING:
        found.add(Trait.SPLIT)
    if ops & _JOINING:
        found.add(Trait.JOIN)
    groups: dict[tuple[str, bool], list[Access]] = {}
    for access in large:
        if any(d.kind in (DimKind.AFFINE, DimKind.CONST) for d in access.dims):
            groups.setdefault((access.tensor, is_store(access)), []).append(access)
    for (tensor, writes), members in groups.items():
        others = [
            a
            for a in large
            if a.tensor == tensor and is_store(a) is writes and a not in members
        ]
        count = len(members) + len(others)
        if count < 2:
            continue
        if _are_disjoint(graph, members[0], count):
            found.add(Trait.JOIN if writes else Trait.SPLIT)
        elif not writes:
            found.add(Trait.STENCIL)
    return found


def _are_disjoint(graph: KernelGraph, access: Access, count: int) -> bool:
    """Whether as many accesses as there are pieces cover a tensor without overlap."""
    pieces = 1.0
    for dim in access.dims:
        size = host_extent(graph, dim.size)
        if dim.kind is DimKind.CONST:
            pieces *= size
        elif dim.kind is DimKind.AFFINE:
            walked = max(
                (graph.blocks[graph.by_symbol[s]].extent for s in dim.symbols),
                default=1,
            )
            pieces *= size / max(1, walked)
    return pieces >= count


def _unpacks(graph: KernelGraph, flow: Dataflow) -> bool:
    """Whether bits of loaded words are taken apart, for values, not for addresses."""
    for region in graph.raw.regions.values():
        for node_id in region.node_ids:
            node = graph.raw.nodes[node_id]
            if node.op not in _BIT_OPS or not node.shape or node.dtype == "torch.bool":
                continue
            loads = [
                graph.raw.nodes[i]
                for i in flow.ancestors(node_id)
                if flow.is_host_load(graph.raw.nodes[i])
            ]
            if any("int" in (load.dtype or "") for load in loads):
                return True
    return False
