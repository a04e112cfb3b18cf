"""Registers a thread needs: live tiles by their layout, operands, addresses, loops.

The form follows from how code is made; the five shares below are fitted by hand to what
ptxas gave 7,573 configs of 18 kernel families on an H200 (sm90, ptxas 12.8), rounded to
one digit, and checked on 12 other families: docs/measurements/
2026-11-30-resource-estimates.md.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from costmodel.features.graph import KernelGraph
from costmodel.features.launch import Launch
from costmodel.features.launch import dot_result
from costmodel.features.launch import dot_warps
from costmodel.features.launch import is_group
from costmodel.features.layouts import Layout
from costmodel.features.layouts import dot_operand
from costmodel.features.liveness import LivePlan
from costmodel.features.ops import OpKind
from costmodel.features.ops import item_bytes
from costmodel.features.regions import RegionKind
from costmodel.features.scratch import places_in
from costmodel.features.staging import StagingPlan
from costmodel.features.symbols import Sizes
from costmodel.frozen import dataclass

# Registers before any tile: program id, strides, loop counters. A product also keeps
# descriptors of its operands.
_BASE, _BASE_DOT = 14.0, 23.0
# A persistent grid keeps the state of its outer loop.
_PERSISTENT, _PERSISTENT_DOT = 8.0, 14.0
# A reduction in chunks is a loop with a counter, bounds and carried partial results.
_ROLLED = 12.0
# Without a dot the compiler fuses elementwise chains, so that only part of what is
# alive between whole-tile operations sits in registers at once.
_FUSED_SHARE = 0.6
# Part of the addresses that is alive at once; two registers each.
_ADDRESS_SHARE, _ADDRESS_SHARE_DOT = 0.45, 0.5
# Operands of MMA that shared memory holds come step by step; of the others all at once.
_FRAGMENT_SHARE, _FRAGMENT_MOST = 0.5, 64.0
# What every further copy of an unrolled body adds.
_COPY_SHARE = 0.1
# Columns of one warp-group MMA (PTX ISA), and what its instruction needs beside the
# results: of 17 configs that ptxas 12.8 refused for registers and 310 that it took with
# a cap of at most 128, 25 to 28 tells 16 of the 17 from all the 310.
_GROUP_LEAST, _GROUP_MOST = 8.0, 256.0
_GROUP_BESIDE = 26.0

# Where ptxas 12.8 cannot hold a program in what a thread may have, it may keep to 32
# registers and put nearly all into local memory. Of the development families' configs
# so far over the cap, 26 of 37 with dots (two warps) and 23 of 27 without (two to 16
# warps) ended so; below, and with one warp, few did, and none at a cap of 64.
GIVEN_UP_REGISTERS = 32.0
_GIVES_UP, _GIVES_UP_DOT = 5.0, 2.0  # need over cap
_GIVES_UP_THREADS, _GIVES_UP_THREADS_DOT = (64.0, 512.0), (64.0, 64.0)


@dataclass(frozen=True, slots=True)
class RegisterNeed:
    """Registers of a thread, float64[n], not cut off at any limit.

    Attributes:
        whole: Of the whole program.
        in_loops: Inside loops; 0 for a kernel without one.
    """

    whole: Sizes
    in_loops: Sizes


def register_need(
    graph: KernelGraph, plan: StagingPlan, live: LivePlan, launch: Launch
) -> RegisterNeed:
    """Estimate registers of n configs."""
    n = launch.tiles.n
    has_dot = bool(graph.dots)
    words = _words(graph, live, launch)
    held = live.register_counts @ words
    loops = live.loop_counts @ words
    base = np.full(n, _BASE_DOT if has_dot else _BASE)
    base = base + launch.persistent * (_PERSISTENT_DOT if has_dot else _PERSISTENT)
    for is_rolled in launch.tiles.rolled.values():
        base = base + np.where(is_rolled, _ROLLED, 0.0)
    share = _ADDRESS_SHARE_DOT if has_dot else _ADDRESS_SHARE
    beside = share * _addresses(graph, launch) + _operands(plan, launch)
    fused = 1.0 if has_dot else _FUSED_SHARE
    copies = 1.0 + _COPY_SHARE * (_copies(launch) - 1.0)
    whole = base + (fused * held.max(axis=0) + beside) * copies
    in_loops = base + (fused * loops.max(axis=0) + beside) * copies
    has_loop = loops.max(axis=0) > 0.0
    return RegisterNeed(whole, np.where(has_loop, in_loops, 0.0))


def likely_registers(need: Sizes, cap: Sizes, threads: Sizes, has_dot: bool) -> Sizes:
    """Registers that ptxas is likely to give a thread: need, cap, or 32 (see above)."""
    ratio = _GIVES_UP_DOT if has_dot else _GIVES_UP
    least, most = _GIVES_UP_THREADS_DOT if has_dot else _GIVES_UP_THREADS
    gives_up = (need >= ratio * cap) & (cap > 2.0 * GIVEN_UP_REGISTERS)
    gives_up = gives_up & (threads >= least) & (threads <= most)
    found: Sizes = np.where(gives_up, GIVEN_UP_REGISTERS, np.minimum(need, cap))
    return found


def _words(graph: KernelGraph, live: LivePlan, launch: Launch) -> Sizes:
    """Registers that a thread needs for each tile of a plan: float64[columns, n]."""
    n = launch.tiles.n
    results = {
        (*dot.batch, dot.m, dot.n): dot_result(launch, dot) for dot in graph.dots
    }
    elements: dict[tuple[str, ...], Sizes] = {}
    table = np.empty((len(live.columns), n))
    for row, (shape, itemsize) in enumerate(live.columns):
        if shape not in elements:
            elements[shape] = _elements(shape, results, launch)
        table[row] = np.ceil(np.maximum(1.0, elements[shape]) * itemsize / 4.0)
    return table


def _elements(
    shape: tuple[str, ...],
    results: Mapping[tuple[str, ...], Layout],
    launch: Launch,
) -> Sizes:
    """Elements of a tile that one thread holds, repeated ones included."""
    if not shape:
        return np.ones(1)
    for tile, layout in results.items():
        places = places_in(shape, tile)
        if places is None:
            continue
        found = np.ones(1)
        for place in places:
            in_matrix = place - (len(tile) - 2)
            found = found * (
                _held(layout, (in_matrix,))
                if in_matrix >= 0
                else launch.tiles.dim(tile[place])
            )
        return found
    if len(shape) < launch.scratch.rank:
        for tile in launch.scratch.shapes:
            places = places_in(shape, tile)
            if len(tile) > len(shape) and places is not None:
                return _held(launch.scratch.main_layout(tile), places)
    return _held(launch.scratch.main_layout(shape), tuple(range(len(shape))))


def _held(layout: Layout, places: tuple[int, ...]) -> Sizes:
    """Elements in a thread along some dimensions."""
    count = np.zeros(1, dtype=np.int64)
    for place in places:
        count = count + np.bitwise_count(layout.registers[place])
    return np.exp2(count.astype(np.float64))


def _addresses(graph: KernelGraph, launch: Launch) -> Sizes:
    """Two registers for every vector of 16 bytes that a thread loads in a region."""
    worst = np.zeros(1)
    for graph_id, region in graph.regions.items():
        if region.kind not in (RegionKind.LOOP, RegionKind.ROOT):
            continue
        total = np.zeros(1)
        for index, access in enumerate(graph.accesses):
            if access.graph_id == graph_id and access.kind is OpKind.LOAD:
                size = launch.tiles.numel(access.shape) * access.itemsize
                each = 2.0 * np.ceil(size / launch.threads / 16.0)
                total = total + np.where(launch.uses_descriptor(index), 0.0, each)
        worst = np.maximum(worst, total)
    return worst


def _operands(plan: StagingPlan, launch: Launch) -> Sizes:
    """Registers of the operands that a dot does not read from shared memory."""
    stepwise, at_once, of_groups = np.zeros(1), np.zeros(1), np.zeros(1)
    for one in {d.dot.node_id: d for loop in plan.loops for d in loop.dots}.values():
        dot, group = one.dot, is_group(launch, one.dot)
        m, n, k = (launch.bits(part) for part in (dot.m, dot.n, dot.k))
        rows, columns = dot_warps(launch, dot)
        steps, whole = np.zeros(1), np.zeros(1)
        for side, (operand, size, warps) in enumerate(
            ((one.left, m, rows), (one.right, n, columns))
        ):
            layout = dot_operand(size, k, launch.warps, warps, side == 0)
            dtype = dot.lhs_dtype if side == 0 else dot.rhs_dtype
            words = _held(layout, (0, 1)) * item_bytes(dtype) / 4.0
            if operand.is_viewed and not operand.has_run_of_k:
                whole = whole + words
            else:
                steps = steps + words
            if side == 0 and not dot.lhs_loaded:
                of_groups = np.maximum(of_groups, np.where(group, words, 0.0))
        stepwise = np.maximum(stepwise, np.where(group, 0.0, steps))
        at_once = np.maximum(at_once, np.where(group, 0.0, whole))
    part = _FRAGMENT_SHARE * np.minimum(stepwise, _FRAGMENT_MOST)
    return part + at_once + of_groups


def _copies(launch: Launch) -> Sizes:
    """Largest number of copies of an unrolled loop's body."""
    most = np.ones(1)
    for loop in launch.loops.values():
        most = np.maximum(most, np.where(loop.is_loop, loop.copies, 1.0))
    return most


def instruction_registers(graph: KernelGraph, launch: Launch) -> Sizes:
    """Registers that the widest warp-group MMA takes at once; 0 without one.

    One instruction has 64 rows and up to 256 columns of 32-bit results over 128
    threads; the assembler cannot split it (PTX ISA, wgmma.mma_async).
    """
    most = np.zeros(1)
    if not launch.hardware.has_wgmma:
        return most
    for dot in graph.dots:
        # Rows take a warp for every 16; the others share the columns, even where all
        # warps then lie along rows and repeat each other's results.
        across = np.maximum(launch.warps - np.maximum(launch.bits(dot.m) - 4, 0), 0)
        columns = launch.tiles.dim(dot.n) / np.exp2(across.astype(np.float64))
        results = np.clip(columns, _GROUP_LEAST, _GROUP_MOST) / 2.0
        most = np.maximum(most, np.where(is_group(launch, dot), results, 0.0))
    return np.where(most > 0.0, most + _GROUP_BESIDE, 0.0)
