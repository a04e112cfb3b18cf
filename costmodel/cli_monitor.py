"""`costmodel monitor`: has what is served left what the model was trained for?"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from costmodel.cli_data import TABLE_WIDTH_COLUMNS
from costmodel.cli_data import load
from costmodel.datasets.store import Corpus
from costmodel.datasets.store import is_corpus
from costmodel.errors import CorruptRecordError
from costmodel.json_problem import found_instead
from costmodel.learned import LearnedModel
from costmodel.training.monitor import Check
from costmodel.training.monitor import Verdict
from costmodel.training.monitor import as_json
from costmodel.training.monitor import checks_of_counts
from costmodel.training.monitor import checks_of_runs
from costmodel.training.monitor import metrics_of
from costmodel.training.monitor_runs import SeenRun
from costmodel.training.monitor_runs import seen_runs
from costmodel.training.monitor_runs import seen_workloads
from costmodel.types import ReasonCode

EXIT_DRIFT = 3
_N_SHOWN = 10


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="costmodel monitor",
        description="Say when new logs, or what a provider counted, have left the "
        "model's training range, or realised gains fell below predicted ones.",
        epilog="Exit code: 0 done, drift or none; 3 drift was found and --fail given; "
        "1 input that cannot be used; 2 wrong usage.",
    )
    parser.add_argument("logs", nargs="*", help="new Helion logs or corpus folders")
    parser.add_argument(
        "--stats",
        action="append",
        default=[],
        metavar="FILE",
        help="JSON of `costmodel.stats()`; several, one a process, are added up",
    )
    parser.add_argument("--model", metavar="FILE", help="default: the bundled one")
    parser.add_argument(
        "--track", action="store_true", help="record the values as an MLflow run"
    )
    parser.add_argument(
        "--fail", action="store_true", help=f"exit with {EXIT_DRIFT} on drift"
    )
    parser.add_argument("--json", action="store_true")
    return parser


def monitor(arguments: argparse.Namespace) -> int:
    """Check logs and counters against a model."""
    parser = _parser()
    arguments = parser.parse_args(arguments.rest)
    if not arguments.logs and not arguments.stats:
        parser.error("give logs to look at, or --stats FILE, or both")
    counts: Counter[str] = Counter()
    for path in arguments.stats:
        counts.update(read_counts(Path(path)))
    model = LearnedModel.load(arguments.model)
    runs = _seen(arguments.logs, model)
    checks: list[Check] = []
    if arguments.logs:
        checks += checks_of_runs(runs)
    if arguments.stats:
        checks += checks_of_counts(counts)
    facts = as_json(checks, runs, model.model_id)
    if arguments.track:
        from costmodel.training.monitor_tracking import track_checks

        facts["mlflow_run"] = track_checks(metrics_of(checks), facts)
    if arguments.json:
        print(json.dumps(facts, indent=2, allow_nan=False))
    else:
        _show(checks, runs)
        if "mlflow_run" in facts:
            print(f"MLflow: run {facts['mlflow_run']}")
    return EXIT_DRIFT if arguments.fail and facts["drift"] else 0


def _seen(paths: Sequence[str], model: LearnedModel) -> list[SeenRun]:
    found: list[SeenRun] = []
    logs = []
    for path in paths:
        if is_corpus(Path(path)):
            found += seen_workloads(Corpus.load(path).workloads(), model)
        else:
            logs.append(path)
    if logs:
        found += seen_runs(load(logs).clean_runs, model)
    return found


def read_counts(path: Path) -> dict[str, int]:
    """Counters of one process by reason code.

    Raises:
        CorruptRecordError: Not such counters.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise CorruptRecordError(
            f"{path}: expected the JSON of `costmodel.stats()`, found "
            f"{found_instead(error)}: write json.dumps(costmodel.stats())"
        ) from error
    known = {code.value for code in ReasonCode}
    if not isinstance(content, dict) or not content:
        raise CorruptRecordError(
            f"{path}: expected counts by reason code, found "
            f"{'nothing' if content in ({}, [], None) else type(content).__name__}: "
            "write json.dumps(costmodel.stats())"
        )
    for name, n in content.items():
        is_count = isinstance(n, int) and not isinstance(n, bool) and n >= 0
        if name not in known or not is_count:
            raise CorruptRecordError(
                f"{path}: expected counts by reason code, found {name!r}: "
                f"{str(n)[:40]}: write json.dumps(costmodel.stats())"
            )
    return content


def _show(checks: Sequence[Check], runs: Sequence[SeenRun]) -> None:
    console = Console(width=TABLE_WIDTH_COLUMNS)
    table = Table(title="Checks", title_justify="left")
    table.add_column("check")
    table.add_column("verdict")
    for name in ("value", "limit", "n"):
        table.add_column(name, justify="right")
    table.add_column("detail", overflow="fold")
    for one in checks:
        table.add_row(
            one.name.replace("_", " "),
            one.verdict.value,
            f"{one.value:.3f}" if one.n else "",
            f"{one.limit:.3f}",
            str(one.n),
            one.detail,
            style="bold" if one.verdict is Verdict.DRIFT else "",
        )
    console.print(table)
    odd = [one for one in runs if one.problem or one.is_outside or one.is_harm]
    for run in odd[:_N_SHOWN]:
        print(f"  {run.log} ({run.kernel}): {_why(run)}")
    if len(odd) > _N_SHOWN:
        print(f"  and {len(odd) - _N_SHOWN} more; --json lists all")
    found = [one.name for one in checks if one.verdict is Verdict.DRIFT]
    print(f"drift: {', '.join(found) or 'none found'}")


def _why(one: SeenRun) -> str:
    if one.problem:
        return one.problem
    if one.is_outside:
        return (
            f"{one.outside_share:.0%} of its features outside the training range "
            f"(limit {one.limit:.0%}): {', '.join(one.outside)}"
        )
    return "its pick is slower than the default beyond noise"
