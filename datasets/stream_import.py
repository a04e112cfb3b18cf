"""Logs into a corpus in parts, a few logs in memory at a time; stop it at any time.

A log is noted as done when its runs are stored. A second start reads only what is new.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import replace

from costmodel.datasets.audit import Audit
from costmodel.datasets.audit_file import add_to_audit
from costmodel.datasets.clean import CleanRun
from costmodel.datasets.store import AppendReport
from costmodel.datasets.stream_logs import OneLog
from costmodel.datasets.stream_store import PART_ATTEMPTS
from costmodel.datasets.stream_store import PartedCorpus
from costmodel.datasets.stream_store import total_of


@dataclass(frozen=True, slots=True)
class StreamReport:
    """What came of one import.

    Attributes:
        appended: Of all parts written.
        audit: What became of every row that was read.
        n_logs: Logs read.
        n_logs_known: Logs that an earlier import had read, and that are as they were.
    """

    appended: AppendReport
    audit: Audit
    n_logs: int
    n_logs_known: int


def stream_import(
    logs: Iterable[OneLog],
    corpus: PartedCorpus,
    part_attempts: int = PART_ATTEMPTS,
    say: Callable[[str], None] = lambda line: None,
) -> StreamReport:
    """Store every log; memory is bounded by one part and the largest log.

    Args:
        logs: From `stream_logs`, with `corpus.knows_log` to leave out known ones.
        corpus: Where to.
        part_attempts: Measurements after which a part is written.
        say: Told of every part.

    Raises:
        StoreError: A part could not be written; those before it are.
    """
    audit = Audit()
    total = AppendReport(0, 0, 0, 0, 0, (), "")
    n_logs = n_known = 0
    waiting: list[OneLog] = []

    def flush() -> None:
        nonlocal total
        runs = [run for log in waiting for run in log.clean_runs]
        report = corpus.append(runs)
        found = Audit(finding for log in waiting for finding in log.audit)
        found.extend(report.findings)
        if report.n_added or report.n_updated:
            add_to_audit(corpus.directory, found)
        corpus.remember_logs(log.digest for log in waiting if log.digest)
        audit.extend(found)
        total = total_of(total, report)
        waiting.clear()
        say(
            f"{n_logs} logs read, {total.n_added} runs with {total.n_attempts} "
            "measurements stored"
        )

    for log in logs:
        if log.is_known:
            n_known += 1
            continue
        n_logs += 1
        waiting.append(log)
        if _n_measurements(waiting) >= part_attempts:
            flush()
    if waiting:
        flush()
    return StreamReport(replace(total, digest=corpus.digest), audit, n_logs, n_known)


def _n_measurements(logs: Iterable[OneLog]) -> int:
    runs: Iterable[CleanRun] = (run for log in logs for run in log.clean_runs)
    return sum(len(run.measurements) for run in runs)
