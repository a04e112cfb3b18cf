"""Whether Helion's own search could hand out a config."""

from __future__ import annotations

from typing import Any

from costmodel.helion_hook.devices import device_of
from costmodel.helion_hook.knobs import space
from costmodel.helion_hook.plain import helion_config
from costmodel.helion_hook.plain import plain_config
from costmodel.helion_hook.plain import plain_value
from costmodel.types import Config


def normalize(bound: Any, config: Config) -> Config | None:
    """The config as Helion would compile it, or None if Helion refuses it.

    Helion repairs some values silently (a block size under the minimum) and lets
    others through that cannot run (64 warps, "many" warps, a list of the wrong
    length): see `is_legal`.
    """
    with device_of(bound):
        try:
            return plain_config(bound.config_spec.normalized_config(dict(config)))
        except Exception:  # InvalidConfig, or whatever a malformed value trips
            return None


def is_legal(bound: Any, config: Config) -> bool:
    """Whether Helion's own search could hand out this config."""
    return not objections(bound, config)


def objections(bound: Any, config: Config) -> list[str]:
    """Why `is_legal` says no, one line for each reason."""
    normalized = normalize(bound, config)
    if normalized is None:
        return ["Helion's normalize refuses it"]
    found = space(bound).objections(config)
    found += _numel_objections(bound, normalized)
    found += _user_objections(bound, config, normalized)
    return found


def _numel_objections(bound: Any, normalized: Config) -> list[str]:
    """Triton's limit on elements of one tensor, as Helion states it."""
    blocks = normalized.get("block_sizes", [])
    found = []
    for constraint in getattr(bound.config_spec, "tensor_numel_constraints", ()):
        sizes = [blocks[index] for index in constraint.block_indices]
        if not constraint.check_fn(*sizes):
            found.append(f"block_sizes: {constraint.expr_str} is over Triton's limit")
    return found


def _user_objections(bound: Any, config: Config, normalized: Config) -> list[str]:
    """The kernel author's own filter and overrides."""
    settings = bound.settings
    found = []
    overrides = getattr(settings, "autotune_config_overrides", None) or {}
    for key, value in overrides.items():
        if normalized.get(key) != plain_value(value):
            found.append(f"{key}: the kernel's overrides demand {value!r}")
    keep = getattr(settings, "autotune_config_filter", None)
    if keep is not None:
        kept = keep(helion_config(config))
        if kept is None or plain_config(kept) != plain_config(helion_config(config)):
            found.append("the kernel's config filter does not keep it")
    return found
