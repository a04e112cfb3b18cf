"""Loads, stores and atomics: which symbol walks which dimension of which tensor."""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.features.alignment import Alignment
from costmodel.features.alignment import align_access
from costmodel.features.indices import AccessDim
from costmodel.features.indices import DimKind
from costmodel.features.indices import IndexTracer
from costmodel.features.nodes import RawGraph
from costmodel.features.ops import OpKind
from costmodel.features.ops import item_bytes
from costmodel.features.program_order import MEMORY_KINDS
from costmodel.features.program_order import memory_slots
from costmodel.features.program_order import program_order
from costmodel.features.program_order import rolled_order
from costmodel.features.regions import Region
from costmodel.features.symbols import literal
from costmodel.frozen import dataclass


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
        slot: Index in `indexing` (or `atomic_indexing` of an atomic), in the program
            with whole rows; of a rolled loop's access, in the rolled program.
        load_slot: Index among loads, as `load_eviction_policies` counts, or None.
        rolled_slot: The same as `slot` in the program with rolled reductions; None
            where a rolled loop has a twin of it.
        rolled_load_slot: The same as `load_slot` there.
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
    rolled_slot: int | None
    rolled_load_slot: int | None
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
    regions: Mapping[int, Region],
    tile_symbols: frozenset[str],
    tracer: IndexTracer,
    extents: Mapping[str, int],
) -> tuple[Access, ...]:
    """Read every access of a host tensor, region by region.

    Args:
        raw: The graph.
        regions: Its nest, which gives the order of knob slots.
        tile_symbols: Symbols that size a tile.
        tracer: Follows index operands; knows tiles and grids.
        extents: Elements that a symbol's loop walks, where known; they settle
            alignments that shapes alone leave open.
    """
    known, aligned = _slice_extents(raw, tile_symbols, tracer, extents)
    if known != extents:
        aligned = {}
    extents = known
    accesses: list[Access] = []
    whole = memory_slots(program_order(raw, regions), raw)
    rolled = memory_slots(rolled_order(raw, regions), raw)
    for region in raw.regions.values():
        for node_id in region.node_ids:
            node = raw.nodes[node_id]
            if node.kind not in MEMORY_KINDS:
                continue
            rolled_slot, rolled_load_slot = rolled.get(node_id, (None, None))
            slot, load_slot = whole.get(node_id, (rolled_slot, rolled_load_slot))
            if slot is None:
                continue  # a helper's or a branch never entered: no code, no knob
            host = raw.source(node.inputs[0]) if node.inputs else None
            if host is None or host.kind is not OpKind.HOST_TENSOR:
                continue  # a subscript of a value in registers takes a slot, no bytes
            found = aligned.get(node_id)
            if found is None:
                found = align_access(raw, tracer, node, host, tile_symbols, extents)
            dims, shape, masked, exact = found
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
                    rolled_slot=rolled_slot,
                    rolled_load_slot=rolled_load_slot,
                    exact=exact,
                )
            )
    return tuple(accesses)


def _slice_extents(
    raw: RawGraph,
    tile_symbols: frozenset[str],
    tracer: IndexTracer,
    extents: Mapping[str, int],
) -> tuple[Mapping[str, int], dict[str, Alignment]]:
    """Known extents, and those of slices that only one dimension can explain.

    A slice of `cos[t, :]` tells how long the same slice of `x[t, 0, :]` is, where a
    dropped integer leaves two dimensions to choose from. A slice may be shorter than
    its dimension, so the shortest dimension that shows it counts.

    Also what was aligned with the extents that were known before, by node.
    """
    found: dict[str, int] = {}
    aligned: dict[str, Alignment] = {}
    for node in raw.nodes.values():
        if node.kind not in MEMORY_KINDS or not node.inputs:
            continue
        host = raw.source(node.inputs[0])
        if host.kind is not OpKind.HOST_TENSOR:
            continue
        made = align_access(raw, tracer, node, host, tile_symbols, extents)
        aligned[node.id] = made
        dims, _, _, exact = made
        if not exact or any(dim.kind is DimKind.CONST for dim in dims):
            continue
        for dim in dims:
            size = literal(dim.size)
            is_symbol = dim.symbols == frozenset((dim.tile,))
            if dim.kind is DimKind.SLICE and is_symbol and size is not None:
                found[dim.tile] = min(size, found.get(dim.tile, size))
    return {**found, **extents}, aligned
