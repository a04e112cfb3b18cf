"""Which measurements would teach a model most: pure arithmetic on its predictions.

Half of a budget goes where models of different bags disagree, on configs that may be
picked, resemble many others and none that is measured already (disagreement x
representativeness x diversity). The other half goes to predicted optima: the configs
that a pick may fall on, where a wrong prediction costs.

A pool is rows, one per config of some workload; nothing here knows what a feature means
or who made the predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

OPTIMUM_SHARE = 0.5
_N_DIRECTIONS = 24  # distances of some hundred features survive this many projections
_N_NEIGHBOURS = 10
_MOST_LANDMARKS = 1_500  # rows that stand for the pool where density is estimated
_CLIP = 3.0  # standard deviations; one odd feature must not decide what is far
_MIN_VALID = 0.5  # configs that rather fail are no optimum

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Pool:
    """Configs that could be measured, and those that have been.

    Attributes:
        workload: int64[n], which workload each row is a config of.
        features: float[n, n_features].
        gain_log: float[n], predicted ln(default time / time), mean over bags.
        spread_log: float[n], standard deviation of the same over bags.
        valid_probability: float[n], that it runs.
        is_known: bool[n], measured already: never chosen, and what is near is less
            worth knowing.
    """

    workload: npt.NDArray[np.int64]
    features: npt.NDArray[np.floating]
    gain_log: npt.NDArray[np.floating]
    spread_log: npt.NDArray[np.floating]
    valid_probability: npt.NDArray[np.floating]
    is_known: Bools

    def __len__(self) -> int:
        return len(self.workload)


def choose_next(
    pool: Pool, n: int, *, optimum_share: float = OPTIMUM_SHARE
) -> list[int]:
    """Rows to measure next, best first.

    Args:
        pool: See `Pool`.
        n: How many; fewer where the pool has fewer unknown rows.
        optimum_share: Share of them around predicted optima.

    Returns:
        Distinct positions of unknown rows: one of each half in turn.
    """
    free = int((~pool.is_known).sum())
    n = min(n, free)
    optima = near_optima(pool, round(optimum_share * n))
    taken = pool.is_known.copy()
    taken[optima] = True
    wanted = n - len(optima)
    unsure = most_informative(pool, wanted, taken)
    mixed: list[int] = []
    for i in range(max(len(optima), len(unsure))):
        mixed += [*optima[i : i + 1], *unsure[i : i + 1]]
    return mixed


def near_optima(pool: Pool, n: int) -> list[int]:
    """The most promising unknown row of each workload, workload after workload.

    Promising is what one bag's standard deviation above the mean would gain; workloads
    whose best rows are least certain come first, and come again when all had a turn.
    """
    promise = pool.gain_log + pool.spread_log
    usable = ~pool.is_known & (pool.valid_probability >= _MIN_VALID)
    queues: list[tuple[float, list[int]]] = []
    for one in np.unique(pool.workload[usable]):
        mine = np.flatnonzero(usable & (pool.workload == one))
        ranked = mine[np.argsort(-promise[mine], kind="stable")]
        doubt = float(pool.spread_log[ranked[:_N_NEIGHBOURS]].mean())
        queues.append((doubt, [int(row) for row in ranked]))
    queues.sort(key=lambda queue: -queue[0])
    chosen: list[int] = []
    candidates = [rows for _, rows in queues]
    for turn in range(max(map(len, candidates), default=0)):
        for rows in candidates:
            if len(chosen) == n:
                return chosen
            chosen += rows[turn : turn + 1]
    return chosen


def most_informative(pool: Pool, n: int, taken: Bools) -> list[int]:
    """Greedily the rows with the largest disagreement x relevance x density x distance
    to what is known or chosen.

    Args:
        pool: See `Pool`.
        n: How many.
        taken: bool[n_rows], rows not to choose; those known or chosen elsewhere.
    """
    places = embedded(pool.features)
    doubt = pool.spread_log.astype(np.float64) * relevance(pool)
    worth = doubt * representativeness(places)
    distance = distance_to(places, np.flatnonzero(taken))
    # Beyond this it is far enough: outliers must not win by distance alone.
    typical = float(np.median(distance[~taken])) if not taken.all() else 1.0
    open_rows = ~taken
    chosen: list[int] = []
    while len(chosen) < n and open_rows.any():
        novelty = distance / (distance + typical) if typical else distance
        score = np.where(open_rows, worth * novelty, -np.inf)
        row = int(np.argmax(score))
        chosen.append(row)
        open_rows[row] = False
        distance = np.minimum(distance, _distances(places, places[row]))
    return chosen


def relevance(pool: Pool) -> Floats:
    """How close each row is to what may be picked: float64[n], in [0, 1].

    Predicted time of its workload's best row / its own, times the chance that it runs.
    Without this, doubt goes to slow and failing configs, of which there are most and
    on which bags disagree most, and chance does better (`benchmarks/replay_next.py`).
    """
    best = np.full(int(pool.workload.max()) + 1, -np.inf)
    np.maximum.at(best, pool.workload, pool.gain_log.astype(np.float64))
    near: Floats = np.exp(pool.gain_log - best[pool.workload])
    weighed: Floats = near * pool.valid_probability
    return weighed


def embedded(features: npt.NDArray[np.floating]) -> Floats:
    """Places in a space of few dimensions whose distances are those of the scaled
    features, about: float64[n, n_directions]."""
    rows = features.astype(np.float64)
    scale = rows.std(axis=0)
    moving = scale > 0.0
    scaled = (rows[:, moving] - rows[:, moving].mean(axis=0)) / scale[moving]
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(scaled.shape[1], _N_DIRECTIONS))
    places: Floats = np.clip(scaled, -_CLIP, _CLIP) @ directions
    places /= np.sqrt(_N_DIRECTIONS)
    return places


def representativeness(places: Floats) -> Floats:
    """How crowded the neighbourhood of each place is: float64[n], in (0, 1]."""
    n = len(places)
    step = max(1, -(-n // _MOST_LANDMARKS))
    landmarks = places[::step]
    nearest = min(_N_NEIGHBOURS, len(landmarks)) - 1
    reach = np.empty(n)
    for start in range(0, n, _MOST_LANDMARKS):
        part = places[start : start + _MOST_LANDMARKS]
        squares = (part**2).sum(axis=1)[:, None] + (landmarks**2).sum(axis=1)
        squares -= 2.0 * part @ landmarks.T
        squares = np.maximum(squares, 0.0)
        kth = np.partition(squares, nearest, axis=1)[:, nearest]
        reach[start : start + len(part)] = np.sqrt(kth)
    typical = float(np.median(reach)) or 1.0
    density: Floats = 1.0 / (1.0 + reach / typical)
    return density


def distance_to(places: Floats, rows: Sequence[int] | npt.NDArray[np.int64]) -> Floats:
    """Distance of each place to the nearest of some rows; 1 everywhere for none."""
    if len(rows) == 0:
        return np.ones(len(places))
    nearest = np.full(len(places), np.inf)
    for row in rows:
        nearest = np.minimum(nearest, _distances(places, places[row]))
    return nearest


def _distances(places: Floats, place: Floats) -> Floats:
    found: Floats = np.sqrt(((places - place) ** 2).sum(axis=1))
    return found
