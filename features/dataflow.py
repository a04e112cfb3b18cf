"""Which value is made from which, across loops and branches.

Helion's graph holds one list of nodes a region. A value that a loop carries shows as a
placeholder inside and as a `_phi` behind it, and what ties them is their order. Here
they are tied, so that a question such as "does this dot see the result of that one"
is a walk.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from collections.abc import Mapping

from costmodel.features.graph import KernelGraph
from costmodel.features.nodes import Node
from costmodel.features.nodes import RawGraph
from costmodel.features.ops import OpKind
from costmodel.features.regions import RegionKind
from costmodel.frozen import dataclass


class CarryKind(enum.StrEnum):
    """How a loop makes the next value of what it carries."""

    DOT = "dot"
    """Adds matrix products to it."""
    SUM = "sum"
    """Adds to it what does not depend on it."""
    EXTREME = "extreme"
    """Keeps the larger or smaller."""
    RESCALED = "rescaled"
    """Multiplies it before it adds: online sums, states that decay."""
    STATE = "state"
    """Anything else."""


@dataclass(frozen=True, slots=True)
class Carry:
    """One value that a loop carries from trip to trip.

    Attributes:
        loop: Graph id of the loop.
        placeholder: Node that holds it at the start of a trip.
        initial: Node outside that it starts from.
        update: Node inside that makes its next value.
        kind: How.
        shape: Its tile, as sizes in text.
        dtype: As torch prints it.
        is_scaled: Whether matrix products are multiplied before they are added.
    """

    loop: int
    placeholder: str
    initial: str
    update: str
    kind: CarryKind
    shape: tuple[str, ...]
    dtype: str
    is_scaled: bool


_SUMS = frozenset({"add", "sub"})
_EXTREMES = frozenset({"maximum", "minimum", "fmax", "fmin"})
# Control has results but no value; sizes and positions are made from no data.
_NO_VALUE = (
    OpKind.FOR_LOOP,
    OpKind.IF,
    OpKind.WHILE,
    OpKind.SYMBOL,
    OpKind.TILE_SCALAR,
    OpKind.TILE_INDEX,
    OpKind.CREATE,
)
# What leaves a value as it is, up to its type and the lanes that hold it; so does
# zeroing the padding of a tile (`_mask_to`).
_PLAIN = (OpKind.VIEW, OpKind.ALIAS, OpKind.CONVERT)


class Dataflow:
    """Answers what a value is made from.

    Attributes:
        carries: Values that loops carry, by loop and then in order.
    """

    def __init__(self, graph: KernelGraph) -> None:
        """Tie placeholders, loops and what follows them.

        Args:
            graph: The kernel.
        """
        self._raw = graph.raw
        self._yields = _yields(graph)
        self.carries: tuple[Carry, ...] = tuple(self._read_carries(graph))
        self._updates: dict[str, list[str]] = {}
        for carry in self.carries:
            self._updates.setdefault(carry.placeholder, []).append(carry.update)
        self._ancestors: dict[str, frozenset[str]] = {}

    def sources(self, node_id: str) -> tuple[str, ...]:
        """Nodes whose values a node's value is computed from; none for a load.

        Addresses and masks of a load decide which value it gets and are not part of
        it; `address_of` tells them. What an earlier trip left is not followed.
        """
        node = self._raw.nodes[node_id]
        if node.kind is OpKind.PLACEHOLDER:
            return () if node.outer is None else (node.outer,)
        if node_id in self._yields:
            return self._yields[node_id]
        if self.is_host_load(node) or node.kind in _NO_VALUE:
            return ()
        return tuple(dict.fromkeys(node.inputs))

    def is_host_load(self, node: Node) -> bool:
        """Whether a node reads device memory."""
        if node.kind is not OpKind.LOAD or not node.inputs:
            return False
        return self._raw.source(node.inputs[0]).kind is OpKind.HOST_TENSOR

    def ancestors(self, node_id: str) -> frozenset[str]:
        """All nodes that a value is computed from within one trip, itself included."""
        known = self._ancestors.get(node_id)
        if known is None:
            known = self.reach((node_id,))
            self._ancestors[node_id] = known
        return known

    def reach(
        self,
        start: Iterable[str],
        *,
        stop: frozenset[str] = frozenset(),
        earlier_trips: bool = False,
    ) -> frozenset[str]:
        """Nodes behind some values.

        Args:
            start: Where to begin.
            stop: Nodes that are found and not looked behind.
            earlier_trips: Whether to follow carried values to what made them.
        """
        waiting, seen = list(start), set[str]()
        while waiting:
            current = waiting.pop()
            if current in seen:
                continue
            seen.add(current)
            if current in stop:
                continue
            waiting.extend(self.sources(current))
            if earlier_trips:
                waiting.extend(self._updates.get(current, ()))
        return frozenset(seen)

    def address_of(self, node_id: str) -> tuple[str, ...]:
        """Operands of a load or store besides its tensor: indices, value and mask."""
        return self._raw.nodes[node_id].inputs[1:]

    def stored_value(self, node_id: str) -> str | None:
        """Node whose value a store or an atomic writes, or None for a constant."""
        tensors = [
            i for i in self.address_of(node_id) if self._raw.nodes[i].shape is not None
        ]
        if len(tensors) > 1 and self._raw.nodes[tensors[-1]].dtype == "torch.bool":
            tensors = tensors[:-1]
        return tensors[-1] if tensors else None

    def is_from_memory(self, node_id: str) -> bool:
        """Whether memory decides a value: it is loaded, or computed from a load."""
        found = self.reach((node_id,), earlier_trips=True)
        return any(self.is_host_load(self._raw.nodes[i]) for i in found)

    def plain_source(self, node_id: str) -> Node:
        """What a value is before views, renames, loops and changes of type."""
        node, seen = self._last_step(node_id), set[str]()
        while node.kind is OpKind.PLACEHOLDER and node.outer and node.id not in seen:
            seen.add(node.id)
            node = self._last_step(node.outer)
        return node

    def _read_carries(self, graph: KernelGraph) -> Iterable[Carry]:
        raw = graph.raw
        for region in graph.regions.values():
            if region.kind is not RegionKind.LOOP or region.control is None:
                continue
            inside = raw.regions[region.graph_id].node_ids
            holders = {
                node.outer: node.id
                for i in inside
                if (node := raw.nodes[i]).kind is OpKind.PLACEHOLDER
                and node.outer is not None
            }
            found = set[str]()
            for phi in _phis(raw, region.control):
                initial, after = phi.inputs[0], phi.inputs[-1]
                updates = self._yields.get(after, ())
                holder = holders.get(initial)
                if holder is None or not updates or holder in found:
                    continue
                found.add(holder)
                node = raw.nodes[holder]
                kind = self._carry_kind(holder, updates[0])
                yield Carry(
                    loop=region.graph_id,
                    placeholder=holder,
                    initial=initial,
                    update=updates[0],
                    kind=kind,
                    shape=node.shape or (),
                    dtype=node.dtype or "",
                    is_scaled=kind is CarryKind.DOT and self._scales(updates[0]),
                )

    def _carry_kind(self, holder: str, update: str) -> CarryKind:
        """Read the last step of an update, and what it does to the old value."""
        node = self._last_step(update)
        old = [i for i in node.inputs if holder in self.reach((i,))]
        if node.op in _EXTREMES:
            return CarryKind.EXTREME
        if len(old) != 1 or not (node.kind is OpKind.DOT or node.op in _SUMS):
            return CarryKind.STATE
        if node.kind is OpKind.DOT and not self._is_accumulator(node, old[0]):
            return CarryKind.STATE
        if self._is_added_to(old[0], holder):
            return CarryKind.DOT if self._adds_products(node, old[0]) else CarryKind.SUM
        step = self._last_step(old[0])
        return CarryKind.RESCALED if step.op in ("mul", "div") else CarryKind.STATE

    def _adds_products(self, node: Node, old: str) -> bool:
        """Whether what an update adds is a matrix product, perhaps scaled."""
        waiting, seen = [i for i in node.inputs if i != old], set[str]()
        if node.kind is OpKind.DOT:
            return True
        while waiting:
            step = self._last_step(waiting.pop())
            if step.kind is OpKind.DOT:
                return True
            if step.op in ("mul", "div") and step.id not in seen:
                seen.add(step.id)
                waiting.extend(step.inputs)
        return False

    def _scales(self, update: str) -> bool:
        """Whether a sum's last step adds a multiple of a product."""
        node = self._last_step(update)
        if node.kind is OpKind.DOT:
            return False
        steps = [self._last_step(i) for i in node.inputs]
        return not any(step.kind is OpKind.DOT for step in steps)

    def _is_accumulator(self, dot: Node, operand: str) -> bool:
        """Whether a dot adds to an operand rather than multiplying it."""
        return operand not in self.dot_operands(dot)

    def dot_operands(self, dot: Node) -> tuple[str, ...]:
        """What a dot multiplies, without what it adds to."""
        tensors = tuple(i for i in dot.inputs if self._raw.nodes[i].shape)
        if dot.op in ("addmm", "baddbmm"):
            return tensors[1:3]
        if dot.op in ("dot_scaled", "_scaled_mm") and len(tensors) >= 3:
            return (tensors[0], tensors[2])
        return tensors[:2]

    def _is_added_to(self, node_id: str, holder: str) -> bool:
        """Whether a value is what a placeholder holds plus other things."""
        seen = set[str]()
        while node_id not in seen:
            seen.add(node_id)
            if self._is_plainly(node_id, holder):
                return True
            node = self._last_step(node_id)
            if node.kind is not OpKind.DOT and node.op not in _SUMS:
                return False
            old = [i for i in node.inputs if holder in self.reach((i,))]
            if len(old) != 1:
                return False
            if node.kind is OpKind.DOT and not self._is_accumulator(node, old[0]):
                return False
            node_id = old[0]
        return False

    def _last_step(self, node_id: str) -> Node:
        """The node that makes a value, before views, renames and changes of type."""
        node = self._raw.nodes[node_id]
        while node.kind in _PLAIN or node.op == "_mask_to":
            sources = self.sources(node.id)
            if not sources:
                break
            node = self._raw.nodes[sources[-1]]
        return node

    def _is_plainly(self, node_id: str, holder: str) -> bool:
        """Whether a value is what a placeholder holds, up to type and form."""
        node, seen = self._last_step(node_id), set[str]()
        while node.kind is OpKind.PLACEHOLDER and node.id not in seen:
            if node.id == holder:
                return True
            seen.add(node.id)
            node = node if node.outer is None else self._last_step(node.outer)
        return False


