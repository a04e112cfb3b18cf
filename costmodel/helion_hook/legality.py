"""Whether Helion's own search could hand out a config."""

from __future__ import annotations

from typing import Any

from costmodel.helion_hook.devices import cache_of
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
            return plain_config(_normalized(bound.config_spec, config))
        except Exception:  # InvalidConfig, or whatever a malformed value trips
            return None


def _normalized(spec: Any, config: Config) -> Any:
    """A normalized copy; Helion 1.4 only normalizes in place."""
    copied = getattr(spec, "normalized_config", None)
    if copied is not None:
        return copied(dict(config))
    found = helion_config(config)
    spec.normalize(found)
    return found


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


def under_user_rules(bound: Any, config: Config) -> Config | None:
    """The config as the kernel's author wants it, or None if the author refuses it.

    `autotune_config_overrides` are written over it, then `autotune_config_filter` may
    rewrite or refuse it, in the order in which Helion's search applies them.
    """
    settings = bound.settings
    overrides = getattr(settings, "autotune_config_overrides", None) or {}
    ruled = {**config, **{key: plain_value(overrides[key]) for key in overrides}}
    keep = getattr(settings, "autotune_config_filter", None)
    if keep is not None:
        kept = keep(helion_config(ruled))
        if kept is None:
            return None
        ruled = plain_config(kept)
    return ruled


def has_user_rules(bound: Any) -> bool:
    """Whether the kernel's author overrides or filters configs."""
    settings = bound.settings
    return bool(
        getattr(settings, "autotune_config_overrides", None)
        or getattr(settings, "autotune_config_filter", None)
    )


def user_seeds(bound: Any) -> tuple[Config, ...]:
    """`autotune_seed_configs` of the kernel's author, as plain values."""
    given = getattr(bound.settings, "autotune_seed_configs", None)
    if given is None:
        return ()
    seeds = list(given) if isinstance(given, (list, tuple)) else [given]
    return tuple(
        plain_value(seed) if isinstance(seed, dict) else plain_config(seed)
        for seed in seeds
    )


def _numel_objections(bound: Any, normalized: Config) -> list[str]:
    """Triton's limit on elements of one tensor, as Helion states it."""
    blocks = normalized.get("block_sizes", [])
    # Symbols are substituted for each check; a shortlist has few tiles.
    known: dict[tuple[Any, ...], bool] = cache_of(bound).setdefault("numel", {})
    found = []
    for constraint in getattr(bound.config_spec, "tensor_numel_constraints", ()):
        sizes = [blocks[index] for index in constraint.block_indices]
        key = (id(constraint.check_fn), *sizes)
        if key not in known:
            known[key] = bool(constraint.check_fn(*sizes))
        if not known[key]:
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
