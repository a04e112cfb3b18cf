"""What a GPU is, as data: one TOML file per device, read without any GPU or driver.

`load_hardware` answers for a name a person types and refuses what it does not know;
`match_hardware` answers for whatever a driver prints and never refuses. A match has
two sides: *what the device is* (its own file whenever there is one, so that its
limits hold) and *how close it is to a device that models were trained on*.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import math
import re
import tomllib
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import field
from typing import Any
from typing import Literal
from typing import NamedTuple

from costmodel.errors import UnknownHardwareError
from costmodel.frozen import dataclass

PEAK_TYPES = ("bf16", "fp16", "tf32", "fp32", "fp8", "int8")
"""Keys of `Hardware.peak_tflops`, on every device."""

REFERENCE_DEVICES = ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA B200")
"""Devices the rules were made for; a caller with a model passes its card's instead."""

_GENERIC = "generic"


@dataclass(frozen=True, slots=True)
class Hardware:
    """Limits and peaks of one GPU; sources stand in `hardware/*.toml`.

    Attributes:
        name: As the driver prints it, such as "NVIDIA H200".
        aliases: Short names for the command line, such as "H200".
        arch: Architecture, such as "sm90"; "generic" if nothing is known.
        compute_capability: (9, 0) for sm90.
        n_sms: Streaming multiprocessors.
        max_threads_per_sm: Resident threads of one SM.
        max_threads_per_cta: Threads of one CTA.
        max_ctas_per_sm: Resident CTAs of one SM.
        regs_per_sm: 32-bit registers of one SM.
        max_regs_per_thread: Registers one thread can have before it spills.
        smem_per_cta_bytes: Opt-in maximum of shared memory for one CTA.
        smem_per_sm_bytes: Shared memory of one SM.
        tmem_columns: Tensor memory columns of one SM; 0 where there is none.
        l2_bytes: L2 cache.
        dram_bytes: Device memory.
        dram_gb_per_s: Peak DRAM bandwidth, 10^9 bytes per second.
        l2_gb_per_s: L2 read bandwidth, 10^9 bytes per second; an estimate.
        clock_ghz: Boost clock that the peaks stand on.
        peak_tflops: Dense peaks by the keys of `PEAK_TYPES`; do not write to it.
        has_wgmma: Hopper's warp-group MMA.
        has_tma: Tensor memory accelerator.
        has_tcgen05: Data-centre Blackwell's MMA.
        warp_size: Threads of a warp.
    """

    name: str
    aliases: tuple[str, ...]
    arch: str
    compute_capability: tuple[int, int]
    n_sms: int
    max_threads_per_sm: int
    max_threads_per_cta: int
    max_ctas_per_sm: int
    regs_per_sm: int
    max_regs_per_thread: int
    smem_per_cta_bytes: int
    smem_per_sm_bytes: int
    tmem_columns: int
    l2_bytes: int
    dram_bytes: int
    dram_gb_per_s: float
    l2_gb_per_s: float
    clock_ghz: float
    peak_tflops: Mapping[str, float] = field(hash=False)
    has_wgmma: bool
    has_tma: bool
    has_tcgen05: bool
    warp_size: int = 32


@dataclass(frozen=True, slots=True)
class HardwareMatch:
    """What a device name was taken for.

    Attributes:
        hardware: Description of the device asked for: its own file, else derived
            from the same die or the same architecture, else the generic minimum.
        kind: "exact" if the device is one of the trained ones, "near" if it is of
            the same architecture family as one of them, else "fallback": use the
            analytic rules with low confidence.
        why: The same in words.
        nearest: The trained device it is exact or near to, or None.
    """

    hardware: Hardware
    kind: Literal["exact", "near", "fallback"]
    why: str
    nearest: Hardware | None = None


def known_hardware() -> tuple[str, ...]:
    """Driver names of all described devices, sorted."""
    return tuple(sorted(_devices()))


def load_hardware(name: str) -> Hardware:
    """Find a device by driver name or alias, ignoring case, spaces and hyphens.

    Raises:
        UnknownHardwareError: No file describes it; the message lists what is known.
    """
    found = _by_name().get(_plain(name))
    if found is None:
        known = ", ".join(sorted(hw.aliases[0] for hw in _devices().values()))
        raise UnknownHardwareError(
            f"expected a GPU among {known}; found {name!r}: give one of these names, "
            "or describe yours in a file beside costmodel/hardware/h200.toml"
        )
    return found


