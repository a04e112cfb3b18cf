"""Configs and settings with the user's words taken out."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from costmodel.types import Config

_CONFIG_KEYS = frozenset(
    [
        "advanced_controls_file",
        "atomic_indexing",
        "block_sizes",
        "cross_loop_pipeline",
        "epilogue_subtile",
        "flatten_loops",
        "host_tensor_descriptors",
        "indexing",
        "l2_groupings",
        "load_cache_modifiers",
        "load_eviction_policies",
        "loop_orders",
        "maxnreg",
        "num_sm_multiplier",
        "num_stages",
        "num_threads",
        "num_warps",
        "pid_type",
        "range_flattens",
        "range_multi_buffers",
        "range_num_stages",
        "range_unroll_factors",
        "range_warp_specializes",
        "reduction_fusion",
        "reduction_loops",
        "static_ranges",
        "store_cache_modifiers",
        "xcd_remap",
    ]
)
"""Helion's own knobs; any other key of a config is the kernel's own tunable."""

_SETTINGS_WITH_WORDS = frozenset(
    [
        "backend",
        "dot_precision",
        "index_dtype",
        "autotune_effort",
        "autotune_precompile",
    ]
)

Rename = Callable[[str], str]


def config_words(config: Mapping[str, Any]) -> Iterable[str]:
    """Private words of a config: its kernel's own tunables, and paths."""
    for key, value in config.items():
        if key not in _CONFIG_KEYS:
            yield key
            yield from _texts(value)
        elif key == "advanced_controls_file":
            yield from _texts(value)


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def anonymous_config(config: Mapping[str, Any], rename: Rename) -> Config:
    """A config with its own tunables, and what they are set to in words, renamed."""

    def value_of(key: str, value: Any) -> Any:
        if key in _CONFIG_KEYS and key != "advanced_controls_file":
            return value
        return _renamed(value, rename)

    return {
        (key if key in _CONFIG_KEYS else rename(key)): value_of(key, value)
        for key, value in config.items()
    }


def _renamed(value: Any, rename: Rename) -> Any:
    if isinstance(value, str):
        return rename(value)
    return (
        [_renamed(one, rename) for one in value] if isinstance(value, list) else value
    )


def anonymous_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that are numbers, switches, or words of a fixed list."""
    return {
        key: value
        for key, value in settings.items()
        if is_number(value) or (key in _SETTINGS_WITH_WORDS and _is_word(value))
    }


def is_number(value: Any) -> bool:
    """Whether a JSON value has no text in it."""
    return value is None or isinstance(value, bool | int | float)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[\w.]+", value) is not None
