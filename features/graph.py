"""A kernel as facts: loops, tiles, memory operations, dots and reductions.

Everything here is config-independent and read once per workload from what Helion
writes to a log and what a live bound kernel has: both make the same `WorkloadRecord`.
No fact depends on the name of a kernel, a variable or a file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from costmodel.errors import UnreadableKernelError
from costmodel.features.blocks import Block
from costmodel.features.blocks import BlockKind
from costmodel.features.blocks import map_blocks
from costmodel.features.blocks import scalar_aliases
from costmodel.features.chunks import size_chunks
from costmodel.features.compute import Dot
from costmodel.features.compute import Elementwise
from costmodel.features.compute import Reduction
from costmodel.features.compute import read_compute
from costmodel.features.indices import IndexTracer
from costmodel.features.loops import LoopAxisFact
from costmodel.features.loops import resolve_loops
from costmodel.features.memory import Access
from costmodel.features.memory import read_accesses
from costmodel.features.nodes import RawGraph
from costmodel.features.nodes import read_nodes
from costmodel.features.ops import OpKind
from costmodel.features.ops import item_bytes
from costmodel.features.regions import Region
from costmodel.features.regions import RegionKind
from costmodel.features.regions import read_regions
from costmodel.features.rolling import add_reductions
from costmodel.features.source import KernelSource
from costmodel.features.source import read_parameters
from costmodel.features.source import read_source
from costmodel.features.symbols import literal
from costmodel.features.symbols import names_in
from costmodel.frozen import dataclass
from costmodel.types import WorkloadRecord


@dataclass(frozen=True, slots=True)
class HostTensorFact:
    """A tensor in device memory.

    Attributes:
        name: As the graph names it; for people.
        dtype: As torch prints it.
        itemsize: Bytes of one element.
        shape: Sizes as text.
        stride: Strides in elements, as text.
    """

    name: str
    dtype: str
    itemsize: int
    shape: tuple[str, ...]
    stride: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelGraph:
    """One workload's kernel.

    Attributes:
        record: What it was read from.
        raw: Typed nodes.
        regions: Nest of grid bodies, loops and branches, by graph id.
        blocks: Every block; `Block.key` is its index here.
        by_symbol: Key of the block that a symbol belongs to.
        loops: Axes of each root and loop region, by graph id.
        tunable_blocks: Keys of blocks in the order of `config["block_sizes"]`.
        reduction_blocks: Keys of blocks in the order of `config["reduction_loops"]`.
        host_tensors: Tensors in device memory, by name.
        accesses: Loads, stores and atomics of host tensors.
        n_memory_slots: Length that `indexing` has.
        n_load_slots: Length that `load_eviction_policies` has at most.
        n_atomic_slots: Length that `atomic_indexing` has.
        dots: Matrix products.
        reductions: Reductions and scans.
        elementwise: Other arithmetic.
        size_hints: Values of host symbols of dynamic shapes.
        tunables: The kernel's own tunables and their defaults.
        source_matched: Whether loops could be tied to the source.
    """

    record: WorkloadRecord
    raw: RawGraph
    regions: Mapping[int, Region]
    blocks: tuple[Block, ...]
    by_symbol: Mapping[str, int]
    loops: Mapping[int, tuple[LoopAxisFact, ...]]
    tunable_blocks: tuple[int, ...]
    reduction_blocks: tuple[int, ...]
    host_tensors: Mapping[str, HostTensorFact]
    accesses: tuple[Access, ...]
    n_memory_slots: int
    n_load_slots: int
    n_atomic_slots: int
    dots: tuple[Dot, ...]
    reductions: tuple[Reduction, ...]
    elementwise: tuple[Elementwise, ...]
    size_hints: Mapping[str, int]
    tunables: Mapping[str, int]
    source_matched: bool

    @classmethod
    def from_record(cls, record: WorkloadRecord) -> KernelGraph:
        """Read a workload.

        Raises:
            UnreadableKernelError: The graph is malformed, or a tile has a size that
                neither the config nor shapes decide.
        """
        return _read(record)

    def source_at(self, tunables: Mapping[str, int]) -> KernelSource | None:
        """The source's loops once the kernel's own tunables have values."""
        return _source(self.record, self.raw, tunables)

    def root_ids(self) -> tuple[int, ...]:
        """Grid bodies, in program order."""
        return tuple(g for g, r in self.regions.items() if r.kind is RegionKind.ROOT)

    def enclosing(self, graph_id: int) -> tuple[int, ...]:
        """A region and those around it, inner first."""
        found: list[int] = []
        current: int | None = graph_id
        while current is not None and current not in found:
            found.append(current)
            current = self.regions[current].parent
        return tuple(found)

    def has_unknown_trips(self) -> bool:
        """Whether some loop's trip count is decided by data."""
        return any(not a.known for axes in self.loops.values() for a in axes)


