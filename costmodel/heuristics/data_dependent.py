"""Loops that data ends: jagged rows, segments, groups, gathers.

1. With products, the matrix lists decide, on the average size of a group.
2. Without, groups of unequal length must not wait for one another: one group a
   program, unless there are so many that programs would be tiny.
3. The longest group is alone on its SM in the end, and nothing else hides its loads: a
   trip of its loop alone keeps that SM's share of memory busy (Little's law).
4. Where columns are spread over programs, a program gets one line of memory of them, so
   that the longest group is shared by as many programs as can be; else a few lines.
5. The loop that data ends gets what is left of the tile, but not more than half an
   average group. Sums along it stay in their threads: more values each, fewer warps.
"""

from __future__ import annotations

from costmodel.hardware import Hardware
from costmodel.heuristics.drafts import Draft
from costmodel.heuristics.drafts import changed
from costmodel.heuristics.drafts import with_blocks
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.facts import power_above
from costmodel.heuristics.facts import power_below
from costmodel.heuristics.fill import LINE_BYTES
from costmodel.heuristics.fill import busy_bytes
from costmodel.heuristics.fill import knobs_of
from costmodel.heuristics.fill import programs_of
from costmodel.heuristics.fill import warps_for
from costmodel.heuristics.fill import work_elements
from costmodel.types import Config

_LEAST_TILE = 2048  # elements; 16 a thread of four warps
_MOST_TILE = 16384  # elements: 8 warps of 64 values, 16 of 32
_LANES = 256  # contiguous elements where a loop walks them: 512 bytes of bf16
_VALUES_PER_THREAD = 32
_GROUPS_PER_SM = 32  # as many one-group programs can be resident (CTA limit of sm90)
_IN_FLIGHT = 1.5  # times what an idle memory needs: latency grows under load


def propose_data_dependent(
    facts: Facts, base: Config, hardware: Hardware
) -> list[Draft]:
    """Ranked drafts for a kernel without products; the first is the pick."""
    usual = _usual_tile(facts, hardware)
    # A sum along the loop is exchanged between warps on every trip.
    values = _VALUES_PER_THREAD * (2 if facts.reduced else 1)
    drafts = []
    for share, wide, groups, per_thread in (
        (1.0, 1.0, 1, values),
        (1.0, 1.0, 1, values / 2),
        (0.5, 0.5, 1, values),
        (1.0, 2.0, 1, values),
        (1.0, 0.5, 1, values),
        (2.0, 2.0, 1, values),
        (0.25, 1.0, 1, values / 2),
        (0.5, 1.0, 2, values),
        (0.25, 0.25, 1, values / 4),
        (1.0, 1.0, 8, values),
    ):
        lanes = max(8.0, _lanes(facts) * wide)
        sizes = _sizes(facts, hardware, usual * share, lanes, groups)
        elements = _largest_tile(facts, sizes)
        num_warps = warps_for(elements, per_thread, most=16)
        config = changed(with_blocks(base, sizes), num_warps=num_warps)
        shape = " x ".join(str(sizes[k]) for k in sorted(sizes))
        reason = (
            f"{num_warps} warps: {shape} tile, groups of unequal length kept apart, "
            f"{programs_of(facts, sizes)} programs, {elements} elements in flight each"
        )
        drafts.append(Draft(config, reason))
    return drafts


def _usual_tile(facts: Facts, hardware: Hardware) -> float:
    """Elements of a trip whose loads keep one SM's share of memory busy."""
    item_bytes = max((a.item_bytes for a in facts.large_accesses()), default=4)
    elements = power_below(_IN_FLIGHT * busy_bytes(hardware) / item_bytes)
    return float(min(_MOST_TILE, max(_LEAST_TILE, elements)))


def _lanes(facts: Facts) -> float:
    """Contiguous elements of a program's tile."""
    inner = _lane_slot(facts)
    if inner is None or not facts.knobs[inner].on_grid:
        return _LANES
    item_bytes = max((a.item_bytes for a in facts.large_accesses()), default=4)
    return LINE_BYTES / item_bytes


def _largest_tile(facts: Facts, sizes: dict[int, int]) -> int:
    """Elements of the largest tile that is loaded, stored or computed at once."""
    largest = work_elements(facts, sizes)
    for access in facts.accesses:
        elements = 1
        for slot in knobs_of(access):
            elements *= sizes[slot]
        largest = max(largest, elements)
    return largest


def _sizes(
    facts: Facts, hardware: Hardware, tile: float, lanes: float, groups: int
) -> dict[int, int]:
    sizes = {knob.slot: knob.choices[0] for knob in facts.knobs}
    inner = _lane_slot(facts)
    left = tile
    if inner is not None:
        knob = facts.knobs[inner]
        sizes[inner] = knob.nearest(min(lanes, power_above(knob.extent)))
        left = max(1.0, left / sizes[inner])
    for knob in facts.grid_knobs:
        if knob.slot == inner:
            continue
        spare = knob.extent / (hardware.n_sms * _GROUPS_PER_SM)
        wanted = max(groups, power_below(spare))
        sizes[knob.slot] = knob.nearest(min(wanted, left))
        left = max(1.0, left / sizes[knob.slot])
    open_loops = [k for k in facts.loop_knobs if k.slot != inner]
    for knob in open_loops:
        # Loops inside one another share the tile, loops one after the other do not.
        nested = sum(_together(facts, knob.slot, other.slot) for other in open_loops)
        share = left ** (1.0 / max(1, nested))
        # An extent that data decides is twice the average. Half an average group: a
        # group's last chunk is half empty, and its lanes take time all the same.
        bound = power_above(knob.extent) if knob.certain else knob.extent // 4
        sizes[knob.slot] = knob.nearest(max(1, min(power_below(share), bound)))
    return sizes


def _together(facts: Facts, one: int, other: int) -> bool:
    """Whether some access spans both knobs; every knob is with itself."""
    if one == other:
        return True
    for access in facts.accesses:
        slots = {axis.knob for axis in access.axes if axis is not None}
        if {one, other} <= slots:
            return True
    return False


def _lane_slot(facts: Facts) -> int | None:
    """The knob that the most bytes are contiguous along, gathers included."""
    votes: dict[int, int] = {}
    for access in facts.accesses:
        axis = access.contiguous
        if axis is not None and axis.knob is not None:
            weight = 1 + 2 * access.in_loop + access.is_gather
            votes[axis.knob] = votes.get(axis.knob, 0) + weight
    if not votes:
        return None
    return max(votes, key=lambda slot: (votes[slot], slot))
