"""What one set of values is worth: regret of the gated picks on folds left out.

The mean of ln(1 + regret) over kernels, so that one workload whose best config is
twenty times faster does not outvote all others. While a trial runs only what the trees
say is known (a gate needs all folds), so that is what hopeless trials are stopped by.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.features.schema import FeatureSchema
from costmodel.hybrid import canonical_text
from costmodel.training.calibrate import HeldOutPrediction
from costmodel.training.crossfit import FoldResult
from costmodel.training.crossfit import cross_fit
from costmodel.training.eval_table import Row
from costmodel.training.eval_table import evaluation_rows
from costmodel.training.judge import choice_of
from costmodel.training.judge import judge
from costmodel.training.judge import outcome_of
from costmodel.training.judge import ungated_pick
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.metrics import Outcome
from costmodel.training.recipe import Recipe
from costmodel.training.tune_folds import Search

Watch = Callable[[int, dict[str, float]], None]
"""Told after each fold: how many are done, and the loss by kernel of the last one."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one trial.

    Attributes:
        loss: Mean ln(1 + regret) over kernels, with the gate.
        regret: The same as a factor - 1.
        speedup: Geometric mean over the default, over workloads.
        harm_share: Workloads slower than the default beyond noise.
        results: The inner folds.
    """

    loss: float
    regret: float
    speedup: float
    harm_share: float
    results: tuple[FoldResult, ...]


def tried(
    recipe: Recipe,
    workloads: Sequence[LabelledWorkload],
    search: Search,
    schema: FeatureSchema,
    watch: Watch = lambda _n, _losses: None,
) -> Tried:
    """Fit and judge a recipe on the inner folds of a search.

    Args:
        recipe: With the values to try.
        workloads: All; only those of the inner folds are looked at.
        search: Whose folds.
        schema: Of the features.
        watch: Told after each fold; may raise to stop.
    """
    n_done = 0

    def after(result: FoldResult) -> None:
        nonlocal n_done
        n_done += 1
        watch(n_done, _by_kernel([_ungated(one) for one in result.predictions]))

    results = cross_fit(
        workloads, search.inner, schema, recipe.model, limits=recipe.gate, watch=after
    )
    judged = [
        (one.workload, _gated(one, result, schema))
        for result in results
        for one in result.predictions
    ]
    losses = _by_kernel([(one, float(np.log1p(made.regret))) for one, made in judged])
    loss = float(np.mean(list(losses.values())))
    made = [one for _, one in judged]
    return Tried(
        loss=loss,
        regret=float(np.expm1(loss)),
        speedup=float(np.exp(np.mean(np.log([one.speedup for one in made])))),
        harm_share=float(np.mean([one.is_harm for one in made])),
        results=tuple(results),
    )


def outer_rows(
    recipe: Recipe,
    workloads: Sequence[LabelledWorkload],
    search: Search,
    schema: FeatureSchema,
    done: Tried,
) -> list[Row]:
    """The evaluation of a search's choice on families that it never saw.

    The gate's margins come from the inner folds, as a published model's would.

    Args:
        recipe: With the values that were chosen.
        workloads: All.
        search: With an outer fold.
        schema: Of the features.
        done: Its trial on the inner folds.
    """
    assert search.outer is not None
    said = [one for result in done.results for one in result.predictions]
    results = cross_fit(
        workloads, [search.outer], schema, recipe.model, said, recipe.gate
    )
    return evaluation_rows(judge("nested families left out", results, schema), results)


def _ungated(one: HeldOutPrediction) -> tuple[LabelledWorkload, float]:
    workload = one.workload
    keys = [canonical_text(config) for config in workload.configs]
    pick, order = ungated_pick(one, keys)
    return workload, float(np.log1p(outcome_of(workload, pick, order).regret))


def _gated(
    one: HeldOutPrediction, result: FoldResult, schema: FeatureSchema
) -> Outcome:
    choice = choice_of(one, result.gate, schema)
    return outcome_of(one.workload, choice.index, choice.order)


def _by_kernel(
    losses: Sequence[tuple[LabelledWorkload, float]],
) -> dict[str, float]:
    """Mean by kernel: its shapes are no independent evidence."""
    found: dict[str, list[float]] = {}
    for one, loss in losses:
        found.setdefault(one.source_digest, []).append(loss)
    return {kernel: float(np.mean(some)) for kernel, some in found.items()}
