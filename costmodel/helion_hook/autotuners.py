"""The object that Helion asks in place of its own search."""

from __future__ import annotations

import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import Protocol

from costmodel.helion_hook.plain import helion_config
from costmodel.types import Config


class DecideOnCall(Protocol):
    """Answers one request of Helion's for a config."""

    def __call__(
        self,
        bound: Any,
        args: Sequence[object],
        *,
        skip_cache: bool,
        options: dict[str, object],
    ) -> Config:
        """Decide.

        Args:
            bound: The bound kernel, or an adapter around it while a fused kernel is
                tuned.
            args: The call's arguments.
            skip_cache: Helion's word that no cache may be read: a search was forced.
            options: What the user passed to `kernel.autotune`.
        """
        ...


def make_autotuner(decide: DecideOnCall) -> Callable[..., Any]:
    """An `autotuner_fn` for `helion.kernel` that asks `decide`."""

    def autotuner_fn(bound: Any, args: Sequence[object], **options: object) -> Any:
        return _deciding_autotuner()(
            functools.partial(decide, bound, args, options=options)
        )

    return autotuner_fn


@functools.cache
def _deciding_autotuner() -> Any:
    """The autotuner class; made on first use because its base is Helion's."""
    from helion.autotuner.base_search import BaseAutotuner

    class DecidingAutotuner(BaseAutotuner):  # type: ignore[misc,unused-ignore]
        """Answers a search request with one decision."""

        def __init__(self, decide: Callable[..., Config]) -> None:
            self._decide = decide

        def autotune(self, *, skip_cache: bool = False) -> Any:
            return helion_config(self._decide(skip_cache=skip_cache))

    return DecidingAutotuner
