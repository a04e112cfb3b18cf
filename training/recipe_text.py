"""A recipe back to TOML, every key written out: what a run keeps of its settings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from costmodel.training.recipe import Recipe


def as_toml(recipe: Recipe) -> str:
    """All keys with their values, defaults included; reads back as the same recipe."""
    lines = [f"name = {_written(recipe.name)}"]
    for section in ("data", "split", "features", "model", "gate", "bounds"):
        lines.append(f"\n[{section}]")
        for field in dataclasses.fields(getattr(recipe, section)):
            if field.name == "dropped_columns":
                continue  # said by features.drop, in names
            value = getattr(getattr(recipe, section), field.name)
            lines.append(f"{field.name} = {_written(value)}")
    return "\n".join(lines) + "\n"


def _written(value: object) -> str:
    if isinstance(value, Mapping):
        items = [f"{_written(str(k))} = {_written(v)}" for k, v in value.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_written, value)) + "]"
    # JSON's texts and numbers are TOML's too, but for the escape of a lone DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
