"""The providers of this process, and what a user asks of them.

One provider for the usual model and one for each other path, so that a model is loaded
once however many kernels ask. An entry that Helion tuned comes before any pick.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from costmodel import helion_hook
from costmodel.errors import WrongArgumentError
from costmodel.provider import DEFAULT_TOP
from costmodel.provider import Provider
from costmodel.types import Pick

_PROVIDER: Provider | None = None
_BY_PATH: dict[str, Provider] = {}
_PROVIDER_LOCK = threading.Lock()


def default_provider() -> Provider:
    """The process-wide provider, made on first use."""
    global _PROVIDER
    if _PROVIDER is None:
        with _PROVIDER_LOCK:
            if _PROVIDER is None:
                _PROVIDER = Provider()
    return _PROVIDER


def provider_for(model_path: str | os.PathLike[str] | None) -> Provider:
    """The process-wide provider of a model; one for each path, so it is loaded once."""
    if model_path is None:
        return default_provider()
    with _PROVIDER_LOCK:
        return _BY_PATH.setdefault(os.fspath(model_path), Provider(model_path))


def _renew_lock() -> None:
    """In a forked child: a lock that another thread held there stays held."""
    global _PROVIDER_LOCK
    _PROVIDER_LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def pick(
    bound: Any,
    args: Sequence[object] | None = None,
    *,
    verify: str | None = None,
    top: int = DEFAULT_TOP,
) -> Pick:
    """Choose a config for a bound Helion kernel at compile time, with no benchmark.

    What Helion tuned for this kernel and shape on this machine comes first, if it did.

    Example:
        >>> bound = my_kernel.bind((x, y))
        >>> answer = costmodel.pick(bound)
        >>> answer.config, answer.source, answer.detail

    Args:
        bound: What `kernel.bind(args)` returned.
        args: The call's arguments; only shapes and dtypes are read.
        verify: "compile" to compile the choice in a child process, no GPU needed, and
            to take the next one where the compiler refuses it or spills heavily; some
            seconds the first time, next to none once the result is kept. "code" to
            compile the best few and choose again by their machine code.
        top: Choices to compile at most.

    Returns:
        A `Pick`. On any failure of ours it holds Helion's default and says why; where
        only the compile check fails, it is the pick without it, and says so.

    Raises:
        ValueError: `verify` is something else.
        WrongArgumentError: `bound` is no bound kernel.
    """
    check_bound(bound)
    provider = default_provider()
    found = provider.tuned(bound, args)
    if found is None:
        return provider.pick(bound, args, verify=verify, top=top)
    provider.count(bound, found)
    return found


def check_bound(bound: object) -> None:
    """For what users call; what Helion hands over is never asked.

    Raises:
        WrongArgumentError: It is no bound kernel.
    """
    if not helion_hook.is_bound_kernel(bound):
        found = "None" if bound is None else type(bound).__name__
        raise WrongArgumentError(
            f"expected a bound kernel: my_kernel.bind(args), found {found}"
        )


def stats() -> dict[str, int]:
    """How often each reason decided in this process, by reason code."""
    total: Counter[str] = Counter()
    for provider in (default_provider(), *list(_BY_PATH.values())):
        total.update(provider.stats())
    return dict(sorted(total.items()))
