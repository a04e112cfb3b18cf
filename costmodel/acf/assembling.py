"""Assemble PTX that Triton made once more, with a control file.

The command is Triton's own with one option more, where Triton itself puts it. Each run
has a time limit of its own, because a control file can make ptxas loop forever, and
crash it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from costmodel import ptxas
from costmodel.compiled_facts import CompileStatus
from costmodel.triton_build import BuiltKernel

# Lines that say where code came from: they hold paths and change no instruction.
_PLACES = re.compile(r"^\s*\.(?:loc|file)\s.*$", re.MULTILINE)
_DEBUG = re.compile(r"^\s*\.section\s+\.debug\w*\s*\{.*?^\s*\}\s*$", re.M | re.S)
_MAX_WORDS = 200  # characters of what an assembler says


class AssemblyFailedError(Exception):
    """No machine code; how it ended, and in words."""

    def __init__(self, status: CompileStatus, words: str) -> None:
        super().__init__(words)
        self.status = status


def ptx_digest(kernels: Sequence[BuiltKernel]) -> str:
    """64 hex digits over what decides about the code of a call's kernels: their PTX,
    but for line numbers, and the assembler's flags."""
    parts = [
        [_DEBUG.sub("", _PLACES.sub("", one.ptx)), _flags(one.command)]
        for one in kernels
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def assemble(kernel: BuiltKernel, controls: str, limit_s: float) -> BuiltKernel:
    """The same kernel with a control file.

    Args:
        kernel: What Triton made.
        controls: Path of the control file.
        limit_s: Seconds that ptxas may take.

    Raises:
        AssemblyFailedError: ptxas refuses it, crashes, or takes longer.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(kernel.ptx, encoding="utf-8")
        command = [
            kernel.command[0],
            "--apply-controls",
            controls,
            *_flags(kernel.command),
            str(source),
            "-o",
            str(cubin),
        ]
        words = _run(command, Path(folder) / "words", limit_s)
        if not cubin.is_file():
            raise AssemblyFailedError(CompileStatus.PTXAS, "ptxas wrote no code")
        return dataclasses.replace(
            kernel, cubin=cubin.read_bytes(), report=ptxas.parse_report(words)
        )


def _flags(command: Sequence[str]) -> list[str]:
    """Triton's flags: all but the program, the source and the output."""
    at = command.index("-o")
    return [*command[1 : at - 1], *command[at + 2 :]]


def _run(command: Sequence[str], log: Path, limit_s: float) -> str:
    """What it prints; through a file, so that nobody waits for a grandchild's pipe."""
    with log.open("wb") as file:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            words = f"not assembled within {limit_s:g} s"
            raise AssemblyFailedError(CompileStatus.TIMEOUT, words) from None
        except OSError as error:
            raise AssemblyFailedError(CompileStatus.ERROR, str(error)) from error
    words = log.read_text(errors="replace")
    code = done.returncode
    if code == 0:
        return words
    # A shell that starts ptxas reports a signal as 128 and its number.
    number = -code if code < 0 else code - 128
    if number in (
        signal.SIGSEGV,
        signal.SIGFPE,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGILL,
    ):
        name = signal.Signals(number).name
        raise AssemblyFailedError(CompileStatus.CRASH, f"ptxas ended with {name}")
    if code < 0:
        raise AssemblyFailedError(CompileStatus.ERROR, f"ptxas was killed ({-code})")
    status = CompileStatus.PTXAS
    if ptxas.is_register_failure(words):
        status = CompileStatus.REGISTERS
    raise AssemblyFailedError(status, _fault(words) or f"ptxas ended with {code}")


def _fault(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"\b(error|fatal)\s*:", line, re.I)]
    return " ".join((named or lines or [""])[0].split())[:_MAX_WORDS]
