"""From readings to speed-ups: what each column did to one workload.

A speed-up is the median, over rounds, of the default's mean in the round over the
config's reading in it: drift of the clocks cancels. A column that measures several
configs chooses by the first round alone and is judged, as all are, by the others, so
that luck in choosing is not counted as speed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.datasets.bench_file import BenchResult
from costmodel.datasets.bench_file import Column
from costmodel.datasets.bench_file import ConfigResult
from costmodel.datasets.noise import noise_floor_log
from costmodel.datasets.record import LabelQuality

OK = "ok"
NOTHING = "no config"
_N_CHOOSING_ROUNDS = 1

# By the protocol of `costmodel.training.metrics`: a choice that does not run, or is
# wrong, counts as ten times slower.
FAILED_SPEEDUP = 0.1


@dataclass(frozen=True, slots=True)
class ColumnScore:
    """What one column did to one workload.

    Attributes:
        column: The column.
        status: "ok", or why its choice failed.
        detail: The same in words.
        chosen: Id of its config, or None.
        latency_us: Of its config, or None where it failed.
        speedup: Default time / its time; 0.1 where it failed.
        floor_log: Speed-ups closer to 1 than this, as ln ratio, are noise.
        decide_s: Seconds to decide, measuring included where it measured.
        n_measured: Configs that it measured to decide.
        same_code: Whether its machine code is the default's.
    """

    column: Column
    status: str
    detail: str
    chosen: str | None
    latency_us: float | None
    speedup: float
    floor_log: float
    decide_s: float | None
    n_measured: int
    same_code: bool

    @property
    def is_failure(self) -> bool:
        """Whether it has no answer that runs and is right."""
        return self.status != OK

    @property
    def is_harm(self) -> bool:
        """Slower than the default beyond noise, or failed."""
        return self.is_failure or math.log(self.speedup) < -self.floor_log

    @property
    def is_gain(self) -> bool:
        """Faster than the default beyond noise."""
        return not self.is_failure and math.log(self.speedup) > self.floor_log


@dataclass(frozen=True, slots=True)
class WorkloadScore:
    """What all columns did to one workload whose default runs.

    Attributes:
        result: What was measured.
        default_us: Median of the default.
        columns: By column name, the default among them.
        best_speedup: Of the fastest config of all that were timed.
        best: Its id.
    """

    result: BenchResult
    default_us: float
    columns: Mapping[str, ColumnScore]
    best_speedup: float
    best: str


def score(result: BenchResult) -> WorkloadScore | None:
    """Score one workload; None where Helion's default has no time to compare with."""
    default = result.results.get(result.default_id)
    if default is None or default.status != OK or not default.readings:
        return None
    n_rounds = 1 + max(number for number, _, _ in default.readings)
    n_choosing = _N_CHOOSING_ROUNDS if n_rounds > _N_CHOOSING_ROUNDS else 0
    judged = range(n_choosing, n_rounds)
    choosing = range(n_choosing or n_rounds)
    speedups = {
        one: _speedup(default, found, judged)
        for one, found in result.results.items()
        if found.status == OK and found.readings
    }
    # Foreign callables are no configs that anyone could have picked.
    configs = {
        one: value
        for one, value in speedups.items()
        if result.results[one].config is not None
    }
    best = max(configs, key=lambda one: (configs[one], one))
    columns = {
        column.name: _score_column(column, result, speedups, judged, choosing)
        for column in result.planned.columns
    }
    return WorkloadScore(
        result=result,
        default_us=_latency_us(default, judged),
        columns=columns,
        best_speedup=configs[best],
        best=best,
    )


def _score_column(
    column: Column,
    result: BenchResult,
    speedups: Mapping[str, float],
    judged: Sequence[int],
    choosing: Sequence[int],
) -> ColumnScore:
    members = result.members.get(column.name, ())
    found = result.results
    default = found[result.default_id]
    usable = [one for one in members if one in speedups]
    decide_s = column.decide_s
    n_measured = 0
    if len(members) > 1:
        n_measured = len(members)
        if decide_s is not None:
            # All configs of the workload were compiled at once: an upper bound.
            share = n_measured / max(1, len(found))
            decide_s += result.compile_s + share * result.first_s
    if not usable:
        failed = found[members[0]] if members else ConfigResult(NOTHING)
        return ColumnScore(
            column=column,
            status=failed.status if failed.status != OK else "not read",
            detail=failed.detail or column.why,
            chosen=members[0] if members else None,
            latency_us=None,
            speedup=FAILED_SPEEDUP,
            floor_log=0.0,
            decide_s=decide_s,
            n_measured=n_measured,
            same_code=False,
        )
    chosen = max(usable, key=lambda one: _speedup(default, found[one], choosing))
    floor_log = 0.0
    if chosen != result.default_id:
        of_default = _floor_log(default, judged, result.regime)
        of_chosen = _floor_log(found[chosen], judged, result.regime)
        floor_log = math.hypot(of_default, of_chosen)
    code = found[chosen].code_digest
    return ColumnScore(
        column=column,
        status=OK,
        detail="",
        chosen=chosen,
        latency_us=_latency_us(found[chosen], judged),
        speedup=1.0 if chosen == result.default_id else speedups[chosen],
        floor_log=floor_log,
        decide_s=decide_s,
        n_measured=n_measured,
        same_code=code is not None and code == default.code_digest,
    )


def _readings_us(found: ConfigResult, rounds: Sequence[int]) -> dict[int, list[float]]:
    by_round: dict[int, list[float]] = {}
    for number, _, us in found.readings:
        if number in rounds:
            by_round.setdefault(number, []).append(us)
    return by_round


def _speedup(
    default: ConfigResult, found: ConfigResult, rounds: Sequence[int]
) -> float:
    reference = _readings_us(default, rounds)
    mine = _readings_us(found, rounds)
    ratios = [
        statistics.fmean(reference[number]) / statistics.fmean(mine[number])
        for number in reference
        if number in mine
    ]
    return math.exp(statistics.median(map(math.log, ratios)))


def _latency_us(found: ConfigResult, rounds: Sequence[int]) -> float:
    by_round = _readings_us(found, rounds)
    return statistics.median(us for values in by_round.values() for us in values)


def _floor_log(found: ConfigResult, rounds: Sequence[int], regime: str) -> float:
    values = [us for some in _readings_us(found, rounds).values() for us in some]
    scatter = statistics.stdev(map(math.log, values)) if len(values) > 1 else None
    return noise_floor_log(
        statistics.median(values),
        len(values),
        LabelQuality.INTERLEAVED,
        regime,
        scatter_log=scatter,
    )
