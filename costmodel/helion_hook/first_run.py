"""The first launch of a predicted config, which nobody has compiled for a GPU yet.

Helion generates a program for nearly every config; Triton, the assembler or the driver
may still refuse it. Helion's searches meet that while measuring, a prediction at the
kernel's first call. There Helion's default takes over, once, where all of this holds:

- the exception came out of Triton's launcher, so that it is no error of the call's;
- Helion itself would take it for the config's fault when searching, or it is one of
  Triton's compile errors, and it is not running out of memory;
- the device still works: nothing after an illegal access can be tried again;
- nothing was launched before it, and the host code has written to no argument: what
  ran once must not run twice.

Where only the last is not so the exception stays, and the next call uses the default.
An error of the default's is raised as Helion alone would raise it.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from costmodel.helion_hook.dispatch import config_replaced
from costmodel.helion_hook.plain import helion_config
from costmodel.types import Config

log = logging.getLogger("costmodel")

_LAUNCHER = "_launcher"
"""Keyword by which Helion's programs take the function that launches."""


def guard_first_run(bound: Any, config: Config, refused: Callable[[], None]) -> None:
    """Let Helion's default take over if the next config set on `bound` does not launch.

    To be called before Helion sets the config. Does nothing where this Helion works in
    another way; the first call then raises what the config raises.

    Args:
        bound: The kernel that is about to get the config.
        config: Ours.
        refused: Called once if the default takes over.
    """
    set_config = getattr(bound, "set_config", None)
    if set_config is None or not hasattr(bound, "_run"):
        return
    expected = helion_config(config)

    def set_guarded(given: Any) -> None:
        vars(bound).pop("set_config", None)
        set_config(given)
        launch = bound._run
        if given == expected and _takes_launcher(launch):
            bound._run = _FirstRun(bound, launch, refused).run

    bound.set_config = set_guarded


def _takes_launcher(launch: Any) -> bool:
    try:
        parameter = inspect.signature(launch).parameters[_LAUNCHER]
    except (TypeError, ValueError, KeyError):
        return False
    return parameter.default is not inspect.Parameter.empty


class _FirstRun:
    """Stands in a kernel's place until it has run once."""

    def __init__(
        self, bound: Any, launch: Callable[..., Any], refused: Callable[[], None]
    ) -> None:
        self._bound = bound
        self._launch = launch
        self._refused = refused
        self._lock = threading.Lock()
        # One object, since each access of a method makes another.
        self.run: Callable[..., Any] = self._run

    def _run(self, *args: Any, **options: Any) -> Any:
        import torch

        if torch.compiler.is_compiling() or _LAUNCHER in options:
            return self._launch(*args, **options)
        written = [(one, one._version) for one in _tensors(args)]
        watch = _Watch(inspect.signature(self._launch).parameters[_LAUNCHER].default)
        try:
            result = self._launch(*args, **options, _launcher=watch)
        except Exception as error:
            if error is not watch.failure or not _is_the_configs_fault(error):
                raise
            self._settle(error)
            untouched = all(one._version == version for one, version in written)
            if watch.n_launched or not untouched:
                raise
            failure = error
        else:
            with self._lock:
                if self._bound._run is self.run:
                    self._bound._run = self._launch
            return result
        try:
            return self._bound._run(*args, **options)
        except Exception as error:
            raise error from failure

    def _settle(self, error: Exception) -> None:
        """Give the kernel Helion's default, once."""
        with self._lock:
            if self._bound._run is not self.run:
                return
            before = self._bound._config
            self._bound.set_config(self._bound.config_spec.default_config())
            config_replaced(self._bound, before)
        words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        name = getattr(self._bound.kernel, "name", "kernel")
        log.warning(
            "costmodel: %s: the predicted config does not launch, Helion's default "
            "runs in its place: %s",
            name,
            words,
        )
        self._refused()


class _Watch:
    """Launches, and knows what came of it."""

    def __init__(self, launcher: Callable[..., Any]) -> None:
        self._launcher = launcher
        self.n_launched = 0
        self.failure: Exception | None = None

    def __call__(self, *args: Any, **options: Any) -> Any:
        try:
            result = self._launcher(*args, **options)
        except Exception as error:
            self.failure = error
            raise
        self.n_launched += 1
        return result


def _tensors(values: Sequence[object]) -> Iterator[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    for value in tree_leaves(values):
        # Inference tensors keep no version; writing to them in host code goes unseen.
        if isinstance(value, torch.Tensor) and not value.is_inference():
            yield value


def _is_the_configs_fault(error: Exception) -> bool:
    """Whether a config is what an exception of Triton's launcher is about."""
    import torch

    if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error):
        return False
    try:
        from helion.autotuner.logger import classify_triton_exception
        from helion.autotuner.logger import match_unrecoverable_runtime_error
        from triton.errors import TritonError
    except ImportError:
        return False
    if match_unrecoverable_runtime_error(error):
        return False
    if isinstance(error, TritonError):
        return True
    return bool(classify_triton_exception(error) != "raise")
