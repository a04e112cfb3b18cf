"""The same training by other seeds: how much of a result is chance.

Only the folds are fitted again, with other draws of bags and references; a difference
between two recipes that is smaller than this spread is none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from collections.abc import Sequence

import numpy as np

from costmodel.features.schema import FeatureSchema
from costmodel.training.calibrate import GateLimits
from costmodel.training.crossfit import cross_fit
from costmodel.training.eval_table import evaluation_rows
from costmodel.training.fit import FitSettings
from costmodel.training.judge import judge
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.run_extra import Extra
from costmodel.training.run_extra import NestedRun
from costmodel.training.run_numbers import numbers_of
from costmodel.training.train import Training

KIND = "seed"
_SPREAD_OF = ("speedup_geomean", "ungated_speedup_geomean", "harm_share", "regret_mean")


def other_seeds(
    training: Training,
    workloads: Sequence[LabelledWorkload],
    schema: FeatureSchema,
    settings: FitSettings,
    limits: GateLimits,
    n_seeds: int,
    say: Callable[[str], None] = lambda _: None,
) -> Extra:
    """Nested runs of the seeds after the training's, and the spread over all.

    Args:
        training: By its own seed.
        workloads: What it was trained on.
        schema: Of the features.
        settings: Numbers of the fit.
        limits: What the gates are calibrated to.
        n_seeds: How many more.
        say: Told what is being done, a line a seed.
    """
    folds = [one.fold for one in training.folds]
    found = [numbers_of(evaluation_rows(training.by_family, training.folds))]
    nested = []
    for seed in range(settings.seed + 1, settings.seed + 1 + n_seeds):
        say(f"seed {seed} ...")
        other = dataclasses.replace(settings, seed=seed)
        results = cross_fit(workloads, folds, schema, other, limits=limits)
        judged = judge(training.by_family.protocol, results, schema)
        numbers = numbers_of(evaluation_rows(judged, results))
        found.append(numbers)
        nested.append(
            NestedRun(f"seed {seed}", {"kind": KIND}, {"seed": str(seed)}, numbers)
        )
    metrics = {}
    for name in _SPREAD_OF:
        values = [numbers[name] for numbers in found]
        metrics[f"seeds/{name}_mean"] = float(np.mean(values))
        metrics[f"seeds/{name}_std"] = float(np.std(values, ddof=1))
    return Extra(metrics=metrics, nested=tuple(nested))
