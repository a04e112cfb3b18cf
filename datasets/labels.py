"""One program's label: which of its readings count, and what they say together."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.datasets.noise import noise_floor_log
from costmodel.datasets.record import Attempt
from costmodel.datasets.record import LabelQuality
from costmodel.datasets.record import Phase
from costmodel.datasets.record import RecordedRun
from costmodel.datasets.record import Status
from costmodel.datasets.side_file import BACK_TO_BACK
from costmodel.datasets.side_file import AttemptFacts
from costmodel.features.canonical import config_id
from costmodel.types import Config

# Which failure counts if a config failed in several ways: the one that says most.
_GRAVEST = (
    Status.ACCURACY_ERROR,
    Status.ERROR,
    Status.SOURCE_REJECTED,
    Status.CRASHED,
    Status.TIMEOUT,
)


_MIN_SCATTER_READINGS = 3  # two readings tell their mean, not their spread


@dataclass(frozen=True, slots=True)
class Measurement:
    """What is known of one program of a run.

    Attributes:
        config_id: As the log spells it: the default's spelling if it is among the
            twins, else the fullest.
        config: That spelling.
        canonical_id: Id of the full form.
        canonical: The full form; see `features.canonical`.
        twin_ids: Every spelling in the log, sorted, `config_id` included.
        status: How it ended; OK if it ever gave a time and never a wrong result.
        latency_us: The label in microseconds, None for failures.
        readings_us: The readings that the label is the median of, sorted.
        n_failures: How many of its attempts failed.
        noise_floor_log: See `noise.noise_floor_log`; NaN for failures.
        label_quality: How the readings were taken.
        is_default: Whether it is Helion's own pick.
        facts: Extras from the side file; empty where there are none.
    """

    config_id: str
    config: Config
    canonical_id: str
    canonical: Config
    twin_ids: tuple[str, ...]
    status: Status
    latency_us: float | None
    readings_us: tuple[float, ...]
    n_failures: int
    noise_floor_log: float
    label_quality: LabelQuality
    is_default: bool
    facts: AttemptFacts = dataclasses.field(default_factory=AttemptFacts)


def regime_of(run: RecordedRun) -> str:
    """The side file's, if it has readings to compare in it; else Helion's."""
    side = run.side
    if side is None or side.regime is None:
        return BACK_TO_BACK
    has_own = any(one.readings_us for one in side.attempts.values())
    return side.regime if has_own or side.interleaved_us else BACK_TO_BACK


def measure(
    run: RecordedRun,
    regime: str,
    twin_ids: Sequence[str],
    attempts: Sequence[Attempt],
    spelled: Mapping[str, Config],
    full: Mapping[str, Config],
) -> Measurement | None:
    """Label one program; None if nothing at all is known of it."""
    readings, quality = _label(run, regime, twin_ids, attempts)
    status = _status(attempts, bool(readings))
    if status is None or (status is Status.OK and not readings):
        return None
    if status is not Status.OK:
        readings, quality = (), LabelQuality.NONE
    default_id = run.default_config_id
    is_default = default_id in twin_ids
    chosen = min(twin_ids, key=lambda one: (one != default_id, -len(spelled[one]), one))
    latency_us = statistics.median(readings) if readings else None
    return Measurement(
        config_id=chosen,
        config=spelled[chosen],
        canonical_id=config_id(full[chosen]),
        canonical=full[chosen],
        twin_ids=tuple(twin_ids),
        status=status,
        latency_us=latency_us,
        readings_us=readings,
        n_failures=sum(one.status.is_failure for one in attempts),
        noise_floor_log=noise_floor_log(
            latency_us or math.nan,
            len(readings),
            quality,
            regime,
            run.side.noise_floor_log if run.side is not None else None,
            _scatter_log(readings),
        ),
        label_quality=quality,
        is_default=is_default,
        facts=_facts(run, twin_ids, chosen),
    )


def _scatter_log(readings: Sequence[float]) -> float | None:
    if len(readings) < _MIN_SCATTER_READINGS:
        return None
    return statistics.stdev(math.log(one) for one in readings)


def _label(
    run: RecordedRun,
    regime: str,
    twin_ids: Sequence[str],
    attempts: Iterable[Attempt],
) -> tuple[tuple[float, ...], LabelQuality]:
    """The best kind of readings a program has, sorted, and which kind that is."""
    side = run.side
    interleaved: list[float] = []
    own: list[float] = []
    if side is not None:
        for twin in twin_ids:
            interleaved += side.interleaved_us.get(twin, ())
            own += side.attempts[twin].readings_us if twin in side.attempts else ()
    again: list[float] = []
    later = own
    first: list[float] = []
    for one in attempts if regime == BACK_TO_BACK else ():
        if one.status is not Status.OK or one.latency_us is None:
            continue
        if one.phase is Phase.REBENCHMARK:
            again.append(one.latency_us)
        elif one.is_first_reading:
            first.append(one.latency_us)
        else:
            later.append(one.latency_us)
    for readings, quality in (
        (interleaved, LabelQuality.INTERLEAVED),
        (again, LabelQuality.REBENCHMARKED),
        (
            later,
            LabelQuality.REPEATED if len(later) > 1 else LabelQuality.SINGLE,
        ),
        (first, LabelQuality.SINGLE_FIRST),
    ):
        if readings:
            return tuple(sorted(readings)), quality
    return (), LabelQuality.NONE


def _status(attempts: Sequence[Attempt], has_readings: bool) -> Status | None:
    statuses = Counter(one.status for one in attempts)
    if statuses[Status.ACCURACY_ERROR]:
        return Status.ACCURACY_ERROR  # a wrong result is never fast
    if has_readings or statuses[Status.OK]:
        return Status.OK
    if statuses[Status.DEDUPLICATED]:
        return Status.DEDUPLICATED
    failures = [one for one in _GRAVEST if statuses[one]]
    return max(failures, key=lambda one: statuses[one], default=None)


def fill_copies(
    run: RecordedRun,
    measurements: Iterable[Measurement],
    by_id: Mapping[str, Sequence[Attempt]],
) -> list[Measurement]:
    """Give deduplicated configs the label of the config whose code they share."""
    measurements = list(measurements)
    owner = {
        run.sources[twin]: one
        for one in measurements
        if one.status is Status.OK
        for twin in one.twin_ids
        if twin in run.sources
    }
    filled = []
    for one in measurements:
        if one.status is not Status.DEDUPLICATED:
            filled.append(one)
            continue
        digests = [run.sources[twin] for twin in one.twin_ids if twin in run.sources]
        source = next((owner[d] for d in digests if d in owner), None)
        copied = [
            attempt.latency_us
            for twin in one.twin_ids
            for attempt in by_id[twin]
            if attempt.latency_us is not None
        ]
        latency_us = source.latency_us if source is not None else None
        if latency_us is None and copied:
            latency_us = statistics.median(copied)
        if latency_us is None:
            filled.append(one)
            continue
        floor = noise_floor_log(latency_us, 1, LabelQuality.COPIED)
        filled.append(
            dataclasses.replace(
                one,
                latency_us=latency_us,
                noise_floor_log=source.noise_floor_log if source else floor,
                label_quality=LabelQuality.COPIED,
            )
        )
    return filled


def _facts(run: RecordedRun, twin_ids: Sequence[str], chosen: str) -> AttemptFacts:
    """Compile facts of a program: any twin's will do, the chosen one's first."""
    known = run.side.attempts if run.side is not None else {}
    for twin in (chosen, *twin_ids):
        if twin in known:
            return known[twin]
    return AttemptFacts()
