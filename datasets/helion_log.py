"""Read Helion autotune logs: files in, typed runs and an audit out.

Nothing in a log can make this raise: what cannot be read is a finding with file and
line, what must not be used is a run with a `problem`. Only when not a single run is
found does the reader stop, since nobody can go on from there.
"""

from __future__ import annotations

import csv
import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from costmodel.datasets.audit import Audit
from costmodel.datasets.audit import Finding
from costmodel.datasets.audit import Outcome
from costmodel.datasets.audit import Stage
from costmodel.datasets.csv_layouts import BadRow
from costmodel.datasets.csv_layouts import CsvRow
from costmodel.datasets.csv_layouts import layout_of
from costmodel.datasets.csv_layouts import parse_rows
from costmodel.datasets.default import Baseline
from costmodel.datasets.default import Recompute
from costmodel.datasets.default import resolve_default
from costmodel.datasets.discover import LogFiles
from costmodel.datasets.discover import find_logs
from costmodel.datasets.meta_file import read_meta_file
from costmodel.datasets.record import RecordedRun
from costmodel.datasets.runs import NO_META
from costmodel.datasets.runs import RunParts
from costmodel.datasets.runs import build_runs
from costmodel.datasets.runs import share_traces
from costmodel.datasets.side_file import SideFacts
from costmodel.datasets.side_file import read_side_file
from costmodel.datasets.trace_file import read_trace_file
from costmodel.errors import CorruptRecordError
from costmodel.types import WorkloadRecord


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """What a log without meta lines is a log of, as told on the command line.

    Attributes:
        kernel_name: For people and for grouping.
        input_shapes: Shape of each tensor argument, in elements.
        dtypes: As torch prints them, such as "torch.bfloat16".
        hardware: Device name as the driver prints it.
        helion_version: Version that wrote the log.
    """

    kernel_name: str
    input_shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    hardware: str
    helion_version: str

    def record(self) -> WorkloadRecord:
        """The workload, without source and graph: it has timings but no features."""
        return WorkloadRecord(
            kernel_name=self.kernel_name,
            kernel_source="",
            input_shapes=self.input_shapes,
            dtypes=self.dtypes,
            hardware=self.hardware,
            settings={},
            ir_graph={},
        )


def read_logs(
    paths: Iterable[Path | str],
    *,
    identity: LogIdentity | None = None,
    baseline: Baseline = "auto",
    recompute: Recompute | None = None,
) -> tuple[list[RecordedRun], Audit]:
    """Read every run of every log under the given paths.

    Args:
        paths: Files, base paths or folders (searched with their sub-folders).
        identity: Workload of runs that no meta line describes.
        baseline: How to find each run's default; see `default.resolve_default`.
        recompute: Makes a default from a run's source; see `default.Recompute`.

    Returns:
        Runs sorted by log and by first appearance in it, those with a `problem`
        included; and what became of every row.

    Raises:
        CorruptRecordError: Not one run was found.
    """
    logs, missing = find_logs(paths)
    audit = Audit()
    for message in missing:
        path, _, reason = message.partition(": ")
        audit.add(Finding(Stage.READ, Outcome.PROBLEM, reason, file=Path(path).name))
    runs: list[RecordedRun] = []
    for files in logs:
        try:
            found, findings = read_log(files, identity)
        except OSError as error:
            audit.add(
                Finding(
                    Stage.READ,
                    Outcome.PROBLEM,
                    f"cannot be read: {error.strerror}",
                    file=files.name,
                )
            )
            continue
        audit.extend(findings)
        runs += [resolve_default(run, baseline, recompute) for run in found]
    if not runs:
        reasons = missing + [one.as_line() for one in audit.problems() if not missing]
        raise CorruptRecordError(
            "; ".join(reasons) or "expected at least one path to a Helion log"
        )
    return runs, audit


def read_log(
    files: LogFiles, identity: LogIdentity | None = None
) -> tuple[list[RecordedRun], list[Finding]]:
    """Read one log; defaults are not resolved yet.

    Raises:
        OSError: A file cannot be opened.
    """
    findings: list[Finding] = []
    parts: dict[str, RunParts] = defaultdict(RunParts)
    if files.csv is not None:
        label = files.label(files.csv)
        if not _read_csv(files.csv, label, parts, findings, identity):
            return [], findings
    in_csv = set(parts)
    for path in (files.meta, files.old_meta):
        if path is not None:
            metas, found = read_meta_file(path, files.label(path))
            findings += found
            for meta in metas:
                parts[meta.run_id].metas.append(meta)
    for run_id in [one for one in parts if one not in in_csv]:
        _report_missing_csv(files, parts.pop(run_id), run_id, findings)
    if not parts:
        return [], findings
    if files.trace is not None:
        traces, n_bad = read_trace_file(files.trace)
        share_traces(parts, traces)
        if n_bad:
            findings.append(
                Finding(
                    Stage.READ,
                    Outcome.NOTED,
                    f"{n_bad} trace lines cannot be read",
                    file=files.label(files.trace),
                )
            )
    if files.side is not None:
        _read_side(files.side, files.label(files.side), parts, findings)
    if files.sources is not None:
        _read_sources(files.sources, parts)
    csv_name = files.label(files.csv) if files.csv else files.name
    runs: list[RecordedRun] = []
    for run_id, one in parts.items():
        built, found = build_runs(files.name, run_id, one, csv_name)
        findings += found
        runs += built
    if identity is not None:
        runs = [_identified(run, identity) for run in runs]
        findings = [_told(finding) for finding in findings]
    return runs, findings


