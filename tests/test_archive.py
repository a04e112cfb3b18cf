"""The archive is whole after every addition, and goes on where it stopped."""

from __future__ import annotations

import random
import tarfile
from pathlib import Path

import pytest

from costmodel.datasets.archive import Archive
from costmodel.datasets.archive import extract_all
from costmodel.datasets.archive import member_names
from costmodel.datasets.archive import part_path


def _file(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_what_goes_in_comes_out_after_every_addition(tmp_path: Path) -> None:
    out = tmp_path / "unpacked"
    out.mkdir()
    archive = Archive(tmp_path / "recorded")
    sizes = (0, 1, 511, 512, 513, 70_000)
    for i, size in enumerate(sizes):
        data = bytes((i + j) % 251 for j in range(size))
        archive.add([_file(tmp_path, f"{i}.csv", data), _file(tmp_path, f"{i}.x", b"")])
        path = part_path(tmp_path / "recorded", 1)
        expected = [f"{k}.{ext}" for k in range(i + 1) for ext in ("csv", "x")]
        assert member_names(path) == expected
        extract_all(path, out)
        assert (out / f"{i}.csv").read_bytes() == data


def test_a_second_start_goes_on(tmp_path: Path) -> None:
    base = tmp_path / "recorded"
    Archive(base).add([_file(tmp_path, "a", b"first")])
    Archive(base).add([_file(tmp_path, "b", b"second")])
    assert member_names(part_path(base, 1)) == ["a", "b"]


def test_parts_stay_under_the_limit(tmp_path: Path) -> None:
    rng = random.Random(0)
    base = tmp_path / "recorded"
    limit = 20_000
    for i in range(6):
        # A fresh object each time: continuing finds the last part.
        Archive(base, limit).add([_file(tmp_path, f"{i}", rng.randbytes(8_000))])
    parts = [part_path(base, part) for part in (1, 2, 3)]
    assert [name for part in parts for name in member_names(part)] == list("012345")
    assert all(part.stat().st_size <= limit for part in parts)
    assert not part_path(base, 4).exists()


def test_a_plain_tar_reads_it(tmp_path: Path) -> None:
    base = tmp_path / "recorded"
    Archive(base).add([_file(tmp_path, "a", b"x" * 1000)])
    with tarfile.open(part_path(base, 1)) as tar:
        assert tar.getnames() == ["a"]


def test_members_cannot_leave_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "evil.tar.xz"
    with tarfile.open(path, "w:xz") as tar:
        tar.add(_file(tmp_path, "a", b"x"), arcname="../outside")
    with pytest.raises(tarfile.TarError):
        extract_all(path, tmp_path)
