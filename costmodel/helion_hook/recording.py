"""Helion's own search over a given list of configs, on a real GPU, with its logs."""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from costmodel.frozen import dataclass
from costmodel.helion_hook.devices import device_of
from costmodel.helion_hook.plain import helion_config
from costmodel.helion_hook.plain import plain_config
from costmodel.helion_hook.turn_provider import GpuTurn
from costmodel.helion_hook.turn_provider import in_turn
from costmodel.types import Config


@dataclass(frozen=True, slots=True)
class Benchmarked:
    """One row of a recording: what Helion's benchmark said of one config.

    Attributes:
        config: As given.
        latency_us: Microseconds by Helion's benchmark; infinite unless `status` is ok.
        status: Helion's word: ok, error, timeout.
        launch: The compiled config, called with the kernel's arguments.
    """

    config: Config
    latency_us: float
    status: str
    launch: Callable[..., Any]


def recording_search(
    bound: Any,
    args: Sequence[Any],
    configs: Sequence[Config],
    settings: Mapping[str, Any],
    turn: GpuTurn,
    before_timing: Callable[[], None],
    expired: Callable[[], bool],
    provider_base: type | None = None,
) -> list[Benchmarked]:
    """Benchmark configs in the given order and write Helion's log files.

    Compiling needs no GPU and happens without the turn; the baseline for the accuracy
    check and the timings take it. The turn may be held on return: whoever called goes
    on timing or gives it.

    Args:
        bound: The kernel bound to `args`.
        args: Arguments on the GPU.
        configs: Full configs, in the order to time; one may come several times.
        settings: Helion settings for this run, such as `autotune_log`.
        turn: The GPU's queue.
        before_timing: Called once when the turn is ours, before the first timing.
        expired: Asked between configs; true leaves the rest without a row.
        provider_base: Benchmark provider to build on, for tests without a GPU.
    """
    from helion.autotuner.finite_search import FiniteSearch

    class Provider(in_turn(turn, provider_base)):  # type: ignore[misc,unused-ignore]
        """Tells when timing begins, and stops long estimates early."""

        timing = False

        def _probe_long_kernel(self) -> bool:
            # One launch of over 50 ms is its own reading; else it runs nine times.
            return True

        def _benchmark_function(self, *a: Any, **k: Any) -> float:
            turn.take()
            if not self.timing:
                self.timing = True
                before_timing()
            return float(super()._benchmark_function(*a, **k))

    class Recording(FiniteSearch):  # type: ignore[misc,unused-ignore]
        """A finite search that logs as a full one and keeps all results."""

        results: Sequence[Any] = ()

        def _is_restricted_search(self) -> bool:
            return False  # else Helion writes no .meta.jsonl

        def _autotune_budget_exceeded(self) -> bool:
            return expired()

        def _autotune(self) -> Any:
            self.results = self.benchmark_batch(
                self.configs, raise_if_no_viable_config=False
            )
            return min(self.results, key=lambda one: one.perf).config

    # The settings belong to the kernel, whose other workloads come later.
    before = {name: getattr(bound.settings, name) for name in settings}
    try:
        for name, value in settings.items():
            setattr(bound.settings, name, value)
        search = Recording(
            bound,
            args,
            [helion_config(config) for config in configs],
            benchmark_provider_cls=Provider,
        )
        search.autotune()
    finally:
        for name, value in before.items():
            setattr(bound.settings, name, value)
    return [
        Benchmarked(config, one.perf * 1e3, one.status, one.fn)
        for config, one in zip(configs, search.results, strict=True)
    ]


def random_config(bound: Any, seed: int) -> Config:
    """A config from Helion's own generator; equal for equal seeds."""
    state = random.getstate()
    random.seed(seed)
    try:
        with device_of(bound):
            generation = bound.config_spec.create_config_generation()
            return plain_config(generation.random_config())
    finally:
        random.setstate(state)
