"""Kernels without reductions and products: every byte is moved once.

1. The axis along which memory is contiguous is filled first, so that a warp's loads
   are whole sectors; what is left of the budget goes to the other axes, inner first.
2. Two contiguous axes (a transposing copy) get a square tile: neither side may fall
   under a sector.
3. A tensor that is read at several offsets along an outer axis (a stencil) gets some
   rows of it, so that neighbours are read once from memory and then from L1.
4. Each thread gets two 16-byte vectors of the widest operand, or two runs where fewer
   bytes lie side by side, one where special functions dominate or elements are looked
   up one by one, and the grid gets four programs an SM where the data allows.
"""

from __future__ import annotations

import math

from costmodel.hardware import Hardware
from costmodel.heuristics.drafts import Draft
from costmodel.heuristics.drafts import changed
from costmodel.heuristics.drafts import with_blocks
from costmodel.heuristics.facts import Access
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.facts import power_above
from costmodel.heuristics.facts import power_below
from costmodel.heuristics.fill import LINE_BYTES
from costmodel.heuristics.fill import VECTOR_BYTES
from costmodel.heuristics.fill import fill
from costmodel.heuristics.fill import fixed_elements
from costmodel.heuristics.fill import knobs_of
from costmodel.heuristics.fill import programs_of
from costmodel.heuristics.fill import shrink_to_fill
from costmodel.heuristics.fill import tile_elements
from costmodel.heuristics.fill import warps_for
from costmodel.types import Config

_PROGRAMS_PER_SM = 4  # enough to balance, few enough to amortise a launch of each
_LEAST_TILE = 256  # elements; under two warps of 4 nothing is amortised
_LEAST_LANES = 32  # elements along the contiguous axis
_STENCIL_LANES = 128  # contiguous elements of a stencil's tile: 256 bytes of bf16
_SPECIAL_HEAVY = 3  # special functions an element that outweigh its bytes


