"""What `COSTMODEL_ENABLE` does: enable us in a process whose code does not name us.

Torch calls `activate` at the end of its own import (entry point `torch.backends`).
Without the variable that costs one look at the environment; with it, kernels are
answered once Helion has been imported. Nothing here may fail: it would fail the import
of torch.

The variable holds a mode, and options after commas:
`COSTMODEL_ENABLE=predict`, `COSTMODEL_ENABLE=verify,user_lists,verify_output`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from costmodel.helion_hook import Decide
    from costmodel.types import Config

ENABLE_VARIABLE = "COSTMODEL_ENABLE"
_MODES = ("predict", "code", "verify", "seed")
_OPTIONS = ("user_lists", "verify_output")
_OFF = {"", "0", "false", "no", "off"}
_ON = {"1", "true", "yes", "on"}


def activate() -> None:
    """Enable us if the environment says so; never raises."""
    value = os.environ.get(ENABLE_VARIABLE, "").strip().lower()
    if value in _OFF:
        return
    try:
        mode, options = parse(value)
        from costmodel import helion_hook

        helion_hook.install(_Late(mode, options))
    except Exception as error:
        words = " ".join(str(error).split())
        print(f"costmodel: {ENABLE_VARIABLE} is ignored: {words}", file=sys.stderr)


def parse(value: str) -> tuple[str, dict[str, bool]]:
    """The mode and options that the variable names.

    Raises:
        ValueError: A name is unknown.
    """
    mode, *names = (part.strip() for part in value.lower().split(","))
    mode = "predict" if mode in _ON else mode
    if mode not in _MODES:
        raise ValueError(f"expected a mode among {_MODES}, found {mode!r}")
    for name in names:
        if name not in _OPTIONS:
            raise ValueError(f"expected an option among {_OPTIONS}, found {name!r}")
    return mode, {name: True for name in names}


class _Late:
    """Imports what decides at the first question, not with torch."""

    def __init__(self, mode: str, options: dict[str, bool]) -> None:
        self._mode = mode
        self._options = options
        self._decide: Decide | None = None

    def __call__(self, bound: Any, args: Sequence[object]) -> Config | None:
        decide = self._decide
        if decide is None:
            from costmodel.enabling import make_decider

            # Two threads may both get here; then one of two equals is kept.
            decide = self._decide = make_decider(
                self._mode,
                user_lists=self._options.get("user_lists", False),
                verify_output=self._options.get("verify_output", False),
            )
        return decide(bound, args)
