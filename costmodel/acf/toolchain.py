"""The assembler that Triton would run, and whether it takes control files.

ptxas takes them from 13.3 on, and each of its minors only those made for it. Triton
brings assemblers of its own and picks one by architecture; which, changed in 3.9: up
to Hopper or up to Ada it is the one that `TRITON_PTXAS_PATH` replaces, beyond that the
one that `TRITON_PTXAS_BLACKWELL_PATH` replaces. A path that does not run is ignored
without a word. So both variables belong together, and what counts is what Triton says.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from costmodel import ptxas
from costmodel.errors import NoAcfToolchainError

MINIMUM_CUDA = "13.3"
"""First ptxas that documents `--apply-controls`."""

VARIABLES = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")

_HOPPER = 90
_ASK_LIMIT_S = 30.0  # `ptxas --version` takes milliseconds; a cold disk takes longer


@dataclass(frozen=True)
class PtxasTool:
    """An assembler: where it is and its whole version, such as "13.3.73"."""

    path: Path
    version: str

    @property
    def cuda(self) -> str:
        """CUDA minor, "13.3": what control files are made for."""
        return cuda_of(self.version)


def find_ptxas(minimum: str = MINIMUM_CUDA, arch: int = _HOPPER) -> PtxasTool:
    """The assembler that Triton would run here, if it takes control files.

    Args:
        minimum: CUDA minor it must have at least.
        arch: Compute capability times ten, 90 for Hopper: Triton picks by it.

    Raises:
        NoAcfToolchainError: It is older, or there is none; the message says what to
            install and what to set.
    """
    tool = triton_ptxas(arch)
    if tool is None:
        raise NoAcfToolchainError(
            f"expected a ptxas >= {minimum}, found none that Triton would run: "
            f"{how_to_get(minimum)}"
        )
    if _numbers(tool.version) < _numbers(minimum):
        raise NoAcfToolchainError(
            f"expected a ptxas >= {minimum} for control files, found {tool.version} at "
            f"{tool.path}: {how_to_get(minimum)}"
        )
    return tool


def triton_ptxas(arch: int = _HOPPER) -> PtxasTool | None:
    """The assembler that Triton would run here for `arch`, whatever its version."""
    try:
        compiler = importlib.import_module("triton.backends.nvidia.compiler")
        path = Path(compiler.get_ptxas(arch).path)
    except Exception:  # no Triton, another backend's, or one without an assembler
        return None
    return ptxas_at(path)


def ptxas_at(path: Path) -> PtxasTool | None:
    """The assembler in a file, or None where it is none."""
    try:
        done = subprocess.run(
            [str(path), "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = ptxas.version_of(done.stdout)
    if done.returncode != 0 or not re.fullmatch(r"\d+\.\d+(\.\d+)*", version):
        return None
    return PtxasTool(path, version)


def wheel_ptxas() -> PtxasTool | None:
    """The assembler of an installed `nvidia-cuda-nvcc` wheel, which Triton does not
    find by itself."""
    try:
        found = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return None
    for folder in (found and found.submodule_search_locations) or ():
        for path in sorted(Path(folder).glob("cu*/bin/ptxas"), reverse=True):
            tool = ptxas_at(path)
            if tool is not None:
                return tool
    return None


def how_to_get(cuda: str) -> str:
    """What to install for control files of a CUDA minor, and what to set; one line."""
    tool = wheel_ptxas()
    if tool is not None and tool.cuda == cuda:
        install, path = "", str(tool.path)
    else:
        install = f"pip install 'nvidia-cuda-nvcc=={cuda}.*' and "
        path = "its nvidia/cu13/bin/ptxas"
    return (
        f"{install}set both {' and '.join(VARIABLES)} to {path} before Triton is "
        "imported (on Hopper, Triton 3.9 reads only the second)"
    )


def cuda_of(version: str) -> str:
    """`13.3` of `13.3.73`."""
    return ".".join(version.split(".")[:2])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
