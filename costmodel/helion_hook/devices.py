"""Which GPU a bound kernel belongs to, and what is remembered about it.

A kernel that `costmodel.target.bind` bound for an absent GPU carries that GPU along:
everything here that needs the device steps into it by itself.
"""

from __future__ import annotations

import contextlib
import importlib
import weakref
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

_devices: weakref.WeakKeyDictionary[Any, Callable[[], AbstractContextManager[Any]]] = (
    weakref.WeakKeyDictionary()
)

_caches: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()


def cache_of(bound: Any) -> dict[str, Any]:
    """A dictionary that lives as long as the bound kernel, for derived facts."""
    return _caches.setdefault(bound, {})


def remember_device(
    bound: Any, device: Callable[[], AbstractContextManager[Any]]
) -> None:
    """Let every function here step into `device` when it handles this kernel."""
    _devices[bound] = device


@contextlib.contextmanager
def device_of(bound: Any) -> Iterator[None]:
    """The GPU this kernel was bound for: the remembered one, else the present one."""
    enter = _devices.get(bound)
    with contextlib.nullcontext() if enter is None else enter():
        yield


def clear_device_caches() -> None:
    """Make Helion and inductor ask again what the GPU is."""
    for name in ("helion._compat", "helion._hardware", "torch._inductor.runtime.hints"):
        module = importlib.import_module(name)
        holders = [module, getattr(module, "DeviceProperties", None)]
        for holder in holders:
            for value in list(vars(holder).values()) if holder else ():
                clear = getattr(getattr(value, "__func__", value), "cache_clear", None)
                if callable(clear):
                    clear()


@contextlib.contextmanager
def aligned_fakes() -> Iterator[None]:
    """Take tensors without memory for 16-byte aligned, as torch allocates them.

    Helion asks a tensor's address before it allows tensor descriptors; a fake tensor
    has none and would lose them, which a real one of the same shape does not.
    """
    module: Any = importlib.import_module("helion._compiler.compile_environment")
    name = "tensor_descriptor_runtime_alignment_signature"
    original = getattr(module, name, None)
    if original is None:
        yield
        return

    def signature(value: Any) -> Any:
        if type(value).__name__ != "FakeTensor":
            return original(value)
        offset = value.storage_offset()
        whole = isinstance(offset, int)
        return whole and offset * value.element_size() % 16 == 0, whole and offset == 0

    setattr(module, name, signature)
    try:
        yield
    finally:
        setattr(module, name, original)
