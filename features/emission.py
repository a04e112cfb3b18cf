"""The order in which code is generated, which is the order of per-operation knobs.

`indexing` and `load_eviction_policies` are numbered as Helion writes the program: it
walks a grid body and enters a loop where the loop's control node stands. Graph ids are
another order: a loop's graph has a lower id than the body around it. Checked on
generated code: of attention's slots, the query outside the loop is the first.
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.features.graph import KernelGraph
from costmodel.features.memory import Access
from costmodel.features.ops import OpKind


@dataclass(frozen=True, slots=True)
class EmittedAccess:
    """A memory operation of the program with whole rows, and its knob slots.

    Attributes:
        access: The operation; None for one that touches no host tensor.
        node_id: Node that does it.
        kind: LOAD, STORE or ATOMIC.
        indexing_slot: Index in `indexing`, for an atomic in `atomic_indexing`.
        eviction_slot: Index in `load_eviction_policies`, for a load.
    """

    access: Access | None
    node_id: str
    kind: OpKind
    indexing_slot: int
    eviction_slot: int | None


def emission_regions(graph: KernelGraph) -> tuple[int, ...]:
    """Grid bodies and loops in program order; rolled alternatives are left out."""
    return tuple(dict.fromkeys(region for region, _ in _walk(graph)))


def emitted_accesses(graph: KernelGraph) -> tuple[EmittedAccess, ...]:
    """Memory operations as emitted when no reduction is rolled into a loop."""
    by_node = {access.node_id: access for access in graph.accesses}
    found: list[EmittedAccess] = []
    n_memory = n_loads = n_atomics = 0
    for _, node_id in _walk(graph):
        if node_id is None:
            continue
        kind = graph.raw.nodes[node_id].kind
        if kind is OpKind.ATOMIC:
            slot, n_atomics = n_atomics, n_atomics + 1
        else:
            slot, n_memory = n_memory, n_memory + 1
        is_load = kind is OpKind.LOAD
        eviction = n_loads if is_load else None
        n_loads += is_load
        found.append(EmittedAccess(by_node.get(node_id), node_id, kind, slot, eviction))
    return tuple(found)


def _walk(graph: KernelGraph) -> list[tuple[int, str | None]]:
    """Regions as they are entered, and memory operations as they are met."""
    memory = (OpKind.LOAD, OpKind.STORE, OpKind.ATOMIC)
    bodies: dict[str, list[int]] = {}
    for graph_id in sorted(graph.regions):
        control = graph.regions[graph_id].control
        if control is not None:
            bodies.setdefault(control, []).append(graph_id)
    found: list[tuple[int, str | None]] = []
    seen: set[int] = set()

    def enter(graph_id: int) -> None:
        if graph_id in seen:
            return
        seen.add(graph_id)
        found.append((graph_id, None))
        for node_id in graph.raw.regions[graph_id].node_ids:
            if graph.raw.nodes[node_id].kind in memory:
                found.append((graph_id, node_id))
            for body in bodies.get(node_id, ()):
                enter(body)

    for root in graph.root_ids():
        enter(root)
    return found