def match_hardware(
    device_name: str,
    *,
    compute_capability: tuple[int, int] | None = None,
    n_sms: int | None = None,
    trained: Sequence[str] = REFERENCE_DEVICES,
) -> HardwareMatch:
    """Describe a device by whatever its driver prints; never raises.

    Args:
        device_name: Name from the driver or from a log, possibly a MIG slice,
            another vendor's or empty.
        compute_capability: From the driver, where there is one: tells the
            architecture of a device without a file.
        n_sms: From the driver, where there is one: overrides the file's, for cut
            or partitioned devices.
        trained: Devices that the model at hand was trained on.
    """
    described = _describe(str(device_name), compute_capability)
    hardware, how = described.hardware, described.how
    if n_sms is not None and n_sms > 0 and n_sms != hardware.n_sms:
        how = f"{how}, with {n_sms} SMs"
        hardware = _scaled(hardware, n_sms)
    references = [_describe(str(name), None).hardware for name in trained]
    if described.by_name and hardware in references:
        why = f"{hardware.name} is a trained device"
        return HardwareMatch(hardware, "exact", why, hardware)
    if described.die in references:
        why = f"{how}; {described.die.name} is a trained device"
        return HardwareMatch(hardware, "near", why, described.die)
    family = _family(hardware)
    relatives = [hw for hw in references if _family(hw) == family != _GENERIC]
    if relatives:
        nearest = min(relatives, key=lambda hw: _distance(hw, hardware))
        why = f"{how}; nearest trained device of its family is {nearest.name}"
        return HardwareMatch(hardware, "near", why, nearest)
    why = f"{how}; no trained device of its family ({hardware.arch})"
    return HardwareMatch(hardware, "fallback", why)


class _Description(NamedTuple):
    hardware: Hardware
    die: Hardware
    """The described device it is, is a slice of, or is taken for."""
    by_name: bool
    """Whether the name is one of the die's own."""
    how: str


def _describe(
    device_name: str, compute_capability: tuple[int, int] | None
) -> _Description:
    """Own file, else a slice of a known die, else the same product, else the arch."""
    name, _, mig_profile = device_name.partition(" MIG ")
    named = _exactly(name) or _by_name().get(_plain(name))
    die = named or _same_product(name)
    if die is not None and mig_profile:
        how = f"a MIG slice of {die.name}"
        return _Description(_mig_slice(die, mig_profile), die, False, how)
    if die is not None:
        how = die.name if named else f"{device_name!r} taken for {die.name}"
        return _Description(die, die, named is not None, how)
    if compute_capability is not None:
        arch = f"sm{compute_capability[0]}{compute_capability[1]}"
        same = [hw for hw in _devices().values() if hw.arch == arch]
        if same:
            # Of an unknown device of a known architecture assume the smallest one.
            smallest = min(same, key=lambda hw: hw.n_sms)
            how = f"unknown {arch} device {device_name!r} taken for {smallest.name}"
            return _Description(smallest, smallest, False, how)
    how = f"unknown device {device_name!r}"
    return _Description(_generic(), _generic(), False, how)


def _same_product(name: str) -> Hardware | None:
    """The described device of the same product that shares most words of the name."""
    words = _words(name)
    variants = [hw for hw in _devices().values() if _product(hw) <= words]
    if not variants:
        return None
    # Ties go to the product's plain variant, the one with the shortest alias.
    return min(
        variants,
        key=lambda hw: (-len(words & _words(hw.name)), len(hw.aliases[0]), hw.name),
    )


def _product(hardware: Hardware) -> frozenset[str]:
    """Words of the shortest known alias that this device's first alias extends."""
    first = hardware.aliases[0]
    shorter = (alias for hw in _devices().values() for alias in hw.aliases)
    return _words(min((a for a in shorter if f"{first}-".startswith(f"{a}-")), key=len))


