"""From TOML values to fields of a dataclass: nothing is guessed, nothing is ignored."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection
from collections.abc import Mapping
from typing import Any
from typing import TypeVar

from costmodel.errors import RecipeError
from costmodel.training.recipe_limits import check_number

_Section = TypeVar("_Section")

# Of the fit, but said by [features] in names and not in columns.
NOT_KEYS = frozenset({"dropped_columns"})


def section_of(
    kind: type[_Section], content: object, name: str, where: str
) -> _Section:
    """One table as a dataclass; what it does not say has the default.

    Args:
        kind: The dataclass, whose defaults say the types.
        content: What TOML holds.
        name: Of the table.
        where: Where it is from, for errors.

    Raises:
        RecipeError: No table, or a key or value that means nothing.
    """
    if not isinstance(content, Mapping):
        raise RecipeError(
            f"{where}: expected [{name}] to be a table, found {content!r}"
        )
    refuse_unknown(content, keys_of(kind), name, where)
    usual = kind()
    values = {
        key: value_of(found, getattr(usual, key), f"{name}.{key}", where)
        for key, found in content.items()
    }
    return kind(**values)


def keys_of(kind: type[Any]) -> list[str]:
    """Names of a table's keys."""
    return [one.name for one in dataclasses.fields(kind) if one.name not in NOT_KEYS]


def value_of(found: object, usual: object, name: str, where: str) -> Any:
    """A value as the type of its default.

    Raises:
        RecipeError: Of another type, or out of the limits of its key.
    """
    if isinstance(usual, Mapping):
        if isinstance(found, Mapping):
            like: object = () if name == "split.folds" else 0.0
            return {
                str(key): value_of(value, like, f"{name}.{key}", where)
                for key, value in found.items()
            }
        wanted = "a table"
    elif isinstance(usual, tuple):
        if isinstance(found, list) and all(isinstance(one, str) for one in found):
            return tuple(found)
        wanted = "a list of texts"
    elif isinstance(usual, bool):
        if isinstance(found, bool):
            return found
        wanted = "true or false"
    elif isinstance(found, bool) or not isinstance(found, int | float):
        wanted = "a number"
    elif isinstance(usual, int) and not isinstance(found, int):
        wanted = "a whole number"
    else:
        check_number(name, found, where)
        return found if isinstance(usual, int) else float(found)
    raise RecipeError(f"{where}: expected {name} to be {wanted}, found {found!r}")


def refuse_unknown(
    content: Collection[str], known: Collection[str], at: str, where: str
) -> None:
    """Refuse a key that means nothing, with the nearest one that does.

    Raises:
        RecipeError: There is such a key.
    """
    for key in content:
        if key in known:
            continue
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
        full = f"{at}.{key}" if at else key
        raise RecipeError(
            f"{where}: unknown key '{full}': the nearest known one is '{close[0]}' "
            f"(of {', '.join(known)})"
        )
