"""One control file, as the catalogue and records know it."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from costmodel.frozen import dataclass
from costmodel.hardware import Hardware

PTXAS_STAGE = "ptxas"
"""The only stage that ptxas does not silently ignore."""

_ID = re.compile(r"[0-9a-f]{64}")
_CUDA = re.compile(r"\d+\.\d+")
_ARCH = re.compile(r"sm(\d+)[af]?")


@dataclass(frozen=True, slots=True)
class AcfEntry:
    """A control file and what it is meant for.

    Attributes:
        acf_id: SHA-256 of the file's bytes, 64 hex digits: its name in records and
            exports, wherever the file lies.
        cuda: CUDA minor it was made for, "13.3"; ptxas of any other refuses it.
        stage: Part of the compiler that reads it.
        kernels: Patterns (`*`, `?`) of names of kernels it is meant for; () means any.
        gpus: Names, aliases or architectures ("sm90") it is meant for; () means any.
        name: For people.
        notice: Where it came from and on what terms, as the user gave it.
    """

    acf_id: str
    cuda: str
    stage: str = PTXAS_STAGE
    kernels: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    name: str = ""
    notice: str = ""

    def applies(self, kernel: str, hardware: Hardware) -> bool:
        """Whether it is meant for this kernel, by name, on this GPU."""
        return self.is_for_kernel(kernel) and self.is_for_gpu(hardware)

    def is_for_ptxas(self, version: str) -> bool:
        """Whether a ptxas, such as "13.3.73", is of the CUDA minor it was made for."""
        return version.split(".")[:2] == self.cuda.split(".")

    def is_for_kernel(self, kernel: str) -> bool:
        """Whether one of its patterns is this kernel's name."""
        if not self.kernels:
            return True
        # Helion calls the device function of `matmul` `_helion_matmul`.
        names = (kernel, kernel.removeprefix("_helion_"), f"_helion_{kernel}")
        return any(
            fnmatch.fnmatchcase(name, pattern)
            for name in names
            for pattern in self.kernels
        )

    def is_for_gpu(self, hardware: Hardware) -> bool:
        """Whether it names this GPU, or its architecture, or none."""
        if not self.gpus:
            return True
        known = {_plain(n) for n in (hardware.name, *hardware.aliases, hardware.arch)}
        return any(_plain(gpu) in known for gpu in self.gpus)


def to_json(entry: AcfEntry) -> dict[str, Any]:
    """As JSON values."""
    body = asdict(entry)
    return {**body, "kernels": list(entry.kernels), "gpus": list(entry.gpus)}


def from_json(body: Mapping[str, Any]) -> AcfEntry:
    """The inverse of `to_json`.

    Raises:
        ValueError, KeyError, TypeError: Not something that `to_json` made.
    """
    entry = AcfEntry(
        acf_id=_text(body["acf_id"]),
        cuda=_text(body["cuda"]),
        stage=_text(body["stage"]),
        kernels=tuple(_text(one) for one in body["kernels"]),
        gpus=tuple(_text(one) for one in body["gpus"]),
        name=_text(body["name"]),
        notice=_text(body["notice"]),
    )
    if not is_acf_id(entry.acf_id):
        raise ValueError(f"expected 64 hex digits, found {entry.acf_id!r}")
    if not _CUDA.fullmatch(entry.cuda):
        raise ValueError(f'expected a CUDA minor such as "13.3", found {entry.cuda!r}')
    return entry


def is_acf_id(text: str) -> bool:
    """Whether a text is the digest of some file, in full."""
    return _ID.fullmatch(text) is not None


def _plain(name: str) -> str:
    """A GPU's name as people vary it: `sm_90a` is `sm90`, `nvidia-h200` is known."""
    plain = re.sub(r"[\s_-]", "", name.lower())
    found = _ARCH.fullmatch(plain)
    return f"sm{found[1]}" if found else plain


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {value!r}")
    return value
