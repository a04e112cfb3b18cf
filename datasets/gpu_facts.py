"""What the driver says of the GPU right now: clocks, temperature, power limit."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
from typing import Any

from costmodel.datasets.side_file import GpuFacts

_UUID_DIGITS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class GpuState:
    """One look at a device; all None without a driver that answers."""

    name: str | None = None
    uuid_digest: str | None = None
    driver_version: str | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_limit_w: float | None = None


def look() -> GpuState:
    """Ask the driver about the current CUDA device of this process."""
    import torch

    if not torch.cuda.is_available():
        return GpuState()
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    uuid = str(getattr(properties, "uuid", "")) or None
    state = GpuState(name=properties.name)
    if uuid is None:
        return state
    digest = hashlib.sha256(uuid.encode()).hexdigest()[:_UUID_DIGITS]
    state = dataclasses.replace(state, uuid_digest=digest)
    try:
        # The package is nvidia-ml-py; it is not needed to record, only to know more.
        return _ask_driver(importlib.import_module("pynvml"), f"GPU-{uuid}", state)
    except Exception:  # any driver, any version: what it cannot tell stays None
        return state


def merge(start: GpuState, end: GpuState) -> GpuFacts:
    """Looks before the first and after the last timing, as the side file has it."""
    return GpuFacts(
        name=start.name,
        uuid_digest=start.uuid_digest,
        sm_clock_start_mhz=start.sm_clock_mhz,
        sm_clock_end_mhz=end.sm_clock_mhz,
        memory_clock_mhz=start.memory_clock_mhz,
        temperature_start_c=start.temperature_c,
        temperature_end_c=end.temperature_c,
        power_limit_w=start.power_limit_w,
    )


def _ask_driver(nvml: Any, uuid: str, state: GpuState) -> GpuState:
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    return dataclasses.replace(
        state,
        driver_version=str(nvml.nvmlSystemGetDriverVersion()),
        sm_clock_mhz=float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        memory_clock_mhz=float(
            nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)
        ),
        temperature_c=float(
            nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
        ),
        power_limit_w=nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3,
    )
