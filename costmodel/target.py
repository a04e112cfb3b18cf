"""Bind a Helion kernel for a named GPU on any machine, with or without a GPU.

Torch is made to describe the target for the length of a `with` block, and arguments
are fake tensors, so nothing is allocated and no driver is asked. Where a GPU is
present the target is the named one all the same, and nothing is left behind: torch,
Helion's caches and the kernel are as before.

The description is process-wide, so one lock makes targets exclusive; other threads
must not use CUDA meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import types
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from unittest import mock

from costmodel import guardless
from costmodel import helion_hook
from costmodel.arguments import Argument
from costmodel.errors import BindError
from costmodel.hardware import Hardware

_CUDA_VERSION = "12.9"
_lock = threading.RLock()
_active: list[Hardware] = []


@contextlib.contextmanager
def targeting(hardware: Hardware) -> Iterator[Hardware]:
    """Make torch and Helion see `hardware` as the one GPU.

    Blocks nest; entering the target that is already active costs nothing.

    Raises:
        BindError: The hardware is not an NVIDIA GPU that can be described.
    """
    major, _minor = hardware.compute_capability
    if major == 0:
        raise BindError(
            f"expected an NVIDIA GPU, found {hardware.name!r}: name one of "
            "costmodel.hardware.known_hardware()"
        )
    with _lock:
        if _active and _active[-1] == hardware:
            yield hardware
            return
        with contextlib.ExitStack() as stack:
            # Entered first, so that it runs after torch is itself again.
            stack.callback(helion_hook.clear_device_caches)
            patches = [*_patches(_properties(hardware)), *guardless.patches()]
            for patch in patches:
                stack.enter_context(patch)
            helion_hook.clear_device_caches()
            _active.append(hardware)
            stack.callback(_active.pop)
            yield hardware


def bind(kernel: Any, specs: Sequence[Argument], hardware: Hardware) -> Any:
    """Bind a kernel to arguments as if on `hardware`.

    The kernel itself is left alone: a twin with the same function and settings is
    bound, so a later call on a real GPU never meets this result.

    Args:
        kernel: A `helion.kernel` object.
        specs: One argument for each parameter without a default.
        hardware: The target.

    Returns:
        A Helion bound kernel; `costmodel.helion_hook` handles it on any machine.

    Raises:
        BindError: Helion refuses; the message is Helion's, in one line.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    reason = helion_hook.unsupported_reason()
    if reason is not None:
        raise BindError(f"cannot bind kernel: {reason}")
    with targeting(hardware), helion_hook.aligned_fakes():
        mode = FakeTensorMode()
        try:
            args = tuple(spec.fake(mode) for spec in specs)
            # A gradient recorded on a fake tensor ends a torch without CUDA.
            with torch.no_grad():
                bound = _twin(kernel).bind(args)
        except Exception as error:  # Helion and torch raise what they like
            name = getattr(kernel, "name", kernel)
            text = " ".join(f"{type(error).__name__}: {error}".split())
            raise BindError(f"Helion cannot bind kernel {name!r}: {text}") from error
    # Helion keeps weak references to the arguments; the cache keeps them alive.
    helion_hook.cache_of(bound)["args"] = args
    helion_hook.remember_device(bound, functools.partial(_target, hardware))
    assert not any(
        isinstance(arg, torch.Tensor) and arg.device.type != "cuda" for arg in args
    )
    return bound


def missing_arguments(kernel: Any, n_given: int) -> list[str]:
    """Names of the parameters that still need an argument after the first few."""
    parameters = list(inspect.signature(kernel.fn).parameters.values())
    return [
        one.name
        for one in parameters[n_given:]
        if one.default is one.empty
        and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]


@contextlib.contextmanager
def _target(hardware: Hardware) -> Iterator[None]:
    with targeting(hardware), helion_hook.aligned_fakes():
        yield


def _twin(kernel: Any) -> Any:
    """A kernel with the same function and settings, and caches of its own."""
    import helion

    return helion.Kernel(
        kernel.fn,
        configs=list(kernel.configs),
        settings=kernel.settings,
        key=getattr(kernel, "_key_fn", None),
    )


def _properties(hardware: Hardware) -> types.SimpleNamespace:
    """What torch's device properties say, as far as torch, Helion or Triton ask."""
    major, minor = hardware.compute_capability
    return types.SimpleNamespace(
        name=hardware.name,
        major=major,
        minor=minor,
        multi_processor_count=hardware.n_sms,
        warp_size=hardware.warp_size,
        max_threads_per_multi_processor=hardware.max_threads_per_sm,
        max_threads_per_block=hardware.max_threads_per_cta,
        regs_per_multiprocessor=hardware.regs_per_sm,
        # Without opting in, every architecture gives a CTA 48 KiB (programming guide).
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=hardware.smem_per_cta_bytes,
        shared_memory_per_multiprocessor=hardware.smem_per_sm_bytes,
        total_memory=hardware.dram_bytes,
        L2_cache_size=hardware.l2_bytes,
        is_integrated=0,
        is_multi_gpu_board=0,
        gcnArchName="",
        uuid="",
        pci_bus_id=0,
    )


def _patches(properties: types.SimpleNamespace) -> list[Any]:
    """Replacements for everything that would ask a driver."""
    import torch
    from torch._subclasses import fake_tensor

    def answer(value: Any) -> Callable[..., Any]:
        return lambda *_args, **_kwargs: value

    patches = [
        mock.patch.object(torch.cuda, "is_available", answer(True)),
        mock.patch.object(torch.cuda, "device_count", answer(1)),
        mock.patch.object(torch.cuda, "current_device", answer(0)),
        mock.patch.object(torch.cuda, "_lazy_init", answer(None)),
        # The lowest layer: inductor kept a reference to the public function.
        mock.patch.object(
            torch.cuda, "_get_device_properties", answer(properties), create=True
        ),
        mock.patch.object(torch.version, "cuda", _CUDA_VERSION),
        mock.patch.object(torch.version, "hip", None),
    ]
    mode: Any = fake_tensor.FakeTensorMode
    if isinstance(getattr(mode, "avoid_device_init", None), property):
        # Fake tensors must not believe in the GPU, or `torch.tensor` looks for it.
        patches.append(
            mock.patch.object(mode, "avoid_device_init", property(answer(True)))
        )
    if hasattr(fake_tensor, "init_gpu_context"):
        # It would allocate on a real GPU to make a context.
        patches.append(mock.patch.object(fake_tensor, "init_gpu_context", answer(None)))
    return patches
