"""Knobs of a config as numbers, column by column.

A knob that a config leaves out has Helion's default; a list of another length than
this kernel's counts by its mean. Equal values are encoded once, since hundreds of
candidates share a few.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from costmodel.features.graph import KernelGraph
from costmodel.features.indexing import descriptor_fits
from costmodel.features.ops import OpKind
from costmodel.features.regions import RegionKind
from costmodel.features.symbols import Sizes
from costmodel.features.tiles import Tiles
from costmodel.types import Config

DEFAULT_NUM_WARPS = 4
DEFAULT_NUM_STAGES = 1
"""What Helion compiles with where a config does not say (config_spec.py, 1.5.1)."""


def number(configs: Sequence[Config], key: str, default: float) -> Sizes:
    """A scalar knob, read-only float64[n]; not a number counts as absent."""
    memo = configs.numbers if isinstance(configs, Columns) else {}
    known = memo.get((key, default))
    if known is None:
        known = memo[key, default] = _number(configs, key, default)
    return known


def _number(configs: Sequence[Config], key: str, default: float) -> Sizes:
    if isinstance(configs, Columns) and configs.alike and key not in TILE_KEYS:
        examples, rows = configs.alike
        return _number(examples, key, default)[rows]
    values = [c.get(key, default) for c in configs]
    try:
        column = np.array(values, dtype=np.float64)  # None becomes NaN
    except (TypeError, ValueError):
        column = np.array(
            [float(v) if isinstance(v, (int, float)) else default for v in values]
        )
    return np.where(np.isfinite(column), column, default)


TILE_KEYS = frozenset({"block_sizes", "num_warps", "num_stages"})
"""Keys in which configs may differ that are alike otherwise."""

Alike: TypeAlias = tuple[list[Config], npt.NDArray[np.int64]]
"""Configs, and for each of n others, which of them it is like but for its tile."""


class Columns(list[Config]):
    """Configs whose values are told apart once, however many features ask for them.

    Args:
        configs: The configs.
        alike: Fewer configs that have the same values but for the tile, if known.
    """

    def __init__(self, configs: Sequence[Config], alike: Alike | None = None) -> None:
        super().__init__(configs)
        self.alike = alike
        self.groups: dict[str, tuple[list[Any], npt.NDArray[np.int64] | None]] = {}
        self.numbers: dict[tuple[str, float], Sizes] = {}


def as_columns(configs: Sequence[Config]) -> Columns:
    """Configs as `Columns`; the same object where they are that already."""
    return configs if isinstance(configs, Columns) else Columns(configs)


def encoded(
    configs: Sequence[Config],
    key: str,
    encode: Callable[[Any], tuple[float, ...]],
) -> npt.NDArray[np.float64]:
    """Any knob by a function of its value: float64[n_columns, n]."""
    memo = configs.groups if isinstance(configs, Columns) else {}
    found = memo.get(key)
    if found is None:
        found = memo[key] = _grouped(configs, key)
    examples, rows = found
    if rows is None:
        column = np.array(encode(examples[0]), dtype=np.float64)
        return np.repeat(column[:, None], len(configs), axis=1)
    table = np.array([encode(value) for value in examples], dtype=np.float64)
    return np.ascontiguousarray(table[rows].T)


def _grouped(
    configs: Sequence[Config], key: str
) -> tuple[list[Any], npt.NDArray[np.int64] | None]:
    """Distinct values of a knob, and which one each config has; None where all agree.

    Raises:
        IndexError: No configs.
    """
    if isinstance(configs, Columns) and configs.alike and key not in TILE_KEYS:
        alike, row_of = configs.alike
        few, few_rows = _grouped(alike, key)
        return few, None if few_rows is None else few_rows[row_of]
    values = [c.get(key) for c in configs]
    if all(map(operator.is_, values, itertools.repeat(values[0]))):
        # Candidates are moves around one config and share most of its values.
        return [values[0]], None
    # Few objects among many configs: told apart by identity first, then by value.
    ids = list(map(id, values))
    distinct = dict(zip(ids, values, strict=True))
    names: list[Hashable] = [
        tuple(v) if type(v) is list else v for v in distinct.values()
    ]
    try:
        codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
    except TypeError:  # a list of lists cannot be hashed
        names = [repr(v) for v in distinct.values()]
        codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
    examples = dict(zip(names, distinct.values(), strict=True))
    code_of = {place: codes[name] for place, name in zip(distinct, names, strict=True)}
    rows = np.array([code_of[place] for place in ids], dtype=np.int64)
    return [examples[name] for name in codes], rows


def as_list(value: Any) -> list[Any]:
    """A list knob; Helion also takes one value for all slots."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def share(value: Any, wanted: Any) -> float:
    """Fraction of slots with a value; 0 for none."""
    items = as_list(value)
    return sum(v == wanted for v in items) / len(items) if items else 0.0


