"""`costmodel report`: judge on families left out, and write the page."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from costmodel.atomic_file import write_atomically
from costmodel.cli_measured import git_commit
from costmodel.cli_measured import labelled
from costmodel.cli_measured import read_measured
from costmodel.errors import CorruptRecordError
from costmodel.errors import StoreError
from costmodel.features.schema import SCHEMA
from costmodel.json_problem import found_instead
from costmodel.training.crossfit import cross_fit
from costmodel.training.crossfit import family_folds
from costmodel.training.fit import FitSettings
from costmodel.training.judge import judge
from costmodel.training.page import page
from costmodel.training.page_data import PAGE_FORMAT
from costmodel.training.page_data import Json
from costmodel.training.page_data import page_data
from costmodel.training.page_data import shape_labels
from costmodel.training.train import BLOCK_PROTOCOL
from costmodel.training.train import FAMILY_PROTOCOL

_RULES = {
    "with": "Helion has a rule",
    "without": "Helion has no rule",
    "all": "all",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="costmodel report",
        description="Judge on families left out, and write one page that shows it.",
    )
    parser.add_argument("data", nargs="*", help="corpus folders or Helion logs")
    parser.add_argument(
        "--output",
        metavar="FILE",
        default="report.html",
        help="the page (default: %(default)s)",
    )
    parser.add_argument(
        "--numbers",
        metavar="FILE",
        help="draw from what --json printed before; judges nothing",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--json", action="store_true", help="also print the numbers behind the page"
    )
    return parser


def report(arguments: argparse.Namespace) -> int:
    """Write the page of an evaluation, and its numbers where they are asked for."""
    parser = _parser()
    arguments = parser.parse_args(arguments.rest)
    if bool(arguments.data) == bool(arguments.numbers):
        parser.error("give corpora or logs to judge, or --numbers FILE, and not both")
    output = Path(arguments.output)
    if not output.parent.is_dir():
        raise StoreError(
            f"expected a folder to write {output.name} into, found no {output.parent}: "
            "make it or pass another --output"
        )
    data = _read(Path(arguments.numbers)) if arguments.numbers else _judged(arguments)
    write_atomically(output, _drawn(data, arguments.numbers or "the evaluation"))
    if arguments.json:
        print(json.dumps(data, indent=1, allow_nan=False))
        return 0
    for one in data["headline"]:
        print(
            f"{_RULES[one['rule']]}: {one['n']} workloads, "
            f"{one['speedup']:.3f}x ({one['low']:.2f}-{one['high']:.2f}), "
            f"{one['n_harmed']} slower beyond noise"
        )
    print(f"written: {output} ({output.stat().st_size / 1000:.0f} kB)")
    return 0


def _judged(arguments: argparse.Namespace) -> Json:
    """Cross-fit over families and judge; the same protocol as `costmodel train`."""
    measured = read_measured(arguments.data)
    workloads, _ = labelled(measured)
    folds = family_folds(workloads)
    print(f"judging {len(workloads)} workloads, {len(folds)} fits ...", file=sys.stderr)
    settings = FitSettings(seed=arguments.seed)
    results = cross_fit(workloads, folds, SCHEMA, settings)
    in_blocks = len(folds) < len({one.family for one in workloads})
    protocol = BLOCK_PROTOCOL if in_blocks else FAMILY_PROTOCOL
    return page_data(
        judge(protocol, results, SCHEMA),
        results,
        SCHEMA,
        corpus_digest=measured.digest,
        labels=shape_labels(measured.recorded),
        facts={"commit": git_commit(), "seed": str(arguments.seed)},
    )


def _read(path: Path) -> Json:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptRecordError(
            f"{path}: expected the output of `costmodel report --json`, found "
            f"{found_instead(error)}: write it with `costmodel report DATA --json`"
        ) from error
    if not isinstance(data, dict) or data.get("page_format") != PAGE_FORMAT:
        raise CorruptRecordError(
            f"{path}: expected page numbers of format {PAGE_FORMAT}: make them again "
            "with `costmodel report --json`"
        )
    return data


def _drawn(data: Json, name: str) -> str:
    try:
        return page(data)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise CorruptRecordError(
            f"{name}: expected page numbers, found something else "
            f"({type(error).__name__}: {error}): make them again with "
            "`costmodel report --json`"
        ) from error