def _phis(raw: RawGraph, control: str) -> list[Node]:
    """The merges behind a loop, in order."""
    graph_id = raw.nodes[control].graph_id
    items = {
        i
        for i in raw.regions[graph_id].node_ids
        if control in raw.nodes[i].inputs and raw.nodes[i].op == "getitem"
    }
    return [
        node
        for i in raw.regions[graph_id].node_ids
        if (node := raw.nodes[i]).op == "_phi"
        and len(node.inputs) == 2
        and node.inputs[1] in items
    ]


def _yields(graph: KernelGraph) -> dict[str, tuple[str, ...]]:
    """For each value taken from a loop or branch, the nodes inside that make it."""
    raw = graph.raw
    bodies: dict[str, list[int]] = {}
    for region in graph.regions.values():
        if region.control is not None:
            bodies.setdefault(region.control, []).append(region.graph_id)
    found: dict[str, tuple[str, ...]] = {}
    for control, graph_ids in bodies.items():
        outer = raw.regions[raw.nodes[control].graph_id].node_ids
        items = [
            i
            for i in outer
            if raw.nodes[i].op == "getitem" and control in raw.nodes[i].inputs
        ]
        outputs = [_outputs(raw, graph_id) for graph_id in graph_ids]
        for index, item in enumerate(items):
            found[item] = tuple(
                made
                for made_there in outputs
                for made in _matching(raw, item, index, len(items), made_there)
            )
    return found


def _outputs(raw: RawGraph, graph_id: int) -> tuple[str, ...]:
    for node_id in raw.regions[graph_id].node_ids:
        if raw.nodes[node_id].kind is OpKind.OUTPUT:
            return raw.nodes[node_id].inputs
    return ()


def _matching(
    raw: RawGraph, item: str, index: int, n_items: int, outputs: tuple[str, ...]
) -> Iterable[str]:
    """The output that an item is: by order, or all alike where some are unused."""
    if len(outputs) == n_items:
        return (outputs[index],)
    wanted = raw.nodes[item]
    return [
        i
        for i in outputs
        if raw.nodes[i].shape == wanted.shape and raw.nodes[i].dtype == wanted.dtype
    ]


def carries_by_loop(carries: Iterable[Carry]) -> Mapping[int, tuple[Carry, ...]]:
    """Carries grouped by the loop that carries them."""
    grouped: dict[int, list[Carry]] = {}
    for carry in carries:
        grouped.setdefault(carry.loop, []).append(carry)
    return {loop: tuple(found) for loop, found in grouped.items()}
