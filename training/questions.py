"""What a booster is asked, before its rows exist: examples a batch at a time.

All examples of a question are never in memory together; batches of them are made when
they are asked for, here or on another machine, and are those of `objective` to the bit:
each batch knows where the draws of references stand at its beginning.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from costmodel.layout import RowLayout
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.objective import NEAR_BEST_LOG
from costmodel.training.objective import Examples
from costmodel.training.objective import pair_examples
from costmodel.training.objective import regression_examples
from costmodel.training.objective import validity_examples


class Kind(enum.Enum):
    """Which question; see `objective`."""

    PAIRS = "pairs"
    REGRESSION = "regression"
    VALIDITY = "validity"


@dataclass(frozen=True, slots=True)
class Question:
    """Examples of one kind on some workloads.

    Attributes:
        kind: Which.
        workloads: What to learn from.
        weight: float64[n_workloads], total weight of each.
        layout: Column blocks of their rows.
        n_references: Of pairs, besides the default.
        draws: State of the generator that draws the references; None for no draws.
        mean_weight: Weight of an average example; examples weigh 1 on average over
            all batches, which no batch can know by itself.
    """

    kind: Kind
    workloads: Sequence[LabelledWorkload]
    weight: npt.NDArray[np.float64]
    layout: RowLayout
    n_references: int
    draws: Mapping[str, Any] | None
    mean_weight: float

    @property
    def n_examples(self) -> int:
        """Rows of all batches together."""
        return sum(_n_of(self, one) for one in self.workloads)

    def batches(self, max_rows: int) -> list[Question]:
        """The same in parts of about so many rows, whole workloads each."""
        starts = [0]
        n_rows = 0
        for place, one in enumerate(self.workloads):
            n_of = _n_of(self, one)
            if n_rows and n_rows + n_of > max_rows:
                starts.append(place)
                n_rows = 0
            n_rows += n_of
        ends = [*starts[1:], len(self.workloads)]
        rng = None if self.draws is None else _generator(self.draws)
        parts = []
        for start, end in zip(starts, ends, strict=True):
            part = replace(
                self,
                workloads=self.workloads[start:end],
                weight=self.weight[start:end],
                draws=None if rng is None else rng.bit_generator.state,
            )
            parts.append(part)
            for one in part.workloads if rng is not None else ():
                assert rng is not None
                _draw(one, self.n_references, rng)
        return parts

    def examples(self) -> Examples:
        """The rows, all at once: of a batch, not of a whole question."""
        made = self._made()
        own_mean = float(self.weight.sum()) / len(made.target)
        scale = np.float32(own_mean / self.mean_weight)
        return replace(made, weight=made.weight * scale)

    def _made(self) -> Examples:
        if self.kind is Kind.REGRESSION:
            return regression_examples(self.workloads, self.weight)
        if self.kind is Kind.VALIDITY:
            return validity_examples(self.workloads, self.weight)
        assert self.draws is not None
        rng = _generator(self.draws)
        return pair_examples(
            self.workloads, self.layout, self.weight, self.n_references, rng
        )


def ask(
    kind: Kind,
    workloads: Sequence[LabelledWorkload],
    weight: npt.NDArray[np.float64],
    layout: RowLayout,
    n_references: int = 0,
    rng: np.random.Generator | None = None,
) -> Question:
    """A question about all of some workloads.

    Args:
        kind: Which.
        workloads: At least one.
        weight: float64[n_workloads], total weight of each.
        layout: Column blocks of their rows.
        n_references: Of pairs, besides the default.
        rng: Draws the references of pairs; it is left as it was.
    """
    draws = None if rng is None else rng.bit_generator.state
    whole = Question(kind, workloads, weight, layout, n_references, draws, 1.0)
    return replace(whole, mean_weight=float(weight.sum()) / whole.n_examples)


def _n_of(question: Question, one: LabelledWorkload) -> int:
    """Examples that one workload gives."""
    if question.kind is Kind.VALIDITY:
        return one.n_rows
    n_measured = int(one.is_ok.sum())
    if question.kind is Kind.REGRESSION:
        return n_measured
    return n_measured * (1 + min(question.n_references, len(_near(one))))


def _near(one: LabelledWorkload) -> npt.NDArray[np.int64]:
    """Rows that may be references, as `objective.pair_examples` has them."""
    measured = np.flatnonzero(one.is_ok)
    return measured[one.log_ratio[measured] <= one.best_log + NEAR_BEST_LOG]


def _draw(one: LabelledWorkload, n: int, rng: np.random.Generator) -> None:
    """Move the generator on as drawing the workload's references does."""
    near = _near(one)
    rng.choice(near, min(n, len(near)), replace=False)


def _generator(state: Mapping[str, Any]) -> np.random.Generator:
    rng = np.random.default_rng()
    rng.bit_generator.state = dict(state)
    return rng
