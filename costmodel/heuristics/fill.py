"""Spread a budget of elements over a tile's knobs, those that coalesce first."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

from costmodel.hardware import Hardware
from costmodel.heuristics.facts import Access
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.facts import power_above
from costmodel.heuristics.facts import power_below
from costmodel.heuristics.tiles import MEMORY_LATENCY_US

VECTOR_BYTES = 16  # widest load of one thread
SECTOR_BYTES = 32  # least that memory moves (CUDA programming guide)
LINE_BYTES = 128  # of L2 and of a DRAM burst


def fill(
    facts: Facts, order: Sequence[int], budget: float, fixed: Mapping[int, int]
) -> dict[int, int]:
    """Give each knob of `order` as much of the budget as its extent takes.

    Args:
        facts: The kernel.
        order: Slots, the one to fill first in front.
        budget: Elements of the tile that these knobs span together.
        fixed: Sizes already decided; every other slot gets its smallest.
    """
    sizes = {knob.slot: knob.choices[0] for knob in facts.knobs}
    sizes.update(fixed)
    left = max(1.0, budget)
    for slot in order:
        knob = facts.knobs[slot]
        size = knob.nearest(min(power_below(left), power_above(knob.extent)))
        sizes[slot] = size
        left = max(1.0, left / size)
    return sizes


def fixed_elements(access: Access, with_rows: bool = True) -> int:
    """Elements of its tile that no entry of `block_sizes` drives."""
    total = 1
    for axis in access.axes:
        if axis is not None and axis.knob is None and (with_rows or axis.loop is None):
            total *= max(1, axis.tile)
    return total


def tile_elements(access: Access, sizes: Mapping[int, int]) -> int:
    """Elements of its tile for these block sizes, rows in one piece."""
    total = fixed_elements(access)
    for slot in knobs_of(access):
        total *= sizes.get(slot, 1)
    return total


def work_elements(facts: Facts, sizes: Mapping[int, int]) -> int:
    """Elements that the knobs of the largest tile of arithmetic span."""
    total = 1
    for slot in facts.work_slots:
        total *= sizes.get(slot, 1)
    return total


def knobs_of(access: Access) -> tuple[int, ...]:
    """Slots that its tile spans, innermost first."""
    found = [a.knob for a in reversed(access.axes) if a is not None]
    return tuple(dict.fromkeys(k for k in found if k is not None))


def busy_bytes(hardware: Hardware) -> float:
    """Bytes of loads in flight that keep one SM's share of memory busy."""
    return hardware.dram_gb_per_s * 1e3 * MEMORY_LATENCY_US / hardware.n_sms


def programs_of(facts: Facts, sizes: Mapping[int, int]) -> int:
    """Programs of the launch for these block sizes."""
    programs = facts.fixed_programs
    for knob in facts.grid_knobs:
        programs *= -(-knob.extent // max(1, sizes.get(knob.slot, 1)))
    return programs


def warps_for(elements: float, per_thread: float, most: int = 32) -> int:
    """Warps that leave each thread about `per_thread` elements."""
    return int(min(most, max(1, power_below(elements / (32.0 * per_thread)))))


def shrink_to_fill(
    facts: Facts,
    sizes: Mapping[int, int],
    slots: Iterable[int],
    programs: float,
    floors: Mapping[int, int],
) -> dict[int, int]:
    """Halve grid knobs in turn until there are enough programs or all are at floor."""
    result = dict(sizes)
    for slot in slots:
        knob = facts.knobs[slot]
        while programs_of(facts, result) < programs:
            smaller = [
                c for c in knob.choices if c < result[slot] and c >= floors.get(slot, 1)
            ]
            if not smaller or not knob.on_grid:
                break
            result[slot] = smaller[-1]
    return result
