"""Fit the same forest by an engine: from disk, or on a cluster.

Bags, weights, references and parameters are those of `fit`; only who makes the rows and
grows the trees differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import xgboost

from costmodel.forest import Forest
from costmodel.layout import RowLayout
from costmodel.training.engine import Engine
from costmodel.training.engine import History
from costmodel.training.fit import Curves
from costmodel.training.fit import FitSettings
from costmodel.training.fit import fit
from costmodel.training.fit import grown
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
        grower = _Asked(self._engine, workloads, layout, settings, held_out)
        return grown(workloads, layout, settings, schema_hash, grower)


class _Asked:
    """A `Grower` that hands questions to an engine."""

    def __init__(
        self,
        engine: Engine,
        workloads: Sequence[LabelledWorkload],
        layout: RowLayout,
        settings: FitSettings,
        held_out: Sequence[LabelledWorkload],
    ) -> None:
        self._engine = engine
        self._workloads = workloads
        self._layout = layout
        self._settings = settings
        self._held_out = held_out

    def pairs(
        self, bag: int, weight: npt.NDArray[np.float64], rng: np.random.Generator
    ) -> tuple[xgboost.Booster, Curves]:
        n_references = n_references_of(self._workloads, self._settings)
        pairs = ask(
            Kind.PAIRS, self._workloads, weight, self._layout, n_references, rng
        )
        watched = None
        if bag == 0:
            watched = _watched(self._held_out, self._layout, self._settings)
        booster, history = self._rank(pairs, bag, watched)
        return booster, _curves(history)

    def regression(self, bag: int, weight: npt.NDArray[np.float64]) -> xgboost.Booster:
        plain = ask(Kind.REGRESSION, self._workloads, weight, self._layout)
        return self._rank(plain, bag)[0]

    def validity(self, weight: npt.NDArray[np.float64]) -> xgboost.Booster:
        booster, _ = self._engine.boost(
            ask(Kind.VALIDITY, self._workloads, weight, self._layout),
            validity_parameters(self._settings),
            self._settings.n_validity_trees,
            self._settings.dropped_columns,
        )
        return booster

    def _rank(
        self, question: Question, bag: int, watched: Question | None = None
    ) -> tuple[xgboost.Booster, History]:
        return self._engine.boost(
            question,
            rank_parameters(self._settings, bag, question.n_examples),
            self._settings.n_trees,
            self._settings.dropped_columns,
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
