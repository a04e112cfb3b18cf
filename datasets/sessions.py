"""From the rows of one run id to sessions, and from a session's rows to attempts.

Helion appends: tuning a workload twice gives one run id twice in one file, told apart
only by the clock starting again. Within a session every timed config has a `started`
row and then a row with its result; a config refused before it is timed has only the
latter, and one that killed the process only the former.
"""

from __future__ import annotations

from collections import Counter
from collections import defaultdict
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

from costmodel.datasets.audit import Outcome
from costmodel.datasets.csv_layouts import ANY_CONFIG
from costmodel.datasets.csv_layouts import CsvRow
from costmodel.datasets.csv_layouts import is_time_ms
from costmodel.datasets.record import Attempt
from costmodel.datasets.record import Status
from costmodel.types import Config

STARTED = "started"
_EARLY = "\0early"  # no config id

# Real appended logs restart their clock once per session of several configs, and a
# result follows its start. In rows that someone shuffled, the clock runs back and a
# result comes before its start about every other time.
_UNORDERED_SHARE = 0.25
_UNORDERED_MIN = 3

Note = tuple[Outcome, str, CsvRow, str]
"""What became of a row: outcome, reason, the row, detail."""


def split_sessions(rows: Sequence[CsvRow]) -> tuple[list[list[CsvRow]], bool]:
    """Cut the rows of one run id where its clock starts again.

    Returns:
        The sessions in file order, and whether the rows were out of order: then they
        are one session, put in order by their times.
    """
    # Results are stamped when a benchmark ended but may be written later; started rows
    # are stamped when written, so they alone tell the order, where there are any.
    has_started = any(row.status == STARTED for row in rows)
    sessions: list[list[CsvRow]] = [[]]
    clock_s = 0.0
    n_stamped = 0
    for row in rows:
        if row.timestamp_s is not None and (row.status == STARTED or not has_started):
            n_stamped += 1
            if row.timestamp_s < clock_s:
                sessions.append([])
            clock_s = row.timestamp_s
        sessions[-1].append(row)
    n_odd = max(len(sessions) - 1, _n_results_before_start(rows))
    if n_odd >= max(_UNORDERED_MIN, _UNORDERED_SHARE * n_stamped):
        return [sorted(rows, key=_by_time)], True
    return sessions, False


def _n_results_before_start(rows: Sequence[CsvRow]) -> int:
    """How many configs were started after a result of theirs that nothing started."""
    unpaired: Counter[str] = Counter()
    for row in rows:
        key = row.config_id or row.config_text or ""
        unpaired[key] += 1 if row.status == STARTED else -1
        if unpaired[key] == 0 and row.status == STARTED:
            unpaired[_EARLY] += 1
    return unpaired[_EARLY]


def attempts_of_session(
    rows: Sequence[CsvRow],
    session: int,
    first_ordinal: int,
    config_of: Callable[[CsvRow], Config | None],
    id_of: Callable[[CsvRow, Config], str],
    precise_ms: Mapping[tuple[str, str], list[float]],
    cut_config_id: str = "",
) -> tuple[list[Attempt], list[Note]]:
    """Pair started rows with their results and type what is left.

    Args:
        rows: One session in order.
        session: Its number.
        first_ordinal: Ordinal of its first attempt.
        config_of: The config of a row, or None where it is unknown.
        id_of: The config id of a row.
        precise_ms: Full-precision times by config id and time as spelled; each is used
            once, so this is consumed.
        cut_config_id: Config whose result is a cut line, so that it did end; see
            `csv_layouts.BadRow`.

    Returns:
        Attempts in order, and a note for every row that is not one.
    """
    attempts: list[Attempt] = []
    notes: list[Note] = []
    waiting: dict[str, list[CsvRow]] = defaultdict(list)
    last_started: CsvRow | None = None
    has_time = False
    for row in rows:
        key = row.config_id or row.config_text or ""
        if row.status == STARTED:
            waiting[key].append(row)
            last_started = row
            continue
        started = waiting[key].pop(0) if waiting[key] else None
        if started is not None:
            notes.append((Outcome.MERGED, "started row of a result", started, ""))
        judged = _judge(row, config_of(row))
        if not isinstance(judged, tuple):
            notes.append((Outcome.DROPPED, judged, row, ""))
            continue
        status, config = judged
        config_id = id_of(row, config)
        latency_us = None
        if status in (Status.OK, Status.DEDUPLICATED) and row.perf_ms is not None:
            exact = precise_ms.get((config_id, row.perf_text))
            latency_us = (exact.pop(0) if exact else row.perf_ms) * 1e3
        first = status is Status.OK and not has_time
        has_time = has_time or first
        attempts.append(
            Attempt(
                config_id=config_id,
                config=config,
                status=status,
                latency_us=latency_us,
                generation=row.generation,
                session=session,
                ordinal=first_ordinal + len(attempts),
                timestamp_s=row.timestamp_s,
                started_at_s=started.timestamp_s if started else None,
                compile_time_s=row.compile_time_s,
                is_first_reading=first,
                line=row.line,
            )
        )
    for row in (row for rest in waiting.values() for row in rest):
        known = config_of(row)
        if row is not last_started or cut_config_id in (row.config_id, ANY_CONFIG):
            notes.append((Outcome.DROPPED, "started, but its result is lost", row, ""))
        elif known is None:
            notes.append((Outcome.DROPPED, "config unknown: line cut off", row, ""))
        else:
            # The last thing the process began: it may have killed it.
            attempts.append(
                Attempt(
                    config_id=id_of(row, known),
                    config=known,
                    status=Status.CRASHED,
                    latency_us=None,
                    generation=row.generation,
                    session=session,
                    ordinal=first_ordinal + len(attempts),
                    started_at_s=row.timestamp_s,
                    line=row.line,
                )
            )
    return attempts, notes


def _judge(row: CsvRow, config: Config | None) -> tuple[Status, Config] | str:
    """Status and config of a result row, or why it is dropped."""
    try:
        status = Status(row.status)
    except ValueError:
        return f"unknown status {row.status[:40]!r}"
    if config is None:
        return "config unknown: line cut off, or not a Helion config"
    if status is Status.OK and row.perf_ms is None:
        return "ok without a time"
    has_perf = row.perf_ms is not None and status in (Status.OK, Status.DEDUPLICATED)
    if has_perf and not is_time_ms(row.perf_ms):
        return "impossible time (negative, zero, NaN or infinite)"
    return status, config


def _by_time(row: CsvRow) -> tuple[float, bool, int]:
    started_first = row.status != STARTED
    return (row.timestamp_s or 0.0, started_first, row.line)
