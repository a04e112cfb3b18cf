"""Helion's search by its own seeding against the same search from our candidates.

Both searches write Helion's log; what they tried, in which order and when, is read from
there. A search that is stopped after n configs answers the best it has read so far, its
*incumbent*; every incumbent that may matter is timed again, interleaved with the
default, our picks and the answers of both searches, since a search's own single
readings favour luck. A search has *arrived* at the first n whose incumbent is within
five per cent of the best config that was timed again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Any

from costmodel.datasets.bench_file import BenchResult
from costmodel.datasets.bench_file import Column
from costmodel.datasets.bench_file import PlannedWorkload
from costmodel.datasets.bench_score import WorkloadScore
from costmodel.datasets.bench_score import score
from costmodel.datasets.csv_layouts import CsvRow
from costmodel.datasets.csv_layouts import parse_config_text
from costmodel.datasets.csv_layouts import parse_rows
from costmodel.datasets.workloads.workload import Workload
from costmodel.types import Config
from costmodel.types import Pick

OWN = "own"
"""The search from Helion's seeds alone."""

OURS = "ours"
"""The search from our candidates, Helion's seeds after them."""

WAYS = (OWN, OURS)

SEEDS = "our_seeds"
"""Column of a plan that holds what mode "seed" plants."""

NEAR = 1.05  # within five per cent of the best is near enough to stop
HEADROOM = 1.10  # less is within the reach of noise and of any search

# Incumbents that are timed again: not those far from where the search ended, whose
# readings cannot be off by so much, and of the others the latest.
_HOPEFUL = 1.3
_MOST_INCUMBENTS = 8


@dataclass(frozen=True, slots=True)
class Step:
    """One config of a search, by when its result was known.

    Attributes:
        n: How many configs the search had tried by then, failed ones included.
        seconds: Since the search began, compiling included.
        status: Helion's word for the result.
        latency_us: As the search read it; infinite if it failed.
        config: The config.
    """

    n: int
    seconds: float
    status: str
    latency_us: float
    config: Config


def our_seeds(bound: Any, workload: Workload, pick: Pick) -> Sequence[Config]:
    """What mode "seed" would plant for a pick, for `--column` of a bench plan."""
    return (pick.config, *pick.shortlist)


def steps_of(csv_text: str) -> list[Step]:
    """Every config that a search tried, each once, from the csv of its log."""
    steps: list[Step] = []
    seen: set[str] = set()
    for row in parse_rows(csv_text):
        if not isinstance(row, CsvRow) or row.status == "started":
            continue
        config = parse_config_text(row.config_text or "")
        if config is None or row.config_id in seen:
            continue
        seen.add(row.config_id)
        ran = row.perf_ms is not None and math.isfinite(row.perf_ms)
        latency_us = 1e3 * row.perf_ms if ran and row.perf_ms else math.inf
        steps.append(
            Step(len(seen), row.timestamp_s or 0.0, row.status, latency_us, config)
        )
    return steps


def incumbents(steps: Sequence[Step]) -> list[Step]:
    """The steps that were the best so far, without those that cannot matter."""
    best: list[Step] = []
    for step in steps:
        if step.latency_us < (best[-1].latency_us if best else math.inf):
            best.append(step)
    if not best:
        return []
    limit = _HOPEFUL * best[-1].latency_us
    return [one for one in best if one.latency_us <= limit][-_MOST_INCUMBENTS:]


def with_searches(
    planned: PlannedWorkload,
    answers: dict[str, Config | None],
    found: dict[str, Sequence[Step]],
) -> PlannedWorkload:
    """The plan of the re-timing: a column for each answer and each incumbent.

    Args:
        planned: The workload with our columns.
        answers: What each search returned; None where it returned nothing.
        found: Incumbents of each search.
    """
    columns = [one for one in planned.columns if one.name != SEEDS]
    for way in WAYS:
        answer = answers.get(way)
        if answer is not None:
            columns.append(Column(way, (answer,), by="helion"))
        for step in found.get(way, ()):
            columns.append(Column(f"{way}@{step.n}", (step.config,), by="helion"))
    return replace(planned, columns=tuple(columns))


@dataclass(frozen=True, slots=True)
class Tried:
    """What a search did, before anything is timed again.

    Attributes:
        n_configs: Configs that it tried.
        seconds: What it took.
        incumbents_s: Seconds at which each incumbent was known, by its n.
    """

    n_configs: int
    seconds: float
    incumbents_s: dict[int, float]


