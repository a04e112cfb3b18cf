"""`costmodel compare`: two trainings, workload by workload."""

from __future__ import annotations

import argparse
import json

from rich.console import Console

from costmodel.cli_data import TABLE_WIDTH_COLUMNS
from costmodel.training.compare import compare as compare_rows
from costmodel.training.compare_show import as_facts
from costmodel.training.compare_show import figure
from costmodel.training.compare_show import show
from costmodel.training.mlflow_store import opened
from costmodel.training.run_lookup import rows_of
from costmodel.training.run_lookup import run_named


def compare(arguments: argparse.Namespace) -> int:
    """Print, plot or write as JSON what changed between two runs."""
    with opened() as store:
        a = run_named(store, arguments.run_a, arguments.name)
        b = run_named(store, arguments.run_b, arguments.name)
        found = compare_rows(rows_of(store, a), rows_of(store, b))
    if arguments.plot is not None:
        figure(found, arguments.run_a[:24], arguments.run_b[:24]).savefig(
            arguments.plot
        )
    if arguments.json:
        print(json.dumps(as_facts(found, a, b), indent=2))
    else:
        console = Console(width=TABLE_WIDTH_COLUMNS + 40)
        show(found, arguments.run_a, arguments.run_b, console)
    return 0
