"""Helion's own search within limits, as a user would run it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from costmodel.frozen import dataclass
from costmodel.helion_hook.plain import plain_config
from costmodel.helion_hook.searches import plant
from costmodel.helion_hook.turn_provider import GpuTurn
from costmodel.helion_hook.turn_provider import in_turn
from costmodel.types import Config


@dataclass(frozen=True, slots=True)
class Searched:
    """What Helion's search found.

    Attributes:
        config: Its best.
        n_configs: Configs it benchmarked.
        seconds: Wall time, compiling included.
    """

    config: Config
    n_configs: int
    seconds: float


def quick_search(
    bound: Any,
    args: Sequence[Any],
    settings: Mapping[str, Any],
    *,
    seconds: float,
    max_configs: int,
    heartbeat: Callable[[], None],
    provider_base: type | None = None,
    seeds: Sequence[Config] = (),
    turn: GpuTurn | None = None,
) -> Searched:
    """Run Helion's search at effort "quick" until a limit; nothing is cached.

    The limits stop new configs; the batch in flight is finished, as Helion does with
    its own budget.

    Args:
        bound: The kernel bound to `args`.
        args: Arguments on the GPU.
        settings: Helion settings for this search.
        seconds: Wall time after which nothing new is tried.
        max_configs: Configs after which nothing new is tried.
        heartbeat: Called whenever Helion asks whether to go on.
        provider_base: Benchmark provider to use, for tests without a GPU.
        seeds: Configs to start from, after those of the kernel's author; Helion's own
            proposals come after them.
        turn: The GPU's queue, where others use it as well; given back at the end.
    """
    from helion.runtime.settings import default_autotuner_fn

    settings = {
        **settings,
        "autotune_effort": "quick",
        "autotune_budget_seconds": math.ceil(seconds),
    }
    before = {name: getattr(bound.settings, name) for name in settings}
    began_s = time.perf_counter()
    try:
        for name, value in settings.items():
            setattr(bound.settings, name, value)
        # The cache around it would answer from, and write to, the user's folder.
        search: Any = default_autotuner_fn(bound, args)
        search = getattr(search, "autotuner", search)
        if seeds:
            plant(search, seeds)
        if turn is not None:
            search._benchmark_provider_cls = in_turn(turn, provider_base)
            if hasattr(search, "rebenchmark"):  # in this process, not by the provider
                search.rebenchmark = _taking(turn, search.rebenchmark)
        elif provider_base is not None:
            search._benchmark_provider_cls = provider_base
        over_budget = search._autotune_budget_exceeded

        def exceeded() -> bool:
            heartbeat()
            tested = search._autotune_metrics.num_configs_tested
            return bool(tested >= max_configs or over_budget())

        search._autotune_budget_exceeded = exceeded
        config = search.autotune()
    finally:
        if turn is not None:
            turn.give()
        for name, value in before.items():
            setattr(bound.settings, name, value)
    return Searched(
        config=plain_config(config),
        n_configs=int(search._autotune_metrics.num_configs_tested),
        seconds=time.perf_counter() - began_s,
    )


def _taking(turn: GpuTurn, work: Callable[..., None]) -> Callable[..., None]:
    """The same work, the GPU being ours.

    It is kept afterwards: the search thinks for milliseconds and compiles next, before
    which the provider gives it back.
    """

    def in_its_turn(*a: Any, **k: Any) -> None:
        turn.take()
        work(*a, **k)

    return in_its_turn
