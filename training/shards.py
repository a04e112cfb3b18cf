"""Feature rows and labels on disk: Parquet shards, written a workload at a time.

A shard holds whole workloads, one row group each, and in its metadata what is said once
of a workload. It appears under its name when it is complete; a second start goes on
behind the last complete one. Remote folders hold the same files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from costmodel.datasets import locations
from costmodel.datasets.workload_data import WorkloadData
from costmodel.errors import CorruptRecordError
from costmodel.errors import SchemaMismatchError
from costmodel.errors import StoreError
from costmodel.features.schema import SCHEMA
from costmodel.training import stored
from costmodel.training.label import label_all
from costmodel.training.label import labelled_id
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.stored import Place
from costmodel.training.stored import StoredWorkload
from costmodel.types import KernelClass

# Feature rows in a shard: about 45 MB of float32, before compression.
SHARD_ROWS = 50_000
_FACTS = b"costmodel_workloads"
_SCHEMA_HASH = b"costmodel_features"
_PREFIX = "shard-"
# Once of a workload, and short: kept in the metadata under these names.
_TEXTS = ("workload_id", "kernel", "family", "shape_id", "source_digest", "hardware")
_NUMBERS = ("promoted", "default_index", "default_us", "noise_floor_log")


@dataclass(frozen=True, slots=True)
class ShardReport:
    """What came of one writing.

    Attributes:
        n_shards: Shards there are now.
        n_workloads: Workloads there are now.
        n_rows: Feature rows there are now.
        n_new_rows: Of those, written this time.
        skipped: Workloads that have no features, and why.
        digest: 64 hex digits over what the shards hold, in whatever order.
    """

    n_shards: int
    n_workloads: int
    n_rows: int
    n_new_rows: int
    skipped: tuple[str, ...]
    digest: str


def is_sharded(location: str) -> bool:
    """Whether a folder holds feature shards."""
    return bool(_shard_names(location))


def write_shards(
    recorded: Iterable[WorkloadData],
    location: str,
    shard_rows: int = SHARD_ROWS,
    say: Callable[[str], None] = lambda line: None,
) -> ShardReport:
    """Label workloads and write their rows; what is there already is left out.

    Args:
        recorded: One at a time; only the current one is in memory.
        location: A folder, local or remote.
        shard_rows: Rows after which a shard is complete.
        say: Told of every shard.

    Raises:
        SchemaMismatchError: There are shards of other features.
        StoreError: There are rows of the same run with other measurements.
    """
    known = {one.facts["workload_id"]: one.facts for one in _read_all(location)}
    names = _shard_names(location)
    number = int(names[-1][len(_PREFIX) :].partition(".")[0]) + 1 if names else 0
    skipped: list[str] = []
    n_new = 0
    shard: _Shard | None = None
    with contextlib.ExitStack() as stack:
        folder = _work_folder(location, stack)
        for one in recorded:
            digest = _digest_of(one)
            before = known.get(labelled_id(one))
            if before is not None:
                _same(before, digest, location)
                continue
            known[labelled_id(one)] = {"digest": digest, "run_id": one.run_id}
            labelled = label_all([one])
            skipped += labelled.skipped
            for workload in labelled.workloads:
                if shard is None:
                    shard = _Shard(folder / f"{_PREFIX}{number:05d}.parquet")
                    number += 1
                shard.add(workload, one.run_id, digest)
                n_new += workload.n_rows
            if shard is not None and shard.n_rows >= shard_rows:
                _finish(shard, location, say)
                shard = None
        if shard is not None:
            _finish(shard, location, say)
    return _report(location, n_new, tuple(skipped))


def load_shards(location: str) -> list[StoredWorkload]:
    """Every workload of a folder of shards, sorted by id; rows stay where they are.

    Raises:
        CorruptRecordError: No shard there, or one that cannot be read.
        SchemaMismatchError: Shards of other features.
    """
    found = [
        _stored(one.place, one.facts, one.log_ratio)
        for one in _read_all(location, True)
    ]
    if not found:
        raise CorruptRecordError(
            f"{location}: expected feature shards ({_PREFIX}*.parquet), found none: "
            "make them with `costmodel corpus features`"
        )
    return sorted(found, key=lambda one: one.workload_id)


def digest_of_shards(location: str) -> str:
    """64 hex digits over what the shards hold."""
    digests = sorted(str(one.facts["digest"]) for one in _read_all(location))
    return hashlib.sha256("\n".join([SCHEMA.hash, *digests]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Found:
    """A workload as its shard describes it."""

    place: Place
    facts: dict[str, Any]
    log_ratio: npt.NDArray[np.float64]


class _Shard:
    """One shard being written, under a name that readers do not see."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n_rows = 0
        self._unfinished = path.with_name(path.name + ".unfinished")
        self._facts: list[dict[str, Any]] = []
        metadata = {_SCHEMA_HASH: SCHEMA.hash.encode()}
        self._schema = _schema().with_metadata(metadata)
        self._writer = pq.ParquetWriter(
            self._unfinished,
            self._schema,
            compression="zstd",
            # Feature values hardly repeat within a page; ids never do.
            use_dictionary=False,
        )

    def add(self, one: LabelledWorkload, run_id: str, digest: str) -> None:
        """Write a workload's rows."""
        rows = np.ascontiguousarray(one.features, np.float32)
        values = pa.array(rows.reshape(-1))
        columns = {
            stored.FEATURES: pa.FixedSizeListArray.from_arrays(values, rows.shape[1]),
            stored.LOG_RATIO: pa.array(one.log_ratio),
            stored.IS_OK: pa.array(one.is_ok),
            stored.ANALYTIC_US: pa.array(one.analytic_us),
            stored.ANALYTIC_ORDER: pa.array(one.analytic_order, pa.int32()),
            stored.CONFIG: pa.array([_json(config) for config in one.configs]),
            stored.CONFIG_ID: pa.array(one.config_ids),
        }
        table = pa.table(columns, schema=self._schema)
        self._writer.write_table(table, row_group_size=max(1, len(rows)))
        self.n_rows += len(rows)
        self._facts.append(
            {name: getattr(one, name) for name in (*_TEXTS, *_NUMBERS)}
            | {
                "kernel_class": one.kernel_class.value,
                "harm_floor_log": one.harm_floor_log,
                "run_id": run_id,
                "digest": digest,
            }
        )

    def close(self) -> None:
        """Complete the file under its name."""
        self._writer.add_key_value_metadata({_FACTS: _json(self._facts)})
        self._writer.close()
        self._unfinished.replace(self.path)


