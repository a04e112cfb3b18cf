"""How several products depend on each other: attention, gates, chunks, chains."""

from __future__ import annotations

from costmodel.features.compute import Dot
from costmodel.features.dataflow import CarryKind
from costmodel.features.dataflow import Dataflow
from costmodel.features.graph import KernelGraph
from costmodel.features.nodes import Node
from costmodel.features.ops import OpKind
from costmodel.features.trait_names import Trait

_EXPONENTIALS = frozenset({"exp", "exp2"})
_COMPARISONS = frozenset({"ge", "gt", "le", "lt"})
_PRODUCTS = frozenset({"mul"})


def product_traits(graph: KernelGraph, flow: Dataflow) -> set[Trait]:
    """Traits of how the products of one kernel are put together."""
    reader = _Reader(graph, flow)
    found = set[Trait]()
    for dot in graph.dots:
        found |= reader.reading(dot)
    if reader.has_gate():
        found.add(Trait.GATED)
    if any(reader.adds_to_product(dot) for dot in graph.dots):
        found.add(Trait.ACCUMULATED_DOTS)
    softmax = {Trait.ATTENTION_FORWARD, Trait.ATTENTION_BACKWARD}
    chunks = {Trait.LINEAR_ATTENTION, Trait.STATE_SPACE}
    if found & softmax:
        found -= chunks
    if Trait.ATTENTION_BACKWARD in found:
        found.discard(Trait.ATTENTION_FORWARD)
    if Trait.STATE_SPACE in found:
        found.discard(Trait.LINEAR_ATTENTION)
    if found & (softmax | chunks):
        # Both add products up and chain them; that is what they are.
        found -= {Trait.CHAINED_DOTS, Trait.ACCUMULATED_DOTS, Trait.GATED}
    return found


class _Reader:
    def __init__(self, graph: KernelGraph, flow: Dataflow) -> None:
        self.graph = graph
        self.flow = flow
        self.dot_ids = frozenset(dot.node_id for dot in graph.dots)
        self.carried = {
            carry.placeholder: carry
            for carry in flow.carries
            if carry.kind in (CarryKind.DOT, CarryKind.RESCALED, CarryKind.STATE)
        }

    def node(self, node_id: str) -> Node:
        return self.graph.raw.nodes[node_id]

    def operands(self, dot: Dot) -> tuple[str, ...]:
        return self.flow.dot_operands(self.node(dot.node_id))

    def reading(self, dot: Dot) -> set[Trait]:
        """What a dot is, by what its operands are made of."""
        found = set[Trait]()
        for operand in self.operands(dot):
            behind = self.flow.reach((operand,), stop=self.dot_ids)
            products = behind & self.dot_ids
            if products:
                weights = self._softmax_weights(behind)
                if weights is not None:
                    found.add(weights)
                else:
                    found.add(Trait.CHAINED_DOTS)
            masked = self._is_triangular(behind)
            if (products or masked) and self._has_decay_matrix(behind):
                found.add(Trait.STATE_SPACE)
            elif masked or self._reads_state(operand):
                found.add(Trait.LINEAR_ATTENTION)
        return found

    def _softmax_weights(self, behind: frozenset[str]) -> Trait | None:
        """Whether an operand holds exponentials of a product, and whose sums they have.

        In the forward pass a maximum or sum of the same product is reduced here; in the
        backward pass it is loaded.
        """
        found: Trait | None = None
        for node_id in sorted(behind):
            if self.node(node_id).op not in _EXPONENTIALS:
                continue
            argument = self.flow.ancestors(node_id)
            if not argument & self.dot_ids:
                continue
            reduced = any(
                self.node(i).kind is OpKind.REDUCTION
                and self.flow.ancestors(i) & self.dot_ids
                for i in argument
            )
            if reduced:
                return Trait.ATTENTION_FORWARD
            found = Trait.ATTENTION_BACKWARD
        return found

    def _is_triangular(self, behind: frozenset[str]) -> bool:
        """Whether an operand is zeroed where one position is after another."""
        for node_id in behind:
            node = self.node(node_id)
            if node.op not in _COMPARISONS or len(node.shape or ()) < 2:
                continue
            if "1" in (node.shape or ())[-2:]:
                continue
            sides = self.flow.ancestors(node_id)
            kinds = {self.node(i).kind for i in sides}
            from_memory = any(self.flow.is_host_load(self.node(i)) for i in sides)
            if kinds & {OpKind.TILE_INDEX, OpKind.CREATE} and not from_memory:
                return True
        return False

    def _has_decay_matrix(self, behind: frozenset[str]) -> bool:
        """Whether exponentials of loaded vectors weigh each pair of positions."""
        for node_id in behind:
            node = self.node(node_id)
            shape = (node.shape or ())[-2:]
            if node.op not in _EXPONENTIALS or len(shape) < 2 or "1" in shape:
                continue
            inside = self.flow.ancestors(node_id)
            vectors = [
                i
                for i in inside
                if self.flow.is_host_load(self.node(i)) and self.node(i).shape
            ]
            if vectors and not inside & self.dot_ids:
                return True
        return False

    def _reads_state(self, operand: str) -> bool:
        """Whether a dot multiplies what earlier trips of its loop summed up."""
        behind = self.flow.reach((operand,), stop=self.dot_ids)
        return any(
            holder in behind and self._is_sum_of_dots(holder) for holder in self.carried
        )

    def _is_sum_of_dots(self, holder: str) -> bool:
        carry = self.carried[holder]
        return bool(self.flow.ancestors(carry.update) & self.dot_ids)

    def has_gate(self) -> bool:
        """Whether one product is multiplied by a function of an independent one."""
        for graph_id, region in self.graph.raw.regions.items():
            if graph_id not in self.graph.regions:
                continue
            for node_id in region.node_ids:
                node = self.node(node_id)
                if node.op not in _PRODUCTS or len(node.inputs) != 2:
                    continue
                left, right = (self._products_behind(i) for i in node.inputs)
                if len(right) == 1 and len(left) == 1 and left != right:
                    return True
        return False

    def _products_behind(self, node_id: str) -> frozenset[str]:
        return self.flow.reach((node_id,), stop=self.dot_ids) & self.dot_ids

    def adds_to_product(self, dot: Dot) -> bool:
        """Whether a dot's accumulator is the result of another dot of the same trip."""
        node = self.node(dot.node_id)
        operands = set(self.operands(dot))
        extra = [i for i in node.inputs if i not in operands and self.node(i).shape]
        return any(self._products_behind(i) for i in extra)
