"""Configs between Helion's type and our plain JSON values."""

from __future__ import annotations

import json
from typing import Any

from costmodel.types import Config


def plain_config(config: Any) -> Config:
    """A Helion config as JSON values of our own."""
    plain: Config = json.loads(json.dumps(config.config, default=str))
    return plain


def helion_config(config: Config) -> Any:
    import helion

    return helion.Config(**json.loads(json.dumps(config)))


def plain_value(value: Any) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    return json.loads(json.dumps(value, default=str))
