"""A recipe applied to labelled workloads: which are used, and the folds they make."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.errors import NotEnoughDataError
from costmodel.errors import RecipeError
from costmodel.training.crossfit import Fold
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.recipe import Recipe


def selected(
    recipe: Recipe, workloads: Sequence[LabelledWorkload]
) -> tuple[LabelledWorkload, ...]:
    """Workloads that the recipe does not leave out.

    Raises:
        RecipeError: It leaves out something that is not there: a misspelt family would
            otherwise be trained on.
        NotEnoughDataError: Nothing is left.
    """
    for name, wanted, found in (
        ("families", recipe.data.leave_out_families, {one.family for one in workloads}),
        ("kernels", recipe.data.leave_out_kernels, {one.kernel for one in workloads}),
        ("shapes", recipe.data.leave_out_shapes, {one.shape_id for one in workloads}),
    ):
        missing = sorted(set(wanted) - found)
        if missing:
            raise RecipeError(
                f"data.leave_out_{name}: '{missing[0]}' is not in the data: expected "
                f"one of {', '.join(sorted(found)[:12])}"
            )
    kept = tuple(
        one
        for one in workloads
        if one.family not in recipe.data.leave_out_families
        and one.kernel not in recipe.data.leave_out_kernels
        and one.shape_id not in recipe.data.leave_out_shapes
    )
    if not kept:
        raise NotEnoughDataError("expected workloads to train on, the recipe left none")
    return kept


def fixed_folds(
    recipe: Recipe, workloads: Sequence[LabelledWorkload]
) -> list[Fold] | None:
    """The recipe's own folds; None where it leaves that to the training.

    Raises:
        RecipeError: A family is in no fold or in two, a fold holds none, or there are
            fewer than two folds.
    """
    if not recipe.split.folds:
        return None
    families = sorted({one.family for one in workloads})
    fold_of: dict[str, str] = {}
    for name, members in recipe.split.folds.items():
        for family in members:
            if family in fold_of:
                raise RecipeError(f"split.folds: '{family}' is in two folds")
            fold_of[family] = name
    missing = [one for one in families if one not in fold_of]
    if missing:
        raise RecipeError(
            f"split.folds: family '{missing[0]}' is in no fold: expected each of "
            f"{', '.join(families)} in one"
        )
    folds = []
    for name in recipe.split.folds:
        test = [i for i, one in enumerate(workloads) if fold_of[one.family] == name]
        train = [i for i, one in enumerate(workloads) if fold_of[one.family] != name]
        if not test or not train:
            raise RecipeError(
                f"split.folds: expected workloads in fold '{name}' and outside of it, "
                f"found {len(test)} and {len(train)}"
            )
        folds.append(Fold(name, tuple(train), tuple(test)))
    return folds
