"""A corpus on disk: a folder with `runs.parquet` and `attempts.parquet`.

Every write goes to a temporary file that is renamed when it is complete. The attempts
are renamed first and the runs last, and attempts without a run are ignored, so a
write that dies anywhere leaves the corpus as it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from costmodel.datasets.audit import Finding
from costmodel.datasets.audit import Outcome
from costmodel.datasets.audit import Stage
from costmodel.datasets.clean import CleanRun
from costmodel.datasets.record import DefaultSource
from costmodel.datasets.record import LabelQuality
from costmodel.datasets.record import Status
from costmodel.datasets.store_schema import ATTEMPTS_SCHEMA
from costmodel.datasets.store_schema import RUNS_SCHEMA
from costmodel.datasets.store_schema import SCHEMA_VERSION
from costmodel.datasets.store_schema import attempt_rows
from costmodel.datasets.store_schema import record_of
from costmodel.datasets.store_schema import run_key
from costmodel.datasets.store_schema import run_row
from costmodel.datasets.table_files import locked
from costmodel.datasets.table_files import read_table
from costmodel.datasets.table_files import write_table
from costmodel.datasets.workload_data import WorkloadData
from costmodel.datasets.workload_data import floats
from costmodel.datasets.workload_data import name_of
from costmodel.errors import CorruptRecordError

RUNS_FILE = "runs.parquet"
ATTEMPTS_FILE = "attempts.parquet"

# A csv spells times to 1e-6 ms; a trace has more digits of the same reading.
_READING_DIGITS = 3


@dataclass(frozen=True, slots=True)
class AppendReport:
    """What came of one import.

    Attributes:
        n_added: New runs.
        n_updated: Runs of a log that has grown, replaced by their longer form.
        n_known: Runs that were already there.
        n_skipped: Runs that must not be stored.
        n_attempts: Attempts in the added and updated runs.
        findings: Why runs were skipped, and which were updated.
        digest: The corpus digest afterwards.
    """

    n_added: int
    n_updated: int
    n_known: int
    n_skipped: int
    n_attempts: int
    findings: tuple[Finding, ...]
    digest: str


def is_corpus(path: Path) -> bool:
    """Whether a folder holds a stored corpus."""
    return (path / RUNS_FILE).is_file()


class Corpus:
    """Runs and their attempts in a folder; the only writer of that folder."""

    def __init__(self, directory: Path, runs: pa.Table, attempts: pa.Table) -> None:
        self.directory = directory
        self._runs = runs
        self._attempts = attempts

    @classmethod
    def load(cls, directory: Path | str, *, create: bool = False) -> Corpus:
        """Open a corpus.

        Args:
            directory: Its folder.
            create: Whether a folder without a corpus is an empty corpus; nothing is
                written before the first `append`.

        Raises:
            CorruptRecordError: No corpus there, or a file that cannot be read.
            StoreError: Written with another schema version.
        """
        directory = Path(directory)
        if not is_corpus(directory):
            if create:
                empty = RUNS_SCHEMA.empty_table(), ATTEMPTS_SCHEMA.empty_table()
                return cls(directory, *empty)
            raise CorruptRecordError(
                f"{directory}: expected a corpus ({RUNS_FILE}), found none: make one "
                "with `costmodel import LOGS`"
            )
        runs = read_table(directory / RUNS_FILE, RUNS_SCHEMA)
        attempts = read_table(directory / ATTEMPTS_FILE, ATTEMPTS_SCHEMA)
        # Left over from a write that never came to its end.
        attempts = attempts.filter(pc.is_in(attempts["run_key"], runs["run_key"]))
        return cls(directory, runs, attempts)

    @property
    def n_runs(self) -> int:
        """How many runs it holds."""
        return int(self._runs.num_rows)

    @property
    def n_attempts(self) -> int:
        """How many measurements it holds, failures included."""
        return int(self._attempts.num_rows)

    @property
    def digest(self) -> str:
        """64 hex digits over the content; independent of import order and machine."""
        keys = sorted(self._runs["run_key"].to_pylist())
        text = "\n".join([str(SCHEMA_VERSION), *keys])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def runs(self) -> pa.Table:
        """`store_schema.RUNS_SCHEMA`."""
        return self._runs

    @property
    def attempts(self) -> pa.Table:
        """`store_schema.ATTEMPTS_SCHEMA`."""
        return self._attempts

    def append(self, clean_runs: Iterable[CleanRun]) -> AppendReport:
        """Add runs that are not there yet, and write the corpus.

        A run whose log has grown since replaces its shorter form. Runs with a
        `problem` are skipped.

        Raises:
            StoreError: Nothing could be written; the corpus is as it was.
        """
        with locked(self.directory):
            # Another process may have written since this one loaded.
            fresh = Corpus.load(self.directory, create=True)
            report, runs, attempts, replaced = fresh._merged(clean_runs)
            if report.n_added or report.n_updated:
                write_table(self.directory / ATTEMPTS_FILE, attempts)
                write_table(self.directory / RUNS_FILE, runs)
            self._runs = runs
            self._attempts = attempts.filter(_not_in(attempts["run_key"], replaced))
        return report

    def workloads(self, *, with_graph: bool = True) -> list[WorkloadData]:
        """Every run as arrays, sorted by log, run id and ordinal.

        Args:
            with_graph: Leave out runs without an IR graph, which have no features.
        """
        by_run: dict[str, list[dict[str, Any]]] = {}
        for row in self._attempts.to_pylist():
            by_run.setdefault(row["run_key"], []).append(row)
        order = ("log", "run_id", "run_ordinal", "run_key")
        runs = sorted(
            self._runs.to_pylist(), key=lambda run: tuple(run[name] for name in order)
        )
        found = [_workload(run, by_run.get(run["run_key"], [])) for run in runs]
        return [one for one in found if one.has_graph or not with_graph]

    def _merged(
        self, clean_runs: Iterable[CleanRun]
    ) -> tuple[AppendReport, pa.Table, pa.Table, list[str]]:
        """The report, both tables with the new runs, and the keys they replace. The
        attempts still hold the replaced runs', for a write that stops half way."""
        known = set(self._runs["run_key"].to_pylist())
        new_runs: list[dict[str, Any]] = []
        new_attempts: list[dict[str, Any]] = []
        findings: list[Finding] = []
        replaced: list[str] = []
        counts = {"added": 0, "updated": 0, "known": 0, "skipped": 0}
        for one in clean_runs:
            record = one.run.record
            if one.run.problem is not None or record is None:
                counts["skipped"] += 1
                findings.append(_finding(one, Outcome.SET_ASIDE, str(one.run.problem)))
                continue
            key = run_key(one)
            if key in known:
                counts["known"] += 1
                continue
            known.add(key)
            older = [old for old in self._shorter_forms(one) if old not in replaced]
            replaced += older
            counts["updated" if older else "added"] += 1
            if older:
                findings.append(_finding(one, Outcome.NOTED, "log has grown: updated"))
            new_runs.append(run_row(one, record, key))
            new_attempts += attempt_rows(one, key)
        keep = pc.invert(
            pc.is_in(self._runs["run_key"], pa.array(replaced, pa.string()))
        )
        runs = pa.concat_tables(
            [
                self._runs.filter(keep),
                pa.Table.from_pylist(new_runs, schema=RUNS_SCHEMA),
            ]
        )
        attempts = pa.concat_tables(
            [
                self._attempts,
                pa.Table.from_pylist(new_attempts, schema=ATTEMPTS_SCHEMA),
            ]
        )
        report = AppendReport(
            n_added=counts["added"],
            n_updated=counts["updated"],
            n_known=counts["known"],
            n_skipped=counts["skipped"],
            n_attempts=len(new_attempts),
            findings=tuple(findings),
            digest=Corpus(self.directory, runs, attempts).digest,
        )
        return report, runs, attempts, replaced

    def _shorter_forms(self, one: CleanRun) -> Iterator[str]:
        """Keys of stored runs that an earlier, shorter state of this log gave: every
        reading they hold is among this run's."""
        run = one.run
        same = [
            row["run_key"]
            for row in self._runs.select(
                ["run_key", "workload_id", "run_id", "run_ordinal", "log"]
            ).to_pylist()
            if row["workload_id"] == one.workload_id
            and row["run_id"] == run.run_id
            and row["run_ordinal"] == run.run_ordinal
            and row["log"] == run.log
        ]
        if not same:
            return
        now = {_rounded(attempt.latency_us) for attempt in run.attempts}
        if run.side is not None:
            for own in (
                *run.side.interleaved_us.values(),
                *(extras.readings_us for extras in run.side.attempts.values()),
            ):
                now |= {_rounded(value) for value in own}
        for key in same:
            rows = self._attempts.filter(pc.equal(self._attempts["run_key"], key))
            readings = [r for row in rows["readings_us"].to_pylist() for r in row]
            if readings and {_rounded(value) for value in readings} <= now:
                yield key


