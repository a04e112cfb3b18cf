"""From whatever a user points at, logs or a stored corpus, to workloads."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from costmodel.datasets.audit import Audit
from costmodel.datasets.clean import Classify
from costmodel.datasets.clean import CleanRun
from costmodel.datasets.clean import clean
from costmodel.datasets.default import Baseline
from costmodel.datasets.default import Recompute
from costmodel.datasets.helion_log import LogIdentity
from costmodel.datasets.helion_log import read_logs
from costmodel.datasets.record import RecordedRun
from costmodel.datasets.twins import KeyOf

KeyMaker = Callable[[RecordedRun], KeyOf | None]
"""Makes a run's `twins.KeyOf`; None where its kernel cannot be read."""


@dataclass(frozen=True, slots=True)
class LoadedLogs:
    """Logs, read and cleaned.

    Attributes:
        clean_runs: Every run, those with a `problem` included.
        audit: What became of every row, in reading and in cleaning.
    """

    clean_runs: tuple[CleanRun, ...]
    audit: Audit

    @property
    def usable(self) -> tuple[CleanRun, ...]:
        """Runs whose timings are those of one workload."""
        return tuple(one for one in self.clean_runs if one.run.problem is None)


def load_logs(
    paths: Iterable[Path | str],
    *,
    classify: Classify | None = None,
    make_key: KeyMaker | None = None,
    identity: LogIdentity | None = None,
    baseline: Baseline = "auto",
    recompute: Recompute | None = None,
) -> LoadedLogs:
    """Read and clean every run under the given paths.

    Args:
        paths: See `helion_log.read_logs`.
        classify: See `clean.clean`.
        make_key: Merges configs further, run by run.
        identity: See `helion_log.read_logs`.
        baseline: See `default.resolve_default`.
        recompute: See `default.resolve_default`.

    Raises:
        CorruptRecordError: Not one run was found.
    """
    runs, audit = read_logs(
        paths, identity=identity, baseline=baseline, recompute=recompute
    )
    clean_runs = tuple(
        clean(run, classify, make_key(run) if make_key is not None else None)
        for run in runs
    )
    for one in clean_runs:
        audit.extend(one.findings)
    return LoadedLogs(clean_runs, audit)
