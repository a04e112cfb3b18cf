"""What a pick is worth, in numbers that can be compared between workloads.

A *speed-up* is default time / pick time. A failed pick is charged 0.1: it did not run.
*Harm* is a speed-up below 1 by more than noise. *Regret* is pick
time / best known time - 1, and 0 within the noise floor. *Regret@k* is what is left
after measuring the default and the k best-ranked others and keeping the fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# By our own convention a pick whose attempt failed has speed-up 0.1 and counts as harm.
FAILED_SPEEDUP = 0.1

FloatVector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What picking did to one workload.

    Attributes:
        speedup: Default time / pick time; 0.1 where the pick failed.
        regret: Pick time / best known time - 1, 0 within noise.
        regret_at: By k, the same after measuring the default and the k best-ranked.
        best_speedup: Default time / best known time.
        harm_floor_log: Slower than the default by more than this is harm.
        failed: Whether the pick did not run.
    """

    speedup: float
    regret: float
    regret_at: dict[int, float]
    best_speedup: float
    harm_floor_log: float
    failed: bool

    @property
    def is_harm(self) -> bool:
        """Whether the pick is slower than the default beyond noise."""
        return bool(self.failed or np.log(self.speedup) < -self.harm_floor_log)


def outcome(
    log_ratio: FloatVector,
    is_ok: npt.NDArray[np.bool_],
    default_index: int,
    pick: int,
    order: Sequence[int],
    noise_floor_log: float,
    harm_floor_log: float,
    ks: Sequence[int] = (1, 3, 5),
) -> Outcome:
    """Judge one pick by what was measured.

    Args:
        log_ratio: float64[n], ln(time / default time), any value where not ok.
        is_ok: bool[n].
        default_index: The default, which is ok.
        pick: What was picked.
        order: The ranking, best first, with or without the default.
        noise_floor_log: Log ratios closer than this are ties.
        harm_floor_log: Slower than the default by more than this is harm.
        ks: How many to measure besides the default.
    """
    logs = np.where(is_ok, log_ratio, np.inf)
    best = float(logs.min())
    failed = not bool(is_ok[pick])
    picked = -float(np.log(FAILED_SPEEDUP)) if failed else float(logs[pick])
    others = [i for i in order if i != default_index]
    regret_at = {
        k: _regret(
            float(logs[[default_index, *others[:k]]].min()) - best, noise_floor_log
        )
        for k in ks
    }
    return Outcome(
        speedup=float(np.exp(-picked)),
        regret=_regret(picked - best, noise_floor_log),
        regret_at=regret_at,
        best_speedup=float(np.exp(-best)),
        harm_floor_log=harm_floor_log,
        failed=failed,
    )


def _regret(above_best_log: float, noise_floor_log: float) -> float:
    if above_best_log <= noise_floor_log:
        return 0.0
    return float(np.expm1(above_best_log))


def geomean(values: Sequence[float]) -> float:
    """Geometric mean of positive values; 1.0 for none."""
    if len(values) == 0:
        return 1.0
    return float(np.exp(np.mean(np.log(np.asarray(values, dtype=np.float64)))))


def bootstrap_interval(
    values: Sequence[float],
    groups: Sequence[str],
    n_draws: int = 2000,
    coverage: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Interval of a geometric mean when whole groups are drawn again.

    Workloads of one kernel are no independent evidence, so kernels are what is drawn.

    Args:
        values: Positive, one per workload.
        groups: Kernel of each.
        n_draws: Bootstrap samples.
        coverage: Share of them inside.
        seed: Of the draws.
    """
    if len(values) == 0:
        return 1.0, 1.0
    logs = np.log(np.asarray(values, dtype=np.float64))
    names, index = np.unique(np.asarray(groups), return_inverse=True)
    sums = np.bincount(index, weights=logs, minlength=len(names))
    counts = np.bincount(index, minlength=len(names))
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(names), size=(n_draws, len(names)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    tail = (1.0 - coverage) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return float(np.exp(low)), float(np.exp(high))


def _headroom_share(outcomes: Sequence[Outcome]) -> float:
    """Share of the log headroom over the default that the picks recover; 0 for none."""
    headroom_log = float(
        np.sum(np.log([one.best_speedup for one in outcomes] or [1.0]))
    )
    if headroom_log <= 0.0:
        return 0.0
    return float(np.sum(np.log([one.speedup for one in outcomes]))) / headroom_log


def summary(outcomes: Sequence[Outcome], groups: Sequence[str]) -> dict[str, float]:
    """Aggregate of outcomes as plain numbers by name.

    Args:
        outcomes: One per workload.
        groups: Kernel of each, for the interval.
    """
    speedups = [one.speedup for one in outcomes]
    low, high = bootstrap_interval(speedups, groups)
    n = max(1, len(outcomes))
    numbers = {
        "n_workloads": float(len(outcomes)),
        "speedup_geomean": geomean(speedups),
        "speedup_low": low,
        "speedup_high": high,
        "speedup_worst": min(speedups, default=1.0),
        "best_geomean": geomean([one.best_speedup for one in outcomes]),
        "headroom_share": _headroom_share(outcomes),
        "harm_share": sum(one.is_harm for one in outcomes) / n,
        "failed_share": sum(one.failed for one in outcomes) / n,
        "regret_mean": sum(one.regret for one in outcomes) / n,
    }
    for k in outcomes[0].regret_at if outcomes else ():
        numbers[f"regret_at_{k}"] = sum(one.regret_at[k] for one in outcomes) / n
    return numbers
