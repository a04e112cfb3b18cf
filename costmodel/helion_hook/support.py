"""Whether we can speak about this Helion and this kernel; never an exception."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from typing import Any

from costmodel.frozen import dataclass
from costmodel.types import ReasonCode

SUPPORTED_HELION = ">=1.4,<1.6"

# Every private name this file needs; one missing means an unsupported Helion.
_NEEDED = (
    ("helion", "Config"),
    ("helion._compat", "extract_device"),
    ("helion._compat", "get_device_name"),
    ("helion._hardware", "get_hardware_info"),
    ("helion.autotuner.base_cache", "should_skip_cache"),
    ("helion.autotuner.base_search", "BaseAutotuner"),
    ("helion.autotuner.config_spec", "ConfigSpec.create_config_generation"),
    ("helion.autotuner.config_spec", "ConfigSpec.default_config"),
    ("helion.autotuner.config_spec", "ConfigSpec.normalize"),
    ("helion.autotuner.config_spec", "ConfigSpec._flat_fields"),
    ("helion.autotuner.metrics", "KernelMetadata.ir_graph"),
    ("helion.runtime.kernel", "BoundKernel.to_triton_code"),
    ("helion.runtime.ref_mode", "is_ref_mode_enabled"),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why we step aside for a Helion or a kernel: a code to count, and words."""

    code: ReasonCode
    detail: str


def installed_versions() -> dict[str, str]:
    """Versions of what decides about a config; "absent" if not installed."""
    return {package: _version(package) for package in ("helion", "torch", "triton")}


@functools.cache
def _version(package: str) -> str:
    # Reading a package's metadata takes milliseconds, and does not change in a process.
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def refusal(bound: Any = None) -> Refusal | None:
    """Why we cannot speak about this Helion, or this kernel; None where we can.

    Never raises, whatever Helion is installed.
    """
    try:
        reason = _helion_reason()
        if reason is not None:
            return Refusal(ReasonCode.UNSUPPORTED_HELION, reason)
        return None if bound is None else _bound_refusal(bound)
    except Exception as error:  # an unknown Helion may fail in any way
        detail = f"cannot read Helion: {_one_line(error)}"
        return Refusal(ReasonCode.UNSUPPORTED_HELION, detail)


def unsupported_reason(bound: Any = None) -> str | None:
    """The words of `refusal`, in one line; None where we can speak."""
    found = refusal(bound)
    return None if found is None else found.detail


def _helion_reason() -> str | None:
    from packaging.specifiers import SpecifierSet

    version = installed_versions()["helion"]
    if version == "absent":
        return f"Helion is not installed: pip install 'helion{SUPPORTED_HELION}'"
    if not SpecifierSet(SUPPORTED_HELION).contains(version, prereleases=True):
        return f"expected Helion {SUPPORTED_HELION}, found {version}"
    for module_name, path in _NEEDED:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            if not hasattr(found, part):
                return f"Helion {version} lacks {module_name}.{path}"
            found = getattr(found, part)
    return None


def _bound_refusal(bound: Any) -> Refusal | None:
    from helion.runtime.ref_mode import is_ref_mode_enabled

    if is_ref_mode_enabled(bound.settings):
        words = "the kernel runs in Helion's interpret mode"
        return Refusal(ReasonCode.INTERPRET_MODE, words)
    backend = bound.config_spec.backend_name
    if backend != "triton":
        words = f"expected Helion's triton backend, the kernel uses {backend!r}"
        return Refusal(ReasonCode.UNSUPPORTED_BACKEND, words)
    if getattr(bound, "host_function", None) is None:
        words = "the bound kernel has no device IR"
        return Refusal(ReasonCode.UNKNOWN_KERNEL, words)
    return None


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
