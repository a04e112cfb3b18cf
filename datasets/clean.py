"""From attempts to labels: one measurement per program, with its noise.

Three things make raw logs teach nonsense, and are undone here. A config is logged
under several spellings, and repeated over generations: they are merged. The first
timing of a session, nearly always the default's, reads slow: it is used only where
there is no other, and then marked. And later, longer re-timings are better labels than
first readings: the best kind that a config has is used, and kinds are never mixed.

The result does not depend on the order of a run's attempts.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter
from collections import defaultdict
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.datasets.audit import Finding
from costmodel.datasets.audit import Outcome
from costmodel.datasets.audit import Stage
from costmodel.datasets.identity import digest_of
from costmodel.datasets.identity import workload_id
from costmodel.datasets.noise import indistinguishable
from costmodel.datasets.noise import noise_floor_log
from costmodel.datasets.record import Attempt
from costmodel.datasets.record import LabelQuality
from costmodel.datasets.record import Phase
from costmodel.datasets.record import RecordedRun
from costmodel.datasets.record import Status
from costmodel.datasets.side_file import BACK_TO_BACK
from costmodel.datasets.side_file import AttemptFacts
from costmodel.features.canonical import canonical_config
from costmodel.features.canonical import config_id
from costmodel.features.canonical import make_template
from costmodel.types import Config
from costmodel.types import WorkloadRecord

UNKNOWN_FAMILY = "unknown"

Classify = Callable[[WorkloadRecord], str]
"""Class of a kernel by its structure, for workloads whose family nobody wrote down."""

KeyOf = Callable[[Config], str]
"""Equal for full configs that make one program; `canonical.config_id` if not given."""

# Knobs that change nothing but the machine code and its shared memory: not the grid,
# not the threads of a block, not what a descriptor of the host's describes.
_CODE_ONLY = frozenset(
    {
        "atomic_indexing",
        "indexing",
        "load_cache_modifiers",
        "load_eviction_policies",
        "num_stages",
        "range_flattens",
        "range_multi_buffers",
        "range_num_stages",
        "range_unroll_factors",
        "range_warp_specializes",
        "static_ranges",
        "store_cache_modifiers",
    }
)

# Which failure counts if a config failed in several ways: the one that says most.
_GRAVEST = (
    Status.ACCURACY_ERROR,
    Status.ERROR,
    Status.SOURCE_REJECTED,
    Status.CRASHED,
    Status.TIMEOUT,
)


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


@dataclass(frozen=True, slots=True)
class CleanRun:
    """One run with one measurement per program, sorted by canonical id.

    Attributes:
        run: What it was made from.
        workload_id: See `identity.workload_id`; empty for a run without a workload.
        family: Label, else class, else "unknown".
        regime: How the timings were taken; timings of two regimes never mix.
        template: Full form that sparse configs were filled from.
        measurements: See above.
        tie_ids: Canonical ids that the noise does not separate from the best, the best
            included; sorted.
        findings: What was merged and dropped.
    """

    run: RecordedRun
    workload_id: str
    family: str
    regime: str
    template: Config
    measurements: tuple[Measurement, ...]
    tie_ids: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def default_index(self) -> int | None:
        """Position of the default among the measurements; None if it has none."""
        for index, one in enumerate(self.measurements):
            if one.is_default:
                return index
        return None


def clean(
    run: RecordedRun,
    classify: Classify | None = None,
    key_of: KeyOf | None = None,
) -> CleanRun:
    """Merge a run's attempts into measurements.

    Args:
        run: Any run, with or without a `problem`; its order of attempts is ignored.
        classify: For runs whose side file names no family.
        key_of: Merges configs further, for example by their live knobs.

    Returns:
        The run, cleaned.
    """
    regime = _regime(run)
    spelled = _spellings(run)
    template = make_template(spelled.values())
    full = {one: canonical_config(spelled[one], template) for one in spelled}
    groups = _groups(run, full, key_of or config_id)
    by_id = defaultdict(list)
    for attempt in run.attempts:
        by_id[attempt.config_id].append(attempt)
    measurements = []
    for twin_ids in groups:
        attempts = [one for twin in twin_ids for one in by_id[twin]]
        made = _measure(run, regime, twin_ids, attempts, spelled, full)
        if made is not None:
            measurements.append(made)
    measurements = _fill_copies(run, measurements, by_id)
    measurements.sort(key=lambda one: one.canonical_id)
    return CleanRun(
        run=run,
        workload_id=workload_id(run.record, run.side) if run.record else "",
        family=_family(run, classify),
        regime=regime,
        template=template,
        measurements=tuple(measurements),
        tie_ids=_ties(measurements),
        findings=tuple(_findings(run, measurements)),
    )


def _spellings(run: RecordedRun) -> dict[str, Config]:
    """Every config by id, in an order that does not depend on the attempts'."""
    configs = run.configs
    side = run.side
    if side is not None and side.default_config and side.default_config_id:
        configs.setdefault(side.default_config_id, side.default_config)
    return {config: configs[config] for config in sorted(configs)}