def _mig_slice(die: Hardware, profile: str) -> Hardware:
    """A MIG instance such as "1g.18gb": compute in sevenths, memory in eighths."""
    parts = re.match(r"(\d)g\.(\d+)gb", profile)
    compute, gigabytes = (int(parts[1]), int(parts[2])) if parts else (1, 0)
    # Whole GPCs are handed out: 16 SMs a seventh on a 132-SM die (MIG user guide).
    n_sms = die.n_sms if compute >= 7 else max(1, compute * (die.n_sms // 8))
    share = min(1.0, max(1, round(8 * gigabytes * 1e9 / die.dram_bytes)) / 8)
    return dataclasses.replace(
        _scaled(die, n_sms),
        name=f"{die.name} MIG {profile}",
        l2_bytes=int(die.l2_bytes * share),
        dram_bytes=int(die.dram_bytes * share),
        dram_gb_per_s=die.dram_gb_per_s * share,
        l2_gb_per_s=die.l2_gb_per_s * share,
    )


def _scaled(hardware: Hardware, n_sms: int) -> Hardware:
    """The same die with another number of SMs: peaks go with them."""
    share = n_sms / hardware.n_sms
    peaks = {kind: peak * share for kind, peak in hardware.peak_tflops.items()}
    return dataclasses.replace(hardware, n_sms=n_sms, peak_tflops=peaks)


def _distance(left: Hardware, right: Hardware) -> float:
    """Euclidean distance in log size of what a config is fitted to."""
    pairs = (
        (left.n_sms, right.n_sms),
        (left.dram_gb_per_s, right.dram_gb_per_s),
        (left.smem_per_cta_bytes, right.smem_per_cta_bytes),
        (left.l2_bytes, right.l2_bytes),
        (left.peak_tflops["bf16"], right.peak_tflops["bf16"]),
    )
    return math.hypot(*(math.log(a / b) for a, b in pairs))


def _plain(name: str) -> str:
    """Letters and digits only: people write "RTX 5090", "rtx-5090" and "RTX5090"."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))


def _family(hardware: Hardware) -> str:
    return str(_arches()[hardware.arch]["family"])


@functools.cache
def _arches() -> dict[str, dict[str, Any]]:
    folder = importlib.resources.files("costmodel") / "hardware"
    return tomllib.loads((folder / "arch.toml").read_text(encoding="utf-8"))


@functools.cache
def _devices() -> dict[str, Hardware]:
    """Every device by driver name, in order of its file."""
    read = map(_device, _texts())
    return {hardware.name: hardware for hardware in read}


@functools.cache
def _texts() -> tuple[str, ...]:
    """Of all files that describe a device, in their order."""
    folder = importlib.resources.files("costmodel") / "hardware"
    files = sorted(entry.name for entry in folder.iterdir())
    return tuple(
        (folder / file).read_text(encoding="utf-8")
        for file in files
        if file.endswith(".toml") and file != "arch.toml"
    )


@functools.cache
def _device(text: str) -> Hardware:
    return _hardware(tomllib.loads(text))


def _exactly(name: str) -> Hardware | None:
    """The device of this very driver name, for which one file is read and not all.

    No two devices have a name in common (`tests/test_hardware.py`).
    """
    line = f'name = "{name}"\n'
    found = [text for text in _texts() if text.startswith(line)]
    return _device(found[0]) if len(found) == 1 else None


@functools.cache
def _by_name() -> dict[str, Hardware]:
    names = {}
    for hardware in _devices().values():
        for name in (hardware.name, *hardware.aliases):
            names[_plain(name)] = hardware
    return names


def _hardware(facts: dict[str, Any]) -> Hardware:
    merged = {**_arches()[facts["arch"]], **facts}
    merged.pop("family")
    merged["aliases"] = tuple(merged["aliases"])
    merged["compute_capability"] = tuple(merged["compute_capability"])
    return Hardware(**merged)


@functools.cache
def _generic() -> Hardware:
    """The smallest described limits and peaks, with no vendor's features."""
    devices = _devices().values()
    return _hardware(
        {
            "name": "unknown GPU",
            "aliases": [_GENERIC],
            "arch": _GENERIC,
            "n_sms": min(hw.n_sms for hw in devices),
            "l2_bytes": min(hw.l2_bytes for hw in devices),
            "dram_bytes": min(hw.dram_bytes for hw in devices),
            "dram_gb_per_s": min(hw.dram_gb_per_s for hw in devices),
            "l2_gb_per_s": min(hw.l2_gb_per_s for hw in devices),
            "clock_ghz": min(hw.clock_ghz for hw in devices),
            "peak_tflops": {
                kind: min(hw.peak_tflops[kind] for hw in devices) for kind in PEAK_TYPES
            },
        }
    )
