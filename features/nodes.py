"""Helion's node-link dict as typed nodes, with operands in argument order.

Helion writes one node per FX node, named `g<graph>:<name>`; a *data* edge says which
operands it takes, and a *region* edge ties a loop body's placeholder to the outer
value. Constants (slices, integers, permutations) leave no trace in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from costmodel.errors import UnreadableKernelError
from costmodel.features.ops import OpKind
from costmodel.features.ops import op_kind
from costmodel.features.ops import op_name
from costmodel.frozen import dataclass

_LINE = re.compile(r":(\d+)\b")


@dataclass(frozen=True, slots=True)
class Node:
    """One node of one graph.

    Attributes:
        id: `g<graph>:<name>`.
        graph_id: Graph that holds it.
        name: FX name, without the graph.
        kind: What it does.
        op: Last name of the target.
        dtype: As torch prints it, or None.
        shape: Sizes as text: integers, symbols, or expressions of both; None for a
            scalar that is not a tensor.
        stride: Strides as text, for host tensors.
        value: Text of a symbolic scalar, such as `u0` or `2*u3`.
        inputs: Ids of operands in argument order, repeated where used twice.
        outer: For a placeholder, the id of the value outside that it stands for.
        reduction_ranges: Sizes reduced over, for a reduction.
        input_shapes: Shapes of tensor operands, where Helion's lowering knows them.
        line: Line of the user's file, or None.
    """

    id: str
    graph_id: int
    name: str
    kind: OpKind
    op: str
    dtype: str | None
    shape: tuple[str, ...] | None
    stride: tuple[str, ...] | None
    value: str | None
    inputs: tuple[str, ...]
    outer: str | None
    reduction_ranges: tuple[str, ...]
    input_shapes: tuple[tuple[str, ...], ...]
    line: int | None


@dataclass(frozen=True, slots=True)
class RawRegion:
    """One FX graph: a grid body, a loop body, a branch or a rolled reduction."""

    graph_id: int
    kind: str
    block_ids: tuple[int, ...]
    node_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RolledReduction:
    """Helion's note that a reduction of a graph can be turned into a loop."""

    original_graph_id: int
    block_ids: tuple[int, ...]
    used: bool


@dataclass(frozen=True, slots=True)
class RawGraph:
    """The whole node-link dict, typed.

    Attributes:
        nodes: Node by id, in program order within a graph.
        regions: Region by graph id, ascending.
        root_ids: Graph ids of grid bodies, in program order.
        rolled: Rolled reductions in Helion's order.
    """

    nodes: Mapping[str, Node]
    regions: Mapping[int, RawRegion]
    root_ids: tuple[int, ...]
    rolled: tuple[RolledReduction, ...]

    def source(self, node_id: str) -> Node:
        """The node that makes a value, through placeholders and plain renames."""
        node = self.nodes[node_id]
        while True:
            if node.kind is OpKind.PLACEHOLDER and node.outer is not None:
                node = self.nodes[node.outer]
            elif node.op == "_new_var" and node.inputs:
                node = self.nodes[node.inputs[0]]
            else:
                return node


def read_nodes(ir_graph: Mapping[str, Any]) -> RawGraph:
    """Type Helion's node-link dict.

    Raises:
        UnreadableKernelError: A key is missing or an edge names no node.
    """
    try:
        return _read_nodes(ir_graph)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise UnreadableKernelError(
            "expected Helion's ir_graph as a node-link dict, found "
            f"{type(error).__name__}: {error}; record it with "
            "HELION_AUTOTUNE_LOG_DETAILS=1 under Helion 1.4 or later"
        ) from error


def _read_nodes(ir_graph: Mapping[str, Any]) -> RawGraph:
    raw_nodes = {str(raw["id"]): raw for raw in ir_graph["nodes"]}
    edges = ir_graph["edges"] if "edges" in ir_graph else ir_graph["links"]
    positions: dict[str, list[tuple[int, str]]] = {}
    outer: dict[str, str] = {}
    for edge in edges:
        source, target = str(edge["source"]), str(edge["target"])
        if source not in raw_nodes or target not in raw_nodes:
            raise KeyError(f"edge {source} -> {target}")
        if edge["edge_kind"] == "data":
            slots = positions.setdefault(target, [])
            slots.extend((int(p), source) for p in edge["arg_positions"])
        else:
            outer.setdefault(target, source)
    nodes = {
        node_id: _read_node(node_id, raw, positions.get(node_id, []), outer)
        for node_id, raw in raw_nodes.items()
    }
    return RawGraph(
        nodes=nodes,
        regions=_read_regions(ir_graph["graph"], nodes),
        root_ids=tuple(int(i) for i in ir_graph["graph"].get("root_ids") or ()),
        rolled=tuple(
            RolledReduction(
                original_graph_id=int(raw["original_graph_id"]),
                block_ids=tuple(int(b) for b in raw["rolled_block_ids"]),
                used=bool(raw["used_rdim"]),
            )
            for raw in ir_graph["graph"].get("rolled_reductions") or ()
        ),
    )


def _read_node(
    node_id: str,
    raw: Mapping[str, Any],
    positions: list[tuple[int, str]],
    outer: Mapping[str, str],
) -> Node:
    target = str(raw["target"])
    found = _LINE.findall(str(raw.get("source_loc") or "").split("\n", 1)[0])
    return Node(
        id=node_id,
        graph_id=int(raw["graph_id"]),
        name=node_id.split(":", 1)[-1],
        kind=op_kind(str(raw["op_kind"]), target, raw.get("lowering_class")),
        op=op_name(target),
        dtype=raw.get("dtype"),
        shape=_texts(raw.get("shape")),
        stride=_texts(raw.get("stride")),
        value=raw.get("value"),
        inputs=tuple(source for _, source in sorted(positions)),
        outer=outer.get(node_id),
        reduction_ranges=_texts(raw.get("reduction_ranges")) or (),
        input_shapes=tuple(_texts(s) or () for s in raw.get("input_shapes") or ()),
        line=int(found[-1]) if found else None,
    )


def _texts(values: Any) -> tuple[str, ...] | None:
    return None if values is None else tuple(str(v) for v in values)


def _read_regions(
    meta: Mapping[str, Any], nodes: Mapping[str, Node]
) -> dict[int, RawRegion]:
    members: dict[int, list[str]] = {}
    for node in nodes.values():
        members.setdefault(node.graph_id, []).append(node.id)
    regions = {
        int(raw["graph_id"]): RawRegion(
            graph_id=int(raw["graph_id"]),
            kind=str(raw["region_kind"]),
            block_ids=tuple(int(b) for b in raw["block_ids"] or ()),
            node_ids=tuple(members.get(int(raw["graph_id"]), ())),
        )
        for raw in meta["graphs"]
    }
    if not regions:
        raise ValueError("no graphs")
    return dict(sorted(regions.items()))
