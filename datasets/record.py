"""What a log holds, typed: attempts, and the runs they belong to.

A *run* is all attempts on one workload in one log, over every session of tuning it
(Helion gives the sessions of one workload one run id). Failures are attempts too. A
run that must not be learned from, such as an aggregate over several shapes, is still
a run, with a `problem` in words: nothing a log holds disappears silently.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field

from costmodel.datasets.side_file import SideFacts
from costmodel.types import Config
from costmodel.types import WorkloadRecord


class Status(enum.StrEnum):
    """How an attempt ended, in Helion's words plus one of ours."""

    OK = "ok"
    ERROR = "error"
    """Did not compile, launch or agree; Helion's word for all of these on Triton."""
    TIMEOUT = "timeout"
    """Took longer than the limit to compile or run: a bound, not a time."""
    ACCURACY_ERROR = "accuracy_error"
    SOURCE_REJECTED = "source_rejected"
    CRASHED = "crashed"
    """Ours: started and never ended, so it may have taken the process with it."""
    DEDUPLICATED = "deduplicated"
    """Its generated code equals an earlier attempt's, whose time it repeats."""
    PEER_COMPILATION_FAIL = "peer_compilation_fail"
    """Another rank failed to compile; nothing is known of this config."""
    FILTERED = "filtered"
    """Never tried: the user's filter or the backend refused it."""

    @property
    def is_failure(self) -> bool:
        """Whether the config itself is to blame, so that it is a negative example."""
        return self in _FAILURES

    @property
    def says_nothing(self) -> bool:
        """Whether neither a time nor a failure can be concluded from it."""
        return self in (Status.PEER_COMPILATION_FAIL, Status.FILTERED)


_FAILURES = frozenset(
    {
        Status.ERROR,
        Status.TIMEOUT,
        Status.ACCURACY_ERROR,
        Status.SOURCE_REJECTED,
        Status.CRASHED,
    }
)


class Phase(enum.StrEnum):
    """Which part of a search a reading comes from."""

    TRIAL = "trial"
    REBENCHMARK = "rebenchmark"
    """A later, longer timing of a survivor; only Helion's trace file has these."""


class LabelQuality(enum.StrEnum):
    """How far a latency can be trusted, best first."""

    INTERLEAVED = "interleaved"
    """Median of readings taken in rounds with the run's other leaders."""
    REBENCHMARKED = "rebenchmarked"
    """Median of Helion's own longer re-timings."""
    REPEATED = "repeated"
    """Median of several ordinary readings."""
    SINGLE = "single"
    SINGLE_FIRST = "single_first"
    """One reading, and the first of its session: reads slow on short kernels."""
    COPIED = "copied"
    """Taken over from another config with the same generated code."""
    NONE = "none"
    """No time at all: a failure."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of one config.

    Attributes:
        config_id: As the log spells it.
        config: As the log spells it, as JSON values.
        status: How it ended.
        latency_us: Median of the benchmark in microseconds where there is one.
        phase: Which part of the search it was.
        generation: Helion's generation counter.
        session: 0 for the first tuning of this workload in the log, then 1, ...
        ordinal: Position among the run's attempts, in the order they were logged.
        timestamp_s: Seconds since the session began, when the attempt ended.
        started_at_s: The same when its timing began; None if it was never timed.
        compile_time_s: Seconds to compile, as Helion measured it.
        is_first_reading: Whether it is the first time that its session measured.
        line: Line in the log's csv (or trace, for a rebenchmark), from 1.
    """

    config_id: str
    config: Config
    status: Status
    latency_us: float | None
    phase: Phase = Phase.TRIAL
    generation: int = 0
    session: int = 0
    ordinal: int = 0
    timestamp_s: float | None = None
    started_at_s: float | None = None
    compile_time_s: float | None = None
    is_first_reading: bool = False
    line: int = 0


@dataclass(frozen=True, slots=True)
class LostResult:
    """A try of a config whose result the log does not hold, or not in usable form.

    Attributes:
        config_id: As the log spells it.
        config: As the log spells it, as JSON values.
        session: As of an attempt.
        started_at_s: As of an attempt.
        line: Line in the log's csv, from 1.
    """

    config_id: str
    config: Config
    session: int
    started_at_s: float | None
    line: int


class DefaultSource(enum.StrEnum):
    """How a run's default config was found."""

    SIDE_FILE = "side_file"
    RECOMPUTED = "recomputed"
    FIRST_STARTED = "first_started"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """All attempts on one workload in one log.

    Attributes:
        log: Base name of the log, without folders and suffix.
        run_id: As the log spells it; empty for layouts that have none.
        run_ordinal: 0, or 1, 2, ... for further workloads under the same run id.
        record: The workload; None where no meta line describes it. `ir_graph` is
            empty where Helion could not or did not write one.
        attempts: In the order they were logged, trials before rebenchmarks.
        side: Facts from the side file, if there are any.
        default_config_id: Which attempt is Helion's own pick, as far as known.
        default_how: How that was found.
        problem: Why this run must not be used as timings of one workload, in words;
            None for a good run.
        started_at_s: Unix seconds, where the trace or the side file tells.
        sources: Digest of generated code by config id, from `.sources.csv`.
        lost: Tries whose result was dropped; the first config may be among them.
    """

    log: str
    run_id: str
    run_ordinal: int
    record: WorkloadRecord | None
    attempts: tuple[Attempt, ...]
    side: SideFacts | None = None
    default_config_id: str | None = None
    default_how: DefaultSource = DefaultSource.UNKNOWN
    problem: str | None = None
    started_at_s: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    lost: tuple[LostResult, ...] = ()

    @property
    def kernel_name(self) -> str:
        """For people; empty where unknown."""
        return self.record.kernel_name if self.record else ""

    @property
    def has_graph(self) -> bool:
        """Whether features can be computed at all."""
        return self.record is not None and bool(self.record.ir_graph)

    @property
    def n_attempts(self) -> int:
        """Attempts the csv has a result for; later re-timings are no attempts."""
        return sum(one.phase is Phase.TRIAL for one in self.attempts)

    @property
    def configs(self) -> dict[str, Config]:
        """Every config of the run by its id."""
        return {one.config_id: one.config for one in self.attempts}
