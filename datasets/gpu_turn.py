"""Several recorders share one GPU: all compile, one at a time launches.

Compiling takes the CPU for as long as timing takes the GPU. With a few processes per
GPU, each on its own workload, one times while the others compile, and the lock keeps
every launch of the others out of the timings.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

COMPILE = "compile"
WAIT = "wait"
MEASURE = "measure"

_COMPILE_NICENESS = 10  # compilers yield to the process that is timing


class FileTurn:
    """A file lock; it is free again when its holder dies, however it dies."""

    def __init__(self, path: Path, notify: Callable[[str], None]) -> None:
        """`notify` hears COMPILE, WAIT or MEASURE whenever that changes."""
        self._path = path
        self._notify = notify
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Wait until the GPU is ours; at once if it is already."""
        if self._file is not None:
            return
        self._notify(WAIT)
        # Held open beyond this function: closing it would free the lock.
        file = self._path.open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        self._file = file
        _set_niceness(0)
        self._notify(MEASURE)

    def give(self) -> None:
        """Free the GPU; nothing happens if it is not ours."""
        if self._file is None:
            return
        _set_niceness(_COMPILE_NICENESS)
        # Unlock, not just close: a forked child may hold the same open file.
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()
        self._file = None
        self._notify(COMPILE)


def _set_niceness(value: int) -> None:
    # Only root can lower its niceness again, so nobody else may raise it either.
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, value)
