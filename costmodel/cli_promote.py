"""`costmodel promote`: make the challenger champion, or say why not."""

from __future__ import annotations

import argparse
import dataclasses
import json

from rich.console import Console
from rich.table import Table

from costmodel.cli_data import TABLE_WIDTH_COLUMNS
from costmodel.training.mlflow_store import opened
from costmodel.training.promote import Promotion
from costmodel.training.promote import promote as promote_challenger
from costmodel.training.promote import rollback
from costmodel.training.recipe import load_recipe

# A refusal is a result and no error, so that a script tells "not better" from "no
# server": as `monitor --fail` does.
EXIT_REFUSED = 3


def promote(arguments: argparse.Namespace) -> int:
    """Judge the challenger and move the alias; 3 where it is refused."""
    if arguments.rollback:
        return _rollback(arguments)
    bounds = load_recipe(arguments.recipe).bounds if arguments.recipe else None
    with opened() as store:
        found = promote_challenger(
            store, arguments.name, bounds=bounds, dry_run=arguments.dry_run
        )
    if arguments.json:
        facts = dataclasses.asdict(found) | {"ok": found.ok}
        print(json.dumps(facts, indent=2))
    else:
        _show(found, arguments.dry_run)
    return 0 if found.ok else EXIT_REFUSED


def _rollback(arguments: argparse.Namespace) -> int:
    with opened() as store:
        gone, back = rollback(store, arguments.name, dry_run=arguments.dry_run)
    if arguments.json:
        facts = {"gone": gone, "champion": back, "moved": not arguments.dry_run}
        print(json.dumps(facts, indent=2))
        return 0
    word = "would be" if arguments.dry_run else "is"
    print(f"{arguments.name}: version {back} {word} champion again, {gone} is not")
    return 0


def _show(found: Promotion, dry_run: bool) -> None:
    against = f"champion version {found.champion}" if found.champion else "no champion"
    table = Table(
        title=f"{found.name}: challenger version {found.challenger} against {against}",
        title_justify="left",
    )
    table.add_column("check", overflow="fold")
    table.add_column("")
    table.add_column("found", overflow="fold")
    table.add_column("demanded", overflow="fold")
    for one in found.checks:
        words = "ok" if one.ok else "refused"
        style = "" if one.ok else "red"
        table.add_row(one.name, words, one.found, one.demanded, style=style)
    console = Console(width=TABLE_WIDTH_COLUMNS)
    console.print(table)
    if not found.ok:
        n_refused = sum(not one.ok for one in found.checks)
        end = f"refused by {n_refused} of {len(found.checks)} checks; champion stays"
    elif dry_run:
        end = "would be promoted (dry run: nothing was moved)"
    else:
        end = "promoted; `costmodel promote --rollback` undoes it"
    console.print(end, highlight=False)
