"""Read the decision lists' facts off a kernel graph, with or without a ConfigSpace."""

from __future__ import annotations

import math
from dataclasses import replace

from costmodel.config_space import ConfigSpace
from costmodel.features.blocks import Block
from costmodel.features.blocks import BlockKind
from costmodel.features.classify import classify
from costmodel.features.compute import Dot as GraphDot
from costmodel.features.effective import range_slots
from costmodel.features.emission import EmittedAccess
from costmodel.features.emission import emitted_accesses
from costmodel.features.graph import KernelGraph
from costmodel.features.indices import DimKind
from costmodel.features.loops import BoundKind
from costmodel.features.ops import OpKind
from costmodel.features.ops import is_float8
from costmodel.features.ops import item_bytes
from costmodel.features.ops import math_dtype
from costmodel.features.regions import RegionKind
from costmodel.features.symbols import literal
from costmodel.features.symbols import names_in
from costmodel.features.symbols import next_power_of_2
from costmodel.heuristics.facts import Access
from costmodel.heuristics.facts import Axis
from costmodel.heuristics.facts import Dot
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.facts import Knob
from costmodel.heuristics.facts import Maps
from costmodel.types import KernelClass

_NOT_CONTIGUOUS = -1  # as a stride


def read_facts(graph: KernelGraph, space: ConfigSpace | None = None) -> Facts:
    """Everything a decision list looks at.

    Args:
        graph: The kernel.
        space: Legal values; without it, powers of two up to each extent.
    """
    knobs = _knobs(graph, space)
    roots = graph.root_ids()
    whole = _facts(graph, knobs, roots)
    if len(roots) > 1:
        parts = tuple(_facts(graph, knobs, (root,)) for root in roots)
        whole = replace(whole, parts=parts)
    return whole


def within(facts: Facts, graph: KernelGraph, space: ConfigSpace) -> Facts:
    """What `read_facts` gives with a space, from what it gives without one."""
    knobs = _knobs(graph, space)
    parts = tuple(replace(part, knobs=knobs) for part in facts.parts)
    return replace(facts, knobs=knobs, parts=parts)


def _facts(
    graph: KernelGraph, knobs: tuple[Knob, ...], roots: tuple[int, ...]
) -> Facts:
    """Facts of some of a kernel's grid bodies."""
    grid_slots, n_ranges = range_slots(graph)
    inside = {g for g, region in graph.regions.items() if region.root in roots}
    return Facts(
        kernel_class=KernelClass(classify(graph)),
        knobs=knobs,
        row_extents=tuple(graph.blocks[k].extent for k in graph.reduction_blocks),
        reduced=_reduced(graph, inside),
        dots=tuple(
            _dot(graph, dot)
            for dot in sorted(graph.dots, key=lambda dot: dot.graph_id)
            if dot.graph_id in inside
        ),
        maps=_maps(graph, inside),
        accesses=tuple(
            access
            for entry in emitted_accesses(graph)
            if entry.access is not None
            and entry.access.graph_id in inside
            and (access := _access(graph, entry)) is not None
        ),
        fixed_programs=_fixed_programs(graph, roots),
        work_slots=_work_slots(graph, inside),
        active=_active(graph, inside),
        parts=(),
        n_special=sum(op.special and op.graph_id in inside for op in graph.elementwise),
        loop_slots=tuple(i for i in range(n_ranges) if i not in grid_slots),
        grid_slots=grid_slots,
    )


def _knobs(graph: KernelGraph, space: ConfigSpace | None) -> tuple[Knob, ...]:
    listed = space.knobs.get("block_sizes") if space is not None else None
    minimum = _smallest_dot_sides(graph)
    knobs = []
    for slot, key in enumerate(graph.tunable_blocks):
        block = graph.blocks[key]
        if listed is not None and slot < len(listed.slots):
            choices = listed.slots[slot]
            searched = tuple(int(v) for v in choices.choices)
            legal = tuple(sorted({*searched, *(int(v) for v in choices.extra)}))
        else:
            low = minimum.get(key, 1)
            high = max(low, next_power_of_2(block.extent))
            legal = tuple(
                1 << e for e in range(low.bit_length() - 1, high.bit_length())
            )
            searched = legal
        knobs.append(
            Knob(
                slot=slot,
                extent=_extent(block),
                certain=block.extent_known,
                on_grid=block.in_grid,
                choices=legal,
                searched=searched,
            )
        )
    inside = _inside(graph)
    return tuple(
        replace(knob, inside=outer)
        if (outer := inside.get(knob.slot)) is not None
        # A loop that Helion does not bound by the tile may be searched beyond it.
        and knob.choices[-1] == knobs[outer].choices[-1]
        else knob
        for knob in knobs
    )


