"""Bytes of tiles alive at once in one program.

Two views. The *steps* view is Helion's own rule: every node's tile lives from its
definition to its last use, each node on its own. The *register* view merges nodes
that share storage (views, renames, broadcasts), keeps what an outer loop holds while
an inner one runs, and leaves out operands that go to the tensor cores through shared
memory.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from costmodel.features.chains import added_products
from costmodel.features.graph import KernelGraph
from costmodel.features.nodes import Node
from costmodel.features.nodes import RawGraph
from costmodel.features.ops import OpKind
from costmodel.features.ops import item_bytes
from costmodel.features.regions import RegionKind
from costmodel.features.symbols import Sizes
from costmodel.features.tiles import Tiles
from costmodel.frozen import dataclass

Column = tuple[tuple[str, ...], int]
"""Shape of a tile as text and bytes of its element."""


class TileRole(enum.IntEnum):
    """What a live tile is, as Helion counts it."""

    CARRY = 0
    LOAD = 1
    DOT_OUT = 2
    OTHER = 3


_N_ROLES = len(TileRole)


@dataclass(frozen=True, slots=True)
class LivePlan:
    """Which tiles are alive at which step, config-independent.

    Attributes:
        columns: Distinct tiles by shape and element size.
        counts: float64[n_roles, n_steps, n_columns], live tiles of each role.
        register_counts: float64[n_register_steps, n_columns], tiles in registers.
        loop_counts: The same of steps inside loops only.
    """

    columns: tuple[Column, ...]
    counts: npt.NDArray[np.float64]
    register_counts: npt.NDArray[np.float64]
    loop_counts: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LiveBytes:
    """Peaks over the steps of a program, float64[n] bytes.

    Attributes:
        total: Everything alive (Helion's rule).
        without_loads: Without tiles just loaded.
        accumulators: Dot results and carried values.
        loads: Loaded tiles.
        registers: The register view.
        loop_registers: The same inside loops; 0 for a kernel without one.
        largest_tile: Elements of the largest tile of all.
    """

    total: Sizes
    without_loads: Sizes
    accumulators: Sizes
    loads: Sizes
    registers: Sizes
    loop_registers: Sizes
    largest_tile: Sizes


def make_live_plan(graph: KernelGraph) -> LivePlan:
    """Find live tiles of every region that is not a rolled alternative."""
    columns: dict[Column, int] = {}
    steps: list[dict[tuple[TileRole, int], int]] = []
    register_steps: list[dict[int, int]] = []
    loop_steps: list[dict[int, int]] = []
    held = _held_outside(graph)
    for graph_id, region in graph.regions.items():
        if region.kind in (RegionKind.ROLLED, RegionKind.HELPER):
            continue
        nodes = [graph.raw.nodes[i] for i in graph.raw.regions[graph_id].node_ids]
        steps.extend(_region_steps(graph.raw, nodes, columns))
        outside = [_column(columns, node) for node in held.get(graph_id, ())]
        found = _register_steps(graph, nodes, columns, outside)
        register_steps.extend(found)
        if region.kind is RegionKind.LOOP:
            loop_steps.extend(found)
    counts = np.zeros((_N_ROLES, max(1, len(steps)), max(1, len(columns))))
    for row, step in enumerate(steps):
        for (role, column), count in step.items():
            counts[role, row, column] += count
    return LivePlan(
        columns=tuple(columns) or (((), 1),),
        counts=counts,
        register_counts=_step_table(register_steps, len(columns)),
        loop_counts=_step_table(loop_steps, len(columns)),
    )


def _step_table(
    steps: Sequence[Mapping[int, int]], n_columns: int
) -> npt.NDArray[np.float64]:
    table = np.zeros((max(1, len(steps)), max(1, n_columns)))
    for row, step in enumerate(steps):
        for column, count in step.items():
            table[row, column] += count
    # As np.unique along rows, which takes far longer over so few.
    return np.array(sorted(set(map(tuple, table.tolist()))))


def live_bytes(plan: LivePlan, tiles: Tiles) -> LiveBytes:
    """Peak live bytes of n configs; sums of whole numbers, exact in any order."""
    numel = np.empty((len(plan.columns), tiles.n))
    for row, (shape, _) in enumerate(plan.columns):
        numel[row] = tiles.numel(shape)
    items = np.array([[float(item)] for _, item in plan.columns])
    bytes_of = numel * items
    by_role = [counts @ bytes_of for counts in plan.counts]
    carry, loads, dots, other = by_role
    return LiveBytes(
        total=(carry + loads + dots + other).max(axis=0),
        without_loads=(carry + dots + other).max(axis=0),
        accumulators=(carry + dots).max(axis=0),
        loads=loads.max(axis=0),
        registers=(plan.register_counts @ bytes_of).max(axis=0),
        loop_registers=(plan.loop_counts @ bytes_of).max(axis=0),
        largest_tile=numel.max(axis=0),
    )


def _column(columns: dict[Column, int], node: Node) -> int:
    key = (node.shape or (), item_bytes(node.dtype))
    return columns.setdefault(key, len(columns))


def _last_uses(nodes: Sequence[Node]) -> dict[str, int]:
    last: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for source in node.inputs:
            last[source] = index
    return last


def _role(raw: RawGraph, node: Node) -> TileRole | None:
    """Role of a node's tile; None for no tile, or one that stays in memory."""
    if not node.shape or all(part == "1" for part in node.shape):
        return None
    source = node
    if node.kind is OpKind.PLACEHOLDER:
        while source.kind is OpKind.PLACEHOLDER and source.outer is not None:
            source = raw.nodes[source.outer]
    if source.kind is OpKind.HOST_TENSOR:
        return None
    if node.kind is OpKind.PLACEHOLDER:
        return TileRole.CARRY
    if node.kind is OpKind.LOAD:
        return TileRole.LOAD
    return TileRole.DOT_OUT if node.kind is OpKind.DOT else TileRole.OTHER


def _region_steps(
    raw: RawGraph, nodes: Sequence[Node], columns: dict[Column, int]
) -> list[dict[tuple[TileRole, int], int]]:
    last = _last_uses(nodes)
    details: dict[str, tuple[TileRole, int]] = {}
    for node in nodes:
        role = _role(raw, node)
        if role is not None:
            details[node.id] = (role, _column(columns, node))
    live: list[str] = []
    seen: set[frozenset[str]] = set()
    steps: list[dict[tuple[TileRole, int], int]] = []
    for index, node in enumerate(nodes):
        if node.id in details:
            live.append(node.id)
        key = frozenset(live)
        if live and key not in seen:
            seen.add(key)
            step: dict[tuple[TileRole, int], int] = {}
            for name in live:
                step[details[name]] = step.get(details[name], 0) + 1
            steps.append(step)
        live = [name for name in live if last.get(name, -1) > index]
    return steps


_SHARES_STORAGE = (OpKind.VIEW, OpKind.ALIAS)


def _storage(graph: KernelGraph, nodes: Sequence[Node]) -> dict[str, str]:
    """Node whose registers a node's value lives in."""
    inside = {node.id for node in nodes}
    owner: dict[str, str] = {}
    for node in nodes:
        owner[node.id] = node.id
        shares = node.kind in _SHARES_STORAGE or node.op == "_mask_to"
        sources = [s for s in node.inputs if s in inside and graph.raw.nodes[s].shape]
        if shares and sources and node.op not in ("stack", "cat", "join"):
            owner[node.id] = owner.get(sources[-1], sources[-1])
    return owner


def _register_steps(
    graph: KernelGraph,
    nodes: Sequence[Node],
    columns: dict[Column, int],
    outside: Sequence[int],
) -> list[dict[int, int]]:
    raw = graph.raw
    owner = _storage(graph, nodes)
    through_smem = _operands_in_smem(graph, nodes)
    last: dict[str, int] = {}
    for index, node in enumerate(nodes):
        # After a loop a carried value is where the loop left it, not where it began.
        sources = node.inputs[-1:] if node.op == "_phi" else node.inputs
        for name in sources:
            root = owner.get(name, name)
            last[root] = max(last.get(root, -1), index)
    columns_of: dict[str, int] = {}
    added = added_products(nodes)
    in_place = _IN_PLACE if graph.dots else ()
    for node in nodes:
        if owner[node.id] != node.id or node.id in through_smem or node.id in added:
            continue
        if _role(raw, node) is not None and node.op != "subscript":
            columns_of[node.id] = _column(columns, node)
    steps: list[dict[int, int]] = []
    live: list[str] = []
    for index, node in enumerate(nodes):
        if node.kind in in_place:
            # Element by element a result takes the registers of what dies with it.
            live = [name for name in live if last.get(name, -1) > index]
        if node.id in columns_of:
            live.append(node.id)
        step: dict[int, int] = {}
        for column in [*(columns_of[name] for name in live), *outside]:
            step[column] = step.get(column, 0) + 1
        if step and step not in steps[-1:]:
            steps.append(step)
        live = [name for name in live if last.get(name, -1) > index]
    return steps


# A dot adds to the registers of the accumulator that it is given.
_IN_PLACE = (OpKind.POINTWISE, OpKind.CONVERT, OpKind.DOT)


def _operands_in_smem(graph: KernelGraph, nodes: Sequence[Node]) -> set[str]:
    """Loads whose every use is as an operand of a dot, directly or as a view."""
    users: dict[str, list[Node]] = {}
    for node in nodes:
        for source in node.inputs:
            users.setdefault(source, []).append(node)

    def only_dots(name: str, depth: int = 0) -> bool:
        found = users.get(name, [])
        return bool(found) and all(
            user.kind is OpKind.DOT
            or (
                user.kind is OpKind.VIEW and depth < 4 and only_dots(user.id, depth + 1)
            )
            for user in found
        )

    return {n.id for n in nodes if n.kind is OpKind.LOAD and only_dots(n.id)}


def _held_outside(graph: KernelGraph) -> dict[int, list[Node]]:
    """Values that enclosing regions keep while a region runs, without its operands."""
    held: dict[int, list[Node]] = {}
    for graph_id in sorted(graph.regions, reverse=True):
        region = graph.regions[graph_id]
        if region.parent is None or region.control is None:
            continue
        nodes = [graph.raw.nodes[i] for i in graph.raw.regions[region.parent].node_ids]
        position = next(i for i, n in enumerate(nodes) if n.id == region.control)
        last = _last_uses(nodes)
        owner = _storage(graph, nodes)
        passed = {owner.get(s, s) for s in nodes[position].inputs}
        kept = [
            node
            for node in nodes[:position]
            if owner[node.id] == node.id
            and node.id not in passed
            and last.get(node.id, -1) > position
            and _role(graph.raw, node) is not None
        ]
        held[graph_id] = [*held.get(region.parent, []), *kept]
    return held


def shapes_of(plan: LivePlan) -> Mapping[Column, int]:
    """Column index by tile, for tests that compare with Helion's own steps."""
    return {column: index for index, column in enumerate(plan.columns)}
