"""Nested folds over families: what a search may look at, and what only its report may.

One search chooses the values of the recipe and sees all families. For each outer fold
another search of the same kind sees only the families outside that fold; the values
that *it* chose are judged on the fold. The mean over outer folds says what tuning in
this way is worth on families that no choice was made by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.datasets.split import group_k_fold
from costmodel.errors import NotEnoughDataError
from costmodel.training.crossfit import Fold
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.recipe import Recipe

ALL = "all families"


@dataclass(frozen=True, slots=True)
class Search:
    """One search over the space.

    Attributes:
        name: "all families", or "without fold 0".
        inner: What each trial is judged on; learned from and held out.
        outer: What its choice is judged on for the report; nothing of it is in `inner`.
    """

    name: str
    inner: tuple[Fold, ...]
    outer: Fold | None = None


def searches_of(
    recipe: Recipe,
    workloads: Sequence[LabelledWorkload],
    n_inner: int,
    n_outer: int,
) -> tuple[Search, ...]:
    """The search that chooses, and one for each outer fold.

    Args:
        recipe: Whose named folds, if it has some, stay together.
        workloads: All.
        n_inner: Folds that a trial is judged on, at most.
        n_outer: Folds of the report; 0 for none.

    Raises:
        NotEnoughDataError: Fewer than two families, or fewer than three for a report.
    """
    fold_of = {
        family: name for name, some in recipe.split.folds.items() for family in some
    }
    units = [fold_of.get(one.family, one.family) for one in workloads]
    n_units = len(set(units))
    if n_outer and n_units < 3:
        raise NotEnoughDataError(
            f"expected three families or folds for nested folds, found {n_units}: add "
            "the bundled corpus, or pass --outer-folds 0 for no report"
        )
    everyone = tuple(range(len(workloads)))
    found = [Search(ALL, _folds(units, everyone, n_inner))]
    if n_outer:
        for outer in _folds(units, everyone, max(2, n_outer)):
            inner = _folds(units, outer.train, n_inner)
            found.append(Search(f"without {outer.name}", inner, outer))
    return tuple(found)


def _folds(units: Sequence[str], of: Sequence[int], n_folds: int) -> tuple[Fold, ...]:
    """Whole units left out, of some workloads; indices into all of them."""
    return tuple(
        Fold(name, tuple(of[i] for i in train), tuple(of[i] for i in test))
        for name, train, test in group_k_fold([units[i] for i in of], n_folds)
    )