def _regime(run: RecordedRun) -> str:
    """The side file's, if it has readings to compare in it; else Helion's."""
    side = run.side
    if side is None or side.regime is None:
        return BACK_TO_BACK
    has_own = any(one.readings_us for one in side.attempts.values())
    return side.regime if has_own or side.interleaved_us else BACK_TO_BACK


def _groups(
    run: RecordedRun, full: Mapping[str, Config], key_of: KeyOf
) -> list[tuple[str, ...]]:
    """Config ids that are one program: by canonical form, then by machine code."""
    groups: dict[str, list[str]] = defaultdict(list)
    for one, config in full.items():
        groups[key_of(config)].append(one)
    owner_of: dict[str, str] = {}
    for key in sorted(groups):
        codes = [_code_key(run, one, full[one]) for one in sorted(groups[key])]
        known = [code for code in codes if code is not None]
        owner = next((owner_of[code] for code in known if code in owner_of), key)
        owner_of.update(dict.fromkeys(known, owner))
        if owner != key:
            groups[owner] += groups.pop(key)
    return [tuple(sorted(ids)) for ids in groups.values()]


def _code_key(run: RecordedRun, one: str, full: Config) -> str | None:
    """Equal for configs with the same machine code, shared memory and launch."""
    facts = run.side.attempts.get(one) if run.side is not None else None
    if facts is None or facts.code_digest is None:
        return None
    launch = {key: value for key, value in full.items() if key not in _CODE_ONLY}
    return digest_of([facts.code_digest, facts.smem_bytes, facts.acf_id, launch])


def _measure(
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
    is_default = run.default_config_id in twin_ids
    chosen = (
        run.default_config_id
        if is_default
        else min(twin_ids, key=lambda one: (-len(spelled[one]), one))
    )
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
        ),
        label_quality=quality,
        is_default=is_default,
        facts=_facts(run, twin_ids, chosen),
    )


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
    timed = [
        one
        for one in attempts
        if one.status is Status.OK and one.latency_us and regime == BACK_TO_BACK
    ]
    again = [one.latency_us for one in timed if one.phase is Phase.REBENCHMARK]
    later = own + [
        one.latency_us
        for one in timed
        if one.phase is Phase.TRIAL and not one.is_first_reading
    ]
    first = [one.latency_us for one in timed if one.is_first_reading]
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


def _fill_copies(
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


def _family(run: RecordedRun, classify: Classify | None) -> str:
    if run.side is not None and run.side.family:
        return run.side.family
    if classify is None or run.record is None or not run.has_graph:
        return UNKNOWN_FAMILY
    return classify(run.record)


def _ties(measurements: Sequence[Measurement]) -> tuple[str, ...]:
    timed = [one for one in measurements if one.latency_us is not None]
    if not timed:
        return ()
    best = min(timed, key=lambda one: (one.latency_us, one.canonical_id))
    return tuple(
        sorted(
            one.canonical_id
            for one in timed
            if indistinguishable(
                one.latency_us,
                one.noise_floor_log,
                best.latency_us,
                best.noise_floor_log,
            )
        )
    )


def _findings(
    run: RecordedRun, measurements: Sequence[Measurement]
) -> Iterable[Finding]:
    def finding(outcome: Outcome, reason: str, count: int) -> Finding:
        return Finding(Stage.CLEAN, outcome, reason, count, run.log, run_id=run.run_id)

    n_spelled = sum(len(one.twin_ids) for one in measurements)
    if n_spelled > len(measurements):
        yield finding(
            Outcome.MERGED,
            "other spellings of a config",
            n_spelled - len(measurements),
        )
    known = {twin for one in measurements for twin in one.twin_ids}
    tried = Counter(one.config_id for one in run.attempts)
    repeats = sum(count - 1 for twin, count in tried.items() if twin in known)
    if repeats:
        yield finding(Outcome.MERGED, "repeats of a config", repeats)
    silent = sum(count for twin, count in tried.items() if twin not in known)
    if silent:
        yield finding(
            Outcome.DROPPED, "says nothing, or timed in another regime only", silent
        )
    first = [one for one in measurements if one.is_default]
    if first and first[0].label_quality is LabelQuality.SINGLE_FIRST:
        yield finding(
            Outcome.NOTED, "default timed once, first in its session: reads slow", 1
        )
    if run.default_config_id is None:
        yield finding(Outcome.NOTED, "the log does not hold its default", 0)
