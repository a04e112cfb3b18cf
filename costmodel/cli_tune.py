"""`costmodel tune`: search a recipe's space, and write the recipe that was found."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from costmodel.atomic_file import write_atomically
from costmodel.cli_data import TABLE_WIDTH_COLUMNS
from costmodel.cli_measured import labelled
from costmodel.cli_measured import read_measured
from costmodel.cli_recipe import changed
from costmodel.errors import RecipeError
from costmodel.errors import TrackingError
from costmodel.errors import TuningError
from costmodel.features.schema import SCHEMA
from costmodel.training.plan import selected
from costmodel.training.recipe import Recipe
from costmodel.training.recipe import load_recipe
from costmodel.training.recipe_space import tunable
from costmodel.training.tune import BY_USER
from costmodel.training.tune import Tuner
from costmodel.training.tune_folds import searches_of
from costmodel.training.tune_record import TuneRecord
from costmodel.training.tune_show import as_facts
from costmodel.training.tune_show import found_recipe
from costmodel.training.tune_show import search_figure
from costmodel.training.tune_show import show
from costmodel.training.tune_study import TrialRow
from costmodel.training.tune_study import import_optuna
from costmodel.training.tune_study import opened_studies

RECIPE = "recipe.toml"
NUMBERS = "tune.json"
PLOT = "tune.png"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="costmodel tune",
        description="Search the [tune] space of a recipe by regret on families left "
        "out, and judge the way of searching on outer folds that it never saw. "
        "Ctrl-C and a time limit lose nothing: the same command goes on.",
    )
    parser.add_argument("recipe", metavar="RECIPE.toml", help="with a table [tune]")
    parser.add_argument(
        "--trials",
        type=int,
        default=20,
        metavar="N",
        help="of each search, those of earlier starts included (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout", type=float, metavar="S", help="seconds of searching, labelling not"
    )
    parser.add_argument(
        "--inner-folds",
        type=int,
        default=4,
        metavar="K",
        help="that a trial is judged on (default: %(default)s)",
    )
    parser.add_argument(
        "--outer-folds",
        type=int,
        default=3,
        metavar="K",
        help="of the report, a search each; 0 for none (default: %(default)s)",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        default="build/tuned",
        help="the journal, the recipe found and its numbers (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, help="default: the recipe's, 0")
    parser.add_argument("--no-track", action="store_true", help="leave MLflow out")
    parser.add_argument("--json", action="store_true")
    return parser


def tune(arguments: argparse.Namespace) -> int:
    """Search, report, write the recipe."""
    arguments = _checked(_parser(), arguments.rest)
    import_optuna()  # missing is said before minutes of labelling
    recipe = changed(load_recipe(arguments.recipe), name=None, seed=arguments.seed)
    if not recipe.tune:
        raise RecipeError(
            f"{arguments.recipe}: expected a table [tune] such as model.max_depth = "
            f"{{ low = 3, high = 7 }}, found none; searchable: {', '.join(tunable())}"
        )
    measured = read_measured(recipe.data.paths)
    usable, _ = labelled(measured)
    workloads = selected(recipe, usable)
    searches = searches_of(
        recipe, workloads, arguments.inner_folds, arguments.outer_folds
    )
    facts = {
        "recipe_digest": recipe.digest,
        "space": "; ".join(f"{k} {v}" for k, v in recipe.as_space().items()),
        "corpus_digest": measured.digest,
        "schema_hash": SCHEMA.hash,
        "folds": f"{len(searches[0].inner)} inner, {len(searches) - 1} outer",
    }
    print(
        f"{len(searches)} searches of {arguments.trials} trials over "
        f"{len(workloads)} workloads ...",
        file=sys.stderr,
    )
    folder = Path(arguments.output)
    with opened_studies(folder, searches, facts) as studies:
        record = None if arguments.no_track else _Record(recipe, facts, studies[0])
        tuner = Tuner(
            recipe,
            workloads,
            SCHEMA,
            folder,
            say=lambda line: print(line, file=sys.stderr, flush=True),
            after=record.trials if record is not None else lambda _: None,
        )
        made = tuner.run(studies, arguments.trials, arguments.timeout)
        if made.best is None:
            if made.ended == BY_USER:
                raise KeyboardInterrupt
            raise TuningError(
                f"expected a trial to be finished, found none when {made.ended}: give "
                "more time; the same command goes on"
            )
        text = found_recipe(recipe, made, folder)
        answer: dict[str, Any] = {
            "recipe": str(folder / RECIPE),
            **as_facts(made, recipe.tune),
        }
        write_atomically(folder / RECIPE, text)
        search_figure(made, recipe.tune).savefig(folder / PLOT)
        if record is not None:
            answer |= record.end(made, text)
        write_atomically(folder / NUMBERS, json.dumps(answer, indent=1) + "\n")
    if arguments.json:
        print(json.dumps(answer, indent=2, allow_nan=False))
    else:
        show(made, recipe.tune, Console(width=TABLE_WIDTH_COLUMNS))
        print(f"{made.ended}; written: {folder / RECIPE}, {NUMBERS}, {PLOT}")
        if "mlflow_run" in answer:
            print(f"MLflow: run {answer['mlflow_run']} in {answer['mlflow_uri']}")
    if made.ended == BY_USER:
        raise KeyboardInterrupt
    return 0


def _checked(
    parser: argparse.ArgumentParser, rest: Sequence[str]
) -> argparse.Namespace:
    arguments = parser.parse_args(rest)
    for name, low in (("trials", 1), ("inner_folds", 2), ("outer_folds", 0)):
        if getattr(arguments, name) < low:
            parser.error(f"--{name.replace('_', '-')}: expected at least {low}")
    if arguments.outer_folds == 1:
        parser.error("--outer-folds: expected 0 or at least 2")
    if arguments.timeout is not None and not arguments.timeout > 0.0:
        parser.error("--timeout: expected seconds above 0")
    return arguments


class _Record:
    """Records in MLflow; says once where that fails, and does not ask again."""

    def __init__(self, recipe: Recipe, facts: dict[str, str], study: Any) -> None:
        self._record = TuneRecord(recipe, facts, study)
        self._is_lost = False

    def trials(self, rows: Sequence[TrialRow]) -> None:
        """Record finished trials."""
        if self._is_lost:
            return
        try:
            self._record.trials(rows)
        except TrackingError as error:
            self._is_lost = True
            print(f"costmodel: {error}", file=sys.stderr)

    def end(self, made: Any, text: str) -> dict[str, str]:
        """Record what was found; where, for the answer."""
        if self._is_lost:
            return {}
        try:
            uri, run_id = self._record.end(made, text)
        except TrackingError as error:
            print(f"costmodel: {error}", file=sys.stderr)
            return {}
        return {"mlflow_uri": uri, "mlflow_run": run_id}