def _read_csv(
    path: Path,
    label: str,
    parts: dict[str, RunParts],
    findings: list[Finding],
    identity: LogIdentity | None,
) -> bool:
    """Sort the csv's rows by run id; False if the file is not a usable log."""
    text = path.read_text(encoding="utf-8", errors="replace")
    first = next((line for line in text.split("\n") if line.strip()), "").rstrip("\r")
    layout = layout_of(first)
    if layout is None:
        reason = "expected a Helion autotune csv, found " + (
            f"another header ({first[:60]!r})" if first else "an empty file"
        )
        findings.append(
            Finding(Stage.READ, Outcome.PROBLEM, reason, file=label, line=1)
        )
        return False
    samples: set[tuple[str, str, bool]] = set()
    cut: BadRow | None = None
    n_rows = 0
    for row in parse_rows(text):
        if isinstance(row, BadRow):
            cut = row
            _drop(findings, label, row.line, row.reason, detail=row.detail)
            continue
        n_rows += 1
        cut = None
        if row.layout == "config_index" and identity is None:
            _drop(findings, label, row.line, "no run id and no identity given")
            continue
        if row.sample_id and _seen_before(row, samples):
            _drop(findings, label, row.line, "sample id seen before", Outcome.MERGED)
            continue
        parts[row.run_id].rows.append(row)
    if n_rows and not parts:
        findings.append(
            Finding(
                Stage.READ,
                Outcome.PROBLEM,
                "this layout (Helion 1.1 and older) names no kernel: give kernel, "
                "shapes, dtypes, GPU and Helion version on the command line",
                file=label,
                line=1,
            )
        )
        return False
    if not n_rows:
        findings.append(
            Finding(Stage.READ, Outcome.PROBLEM, "a header and no rows", file=label)
        )
        return False
    written_at_s = path.stat().st_mtime
    for one in parts.values():
        one.written_at_s = written_at_s
        if cut is not None:
            one.cut_config_id = cut.ended_config_id
    return True


def _seen_before(row: CsvRow, samples: set[tuple[str, str, bool]]) -> bool:
    key = (row.run_id, row.sample_id, row.status == "started")
    if key in samples:
        return True
    samples.add(key)
    return False


def _drop(
    findings: list[Finding],
    file: str,
    line: int,
    reason: str,
    outcome: Outcome = Outcome.DROPPED,
    detail: str = "",
) -> None:
    findings.append(Finding(Stage.READ, outcome, reason, 1, file, line, detail=detail))


def _report_missing_csv(
    files: LogFiles, parts: RunParts, run_id: str, findings: list[Finding]
) -> None:
    path = files.meta or files.old_meta
    findings.append(
        Finding(
            Stage.READ,
            Outcome.PROBLEM,
            "a workload without attempts: no csv beside it"
            if files.csv is None
            else "a workload without attempts in the csv",
            file=files.label(path) if path else files.name,
            line=parts.metas[0].line,
            run_id=run_id,
        )
    )


def _read_side(
    path: Path, label: str, parts: dict[str, RunParts], findings: list[Finding]
) -> None:
    facts, refused = read_side_file(path)
    for message in refused:
        where, _, reason = message.partition(": ")
        line = where.rpartition(":")[2]
        findings.append(
            Finding(
                Stage.READ,
                Outcome.PROBLEM,
                reason,
                file=label,
                line=int(line) if line.isdigit() else None,
            )
        )
    for one in facts:
        if one.run_id in parts:
            parts[one.run_id].sides.append(one)
            continue
        findings.append(
            Finding(
                Stage.READ,
                Outcome.NOTED,
                "side facts of a run that the csv does not hold",
                file=label,
                run_id=one.run_id,
            )
        )


def _read_sources(path: Path, parts: dict[str, RunParts]) -> None:
    text = path.read_text(encoding="utf-8", errors="replace").replace("\0", "")
    for row in csv.DictReader(text.splitlines()):
        run_id, config, digest = (
            row.get(key) for key in ("run_id", "config_id", "source_hash")
        )
        if run_id in parts and config and digest:
            parts[run_id].sources[config] = digest


def _told(finding: Finding) -> Finding:
    """A run set aside only because nothing described it is kept after all."""
    if finding.reason != NO_META:
        return finding
    reason = "attempts, of the workload told on the command line"
    return dataclasses.replace(finding, outcome=Outcome.KEPT, reason=reason)


def _identified(run: RecordedRun, identity: LogIdentity) -> RecordedRun:
    if run.record is not None:
        return run
    side = run.side or SideFacts(
        run_id=run.run_id, helion_version=identity.helion_version
    )
    return dataclasses.replace(run, record=identity.record(), side=side, problem=None)
