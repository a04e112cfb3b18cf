"""Where data lies: a local path, or a URL that fsspec knows, such as s3://bucket/logs.

Local paths never come here but to be told that they are local: they keep their own code
with its locks and renames. What is remote is worked on as a local copy: fetched whole,
and sent back file by file, what others rely on last. Object stores write a file whole
or not at all, so a reader sees the old or the new one; two writers at once are not kept
apart.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodel.errors import LocationError

_MARK = "://"


def is_remote(location: object) -> bool:
    """Whether a path on the command line is a URL and not a local path."""
    return _MARK in str(location)


def join(location: str, name: str) -> str:
    """A file in a folder, local or remote."""
    if is_remote(location):
        return f"{location.rstrip('/')}/{name}"
    return str(Path(location) / name)


def name_of(location: str) -> str:
    """The last part of a location."""
    return location.rstrip("/").rpartition("/")[2]


def filesystem(location: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it.

    Raises:
        LocationError: Nobody knows the scheme, its driver is not installed, or it
            cannot be reached.
    """
    scheme = location.partition(_MARK)[0]
    try:
        import fsspec
    except ImportError:
        raise LocationError(
            f"{location}: expected fsspec to read {scheme}://, found it not installed: "
            "pip install helion-costmodel[scale]"
        ) from None
    try:
        system, path = fsspec.core.url_to_fs(location)
    except ImportError as error:
        driver = str(error).splitlines()[0]
        raise LocationError(
            f"{location}: expected a driver for {scheme}://, found none ({driver})"
        ) from None
    except (ValueError, OSError) as error:
        known = "s3://, gs://, abfs://, file://, memory://"
        raise LocationError(
            f"{location}: expected a scheme that fsspec knows ({known}), found "
            f"{scheme}:// ({str(error).splitlines()[0]})"
        ) from None
    return system, path


@contextlib.contextmanager
def open_input(location: str) -> Iterator[Any]:
    """A file to read bytes of, at any place of it.

    Raises:
        LocationError: Remote, and cannot be read.
        OSError: Local, and cannot be read.
    """
    if not is_remote(location):
        with open(location, "rb") as file:
            yield file
        return
    system, path = filesystem(location)
    with _reported(location):
        opened = system.open(path, "rb")
    with opened as file:
        yield file


def exists(location: str) -> bool:
    """Whether there is a file or folder."""
    if not is_remote(location):
        return Path(location).exists()
    system, path = filesystem(location)
    with _reported(location):
        return bool(system.exists(path))


def names_in(location: str) -> list[str]:
    """Names of the files directly in a folder, sorted; empty for one that is not."""
    if not is_remote(location):
        folder = Path(location)
        if not folder.is_dir():
            return []
        return sorted(one.name for one in folder.iterdir() if one.is_file())
    return sorted(one for one in _files_under(location) if "/" not in one)


def send(local: Path, location: str) -> None:
    """Put a local file at a remote location, in one step.

    Raises:
        LocationError: It cannot be written; what was there is as it was.
    """
    system, path = filesystem(location)
    with _reported(location):
        try:
            system.put_file(str(local), path)
        except FileNotFoundError:  # object stores know no folders to be missing
            system.makedirs(path.rpartition("/")[0], exist_ok=True)
            system.put_file(str(local), path)


def fetch(location: str, folder: Path) -> Path:
    """A local copy of a remote file or folder, in a folder; returns its path.

    Files of a log that only have a base path in common are fetched together.

    Raises:
        LocationError: It is not there, or cannot be read.
    """
    system, path = filesystem(location)
    target = folder / name_of(location)
    with _reported(location):
        if system.isdir(path):
            for name in _files_under(location):
                _fetch_file(system, f"{path.rstrip('/')}/{name}", target / name)
            return target
        # A file of a log brings those beside it: csv, meta, trace and side file.
        parent, _, name = path.rpartition("/")
        base = name.partition(".")[0]
        beside = [
            one["name"]
            for one in _listed(system, parent or "/")
            if one["type"] == "file" and one["name"].rpartition("/")[2].startswith(base)
        ]
        for one in beside:
            _fetch_file(system, one, folder / one.rpartition("/")[2])
    if not beside:
        raise LocationError(
            f"{location}: no such file or folder: name one that is there"
        )
    return target


def _listed(system: Any, path: str) -> list[dict[str, Any]]:
    """What lies directly in a folder; nothing in one that is not there."""
    try:
        found: list[dict[str, Any]] = system.ls(path, detail=True)
    except FileNotFoundError:
        return []
    return found


def _fetch_file(system: Any, path: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    system.get_file(path, str(target))


@contextlib.contextmanager
def inputs(locations: Sequence[str]) -> Iterator[list[str]]:
    """Local paths to read instead of the locations, in the same order.

    Local ones are themselves; copies of remote ones are gone after the block.

    Raises:
        LocationError: A remote one cannot be read.
    """
    with contextlib.ExitStack() as stack:
        found = []
        for one in locations:
            if is_remote(one):
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                found.append(str(fetch(one, Path(folder))))
            else:
                found.append(str(one))
        yield found


@contextlib.contextmanager
def folder_of(location: str, *, last: Sequence[str] = ()) -> Iterator[str]:
    """A local folder to work in instead of a location; changes are sent at the end.

    A local location is itself. A remote folder is fetched first, if it is there, and
    files that the block changed or made are sent after it, unless it raised.

    Args:
        location: A folder.
        last: Names of files that are sent after all others, because they make the
            folder what it is.

    Raises:
        LocationError: It cannot be read or written.
    """
    if not is_remote(location):
        yield str(location)
        return
    with tempfile.TemporaryDirectory() as temporary:
        local = Path(temporary) / name_of(location)
        if exists(location):
            fetch(location, Path(temporary))
        local.mkdir(exist_ok=True)
        before = _digests(local)
        yield str(local)
        after = _digests(local)
        changed = [name for name in after if after[name] != before.get(name)]
        for name in sorted(changed, key=lambda one: (name_of(one) in last, one)):
            send(local / name, join(location, name))


def _digests(folder: Path) -> dict[str, bytes]:
    """Digest of each file by its path within the folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
            found[path.relative_to(folder).as_posix()] = digest
    return found


def _files_under(location: str) -> list[str]:
    """Paths of all files in a remote folder, relative to it."""
    system, path = filesystem(location)
    root = path.rstrip("/") + "/"
    with _reported(location):
        if not system.exists(path):
            return []
        return sorted(one.partition(root)[2] for one in system.find(path))


@contextlib.contextmanager
def _reported(location: str) -> Iterator[None]:
    try:
        yield
    except LocationError:
        raise
    except Exception as error:  # every driver has errors of its own
        said = (str(error) or type(error).__name__).splitlines()[0]
        raise LocationError(
            f"{location}: expected to read or write there, found: {said}: check the "
            "address and the driver's credentials"
        ) from error
