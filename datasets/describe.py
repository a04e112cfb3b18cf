"""What a corpus holds, as numbers: counts, headroom, failures, knobs and noise.

Everything is computed from the two tables alone, so that a data card can be checked
against the corpus it describes.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.datasets.record import LabelQuality
from costmodel.datasets.record import Status
from costmodel.datasets.store import Corpus

SHAPES_WANTED = 3  # shapes of one kernel from which its siblings teach each other
KNOBS = ("num_warps", "num_stages", "pid_type", "block_sizes", "indexing")
"""Knobs that every kernel has, or nearly; lists are counted value by value."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """Workloads of one class or family.

    Attributes:
        name: Of the group.
        n_workloads: Runs in it.
        n_kernels: Kernel sources in it.
        n_judged: Runs whose default was re-timed: those that have a headroom.
        headroom: Geometric mean of default time / best time over them; NaN for none.
        headroom_max: The largest.
        failed_share: Share of measurements that failed.
    """

    name: str
    n_workloads: int
    n_kernels: int
    n_judged: int
    headroom: float
    headroom_max: float
    failed_share: float


@dataclass(frozen=True, slots=True)
class Description:
    """A corpus in numbers.

    Attributes:
        digest: The corpus digest.
        n_workloads: Runs, one workload each.
        n_kernels: Different kernel sources.
        n_kernels_with_shapes: Those of them with `SHAPES_WANTED` shapes or more.
        n_families: Family labels.
        n_attempts: Result rows of the logs, repeats of the default included.
        n_measurements: What is left when spellings and repeats are merged.
        n_retimed: Runs in which leaders were read again, interleaved.
        n_judged: Those of them in which the default was among the leaders.
        n_readings_interleaved: Readings taken that way, over all runs.
        fewest_rounds: Least interleaved readings of a leader in any re-timed run.
        headroom: Geometric mean of default time / best time over judged runs.
        statuses: Measurements by how they ended.
        label_quality: Measurements by how their time was taken.
        regimes: Runs by timing regime.
        promoted: Runs with and without a rule of Helion's ("yes", "no", "unknown").
        gpus: Runs by device.
        versions: Runs by version, of each program that has one.
        noise_log: Quantiles of the recorder's noise floor (default against itself,
            ln ratio) by regime: "p50", "p90", "max".
        classes: By structure, largest headroom first.
        families: By label, largest headroom first.
        rules: By whether Helion has a rule for the kernel, as `promoted`.
        failures: Failed measurements by class and status.
        knobs: Values by knob: how often measured, and in the best of a judged run.
        without_default: One line per run whose default has no time, and why.
    """

    digest: str
    n_workloads: int
    n_kernels: int
    n_kernels_with_shapes: int
    n_families: int
    n_attempts: int
    n_measurements: int
    n_retimed: int
    n_judged: int
    n_readings_interleaved: int
    fewest_rounds: int
    headroom: float
    statuses: Mapping[str, int]
    label_quality: Mapping[str, int]
    regimes: Mapping[str, int]
    promoted: Mapping[str, int]
    gpus: Mapping[str, int]
    versions: Mapping[str, Mapping[str, int]]
    noise_log: Mapping[str, Mapping[str, float]]
    classes: tuple[Group, ...]
    families: tuple[Group, ...]
    rules: tuple[Group, ...]
    failures: Mapping[str, Mapping[str, int]]
    knobs: Mapping[str, Mapping[str, Mapping[str, int]]]
    without_default: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values; a headroom that nobody measured is null."""
        body = json.dumps(_without_nan(asdict(self)), default=str)
        plain: dict[str, Any] = json.loads(body)
        return plain


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run, as far as it counts here.

    Attributes:
        run: Its row.
        rows: Its measurements.
        kernel_class: By structure.
        retimed: Interleaved measurements.
        headroom_log: ln(default / best), NaN where the default was not re-timed.
        best: The fastest re-timed measurement of a judged run, else None.
    """

    run: Row
    rows: Sequence[Row]
    kernel_class: str
    retimed: Sequence[Row]
    headroom_log: float
    best: Row | None


def run_facts(corpus: Corpus, class_of: Callable[[Row], str]) -> list[RunFacts]:
    """Every run with its measurements, in the corpus' order.

    Args:
        corpus: What to describe.
        class_of: Class of a run's kernel, from its row.
    """
    by_run: dict[str, list[Row]] = {}
    for row in corpus.attempts.to_pylist():
        by_run.setdefault(row["run_key"], []).append(row)
    return [
        _facts(run, by_run.get(run["run_key"], []), class_of(run))
        for run in corpus.runs.to_pylist()
    ]


def _facts(run: Row, rows: Sequence[Row], kernel_class: str) -> RunFacts:
    retimed = [
        row
        for row in rows
        if row["label_quality"] == LabelQuality.INTERLEAVED.value
        # With a control file for ptxas it is another question.
        and row["acf_id"] is None
    ]
    best = min(retimed, key=lambda row: row["latency_us"], default=None)
    default = next((row for row in retimed if row["is_default"]), None)
    if default is None or best is None:
        return RunFacts(run, rows, kernel_class, retimed, math.nan, None)
    headroom = math.log(default["latency_us"] / best["latency_us"])
    return RunFacts(run, rows, kernel_class, retimed, headroom, best)


def describe(corpus: Corpus, class_of: Callable[[Row], str]) -> Description:
    """Describe a corpus; see `run_facts` for the arguments."""
    return description_of(run_facts(corpus, class_of), corpus.digest)


def description_of(facts: Sequence[RunFacts], digest: str) -> Description:
    """The numbers of runs that are read already."""
    runs = [one.run for one in facts]
    rows = [row for one in facts for row in one.rows]
    retimed = [one for one in facts if one.retimed]
    shapes = Counter(
        kernel for kernel, _ in {(r["kernel_id"], r["workload_id"]) for r in runs}
    )
    versions = [name for name in runs[0] if name.endswith("_version")] if runs else []
    return Description(
        digest=digest,
        n_workloads=len(runs),
        n_kernels=len(shapes),
        n_kernels_with_shapes=sum(n >= SHAPES_WANTED for n in shapes.values()),
        n_families=len({run["family"] for run in runs}),
        n_attempts=sum(run["n_attempts"] for run in runs),
        n_measurements=len(rows),
        n_retimed=len(retimed),
        n_judged=sum(one.best is not None for one in facts),
        n_readings_interleaved=sum(
            row["n_readings"] for one in retimed for row in one.retimed
        ),
        fewest_rounds=min(
            (row["n_readings"] for one in retimed for row in one.retimed), default=0
        ),
        headroom=_geomean(facts),
        statuses=_counts(row["status"] for row in rows),
        label_quality=_counts(row["label_quality"] for row in rows),
        regimes=_counts(run["regime"] for run in runs),
        promoted=_counts(_yes_no(run["promoted"]) for run in runs),
        gpus=_counts(run["gpu"] for run in runs),
        versions={
            name.removesuffix("_version"): _counts(
                run[name] or "unknown" for run in runs
            )
            for name in versions
        },
        noise_log=_noise(runs),
        classes=_groups(facts, lambda one: one.kernel_class),
        families=_groups(facts, lambda one: str(one.run["family"])),
        rules=_groups(facts, lambda one: _yes_no(one.run["promoted"])),
        failures=_failures(facts),
        knobs={name: _knob(facts, name) for name in KNOBS},
        without_default=tuple(
            sorted(_why_not_judged(one) for one in facts if one.best is None)
        ),
    )


def _groups(
    facts: Sequence[RunFacts], name_of: Callable[[RunFacts], str]
) -> tuple[Group, ...]:
    members: dict[str, list[RunFacts]] = {}
    for one in facts:
        members.setdefault(name_of(one), []).append(one)
    groups = []
    for name, mine in members.items():
        rows = [row for one in mine for row in one.rows]
        judged = [one.headroom_log for one in mine if one.best is not None]
        groups.append(
            Group(
                name=name,
                n_workloads=len(mine),
                n_kernels=len({one.run["kernel_id"] for one in mine}),
                n_judged=len(judged),
                headroom=_geomean(mine),
                headroom_max=math.exp(max(judged, default=math.nan)),
                failed_share=sum(map(_failed, rows)) / max(1, len(rows)),
            )
        )
    return tuple(sorted(groups, key=lambda group: (-_or_zero(group), group.name)))


def _or_zero(group: Group) -> float:
    return 0.0 if math.isnan(group.headroom) else group.headroom


def _geomean(facts: Iterable[RunFacts]) -> float:
    logs = [one.headroom_log for one in facts if one.best is not None]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def _failed(row: Row) -> bool:
    return Status(row["status"]).is_failure


def _failures(facts: Sequence[RunFacts]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for one in facts:
        counter = found.setdefault(one.kernel_class, Counter())
        counter.update(row["status"] for row in one.rows if _failed(row))
    return {name: _counts(found[name].elements()) for name in sorted(found)}


def _noise(runs: Sequence[Row]) -> dict[str, dict[str, float]]:
    floors: dict[str, list[float]] = {}
    for run in runs:
        side = json.loads(run["side"]) if run["side"] else {}
        if side.get("noise_floor_log") is not None:
            floors.setdefault(run["regime"], []).append(side["noise_floor_log"])
    return {
        regime: {
            "p50": float(np.quantile(values, 0.5)),
            "p90": float(np.quantile(values, 0.9)),
            "max": max(values),
        }
        for regime, values in sorted(floors.items())
    }


def _knob(facts: Sequence[RunFacts], name: str) -> dict[str, dict[str, int]]:
    measured: Counter[str] = Counter()
    best: Counter[str] = Counter()
    for one in facts:
        for row in one.rows:
            measured.update(_values(row, name))
        if one.best is not None:
            best.update(_values(one.best, name))
    return {
        value: {"measured": measured[value], "best": best[value]}
        for value in sorted(measured, key=_numbers_first)
    }


def _values(row: Row, name: str) -> list[str]:
    value = json.loads(row["config"]).get(name)
    if value is None:
        return []
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def _numbers_first(text: str) -> tuple[bool, int, str]:
    return (not text.isdigit(), int(text) if text.isdigit() else 0, text)


def _why_not_judged(one: RunFacts) -> str:
    default = [row for row in one.rows if row["is_default"]]
    ended = default[0]["status"] if default else "not in the log"
    if ended == Status.OK.value:
        ended = "never re-timed"
    n_ok = sum(row["status"] == Status.OK.value for row in one.rows)
    return (
        f"{one.run['family']}: {one.run['kernel']} {one.run['input_shapes']}: "
        f"default {ended}, {n_ok} of {len(one.rows)} ok"
    )


def _yes_no(value: bool | None) -> str:
    return "unknown" if value is None else "yes" if value else "no"


def _counts(values: Iterable[str]) -> dict[str, int]:
    """Counts, most frequent first."""
    counts = Counter(values)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return value
