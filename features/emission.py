"""Regions and memory operations of a kernel in the order code is generated.

`indexing` and `load_eviction_policies` are numbered as Helion writes the program.
Checked on generated code: of attention's slots, the query outside the loop is the
first.
"""

from __future__ import annotations

from costmodel.features.graph import KernelGraph
from costmodel.features.memory import Access
from costmodel.features.ops import OpKind
from costmodel.features.program_order import memory_slots
from costmodel.features.program_order import program_order
from costmodel.frozen import dataclass


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
    order = program_order(graph.raw, graph.regions)
    return tuple(dict.fromkeys(region for region, _ in order))


def emitted_accesses(graph: KernelGraph) -> tuple[EmittedAccess, ...]:
    """Memory operations as emitted when no reduction is rolled into a loop."""
    by_node = {access.node_id: access for access in graph.accesses}
    order = program_order(graph.raw, graph.regions)
    slots = memory_slots(order, graph.raw)
    return tuple(
        EmittedAccess(
            access=by_node.get(node_id),
            node_id=node_id,
            kind=graph.raw.nodes[node_id].kind,
            indexing_slot=slots[node_id][0],
            eviction_slot=slots[node_id][1],
        )
        for _, node_id in order
        if node_id is not None
    )
