"""A search as tables, as JSON, as a plot and as the recipe that it found."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from costmodel.datasets.locations import is_remote
from costmodel.training.compare import Verdict
from costmodel.training.compare_show import as_facts as compared_facts
from costmodel.training.plots import BLUE
from costmodel.training.plots import GREY
from costmodel.training.plots import ORANGE
from costmodel.training.plots import canvas
from costmodel.training.recipe import Recipe
from costmodel.training.recipe_space import Choices
from costmodel.training.recipe_space import Space
from costmodel.training.recipe_space import Value
from costmodel.training.recipe_space import shown
from costmodel.training.recipe_text import as_toml
from costmodel.training.tune import Tuned
from costmodel.training.tune_folds import ALL
from costmodel.training.tune_study import TrialRow

_N_SHOWN = 10
_READS = {
    Verdict.BETTER: "better beyond noise: tuning this way pays",
    Verdict.WORSE: "worse beyond noise: keep the recipe's own values",
    Verdict.NOISE: "within noise: no evidence that the found values are better than "
    "the recipe's own",
}


def verdict_line(made: Tuned) -> str:
    """What the outer folds say of tuning in this way, in one line."""
    if made.report is None:
        return "no outer fold was judged: nothing is known of families not searched by"
    whole = made.report.overall
    return (
        f"on families that no choice was made by: {whole.ratio:.3f}x "
        f"({whole.low:.3f}-{whole.high:.3f}) the speed of the recipe's own values, "
        f"harm {whole.harm_a:.1%} to {whole.harm_b:.1%}, over {len(made.chosen)} outer "
        f"folds: {_READS[whole.verdict]}"
    )


def show(made: Tuned, space: Space, console: Console) -> None:
    """Print what was found, what each outer fold chose, and the best trials."""
    assert made.best is not None
    table = Table(title="Values", title_justify="left")
    table.add_column("parameter")
    table.add_column("searched", overflow="fold")
    table.add_column("recipe", justify="right")
    table.add_column("found", justify="right")
    for number in range(len(made.chosen)):
        table.add_column(f"fold {number}", justify="right")
    for name, domain in space.items():
        values = [made.own[name], made.best.values[name]]
        values += [one.values[name] for one in made.chosen]
        cells = [shown(domain), *map(shown, values)]
        # A list of names would be taken for a style.
        table.add_row(name, *map(escape, cells))
    console.print(table)
    console.print(_trial_table(made))
    console.print(verdict_line(made), highlight=False)


def _trial_table(made: Tuned) -> Table:
    mine = [one for one in made.trials if one.search == ALL]
    complete = sorted(
        (one for one in mine if one.loss is not None),
        key=lambda one: (one.loss, one.number),
    )
    n_stopped = len(mine) - len(complete)
    table = Table(
        title=f"Best of {len(mine)} trials ({n_stopped} stopped early), all families",
        title_justify="left",
    )
    for name in ("trial", "regret", "speed-up", "harm", "seconds"):
        table.add_column(name, justify="right")
    table.add_column("differs from the recipe in", overflow="fold")
    for one in complete[:_N_SHOWN]:
        changed = [
            f"{name.rpartition('.')[2]} {shown(value)}"
            for name, value in one.values.items()
            if value != made.own[name]
        ]
        table.add_row(
            str(one.number),
            f"{one.facts['regret']:.2%}",
            f"{one.facts['speedup']:.3f}x",
            f"{one.facts['harm_share']:.1%}",
            f"{one.facts['seconds']:.0f}",
            escape(", ".join(changed)) or "nothing",
        )
    return table


def as_facts(made: Tuned, space: Space) -> dict[str, Any]:
    """Everything as plain values, for JSON."""
    return {
        "ended": made.ended,
        "verdict": verdict_line(made),
        "space": {name: shown(domain) for name, domain in space.items()},
        "own": _plain(made.own),
        "best": None if made.best is None else _row(made.best),
        "chosen_by_fold": [_row(one) for one in made.chosen],
        "outer_folds": None
        if made.report is None
        else compared_facts(made.report, "own values", "chosen values"),
        "trials": [_row(one) for one in made.trials],
    }


def _row(one: TrialRow) -> dict[str, Any]:
    return {
        "search": one.search,
        "number": one.number,
        "state": one.state,
        "loss": one.loss,
        "values": _plain(one.values),
        **one.facts,
    }


def _plain(values: Any) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
    }


def found_recipe(recipe: Recipe, made: Tuned, folder: Path) -> str:
    """The recipe with the best values, as TOML, with paths as seen from a folder.

    Args:
        recipe: What was searched.
        made: What was found.
        folder: Where the text is to be written.
    """
    assert made.best is not None
    assert made.first is not None
    best = recipe.with_values(made.best.values)
    paths = tuple(
        one if is_remote(one) else os.path.relpath(one, folder)
        for one in best.data.paths
    )
    best = replace(best, data=replace(best.data, paths=paths), text="")
    n_mine = sum(one.search == ALL for one in made.trials)
    head = [
        f"Found by `costmodel tune` in {n_mine} trials ({made.ended}).",
        f"Regret on families left out: {made.best.facts['regret']:.2%}, with the "
        f"recipe's own values {made.first.facts['regret']:.2%}.",
        f"{verdict_line(made)[0].upper()}{verdict_line(made)[1:]}.",
    ]
    return "".join(f"# {line}\n" for line in head) + as_toml(best)


def search_figure(made: Tuned, space: Space) -> Figure:
    """Regret by trial, then over each parameter; all searches, the first in colour."""
    names = list(space)
    n_columns = min(3, len(names) + 1)
    n_lines = -(-(len(names) + 1) // n_columns)
    figure, axes = canvas(3.6 * n_columns, 2.9 * n_lines)
    axes.remove()
    mine = [one for one in made.trials if one.loss is not None and one.search == ALL]
    others = [one for one in made.trials if one.loss is not None and one.search != ALL]
    first = figure.add_subplot(n_lines, n_columns, 1)
    regrets = _regrets(mine)
    first.plot([one.number for one in mine], regrets, "o", color=BLUE, markersize=4)
    best = [min(regrets[: i + 1]) for i in range(len(regrets))]
    first.step(
        [one.number for one in mine], best, where="post", color=ORANGE, label="best"
    )
    first.set_xlabel("trial")
    first.legend(fontsize=9)
    for number, name in enumerate(names):
        part = figure.add_subplot(n_lines, n_columns, number + 2, sharey=first)
        domain = space[name]
        if isinstance(domain, Choices):
            ticks = [shown(one) for one in domain.values]
            part.set_xticks(range(len(ticks)), ticks, fontsize=8)
        elif domain.log:
            part.set_xscale("log")
            at = np.geomspace(domain.low, domain.high, 4)
            part.set_xticks(at, [f"{one:.2g}" for one in at])
            part.minorticks_off()
        for some, colour in ((others, GREY), (mine, BLUE)):
            places = [_place(domain, one.values[name]) for one in some]
            part.plot(places, _regrets(some), "o", color=colour, markersize=4)
        own = _place(domain, made.own[name])
        part.axvline(own, color=GREY, linestyle="--", linewidth=1.0)
        part.set_xlabel(name)
    for part in figure.axes:
        part.grid(alpha=0.3)
    figure.supylabel("regret on families left out, %", fontsize=10)
    figure.suptitle(
        "Blue: all families; grey: searches of outer folds; dashed: the recipe's own",
        fontsize=10,
    )
    return figure


def _regrets(rows: Sequence[TrialRow]) -> list[float]:
    return [100.0 * one.facts["regret"] for one in rows]


def _place(domain: Any, value: Value) -> float:
    if isinstance(domain, Choices):
        return float(domain.values.index(value))
    assert isinstance(value, int | float)
    return float(value)
