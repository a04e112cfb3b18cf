"""Commands about a stored corpus: describe and export."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from costmodel.cli_data import TABLE_WIDTH_COLUMNS
from costmodel.cli_data import class_of
from costmodel.datasets.anonymise import export as write_anonymised
from costmodel.datasets.describe import Description
from costmodel.datasets.describe import Group
from costmodel.datasets.describe import description_of
from costmodel.datasets.describe import run_facts
from costmodel.datasets.locations import folder_of
from costmodel.datasets.locations import inputs
from costmodel.datasets.locations import join
from costmodel.datasets.store import RUNS_FILE
from costmodel.datasets.store import Corpus
from costmodel.datasets.store_schema import record_of
from costmodel.datasets.stream_store import is_parted
from costmodel.errors import StoreError


def describe(arguments: argparse.Namespace) -> int:
    """Counts, headroom, failures, knobs and noise of a corpus."""
    corpus = _in_one_piece(arguments.corpus)
    facts = run_facts(corpus, _class_of_row)
    described = description_of(facts, corpus.digest)
    if arguments.json:
        print(json.dumps(described.as_json(), indent=2))
    else:
        _show(described)
    if arguments.plots:
        # Matplotlib is slow to import, and not everybody has it.
        from costmodel.datasets.describe_plots import write_plots

        for plot in write_plots(facts, described, Path(arguments.plots)):
            print(f"written: {plot}", file=sys.stderr)
    return 0


def export(arguments: argparse.Namespace) -> int:
    """Write a copy of a corpus that can be shared."""
    if not arguments.anonymise:
        raise StoreError(
            f"{arguments.corpus}: expected --anonymise, found none: a corpus as it is "
            "can be copied as a folder"
        )
    corpus = _in_one_piece(arguments.corpus)
    with folder_of(arguments.out, last=(RUNS_FILE,)) as folder:
        made = write_anonymised(corpus, Path(folder))
    for line in made.left_out:
        print(f"costmodel: left out: {line}", file=sys.stderr)
    print(
        f"{arguments.out}: {len(made.runs)} runs with {len(made.attempts)} "
        f"measurements, {len(made.left_out)} left out; names, text, paths, dates and "
        "serials are gone, shapes and numbers stay"
    )
    return 0


def _in_one_piece(location: str) -> Corpus:
    """A corpus, wherever it lies.

    Raises:
        StoreError: It is in parts, which are more than these commands can hold.
    """
    with inputs([location]) as (path,):
        if is_parted(Path(path)):
            raise StoreError(
                f"{location}: expected a corpus in one piece, found one in parts: name "
                f"one of them, such as {join(location, 'part-00000')}"
            )
        return Corpus.load(path)


def _class_of_row(run: Mapping[str, Any]) -> str:
    return class_of(record_of(run))


def _show(described: Description) -> None:
    console = Console(width=TABLE_WIDTH_COLUMNS, highlight=False, soft_wrap=True)
    console.print(
        f"{described.n_workloads} workloads of {described.n_kernels} kernels "
        f"({described.n_kernels_with_shapes} with three shapes or more) in "
        f"{described.n_families} families; {described.n_attempts} attempts, "
        f"{described.n_measurements} measurements; digest {described.digest[:12]}"
    )
    for title, counts in (
        ("gpu", described.gpus),
        ("regime", described.regimes),
        ("rule of Helion's", described.promoted),
        ("status", described.statuses),
        ("label", described.label_quality),
        *described.versions.items(),
    ):
        console.print(f"{title}: {_words(counts)}")
    console.print(
        f"re-timed interleaved: {described.n_retimed} runs, "
        f"{described.n_readings_interleaved} readings, at least "
        f"{described.fewest_rounds} of each leader"
    )
    for regime, noise in described.noise_log.items():
        console.print(
            f"noise of {regime}: {100 * noise['p50']:.2f} % median, "
            f"{100 * noise['p90']:.2f} % at the 90th percentile, "
            f"{100 * noise['max']:.2f} % at most"
        )
    console.print(_group_table("class", described.classes))
    console.print(_group_table("family", described.families))
    console.print(_group_table("rule of Helion's", described.rules))
    console.print(
        f"headroom of all: {_or_dash(described.headroom, 3)} over "
        f"{described.n_judged} runs"
    )
    if not described.n_judged:
        console.print(
            "no run has a headroom (-): none of their defaults was re-timed "
            "interleaved, which `costmodel collect` and `costmodel bench import` do"
        )
    for line in described.without_default:
        console.print(f"no headroom: {line}", markup=False)


def _group_table(title: str, groups: tuple[Group, ...]) -> Table:
    table = Table(title=f"Headroom by {title}", title_justify="left")
    table.add_column(title)
    for name in ("workloads", "kernels", "judged", "headroom", "largest", "failed"):
        table.add_column(name, justify="right")
    for one in groups:
        table.add_row(
            one.name,
            str(one.n_workloads),
            str(one.n_kernels),
            str(one.n_judged),
            _or_dash(one.headroom, 3),
            _or_dash(one.headroom_max, 2),
            f"{one.failed_share:.1%}",
        )
    return table


def _or_dash(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in counts.items()) or "none"