def highest(value: Any, default: float = 0.0) -> float:
    """Largest number in a list knob."""
    found = [
        float(v)
        for v in as_list(value)
        if isinstance(v, (int, float)) and not isinstance(v, bool)
    ]
    return max([default, *found])


def range_slots(graph: KernelGraph) -> dict[int, int]:
    """Slot of each region in the `range_*` lists, by graph id.

    Helion gives one slot to each grid body and one to each axis of a device loop, in
    program order; a block that walks several loops has one slot. A loop of several
    axes answers with its innermost.
    """
    slots: dict[int, int] = {}
    by_block: dict[int, int] = {}
    count = 0

    def visit(graph_id: int) -> None:
        nonlocal count
        region = graph.regions[graph_id]
        if region.kind is RegionKind.ROOT:
            slots[graph_id] = count
            count += 1
        elif region.kind is RegionKind.LOOP:
            for axis in graph.loops.get(graph_id, ()):
                if axis.block not in by_block:
                    by_block[axis.block] = count
                    count += 1
                slots[graph_id] = by_block[axis.block]
        for inner in sorted(graph.regions):
            if graph.regions[inner].parent == graph_id:
                visit(inner)

    for root in graph.root_ids():
        visit(root)
    return slots


def range_values(
    slots: Mapping[int, int], configs: Sequence[Config], key: str
) -> dict[int, Sizes]:
    """A `range_*` knob of each region, 0 where absent or false, by graph id."""
    width = 1 + max(slots.values(), default=0)

    def encode(value: Any) -> tuple[float, ...]:
        items = [_plain(v) for v in as_list(value)[:width]]
        return tuple([*items, *[0.0] * (width - len(items))])

    table = encoded(configs, key, encode)
    return {graph_id: table[slot] for graph_id, slot in slots.items()}


def _plain(value: Any) -> float:
    """A number, or whether a flag is set."""
    return float(value) if isinstance(value, (int, float)) else 0.0


def knob_features(
    graph: KernelGraph, configs: Sequence[Config], tiles: Tiles
) -> dict[str, Sizes]:
    """Encoded knobs by feature name, float64[n] each."""
    features: dict[str, Sizes] = {}
    warps = number(configs, "num_warps", DEFAULT_NUM_WARPS)
    features["num_warps_log2"] = np.log2(np.maximum(warps, 1.0))
    features["num_stages"] = number(configs, "num_stages", DEFAULT_NUM_STAGES)
    pid = encoded(configs, "pid_type", _pid)
    for name, column in zip(_PID_NAMES, pid, strict=True):
        features[name] = column
    persistent = features["is_persistent"]
    multiplier = number(configs, "num_sm_multiplier", 1.0)
    features["num_sm_multiplier_log2"] = persistent * np.log2(
        np.maximum(multiplier, 1.0)
    )
    features["maxnreg"] = number(configs, "maxnreg", 0.0)
    features["has_maxnreg"] = (features["maxnreg"] > 0.0).astype(np.float64)
    features["l2_grouping_log2"] = np.log2(
        encoded(configs, "l2_groupings", lambda v: (highest(v, 1.0),))[0]
    )
    features["n_loops_reordered"] = encoded(configs, "loop_orders", _reordered)[0]
    features["flatten_loops_share"] = encoded(
        configs, "flatten_loops", lambda v: (share(v, True),)
    )[0]
    for name, column in zip(
        ("range_unroll_max", "range_unroll_sum"),
        encoded(configs, "range_unroll_factors", _numbers),
        strict=True,
    ):
        features[name] = column
    for name, column in zip(
        ("range_stages_max", "range_stages_sum"),
        encoded(configs, "range_num_stages", _numbers),
        strict=True,
    ):
        features[name] = column
    for key, name in _RANGE_FLAGS:
        on, off = encoded(configs, key, lambda v: (share(v, True), share(v, False)))
        features[f"{name}_on_share"] = on
        features[f"{name}_off_share"] = off
    features["static_ranges_share"] = encoded(
        configs, "static_ranges", lambda v: (share(v, True),)
    )[0]
    features.update(_evictions(graph, configs, tiles))
    features["host_descriptors"] = encoded(
        configs, "host_tensor_descriptors", lambda v: (float(v is True),)
    )[0]
    features.update(_indexing(graph, configs, tiles))
    return features


