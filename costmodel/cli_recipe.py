"""From the command line of `costmodel train` to the recipe that is trained."""

from __future__ import annotations

import argparse
import dataclasses

from costmodel.errors import RecipeError
from costmodel.training.recipe import Data
from costmodel.training.recipe import Recipe
from costmodel.training.recipe import is_recipe
from costmodel.training.recipe import load_recipe
from costmodel.training.recipe_limits import check_number


def recipe_of(arguments: argparse.Namespace) -> Recipe:
    """The recipe that is named, else the one that ships; options of the line win.

    Raises:
        RecipeError: Two recipes, a recipe among data, or no data at all.
    """
    named = [one for one in arguments.data if is_recipe(one)]
    if arguments.recipe is not None:
        named.append(arguments.recipe)
    if len(named) > 1:
        raise RecipeError(f"expected one recipe, found {', '.join(named)}")
    recipe = load_recipe(named[0]) if named else Recipe()
    data = tuple(one for one in arguments.data if not is_recipe(one))
    if data:
        paths = dataclasses.replace(recipe.data, paths=data) if named else Data(data)
        recipe = dataclasses.replace(recipe, data=paths)
    if not recipe.data.paths:
        raise RecipeError(
            "expected data.paths in the recipe or corpora or logs on the command line, "
            "found none"
        )
    if arguments.external_memory:
        scale = dataclasses.replace(recipe.scale, external_memory=True)
        recipe = dataclasses.replace(recipe, scale=scale)
    if arguments.learning_curve:
        report = dataclasses.replace(recipe.report, learning_curve=True)
        recipe = dataclasses.replace(recipe, report=report)
    return changed(recipe, name=arguments.name, seed=arguments.seed)


def changed(recipe: Recipe, *, name: str | None, seed: int | None) -> Recipe:
    """The same with another name or seed, where one is given.

    Raises:
        RecipeError: No such seed.
    """
    if name is not None:
        recipe = dataclasses.replace(recipe, name=name)
    if seed is not None:
        check_number("model.seed", seed, "--seed")
        recipe = recipe.with_values({"model.seed": seed})
    return recipe
