"""A corpus in parts: as large as the disk, read and written a part at a time.

Each part is a whole corpus of its own (`store`), so that everything it promises holds
for them: complete or not there, nothing twice, a log that has grown replaces its
shorter form. The folder of parts has the digest that one corpus of all runs would have.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from costmodel.datasets.audit import Finding
from costmodel.datasets.audit import Outcome
from costmodel.datasets.audit import Stage
from costmodel.datasets.clean import CleanRun
from costmodel.datasets.store import ATTEMPTS_FILE
from costmodel.datasets.store import RUNS_FILE
from costmodel.datasets.store import AppendReport
from costmodel.datasets.store import Corpus
from costmodel.datasets.store import is_corpus
from costmodel.datasets.store_schema import SCHEMA_VERSION
from costmodel.datasets.store_schema import run_key
from costmodel.datasets.table_files import locked
from costmodel.datasets.workload_data import WorkloadData
from costmodel.datasets.workload_data import name_of
from costmodel.errors import CorruptRecordError
from costmodel.errors import StoreError

# Measurements after which an import begins a new part: about 100 MB of Python objects
# while it is written or read.
PART_ATTEMPTS = 25_000
_KNOWN_FILE = "known_logs.jsonl"

_Place = tuple[str, str, int, str]
"""Workload, run id, ordinal and log: what a log that has grown keeps."""


def is_parted(path: Path) -> bool:
    """Whether a folder holds a corpus in parts."""
    return any(is_corpus(part) for part in path.glob("part-*"))


@dataclass(slots=True)
class _Index:
    """Every run's key, and the part where each place is."""

    keys: set[str]
    parts: dict[_Place, Path]


class PartedCorpus:
    """Parts of a corpus in a folder; the only writer of that folder."""

    def __init__(self, directory: Path) -> None:
        """Open a folder that need not be there yet.

        Args:
            directory: Its folder.

        Raises:
            StoreError: The folder holds a corpus that is not in parts.
        """
        if is_corpus(directory):
            raise StoreError(
                f"{directory}: expected a corpus in parts or a new folder, found a "
                "corpus in one piece: choose another folder, or leave out --stream"
            )
        self.directory = directory

    @property
    def parts(self) -> list[Path]:
        """Folders of all parts, in the order they were written."""
        return sorted(p for p in self.directory.glob("part-*") if is_corpus(p))

    @property
    def n_runs(self) -> int:
        """How many runs it holds."""
        return sum(len(_read(part / RUNS_FILE)) for part in self.parts)

    @property
    def n_attempts(self) -> int:
        """How many measurements it holds, failures included."""
        n_found = 0
        for part in self.parts:
            runs = {row["run_key"] for row in _read(part / RUNS_FILE)}
            # Those of a run that a longer form has replaced may still lie there.
            n_found += sum(
                row["run_key"] in runs for row in _read(part / ATTEMPTS_FILE)
            )
        return n_found

    @property
    def keys(self) -> list[str]:
        """Content digest of every run."""
        return sorted(self._index().keys)

    @property
    def digest(self) -> str:
        """64 hex digits over the content: those of one corpus of the same runs."""
        text = "\n".join([str(SCHEMA_VERSION), *self.keys])
        return hashlib.sha256(text.encode()).hexdigest()

    def workloads(self) -> Iterator[WorkloadData]:
        """Every run that has an IR graph as arrays, one part in memory at a time."""
        for part in self.parts:
            yield from Corpus.load(part).workloads()

    def append(self, clean_runs: Iterable[CleanRun]) -> AppendReport:
        """Add runs that are not there yet as one new part.

        A run whose log has grown since replaces its shorter form where that is.

        Raises:
            StoreError: Nothing new could be written; the parts are as they were, but
                for those of logs that have grown.
        """
        with locked(self.directory):
            index = self._index()
            report = AppendReport(0, 0, 0, 0, 0, (), "")
            new: list[CleanRun] = []
            for one in clean_runs:
                if one.run.problem is not None or one.run.record is None:
                    report = total_of(report, _set_aside(one))
                    continue
                key = run_key(one)
                home = index.parts.get(_place_of(one))
                if key in index.keys:
                    report = replace(report, n_known=report.n_known + 1)
                elif home is not None:
                    report = total_of(report, Corpus.load(home).append([one]))
                else:
                    new.append(one)
                index.keys.add(key)
            if new:
                part = Corpus.load(self._next(), create=True)
                report = total_of(report, part.append(new))
        return replace(report, digest=self.digest)

    def knows_log(self, digest: str) -> bool:
        """Whether a log of this digest was imported to its end."""
        return digest in self._known_logs()

    def remember_logs(self, digests: Iterable[str]) -> None:
        """Note logs whose every run is stored, so that no later import reads them."""
        path = self.directory / _KNOWN_FILE
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(one) + "\n" for one in digests)

    def _known_logs(self) -> set[str]:
        try:
            text = (self.directory / _KNOWN_FILE).read_text(encoding="utf-8")
        except OSError:
            return set()
        # The last line may be cut off, and then its log is read once more.
        return {line.strip('"') for line in text.splitlines()}

    def _next(self) -> Path:
        """Where the next part goes: behind the last one that is complete."""
        parts = self.parts
        number = int(parts[-1].name.rpartition("-")[2]) + 1 if parts else 0
        return self.directory / f"part-{number:05d}"

    def _index(self) -> _Index:
        columns = ["run_key", "workload_id", "run_id", "run_ordinal", "log"]
        index = _Index(set(), {})
        for part in self.parts:
            for row in _read(part / RUNS_FILE, columns):
                index.keys.add(str(row["run_key"]))
                place = (
                    str(row["workload_id"]),
                    str(row["run_id"]),
                    int(str(row["run_ordinal"])),
                    str(row["log"]),
                )
                index.parts[place] = part
        return index


def _set_aside(one: CleanRun) -> AppendReport:
    finding = Finding(
        Stage.STORE,
        Outcome.SET_ASIDE,
        str(one.run.problem),
        rows=1,
        file=one.run.log,
        run_id=one.run.run_id,
        detail=name_of(one.run),
    )
    return AppendReport(0, 0, 0, 1, 0, (finding,), "")


def _place_of(one: CleanRun) -> _Place:
    return one.workload_id, one.run.run_id, one.run.run_ordinal, one.run.log


def _read(path: Path, columns: Sequence[str] = ("run_key",)) -> list[dict[str, object]]:
    try:
        table = pq.read_table(path, columns=list(columns))
    except (OSError, ValueError) as error:
        raise CorruptRecordError(
            f"{path}: expected a corpus table, cannot read it "
            f"({str(error).splitlines()[0]}): remove its part and import once more"
        ) from None
    rows: list[dict[str, object]] = table.to_pylist()
    return rows


def total_of(one: AppendReport, other: AppendReport) -> AppendReport:
    """What came of two appends, one after the other."""
    findings: tuple[Finding, ...] = (*one.findings, *other.findings)
    return AppendReport(
        n_added=one.n_added + other.n_added,
        n_updated=one.n_updated + other.n_updated,
        n_known=one.n_known + other.n_known,
        n_skipped=one.n_skipped + other.n_skipped,
        n_attempts=one.n_attempts + other.n_attempts,
        findings=findings,
        digest=other.digest,
    )
