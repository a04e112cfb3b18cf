"""Which dots of a kernel meet: that decides how Triton spreads their warps.

A warp-group MMA whose result reaches another dot in the same trip has all warps along
its rows, so that a row's reduction stays in a warp. Older MMA does so for every dot
that has another of its rank in the same region: whatever connects them, tile indices
at least. (Triton's AccelerateMatmul pass, `warpsPerTileV2` and `warpsPerTileV3`.)
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence

from costmodel.features.compute import Dot
from costmodel.features.graph import KernelGraph
from costmodel.features.nodes import Node
from costmodel.features.ops import OpKind
from costmodel.frozen import dataclass


@dataclass(frozen=True, slots=True)
class DotChains:
    """How the dots of a kernel meet.

    Attributes:
        neighbours: By node of a dot, all dots of its region, itself included, in
            program order.
        feeding: Nodes of dots whose result reaches another dot in the same trip.
        added: Nodes of dots that only add to another value.
    """

    neighbours: Mapping[str, tuple[Dot, ...]]
    feeding: frozenset[str]
    added: frozenset[str]


def find_chains(graph: KernelGraph) -> DotChains:
    """Find the dots that meet others."""
    regions: dict[int, list[Dot]] = {}
    for dot in graph.dots:
        regions.setdefault(dot.graph_id, []).append(dot)
    feeding: set[str] = set()
    for dot in graph.dots if len(graph.dots) > 1 else ():
        feeding |= _sources(graph, dot.node_id)
    added: set[str] = set()
    for graph_id in regions:
        members = graph.raw.regions[graph_id].node_ids
        added |= added_products([graph.raw.nodes[i] for i in members])
    return DotChains(
        neighbours={d.node_id: tuple(regions[d.graph_id]) for d in graph.dots},
        feeding=frozenset(feeding),
        added=frozenset(added),
    )


def _sources(graph: KernelGraph, node_id: str) -> set[str]:
    """Dots that a dot depends on without going around a loop."""
    stack, seen, found = list(graph.raw.nodes[node_id].inputs), set[str](), set[str]()
    while stack:
        node = graph.raw.source(stack.pop())
        if node.id in seen:
            continue
        seen.add(node.id)
        if node.kind is OpKind.DOT:
            found.add(node.id)
        stack.extend(node.inputs)
    return found


def added_products(nodes: Sequence[Node]) -> set[str]:
    """Dots whose only use is a sum, which the compiler makes their accumulator."""
    users: dict[str, list[Node]] = {}
    for node in nodes:
        for source in node.inputs:
            users.setdefault(source, []).append(node)
    return {
        node.id
        for node in nodes
        if node.kind is OpKind.DOT and [u.op for u in users.get(node.id, ())] == ["add"]
    }
