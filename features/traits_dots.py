"""Traits of matrix products: what they are of, what follows, how they depend."""

from __future__ import annotations

from costmodel.features.compute import Dot
from costmodel.features.coverage import bound_blocks
from costmodel.features.coverage import extent_of
from costmodel.features.coverage import is_store
from costmodel.features.coverage import live_accesses
from costmodel.features.coverage import moving_blocks
from costmodel.features.dataflow import CarryKind
from costmodel.features.dataflow import Dataflow
from costmodel.features.graph import KernelGraph
from costmodel.features.loops import BoundKind
from costmodel.features.memory import Access
from costmodel.features.nodes import Node
from costmodel.features.ops import OpKind
from costmodel.features.ops import is_float8
from costmodel.features.places import names_block
from costmodel.features.regions import RegionKind
from costmodel.features.symbols import names_in
from costmodel.features.trait_names import Trait
from costmodel.features.traits_products import product_traits

# Rows of the smallest warp-group MMA (PTX ISA, wgmma.mma_async): a product whose side
# fits one such tile reads its other operand once, so that bandwidth decides.
SKINNY_EXTENT = 64

# Traits that say how a single product differs from the textbook one.
_NOT_PLAIN = frozenset(
    {
        Trait.BATCHED,
        Trait.FULL_K,
        Trait.SPLIT_K,
        Trait.MIXED_PRECISION,
        Trait.FP8,
        Trait.INT8,
        Trait.BLOCK_SCALED,
        Trait.PROLOGUE,
        Trait.POINTWISE_EPILOGUE,
        Trait.ROW_REDUCTION_EPILOGUE,
        Trait.ROW_REDUCTION_PROLOGUE,
        Trait.GROUPED,
    }
)

# Kernels whose sums, rescaling and masks belong to what they are.
_WHOLE = frozenset(
    {
        Trait.ATTENTION_FORWARD,
        Trait.ATTENTION_BACKWARD,
        Trait.LINEAR_ATTENTION,
        Trait.STATE_SPACE,
    }
)


def dot_traits(graph: KernelGraph, flow: Dataflow) -> set[Trait]:
    """Traits of all products of a kernel; empty without one."""
    if not graph.dots:
        return set()
    reader = _Reader(graph, flow)
    found = product_traits(graph, flow) if len(graph.dots) > 1 else set[Trait]()
    for dot in graph.dots:
        found |= reader.operand_traits(dot)
        if reader.is_batched(dot):
            found.add(Trait.BATCHED)
    if any(reader.is_cut(dot) for dot in graph.dots):
        found.add(Trait.SPLIT_K)
    if all(reader.is_full_depth(dot) for dot in graph.dots):
        found.add(Trait.FULL_K)
    if any(carry.is_scaled for carry in flow.carries):
        found.add(Trait.BLOCK_SCALED)
    is_softmax = bool(found & {Trait.ATTENTION_FORWARD, Trait.ATTENTION_BACKWARD})
    if not is_softmax and reader.is_grouped():
        found.add(Trait.GROUPED)
    # The sides of a softmax's scores are positions; a short head is no short side, and
    # neither is a chunk.
    sides = graph.dots
    if found & _WHOLE:
        sides = reader.scores() if is_softmax else ()
    else:
        found |= reader.epilogue_traits()
    if any(reader.is_skinny(dot) for dot in sides):
        found.add(Trait.SKINNY)
    if len(graph.dots) == 1 and not found & _NOT_PLAIN:
        found.add(Trait.PLAIN)
    return found


