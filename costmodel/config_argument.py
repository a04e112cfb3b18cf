"""Configs on the command line: one JSON object."""

from __future__ import annotations

import json

from costmodel.errors import ArgumentSpecError
from costmodel.types import Config


def parse_config(text: str) -> Config:
    """A config from the text of `--config`.

    Raises:
        ArgumentSpecError: Not a JSON object.
    """
    try:
        config = json.loads(text)
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise ArgumentSpecError(
            f"expected --config with a JSON object, found {text!r}: quote it for the "
            "shell, such as --config '{\"num_warps\": 4}'"
        )
    return config
