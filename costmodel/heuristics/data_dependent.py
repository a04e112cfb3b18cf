"""Loops that data ends: jagged rows, segments, groups, gathers.

1. With products, the matrix lists decide, on the average size of a group.
2. Without, groups of unequal length must not wait for one another: one group a
   program, unless there are so many that programs would be tiny.
3. The contiguous axis gets whole sectors, and the loop that data ends gets what is
   left of a tile of 4096 elements, but not more than twice an average group.
"""

from __future__ import annotations

from costmodel.hardware import Hardware
from costmodel.heuristics.drafts import Draft
from costmodel.heuristics.drafts import changed
from costmodel.heuristics.drafts import with_blocks
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.facts import power_above
from costmodel.heuristics.facts import power_below
from costmodel.heuristics.fill import programs_of
from costmodel.heuristics.fill import warps_for
from costmodel.types import Config

_TILE = 4096  # elements of a program's tile
_LANES = 128  # contiguous elements: 256 bytes of bf16, 512 of fp32
_GROUPS_PER_SM = 32  # as many one-group programs can be resident (CTA limit of sm90)


def propose_data_dependent(
    facts: Facts, base: Config, hardware: Hardware
) -> list[Draft]:
    """Ranked drafts for a kernel without products; the first is the pick."""
    drafts = []
    for tile, lanes, groups, per_thread in (
        (_TILE, _LANES, 1, 32),
        (_TILE, _LANES, 1, 16),
        (_TILE, 2 * _LANES, 1, 32),
        (_TILE // 2, _LANES, 1, 16),
        (2 * _TILE, _LANES, 1, 32),
        (_TILE, _LANES // 2, 1, 32),
        (_TILE, _LANES, 2, 32),
        (_TILE // 4, _LANES // 4, 1, 8),
        (4 * _TILE, 4 * _LANES, 1, 32),
        (_TILE, _LANES, 8, 32),
    ):
        sizes = _sizes(facts, hardware, tile, lanes, groups)
        elements = 1
        for size in sizes.values():
            elements *= size
        num_warps = warps_for(elements, per_thread, most=16)
        config = changed(with_blocks(base, sizes), num_warps=num_warps)
        shape = " x ".join(str(sizes[k]) for k in sorted(sizes))
        reason = (
            f"{num_warps} warps: {shape} tile, groups of unequal length kept apart, "
            f"{programs_of(facts, sizes)} programs"
        )
        drafts.append(Draft(config, reason))
    return drafts


def _sizes(
    facts: Facts, hardware: Hardware, tile: int, lanes: int, groups: int
) -> dict[int, int]:
    sizes = {knob.slot: knob.choices[0] for knob in facts.knobs}
    inner = _lane_slot(facts)
    left = float(tile)
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
        bound = power_above(knob.extent)
        sizes[knob.slot] = knob.nearest(min(power_below(share), bound))
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
