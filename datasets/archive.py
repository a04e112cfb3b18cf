"""One compressed tar that is whole at any moment: what is recorded cannot be lost.

Each finished workload becomes one xz stream holding its tar members; streams laid end
to end are one xz file, and tar members without an end mark are one tar. So adding a
workload costs its own compression only, and the file on disk is replaced in one step.
"""

from __future__ import annotations

import io
import lzma
import os
import tarfile
from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path

SUFFIX = ".tar.xz"
PART_LIMIT_BYTES = 15 * 2**20  # files of more than 16 MiB do not travel everywhere
_PRESET = 6  # 20 KB and 0.1 s for the 250 KB of one workload


class Archive:
    """Grows by one group of files at a time; starts a new part near the limit.

    Parts are `<base>.tar.xz`, `<base>-2.tar.xz`, ... An existing part is continued.
    """

    def __init__(
        self,
        base: Path,
        limit_bytes: int = PART_LIMIT_BYTES,
        written: Callable[[Path], None] = lambda path: None,
    ) -> None:
        """`base` has no suffix; its folder exists. `written` is told of every part
        that is on disk in a new form."""
        self._base = base
        self._written = written
        self._limit_bytes = limit_bytes
        self._part = 1
        while part_path(base, self._part + 1).exists():
            self._part += 1
        path = part_path(base, self._part)
        self._streams = path.read_bytes() if path.exists() else b""

    def add(self, files: Sequence[Path]) -> None:
        """Add files under their bare names; on return they are on disk, compressed."""
        stream = _compress(files)
        if self._streams and len(self._streams) + len(stream) > self._limit_bytes:
            self._part += 1
            self._streams = b""
        self._streams += stream
        path = part_path(self._base, self._part)
        fresh = path.with_name(path.name + ".new")
        fresh.write_bytes(self._streams)
        os.replace(fresh, path)
        self._written(path)


def part_path(base: Path, part: int) -> Path:
    """Path of one part, counted from 1."""
    name = base.name if part == 1 else f"{base.name}-{part}"
    return base.with_name(name + SUFFIX)


def member_names(path: Path) -> list[str]:
    """Names of all files in one part."""
    with tarfile.open(path, "r:xz") as tar:
        return tar.getnames()


def extract_all(path: Path, folder: Path) -> list[str]:
    """Unpack one part into a folder; names with a path in them are refused."""
    with tarfile.open(path, "r:xz") as tar:
        tar.extractall(folder, filter="data")
        return tar.getnames()


def _compress(files: Sequence[Path]) -> bytes:
    buffer = io.BytesIO()
    for path in files:
        data = path.read_bytes()
        info = tarfile.TarInfo(path.name)
        info.size = len(data)
        info.mtime = int(path.stat().st_mtime)
        buffer.write(info.tobuf(tarfile.PAX_FORMAT))
        buffer.write(data)
        buffer.write(b"\0" * (-len(data) % tarfile.BLOCKSIZE))
    return lzma.compress(buffer.getvalue(), preset=_PRESET)
