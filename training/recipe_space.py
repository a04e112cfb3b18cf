"""What `costmodel tune` may change of a recipe, and between which values.

A space says for each parameter a range or a list of choices. The recipe's own value
must be among them: the search starts there, so that what it finds is never worse on
what it was searched by, and is compared with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from typing import TypeAlias

from costmodel.errors import RecipeError
from costmodel.training.calibrate import GateLimits
from costmodel.training.fit import FitSettings
from costmodel.training.recipe_read import keys_of
from costmodel.training.recipe_read import refuse_unknown
from costmodel.training.recipe_read import value_of

Value: TypeAlias = int | float | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from low to high, both included; whole ones where low is.

    Attributes:
        low: Smallest.
        high: Largest.
        log: Whether drawn evenly in the logarithm.
    """

    low: float
    high: float
    log: bool = False

    def holds(self, value: Value) -> bool:
        """Whether a value is in it."""
        return isinstance(value, int | float) and self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Choices:
    """One of several values."""

    values: tuple[Value, ...]

    def holds(self, value: Value) -> bool:
        """Whether a value is one of them."""
        return value in self.values


Space: TypeAlias = Mapping[str, Range | Choices]
"""By full name of the parameter, such as "model.max_depth"."""

# What a user demands, and chance: searching them would only loosen or gamble.
_NOT_SEARCHED = {
    "gate.max_harm_share": "what is demanded of a gate",
    "gate.worst_speedup": "what is demanded of a gate",
    "model.seed": "chance",
}


@dataclass(frozen=True, slots=True)
class _DropOnly:
    drop: tuple[str, ...] = ()


_KINDS: dict[str, type[Any]] = {
    "model": FitSettings,
    "gate": GateLimits,
    "features": _DropOnly,
}


def tunable() -> tuple[str, ...]:
    """Full names of all parameters that a space may hold."""
    return tuple(
        f"{section}.{key}"
        for section, kind in _KINDS.items()
        for key in keys_of(kind)
        if f"{section}.{key}" not in _NOT_SEARCHED
    )


def space_of(content: object, where: str) -> dict[str, Range | Choices]:
    """Read the table [tune].

    Args:
        content: What TOML holds: tables of sections of parameters.
        where: Where it is from, for errors.

    Raises:
        RecipeError: A parameter, a range or a choice that means nothing.
    """
    if not isinstance(content, Mapping):
        raise RecipeError(f"{where}: expected [tune] to be a table, found {content!r}")
    refuse_unknown(content, list(_KINDS), "tune", where)
    space: dict[str, Range | Choices] = {}
    for section, kind in _KINDS.items():
        keys = content.get(section, {})
        if not isinstance(keys, Mapping):
            raise RecipeError(
                f"{where}: expected tune.{section} to be a table of parameters, "
                f"found {keys!r}"
            )
        refuse_unknown(keys, keys_of(kind), f"tune.{section}", where)
        for key, found in keys.items():
            name = f"{section}.{key}"
            if name in _NOT_SEARCHED:
                raise RecipeError(
                    f"{where}: tune.{name} is {_NOT_SEARCHED[name]} and is not "
                    f"searched: expected one of {', '.join(tunable())}"
                )
            space[name] = _domain(found, getattr(kind(), key), name, where)
    return space


def _domain(found: object, usual: Value, name: str, where: str) -> Range | Choices:
    at = f"{where}: tune.{name}"
    if isinstance(found, list):
        values = tuple(value_of(one, usual, name, where) for one in found)
        if len(set(values)) < 2 or len(set(values)) < len(values):
            raise RecipeError(f"{at}: expected two different choices, found {found!r}")
        return Choices(values)
    if not isinstance(found, Mapping) or isinstance(usual, tuple):
        wanted = "a list of choices"
        if not isinstance(usual, tuple):
            wanted += " or { low = ..., high = ... }"
        raise RecipeError(f"{at}: expected {wanted}, found {found!r}")
    refuse_unknown(found, ("low", "high", "log"), f"tune.{name}", where)
    if "low" not in found or "high" not in found:
        raise RecipeError(f"{at}: expected low and high, found {dict(found)!r}")
    low, high = (value_of(found[key], usual, name, where) for key in ("low", "high"))
    log = value_of(found.get("log", False), False, f"tune.{name}.log", where)
    if not low < high:
        raise RecipeError(f"{at}: expected low below high, found {low} and {high}")
    if log and low <= 0:
        raise RecipeError(f"{at}: expected low above 0 where log is true, found {low}")
    return Range(low, high, log)


def check_start(space: Space, own: Mapping[str, Value], where: str) -> None:
    """Refuse a space that does not hold the recipe's own values.

    Raises:
        RecipeError: It does not.
    """
    for name, domain in space.items():
        if not domain.holds(own[name]):
            raise RecipeError(
                f"{where}: tune.{name}: expected the recipe's own value "
                f"{shown(own[name])} in {shown(domain)}: the search starts there"
            )


def shown(value: Value | Range | Choices) -> str:
    """A value or a domain, for people."""
    if isinstance(value, Range):
        return f"{value.low:g} to {value.high:g}{' (log)' if value.log else ''}"
    if isinstance(value, Choices):
        return " or ".join(map(shown, value.values))
    if isinstance(value, tuple):
        return "[" + ", ".join(value) + "]"
    return f"{value:.6g}" if math.isfinite(value) else str(value)
