"""How much is worth measuring: which candidates, and how long a search.

Both follow from one picture: each candidate has a predicted speed-up and a lower bound
of it, so in logs as far above as below may be true. What can still beat the best that
is certain is worth a measurement; how far it may reach above is what is left to gain.
Everything here is pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol
from typing import TypeVar

from costmodel.acf.identity import KNOB
from costmodel.types import Config
from costmodel.types import Pick

# The default and the best seven: eight is Helion's own number of configs in a final
# confirmation (its effort profiles, 1.5).
MOST_MEASURED = 8

# Within one percent two timings are a tie, and ties go to the default: on power-capped
# GPUs the order of nearer ones changes from run to run (reports of Helion's users).
TIE = 0.01

# Best of about 45 configs over Helion's default, geomean of 253 H200 workloads
# (docs/measurements/2026-11-30-h200-model.md): where that much may be left, Helion's
# whole search is worth its time.
WHOLE_SEARCH_SPEEDUP = 1.42

# Fewer than a tenth of the generations and copies is no search any more.
LEAST_SHARE = 0.1


class Timed(Protocol):
    """One config with its time."""

    @property
    def config(self) -> Config:
        """What was timed."""
        ...

    @property
    def latency_us(self) -> float:
        """Microseconds; infinite if it failed."""
        ...


def configs_to_measure(pick: Pick) -> tuple[Config, ...]:
    """Helion's default, then the candidates that may beat what is certain, best first.

    At least one candidate beside the default, where there is any, and at most seven.
    """
    default = pick.config if pick.default is None else pick.default
    others = [i for i, one in enumerate(pick.shortlist) if one != default]
    if pick.shortlist_speedups:
        certain = _certain_log(pick)
        hopeful = [
            i for i in others if _upper_log(pick.shortlist_speedups[i]) > certain
        ]
        others = hopeful or others[:1]
    kept = [pick.shortlist[i] for i in others[: MOST_MEASURED - 1]]
    return (default, *kept)


def search_share(pick: Pick) -> float:
    """Share of Helion's search that what is left to gain is worth, at most 1.

    1 where nothing was predicted: then nothing is known about what is left.
    """
    if not pick.shortlist_speedups:
        return 1.0
    highest = max(_upper_log(one) for one in pick.shortlist_speedups)
    left = highest - _certain_log(pick)
    return min(1.0, max(LEAST_SHARE, left / math.log(WHOLE_SEARCH_SPEEDUP)))


AnyTimed = TypeVar("AnyTimed", bound=Timed)


def best_measured(timed: Sequence[AnyTimed], default: Config) -> AnyTimed | None:
    """The fastest; the default where it ties with it; None where nothing ran."""
    ran = [one for one in timed if math.isfinite(one.latency_us)]
    if not ran:
        return None
    best = min(ran, key=lambda one: one.latency_us)
    for one in ran:
        if one.config == default and one.latency_us <= best.latency_us * (1 + TIE):
            return one
    return best


def best_with_controls(
    timed: Sequence[AnyTimed], default: Config, refused: Sequence[Config] = ()
) -> AnyTimed | None:
    """As `best_measured`, and a control file has to win by more than a tie.

    Args:
        timed: Configs with control files among those without.
        default: Helion's, without one.
        refused: Configs that are not to be had, whatever their time.
    """
    ran = [one for one in timed if one.config not in refused]
    without = [one for one in ran if not one.config.get(KNOB)]
    plain, best = best_measured(without, default), best_measured(ran, default)
    if plain is None or best is None:
        return best
    return plain if plain.latency_us <= best.latency_us * (1 + TIE) else best


def _certain_log(pick: Pick) -> float:
    """Log speed-up that some candidate surely has; the default has 0."""
    lower = [math.log(max(low, 1e-6)) for _gain, low in pick.shortlist_speedups]
    return max(0.0, *lower)


def _upper_log(speedup: tuple[float, float]) -> float:
    """As far above the prediction as its lower bound is below."""
    gain, lower = (math.log(max(value, 1e-6)) for value in speedup)
    return gain + max(0.0, gain - lower)
