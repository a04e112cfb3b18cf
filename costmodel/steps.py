"""Single changes of a config, the building blocks of joint moves.

*Tile* steps go to a neighbouring block, warp count or stage count; *structural* steps
switch what Helion's own heuristics leave alone: indexing, loop hints, the order and
persistence of programs, eviction. Each stays within the kernel's ConfigSpace.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

from costmodel.config_space import ConfigSpace
from costmodel.heuristics.facts import Facts
from costmodel.types import Config

Setting: TypeAlias = tuple[str, int | None, Any]
"""Key, index in its list (None for a scalar or a whole list), new value."""


KnownSteps: TypeAlias = dict[tuple[Any, ...], list["Step"]]
"""Steps by the identity of the values that they depend on."""


class Step(NamedTuple):
    """One knob's change, or a few that only make sense together.

    Attributes:
        settings: What to set.
        words: What it does, for people.
        knob: What it is about: no move takes two steps of one knob.
        is_tile: Whether it changes the tile rather than how it is launched.
    """

    settings: tuple[Setting, ...]
    words: str
    knob: str
    is_tile: bool


def tile_steps(config: Config, facts: Facts, space: ConfigSpace) -> list[Step]:
    """Neighbouring blocks, rows, warps, stages and the kernel's own tunables."""
    steps: list[Step] = []
    steps += _scalar_steps(config, space, "num_warps", "warps", most=16)
    loops = facts.loop_slots or any(loop is not None for loop in _rows(config))
    if loops:
        steps += _scalar_steps(config, space, "num_stages", "stages", most=6)
    blocks = config.get("block_sizes", [])
    names = {slot: "block" for slot in range(len(blocks))}
    ups, downs = [], []
    for slot, size in enumerate(blocks):
        choices = facts.knobs[slot].choices
        at = choices.index(size) if size in choices else -1
        if at > 0:
            downs.append(_block_step(slot, choices[at - 1], names[slot]))
        if 0 <= at < len(choices) - 1:
            ups.append(_block_step(slot, choices[at + 1], names[slot]))
    steps += [
        step for pair in itertools.zip_longest(ups, downs) for step in pair if step
    ]
    for slot, loop in enumerate(_rows(config)):
        steps += _row_steps(facts, space, slot, loop)
    steps += _tunable_steps(config, space)
    return steps


def _rows(config: Config) -> list[int | None]:
    return list(config.get("reduction_loops") or ())


def _block_step(slot: int, size: int, name: str) -> Step:
    settings: tuple[Setting, ...] = (("block_sizes", slot, size),)
    return Step(settings, f"{name} {slot} = {size}", f"block_sizes{slot}", True)


