"""Autotuners that Helion calls in place of its own search."""

from __future__ import annotations

import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from costmodel.helion_hook.plain import helion_config
from costmodel.types import Config


def make_autotuner(
    decide: Callable[[Any, Sequence[object]], Config],
) -> Callable[..., Any]:
    """An `autotuner_fn` for `helion.kernel` that asks `decide` and never benchmarks.

    Args:
        decide: Gets the bound kernel and the call's arguments, returns a config.
    """

    def autotuner_fn(bound: Any, args: Sequence[object], **_options: object) -> Any:
        return _deciding_autotuner()(lambda: decide(bound, args))

    return autotuner_fn


@functools.cache
def _deciding_autotuner() -> Any:
    """The autotuner class; made on first use because its base is Helion's."""
    from helion.autotuner.base_search import BaseAutotuner

    class DecidingAutotuner(BaseAutotuner):  # type: ignore[misc,unused-ignore]
        """Answers a search request with one decision."""

        def __init__(self, decide: Callable[[], Config]) -> None:
            self._decide = decide

        def autotune(self, *, skip_cache: bool = False) -> Any:
            return helion_config(self._decide())

    return DecidingAutotuner
