"""Join the rows of one run id with its workloads, its trace and its side facts."""

from __future__ import annotations

from collections import Counter
from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field

from costmodel.datasets.acf_names import AcfNames
from costmodel.datasets.audit import Finding
from costmodel.datasets.audit import Outcome
from costmodel.datasets.audit import Stage
from costmodel.datasets.csv_layouts import CsvRow
from costmodel.datasets.csv_layouts import is_time_ms
from costmodel.datasets.csv_layouts import parse_config_text
from costmodel.datasets.meta_file import MetaLine
from costmodel.datasets.programs import Program
from costmodel.datasets.programs import find_programs
from costmodel.datasets.record import Attempt
from costmodel.datasets.record import LostResult
from costmodel.datasets.record import Phase
from costmodel.datasets.record import RecordedRun
from costmodel.datasets.record import Status
from costmodel.datasets.sessions import STARTED
from costmodel.datasets.sessions import attempts_of_session
from costmodel.datasets.sessions import split_sessions
from costmodel.datasets.side_file import SideFacts
from costmodel.datasets.side_file import merge_side_facts
from costmodel.datasets.trace_file import TraceRun
from costmodel.datasets.trace_file import assign_trace_runs
from costmodel.datasets.trace_file import perf_key
from costmodel.features.canonical import config_id
from costmodel.types import Config
from costmodel.types import WorkloadRecord

# A side object and a trace run of one session begin within seconds of each other.
_SAME_START_S = 120.0

NO_META = (
    "no meta line describes this run: record with HELION_AUTOTUNE_LOG_DETAILS=1, and "
    "keep the .meta.jsonl beside the .csv"
)


@dataclass(slots=True)
class RunParts:
    """Everything a log says under one run id.

    `cut_config_id` is the config whose result the file's last, cut line was; see
    `csv_layouts.BadRow`. `written_at_s` is when the csv was written last, in Unix
    seconds: what a path named then, a later file does not tell.
    """

    rows: list[CsvRow] = field(default_factory=list)
    metas: list[MetaLine] = field(default_factory=list)
    traces: list[TraceRun] = field(default_factory=list)
    sides: list[SideFacts] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    cut_config_id: str = ""
    written_at_s: float | None = None


def csv_keys(rows: Iterable[CsvRow]) -> Counter[tuple[str, str]]:
    """Result rows by config id and time as spelled, to recognise a trace run."""
    return Counter(
        (row.config_id, row.perf_text) for row in rows if row.status != STARTED
    )


def share_traces(parts: Mapping[str, RunParts], traces: Iterable[TraceRun]) -> None:
    """Give each trace run to the run id whose rows it repeats."""
    keys = {run_id: csv_keys(one.rows) for run_id, one in parts.items()}
    for run_id, found in assign_trace_runs(traces, keys).items():
        parts[run_id].traces = found


def build_runs(
    log: str, run_id: str, parts: RunParts, file: str
) -> tuple[list[RecordedRun], list[Finding]]:
    """Turn everything under one run id into runs, one per workload.

    Args:
        log: Name of the log.
        run_id: The id.
        parts: Its rows, metas, traces and side facts.
        file: Name of the csv, for the findings.

    Returns:
        One run, or several where programs share the id, each with its default still
        unknown; and what became of every row.
    """
    findings: list[Finding] = []
    sessions, unordered = split_sessions(parts.rows)
    if unordered:
        findings.append(
            _finding(file, run_id, Outcome.NOTED, "rows were out of order", line=None)
        )
    programs = find_programs(parts.metas, sessions)
    if len(programs) > 1:
        detail = f"{len(programs)} IR graphs; scalars or strides differ"
        findings.append(
            _finding(file, run_id, Outcome.NOTED, "run id collision: split", detail)
        )
    precise = _precise_times(parts.traces)
    runs = []
    for ordinal, program in enumerate(programs):
        reader = _ConfigReader(program.metas, parts)
        attempts: list[Attempt] = []
        lost: list[LostResult] = []
        for index in program.sessions:
            found, notes = attempts_of_session(
                sessions[index],
                index,
                len(attempts),
                reader.config_of,
                reader.id_of,
                precise,
                parts.cut_config_id if index == len(sessions) - 1 else "",
            )
            attempts += found
            dropped = [
                row for outcome, _, row, _ in notes if outcome is Outcome.DROPPED
            ]
            lost += _lost(dropped, sessions[index], index, reader)
            findings += [
                _finding(file, run_id, outcome, reason, detail, 1, row.line)
                for outcome, reason, row, detail in notes
            ]
        traces = _of_program(parts.traces, program, len(sessions), len(programs))
        attempts += _rebenchmarks(traces, program.sessions, reader, len(attempts))
        sides = _sides_of(parts, program, len(sessions), len(programs))
        run = RecordedRun(
            log=log,
            run_id=run_id,
            run_ordinal=ordinal,
            record=_record(program.metas),
            attempts=tuple(attempts),
            side=merge_side_facts(sides),
            problem=program.problem or (None if program.metas else NO_META),
            started_at_s=_start(traces, sides),
            sources=parts.sources,
            lost=tuple(lost),
        )
        runs.append(run)
        outcome = Outcome.SET_ASIDE if run.problem else Outcome.KEPT
        kept = run.n_attempts
        reason = run.problem or "attempts"
        line = parts.rows[0].line if run.problem and parts.rows else None
        findings.append(_finding(file, run_id, outcome, reason, "", kept, line))
        n_again = len(attempts) - kept
        if n_again:
            findings.append(
                _finding(
                    file, run_id, Outcome.NOTED, f"{n_again} re-timings from the trace"
                )
            )
    return runs, findings


