"""Helion's benchmark where several processes share one GPU.

Compiling needs no GPU and happens without the turn; the baseline for the accuracy check
and the timings take it.
"""

from __future__ import annotations

from typing import Any
from typing import Protocol


class GpuTurn(Protocol):
    """Who may use the GPU now; `take` and `give` may be called twice in a row."""

    def take(self) -> None:
        """Wait until it is ours."""

    def give(self) -> None:
        """Let others have it."""


def in_turn(turn: GpuTurn, provider_base: type | None = None) -> Any:
    """A benchmark provider of Helion that waits for the GPU before it uses it.

    The turn may be held after a benchmark: whoever called goes on timing or gives it.

    Args:
        turn: The GPU's queue.
        provider_base: Benchmark provider to build on, for tests without a GPU.
    """
    from helion.autotuner.benchmark_provider import LocalBenchmarkProvider
    from helion.autotuner.precompile_future import PrecompileContext
    from helion.autotuner.precompile_future import PrecompileFuture

    base: Any = provider_base or LocalBenchmarkProvider

    class Provider(base):  # type: ignore[misc,unused-ignore]
        """Takes the turn for GPU work."""

        def _compute_baseline(self) -> Any:
            # The reference config is compiled in a child first, off the GPU's time.
            if self.settings.autotune_precompile:
                config = self.config_spec.autotune_reference_config()
                context = PrecompileContext(
                    self.settings, self.log, self.kernel, self.args, 1
                )
                launch = self.kernel.compile_config(config, allow_print=False)
                future = PrecompileFuture.create(
                    context,
                    config,
                    launch,
                    self.args,
                    self._next_precompile_result_path(),
                    None,
                )
                future()
            turn.take()
            return super()._compute_baseline()

        def benchmark(self, *a: Any, **k: Any) -> Any:
            turn.give()
            return super().benchmark(*a, **k)

        def _benchmark_function(self, *a: Any, **k: Any) -> float:
            turn.take()
            return float(super()._benchmark_function(*a, **k))

    return Provider