def _inside(graph: KernelGraph) -> dict[int, int]:
    """Outer slot of each knob that walks a tile of another knob."""
    found: dict[int, int] = {}
    for axes in graph.loops.values():
        for axis in axes:
            if axis.outer is None or axis.bound is BoundKind.FREE:
                continue
            inner, outer = graph.blocks[axis.block], graph.blocks[axis.outer]
            if (
                inner.kind is outer.kind is BlockKind.TUNABLE
                and inner.slot != outer.slot
            ):
                assert inner.slot is not None and outer.slot is not None
                found[inner.slot] = outer.slot
    return found


def _smallest_dot_sides(graph: KernelGraph) -> dict[int, int]:
    """Helion's least depth of a dot on CUDA: 16 elements, 32 of one byte."""
    found: dict[int, int] = {}
    for dot in graph.dots:
        key = graph.by_symbol.get(dot.k)
        if key is not None:
            found[key] = 32 if item_bytes(dot.lhs_dtype) == 1 else 16
    return found


def axis_of(graph: KernelGraph, text: str) -> Axis:
    """The axis that a size in text stands for."""
    number = literal(text)
    if number is not None:
        return Axis(None, None, max(1, number), next_power_of_2(number), True)
    key = graph.by_symbol.get(text)
    if key is None:
        names = [n for n in sorted(names_in(text)) if n in graph.by_symbol]
        if not names:
            hint = graph.size_hints.get(text, 1)
            return Axis(None, None, max(1, hint), next_power_of_2(hint), False)
        # A multiple of a tile, such as two packed values: as its tile, but uncertain.
        inner = axis_of(graph, names[0])
        return Axis(inner.knob, inner.loop, inner.extent, inner.tile, False)
    return _block_axis(graph, graph.blocks[key])


def _extent(block: Block) -> int:
    """Elements a loop walks; where data decides, twice the average, since half of all
    groups are larger than that."""
    return max(1, block.extent if block.extent_known else 2 * block.extent)


def _block_axis(graph: KernelGraph, block: Block) -> Axis:
    extent = _extent(block)
    if block.kind is BlockKind.TUNABLE:
        return Axis(
            block.slot, None, extent, next_power_of_2(extent), block.extent_known
        )
    if block.kind is BlockKind.REDUCTION:
        return Axis(None, block.slot, extent, next_power_of_2(extent), True)
    if block.kind is BlockKind.FIXED:
        size = block.fixed_size if block.fixed_size is not None else min(extent, 64)
        return Axis(None, None, extent, next_power_of_2(size), block.extent_known)
    return Axis(None, None, extent, 1, block.extent_known)


def _dot(graph: KernelGraph, dot: GraphDot) -> Dot:
    in_loop = any(
        graph.regions[g].kind is RegionKind.LOOP for g in graph.enclosing(dot.graph_id)
    )
    widest = max(dot.lhs_dtype, dot.rhs_dtype, key=item_bytes)
    return Dot(
        m=axis_of(graph, dot.m),
        n=axis_of(graph, dot.n),
        k=axis_of(graph, dot.k),
        batch=tuple(axis_of(graph, text) for text in dot.batch),
        lhs_bytes=item_bytes(dot.lhs_dtype),
        rhs_bytes=item_bytes(dot.rhs_dtype),
        rate=math_dtype(widest),
        is_fp8=is_float8(dot.lhs_dtype) and is_float8(dot.rhs_dtype),
        carries=dot.carried,
        rescaled=dot.rescaled,
        in_loop=in_loop,
    )


