"""`costmodel fine-tune`: the bundled corpus and your own logs, if that helps you."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from costmodel.cli_data import TABLE_WIDTH_COLUMNS
from costmodel.cli_measured import audit_text
from costmodel.cli_measured import compiled_runs
from costmodel.cli_measured import git_commit
from costmodel.cli_measured import labelled
from costmodel.cli_measured import read_measured
from costmodel.cli_pairs import publish_pair_model
from costmodel.cli_recipe import changed
from costmodel.cli_record import recorded
from costmodel.cli_record import show_recorded
from costmodel.datasets import store
from costmodel.errors import CorruptRecordError
from costmodel.errors import RecipeError
from costmodel.features.schema import SCHEMA
from costmodel.training.fine_tune import WEIGHTS
from costmodel.training.fine_tune import FineTuned
from costmodel.training.fine_tune import fine_tune as fine_tuned
from costmodel.training.fine_tune_record import as_facts
from costmodel.training.fine_tune_record import fine_tune_extra
from costmodel.training.no_worse import Part
from costmodel.training.plan import selected
from costmodel.training.publish import publish
from costmodel.training.recipe import Recipe
from costmodel.training.recipe import load_recipe
from costmodel.training.run_extra import Input

BUNDLED = "bundled"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="costmodel fine-tune",
        description="Train on a base corpus and your own logs. Kernels and shapes of "
        "yours are left out crosswise and compared before and after, and so are the "
        "families of the base; what is published is never worse at either.",
    )
    parser.add_argument("logs", nargs="+", help="your Helion logs or corpus folders")
    parser.add_argument(
        "--base",
        action="append",
        metavar="DIR",
        help="corpora or logs to start from (default: bundled, the corpus that the "
        "shipped model learned from)",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        default="build/fine-tuned",
        help="where the model is published (default: %(default)s)",
    )
    parser.add_argument(
        "--weight",
        type=float,
        metavar="W",
        help="a workload of yours counts as W of the base (default: "
        f"{', then '.join(f'{one:g}' for one in WEIGHTS)} if that hurts)",
    )
    parser.add_argument(
        "--recipe", metavar="FILE", help="numbers of the fit, gate and second stage"
    )
    parser.add_argument("--name", help="registered model; default: the recipe's")
    parser.add_argument("--seed", type=int, help="default: the recipe's, 0")
    parser.add_argument("--no-track", action="store_true", help="leave MLflow out")
    parser.add_argument("--json", action="store_true")
    return parser


def bundled_corpora() -> list[str]:
    """Corpora that lie beside the package: those of a checkout, none of a wheel's.

    Raises:
        CorruptRecordError: There are none.
    """
    folder = Path(store.__file__).resolve().parent / "corpora"
    found = sorted(str(one) for one in folder.glob("*") if store.is_corpus(one))
    if not found:
        raise CorruptRecordError(
            f"expected the bundled corpus under {folder}, found none (wheels carry the "
            "model and not its data): name a corpus with --base"
        )
    return found


def fine_tune(arguments: argparse.Namespace) -> int:
    """Combine, compare, publish what does not hurt."""
    parser = _parser()
    arguments = parser.parse_args(arguments.rest)
    if arguments.weight is not None and not 0.0 < arguments.weight <= 100.0:
        parser.error("--weight: expected a number above 0 and up to 100")
    return run_fine_tune(
        arguments.logs,
        arguments.base or [BUNDLED],
        tuned_recipe(arguments.recipe, arguments.name, arguments.seed),
        Path(arguments.output),
        weights=WEIGHTS if arguments.weight is None else (arguments.weight,),
        is_tracked=not arguments.no_track,
        as_json=arguments.json,
    )


def tuned_recipe(path: str | None, name: str | None, seed: int | None) -> Recipe:
    """The settings of a fine-tuning; its data are those of the command line.

    Raises:
        RecipeError: The recipe means nothing, or says what a fine-tuning decides.
    """
    recipe = Recipe() if path is None else load_recipe(path)
    if recipe.split.folds:
        raise RecipeError(
            f"{path}: expected no split.folds for a fine-tuning, which leaves out "
            "families of the base and kernels of your logs in turn"
        )
    return changed(recipe, name=name, seed=seed)


def run_fine_tune(
    logs: Sequence[str],
    base: Sequence[str],
    recipe: Recipe,
    output: Path,
    *,
    weights: Sequence[float],
    is_tracked: bool,
    as_json: bool,
) -> int:
    """Combine logs with a base, compare, publish what does not hurt, and record it.

    Args:
        logs: The user's logs or corpora.
        base: Corpora or logs to start from; "bundled" for those of the checkout.
        recipe: Numbers of the training.
        output: Folder of the published model.
        weights: Of a workload of the user's, in the order to be tried.
        is_tracked: Whether MLflow records it.
        as_json: Whether the answer is for a script.
    """
    base_paths = [
        path
        for one in base
        for path in (bundled_corpora() if one == BUNDLED else [one])
    ]
    # The user's first: what is wrong with them is said before minutes of labelling.
    mine = read_measured(logs)
    own, own_skipped = labelled(mine)
    start = read_measured(base_paths)
    others, skipped = labelled(start)
    others = selected(recipe, others)
    both = start.with_(mine)
    print(
        f"fine-tuning {len(others)} workloads with {len(own)} of yours ...",
        file=sys.stderr,
    )
    made = fine_tuned(
        others,
        own,
        SCHEMA,
        both.digest,
        recipe,
        weights=weights,
        git_commit=git_commit(),
        compiled=compiled_runs(both),
    )
    path = publish(made.training, output)
    facts = _facts(made, path)
    facts |= publish_pair_model(both.recorded, path)
    if is_tracked:
        extra = fine_tune_extra(
            made,
            Input(start.name, start.digest, others, "base"),
            Input(mine.name, mine.digest, own, "fine-tuning"),
        )
        facts |= recorded(
            made.training,
            made.learned_from,
            both,
            audit_text(both.audit, [*skipped, *own_skipped]),
            path,
            recipe,
            extra,
        )
    if as_json:
        print(json.dumps(facts, indent=2, allow_nan=False))
        return 0
    _show(made, facts)
    show_recorded(facts)
    return 0


def _facts(made: FineTuned, path: Path) -> dict[str, Any]:
    return {
        "model": str(path),
        "model_id": made.training.model.model_id,
        "weight": made.weight,
        "n_mine": made.n_mine,
        "n_replaced": made.n_replaced,
        "n_repeated": made.n_repeated,
        "attempts": as_facts(made),
    }


def _show(made: FineTuned, facts: dict[str, Any]) -> None:
    console = Console(width=TABLE_WIDTH_COLUMNS)
    for attempt in made.attempts:
        console.print(_table(attempt.weight, attempt.parts))
        if attempt.refusal:
            print(f"weight {attempt.weight:g} is not kept: {attempt.refusal}")
        else:
            _show_changes(attempt.parts)
    if not any(one.found.workloads for a in made.attempts for one in a.parts[:-1]):
        print(
            "Your kernels cannot be left out crosswise: that takes two kernels, or two "
            "shapes of one. What is shown is only that others are not hurt."
        )
    if made.n_replaced or made.n_repeated:
        print(
            f"{made.n_replaced} workloads of the base were replaced by yours, "
            f"{made.n_repeated} of your runs were given twice"
        )
    kept = (
        f"with your logs, weight {made.weight:g}"
        if made.weight
        else "the base alone: your logs did not help, and nothing is lost"
    )
    print(f"published: {facts['model']} (model {facts['model_id']}), {kept}")


def _table(weight: float, parts: Sequence[Part]) -> Table:
    table = Table(title=f"Before and after, weight {weight:g}", title_justify="left")
    table.add_column("judged on")
    for name in ("n", "before", "after", "change", "95% interval", "better", "worse"):
        table.add_column(name, justify="right")
    table.add_column("slower than default", justify="right")
    for one in parts:
        row = one.as_json()
        table.add_row(
            one.name,
            str(row["n"]),
            f"{row['before']:.3f}x",
            f"{row['after']:.3f}x",
            f"{row['change']:.3f}x",
            f"{row['change_low']:.3f}-{row['change_high']:.3f}",
            str(row["n_better"]),
            str(row["n_worse"]),
            f"{row['n_harmed_before']} to {row['n_harmed_after']}",
        )
    return table


def _show_changes(parts: Sequence[Part]) -> None:
    """Each workload that is better or worse beyond noise, five of a kind."""
    for one in parts:
        changed = one.as_json()["changed"]
        for words, better in (("worse", False), ("better", True)):
            mine = [row for row in changed if row["is_better"] is better]
            for row in mine[-5:] if better else mine[:5]:
                print(
                    f"  {words}: {row['kernel']} ({row['family']}): "
                    f"{row['before']:.3f}x to {row['after']:.3f}x of {row['best']:.3f}x"
                )
