"""The only package that touches Helion's private surface.

Everything else in the project sees plain data. Helion is imported inside functions,
so importing this package is cheap. Names of ours go in and out as JSON values; what an
unknown Helion lacks is found by `unsupported_reason`, which never raises.
"""

from __future__ import annotations

from costmodel.helion_hook.autotuners import make_autotuner
from costmodel.helion_hook.codegen import CapturedLaunch
from costmodel.helion_hook.codegen import capture_launches
from costmodel.helion_hook.codegen import compiled_kernels
from costmodel.helion_hook.codegen import triton_code
from costmodel.helion_hook.devices import aligned_fakes
from costmodel.helion_hook.devices import cache_of
from costmodel.helion_hook.devices import clear_device_caches
from costmodel.helion_hook.devices import device_of
from costmodel.helion_hook.devices import remember_device
from costmodel.helion_hook.knobs import space
from costmodel.helion_hook.legality import is_legal
from costmodel.helion_hook.legality import normalize
from costmodel.helion_hook.legality import objections
from costmodel.helion_hook.plain import helion_config
from costmodel.helion_hook.plain import plain_config
from costmodel.helion_hook.plain import plain_value
from costmodel.helion_hook.recording import Benchmarked
from costmodel.helion_hook.recording import GpuTurn
from costmodel.helion_hook.recording import random_config
from costmodel.helion_hook.recording import recording_search
from costmodel.helion_hook.records import record_of
from costmodel.helion_hook.records import run_id_of
from costmodel.helion_hook.support import SUPPORTED_HELION
from costmodel.helion_hook.support import Refusal
from costmodel.helion_hook.support import installed_versions
from costmodel.helion_hook.support import refusal
from costmodel.helion_hook.support import unsupported_reason
from costmodel.helion_hook.views import HelionView
from costmodel.helion_hook.views import default_config
from costmodel.helion_hook.views import seed_configs
from costmodel.helion_hook.views import view

__all__ = [
    "SUPPORTED_HELION",
    "Benchmarked",
    "CapturedLaunch",
    "GpuTurn",
    "HelionView",
    "Refusal",
    "aligned_fakes",
    "cache_of",
    "capture_launches",
    "clear_device_caches",
    "compiled_kernels",
    "default_config",
    "device_of",
    "helion_config",
    "installed_versions",
    "is_legal",
    "make_autotuner",
    "normalize",
    "objections",
    "plain_config",
    "plain_value",
    "random_config",
    "record_of",
    "recording_search",
    "refusal",
    "remember_device",
    "run_id_of",
    "seed_configs",
    "space",
    "triton_code",
    "unsupported_reason",
    "view",
]