_PID_NAMES = ("is_persistent", "is_interleaved", "is_xyz")
_RANGE_FLAGS = (
    ("range_multi_buffers", "range_multi_buffer"),
    ("range_flattens", "range_flatten"),
)


def _pid(value: Any) -> tuple[float, ...]:
    text = str(value or "flat")
    return (
        float(text.startswith("persistent")),
        float(text == "persistent_interleaved"),
        float(text == "xyz"),
    )


def _reordered(value: Any) -> tuple[float, ...]:
    orders = [o for o in as_list(value) if isinstance(o, (list, tuple))]
    return (float(sum(list(o) != sorted(o) for o in orders)),)


def _numbers(value: Any) -> tuple[float, float]:
    found = [
        float(v)
        for v in as_list(value)
        if isinstance(v, (int, float)) and not isinstance(v, bool)
    ]
    return (max([0.0, *found]), float(sum(found)))


def scattered_blocks(graph: KernelGraph, configs: Sequence[Config]) -> dict[int, Sizes]:
    """Grid blocks that lanes do not walk first: 1 or 0 per config, by block key.

    A flattened grid numbers its elements with the last axis of `loop_orders` fastest.
    If that is not the axis along memory, neighbouring lanes are a row apart (measured
    on an H200: an elementwise kernel ran 14 times slower).
    """
    found: dict[int, Sizes] = {}
    slot = 0
    for graph_id in sorted(graph.loops, key=lambda g: graph.regions[g].line or 0):
        axes = graph.loops[graph_id]
        if len(axes) < 2:
            continue
        if graph.regions[graph_id].kind is RegionKind.ROOT:
            found.update(_scattered(configs, slot, [a.block for a in axes]))
        slot += 1
    return found


def _scattered(
    configs: Sequence[Config], slot: int, blocks: Sequence[int]
) -> dict[int, Sizes]:
    n_axes = len(blocks)

    def flat(value: Any) -> tuple[float, ...]:
        items = as_list(value)
        return (float(slot < len(items) and items[slot] is True),)

    def fastest(value: Any) -> tuple[float, ...]:
        orders = as_list(value)
        order = orders[slot] if slot < len(orders) else None
        last = n_axes - 1
        if isinstance(order, (list, tuple)) and len(order) == n_axes:
            last = order[-1]
        return tuple(float(axis == last) for axis in range(n_axes))

    flattened = encoded(configs, "flatten_loops", flat)[0]
    if not flattened.any():
        return {}
    first = encoded(configs, "loop_orders", fastest)
    return {
        block: flattened * (1.0 - is_fastest)
        for block, is_fastest in zip(blocks, first, strict=True)
    }


def active_weight(graph: KernelGraph, tiles: Tiles, index: int) -> Sizes:
    """1 where a config's program has this access, 0 where its rolled twin replaces it.

    Args:
        graph: The kernel.
        tiles: Tile sizes of n configs.
        index: Index in `graph.accesses`.
    """
    access = graph.accesses[index]
    is_twin = graph.regions[access.graph_id].kind is RegionKind.ROLLED
    if not tiles.rolled:
        return np.zeros(1) if is_twin else np.ones(1)
    keys = [graph.by_symbol.get(s) for s in access.symbols]
    rolled = [tiles.rolled[k] for k in keys if k is not None and k in tiles.rolled]
    if not rolled:
        return np.zeros(1) if is_twin else np.ones(1)
    looping = rolled[0].astype(np.float64)
    for more in rolled[1:]:
        looping = np.maximum(looping, more.astype(np.float64))
    return looping if is_twin else 1.0 - looping


