"""Traits of reductions and of loops that sum: along which axis, how often read."""

from __future__ import annotations

from collections import Counter

from costmodel.features.blocks import BlockKind
from costmodel.features.compute import Reduction
from costmodel.features.coverage import covered_elements
from costmodel.features.coverage import extent_of
from costmodel.features.coverage import host_extent
from costmodel.features.coverage import lane_axes
from costmodel.features.coverage import large_of_each_side
from costmodel.features.coverage import live_accesses
from costmodel.features.dataflow import CarryKind
from costmodel.features.dataflow import Dataflow
from costmodel.features.graph import KernelGraph
from costmodel.features.indices import DimKind
from costmodel.features.loops import BoundKind
from costmodel.features.memory import Access
from costmodel.features.ops import OpKind
from costmodel.features.trait_names import Trait

# Longest row that one program keeps in registers: 32 warps of 16 values a thread, the
# same limit as the decision list for reductions uses.
LONGEST_ROW = 16384
# Longest piece that counts as a group of a row: block formats scale 16 to 128 numbers
# together (OCP microscaling formats 1.0; DeepSeek-V3's 1 x 128 tiles), twice that here.
LONGEST_GROUP = 256


def reduction_traits(graph: KernelGraph, flow: Dataflow) -> set[Trait]:
    """Traits of reductions, scans and summing loops; empty without any."""
    reader = _Reader(graph, flow)
    found = reader.loop_traits()
    plain = [r for r in graph.reductions if not r.is_scan]
    if len(plain) < len(graph.reductions):
        found.add(Trait.SCAN)
    for reduction in plain:
        found |= reader.axis_traits(reduction)
    if reader.has_chain(plain):
        found.add(Trait.CHAINED_REDUCTIONS)
    sums = bool(graph.reductions) or Trait.LOOP_REDUCTION in found
    if sums or graph.dots:
        n_passes = reader.n_passes()
        if n_passes == 2:
            found.add(Trait.RE_READ)
        elif n_passes > 2:
            found.add(Trait.MULTI_PASS)
        elif sums and not graph.dots:
            found.add(Trait.SINGLE_PASS)
    return found


class _Reader:
    def __init__(self, graph: KernelGraph, flow: Dataflow) -> None:
        self.graph = graph
        self.flow = flow
        self.dot_ids = frozenset(dot.node_id for dot in graph.dots)
        self.loads = [a for a in live_accesses(graph) if a.kind is OpKind.LOAD]
        self.by_node = {access.node_id: access for access in self.loads}

    def over(self, reduction: Reduction) -> tuple[str, ...]:
        """Tile sizes that a reduction sums over."""
        if reduction.over:
            return reduction.over
        after = Counter(self.graph.raw.nodes[reduction.node_id].shape or ())
        return tuple((Counter(reduction.shape) - after).elements())

    def axis_traits(self, reduction: Reduction) -> set[Trait]:
        """Which axis it reduces, beside how memory is laid out."""
        found = set[Trait]()
        over = self.over(reduction)
        behind = self.flow.reach((reduction.node_id,), stop=self.dot_ids)
        feeding = [self.by_node[i] for i in behind if i in self.by_node]
        feeding = [a for a in feeding if set(over) & set(a.shape)]
        if not feeding:
            return found
        main = max(feeding, key=lambda a: covered_elements(self.graph, a))
        along = lane_axes(main)
        is_row = not along or along[0] in over
        found.add(Trait.ROW_REDUCTION if is_row else Trait.COLUMN_REDUCTION)
        longest = max(extent_of(self.graph, part) for part in over)
        if is_row and longest > LONGEST_ROW:
            found.add(Trait.LONG_ROWS)
        if self._is_group(main, over):
            found.add(Trait.GROUP_REDUCTION)
        if self._is_split(main, over):
            found.add(Trait.SPLIT_REDUCTION)
        return found

    def _is_group(self, main: Access, over: tuple[str, ...]) -> bool:
        """Whether the innermost axis is a short one of three: rows, groups, places."""
        if len(main.dims) < 3 or main.dims[-1].tile not in over:
            return False
        inner, outer = main.dims[-1], main.dims[-2]
        size = host_extent(self.graph, inner.size)
        follows = outer.stride == str(size) and inner.stride == "1"
        return follows and outer.unit is not None and size <= LONGEST_GROUP

    def _is_split(self, main: Access, over: tuple[str, ...]) -> bool:
        """Whether programs share the axis: its block is on the grid or cut by it."""
        for part in over:
            key = self.graph.by_symbol.get(part)
            if key is None:
                continue
            block = self.graph.blocks[key]
            if block.in_grid:
                return True
            for axes in self.graph.loops.values():
                for axis in axes:
                    if axis.block != key:
                        continue
                    if axis.bound is BoundKind.INSIDE:
                        return True
                    sizes = [
                        host_extent(self.graph, dim.size)
                        for dim in main.dims
                        if dim.kind is DimKind.TILE and part in dim.symbols
                    ]
                    free = axis.bound is BoundKind.FREE
                    if free and any(size >= 2 * axis.extent for size in sizes):
                        return True
        return False

    def has_chain(self, reductions: list[Reduction]) -> bool:
        """Whether one reduction of a whole row needs another's result."""
        whole = {
            r.node_id
            for r in reductions
            if all(not self._is_walked(part) for part in self.over(r))
        }
        return any(
            (self.flow.ancestors(node_id) - {node_id}) & whole for node_id in whole
        )

    def _is_walked(self, part: str) -> bool:
        key = self.graph.by_symbol.get(part)
        return key is not None and (
            self.graph.blocks[key].kind is not BlockKind.REDUCTION
        )

    def n_passes(self) -> int:
        """How often a matrix is read, or what else is large, loop after loop."""
        regions: dict[tuple[str, tuple[bool, ...]], set[int]] = {}
        large = set(large_of_each_side(self.graph))
        for access in self.loads:
            is_matrix = sum(part != "1" for part in access.shape) > 1
            if not is_matrix and access not in large:
                continue
            kinds = {dim.kind for dim in access.dims}
            if kinds & {DimKind.AFFINE, DimKind.CONST, DimKind.GATHER}:
                continue  # parts and shifts are other elements
            # Whole or in tiles is the same row.
            walked = tuple(d.kind in (DimKind.TILE, DimKind.SLICE) for d in access.dims)
            regions.setdefault((access.tensor, walked), set()).add(access.graph_id)
        return max((len(found) for found in regions.values()), default=0)

    def loop_traits(self) -> set[Trait]:
        """What loops carry, where no product explains it."""
        found = set[Trait]()
        kinds = {carry.loop: set[CarryKind]() for carry in self.flow.carries}
        for carry in self.flow.carries:
            kinds[carry.loop].add(carry.kind)
        for carry in self.flow.carries:
            behind = self.flow.ancestors(carry.update)
            nodes = [self.graph.raw.nodes[i] for i in behind]
            reduces = any(n.kind in (OpKind.REDUCTION, OpKind.SCAN) for n in nodes)
            exponential = any(n.op in ("exp", "exp2") for n in nodes)
            has_peak = CarryKind.EXTREME in kinds[carry.loop]
            if carry.kind is CarryKind.RESCALED and exponential and has_peak:
                found.add(Trait.ONLINE)
                continue
            if behind & self.dot_ids or reduces:
                continue
            if carry.kind in (CarryKind.SUM, CarryKind.EXTREME):
                found.add(Trait.LOOP_REDUCTION)
            elif carry.kind in (CarryKind.RESCALED, CarryKind.STATE):
                found.add(Trait.RECURRENCE)
        return found
