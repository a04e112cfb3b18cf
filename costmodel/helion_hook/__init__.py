"""The only package that touches Helion's private surface.

Everything else in the project sees plain data. Helion is imported inside functions,
so importing this package is cheap. Names of ours go in and out as JSON values; what an
unknown Helion lacks is found by `unsupported_reason`, which never raises.
"""

from __future__ import annotations

from costmodel.helion_hook.autotuners import make_autotuner
from costmodel.helion_hook.codegen import CapturedLaunch
from costmodel.helion_hook.codegen import capture_launches
from costmodel.helion_hook.codegen import codegen_objection
from costmodel.helion_hook.codegen import compiled_kernels
from costmodel.helion_hook.codegen import triton_code
from costmodel.helion_hook.controls import controls_objection
from costmodel.helion_hook.controls import searched_controls
from costmodel.helion_hook.controls import searching_controls
from costmodel.helion_hook.devices import aligned_fakes
from costmodel.helion_hook.devices import cache_of
from costmodel.helion_hook.devices import clear_device_caches
from costmodel.helion_hook.devices import device_of
from costmodel.helion_hook.devices import remember_device
from costmodel.helion_hook.dispatch import Decide
from costmodel.helion_hook.dispatch import can_guard_descriptors
from costmodel.helion_hook.dispatch import install
from costmodel.helion_hook.dispatch import install_for
from costmodel.helion_hook.dispatch import is_installed
from costmodel.helion_hook.dispatch import uninstall
from costmodel.helion_hook.dispatch import uses_descriptors
from costmodel.helion_hook.first_run import guard_first_run
from costmodel.helion_hook.knobs import space
from costmodel.helion_hook.legality import has_user_rules
from costmodel.helion_hook.legality import is_legal
from costmodel.helion_hook.legality import normalize
from costmodel.helion_hook.legality import objections
from costmodel.helion_hook.legality import under_user_rules
from costmodel.helion_hook.legality import user_seeds
from costmodel.helion_hook.outputs import output_objection
from costmodel.helion_hook.plain import helion_config
from costmodel.helion_hook.plain import plain_config
from costmodel.helion_hook.plain import plain_value
from costmodel.helion_hook.recording import Benchmarked
from costmodel.helion_hook.recording import random_config
from costmodel.helion_hook.recording import recording_search
from costmodel.helion_hook.records import record_of
from costmodel.helion_hook.records import run_id_of
from costmodel.helion_hook.searches import Measured
from costmodel.helion_hook.searches import SearchBudget
from costmodel.helion_hook.searches import measure
from costmodel.helion_hook.searches import seeded_search
from costmodel.helion_hook.situation import Situation
from costmodel.helion_hook.situation import is_bound_kernel
from costmodel.helion_hook.situation import is_capturing
from costmodel.helion_hook.situation import is_kernel
from costmodel.helion_hook.situation import situation_of
from costmodel.helion_hook.support import SUPPORTED_HELION
from costmodel.helion_hook.support import Refusal
from costmodel.helion_hook.support import installed_versions
from costmodel.helion_hook.support import refusal
from costmodel.helion_hook.support import unsupported_reason
from costmodel.helion_hook.tuned import exported_config
from costmodel.helion_hook.tuned import neighbour_configs
from costmodel.helion_hook.tuned import tuned_config
from costmodel.helion_hook.tuned import tuned_epoch
from costmodel.helion_hook.tuned import underlying
from costmodel.helion_hook.turn_provider import GpuTurn
from costmodel.helion_hook.views import HelionView
from costmodel.helion_hook.views import default_config
from costmodel.helion_hook.views import seed_configs
from costmodel.helion_hook.views import view

__all__ = [
    "SUPPORTED_HELION",
    "Benchmarked",
    "CapturedLaunch",
    "Decide",
    "GpuTurn",
    "HelionView",
    "Measured",
    "Refusal",
    "SearchBudget",
    "Situation",
    "aligned_fakes",
    "cache_of",
    "can_guard_descriptors",
    "capture_launches",
    "clear_device_caches",
    "codegen_objection",
    "compiled_kernels",
    "controls_objection",
    "default_config",
    "device_of",
    "exported_config",
    "guard_first_run",
    "has_user_rules",
    "helion_config",
    "install",
    "install_for",
    "installed_versions",
    "is_bound_kernel",
    "is_capturing",
    "is_installed",
    "is_kernel",
    "is_legal",
    "make_autotuner",
    "measure",
    "neighbour_configs",
    "normalize",
    "objections",
    "output_objection",
    "plain_config",
    "plain_value",
    "random_config",
    "record_of",
    "recording_search",
    "refusal",
    "remember_device",
    "run_id_of",
    "searched_controls",
    "searching_controls",
    "seed_configs",
    "seeded_search",
    "situation_of",
    "space",
    "triton_code",
    "tuned_config",
    "tuned_epoch",
    "under_user_rules",
    "underlying",
    "uninstall",
    "unsupported_reason",
    "user_seeds",
    "uses_descriptors",
    "view",
]
