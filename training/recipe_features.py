"""Features that an ablation leaves out, from names to columns.

The matrix keeps its width, so that a model with a column less still fits the schema
that serving computes: its trees only never look there.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Sequence

from costmodel.errors import RecipeError
from costmodel.features.schema import FeatureSchema

_GROUP = "group:"


def columns_of(patterns: Sequence[str], schema: FeatureSchema) -> tuple[int, ...]:
    """Columns that patterns name, sorted.

    Args:
        patterns: Names, patterns such as "range_*", or "group:difference".
        schema: Of the features.

    Raises:
        RecipeError: A pattern names nothing, or nothing would be left.
    """
    names = list(schema.names)
    dropped: set[int] = set()
    for pattern in patterns:
        if pattern.startswith(_GROUP):
            group = pattern.removeprefix(_GROUP)
            if group not in schema.groups:
                raise RecipeError(
                    f"features.drop: unknown group '{group}': expected one of "
                    f"{', '.join(schema.groups)}"
                )
            block = schema.columns(group)
            found = set(range(len(names))[block])
        else:
            matched = fnmatch.filter(names, pattern)
            found = {names.index(name) for name in matched}
        if not found:
            close = difflib.get_close_matches(pattern, names, n=1, cutoff=0.0)
            raise RecipeError(
                f"features.drop: '{pattern}' names no feature: the nearest is "
                f"'{close[0]}'"
            )
        dropped |= found
    if len(dropped) == len(names):
        raise RecipeError("features.drop: expected a feature to be left, found none")
    return tuple(sorted(dropped))
