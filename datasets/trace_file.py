"""Full-precision times and later re-timings from a log's `.trace.jsonl`.

The trace has its own run ids (random), so it joins a csv by what both spell: config id
and time. A csv time has six decimals of a millisecond; the trace has the float.
"""

from __future__ import annotations

import json
from collections import Counter
from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any

from costmodel.types import Config

_EVENTS = ('"trial"', '"rebenchmark"', '"run_start"', '"selected"')


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One trial or rebenchmark.

    Attributes:
        line: Line in the file, from 1.
        config_id: As Helion spells it.
        config: The config, empty if the event has none.
        status: Helion's word.
        perf_ms: Full precision; None for failures and for aggregates' ratios.
        generation: Helion's generation counter.
        elapsed_s: Seconds since the trace run began.
    """

    line: int
    config_id: str
    config: Config
    status: str
    perf_ms: float | None
    generation: int
    elapsed_s: float | None


@dataclass(slots=True)
class TraceRun:
    """Events of one search, under one of the trace's own run ids."""

    started_at_s: float | None = None
    trials: list[TraceEvent] = field(default_factory=list)
    rebenchmarks: list[TraceEvent] = field(default_factory=list)

    @property
    def keys(self) -> Counter[tuple[str, str]]:
        """Config id and csv spelling of the time of every trial."""
        return Counter((one.config_id, perf_key(one.perf_ms)) for one in self.trials)


def perf_key(perf_ms: float | None) -> str:
    """A time as the csv spells it."""
    return "" if perf_ms is None else f"{perf_ms:.6f}"


def read_trace_file(path: Path) -> tuple[list[TraceRun], int]:
    """Read every event that can be read.

    Returns:
        The trace's runs in file order, and how many lines could not be read.
    """
    runs: dict[str, TraceRun] = {}
    n_bad = 0
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, raw in enumerate(text.split("\n"), start=1):
        # Half of a trace is events that carry no label; do not parse those.
        if not any(event in raw for event in _EVENTS):
            n_bad += bool(raw.strip()) and not raw.rstrip().endswith("}")
            continue
        try:
            body = json.loads(raw)
            _add_event(runs, body, number)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            n_bad += 1
    return list(runs.values()), n_bad


def assign_trace_runs(
    traces: Iterable[TraceRun],
    csv_keys: Mapping[str, Counter[tuple[str, str]]],
) -> dict[str, list[TraceRun]]:
    """Give each trace run to the csv run with which it shares most trials.

    Args:
        traces: Runs of the trace file.
        csv_keys: Per csv run id, its terminal rows by config id and time as spelled.
    """
    assigned: dict[str, list[TraceRun]] = defaultdict(list)
    for trace in traces:
        keys = trace.keys
        shared = {run_id: (keys & known).total() for run_id, known in csv_keys.items()}
        best = max(shared, key=lambda run_id: shared[run_id], default=None)
        if best is not None and shared[best] > 0:
            assigned[best].append(trace)
    return dict(assigned)


def _add_event(runs: dict[str, TraceRun], body: Mapping[str, Any], line: int) -> None:
    run = runs.setdefault(str(body["run_id"]), TraceRun())
    event = body["event"]
    if event == "run_start":
        run.started_at_s = float(body["timestamp_s"])
    if event not in ("trial", "rebenchmark"):
        return
    if body.get("objective_unit", "ms") != "ms":
        return
    perf = body.get("perf_ms")
    elapsed = body.get("elapsed_s")
    config = body.get("config")
    found = TraceEvent(
        line=line,
        config_id=str(body["config_id"]),
        config=config if isinstance(config, dict) else {},
        status=str(body["status"]),
        perf_ms=None if perf is None else float(perf),
        generation=int(body.get("generation") or 0),
        elapsed_s=None if elapsed is None else float(elapsed),
    )
    (run.trials if event == "trial" else run.rebenchmarks).append(found)
