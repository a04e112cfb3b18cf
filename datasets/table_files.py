"""Parquet files that are complete or not there, and one writer at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from costmodel.datasets.store_schema import SCHEMA_VERSION
from costmodel.datasets.store_schema import VERSION_KEY
from costmodel.errors import CorruptRecordError
from costmodel.errors import StoreError


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """Read a table of a corpus.

    Raises:
        CorruptRecordError: It cannot be read or has other columns.
        StoreError: It was written with another schema version.
    """
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise CorruptRecordError(
            f"{path}: expected a corpus table, cannot read it "
            f"({str(error).splitlines()[0]}): import the logs into a new folder"
        ) from None
    found = (table.schema.metadata or {}).get(VERSION_KEY, b"none").decode()
    if found != str(SCHEMA_VERSION):
        raise StoreError(
            f"{path}: expected corpus schema {SCHEMA_VERSION}, found {found}: update "
            "helion-costmodel, or import the logs into a new folder"
        )
    try:
        return table.select(schema.names).cast(schema)
    except (KeyError, pa.ArrowException):
        raise CorruptRecordError(
            f"{path}: expected the columns of corpus schema {SCHEMA_VERSION}, found "
            "others: import the logs into a new folder"
        ) from None


def write_table(path: Path, table: pa.Table) -> None:
    """Replace a file by a complete one, or leave it alone.

    Raises:
        StoreError: It could not be written; the file is as it was.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise _unwritable(path.parent, error) from None


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Make the folder if need be, and keep other writers out until the block ends.

    Raises:
        StoreError: The folder cannot be made or opened.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise _unwritable(directory, error) from None
    try:
        with contextlib.suppress(OSError):  # some network folders know no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _unwritable(directory: Path, error: OSError) -> StoreError:
    why, advice = f"{error.strerror}", "free space or choose another folder"
    if isinstance(error, FileExistsError):
        why, advice = "it is a file", "name a folder"
    elif isinstance(error, NotADirectoryError):
        why, advice = "a part of its path is a file", "choose another folder"
    return StoreError(
        f"{directory}: cannot write the corpus ({why}): nothing was changed; {advice}"
    )
