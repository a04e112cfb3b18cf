"""What commands that train and judge read: corpora and logs, as labelled workloads."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from costmodel.cli_data import load
from costmodel.cli_data import report_unusable_runs
from costmodel.datasets.audit import Audit
from costmodel.datasets.audit_file import read_audit
from costmodel.datasets.compiled_table import CompiledTable
from costmodel.datasets.locations import inputs
from costmodel.datasets.store import Corpus
from costmodel.datasets.store import is_corpus
from costmodel.datasets.store_schema import run_key
from costmodel.datasets.stream_store import PartedCorpus
from costmodel.datasets.stream_store import is_parted
from costmodel.datasets.workload_data import WorkloadData
from costmodel.errors import NotEnoughDataError
from costmodel.frozen import dataclass
from costmodel.training.code_stage import CompiledRuns
from costmodel.training.label import label_all
from costmodel.training.label import labelled_id
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.trained_on import digest_of_keys


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of some corpora and logs.

    Attributes:
        paths: Where they came from.
        recorded: Workloads that have a graph.
        keys: Keys of their runs.
        audit: What was kept and dropped of the logs.
    """

    paths: tuple[str, ...]
    recorded: tuple[WorkloadData, ...]
    keys: tuple[str, ...]
    audit: Audit

    @property
    def digest(self) -> str:
        """Of all runs, as 64 hex digits."""
        return digest_of_keys(self.keys)

    @property
    def name(self) -> str:
        """For people and for tracking."""
        return " ".join(Path(one).name for one in self.paths)

    def with_(self, other: Measured) -> Measured:
        """Both together."""
        audit = Audit()
        audit.extend(self.audit)
        audit.extend(other.audit)
        return Measured(
            (*self.paths, *other.paths),
            (*self.recorded, *other.recorded),
            (*self.keys, *other.keys),
            audit,
        )


def read_measured(paths: Sequence[str]) -> Measured:
    """Read corpora and logs; what cannot be used is one line each on stderr.

    Raises:
        CorruptRecordError: Not one run of the logs could be used.
    """
    with inputs(paths) as local:
        return dataclasses.replace(_read(local), paths=tuple(paths))


def _read(paths: Sequence[str]) -> Measured:
    workloads: list[WorkloadData] = []
    keys: list[str] = []
    audit = Audit()
    logs = []
    for path in paths:
        if is_parted(Path(path)):
            parted = PartedCorpus(Path(path))
            audit.extend(read_audit(path))
            workloads += parted.workloads()
            keys += parted.keys
        elif is_corpus(Path(path)):
            corpus = Corpus.load(path)
            audit.extend(read_audit(path))
            workloads += corpus.workloads()
            keys += corpus.runs["run_key"].to_pylist()
        else:
            logs.append(path)
    if logs:
        loaded = load(logs)
        report_unusable_runs(loaded)
        audit.extend(loaded.audit)
        for run in loaded.usable:
            data = WorkloadData.from_clean_run(run)
            if data.has_graph:
                workloads.append(data)
                keys.append(run_key(run))
    return Measured(tuple(paths), tuple(workloads), tuple(keys), audit)


def compiled_runs(measured: Measured) -> CompiledRuns | None:
    """What a compiler made of the corpora's configs, if they hold that."""
    table = CompiledTable([])
    with inputs(measured.paths) as local:
        for path in local:
            if is_corpus(Path(path)):
                table = table.merged(CompiledTable.load(path))
    if not len(table):
        return None
    run_ids = {labelled_id(one): one.run_id for one in measured.recorded}
    return CompiledRuns(table, run_ids, table.toolchains)


def labelled(
    measured: Measured,
) -> tuple[tuple[LabelledWorkload, ...], tuple[str, ...]]:
    """Workloads that can be learned from, and why the others cannot.

    Raises:
        NotEnoughDataError: None can.
    """
    found = label_all(measured.recorded)
    for reason in found.skipped:
        print(f"costmodel: left out: {reason}", file=sys.stderr)
    if not found.workloads:
        raise NotEnoughDataError(
            f"{', '.join(measured.paths)}: expected workloads to train on, found none "
            "that can be used: see `costmodel audit`"
        )
    return found.workloads, found.skipped


def audit_text(audit: Audit, skipped: Sequence[str]) -> str:
    """What became of every file, run and row, one line each."""
    lines = [
        f"{row['stage']:<6} {row['outcome']:<10} {row['rows']:>6} "
        f"{row['file']} {row['run_id'][:8]} {row['reason']} {row['detail']}".rstrip()
        for row in audit.rows()
    ]
    return "\n".join([*lines, *(f"left out: {one}" for one in skipped)]) + "\n"


def git_commit() -> str:
    """Commit of this checkout, for the card; "unknown" outside of one."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip() or "unknown"
