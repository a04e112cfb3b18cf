"""The nest of grid bodies, loops and branches, rebuilt from the graph list.

Helion numbers a graph after the graphs inside it, and a graph's control nodes stand in
program order, so the nest is a post-order walk. Region edges say the same where a loop
takes values from outside, but a loop that takes none has no such edge.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from costmodel.features.nodes import RawGraph
from costmodel.features.nodes import RawRegion
from costmodel.features.ops import OpKind
from costmodel.frozen import dataclass


class RegionKind(enum.StrEnum):
    """What a graph stands for."""

    ROOT = "root"
    LOOP = "loop"
    BRANCH = "branch"
    WHILE = "while"
    ROLLED = "rolled"
    HELPER = "helper"


@dataclass(frozen=True, slots=True)
class Region:
    """One graph in the nest.

    Attributes:
        graph_id: Helion's id.
        kind: What it stands for.
        block_ids: Block ids that a loop walks, in axis order; empty for a root.
        parent: Graph id of the region around it, or None for a root or rolled one.
        control: Node in the parent that runs it, or None.
        root: Graph id of the grid body that holds it.
        line: Line of the loop in the user's file, or None.
    """

    graph_id: int
    kind: RegionKind
    block_ids: tuple[int, ...]
    parent: int | None
    control: str | None
    root: int
    line: int | None


def read_regions(raw: RawGraph) -> dict[int, Region]:
    """Rebuild the nest.

    A graph that no rule places is taken to run once in the last grid body.
    """
    roots = set(raw.root_ids) or {
        g for g, region in raw.regions.items() if region.kind == "RootGraphInfo"
    }
    placed = _placed(raw)
    last_root = max(roots) if roots else max(raw.regions)
    regions: dict[int, Region] = {}
    for graph_id, raw_region in raw.regions.items():
        parent, control = placed.get(graph_id, (None, None))
        kind = _kind(raw_region, graph_id in roots)
        if kind in (RegionKind.LOOP, RegionKind.BRANCH, RegionKind.WHILE):
            parent = last_root if parent is None else parent
        else:
            parent, control = None, None
        regions[graph_id] = Region(
            graph_id=graph_id,
            kind=kind,
            block_ids=raw_region.block_ids,
            parent=parent,
            control=control,
            root=_root_of(graph_id, placed, roots, last_root),
            line=_line(raw, raw_region, control),
        )
    return regions


def _kind(region: RawRegion, is_root: bool) -> RegionKind:
    if is_root:
        return RegionKind.ROOT
    if region.kind == "ReductionLoopGraphInfo":
        return RegionKind.ROLLED
    if "ForLoop" in region.kind:
        return RegionKind.LOOP
    if "While" in region.kind:
        return RegionKind.WHILE
    if "If" in region.kind or "Else" in region.kind:
        return RegionKind.BRANCH
    return RegionKind.HELPER


def _placed(raw: RawGraph) -> dict[int, tuple[int | None, str | None]]:
    """Parent and control node of each graph, by post-order and by region edges."""
    placed: dict[int, tuple[int | None, str | None]] = {}
    waiting: list[int] = []
    for graph_id, region in raw.regions.items():
        if region.kind in ("ReductionLoopGraphInfo", "HelperFunctionGraphInfo"):
            continue
        controls = [
            (node_id, count)
            for node_id in region.node_ids
            if (count := _n_bodies(raw.nodes[node_id].kind))
        ]
        for node_id, count in reversed(controls):
            for _ in range(min(count, len(waiting))):
                placed[waiting.pop()] = (graph_id, node_id)
        if graph_id not in raw.root_ids:
            waiting.append(graph_id)
    for graph_id, region in raw.regions.items():
        for node_id in region.node_ids:
            outer = raw.nodes[node_id].outer
            if outer is None:
                continue
            parent = raw.nodes[outer].graph_id
            if placed.get(graph_id, (None, None))[0] != parent:
                placed[graph_id] = (parent, _control_of(raw, parent, outer))
            break
    return placed


def _n_bodies(kind: OpKind) -> int:
    if kind is OpKind.FOR_LOOP:
        return 1
    return 2 if kind in (OpKind.IF, OpKind.WHILE) else 0


def _control_of(raw: RawGraph, parent: int, operand: str) -> str | None:
    for node_id in raw.regions[parent].node_ids:
        node = raw.nodes[node_id]
        if _n_bodies(node.kind) and operand in node.inputs:
            return node_id
    return None


def _root_of(
    graph_id: int,
    placed: Mapping[int, tuple[int | None, str | None]],
    roots: set[int],
    last_root: int,
) -> int:
    seen: set[int] = set()
    current: int | None = graph_id
    while current is not None and current not in roots and current not in seen:
        seen.add(current)
        current = placed.get(current, (None, None))[0]
    return current if current in roots else last_root


def _line(raw: RawGraph, region: RawRegion, control: str | None) -> int | None:
    """Line of a loop: where its control node stands, or where its outputs do."""
    if control is not None:
        return raw.nodes[control].line
    lines = [
        node.line
        for node_id in region.node_ids
        if (node := raw.nodes[node_id]).kind is OpKind.OUTPUT
    ]
    return lines[0] if lines else None