@dataclass(frozen=True, slots=True)
class Search:
    """What became of one search.

    Attributes:
        n_configs: Configs that it tried.
        seconds: What it took.
        speedup: Of its answer over Helion's default, timed again.
        arrived_n: Configs until it arrived; None if it did not.
        arrived_s: Seconds until then.
    """

    n_configs: int
    seconds: float
    speedup: float | None
    arrived_n: int | None
    arrived_s: float | None


@dataclass(frozen=True, slots=True)
class Trial:
    """Both searches of one workload.

    Attributes:
        workload: Kernel and arguments as text.
        kernel_class: Class read from the graph.
        promoted: Whether Helion has a rule for it.
        seed: Of both searches.
        default_us: Helion's default, timed again.
        best_speedup: Of the best config timed again.
        speedups: Of the columns of our plan.
        default_is_near: The default itself is within five per cent of the best, so
            that either search arrives with its first config.
        searches: By way.
    """

    workload: str
    kernel_class: str
    promoted: bool
    seed: int
    default_us: float
    best_speedup: float
    speedups: dict[str, float]
    default_is_near: bool
    searches: dict[str, Search]

    @property
    def ratio(self) -> float | None:
        """Configs that our seeding needed over those of Helion's own.

        A search that did not arrive counts with one config more than it tried: if it is
        ours the ratio is at least this, if it is Helion's at most; None if neither did.
        """
        needed = []
        for way in (OURS, OWN):
            one = self.searches.get(way)
            if one is None:
                return None
            needed.append((one.arrived_n, one.n_configs))
        if all(arrived is None for arrived, _tried in needed):
            return None
        ours, own = (tried + 1 if n is None else n for n, tried in needed)
        return ours / own


def judge(result: BenchResult, seed: int, tried: dict[str, Tried]) -> Trial | None:
    """Judge both searches by their re-timing; None where the default has no time.

    Args:
        result: The re-timing of `with_searches`.
        seed: Of the searches.
        tried: What each search did, by way.
    """
    scored = score(result)
    if scored is None:
        return None
    workload = result.planned.workload
    return Trial(
        workload=f"{workload.kernel} {' '.join(workload.args)}",
        kernel_class=result.planned.kernel_class,
        promoted=result.planned.promoted,
        seed=seed,
        default_us=scored.default_us,
        best_speedup=scored.best_speedup,
        speedups={
            name: one.speedup
            for name, one in scored.columns.items()
            if "@" not in name and name not in WAYS
        },
        default_is_near=scored.best_speedup <= NEAR,
        searches={way: _search(scored, way, one) for way, one in tried.items()},
    )


def _search(scored: WorkloadScore, way: str, tried: Tried) -> Search:
    at_s = tried.incumbents_s
    arrived = [
        n
        for n in sorted(at_s)
        if (one := scored.columns.get(f"{way}@{n}")) is not None
        and not one.is_failure
        and one.speedup * NEAR >= scored.best_speedup
    ]
    answer = scored.columns.get(way)
    return Search(
        n_configs=tried.n_configs,
        seconds=tried.seconds,
        speedup=None if answer is None else answer.speedup,
        arrived_n=arrived[0] if arrived else None,
        arrived_s=at_s[arrived[0]] if arrived else None,
    )


def choose_workloads(results: Iterable[BenchResult], limit: int) -> list[Workload]:
    """Workloads of a live bench that leave a search something to find, one a group.

    A group is a class of kernels with or without a rule of Helion's. Of those with at
    least a tenth to win the one in the middle is taken, groups with more workloads in
    the bench first: nothing here looks at what our picks did.
    """
    groups: dict[tuple[str, bool], list[tuple[float, str, Workload]]] = defaultdict(
        list
    )
    for result in results:
        scored = score(result)
        if scored is not None:
            planned = result.planned
            entry = (
                scored.best_speedup,
                planned.workload.workload_id,
                planned.workload,
            )
            groups[planned.kernel_class, planned.promoted].append(entry)
    chosen = []
    for name, members in groups.items():
        hopeful = sorted(one for one in members if one[0] >= HEADROOM)
        if hopeful:
            headroom, _, workload = hopeful[(len(hopeful) - 1) // 2]
            chosen.append((-len(members), -headroom, name, workload))
    chosen.sort(key=lambda one: one[:3])
    return [one[-1] for one in chosen[:limit]]
