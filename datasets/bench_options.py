"""Options of measuring a bench; reading them needs no GPU."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from costmodel.datasets.bench_measure import BenchLimits

_WORKERS = 5  # one times for a part of its cycle; the others bind and compile


def add_options(made: argparse.ArgumentParser) -> None:
    """Options of measuring; reading them needs no GPU."""
    limits = BenchLimits()
    add = made.add_argument
    add("plan", type=Path, help="plan.jsonl of `costmodel bench plan`")
    add("-o", "--output", type=Path, required=True, help="folder for the results")
    add_measuring_options(made)
    add(
        "--shard",
        type=_shard,
        default=(0, 1),
        metavar="I/N",
        help="every N-th workload from I; one process for each GPU",
    )
    add("--limit", type=_whole, help="only the first of the plan's workloads")
    add(
        "--skip",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="results, or a folder of them, whose workloads are not measured again",
    )
    add("--dry-run", action="store_true", help="say what would be measured; no GPU")
    add("--workers", type=_whole, default=_WORKERS, help="default: %(default)s")
    add("--compile-jobs", type=_whole, help="configs that one worker compiles at once")
    add("--work", type=Path, help="folder for caches; default: a new temporary one")
    add("--first-seconds", type=float, default=limits.first_s, help=argparse.SUPPRESS)


def add_measuring_options(made: argparse.ArgumentParser) -> None:
    """Those that the command that does all steps shares."""
    limits = BenchLimits()
    add = made.add_argument
    add("--seconds", type=_seconds, default=540.0, help="stop by the clock after this")
    add("--rounds", type=_whole, default=limits.n_rounds, help="interleaved rounds")
    add("--round-seconds", type=float, default=limits.rounds_s, help=argparse.SUPPRESS)
    add(
        "--autotune-seconds",
        type=_no_less,
        default=0.0,
        metavar="S",
        help="let Helion search for so long, at effort quick (default: not at all)",
    )
    add(
        "--autotune-limit",
        type=_whole,
        default=8,
        metavar="K",
        help="on so many workloads, spread over the plan (default: %(default)s)",
    )
    add(
        "--autotune-configs",
        type=_whole,
        default=120,
        metavar="N",
        help="and over so many configs at most (default: %(default)s)",
    )
    add(
        "--foreign",
        action="append",
        default=[],
        metavar="KERNEL=FILE.py:FUNCTION",
        help="a further implementation, called with the kernel's arguments",
    )


def _seconds(text: str) -> float:
    return _number(text, 1.0)


def _no_less(text: str) -> float:
    return _number(text, 0.0)


def _number(text: str, least: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number < math.inf:
        raise argparse.ArgumentTypeError(f"expected {least:g} or more, found {text!r}")
    return number


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"expected a whole number, 1 or more, found {text!r}"
        )
    return int(text)


def _shard(text: str) -> tuple[int, int]:
    index, slash, count = text.partition("/")
    if not (slash and index.isdigit() and count.isdigit() and int(index) < int(count)):
        raise argparse.ArgumentTypeError(f"expected I/N with I < N, found {text!r}")
    return int(index), int(count)
