"""What Helion itself would do with a bound kernel now, as facts to decide on."""

from __future__ import annotations

import os
from typing import Any

from costmodel.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything about a kernel and the environment that decides who may answer.

    Attributes:
        effort: Helion's `autotune_effort`: none, quick or full.
        n_user_configs: How many configs the kernel's author listed.
        is_default_autotuner: Whether the kernel uses Helion's default `autotuner_fn`.
        is_forced: `HELION_FORCE_AUTOTUNE`: a search is wanted whatever is known.
        is_disallowed: `HELION_DISALLOW_AUTOTUNING`: nothing may be measured.
        asserts_cache_hit: `HELION_ASSERT_CACHE_HIT`: a missing entry is an error.
        hands_off: Helion hands the search to an agent.
        aot_mode: Mode of Helion's AOT workflow where the kernel uses its cache.
        is_reference: The kernel runs in Helion's interpret mode.
        backend: Code generator, such as "triton".
    """

    effort: str
    n_user_configs: int
    is_default_autotuner: bool
    is_forced: bool
    is_disallowed: bool
    asserts_cache_hit: bool
    hands_off: bool
    aot_mode: str | None
    is_reference: bool
    backend: str


def situation_of(bound: Any) -> Situation:
    """Read the facts; they may change between two calls, so nothing is kept."""
    from helion.runtime.ref_mode import is_ref_mode_enabled
    from helion.runtime.settings import default_autotuner_fn

    settings = bound.settings
    aot_mode = None
    if settings.autotune_cache == "AOTAutotuneCache":
        aot_mode = os.environ.get("HELION_AOT_MODE", "evaluate").lower()
    return Situation(
        effort=str(settings.autotune_effort),
        n_user_configs=len(bound.kernel.configs),
        is_default_autotuner=settings.autotuner_fn is default_autotuner_fn,
        is_forced=bool(settings.force_autotune),
        is_disallowed=os.environ.get("HELION_DISALLOW_AUTOTUNING") == "1",
        asserts_cache_hit=os.environ.get("HELION_ASSERT_CACHE_HIT") == "1",
        hands_off=bool(getattr(settings, "autotune_handoff", False)),
        aot_mode=aot_mode,
        is_reference=bool(is_ref_mode_enabled(settings)),
        backend=str(bound.config_spec.backend_name),
    )


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured: nothing may wait for the GPU then."""
    import torch

    cuda: Any = torch.cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


def is_kernel(value: object) -> bool:
    """Whether it is a Helion kernel, which can be bound and called."""
    import helion

    return isinstance(value, helion.Kernel)


def is_bound_kernel(value: object) -> bool:
    """Whether it is what `kernel.bind(args)` returns, of any Helion that has such."""
    try:
        from helion.runtime.kernel import BoundKernel
    except ImportError:  # `refusal` says what is wrong with this Helion
        return value is not None
    return isinstance(value, BoundKernel)
