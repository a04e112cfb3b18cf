"""Words of the command line: what measurements come from.

Only options: the commands themselves are imported when they run.
"""

from __future__ import annotations

import argparse
from typing import Any
from typing import TypeAlias

# argparse has no public name for what `add_subparsers` returns.
Commands: TypeAlias = Any


def at_least_one(text: str) -> int:
    """A whole number from 1 up, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found {text!r}")
    return int(text)


def add_data_commands(commands: Commands) -> None:
    """Logs, corpora, recording and benches."""
    audit = commands.add_parser("audit", help="say what logs hold, and what is dropped")
    audit.add_argument("logs", nargs="+", help="log files, base paths or folders")
    audit.add_argument("--json", action="store_true")
    _identity_options(audit)
    audit.set_defaults(run="costmodel.cli_data:audit")

    load = commands.add_parser("import", help="clean logs and append them to a corpus")
    load.add_argument("logs", nargs="+", help="log files, base paths or folders")
    load.add_argument("--corpus", required=True, metavar="DIR")
    load.add_argument("--json", action="store_true")
    load.add_argument(
        "--stream", action="store_true", help="a corpus in parts: memory of one of them"
    )
    load.add_argument(
        "--part-attempts",
        type=at_least_one,
        default=25_000,
        metavar="N",
        help="with --stream: a part's measurements, about (default: %(default)s)",
    )
    _identity_options(load)
    load.set_defaults(run="costmodel.cli_data:import_logs")

    corpus = commands.add_parser("corpus", help="describe or share a stored corpus")
    actions = corpus.add_subparsers(dest="action", required=True, metavar="ACTION")
    describe = actions.add_parser(
        "describe", help="counts, headroom, failures, knobs and noise"
    )
    describe.add_argument("corpus", metavar="DIR")
    describe.add_argument("--json", action="store_true")
    describe.add_argument("--plots", metavar="OUT", help="also write PNG files here")
    describe.set_defaults(run="costmodel.cli_corpus:describe")
    export = actions.add_parser("export", help="write a copy that can be shared")
    export.add_argument("corpus", metavar="DIR")
    export.add_argument("out", metavar="OUT", help="a new folder")
    export.add_argument(
        "--anonymise",
        action="store_true",
        help="rename kernels and variables, drop text, paths, times and serials",
    )
    export.set_defaults(run="costmodel.cli_corpus:export")

    _scale_commands(actions)

    # All its options are read by the command itself, so that `--help` of the others
    # need not import a planner.
    collect = commands.add_parser(
        "collect", help="record a corpus on this machine's GPU", add_help=False
    )
    collect.set_defaults(run="costmodel.cli_collect:collect", takes_rest=True)

    measured = commands.add_parser(
        "bench", help="time picks against Helion's default on a GPU", add_help=False
    )
    measured.set_defaults(run="costmodel.cli_bench:bench", takes_rest=True)


def _scale_commands(actions: Commands) -> None:
    synth = actions.add_parser(
        "synth", help="make up runs that look like a corpus, for testing at scale"
    )
    synth.add_argument("out", metavar="OUT", help="a folder, for logs or for a corpus")
    synth.add_argument("--attempts", type=at_least_one, required=True, metavar="N")
    synth.add_argument(
        "--from",
        dest="source",
        metavar="DIR",
        help="corpus whose kernels are varied (default: the bundled one)",
    )
    synth.add_argument("--seed", type=int, default=0)
    synth.add_argument(
        "--per-run",
        type=at_least_one,
        default=1000,
        metavar="N",
        help="attempts of a workload",
    )
    synth.add_argument(
        "--store", action="store_true", help="write a corpus in parts, and no logs"
    )
    synth.add_argument("--json", action="store_true")
    synth.set_defaults(run="costmodel.cli_scale:synth")

    features = actions.add_parser(
        "features", help="write feature rows and labels as Parquet shards"
    )
    features.add_argument("data", nargs="+", help="corpora, in parts or not, or logs")
    features.add_argument("--out", required=True, metavar="DIR")
    features.add_argument(
        "--shard-rows",
        type=at_least_one,
        default=50_000,
        metavar="N",
        help="rows of a shard",
    )
    features.add_argument("--json", action="store_true")
    features.set_defaults(run="costmodel.cli_scale:features")


def _identity_options(command: argparse.ArgumentParser) -> None:
    """Options for logs of Helion before 1.2, which do not say what they are of."""
    group = command.add_argument_group(
        "logs without a meta file", "what a log is of, where it does not say so itself"
    )
    group.add_argument("--kernel", metavar="NAME")
    group.add_argument(
        "--arg", action="append", default=[], dest="args", metavar="SPEC"
    )
    group.add_argument("--gpu", metavar="NAME")
    group.add_argument("--helion-version", metavar="VERSION")
