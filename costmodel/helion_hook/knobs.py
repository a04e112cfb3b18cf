"""Every knob of a kernel with its legal values, read from Helion's search space."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import Any

from costmodel.config_space import ConfigSpace
from costmodel.config_space import Knob
from costmodel.config_space import Slot
from costmodel.helion_hook.devices import cache_of
from costmodel.helion_hook.devices import device_of
from costmodel.helion_hook.plain import plain_value

# Lists that a config may give as one value for all elements.
_SPREADING = ("indexing", "atomic_indexing")

# More alternatives than this make a slot's enumeration useless for moves.
_MAX_CHOICES = 128


def space(bound: Any) -> ConfigSpace:
    """Every knob of this kernel on its GPU; computed once for each bound kernel."""
    cache = cache_of(bound)
    if "space" not in cache:
        with device_of(bound):
            spec = bound.config_spec
            fields = spec._flat_fields()
            knobs = {name: _knob(spec, name, fields[name]) for name in fields}
        cache["space"] = ConfigSpace(knobs)
    found = cache["space"]
    assert isinstance(found, ConfigSpace)
    return found


def _knob(spec: Any, name: str, field: Any) -> Knob:
    """Read a knob by asking the field for a config and noting its fragments."""
    fragments: list[Any] = []

    def note(fragment: Any) -> Any:
        fragments.append(fragment)
        return fragment.default()

    defaults = field._flat_config(spec, note)
    items = getattr(field, "_data", None)
    if items is not None:
        slots = tuple(map(functools.partial(_item_slot, spec), items, defaults))
        return Knob(name, slots, is_list=True)
    inner = getattr(field, "inner", None)
    if inner is not None:
        slot = _slot(inner, inner.default())
        spreads = name in _SPREADING
        return Knob(name, (slot,) * field.length, is_list=True, spreads=spreads)
    return Knob(name, (_slot(fragments[0], defaults),), is_list=False)


def _item_slot(spec: Any, item: Any, default: Any) -> Slot:
    """A slot that belongs to a block: its search range, then what else is legal."""
    fragments: list[Any] = []

    def note(fragment: Any) -> Any:
        fragments.append(fragment)
        return fragment.default()

    item._flat_config(spec, note)
    searched: list[Any] = []
    for value in _choices(fragments[0]):
        # The item turns a flat value into a config's (a full-width reduction loop
        # into None), so it is asked for each.
        spelled = plain_value(item._flat_config(spec, lambda _f, value=value: value))
        if spelled not in searched:
            searched.append(spelled)
    extra = []
    low = getattr(item, "min_size", None)
    if isinstance(low, int):
        floor = min((v for v in searched if isinstance(v, int)), default=low)
        extra = [v for v in _powers(max(low, 1), floor) if v not in searched]
    return Slot(tuple(searched), plain_value(default), tuple(extra))


def _slot(fragment: Any, default: Any) -> Slot:
    choices = tuple(plain_value(value) for value in _choices(fragment))
    return Slot(choices, plain_value(default))


def _choices(fragment: Any) -> Iterable[Any]:
    """Every value of a fragment, fewer where they are too many to list."""
    declared = getattr(fragment, "choices", None)
    if declared is not None:
        return tuple(declared)
    values = getattr(fragment, "search_values", lambda _limit: None)(_MAX_CHOICES)
    if values is not None:
        return tuple(values)
    length = getattr(fragment, "length", None)
    if isinstance(length, int):
        orders = itertools.permutations(range(length))
        return tuple(list(o) for o in itertools.islice(orders, _MAX_CHOICES))
    low, high = getattr(fragment, "low", None), getattr(fragment, "high", None)
    if isinstance(low, int) and isinstance(high, int):
        # Helion 1.4 lists no values; its integers are not powers of two alone.
        is_integer = type(fragment).__name__ == "IntegerFragment"
        if is_integer and high - low < _MAX_CHOICES:
            return tuple(range(low, high + 1))
        return tuple(sorted({low, *_powers(max(low, 1), high), high}))
    return (fragment.default(),)


def _powers(low: int, high: int) -> list[int]:
    """Powers of two from low to high, both included."""
    exponents = range(max(low, 1).bit_length() - 1, max(high, 1).bit_length())
    return [1 << e for e in exponents if low <= 1 << e <= high]
