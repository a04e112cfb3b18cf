"""Fit the same forest by an engine: from disk, or on a cluster.

Bags, weights, references and parameters are those of `fit`; only who makes the rows and
grows the trees differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import xgboost

from costmodel.errors import NotEnoughDataError
from costmodel.forest import Forest
from costmodel.layout import RowLayout
from costmodel.training.engine import Engine
from costmodel.training.engine import History
from costmodel.training.fit import Curves
from costmodel.training.fit import FitSettings
from costmodel.training.fit import fit
from costmodel.training.fit import joined
from costmodel.training.fit import n_references_of
from costmodel.training.fit import rank_parameters
from costmodel.training.fit import validity_parameters
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.questions import Kind
from costmodel.training.questions import Question
from costmodel.training.questions import ask


class Fitter(Protocol):
    """Fits a forest; `InMemory` and `ByEngine` do."""

    @property
    def n_parallel(self) -> int:
        """How many fits may run at once; each takes one thread here."""

    def __call__(
        self,
        workloads: Sequence[LabelledWorkload],
        layout: RowLayout,
        settings: FitSettings,
        schema_hash: str,
        held_out: Sequence[LabelledWorkload] = (),
    ) -> tuple[Forest, Curves]:
        """See `fit.fit`."""


class InMemory:
    """`fit.fit`, with as many at once as the machine has cores, up to four."""

    n_parallel = 4

    def __call__(
        self,
        workloads: Sequence[LabelledWorkload],
        layout: RowLayout,
        settings: FitSettings,
        schema_hash: str,
        held_out: Sequence[LabelledWorkload] = (),
    ) -> tuple[Forest, Curves]:
        """See `fit.fit`."""
        return fit(workloads, layout, settings, schema_hash, held_out)


IN_MEMORY = InMemory()


class ByEngine:
    """Fits by an engine, one boosting after the other."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def n_parallel(self) -> int:
        """As many as the engine says."""
        return self._engine.n_parallel

    def __call__(
        self,
        workloads: Sequence[LabelledWorkload],
        layout: RowLayout,
        settings: FitSettings,
        schema_hash: str,
        held_out: Sequence[LabelledWorkload] = (),
    ) -> tuple[Forest, Curves]:
        """See `fit.fit`."""
        if not workloads:
            raise NotEnoughDataError(
                "expected at least one workload with a measured default, found none: "
                "import logs first"
            )
        parts: list[tuple[xgboost.Booster, float]] = []
        curves = Curves()
        own_weight = np.array([one.weight for one in workloads])
        for bag in range(settings.n_bags):
            rng = np.random.default_rng([settings.seed, bag])
            weight = (rng.exponential(size=len(workloads)) + 0.25) * own_weight
            n_references = n_references_of(workloads, settings)
            pairs = ask(Kind.PAIRS, workloads, weight, layout, n_references, rng)
            watched = _watched(held_out, layout, settings) if bag == 0 else None
            pair_booster, history = self._rank(pairs, settings, bag, watched)
            curves = _curves(history) if bag == 0 else curves
            plain = ask(Kind.REGRESSION, workloads, weight, layout)
            plain_booster, _ = self._rank(plain, settings, bag)
            parts.append((pair_booster, settings.pair_share / settings.n_bags))
            share = (1.0 - settings.pair_share) / settings.n_bags
            parts.append((plain_booster, share))
        validity, _ = self._engine.boost(
            ask(Kind.VALIDITY, workloads, own_weight, layout),
            validity_parameters(settings),
            settings.n_validity_trees,
            settings.dropped_columns,
        )
        parts.append((validity, 1.0))
        return joined(parts, layout, settings, schema_hash), curves

    def _rank(
        self,
        question: Question,
        settings: FitSettings,
        bag: int,
        watched: Question | None = None,
    ) -> tuple[xgboost.Booster, History]:
        return self._engine.boost(
            question,
            rank_parameters(settings, bag, question.n_examples),
            settings.n_trees,
            settings.dropped_columns,
            watched,
        )


def _watched(
    held_out: Sequence[LabelledWorkload], layout: RowLayout, settings: FitSettings
) -> Question | None:
    """The examples that `fit` watches, as a question."""
    if not held_out:
        return None
    rng = np.random.default_rng([settings.seed, 10_000])
    even = np.ones(len(held_out))
    return ask(Kind.PAIRS, held_out, even, layout, settings.n_references, rng)


def _curves(history: History) -> Curves:
    return Curves(
        train_rmse=tuple(history.get("train", {}).get("rmse", ())),
        held_out_rmse=tuple(history.get("held_out", {}).get("rmse", ())),
    )
