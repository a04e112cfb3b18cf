"""Build full configs from the few knobs that a decision list sets.

A draft starts from a *plain* config: the default's keys and list lengths, with every
knob that no list has set at Helion's neutral value. So a list says only what it has a
reason for, and two lists that say the same give the same config.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from costmodel.frozen import dataclass
from costmodel.types import Config

_NEUTRAL: Mapping[str, Any] = {
    "flatten_loops": False,
    "l2_groupings": 1,
    "reduction_loops": None,
    "range_unroll_factors": 0,
    "range_warp_specializes": None,
    "range_num_stages": 0,
    "range_multi_buffers": None,
    "range_flattens": None,
    "static_ranges": False,
    "indexing": "pointer",
    "atomic_indexing": "pointer",
    "load_eviction_policies": "",
}
"""Entry of a list knob that changes nothing (Helion 1.5.1, `ConfigSpec` fills)."""

PERSISTENT = ("persistent_blocked", "persistent_interleaved")


@dataclass(frozen=True, slots=True)
class Draft:
    """A config on its way to being a candidate, with its reason in words."""

    config: Config
    reason: str


def plain_config(default: Config) -> Config:
    """The default's shape with neutral values; its block sizes and pid type stay.

    Args:
        default: A full config of the kernel.
    """
    config: Config = {}
    for key, value in default.items():
        if key in _NEUTRAL and isinstance(value, list):
            config[key] = [_NEUTRAL[key]] * len(value)
        elif key == "loop_orders":
            config[key] = [sorted(order) for order in value]
        elif key == "host_tensor_descriptors":
            config[key] = False
        elif key in ("num_sm_multiplier", "maxnreg"):
            continue
        else:
            config[key] = value
    config["num_warps"] = 4
    config["num_stages"] = 1
    if str(default.get("pid_type", "flat")) in PERSISTENT:
        # Kept: where Helion starts persistent, "flat" may not be legal.
        config["num_sm_multiplier"] = 1
    return config


def changed(config: Config, **knobs: Any) -> Config:
    """A copy with some knobs set; a list knob of a kernel that lacks it is skipped.

    A scalar for a list knob sets all its entries. None leaves a scalar knob as it is.
    """
    result = dict(config)
    for key, value in knobs.items():
        known = config.get(key)
        if isinstance(known, list):
            if not isinstance(value, list | tuple):
                value = [value] * len(known)
            result[key] = [*value, *known[len(value) :]][: len(known)]
        elif key in ("num_warps", "num_stages", "pid_type", "num_sm_multiplier"):
            if value is not None:
                result[key] = value
        elif key == "host_tensor_descriptors" and key in config:
            result[key] = value
    if str(result.get("pid_type", "flat")) not in PERSISTENT:
        result.pop("num_sm_multiplier", None)
        result.pop("maxnreg", None)
    else:
        result.setdefault("num_sm_multiplier", 1)
    return result


def with_entry(config: Config, key: str, index: int, value: Any) -> Config:
    """A copy with one entry of a list knob set; unchanged where there is none."""
    known = config.get(key)
    if not isinstance(known, list) or not 0 <= index < len(known):
        return config
    entries = list(known)
    entries[index] = value
    return {**config, key: entries}


def with_blocks(config: Config, sizes: Mapping[int, int]) -> Config:
    """A copy with the block sizes of some slots set."""
    blocks = list(config.get("block_sizes", ()))
    for slot, size in sizes.items():
        blocks[slot] = size
    return {**config, "block_sizes": blocks}


def distinct(drafts: Sequence[Draft], limit: int) -> list[Draft]:
    """The first of each config, at most `limit`."""
    seen: set[str] = set()
    kept: list[Draft] = []
    for draft in drafts:
        text = repr(sorted(draft.config.items(), key=lambda item: item[0]))
        if text not in seen:
            seen.add(text)
            kept.append(draft)
    return kept[:limit]
