"""Loops that data ends: jagged rows, segments, groups, gathers.

1. With products, the matrix lists decide, on the average size of a group.
2. Without, groups of unequal length must not wait for one another: one group a
   program, unless there are so many that programs would be tiny.
3. The longest group, several times the average, is alone on its SM in the end: its
   trips, one memory latency each, decide. So a trip takes many rows, up to two average
   groups or 128, and as many lanes beside them as keep memory busy (Little's law).
4. Where columns are spread over programs, a program gets one line of memory of them, so
   that the longest group is shared by as many programs as can be.
5. How much a thread takes depends on what becomes of it: of sums that stream by, 256
   values; of values that wait for a maximum, 128 bytes; of maps, 64 values; of elements
   that are looked up one by one, 32, for each has an address and a mask of its own.
"""

from __future__ import annotations

from costmodel.frozen import dataclass
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

_MOST_ROWS = 128  # of a trip: 64 were 1.2 to 2.6 times slower, 256 no faster (H200)
_STREAMED_VALUES = 256  # a thread; 128 of fp32 were 0.95 of it (H200, 2026-11)
_WAITING_BYTES = 128  # a thread
_MAPPED_VALUES = 64  # a thread
_LOOKED_UP_VALUES = 32  # a thread; 64 were 0.5 to 0.6 of it (H200, 2026-11)
_LOOKED_UP_TILE = 4096  # elements: 4 warps of 32
_MOST_TILE = 65536  # elements of a sum that streams: 128 KiB of bf16
_MOST_HELD = 32768  # elements of another tile: 16 warps of 64 values
_GROUPS_PER_SM = 32  # as many one-group programs can be resident (CTA limit of sm90)
# Times what an idle memory needs (Little's law): latency grows under load, a group's
# last chunk is half empty, and nothing is in flight while a chunk is summed.
_IN_FLIGHT = 6.0


@dataclass(frozen=True, slots=True)
class _Kind:
    """What becomes of loaded values, and so how many a program takes at once.

    Attributes:
        tile: Elements of a trip.
        per_thread: Values of a thread.
        words: For the reason.
    """

    tile: float
    per_thread: float
    words: str


def propose_data_dependent(
    facts: Facts, base: Config, hardware: Hardware
) -> list[Draft]:
    """Ranked drafts for a kernel without products; the first is the pick."""
    kind = _kind(facts, hardware)
    drafts = []
    for share, longer, groups, fuller in (
        (1.0, 1.0, 1, 1.0),
        (0.5, 0.5, 1, 1.0),
        (1.0, 1.0, 1, 0.5),
        (1.0, 0.5, 1, 1.0),
        (2.0, 2.0, 1, 1.0),
        (0.25, 0.5, 1, 0.5),
        (0.5, 1.0, 2, 1.0),
        (0.5, 1.0, 1, 1.0),
        (0.25, 0.25, 1, 0.25),
        (1.0, 1.0, 8, 1.0),
    ):
        sizes = _sizes(facts, hardware, kind.tile * share, longer, groups)
        elements = _largest_tile(facts, sizes)
        num_warps = _warps(elements, kind.per_thread * fuller)
        config = changed(with_blocks(base, sizes), num_warps=num_warps)
        shape = " x ".join(str(sizes[k]) for k in sorted(sizes))
        reason = (
            f"{num_warps} warps: {shape} tile, groups of unequal length kept apart, "
            f"{programs_of(facts, sizes)} programs, {elements / (32 * num_warps):g} "
            f"values a thread, {kind.words}"
        )
        drafts.append(Draft(config, reason))
    return drafts


def _warps(elements: int, per_thread: float) -> int:
    """Warps by values a thread, four at least where each thread still gets 128."""
    warps = warps_for(elements, per_thread, most=16)
    return max(warps, 4) if elements >= 4 * 32 * 128 else warps


def _kind(facts: Facts, hardware: Hardware) -> _Kind:
    item_bytes = max((a.item_bytes for a in facts.large_accesses()), default=4)
    if any(a.in_loop and a.is_gather and not a.is_store for a in facts.accesses):
        words = "each element looked up"
        return _Kind(float(_LOOKED_UP_TILE), float(_LOOKED_UP_VALUES), words)
    busy = power_below(_IN_FLIGHT * busy_bytes(hardware) / item_bytes)
    if facts.reduced and not _waits(facts):
        tile = float(min(busy, _MOST_TILE))
        return _Kind(tile, float(_STREAMED_VALUES), "sums stream by")
    tile = float(min(busy, _MOST_HELD))
    if facts.reduced:
        return _Kind(tile, _WAITING_BYTES / item_bytes, "values wait for a maximum")
    return _Kind(tile, float(_MAPPED_VALUES), "loads in flight keep memory busy")


def _waits(facts: Facts) -> bool:
    """Whether a loop's values are needed once more after they were reduced, as those of
    which an exponential is taken."""
    slots = {knob.slot for knob in facts.loop_knobs if not knob.certain}
    return any(
        maps.n_special and slots & {axis.knob for axis in maps.axes}
        for maps in facts.maps
    )


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
    facts: Facts, hardware: Hardware, tile: float, longer: float, groups: int
) -> dict[int, int]:
    sizes = {knob.slot: knob.choices[0] for knob in facts.knobs}
    inner = _lane_slot(facts)
    lanes = None if inner is None else facts.knobs[inner]
    item_bytes = max((a.item_bytes for a in facts.large_accesses()), default=4)
    line = LINE_BYTES // item_bytes
    left = tile
    if lanes is not None:
        sizes[lanes.slot] = lanes.nearest(min(line, power_above(lanes.extent)))
        left = max(1.0, left / sizes[lanes.slot])
    for knob in facts.grid_knobs:
        if knob is lanes:
            continue
        spare = knob.extent / (hardware.n_sms * _GROUPS_PER_SM)
        wanted = max(groups, power_below(spare))
        sizes[knob.slot] = knob.nearest(min(wanted, left))
        left = max(1.0, left / sizes[knob.slot])
    open_loops = [k for k in facts.loop_knobs if k is not lanes]
    rows = 1.0
    for knob in open_loops:
        # Loops inside one another share the tile, loops one after the other do not.
        nested = sum(_together(facts, knob.slot, other.slot) for other in open_loops)
        share = left ** (1.0 / max(1, nested))
        # An extent that data decides is twice the average.
        bound = min(power_above(knob.extent), _MOST_ROWS * longer)
        sizes[knob.slot] = knob.nearest(max(1, min(power_below(share), bound)))
        rows = max(rows, float(sizes[knob.slot]) ** nested)
    if lanes is not None and not lanes.on_grid:
        room = sizes[lanes.slot] * power_below(left / rows)
        sizes[lanes.slot] = lanes.nearest(min(room, power_above(lanes.extent)))
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
