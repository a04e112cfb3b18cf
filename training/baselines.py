"""What a model must beat: Helion's default, chance, physics alone, a neighbour.

Each baseline ranks a workload's candidates; its pick is its first. None has a gate:
they answer what a method is worth by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import Pipeline
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from costmodel.layout import RowLayout
from costmodel.scorer import RandomScorer
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.objective import PAIR_CLIP_LOG

# Chance is an average over draws; ten keep its geometric mean steady to about 0.02.
N_RANDOM_DRAWS = 10
# Five neighbours average out the noise of a reading and stay within a workload or two.
N_NEIGHBOURS = 5
# Rows kept for neighbours: in 230 dimensions each question looks at nearly all of them.
MAX_NEIGHBOUR_ROWS = 50_000


def random_rankings(
    workload: LabelledWorkload, layout: RowLayout
) -> list[tuple[int, ...]]:
    """Seeded random orders, the default anywhere in them."""
    return [
        _by_value(RandomScorer(layout, seed).score(workload.features).gain_log)
        for seed in range(N_RANDOM_DRAWS)
    ]


def analytic_ranking(workload: LabelledWorkload) -> tuple[int, ...]:
    """Configs by analytic merit, best first."""
    return workload.analytic_order


def nearest_neighbour(workloads: Sequence[LabelledWorkload]) -> Pipeline:
    """Fit a neighbour regression of the log ratio to the default.

    Failures count as slow as anything is counted, so that their neighbours are avoided.
    Of more rows than can be searched, every second, third, ... is taken.
    """
    n_rows = sum(one.n_rows for one in workloads)
    step = -(-n_rows // MAX_NEIGHBOUR_ROWS)
    rows = np.concatenate([one.features[::step] for one in workloads])
    targets = [
        np.where(one.is_ok, one.log_ratio, PAIR_CLIP_LOG)[::step] for one in workloads
    ]
    target = np.clip(np.concatenate(targets), -PAIR_CLIP_LOG, PAIR_CLIP_LOG)
    n_neighbours = min(N_NEIGHBOURS, len(rows))
    regressor = KNeighborsRegressor(n_neighbours, weights="distance")
    model = make_pipeline(StandardScaler(), regressor)
    model.fit(rows, target)
    return model


def neighbour_ranking(model: Pipeline, workload: LabelledWorkload) -> tuple[int, ...]:
    """Configs by their neighbours' log ratios, fastest first."""
    return _by_value(-model.predict(workload.features))


def _by_value(values: npt.NDArray[np.floating[Any]]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argsort(-values, kind="stable"))
