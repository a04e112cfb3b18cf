"""Loads, stores and atomics: which symbol walks which dimension of which tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.features.alignment import align_access
from costmodel.features.indices import AccessDim
from costmodel.features.indices import DimKind
from costmodel.features.indices import IndexTracer
from costmodel.features.nodes import RawGraph
from costmodel.features.ops import OpKind
from costmodel.features.ops import item_bytes


@dataclass(frozen=True, slots=True)
class Access:
    """One memory operation.

    Attributes:
        node_id: Node that does it.
        graph_id: Region that holds it.
        kind: LOAD, STORE or ATOMIC.
        tensor: Name of the host tensor.
        dtype: Its dtype as torch prints it.
        itemsize: Bytes of one element.
        dims: Its dimensions, outermost first.
        shape: Tile moved, as sizes in text.
        masked: Whether the source gives a mask of its own.
        slot: Index in `indexing` (or `atomic_indexing` of an atomic).
        load_slot: Index among loads, as `load_eviction_policies` counts, or None.
        exact: Whether an alignment explained every operand.
    """

    node_id: str
    graph_id: int
    kind: OpKind
    tensor: str
    dtype: str
    itemsize: int
    dims: tuple[AccessDim, ...]
    shape: tuple[str, ...]
    masked: bool
    slot: int
    load_slot: int | None
    exact: bool

    @property
    def symbols(self) -> frozenset[str]:
        """Symbols that decide which elements are touched."""
        found: frozenset[str] = frozenset()
        for dim in self.dims:
            found |= dim.symbols
        return found

    @property
    def gathers(self) -> bool:
        """Whether an index comes from memory."""
        return any(dim.kind is DimKind.GATHER for dim in self.dims)


def read_accesses(
    raw: RawGraph,
    tile_symbols: frozenset[str],
    tracer: IndexTracer,
    extents: Mapping[str, int],
) -> tuple[Access, ...]:
    """Read every access of a host tensor, in the order of Helion's knob slots.

    Args:
        raw: The graph.
        tile_symbols: Symbols that size a tile.
        tracer: Follows index operands; knows tiles and grids.
        extents: Elements that a symbol's loop walks, where known; they settle
            alignments that shapes alone leave open.
    """
    accesses: list[Access] = []
    slots = {OpKind.LOAD: 0, OpKind.STORE: 0, OpKind.ATOMIC: 0}
    for region in raw.regions.values():
        for node_id in region.node_ids:
            node = raw.nodes[node_id]
            if node.kind not in slots:
                continue
            is_atomic = node.kind is OpKind.ATOMIC
            slot = slots[OpKind.LOAD] + slots[OpKind.STORE]
            slot = slots[OpKind.ATOMIC] if is_atomic else slot
            load_slot = slots[OpKind.LOAD] if node.kind is OpKind.LOAD else None
            slots[node.kind] += 1
            host = raw.source(node.inputs[0]) if node.inputs else None
            if host is None or host.kind is not OpKind.HOST_TENSOR:
                continue  # a subscript of a value in registers takes a slot, no bytes
            dims, shape, masked, exact = align_access(
                raw, tracer, node, host, tile_symbols, extents
            )
            accesses.append(
                Access(
                    node_id=node_id,
                    graph_id=region.graph_id,
                    kind=node.kind,
                    tensor=host.name,
                    dtype=host.dtype or "",
                    itemsize=item_bytes(host.dtype),
                    dims=dims,
                    shape=shape,
                    masked=masked,
                    slot=slot,
                    load_slot=load_slot,
                    exact=exact,
                )
            )
    return tuple(accesses)