def _record(metas: Sequence[MetaLine]) -> WorkloadRecord | None:
    """The latest description of a workload, one with an IR graph if there is any."""
    described = [meta.record for meta in metas]
    with_graph = [record for record in described if record.ir_graph]
    return next(iter(reversed(with_graph or described)), None)


def _lost(
    dropped: Iterable[CsvRow],
    session: Sequence[CsvRow],
    index: int,
    reader: _ConfigReader,
) -> Iterator[LostResult]:
    """The configs behind dropped rows, as far as they are known."""
    began = {
        row.config_id or row.config_text: row.timestamp_s
        for row in reversed(session)
        if row.status == STARTED
    }
    for row in dropped:
        config = reader.config_of(row)
        if config is not None:
            started_at_s = began.get(row.config_id or row.config_text)
            yield LostResult(
                reader.id_of(row, config), config, index, started_at_s, row.line
            )


class _ConfigReader:
    """Looks a row's config up: meta line first, then its own text, then the trace.

    Control files for ptxas are named by their content from here on.
    """

    def __init__(self, metas: Iterable[MetaLine], parts: RunParts) -> None:
        as_of_s = _start(parts.traces, parts.sides) or parts.written_at_s
        self._names = AcfNames(parts.sides, as_of_s)
        self._known: dict[str, Config] = {}
        for trace in parts.traces:
            for event in (*trace.trials, *trace.rebenchmarks):
                if event.config:
                    self._known.setdefault(event.config_id, event.config)
        for meta in metas:
            self._known.update(meta.configs)

    def config_of(self, row: CsvRow) -> Config | None:
        known = self._known.get(row.config_id)
        if known is None and row.config_text is not None:
            known = parse_config_text(row.config_text)
        return None if known is None else self._names.named(row.config_id, known)

    def id_of(self, row: CsvRow, config: Config) -> str:
        return row.config_id or config_id(config)

    def known(self, config_id: str, config: Config | None = None) -> Config | None:
        config = config or self._known.get(config_id)
        return None if config is None else self._names.named(config_id, config)


def _precise_times(traces: Iterable[TraceRun]) -> dict[tuple[str, str], list[float]]:
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for trace in traces:
        for one in trace.trials:
            if one.perf_ms is not None:
                times[one.config_id, perf_key(one.perf_ms)].append(one.perf_ms)
    return times


def _of_program(
    traces: Sequence[TraceRun], program: Program, n_sessions: int, n_programs: int
) -> list[TraceRun]:
    """Trace runs of a program: all if it is the only one, else those of its sessions
    if there is one per session, else none."""
    if n_programs == 1:
        return list(traces)
    if len(traces) != n_sessions:
        return []
    return [traces[index] for index in program.sessions]


def _rebenchmarks(
    traces: Sequence[TraceRun],
    sessions: Sequence[int],
    reader: _ConfigReader,
    first_ordinal: int,
) -> list[Attempt]:
    attempts: list[Attempt] = []
    for position, trace in enumerate(traces):
        session = sessions[min(position, len(sessions) - 1)] if sessions else 0
        for event in trace.rebenchmarks:
            try:
                status = Status(event.status)
            except ValueError:
                continue
            config = reader.known(event.config_id, event.config)
            latency_us = None if event.perf_ms is None else event.perf_ms * 1e3
            if config is None or (
                status is Status.OK and not is_time_ms(event.perf_ms)
            ):
                continue
            attempts.append(
                Attempt(
                    config_id=event.config_id,
                    config=config,
                    status=status,
                    latency_us=latency_us if status is Status.OK else None,
                    phase=Phase.REBENCHMARK,
                    generation=event.generation,
                    session=session,
                    ordinal=first_ordinal + len(attempts),
                    timestamp_s=event.elapsed_s,
                    line=event.line,
                )
            )
    return attempts


def _sides_of(
    parts: RunParts, program: Program, n_sessions: int, n_programs: int
) -> list[SideFacts]:
    """Side facts of a program's sessions, by start time where the trace tells it, else
    by order."""
    if n_programs == 1:
        return parts.sides
    ordered = sorted(parts.sides, key=lambda one: one.started_at_s or 0.0)
    starts = [trace.started_at_s for trace in parts.traces]
    if len(starts) == n_sessions:
        mine = [starts[index] for index in program.sessions]
        return [
            side
            for side in ordered
            if side.started_at_s is not None
            and any(
                start is not None and abs(start - side.started_at_s) < _SAME_START_S
                for start in mine
            )
        ]
    if len(ordered) == n_sessions:
        return [ordered[index] for index in program.sessions]
    return []


def _start(traces: Sequence[TraceRun], sides: Sequence[SideFacts]) -> float | None:
    starts = [side.started_at_s for side in sides]
    starts += [trace.started_at_s for trace in traces]
    return min((one for one in starts if one is not None), default=None)


def _finding(
    file: str,
    run_id: str,
    outcome: Outcome,
    reason: str,
    detail: str = "",
    rows: int = 0,
    line: int | None = None,
) -> Finding:
    return Finding(Stage.READ, outcome, reason, rows, file, line, run_id, detail)