def _not_in(column: pa.ChunkedArray, keys: Sequence[str]) -> pa.ChunkedArray:
    """bool[n]: rows whose key is none of these."""
    return pc.invert(pc.is_in(column, pa.array(keys, pa.string())))


def _rounded(value: float | None) -> float:
    return round(value or 0.0, _READING_DIGITS)


def _workload(
    run: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> WorkloadData:
    rows = sorted(rows, key=lambda row: row["canonical_id"])
    record = record_of(run)
    default = [index for index, row in enumerate(rows) if row["is_default"]]
    return WorkloadData(
        workload_id=run["workload_id"],
        kernel_id=run["kernel_id"],
        record=record,
        family=run["family"],
        log=run["log"],
        run_id=run["run_id"],
        run_ordinal=run["run_ordinal"],
        configs=tuple(json.loads(row["config"]) for row in rows),
        config_ids=tuple(row["config_id"] for row in rows),
        canonical_ids=tuple(row["canonical_id"] for row in rows),
        status=tuple(Status(row["status"]) for row in rows),
        latency_us=floats(row["latency_us"] for row in rows),
        noise_floor_log=floats(row["noise_floor_log"] for row in rows),
        label_quality=tuple(LabelQuality(row["label_quality"]) for row in rows),
        n_readings=np.array([row["n_readings"] for row in rows], np.int64),
        default_index=default[0] if default else None,
        default_how=DefaultSource(run["default_how"]),
        n_attempts=run["n_attempts"],
        promoted=run["promoted"],
        regime=run["regime"],
        hardware=run["gpu"],
        helion_version=run["helion_version"],
    )


def _finding(one: CleanRun, outcome: Outcome, reason: str) -> Finding:
    return Finding(
        Stage.STORE,
        outcome,
        reason,
        rows=1,
        file=one.run.log,
        run_id=one.run.run_id,
        detail=name_of(one.run),
    )
