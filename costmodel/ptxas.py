"""What NVIDIA's assembler says of a kernel: registers, spills, stack.

Triton runs `ptxas -v` and throws its words away. While `listening`, they are kept, so
that a kernel is assembled once, with exactly the flags that this Triton gives.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from costmodel.frozen import dataclass

_REGISTERS = re.compile(r"Used (\d+) registers")
_FRAME = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)
_VERSION = re.compile(r"\bV(\d+(?:\.\d+)+)")
# "(C7602) Insufficient registers (128)", "Too many registers", "out of registers"
_REGISTER_FAILURE = re.compile(
    r"insufficient registers|(?:too many|out of) registers|register allocation failed",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class PtxasReport:
    """One kernel as the assembler describes it; bytes are per thread.

    Attributes:
        registers: 32-bit registers of a thread.
        stack_bytes: Frame in local memory: spilled registers and indexed arrays.
        spill_store_bytes: Bytes of instructions that spill a register.
        spill_load_bytes: Bytes of instructions that bring one back.
    """

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


def parse_report(text: str) -> PtxasReport | None:
    """Read what `ptxas -v` prints; None where it says nothing of a kernel.

    Of several functions in one file the largest numbers count.
    """
    registers = [int(found) for found in _REGISTERS.findall(text)]
    if not registers:
        return None
    frames = [tuple(map(int, found)) for found in _FRAME.findall(text)] or [(0, 0, 0)]
    return PtxasReport(
        max(registers), *(max(column) for column in zip(*frames, strict=True))
    )


def is_register_failure(text: str) -> bool:
    """Whether the assembler gave up because a thread would need too many registers."""
    return _REGISTER_FAILURE.search(text) is not None


def version_of(text: str) -> str:
    """`12.8.93` out of what `ptxas --version` prints, or the text's last line."""
    found = _VERSION.search(text)
    if found is not None:
        return found[1]
    return (text.strip().splitlines() or ["unknown"])[-1]


@dataclass(frozen=True, slots=True)
class Assembly:
    """One run of the assembler by Triton.

    Attributes:
        command: With all of Triton's flags; its files may be gone.
        words: What it printed.
    """

    command: tuple[str, ...]
    words: str


@contextlib.contextmanager
def listening() -> Iterator[list[Assembly]]:
    """Collect how Triton runs the assembler and what that prints."""
    compiler = importlib.import_module("triton.backends.nvidia.compiler")
    heard: list[Assembly] = []
    with mock.patch.object(compiler, "subprocess", _Subprocess(heard)):
        yield heard


class _Subprocess:
    """The subprocess module, but `run` keeps what goes to a file on stderr."""

    def __init__(self, heard: list[Assembly]) -> None:
        self._heard = heard

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def run(self, *args: Any, **options: Any) -> Any:
        log = getattr(options.get("stderr"), "name", None)
        try:
            return subprocess.run(*args, **options)
        finally:
            # Triton removes the file right after.
            if isinstance(log, str) and Path(log).is_file():
                words = Path(log).read_text(errors="replace")
                self._heard.append(Assembly(tuple(map(str, args[0])), words))
