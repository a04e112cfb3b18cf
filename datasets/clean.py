"""From attempts to labels: one measurement per program, with its noise.

Three things make raw logs teach nonsense, and are undone here. A config is logged
under several spellings, and repeated over generations: they are merged. The first
timing of a session, nearly always the default's, reads slow: it is used only where
there is no other, and then marked. And later, longer re-timings are better labels than
first readings: the best kind that a config has is used, and kinds are never mixed.

The result does not depend on the order of a run's attempts.
"""

from __future__ import annotations

from collections import Counter
from collections import defaultdict
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.acf.identity import KNOB
from costmodel.acf.identity import UNKNOWN
from costmodel.datasets.audit import Finding
from costmodel.datasets.audit import Outcome
from costmodel.datasets.audit import Stage
from costmodel.datasets.identity import workload_id
from costmodel.datasets.labels import Measurement
from costmodel.datasets.labels import fill_copies
from costmodel.datasets.labels import measure
from costmodel.datasets.labels import regime_of
from costmodel.datasets.noise import indistinguishable
from costmodel.datasets.record import LabelQuality
from costmodel.datasets.record import RecordedRun
from costmodel.datasets.twins import KeyOf
from costmodel.datasets.twins import twin_groups
from costmodel.features.canonical import canonical_config
from costmodel.features.canonical import config_id
from costmodel.features.canonical import make_template
from costmodel.types import Config
from costmodel.types import WorkloadRecord

UNKNOWN_FAMILY = "unknown"

Classify = Callable[[WorkloadRecord], str]
"""Class of a kernel by its structure, for workloads whose family nobody wrote down."""


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
    regime = regime_of(run)
    spelled = _spellings(run)
    template = make_template(spelled.values())
    full = {one: canonical_config(spelled[one], template) for one in spelled}
    groups = twin_groups(run, full, key_of or config_id)
    by_id = defaultdict(list)
    for attempt in run.attempts:
        by_id[attempt.config_id].append(attempt)
    measurements = []
    for twin_ids in groups:
        attempts = [one for twin in twin_ids for one in by_id[twin]]
        made = measure(run, regime, twin_ids, attempts, spelled, full)
        if made is not None:
            measurements.append(made)
    measurements = fill_copies(run, measurements, by_id)
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


def _family(run: RecordedRun, classify: Classify | None) -> str:
    if run.side is not None and run.side.family:
        return run.side.family
    if classify is None or run.record is None or not run.has_graph:
        return UNKNOWN_FAMILY
    return classify(run.record)


def _ties(measurements: Sequence[Measurement]) -> tuple[str, ...]:
    timed = sorted(
        (one.latency_us, one.canonical_id, one.noise_floor_log)
        for one in measurements
        if one.latency_us is not None
    )
    if not timed:
        return ()
    best_us, _, best_floor = timed[0]
    return tuple(
        sorted(
            canonical_id
            for latency_us, canonical_id, floor in timed
            if indistinguishable(latency_us, floor, best_us, best_floor)
        )
    )


def _findings(
    run: RecordedRun, measurements: Sequence[Measurement]
) -> Iterable[Finding]:
    def finding(outcome: Outcome, reason: str, count: int) -> Finding:
        return Finding(
            Stage.CLEAN, outcome, reason, count, f"{run.log}.csv", run_id=run.run_id
        )

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
    names = [str(one.canonical.get(KNOB, "")) for one in measurements]
    n_unknown = sum(name.startswith(UNKNOWN) for name in names)
    if n_unknown:
        yield finding(
            Outcome.NOTED,
            "compiled with a control file that is not there any more, or was changed",
            n_unknown,
        )
    n_ties = len(_ties(measurements))
    if n_ties > 1:
        yield finding(Outcome.NOTED, "configs within noise of the best", n_ties)
    first = [one for one in measurements if one.is_default]
    if first and first[0].label_quality is LabelQuality.SINGLE_FIRST:
        yield finding(
            Outcome.NOTED, "default timed once, first in its session: reads slow", 1
        )
    if run.default_config_id is None:
        yield finding(Outcome.NOTED, "the log does not hold its default", 0)
