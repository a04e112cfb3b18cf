"""A Triton driver that names a GPU and has none: enough to compile, never to launch.

Triton asks its driver which GPU to compile for. This one answers with the target; what
would touch a device raises. Installing it is for a process that does nothing else.
"""

from __future__ import annotations

from typing import Any

from costmodel.hardware import Hardware


def compile_target(hardware: Hardware) -> Any:
    """Triton's name for the GPU, such as `GPUTarget("cuda", 90, 32)`."""
    from triton.backends.compiler import GPUTarget

    major, minor = hardware.compute_capability
    return GPUTarget("cuda", major * 10 + minor, hardware.warp_size)


def install(hardware: Hardware) -> None:
    """Make Triton compile for `hardware` from now on, in this process."""
    import torch
    from triton.backends.driver import DriverBase
    from triton.runtime import driver

    target = compile_target(hardware)

    class FakeDriver(DriverBase):  # type: ignore[misc,unused-ignore]
        """Answers what a compilation asks."""

        def __init__(self) -> None:
            """The base class would look for a driver's library."""

        @classmethod
        def is_active(cls) -> bool:
            return True

        def map_python_to_cpp_type(self, ty: str) -> str:
            return "void*"

        def get_current_target(self) -> Any:
            return target

        def get_active_torch_device(self) -> Any:
            return torch.device("cuda", 0)

        def get_current_device(self) -> int:
            return 0

        def set_current_device(self, device: int) -> None:
            """There is one device."""

        def get_current_stream(self, device: int | None = None) -> int:
            return 0

        def get_device_interface(self) -> Any:
            return torch.cuda

        def get_device_capability(self, device: int = 0) -> tuple[int, int]:
            return hardware.compute_capability

        def get_benchmarker(self) -> Any:
            raise RuntimeError("there is no GPU to benchmark on")

        def get_empty_cache_for_benchmark(self) -> Any:
            raise RuntimeError("there is no GPU to benchmark on")

        def clear_cache(self, cache: Any) -> None:
            raise RuntimeError("there is no GPU to benchmark on")

    driver.set_active(FakeDriver())