def _evictions(
    graph: KernelGraph, configs: Sequence[Config], tiles: Tiles
) -> dict[str, Sizes]:
    """Shares of live loads with a policy; an entry past the live loads does nothing."""
    n_slots = graph.n_load_slots
    first = _table(configs, "load_eviction_policies", "first", n_slots)
    last = _table(configs, "load_eviction_policies", "last", n_slots)
    total = np.zeros(1)
    found = {"first": np.zeros(1), "last": np.zeros(1)}
    for index, access in enumerate(graph.accesses):
        if access.kind is not OpKind.LOAD:
            continue
        active = active_weight(graph, tiles, index)
        total = total + active
        for name, asked in (("first", first), ("last", last)):
            wants = _by_program(
                graph, tiles, asked, access.load_slot, access.rolled_load_slot
            )
            found[name] = found[name] + active * wants
    return {
        f"evict_{name}_share": value / np.maximum(total, 1.0)
        for name, value in found.items()
    }


def _by_program(
    graph: KernelGraph,
    tiles: Tiles,
    asked: Mapping[int, Sizes],
    slot: int | None,
    rolled_slot: int | None,
) -> Sizes:
    """What a slot asks for, where rolled reductions may have renumbered it."""
    zero = np.zeros(1)
    whole = zero if slot is None else asked.get(slot, zero)
    if rolled_slot is None or rolled_slot == slot or not tiles.rolled:
        return whole
    rolled = asked.get(rolled_slot, zero)
    looping = np.zeros(1, dtype=np.bool_)
    for flags in tiles.rolled.values():
        looping = looping | flags
    chosen: Sizes = np.where(looping, rolled, whole)
    return chosen


def asked_descriptors(
    graph: KernelGraph, configs: Sequence[Config], tiles: Tiles
) -> dict[int, Sizes]:
    """1 where a config asks for a descriptor, by index of the access."""
    found: dict[int, Sizes] = {}
    name = "tensor_descriptor"
    wanted = _table(configs, "indexing", name, graph.n_memory_slots)
    atomics = _table(configs, "atomic_indexing", name, graph.n_atomic_slots)
    for index, access in enumerate(graph.accesses):
        table = atomics if access.kind is OpKind.ATOMIC else wanted
        asked = _by_program(graph, tiles, table, access.slot, access.rolled_slot)
        if asked.any():
            found[index] = asked
    return found


def fitting_descriptor(graph: KernelGraph, index: int, tiles: Tiles) -> Sizes:
    """1 where an access that asks for a descriptor gets one, by index of the access."""
    access = graph.accesses[index]
    return tiles.descriptors(
        index, lambda: descriptor_fits(graph, access, tiles).astype(np.float64)
    )


def _indexing(
    graph: KernelGraph, configs: Sequence[Config], tiles: Tiles
) -> dict[str, Sizes]:
    """Shares of live accesses that really use descriptors, loads and stores apart."""
    wanted = _table(configs, "indexing", "tensor_descriptor", graph.n_memory_slots)
    totals = {OpKind.LOAD: np.zeros(1), OpKind.STORE: np.zeros(1)}
    used = {OpKind.LOAD: np.zeros(1), OpKind.STORE: np.zeros(1)}
    for index, access in enumerate(graph.accesses):
        if access.kind not in totals:
            continue
        active = active_weight(graph, tiles, index)
        totals[access.kind] = totals[access.kind] + active
        asked = _by_program(graph, tiles, wanted, access.slot, access.rolled_slot)
        if asked.any():
            got = fitting_descriptor(graph, index, tiles) * asked
            used[access.kind] = used[access.kind] + active * got
    return {
        "descriptor_load_share": used[OpKind.LOAD]
        / np.maximum(totals[OpKind.LOAD], 1.0),
        "descriptor_store_share": used[OpKind.STORE]
        / np.maximum(totals[OpKind.STORE], 1.0),
    }


def _table(
    configs: Sequence[Config], key: str, wanted: str, n_slots: int
) -> Mapping[int, Sizes]:
    """For each slot that any config sets to a value, who does: 1 or 0 per config."""

    def encode(value: Any) -> tuple[float, ...]:
        if isinstance(value, str):
            return (float(value == wanted),) * n_slots
        items = as_list(value)
        flags = [float(v == wanted) for v in items[:n_slots]]
        return tuple([*flags, *[0.0] * (n_slots - len(flags))])

    if n_slots == 0:
        return {}
    table = encoded(configs, key, encode)
    return {slot: column for slot, column in enumerate(table) if column.any()}
