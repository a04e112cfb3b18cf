"""The loop nest as a kernel author reads it: what is walked, how often, by what."""

from __future__ import annotations

import enum

from costmodel.features.blocks import Block
from costmodel.features.blocks import BlockKind
from costmodel.features.coverage import live_accesses
from costmodel.features.dataflow import Carry
from costmodel.features.dataflow import Dataflow
from costmodel.features.dataflow import carries_by_loop
from costmodel.features.graph import KernelGraph
from costmodel.features.loops import BoundKind
from costmodel.features.loops import LoopAxisFact
from costmodel.features.program_order import program_order
from costmodel.features.regions import RegionKind
from costmodel.features.symbols import names_in
from costmodel.frozen import dataclass


class TripKind(enum.StrEnum):
    """What is known of how often a loop runs before launch."""

    EXACT = "exact"
    """Shapes and the config decide."""
    BOUNDED = "bounded"
    """Between one and the outer axis's number, trip by trip another."""
    UNKNOWN = "unknown"
    """Memory decides; an even split of what there is stands in."""


@dataclass(frozen=True, slots=True)
class AxisFact:
    """One axis of a grid or loop.

    Attributes:
        block: Key of its block.
        driver: What sizes its tile: a knob such as `block_sizes[0]`, or "fixed".
        extent: Elements it walks; of a bounded one, at most.
        trips: What is known of how often it runs.
        bound: What decides its range.
        outer: Key of the block whose tile bounds it, or None.
    """

    block: int
    driver: str
    extent: int
    trips: TripKind
    bound: BoundKind
    outer: int | None


@dataclass(frozen=True, slots=True)
class NestLevel:
    """One grid body, loop, branch or rolled reduction.

    Attributes:
        graph_id: Helion's id of the region, or None for a rolled reduction.
        depth: Loops and branches around it, 0 for a grid.
        kind: "grid", "loop", "branch", "while" or "reduction".
        axes: Its axes, outermost first.
        carries: What it carries from trip to trip.
    """

    graph_id: int | None
    depth: int
    kind: str
    axes: tuple[AxisFact, ...]
    carries: tuple[Carry, ...]


@dataclass(frozen=True, slots=True)
class KnobFact:
    """What one entry of a list knob drives.

    Attributes:
        knob: Such as `block_sizes[1]` or `reduction_loops[0]`.
        block: Key of the block that it sizes.
        extent: Elements of its axis; a stand-in where memory decides.
        is_known: Whether shapes decide the extent.
        place: "grid" where it spreads programs, "loop" where a loop walks it,
            "reduction" where it cuts a whole row into chunks, "tile" elsewhere.
        walks: Dimensions of tensors that it tiles, as (tensor, dimension from 0).
        sides: Sides of products that it tiles, as (product from 0, "m", "n", "k" or
            "batch").
    """

    knob: str
    block: int
    extent: int
    is_known: bool
    place: str
    walks: tuple[tuple[str, int], ...]
    sides: tuple[tuple[int, str], ...]


_KINDS = {
    RegionKind.ROOT: "grid",
    RegionKind.LOOP: "loop",
    RegionKind.BRANCH: "branch",
    RegionKind.WHILE: "while",
}


def read_nest(graph: KernelGraph, flow: Dataflow) -> tuple[NestLevel, ...]:
    """All levels in program order; a rolled reduction stands after its grid bodies."""
    carries = carries_by_loop(flow.carries)
    order = dict.fromkeys(g for g, _ in program_order(graph.raw, graph.regions))
    levels = [
        NestLevel(
            graph_id=graph_id,
            depth=len(graph.enclosing(graph_id)) - 1,
            kind=_KINDS[graph.regions[graph_id].kind],
            axes=tuple(_axis(graph, axis) for axis in graph.loops.get(graph_id, ())),
            carries=carries.get(graph_id, ()),
        )
        for graph_id in order
        if graph.regions[graph_id].kind in _KINDS
    ]
    rolled = [
        NestLevel(None, 1, "reduction", (_rolled_axis(graph.blocks[key]),), ())
        for key in graph.reduction_blocks
    ]
    return (*levels, *rolled)


def _axis(graph: KernelGraph, axis: LoopAxisFact) -> AxisFact:
    return AxisFact(
        block=axis.block,
        driver=driver_of(graph.blocks[axis.block]),
        extent=axis.extent,
        trips=_trips(axis),
        bound=axis.bound,
        outer=axis.outer,
    )


def _trips(axis: LoopAxisFact) -> TripKind:
    if axis.bound is BoundKind.DATA or not axis.known:
        return TripKind.UNKNOWN
    if axis.bound is BoundKind.PREFIX:
        return TripKind.BOUNDED
    return TripKind.EXACT


def _rolled_axis(block: Block) -> AxisFact:
    return AxisFact(
        block=block.key,
        driver=driver_of(block),
        extent=block.extent,
        trips=TripKind.EXACT,
        bound=BoundKind.FREE,
        outer=None,
    )


def driver_of(block: Block) -> str:
    """The knob that sizes a block, or "fixed"."""
    if block.kind is BlockKind.TUNABLE:
        return f"block_sizes[{block.slot}]"
    if block.kind is BlockKind.REDUCTION and block.slot is not None:
        return f"reduction_loops[{block.slot}]"
    return "fixed"


def read_knobs(graph: KernelGraph) -> tuple[KnobFact, ...]:
    """What each entry of `block_sizes` and of `reduction_loops` drives, in order."""
    blocks = [graph.blocks[key] for key in graph.tunable_blocks]
    blocks += [graph.blocks[key] for key in graph.reduction_blocks]
    return tuple(_knob(graph, block) for block in blocks)


def _knob(graph: KernelGraph, block: Block) -> KnobFact:
    own = {symbol for symbol, key in graph.by_symbol.items() if key == block.key}
    walks = [
        (access.tensor, index)
        for access in live_accesses(graph)
        for index, dim in enumerate(access.dims)
        if dim.symbols & own
    ]
    sides = [
        (index, side)
        for index, dot in enumerate(graph.dots)
        for side, texts in (
            ("batch", dot.batch),
            ("m", (dot.m,)),
            ("n", (dot.n,)),
            ("k", (dot.k,)),
        )
        if any(names_in(text) & own for text in texts)
    ]
    return KnobFact(
        knob=driver_of(block),
        block=block.key,
        extent=block.extent,
        is_known=block.extent_known,
        place=_place(graph, block),
        walks=tuple(dict.fromkeys(walks)),
        sides=tuple(sides),
    )


def _place(graph: KernelGraph, block: Block) -> str:
    if block.kind is BlockKind.REDUCTION:
        return "reduction"
    if block.in_grid:
        return "grid"
    walked = any(a.block == block.key for axes in graph.loops.values() for a in axes)
    return "loop" if walked else "tile"
