"""Control files for ptxas in Helion's configs and searches."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from costmodel.acf.identity import KNOB
from costmodel.helion_hook.tuned import underlying


def controls_objection(bound: Any) -> str | None:
    """Why a config of this kernel cannot name a control file; None where it can."""
    import helion

    kernel = underlying(bound)
    if not isinstance(getattr(helion.Config, KNOB, None), property):
        return "this Helion's configs name no control file"
    if kernel is not bound:
        return "Helion tunes it as a part of a fused kernel"
    settings = kernel.settings
    if KNOB in (getattr(settings, "autotune_config_overrides", None) or {}):
        return "the kernel's overrides say which control file to use"
    backend = getattr(settings, "backend", "triton")
    if backend != "triton":
        return f"backend {backend} runs no ptxas of Triton's"
    return None


def searched_controls(bound: Any) -> tuple[str, ...]:
    """Paths of control files that the kernel's author wants searched besides none."""
    given = getattr(underlying(bound).settings, "autotune_search_acf", None)
    return tuple(str(path) for path in given or () if path)


def searching_controls(bound: Any, paths: Sequence[str]) -> Any:
    """The same bound kernel, for a search that tries these control files as well.

    The kernel's own settings stay as they are.
    """
    kernel = copy.copy(bound.kernel)
    kernel.settings = copy.copy(bound.settings)
    # Helion adds none by itself, but last, and takes the first for what a config that
    # names no file has: its default and our seeds would all get that file.
    kernel.settings.autotune_search_acf = ["", *paths]
    shown = copy.copy(bound)
    shown.kernel = kernel
    return shown
