"""A recipe back to TOML, every key written out: what a run keeps of its settings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from costmodel.training.recipe import SECTIONS
from costmodel.training.recipe import Recipe
from costmodel.training.recipe_read import NOT_KEYS
from costmodel.training.recipe_space import Choices


def as_toml(recipe: Recipe) -> str:
    """All keys with their values, defaults included; reads back as the same recipe."""
    lines = [f"name = {_written(recipe.name)}"]
    for section in SECTIONS:
        lines.append(f"\n[{section}]")
        for field in dataclasses.fields(getattr(recipe, section)):
            if field.name in NOT_KEYS:
                continue  # said by features.drop, in names
            value = getattr(getattr(recipe, section), field.name)
            lines.append(f"{field.name} = {_written(value)}")
    if recipe.tune:
        lines.append("\n[tune]")
    for name, domain in recipe.tune.items():
        if isinstance(domain, Choices):
            lines.append(f"{name} = {_written(domain.values)}")
        else:
            lines.append(f"{name} = {_written(dataclasses.asdict(domain))}")
    return "\n".join(lines) + "\n"


def _written(value: object) -> str:
    if isinstance(value, Mapping):
        items = [f"{_written(str(k))} = {_written(v)}" for k, v in value.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_written, value)) + "]"
    # JSON's texts and numbers are TOML's too, but for the escape of a lone DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
