"""Commands about more than fits in memory: synth, features, import in parts."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path

from costmodel.cli_data import class_of
from costmodel.cli_data import identity_of
from costmodel.cli_data import show_audit
from costmodel.datasets import store
from costmodel.datasets import synth_log
from costmodel.datasets.clean import clean
from costmodel.datasets.locations import folder_of
from costmodel.datasets.locations import inputs
from costmodel.datasets.locations import is_remote
from costmodel.datasets.store import Corpus
from costmodel.datasets.store import is_corpus
from costmodel.datasets.stream_import import stream_import
from costmodel.datasets.stream_logs import stream_logs
from costmodel.datasets.stream_store import PART_ATTEMPTS
from costmodel.datasets.stream_store import PartedCorpus
from costmodel.datasets.stream_store import is_parted
from costmodel.datasets.synth import Generator
from costmodel.datasets.synth import SyntheticRun
from costmodel.datasets.workload_data import WorkloadData
from costmodel.errors import CorruptRecordError

# Of more logs the audit is hundreds of lines; it is kept in the corpus's audit.json.
_MAX_SHOWN_LOGS = 50
# Runs between two lines of progress: a few seconds of making them.
_PROGRESS_STEP = 20


def say(line: str) -> None:
    """One line of progress."""
    print(line, file=sys.stderr, flush=True)


def synth(arguments: argparse.Namespace) -> int:
    """Write logs, or a corpus in parts, of runs that nobody measured.

    Raises:
        KeyboardInterrupt: As Python's own, with the words for what is kept.
    """
    source = arguments.source or _bundled()
    stored = _Stored()
    try:
        _synth(arguments, source, stored)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"nothing is sent to {arguments.out}"
            if is_remote(arguments.out)
            else f"{stored.n_runs} finished runs are in {arguments.out}, and the same "
            "command makes the rest"
        ) from None
    facts = {"out": arguments.out, **asdict(stored)}
    if arguments.json:
        print(json.dumps(facts, indent=2))
    else:
        print(
            f"{arguments.out}: {stored.n_runs} synthetic runs, "
            f"{stored.n_attempts} attempts"
        )
    return 0


@dataclass(slots=True)
class _Stored:
    """What lies in the folder, also when the command is stopped."""

    n_runs: int = 0
    n_attempts: int = 0


def _synth(arguments: argparse.Namespace, source: str, stored: _Stored) -> None:
    with inputs([source]) as (path,):
        generator = Generator(Corpus.load(path), arguments.seed, arguments.per_run)
    with folder_of(arguments.out) as folder:
        runs = _counted(generator.runs(arguments.attempts))
        if arguments.store:
            corpus = PartedCorpus(Path(folder))
            try:
                _store(runs, corpus)
            finally:
                stored.n_runs, stored.n_attempts = corpus.n_runs, corpus.n_attempts
            return
        Path(folder).mkdir(parents=True, exist_ok=True)
        for run in runs:
            if not synth_log.is_written(run.index, Path(folder)):
                synth_log.write_log(run, Path(folder))
            stored.n_runs += 1
            stored.n_attempts += len(run)


def _bundled() -> str:
    """The recorded corpus that lies beside the package in a checkout.

    Raises:
        CorruptRecordError: It does not: a wheel carries no corpora.
    """
    folder = Path(store.__file__).resolve().parent / "corpora" / "h200"
    if not is_corpus(folder):
        raise CorruptRecordError(
            f"expected the bundled corpus in {folder}, found none (wheels carry the "
            "model and not its data): name one with --from"
        )
    return str(folder)


def _store(runs: Iterator[SyntheticRun], corpus: PartedCorpus) -> None:
    """Append runs a part at a time; those that were made are kept, come what may."""
    waiting: list[SyntheticRun] = []
    try:
        for run in runs:
            waiting.append(run)
            if sum(map(len, waiting)) >= PART_ATTEMPTS:
                corpus.append(clean(synth_log.recorded(one)) for one in waiting)
                waiting = []
    finally:
        corpus.append(clean(synth_log.recorded(one)) for one in waiting)


def _counted(runs: Iterator[SyntheticRun]) -> Iterator[SyntheticRun]:
    n_attempts = 0
    for number, run in enumerate(runs, start=1):
        n_attempts += len(run)
        yield run
        if number % _PROGRESS_STEP == 0:
            say(f"{number} runs, {n_attempts} attempts")


def features(arguments: argparse.Namespace) -> int:
    """Write feature rows and labels of corpora or logs as Parquet shards."""
    # Nobody else needs the feature code's import time.
    from costmodel.training.shards import write_shards

    with inputs(arguments.data) as paths:
        report = write_shards(recorded(paths), arguments.out, arguments.shard_rows, say)
    for reason in report.skipped:
        print(f"costmodel: left out: {reason}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(asdict(report) | {"out": arguments.out}, indent=2))
        return 0
    print(
        f"{arguments.out}: {report.n_rows} rows of {report.n_workloads} workloads in "
        f"{report.n_shards} shards, {report.n_new_rows} rows new, "
        f"{len(report.skipped)} workloads left out, digest {report.digest[:12]}"
    )
    return 0


def recorded(paths: Sequence[str]) -> Iterator[WorkloadData]:
    """Workloads of corpora, parts or logs, with a graph, a few at a time.

    Raises:
        CorruptRecordError: A path leads to nothing that can be read.
    """
    for path in paths:
        folder = Path(path)
        if is_corpus(folder):
            yield from Corpus.load(folder).workloads()
        elif is_parted(folder):
            yield from PartedCorpus(folder).workloads()
        else:
            yield from _of_logs(path)


def _of_logs(path: str) -> Iterator[WorkloadData]:
    n_found = 0
    for log in stream_logs([path], classify=class_of):
        for problem in (*log.audit.problems(), *log.audit.unusable_runs()):
            print(f"costmodel: {problem.as_line()}", file=sys.stderr)
        for run in log.clean_runs:
            if run.run.problem is None:
                n_found += 1
                data = WorkloadData.from_clean_run(run)
                if data.has_graph:
                    yield data
    if not n_found:
        raise CorruptRecordError(
            f"{path}: expected logs with a run that can be used, found none: see "
            "`costmodel audit`"
        )


def import_in_parts(arguments: argparse.Namespace, paths: Sequence[str]) -> int:
    """Store logs as a corpus in parts, with memory of one part."""
    with folder_of(arguments.corpus, last=("runs.parquet",)) as folder:
        corpus = PartedCorpus(Path(folder))
        logs = stream_logs(
            paths,
            classify=class_of,
            identity=identity_of(arguments),
            is_known=corpus.knows_log,
        )
        report = stream_import(logs, corpus, arguments.part_attempts, say)
        n_runs, n_attempts = corpus.n_runs, corpus.n_attempts
    for problem in (*report.audit.problems(), *report.audit.unusable_runs()):
        print(f"costmodel: {problem.as_line()}", file=sys.stderr)
    if not n_runs:
        raise CorruptRecordError(
            f"{', '.join(arguments.logs)}: expected a run that can be used, found "
            "none, so nothing is written: see `costmodel audit`"
        )
    done = report.appended
    if arguments.json:
        body = asdict(done) | {"corpus": arguments.corpus, "n_runs": n_runs}
        body |= {"n_logs": report.n_logs, "n_logs_known": report.n_logs_known}
        body["findings"] = report.audit.rows()
        print(json.dumps(body, indent=2))
        return 0
    if report.n_logs <= _MAX_SHOWN_LOGS:
        show_audit(report.audit)
    print(
        f"{arguments.corpus}: {report.n_logs} logs read, {report.n_logs_known} known "
        f"already; {done.n_added} runs added, {done.n_updated} updated, {done.n_known} "
        f"known, {done.n_skipped} skipped; now {n_runs} runs with {n_attempts} "
        f"measurements, digest {done.digest[:12]}"
    )
    return 0
