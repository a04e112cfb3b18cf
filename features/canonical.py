"""One full spelling per config, so that a sparse config and its full twin are one.

Helion accepts partial configs and fills what is absent with a fixed value per key,
never with the values of its default config. How *long* a list is depends on the
kernel, and only another config of the same kernel tells: the *template*. So values
come from Helion's rules below and lengths come from the template.

Source of the rules: Helion 1.5.1, `autotuner/config_spec.py` (`ConfigSpec.normalize`
and the `_fill_missing` of each item); the ids: `autotuner/search_space_logger.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from costmodel.types import Config

_ABSENT = object()

_LIST_FILL: dict[str, Any] = {
    "flatten_loops": False,
    "l2_groupings": 1,
    "reduction_loops": None,  # None: the whole row stays in registers
    "range_unroll_factors": 0,
    "range_warp_specializes": None,
    "range_num_stages": 0,
    "range_multi_buffers": None,
    "range_flattens": None,
    "static_ranges": False,
    "indexing": "pointer",
    "atomic_indexing": "pointer",
    "load_eviction_policies": "",
    "load_cache_modifiers": "",
    "store_cache_modifiers": "",
}
"""Value of an absent entry, by list key."""

_ONE_FOR_ALL = frozenset(
    {
        "indexing",
        "atomic_indexing",
        "load_eviction_policies",
        "load_cache_modifiers",
        "store_cache_modifiers",
    }
)
"""List keys that may be one value for all memory operations, and whose surplus entries
Helion ignores."""

SCALAR_FILL: dict[str, Any] = {
    "num_warps": 4,  # DEFAULT_NUM_WARPS
    "num_stages": 1,  # DEFAULT_NUM_STAGES
    "pid_type": "flat",
}
"""Scalars that every full config on the Triton backend spells."""

_SCALAR_FILL_IF_KNOWN: dict[str, Any] = {
    "host_tensor_descriptors": False,
    "reduction_fusion": False,
    "xcd_remap": False,
    "cross_loop_pipeline": "barrier",
}
"""Scalars that a full config spells only where the Helion version or the kernel has
them: filled when the template has them."""

_OFF: dict[str, tuple[Any, ...]] = {
    "maxnreg": (None,),
    "epilogue_subtile": (None, False, 0, 1),
    "advanced_controls_file": (None, ""),
    "num_threads": (None, []),
}
"""Keys that Helion drops at these values."""

_NON_PERSISTENT = frozenset({"flat", "xyz"})


def config_id(config: Mapping[str, Any]) -> str:
    """Helion's own id of a config as it is spelled: 16 hex digits."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def make_template(configs: Iterable[Mapping[str, Any]]) -> Config:
    """Merge configs of one kernel into a template: every key, each list the longest.

    The result holds lengths only, no values, and does not depend on the order of the
    configs.
    """
    longest: dict[str, tuple[int, ...]] = {}
    for config in configs:
        for key, value in config.items():
            lengths = _lengths(value)
            known = longest.get(key, ())
            if (len(lengths), lengths) > (len(known), known) or key not in longest:
                longest[key] = lengths
    return {key: [[None] * n for n in longest[key]] for key in sorted(longest)}


def canonical_config(
    config: Mapping[str, Any], template: Mapping[str, Any] | None = None
) -> Config:
    """Spell a config in full, as Helion would, with its keys in sorted order.

    Args:
        config: Full or partial, valid or not; keys unknown to us are kept.
        template: A full config of the same kernel, or `make_template` of several;
            read for its keys and list lengths only. Without one, lists stay as long
            as they are.

    Returns:
        A new config; a fixed point of this function under the same template.
    """
    template = template or {}
    full: Config = {key: _plain(value) for key, value in config.items()}
    for key, value in SCALAR_FILL.items():
        if full.get(key) is None:
            full[key] = value
    for key, value in _SCALAR_FILL_IF_KNOWN.items():
        if key in template and full.get(key) is None:
            full[key] = value
    for key, fill in _LIST_FILL.items():
        if key in full or key in template:
            full[key] = _fill_list(key, full.get(key), template.get(key), fill)
    orders = _fill_loop_orders(full.get("loop_orders"), template.get("loop_orders"))
    if orders is not None:
        full["loop_orders"] = orders
    _drop_dead_scalars(full)
    return {
        key: full[key]
        for key in sorted(full)
        if full[key] is not None and full[key] not in _OFF.get(key, ())
    }


def canonical_id(
    config: Mapping[str, Any], template: Mapping[str, Any] | None = None
) -> str:
    """`config_id` of the canonical form: equal for spellings of one program."""
    return config_id(canonical_config(config, template))


def _plain(value: Any) -> Any:
    """JSON values only: tuples become lists, as they do in Helion's log."""
    if isinstance(value, list | tuple):
        return [_plain(one) if isinstance(one, list | tuple) else one for one in value]
    return value


def _lengths(value: Any) -> tuple[int, ...]:
    """Length of each entry of a list (0 for what is no list); () for a scalar."""
    if not isinstance(value, list | tuple):
        return ()
    return tuple([_length(one) for one in value])


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list | tuple) else 0


def _fill_list(key: str, value: Any, template: Any, fill: Any) -> list[Any]:
    size = _length(template)
    if key in _ONE_FOR_ALL:
        if isinstance(value, str):
            return [value] * max(size, 1)
        if not isinstance(value, list | None):
            return [value]
        entries = list(value or ())
        if not entries:
            return [fill] * size
        # A shorter list is an error in Helion, so it is not padded; surplus entries
        # are ignored by it, so they are cut.
        return entries[:size] if size else entries
    if value is not None and not isinstance(value, list):
        value = [value]
    entries = list(value or ())
    return entries + [fill] * (size - len(entries))


def _fill_loop_orders(value: Any, template: Any) -> list[Any] | None:
    if value is None and template is None:
        return None
    entries = list(value or ()) if isinstance(value, list | None) else [value]
    missing = list(template or ())[len(entries) :]
    return entries + [list(range(_length(one))) for one in missing]


def _drop_dead_scalars(full: Config) -> None:
    """Apply Helion's rules for knobs that need another knob to mean anything."""
    if str(full["pid_type"]) in _NON_PERSISTENT:
        if full.get("num_sm_multiplier", 1) == 1:
            full.pop("num_sm_multiplier", None)
    elif full.get("num_sm_multiplier") is None:
        full["num_sm_multiplier"] = 1
    if full.get("epilogue_subtile") is True:
        full["epilogue_subtile"] = 2
    if full.get("host_tensor_descriptors") and not any(
        "tensor_descriptor" in full.get(key, ())
        for key in ("indexing", "atomic_indexing")
    ):
        # Where the descriptor is built makes no difference if there is none.
        full["host_tensor_descriptors"] = False
