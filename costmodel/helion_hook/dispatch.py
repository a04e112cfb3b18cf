"""One place in Helion's dispatch where every kernel without a config passes.

`BoundKernel.ensure_config_exists` runs once for each bound kernel, before its first
launch and inside `torch.compile`, at every effort. While installed, a wrapper asks us
first: who was named for this very kernel, else who was named for all. Where nobody has
an answer, and after removal, Helion's own function runs.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from costmodel.helion_hook.plain import helion_config
from costmodel.types import Config

log = logging.getLogger("costmodel")

Decide = Callable[[Any, Sequence[object]], Config | None]
"""Gets a bound kernel and the call's arguments; None leaves them to Helion."""

_MODULE = "helion.runtime.kernel"
_METHOD = "ensure_config_exists"

_lock = threading.RLock()
_decide: Decide | None = None
_original: Any = None
_wrapper: Any = None
_finder: importlib.abc.MetaPathFinder | None = None
_by_kernel: weakref.WeakKeyDictionary[Any, Decide] = weakref.WeakKeyDictionary()
# What each bound kernel runs with by our word, and whose word it was.
_answered: weakref.WeakKeyDictionary[Any, tuple[Any, Decide]]
_answered = weakref.WeakKeyDictionary()


def _renew_lock() -> None:
    """In a forked child: a lock that another thread held there stays held."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def install(decide: Decide) -> None:
    """Ask `decide` for every kernel that needs a config, from now on.

    Where Helion is not imported yet, this waits for its import and costs nothing.
    """
    global _decide, _finder
    with _lock:
        former, _decide = _decide, decide
        for bound, (config, whose) in list(_answered.items()):
            if whose is former:
                _answered[bound] = (config, decide)
        module = sys.modules.get(_MODULE)
        if module is not None and hasattr(module, "BoundKernel"):
            _wrap(module)
        elif _finder is None:
            _finder = _AfterImport()
            sys.meta_path.insert(0, _finder)


def uninstall() -> None:
    """Restore Helion's function, and forget the configs that came from us.

    A kernel that runs with a config of ours is asked anew at its next call: no kernel
    may be running in another thread meanwhile.
    """
    global _decide, _finder
    with _lock:
        former, _decide = _decide, None
        if _finder is not None:
            if _finder in sys.meta_path:
                sys.meta_path.remove(_finder)
            _finder = None
        _unwrap_if_idle()
        if former is not None:
            _forget(former)


def install_for(kernel: Any, decide: Decide) -> Callable[[], None]:
    """Ask `decide` for one kernel, whatever it is set to, until the result is called.

    Configs that the kernel has for shapes that it met before are laid aside and come
    back then, as they were; those of ours are forgotten. No kernel may be running in
    another thread at either moment.

    Args:
        kernel: What `helion.kernel` returned.
        decide: Who answers.
    """
    with _lock:
        former = _by_kernel.get(kernel)
        bounds = list(getattr(kernel, "_bound_kernels", {}).values())
        aside = [(bound, bound._run, bound._config) for bound in bounds]
        for bound in bounds:
            bound._run = bound._config = None
        _by_kernel[kernel] = decide
        _wrap(sys.modules[_MODULE])

    def restore() -> None:
        with _lock:
            if former is None:
                _by_kernel.pop(kernel, None)
            else:
                _by_kernel[kernel] = former
            _forget(decide)
            for bound, run, config in aside:
                bound._run, bound._config = run, config
            _unwrap_if_idle()

    return restore


def config_replaced(bound: Any, before: Any) -> None:
    """A config of ours gave way to another that a removal has to take back as well."""
    with _lock:
        known = _answered.get(bound)
        if known is not None and known[0] is before:
            _answered[bound] = (bound._config, known[1])


def _forget(decide: Decide) -> None:
    """Drop the configs that came by somebody's word; Helion is asked anew."""
    for bound, (config, whose) in list(_answered.items()):
        if whose is not decide:
            continue
        if bound._config is config:
            bound._run = bound._config = None
        del _answered[bound]