def propose_pointwise(facts: Facts, base: Config, hardware: Hardware) -> list[Draft]:
    """Ranked drafts for a kernel that only moves and maps; the first is the pick."""
    main = facts.widest()
    if main is None or not facts.knobs:
        return [Draft(base, "4 warps: nothing to tile")]
    item_bytes = max(a.item_bytes for a in facts.large_accesses())
    vector = max(1, VECTOR_BYTES // item_bytes)
    squares = _transposing(facts)
    heavy = facts.n_special >= _SPECIAL_HEAVY
    run = _run(main, vector)
    # Pairs side by side (rotary): each load is 4 bytes. With 4 or 8 values a thread and
    # not 16 or 32, three shapes ran 2.1 to 5.8 times faster (H200, 2026-11).
    n_vectors = 1 if heavy else 2
    usual = 4 * 32 * run * n_vectors
    # Programs along axes that no knob drives share the work as well.
    whole = {knob.slot: knob.extent for knob in facts.knobs}
    work = tile_elements(main, whole) * facts.fixed_programs
    total = work / (hardware.n_sms * _PROGRAMS_PER_SM)
    budget = max(_LEAST_TILE, min(usual, power_below(total)))
    drafts = []
    for share in (1.0, 0.5, 2.0, 4.0, 0.25, 8.0):
        elements = max(64.0, budget * share)
        sizes = _sizes(facts, main, elements, squares)
        sizes = _with_loops(facts, main, sizes, elements, hardware, share)
        tile = tile_elements(main, sizes)
        per_thread = run if _looks_up(facts) else run * n_vectors
        if programs_of(facts, sizes) < hardware.n_sms * _PROGRAMS_PER_SM:
            per_thread = 1  # too few programs: threads must hide the latency instead
        num_warps = max(1, warps_for(tile, per_thread, most=16))
        config = changed(with_blocks(base, sizes), num_warps=num_warps)
        drafts.append(
            Draft(config, _words(facts, sizes, main, num_warps, tile, bool(squares)))
        )
        if share == 1.0:
            for other in (num_warps // 2, num_warps * 2):
                if 1 <= other <= 16:
                    each = tile / (32 * other)
                    drafts.append(
                        Draft(
                            changed(config, num_warps=other),
                            f"{other} warps: the same tile, {each:g} elements a thread",
                        )
                    )
    return drafts


def has_short_runs(facts: Facts) -> bool:
    """Whether fewer bytes lie side by side than one load of a thread can take."""
    main = facts.widest()
    if main is None:
        return False
    vector = max(1, VECTOR_BYTES // max(a.item_bytes for a in facts.large_accesses()))
    return _run(main, vector) < vector


def _looks_up(facts: Facts) -> bool:
    """Whether each element of a large load is a request of its own.

    Nothing is gained by more of them in one thread, and warps hide their latency: 4 a
    thread ran as fast as 8 or faster, 16 at 0.6 to 0.75 of it (H200, 2026-11).
    """
    return any(a.is_scattered and not a.is_store for a in facts.large_accesses())


def _run(main: Access, vector: int) -> int:
    """Elements side by side in memory that one load of a thread can take."""
    axis = main.contiguous
    if axis is not None and axis.knob is None and axis.extent < vector:
        return power_below(axis.extent)
    return vector


def _with_loops(
    facts: Facts,
    main: Access,
    sizes: dict[int, int],
    elements: float,
    hardware: Hardware,
    share: float,
) -> dict[int, int]:
    """Sizes for a kernel in which loops walk part of the work.

    Programs then come from the grid knobs alone, so those shrink until the SMs are
    busy: outer ones first, lanes down to one 128-byte line of fp32. A loop beside the
    main one gets a tile of its own.
    """
    if not facts.loop_slots:
        return sizes
    lane = facts.lane_slot()
    grid = [k.slot for k in facts.grid_knobs if k.slot != lane]
    grid += [lane] if lane is not None else []
    floors = {} if lane is None else {lane: _LEAST_LANES}
    wanted = hardware.n_sms * _PROGRAMS_PER_SM / share
    sizes = shrink_to_fill(facts, sizes, grid, wanted, floors)
    outer = max(1, tile_elements(main, sizes))
    for knob in facts.loop_knobs:
        if knob.slot in knobs_of(main):
            outer //= max(1, sizes[knob.slot])
    for knob in facts.loop_knobs:
        if knob.slot not in knobs_of(main):
            room = power_below(max(1.0, elements / max(1, outer)))
            sizes[knob.slot] = knob.nearest(min(room, power_above(knob.extent)))
    return sizes


def _transposing(facts: Facts) -> tuple[int, ...]:
    """Two knobs of one tile that are contiguous in different tensors, or none."""
    found: dict[int, None] = {}
    for access in facts.large_accesses():
        axis = access.contiguous
        if axis is not None and axis.knob is not None and len(knobs_of(access)) > 1:
            found.setdefault(axis.knob, None)
    return tuple(found) if len(found) == 2 else ()


def _sizes(
    facts: Facts, main: Access, elements: float, squares: tuple[int, ...]
) -> dict[int, int]:
    per_unit = fixed_elements(main)
    budget = max(1.0, elements / per_unit)
    if squares:
        side = power_above(math.sqrt(budget))
        sizes = fill(facts, squares[:1], side, {})
        return fill(
            facts, squares[1:], budget / sizes[squares[0]], sizes_of(sizes, squares)
        )
    lane = facts.lane_slot()
    inner = [] if lane is None else [lane]
    if lane is not None and per_unit > 1:
        # Lines of memory that lie apart, such as rows of a page: two each. 64 bytes
        # were 0.74 of 256, 128 bytes 0.93 (H200, 2026-11).
        budget = max(budget, 2 * LINE_BYTES / main.item_bytes)
    stencil = facts.stencil_slot()
    if lane is not None and stencil is not None and budget >= 4 * _STENCIL_LANES:
        # 32 x 128 instead of 1 x 2048 was 1.2 to 1.7 (four taps, H200, 2026-11).
        rows = facts.knobs[stencil].nearest(min(16.0, budget / _STENCIL_LANES))
        return fill(facts, [lane], budget / rows, {stencil: rows})
    rest = [slot for slot in knobs_of(main) if slot not in inner]
    others = [
        k.slot
        for k in (*facts.grid_knobs, *facts.loop_knobs)
        if k.slot not in inner and k.slot not in rest
    ]
    return fill(facts, [*inner, *rest, *others], budget, {})


def sizes_of(sizes: dict[int, int], slots: tuple[int, ...]) -> dict[int, int]:
    """The first of the given slots' sizes, to keep while the second is filled."""
    return {slots[0]: sizes[slots[0]]}


def _words(
    facts: Facts,
    sizes: dict[int, int],
    main: Access,
    num_warps: int,
    tile: int,
    square: bool,
) -> str:
    shape = " x ".join(str(sizes[k]) for k in sorted(sizes))
    how = (
        "square, both sides contiguous somewhere" if square else "contiguous axis first"
    )
    per_thread = tile / (32 * num_warps)
    return (
        f"{num_warps} warps: {shape} tile, {how}, {per_thread:g} elements a thread, "
        f"{programs_of(facts, sizes)} programs"
    )