def _row_steps(
    facts: Facts, space: ConfigSpace, slot: int, loop: int | None
) -> list[Step]:
    knob = space.knobs.get("reduction_loops")
    if knob is None or slot >= len(knob.slots):
        return []
    chunks = [c for c in knob.slots[slot].choices if isinstance(c, int)]
    if loop is None:
        wanted: list[int | None] = [*[c for c in chunks if 1024 <= c <= 4096][-2:]]
    else:
        near = [c for c in (loop // 2, loop * 2) if c in chunks]
        wanted = [*near, None] if None in knob.slots[slot].choices else [*near]
    return [
        Step(
            (("reduction_loops", slot, value),),
            "rows whole" if value is None else f"rows in chunks of {value}",
            f"reduction_loops{slot}",
            True,
        )
        for value in wanted
    ]


def _scalar_steps(
    config: Config, space: ConfigSpace, key: str, name: str, most: int
) -> list[Step]:
    knob = space.knobs.get(key)
    value = config.get(key)
    if knob is None or not isinstance(value, int):
        return []
    choices = [c for c in knob.slots[0].choices if isinstance(c, int) and c <= most]
    larger = [c for c in choices if c > value][:1]
    smaller = [c for c in choices if c < value][-1:]
    return [
        Step(((key, None, c),), f"{c} {name}", key, True) for c in (*larger, *smaller)
    ]


_KNOWN = frozenset(
    {
        "block_sizes",
        "loop_orders",
        "flatten_loops",
        "l2_groupings",
        "reduction_loops",
        "range_unroll_factors",
        "range_warp_specializes",
        "range_num_stages",
        "range_multi_buffers",
        "range_flattens",
        "static_ranges",
        "num_warps",
        "num_stages",
        "indexing",
        "atomic_indexing",
        "host_tensor_descriptors",
        "pid_type",
        "num_sm_multiplier",
        "load_eviction_policies",
        "maxnreg",
        "reduction_fusion",
        "cross_loop_pipeline",
        "epilogue_subtile",
        "advanced_controls_file",
    }
)
"""Keys of Helion itself; any other integer knob is the kernel author's tunable."""


def _tunable_steps(config: Config, space: ConfigSpace) -> list[Step]:
    """Neighbouring values of the kernel's own tunables, such as a depth split."""
    steps: list[Step] = []
    for name in sorted(space.knobs):
        knob = space.knobs[name]
        if name not in _KNOWN and not knob.is_list:
            steps += _scalar_steps(config, space, name, name, most=2**20)
    return steps


def structural_steps(
    config: Config, facts: Facts, space: ConfigSpace, known: KnownSteps
) -> list[Step]:
    """Switches that Helion's heuristics leave alone, where the kernel has them.

    Args:
        config: A full config.
        facts: The kernel.
        space: Legal values.
        known: What this function found for configs of this kernel that still live: the
            same steps where the values that they depend on are the same objects.
    """
    steps: list[Step] = []
    for find, keys in _STRUCTURAL:
        place = (keys[0], *[id(config.get(key)) for key in keys])
        found = known.get(place)
        if found is None:
            found = known[place] = find(config, facts, space)
        steps += found
    return steps


def _offers(space: ConfigSpace, key: str, index: int, value: Any) -> bool:
    knob = space.knobs.get(key)
    if knob is None or index >= len(knob.slots):
        return False
    return knob.slots[index].allows(value)


def _indexing_steps(config: Config, facts: Facts, space: ConfigSpace) -> list[Step]:
    asked = config.get("indexing") or []
    tiled = [
        a
        for a in facts.accesses
        if a.indexing_slot is not None
        and a.indexing_slot < len(asked)
        and len(a.axes) >= 2
        and not a.is_gather
        and _offers(space, "indexing", a.indexing_slot, "tensor_descriptor")
    ]
    loads = [a.indexing_slot or 0 for a in tiled if not a.is_store]
    stores = [a.indexing_slot or 0 for a in tiled if a.is_store]
    steps = []
    for slots, words in (
        (loads, "descriptor loads"),
        ([*loads, *stores], "descriptors everywhere"),
        (stores, "descriptor stores"),
        (loads[:1], "descriptor for the first load"),
    ):
        settings = tuple(
            ("indexing", slot, "tensor_descriptor")
            for slot in slots
            if asked[slot] != "tensor_descriptor"
        )
        if settings:
            steps.append(Step(settings, words, "indexing", False))
    back = tuple(
        ("indexing", slot, "pointer")
        for slot, value in enumerate(asked)
        if value != "pointer"
    )
    if back:
        steps.append(Step(back, "pointers everywhere", "indexing", False))
    return steps


def _loop_steps(config: Config, facts: Facts, space: ConfigSpace) -> list[Step]:
    """Hints of the innermost loop."""
    if not facts.loop_slots:
        return []
    inner = facts.loop_slots[-1]
    wanted: list[tuple[str, Any, str]] = [
        ("range_num_stages", 2, "loop of 2 stages"),
        ("range_unroll_factors", 2, "loop unrolled twice"),
        ("range_multi_buffers", False, "one accumulator buffer"),
        ("range_flattens", True, "loop flattened"),
        ("range_num_stages", 3, "loop of 3 stages"),
        ("range_unroll_factors", 4, "loop unrolled 4 times"),
        ("range_multi_buffers", True, "several accumulator buffers"),
        ("range_flattens", False, "loop kept"),
    ]
    steps = []
    for key, value, words in wanted:
        known = config.get(key) or []
        differs = inner < len(known) and known[inner] != value
        if differs and _offers(space, key, inner, value):
            steps.append(Step(((key, inner, value),), words, key, False))
    return steps


def _grid_steps(config: Config, facts: Facts, space: ConfigSpace) -> list[Step]:
    """Order of programs: along which axis, in which groups."""
    steps = []
    orders = config.get("loop_orders") or []
    for index, order in enumerate(orders[:2]):
        other = list(reversed(order))
        if len(order) > 1 and _offers(space, "loop_orders", index, other):
            settings: tuple[Setting, ...] = (("loop_orders", index, other),)
            steps.append(Step(settings, "other loop order", "loop_orders", False))
    groups = config.get("l2_groupings") or []
    for value in (4, 8, 1, 2, 16):
        if groups and groups[0] != value and _offers(space, "l2_groupings", 0, value):
            words = f"L2 groups of {value}"
            steps.append(
                Step((("l2_groupings", 0, value),), words, "l2_groupings", False)
            )
    return steps


def _persistent_steps(config: Config, facts: Facts, space: ConfigSpace) -> list[Step]:
    """Programs that walk the grid, and back."""
    pid_type = config.get("pid_type", "flat")
    steps = []
    if pid_type == "flat":
        multipliers = (1, 2) if facts.dots else (4, 8)
        for kind in ("persistent_interleaved", "persistent_blocked"):
            for multiplier in multipliers:
                legal = _offers(space, "pid_type", 0, kind) and _offers(
                    space, "num_sm_multiplier", 0, multiplier
                )
                if legal:
                    steps.append(
                        Step(
                            (
                                ("pid_type", None, kind),
                                ("num_sm_multiplier", None, multiplier),
                            ),
                            f"{kind} x {multiplier}",
                            "pid_type",
                            False,
                        )
                    )
    else:
        for key in ("num_sm_multiplier",):
            value = int(config.get(key, 1))
            for other in (value * 2, value // 2):
                if other and _offers(space, key, 0, other):
                    words = f"{other} programs an SM"
                    steps.append(Step(((key, None, other),), words, "pid_type", False))
    return steps


def _eviction_steps(config: Config, facts: Facts, space: ConfigSpace) -> list[Step]:
    known = config.get("load_eviction_policies") or []
    slots = [
        a.eviction_slot
        for a in facts.accesses
        if a.eviction_slot is not None and a.eviction_slot < len(known)
    ]
    steps = []
    patterns: list[tuple[dict[int, str], str]] = []
    if slots:
        patterns.append((dict.fromkeys(slots, "first"), "all loads evicted first"))
        patterns.append(({slots[0]: "last"}, "first load kept"))
        patterns.append(({slots[-1]: "last"}, "last load kept"))
        patterns.append(({slots[0]: "first"}, "first load passes"))
        patterns.append((dict.fromkeys(slots, ""), "no eviction hints"))
    for pattern, words in patterns:
        settings = tuple(
            ("load_eviction_policies", slot, value)
            for slot, value in pattern.items()
            if known[slot] != value
            and _offers(space, "load_eviction_policies", slot, value)
        )
        if settings:
            steps.append(Step(settings, words, "load_eviction_policies", False))
    return steps


_STRUCTURAL: tuple[
    tuple[Callable[[Config, Facts, ConfigSpace], list[Step]], tuple[str, ...]], ...
] = (
    (_indexing_steps, ("indexing",)),
    (
        _loop_steps,
        (
            "range_num_stages",
            "range_unroll_factors",
            "range_multi_buffers",
            "range_flattens",
        ),
    ),
    (_grid_steps, ("loop_orders", "l2_groupings")),
    (_persistent_steps, ("pid_type", "num_sm_multiplier")),
    (_eviction_steps, ("load_eviction_policies",)),
)
"""Where structural steps come from, and all keys that each of them reads and writes."""