def _access(graph: KernelGraph, entry: EmittedAccess) -> Access | None:
    access = entry.access
    if access is None:
        return None
    axes: list[Axis | None] = []
    for dim in access.dims:
        if dim.kind in (DimKind.TILE, DimKind.SLICE):
            axes.append(axis_of(graph, dim.tile))
        elif dim.unit is not None:
            axes.append(axis_of(graph, dim.unit))
        elif dim.kind is DimKind.GATHER and dim.tile in graph.by_symbol:
            axes.append(axis_of(graph, dim.tile))
        else:
            axes.append(None)
    # Neighbours of a gathered index are nowhere near each other in memory.
    strides = tuple(
        _NOT_CONTIGUOUS
        if dim.kind is DimKind.GATHER and dim.unit is None
        else literal(dim.stride) or 0
        for dim in access.dims
    )
    return Access(
        tensor=access.tensor,
        is_store=access.kind is not OpKind.LOAD,
        item_bytes=access.itemsize,
        axes=tuple(axes),
        strides=strides,
        is_gather=access.gathers,
        is_scattered=any(
            dim.kind in (DimKind.GATHER, DimKind.AFFINE)
            and dim.unit is None
            and dim.stride == "1"
            and dim.tile in graph.by_symbol
            for dim in access.dims
        ),
        shifted=frozenset(
            axis.knob
            for dim, axis in zip(access.dims, axes, strict=True)
            if dim.kind is DimKind.AFFINE and dim.unit and axis is not None
            if axis.knob is not None
        ),
        indexing_slot=None if access.kind is OpKind.ATOMIC else entry.indexing_slot,
        eviction_slot=entry.eviction_slot,
        in_loop=graph.regions[access.graph_id].kind is RegionKind.LOOP,
    )


def _maps(graph: KernelGraph, inside: set[int]) -> tuple[Maps, ...]:
    """Operations by element of some regions, added up by tile and by loops around."""
    around: dict[int, frozenset[int]] = {}
    counts: dict[tuple[tuple[Axis, ...], frozenset[int]], list[int]] = {}
    for op in graph.elementwise:
        if op.graph_id not in inside:
            continue
        if op.graph_id not in around:
            around[op.graph_id] = _slots_around(graph, op.graph_id)
        axes = tuple(axis_of(graph, text) for text in op.shape)
        count = counts.setdefault((axes, around[op.graph_id]), [0, 0])
        count[int(op.special)] += 1
    return tuple(
        Maps(axes, slots, plain, special)
        for (axes, slots), (plain, special) in counts.items()
    )


def _slots_around(graph: KernelGraph, graph_id: int) -> frozenset[int]:
    """Slots of all knobs whose grid or loops repeat a region."""
    slots = {
        graph.blocks[axis.block].slot
        for region in graph.enclosing(graph_id)
        for axis in graph.loops.get(region, ())
        if graph.blocks[axis.block].kind is BlockKind.TUNABLE
    }
    return frozenset(slot for slot in slots if slot is not None)


def _active(graph: KernelGraph, inside: set[int]) -> frozenset[int]:
    """Slots of `block_sizes` whose loops are among these regions."""
    found = set()
    for graph_id, axes in graph.loops.items():
        if graph_id in inside:
            found |= {graph.blocks[axis.block].slot for axis in axes}
    slots = {
        block.slot
        for block in graph.blocks
        if block.kind is BlockKind.TUNABLE and block.slot in found
    }
    return frozenset(slot for slot in slots if slot is not None)


def _work_slots(graph: KernelGraph, inside: set[int]) -> tuple[int, ...]:
    """Knobs that the tile of arithmetic with the most axes spans."""
    best: tuple[int, ...] = ()
    for op in graph.elementwise:
        if op.graph_id in inside:
            axes = [axis_of(graph, text) for text in op.shape]
            slots = tuple(a.knob for a in axes if a.knob is not None)
            best = max(best, slots, key=len)
    return best


def _reduced(graph: KernelGraph, inside: set[int]) -> tuple[Axis, ...]:
    found: dict[Axis, None] = {}
    for reduction in graph.reductions:
        if not reduction.is_scan and reduction.graph_id in inside:
            for text in reduction.over:
                found.setdefault(axis_of(graph, text), None)
    return tuple(found)


def _fixed_programs(graph: KernelGraph, roots: tuple[int, ...]) -> int:
    """Programs that no knob can change: `hl.grid` axes and tiles of fixed size."""
    programs = 1
    for root in roots:
        here = 1
        for part in graph.loops.get(root, ()):
            block = graph.blocks[part.block]
            if block.kind is BlockKind.GRID:
                here *= max(1, part.extent)
            elif block.kind is BlockKind.FIXED and block.fixed_size:
                here *= math.ceil(part.extent / block.fixed_size)
        programs = max(programs, here)
    return programs