def _schema() -> pa.Schema:
    return pa.schema(
        [
            (stored.FEATURES, pa.list_(pa.float32(), len(SCHEMA))),
            (stored.LOG_RATIO, pa.float64()),
            (stored.IS_OK, pa.bool_()),
            (stored.ANALYTIC_US, pa.float64()),
            (stored.ANALYTIC_ORDER, pa.int32()),
            (stored.CONFIG, pa.string()),
            (stored.CONFIG_ID, pa.string()),
        ]
    )


def _work_folder(location: str, stack: contextlib.ExitStack) -> Path:
    """Where shards are written before they are where they belong."""
    if locations.is_remote(location):
        return Path(stack.enter_context(tempfile.TemporaryDirectory()))
    folder = Path(location)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{location}: cannot make the folder ({error.strerror}): choose another"
        ) from None
    return folder


def _finish(shard: _Shard, location: str, say: Callable[[str], None]) -> None:
    shard.close()
    if locations.is_remote(location):
        locations.send(shard.path, locations.join(location, shard.path.name))
        shard.path.unlink()
    say(f"{shard.path.name}: {shard.n_rows} rows")


def _same(before: dict[str, Any], digest: str, location: str) -> None:
    if before["digest"] != digest:
        raise StoreError(
            f"{location}: expected the measurements it was made from, found others of "
            f"run {before['run_id'][:8]}: write the features to a new folder"
        )


def _digest_of(one: WorkloadData) -> str:
    """Equal for equal measurements of equal configs."""
    found = hashlib.sha256(labelled_id(one).encode())
    found.update("\n".join((*one.canonical_ids, *one.status)).encode())
    found.update(one.latency_us.tobytes())
    return found.hexdigest()[:32]


def _shard_names(location: str) -> list[str]:
    return [
        name
        for name in locations.names_in(location)
        if name.startswith(_PREFIX) and name.endswith(".parquet")
    ]


def _read_all(location: str, with_labels: bool = False) -> Iterator[_Found]:
    # Processes elsewhere, in other folders, are told where the rows are.
    root = location if locations.is_remote(location) else str(Path(location).resolve())
    for name in _shard_names(location):
        where = locations.join(root, name)
        try:
            with locations.open_input(where) as file:
                yield from _read_shard(where, pq.ParquetFile(file), with_labels)
        except (OSError, KeyError, ValueError) as error:
            raise CorruptRecordError(
                f"{where}: expected a feature shard, cannot read it "
                f"({str(error).splitlines()[0]}): remove it and write it once more"
            ) from None


def _read_shard(
    where: str, file: pq.ParquetFile, with_labels: bool
) -> Iterator[_Found]:
    metadata = file.schema_arrow.metadata or {}
    written = metadata[_SCHEMA_HASH].decode()
    if written != SCHEMA.hash:
        raise SchemaMismatchError(
            f"{where}: expected features of schema {SCHEMA.hash[:12]}, found "
            f"{written[:12]}: write the features once more, to a new folder"
        )
    facts = json.loads(file.metadata.metadata[_FACTS])
    nothing = np.zeros(0)
    for number, one in enumerate(facts):
        logs = nothing
        if with_labels:
            table = file.read_row_group(number, [stored.LOG_RATIO])
            logs = table[stored.LOG_RATIO].to_numpy()
        yield _Found(Place(where, number), one, logs)


def _stored(
    place: Place, facts: dict[str, Any], log_ratio: npt.NDArray[np.float64]
) -> StoredWorkload:
    known = dict(facts)
    run_id = known.pop("run_id")
    known.pop("digest")
    known["kernel_class"] = KernelClass(known["kernel_class"])
    # A failed row has no time, and an attempt with a time has not failed.
    is_ok = ~np.isnan(log_ratio)
    return StoredWorkload(
        place, run_id, {**known, "log_ratio": log_ratio, "is_ok": is_ok}
    )


def _report(location: str, n_new: int, skipped: tuple[str, ...]) -> ShardReport:
    found = list(_read_all(location, True))
    return ShardReport(
        n_shards=len(_shard_names(location)),
        n_workloads=len(found),
        n_rows=sum(len(one.log_ratio) for one in found),
        n_new_rows=n_new,
        skipped=skipped,
        digest=digest_of_shards(location),
    )


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)
