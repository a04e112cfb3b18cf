"""Read logs one at a time: memory is that of the largest log, not of all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from costmodel.datasets.audit import Audit
from costmodel.datasets.audit import Finding
from costmodel.datasets.audit import Outcome
from costmodel.datasets.audit import Stage
from costmodel.datasets.clean import Classify
from costmodel.datasets.clean import CleanRun
from costmodel.datasets.clean import clean
from costmodel.datasets.default import Baseline
from costmodel.datasets.default import Recompute
from costmodel.datasets.default import resolve_default
from costmodel.datasets.discover import LogFiles
from costmodel.datasets.discover import find_logs
from costmodel.datasets.helion_log import LogIdentity
from costmodel.datasets.helion_log import read_log
from costmodel.errors import CorruptRecordError


@dataclass(frozen=True, slots=True)
class OneLog:
    """One log, read and cleaned.

    Attributes:
        name: Its base name.
        digest: Of the bytes of its files: equal for a log that is as it was.
        clean_runs: Its runs, those with a `problem` included; empty where `is_known`.
        audit: What became of its rows.
        is_known: Whether it was left unread, because the caller knows its digest.
    """

    name: str
    digest: str
    clean_runs: tuple[CleanRun, ...]
    audit: Audit
    is_known: bool = False


def stream_logs(
    paths: Iterable[Path | str],
    *,
    classify: Classify | None = None,
    identity: LogIdentity | None = None,
    baseline: Baseline = "auto",
    recompute: Recompute | None = None,
    is_known: Callable[[str], bool] = lambda digest: False,
) -> Iterator[OneLog]:
    """Every log under the given paths, one after the other, in sorted order.

    Args:
        paths: See `helion_log.read_logs`.
        classify: See `clean.clean`.
        identity: See `helion_log.read_logs`.
        baseline: See `default.resolve_default`.
        recompute: See `default.resolve_default`.
        is_known: Whether a log of this digest need not be read again.

    Raises:
        CorruptRecordError: No log was found.
    """
    logs, missing = find_logs(paths)
    if not logs:
        raise CorruptRecordError(
            "; ".join(missing) or "expected at least one path to a Helion log"
        )
    for message in missing:
        path, _, reason = message.partition(": ")
        yield _unreadable(Path(path).name, reason)
    for files in logs:
        try:
            digest = _digest_of(files)
            if is_known(digest):
                yield OneLog(files.name, digest, (), Audit(), is_known=True)
                continue
            runs, findings = read_log(files, identity)
        except OSError as error:
            yield _unreadable(files.name, f"cannot be read: {error.strerror}")
            continue
        clean_runs = tuple(
            clean(resolve_default(run, baseline, recompute), classify) for run in runs
        )
        audit = Audit(findings)
        for one in clean_runs:
            audit.extend(one.findings)
        yield OneLog(files.name, digest, clean_runs, audit)


def _unreadable(name: str, reason: str) -> OneLog:
    finding = Finding(Stage.READ, Outcome.PROBLEM, reason, file=name)
    return OneLog(name, "", (), Audit([finding]))


def _digest_of(files: LogFiles) -> str:
    """64 hex digits over name and content of a log's files."""
    found = hashlib.sha256(files.name.encode())
    for path in (
        files.csv,
        files.meta,
        files.old_meta,
        files.trace,
        files.side,
        files.sources,
    ):
        if path is None:
            found.update(b"\0none")
            continue
        with path.open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()