def _unwrap_if_idle() -> None:
    """Put Helion's function back where nobody is to be asked any more."""
    global _original, _wrapper
    if _original is None or _decide is not None or _by_kernel:
        return
    owner = sys.modules[_MODULE].BoundKernel
    if vars(owner).get(_METHOD) is _wrapper:
        setattr(owner, _METHOD, _original)
    else:
        # Somebody wrapped ours: it stays below theirs and only passes on.
        log.info("costmodel: another wrapper is around ours, which now idles")
    _original = _wrapper = None


def is_installed() -> bool:
    """Whether all kernels ask us now, or will once Helion is imported."""
    return _decide is not None


def _wrap(module: ModuleType) -> None:
    global _original, _wrapper
    if _original is not None:
        return
    owner: Any = getattr(module, "BoundKernel", None)
    original = vars(owner).get(_METHOD) if owner is not None else None
    if original is None or not hasattr(owner, "set_config"):
        log.info(
            "costmodel: this Helion has no BoundKernel.%s, kernels are left alone",
            _METHOD,
        )
        return

    @functools.wraps(original)
    def ensure_config_exists(self: Any, args: Sequence[object]) -> None:
        # A former wrapper of ours, which somebody wrapped, only passes on.
        decide = None
        if _wrapper is ensure_config_exists:
            decide = _by_kernel.get(self.kernel, _decide)
        if decide is not None and self._config is None:
            values = self.kernel.normalize_args(*args)
            config = decide(self, values)
            if config is not None and _adopt(self, config, values, decide):
                return
        original(self, args)

    setattr(owner, _METHOD, ensure_config_exists)
    _original, _wrapper = original, ensure_config_exists


def _adopt(bound: Any, config: Config, args: Sequence[object], decide: Decide) -> bool:
    """Compile a config of ours, or Helion's default where ours fails to compile."""
    for chosen in (helion_config(config), bound.config_spec.default_config()):
        try:
            bound.set_config(chosen)
            if bound.settings.autotune_effort == "none":
                _guard_descriptors(bound, args)
        except Exception:
            bound._run = bound._config = None
            log.warning("costmodel: a config did not compile", exc_info=True)
            continue
        with _lock:
            _answered[bound] = (bound._config, decide)
        return True
    return False


def uses_descriptors(config: Config) -> bool:
    """Whether any access of a config goes through a tensor descriptor."""
    for knob in ("indexing", "atomic_indexing"):
        value = config.get(knob)
        if value == "tensor_descriptor":
            return True
        if isinstance(value, list) and "tensor_descriptor" in value:
            return True
    return False


def can_guard_descriptors(bound: Any) -> bool:
    """Whether a kernel bound at effort "none" may still turn to descriptors."""
    needed = ("_create_bound_kernel_cache_key", "_bound_kernels", "_specialize_extra")
    return all(hasattr(bound.kernel, name) for name in needed)


def _guard_descriptors(bound: Any, args: Sequence[object]) -> None:
    """Key the kernel by what the descriptors of its config demand of arguments.

    At effort "none" Helion binds with the guards of its default config alone; a config
    with more descriptors would meet arguments whose layout or alignment they exclude.
    """
    if not uses_descriptors(dict(bound._config.config)):
        return
    kernel, config = bound.kernel, bound._config
    signature = getattr(bound, "_base_spec_key", None)
    extend = getattr(kernel, "_extend_bound_kernel_specializations", None)
    if extend is not None:
        extend(bound, signature, bound._specialize_extra(), args)
        if bound._run is None:  # Helion retires a kernel whose arguments changed
            bound.set_config(config)
        return
    # Helion 1.4 publishes a kernel's guards whenever it makes its key.
    signature = kernel._base_specialization_key(args)
    key = kernel._create_bound_kernel_cache_key(bound, args, signature)
    kernel._bound_kernels[key] = bound


class _AfterImport(importlib.abc.MetaPathFinder):
    """Wraps Helion's kernel module once it has been executed."""

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _MODULE:
            return None
        global _finder
        sys.meta_path.remove(self)
        _finder = None
        spec = importlib.util.find_spec(name)
        loader = None if spec is None else spec.loader
        if spec is None or loader is None:
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            with _lock:
                if _decide is not None:
                    _wrap(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
