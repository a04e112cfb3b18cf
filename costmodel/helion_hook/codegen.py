"""Programs that Helion makes of a config, and the launches they would do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from costmodel.frozen import dataclass
from costmodel.helion_hook.devices import cache_of
from costmodel.helion_hook.devices import device_of
from costmodel.helion_hook.plain import helion_config
from costmodel.types import Config


def triton_code(bound: Any, config: Config) -> str:
    """The program Helion generates for a config, as text."""
    with device_of(bound):
        return str(bound.to_triton_code(helion_config(config)))


def codegen_objection(bound: Any, config: Config) -> str | None:
    """Why Helion generates no program for a config, in one line; None where it does.

    Helion keeps the program, so that using the config afterwards makes none again.
    """
    compile_config = getattr(bound, "compile_config", None)
    if compile_config is None:
        return None
    try:
        with device_of(bound):
            compile_config(helion_config(config), allow_print=False)
    except Exception as error:  # Helion raises what it likes
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return None


@dataclass(frozen=True, slots=True)
class CapturedLaunch:
    """One Triton launch that a call would have made.

    Attributes:
        kernel: Triton's JIT function.
        grid: CTAs in each dimension.
        args: Positional arguments; tensors are fake.
        options: Keyword arguments of Triton's `run`, such as `num_warps`.
    """

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    options: dict[str, Any]


def capture_launches(bound: Any, config: Config) -> list[CapturedLaunch]:
    """Run a config's host code on fake tensors and note its launches.

    Nothing is allocated, compiled by Triton or launched. Launches come in the order in
    which the program defines their kernels.

    Args:
        bound: A kernel that `costmodel.target.bind` bound.
        config: What to generate code for.

    Raises:
        Exception: Whatever Helion, or host code that needs values, raises.
    """
    from helion.runtime.triton.launcher import compile_only_launch_args

    args = cache_of(bound)["args"]
    modes = {id(a.fake_mode): a.fake_mode for a in args if hasattr(a, "fake_mode")}
    found: list[CapturedLaunch] = []

    def launcher(kernel: Any, grid: Any, *values: Any, **options: Any) -> None:
        values, options = compile_only_launch_args(*values, **options)
        found.append(CapturedLaunch(kernel, tuple(map(int, grid)), values, options))

    with contextlib.ExitStack() as stack:
        stack.enter_context(device_of(bound))
        launch = bound.compile_config(helion_config(config), allow_print=False)
        for mode in modes.values():
            stack.enter_context(mode)
        launch(*args, _launcher=launcher)
    names = list(getattr(launch, "__globals__", {}).values())
    order = {id(value): place for place, value in enumerate(names)}
    return sorted(found, key=lambda one: order.get(id(one.kernel), len(order)))


def compiled_kernels(launch: Callable[..., Any]) -> list[Any]:
    """Triton's compiled kernels behind a launch that has run; empty if not found."""
    found = []
    for name, value in getattr(launch, "__globals__", {}).items():
        caches = getattr(value, "device_caches", None)
        if name.startswith("_helion_") and caches:
            found += [k for cache in caches.values() for k in cache[0].values()]
    return found