class _Reader:
    """Looks at dots one by one; holds what all of them need."""

    def __init__(self, graph: KernelGraph, flow: Dataflow) -> None:
        self.graph = graph
        self.flow = flow
        self.dot_ids = frozenset(dot.node_id for dot in graph.dots)
        self.accesses = live_accesses(graph)
        self.by_node = {access.node_id: access for access in self.accesses}

    def operands(self, dot: Dot) -> tuple[Node, ...]:
        """The nodes that a dot multiplies; one twice where it is squared."""
        node = self.graph.raw.nodes[dot.node_id]
        found = [self.graph.raw.nodes[i] for i in self.flow.dot_operands(node)]
        return tuple(found)

    def behind(self, node: Node) -> frozenset[str]:
        """Nodes that a value is made of, up to the next dots."""
        return self.flow.reach((node.id,), stop=self.dot_ids)

    def loads(self, node: Node) -> tuple[Access, ...]:
        """Loads of matrices that an operand is made of."""
        found = [self.by_node[i] for i in self.behind(node) if i in self.by_node]
        return tuple(
            access
            for access in found
            if access.kind is OpKind.LOAD
            and sum(part != "1" for part in access.shape) > 1
        )

    def operand_traits(self, dot: Dot) -> set[Trait]:
        """Types, and what is done to an operand before it is multiplied."""
        found = set[Trait]()
        types = {dot.lhs_dtype, dot.rhs_dtype}
        if all(is_float8(dtype) for dtype in types):
            found.add(Trait.FP8)
        if types <= {"torch.int8", "torch.uint8"}:
            found.add(Trait.INT8)
        for node in self.operands(dot):
            stored = {access.dtype for access in self.loads(node)}
            if len(types) > 1 or stored - {node.dtype, "torch.bool"}:
                found.add(Trait.MIXED_PRECISION)
            if self._is_computed(node):
                found.add(Trait.PROLOGUE)
        return found

    def _is_computed(self, node: Node) -> bool:
        """Whether arithmetic makes an operand; one made of dots is no prologue."""
        behind = self.behind(node)
        if behind & self.dot_ids:
            return False
        nodes = [self.graph.raw.nodes[i] for i in behind]
        return any(n.kind is OpKind.POINTWISE and n.op != "_mask_to" for n in nodes)

    def is_skinny(self, dot: Dot) -> bool:
        """Whether a side of the result is short."""
        sides = (extent_of(self.graph, dot.m), extent_of(self.graph, dot.n))
        return min(sides) <= SKINNY_EXTENT

    def scores(self) -> tuple[Dot, ...]:
        """Products that enter other products."""
        entered = frozenset[str]()
        for dot in self.graph.dots:
            for node in self.operands(dot):
                entered |= self.behind(node) & self.dot_ids
        return tuple(dot for dot in self.graph.dots if dot.node_id in entered)

    def is_batched(self, dot: Dot) -> bool:
        """Whether there are many products of the same form."""
        batch = [extent_of(self.graph, part) for part in dot.batch]
        return any(n > 1 for n in batch) or self._shared_grid_blocks(dot)

    def _shared_grid_blocks(self, dot: Dot) -> bool:
        """Whether a grid axis walks both operands and is no side of the product."""
        own = {
            self.graph.by_symbol[name]
            for text in (dot.m, dot.n, dot.k)
            for name in names_in(text)
            if name in self.graph.by_symbol
        }
        moved = []
        for node in self.operands(dot):
            loads = self.loads(node)
            if not loads:
                return False
            keys = frozenset[int]()
            for access in loads:
                keys |= moving_blocks(self.graph, access)
            moved.append(keys)
        shared = frozenset.intersection(*moved) - own if moved else frozenset[int]()
        cut = self._cutting_blocks(dot)
        return any(
            self.graph.blocks[key].in_grid and self.graph.blocks[key].extent > 1
            for key in shared - cut
        )

    def _depth_blocks(self, dot: Dot) -> set[int]:
        return {
            self.graph.by_symbol[name]
            for name in names_in(dot.k)
            if name in self.graph.by_symbol
        }

    def is_full_depth(self, dot: Dot) -> bool:
        """Whether neither a loop nor the grid walks the summed axis."""
        summing = (CarryKind.DOT, CarryKind.RESCALED)
        for carry in self.flow.carries:
            here = carry.loop == dot.graph_id and carry.kind in summing
            if here and dot.node_id in self.flow.ancestors(carry.update):
                return False
        keys = self._depth_blocks(dot)
        return not any(
            axis.block in keys for axes in self.graph.loops.values() for axis in axes
        )

    def is_cut(self, dot: Dot) -> bool:
        """Whether programs that make the same result share the summed axis."""
        keys = self._depth_blocks(dot)
        sides = self._side_blocks(dot)
        for graph_id, axes in self.graph.loops.items():
            for axis in axes:
                if axis.block not in keys:
                    continue
                if self.graph.regions[graph_id].kind is RegionKind.ROOT:
                    return True
                # Bounds that move with a side of the result are a band, not a share.
                others = bound_blocks(self.graph, graph_id) - sides - keys
                if others and axis.bound in (BoundKind.FREE, BoundKind.INSIDE):
                    return True
        return False

    def _side_blocks(self, dot: Dot) -> frozenset[int]:
        return frozenset(
            self.graph.by_symbol[name]
            for text in (dot.m, dot.n)
            for name in names_in(text)
            if name in self.graph.by_symbol
        )

    def _cutting_blocks(self, dot: Dot) -> frozenset[int]:
        """Outer blocks whose tiles the summed axis is walked inside."""
        keys = self._depth_blocks(dot)
        return frozenset(
            axis.outer
            for axes in self.graph.loops.values()
            for axis in axes
            if axis.block in keys and axis.outer is not None
        )

    def epilogue_traits(self) -> set[Trait]:
        """What happens to products before they are stored, and what stands beside."""
        found = set[Trait]()
        raw, flow = self.graph.raw, self.flow
        for reduction in self.graph.reductions:
            if reduction.is_scan:
                continue
            sees = flow.ancestors(reduction.node_id) & self.dot_ids
            found.add(
                Trait.ROW_REDUCTION_EPILOGUE if sees else Trait.ROW_REDUCTION_PROLOGUE
            )
        starts = [c.initial for c in flow.carries if c.kind is CarryKind.DOT]
        if any(flow.is_from_memory(start) for start in starts):
            found.add(Trait.POINTWISE_EPILOGUE)  # a residual, added first
        summed_in = {
            dot.graph_id
            for dot in self.graph.dots
            if self.graph.regions[dot.graph_id].kind is RegionKind.LOOP
        }
        for access in self.accesses:
            value = flow.stored_value(access.node_id) if is_store(access) else None
            if value is None:
                continue
            for node_id in flow.ancestors(value):
                node = raw.nodes[node_id]
                if node.kind is not OpKind.POINTWISE or node.op == "_mask_to":
                    continue
                if node.graph_id in summed_in and not self._all_in_one_region():
                    continue
                if flow.ancestors(node_id) & self.dot_ids:
                    found.add(Trait.POINTWISE_EPILOGUE)
        return found

    def _all_in_one_region(self) -> bool:
        """Whether products are stored where they are made: no accumulator loop."""
        made = {dot.graph_id for dot in self.graph.dots}
        stored = {a.graph_id for a in self.accesses if is_store(a)}
        return bool(made & stored)

    def is_grouped(self) -> bool:
        """Whether memory says which rows are multiplied, or by whose weights."""
        for dot in self.graph.dots:
            for graph_id in self.graph.enclosing(dot.graph_id):
                axes = self.graph.loops.get(graph_id, ())
                if any(axis.bound is BoundKind.DATA for axis in axes):
                    return True
            for node in self.operands(dot):
                if any(
                    names_block(self.graph, self.flow, access)
                    for access in self.loads(node)
                ):
                    return True
        return False
