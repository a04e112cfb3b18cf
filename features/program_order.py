"""The order in which memory operations are emitted, which is the order of their knobs.

Helion walks a grid body and enters a loop where the loop's control node stands; graph
ids are another order, since a loop's graph has a lower id than the body around it. A
rolled reduction is another program: its loops stand where their first new node stood,
and whatever they hold is emitted there instead.
"""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.features.nodes import RawGraph
from costmodel.features.ops import OpKind
from costmodel.features.regions import Region
from costmodel.features.regions import RegionKind

MEMORY_KINDS = (OpKind.LOAD, OpKind.STORE, OpKind.ATOMIC)


def program_order(
    raw: RawGraph, regions: Mapping[int, Region]
) -> list[tuple[int, str | None]]:
    """Regions as they are entered, and memory operations as they are met.

    Returns:
        (graph id, node id) of a memory operation, (graph id, None) of a region's start;
        rolled alternatives are left out.
    """
    return _walk(raw, regions, {})


def rolled_order(
    raw: RawGraph, regions: Mapping[int, Region]
) -> list[tuple[int, str | None]]:
    """The same for the program with every reduction rolled into a loop."""
    return _walk(raw, regions, _rolled_bodies(raw, regions))


def memory_slots(
    order: list[tuple[int, str | None]], raw: RawGraph
) -> dict[str, tuple[int, int | None]]:
    """Slots of each memory operation: (of `indexing` or `atomic_indexing`, of loads).

    Args:
        order: From `program_order` or `rolled_order`.
        raw: The graph.
    """
    found: dict[str, tuple[int, int | None]] = {}
    n_memory = n_loads = n_atomics = 0
    for _, node_id in order:
        if node_id is None:
            continue
        kind = raw.nodes[node_id].kind
        if kind is OpKind.ATOMIC:
            found[node_id] = (n_atomics, None)
            n_atomics += 1
            continue
        is_load = kind is OpKind.LOAD
        found[node_id] = (n_memory, n_loads if is_load else None)
        n_memory += 1
        n_loads += is_load
    return found


def _walk(
    raw: RawGraph,
    regions: Mapping[int, Region],
    rolled: Mapping[str, tuple[int, ...]],
) -> list[tuple[int, str | None]]:
    bodies: dict[str, list[int]] = {}
    for graph_id in sorted(regions):
        control = regions[graph_id].control
        if control is not None:
            bodies.setdefault(control, []).append(graph_id)
    found: list[tuple[int, str | None]] = []
    seen: set[int] = set()

    def enter(graph_id: int) -> None:
        if graph_id in seen:
            return
        seen.add(graph_id)
        found.append((graph_id, None))
        for node_id in raw.regions[graph_id].node_ids:
            for body in rolled.get(node_id, ()):
                enter(body)
            if node_id not in rolled and raw.nodes[node_id].kind in MEMORY_KINDS:
                found.append((graph_id, node_id))
            for body in bodies.get(node_id, ()):
                enter(body)

    for graph_id, region in regions.items():
        if region.kind is RegionKind.ROOT:
            enter(graph_id)
    return found


def _rolled_bodies(
    raw: RawGraph, regions: Mapping[int, Region]
) -> dict[str, tuple[int, ...]]:
    """Nodes that rolled loops take over, and the loops that begin at each of them."""
    by_name: dict[int, dict[tuple[str, str], str]] = {
        graph_id: {
            (node.name, node.op): node_id
            for node_id in raw.regions[graph_id].node_ids
            if (node := raw.nodes[node_id])
        }
        for graph_id, region in regions.items()
        if region.kind not in (RegionKind.ROLLED, RegionKind.HELPER)
    }
    begins: dict[str, list[int]] = {}
    for graph_id, region in regions.items():
        if region.kind is not RegionKind.ROLLED or not by_name:
            continue
        own = [
            (node.name, node.op)
            for node_id in raw.regions[graph_id].node_ids
            if (node := raw.nodes[node_id]).kind not in _STRUCTURE
        ]
        # Names repeat between graphs, so the body that explains most is meant.
        body = max(by_name, key=lambda g: (sum(n in by_name[g] for n in own), g))
        twins = [by_name[body][name] for name in own if name in by_name[body]]
        fresh = [node_id for node_id in twins if node_id not in begins]
        for node_id in twins:
            begins.setdefault(node_id, [])
        if fresh or twins:
            begins[(fresh or twins)[0]].append(graph_id)
    return {node_id: tuple(loops) for node_id, loops in begins.items()}


_STRUCTURE = (
    OpKind.PLACEHOLDER,
    OpKind.OUTPUT,
    OpKind.HOST_TENSOR,
    OpKind.SYMBOL,
)