def _source(
    record: WorkloadRecord, raw: RawGraph, tunables: Mapping[str, int] | None
) -> KernelSource | None:
    hosts = {
        node.name: sizes
        for node in raw.nodes.values()
        if node.kind is OpKind.HOST_TENSOR
        and (sizes := _literals(node.shape or ())) is not None
    }
    return read_source(record.kernel_source, record.input_shapes, hosts, tunables)


def _literals(shape: tuple[str, ...]) -> tuple[int, ...] | None:
    sizes = tuple(n for part in shape if (n := literal(part)) is not None)
    return sizes if len(sizes) == len(shape) else None


def _read(record: WorkloadRecord) -> KernelGraph:
    raw = read_nodes(record.ir_graph)
    regions = read_regions(raw)
    source = _source(record, raw, None)
    block_map = map_blocks(raw, regions, source)
    hints = _size_hints(record, raw)
    tile_symbols = frozenset(
        b.symbol
        for b in block_map.blocks
        if b.symbol is not None and b.kind is not BlockKind.GRID
    )
    declared = {
        block_map.blocks[part.block].symbol: part.axis.extent
        for axes in block_map.axes.values()
        for part in axes
        if part.axis is not None and part.axis.extent is not None
    }
    known = {s: e for s, e in declared.items() if s is not None and e is not None}
    aliases = scalar_aliases(raw)
    tracer = IndexTracer(raw, frozenset(block_map.by_symbol), aliases)
    accesses = read_accesses(raw, regions, tile_symbols, tracer, {**hints, **known})
    blocks, loops = resolve_loops(raw, regions, block_map, accesses, tracer, hints)
    if source is None or not source.tunables:  # those decide sizes config by config
        blocks = size_chunks(raw, blocks, accesses)
    by_symbol = dict(block_map.by_symbol)
    blocks, reduction_blocks = add_reductions(raw, blocks, by_symbol, accesses, hints)
    dots, reductions, elementwise = read_compute(raw, regions)
    kinds = [node.kind for node in raw.nodes.values()]
    graph = KernelGraph(
        record=record,
        raw=raw,
        regions=regions,
        blocks=blocks,
        by_symbol=by_symbol,
        loops=loops,
        tunable_blocks=tuple(b.key for b in blocks if b.kind is BlockKind.TUNABLE),
        reduction_blocks=reduction_blocks,
        host_tensors=_host_tensors(raw),
        accesses=accesses,
        n_memory_slots=kinds.count(OpKind.LOAD) + kinds.count(OpKind.STORE),
        n_load_slots=kinds.count(OpKind.LOAD),
        n_atomic_slots=kinds.count(OpKind.ATOMIC),
        dots=dots,
        reductions=reductions,
        elementwise=elementwise,
        size_hints=hints,
        tunables={} if source is None else source.tunables,
        source_matched=block_map.matched,
    )
    _check_resolved(graph)
    return graph


def _host_tensors(raw: RawGraph) -> dict[str, HostTensorFact]:
    return {
        node.name: HostTensorFact(
            name=node.name,
            dtype=node.dtype or "",
            itemsize=item_bytes(node.dtype),
            shape=node.shape or (),
            stride=node.stride or (),
        )
        for node in raw.nodes.values()
        if node.kind is OpKind.HOST_TENSOR
    }


def _size_hints(record: WorkloadRecord, raw: RawGraph) -> dict[str, int]:
    """Values of symbols of dynamic shapes, from the logged shapes of arguments."""
    hints: dict[str, int] = {}
    parameters = _parameter_shapes(record)
    for node in raw.nodes.values():
        sizes = parameters.get(node.name)
        if node.kind is not OpKind.HOST_TENSOR or sizes is None:
            continue
        if node.shape is None or len(node.shape) != len(sizes):
            continue
        for text, size in zip(node.shape, sizes, strict=True):
            if literal(text) is None and names_in(text) == {text}:
                hints.setdefault(text, size)
    return hints


def _parameter_shapes(record: WorkloadRecord) -> Mapping[str, tuple[int, ...]]:
    return read_parameters(record.kernel_source, record.input_shapes)


def _check_resolved(graph: KernelGraph) -> None:
    """Refuse a kernel with a tile whose size nothing decides."""
    if not graph.root_ids():
        raise UnreadableKernelError(
            "expected a grid body in ir_graph, found none; record the kernel again "
            "with a supported Helion"
        )
    for block in graph.blocks:
        if block.kind is BlockKind.REDUCTION and not block.extent_known:
            raise UnreadableKernelError(
                f"expected a size for reduction dimension {block.symbol}, found no "
                "tensor that shows it; Helion's default is used for this kernel"
            )
    for fact in graph.host_tensors.values():
        if math.prod(len(part) for part in fact.shape) < 0:
            raise UnreadableKernelError("a host tensor has a negative size")
