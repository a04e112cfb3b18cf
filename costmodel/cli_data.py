"""Commands about measurements: audit and import."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console

from costmodel.arguments import DTYPES
from costmodel.arguments import TensorArgument
from costmodel.arguments import parse_argument
from costmodel.datasets.audit import Audit
from costmodel.datasets.audit_file import add_to_audit
from costmodel.datasets.helion_log import LogIdentity
from costmodel.datasets.load import LoadedLogs
from costmodel.datasets.load import load_logs
from costmodel.datasets.locations import folder_of
from costmodel.datasets.locations import inputs
from costmodel.datasets.store import RUNS_FILE
from costmodel.datasets.store import Corpus
from costmodel.errors import ArgumentSpecError
from costmodel.errors import CorruptRecordError
from costmodel.errors import UnreadableKernelError
from costmodel.features.classify import classify
from costmodel.features.graph import KernelGraph
from costmodel.hardware import load_hardware
from costmodel.types import KernelClass
from costmodel.types import WorkloadRecord

# Wide enough for a reason and narrow enough for a laptop's terminal.
TABLE_WIDTH_COLUMNS = 120


def class_of(record: WorkloadRecord) -> str:
    """A workload's class by structure; its family where nobody labelled it."""
    try:
        return classify(KernelGraph.from_record(record)).value
    except UnreadableKernelError:
        return KernelClass.UNKNOWN.value


def load(paths: Sequence[str], **options: object) -> LoadedLogs:
    """Read and clean logs, with every unreadable file as one line on stderr.

    Raises:
        CorruptRecordError: Not one run could be used.
    """
    with inputs(paths) as local:
        loaded = load_logs(local, classify=class_of, **options)  # type: ignore[arg-type]
    for problem in loaded.audit.problems():
        print(f"costmodel: {problem.as_line()}", file=sys.stderr)
    return loaded


def report_unusable_runs(loaded: LoadedLogs) -> None:
    """One line on stderr for every run that was read and must not be used."""
    for finding in loaded.audit.unusable_runs():
        print(f"costmodel: {finding.as_line()}", file=sys.stderr)


def identity_of(arguments: argparse.Namespace) -> LogIdentity | None:
    """What the command line says a log without meta lines is of; None if nothing.

    Raises:
        ArgumentSpecError: Only a part of it is given.
    """
    given = (arguments.kernel, arguments.gpu, arguments.helion_version)
    if not any((*given, arguments.args)):
        return None
    if not all((*given, arguments.args)):
        raise ArgumentSpecError(
            "expected --kernel, --arg, --gpu and --helion-version together, found only "
            "some: a log without a meta file needs all four"
        )
    tensors = [
        one
        for one in map(parse_argument, arguments.args)
        if isinstance(one, TensorArgument)
    ]
    return LogIdentity(
        kernel_name=arguments.kernel,
        input_shapes=tuple(one.shape for one in tensors),
        dtypes=tuple(f"torch.{DTYPES[one.dtype]}" for one in tensors),
        hardware=load_hardware(arguments.gpu).name,
        helion_version=arguments.helion_version,
    )


def audit(arguments: argparse.Namespace) -> int:
    """Say what became of every row of the logs; 1 if not one run can be used."""
    loaded = load(arguments.logs, identity=identity_of(arguments))
    report_unusable_runs(loaded)
    if arguments.json:
        body = {"totals": loaded.audit.totals(), "findings": loaded.audit.rows()}
        print(json.dumps(body, indent=2))
    else:
        show_audit(loaded.audit)
    return 0 if loaded.usable else 1


def show_audit(found: Audit) -> None:
    """The audit as a table, and its totals in one line."""
    console = Console(width=TABLE_WIDTH_COLUMNS)
    console.print(found.table())
    totals = found.totals()
    words = ", ".join(
        f"{rows} {name.replace('_', ' ')}" for name, rows in totals.items()
    )
    console.print(f"csv rows: {words or 'none'}", highlight=False)


def import_logs(arguments: argparse.Namespace) -> int:
    """Clean logs and append them to a corpus."""
    if arguments.stream:
        from costmodel.cli_scale import import_in_parts

        with inputs(arguments.logs) as paths:
            return import_in_parts(arguments, paths)
    loaded = load(arguments.logs, identity=identity_of(arguments))
    if not loaded.usable:
        reasons = [one.as_line() for one in loaded.audit.unusable_runs()]
        raise CorruptRecordError(
            f"{'; '.join(reasons)}: there is no run that can be used, so nothing is "
            "written"
        )
    report_unusable_runs(loaded)
    with folder_of(arguments.corpus, last=(RUNS_FILE,)) as folder:
        corpus = Corpus.load(folder, create=True)
        report = corpus.append(loaded.clean_runs)
        loaded.audit.extend(report.findings)
        if report.n_added or report.n_updated:
            add_to_audit(folder, loaded.audit)
    if arguments.json:
        body = asdict(report) | {"corpus": arguments.corpus, "n_runs": corpus.n_runs}
        body["findings"] = loaded.audit.rows()
        print(json.dumps(body, indent=2))
        return 0
    show_audit(loaded.audit)
    print(
        f"{arguments.corpus}: {report.n_added} runs added, {report.n_updated} updated, "
        f"{report.n_known} known already, {report.n_skipped} skipped; now "
        f"{corpus.n_runs} runs with {corpus.n_attempts} measurements, "
        f"digest {report.digest[:12]}"
    )
    return 0
