"""The `costmodel` command: parse, call, print.

Results go to stdout, progress and logs to stderr. Exit code 0 means done, 1 means an
error a user can act on (one line, never a traceback), 2 means wrong usage. Sub-commands
are imported when called, so that `costmodel --help` does not import torch.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

from costmodel import __version__
from costmodel.errors import CostModelError

# MLflow phones home unless told not to; a build tool must not.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

# argparse has no public name for what `add_subparsers` returns.
Commands: TypeAlias = Any

# Registered name of the model that ships.
MODEL_NAME = "helion-costmodel"

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def build_parser() -> argparse.ArgumentParser:
    """All commands and options."""
    parser = argparse.ArgumentParser(
        prog="costmodel",
        description="Pick Helion kernel configs at compile time, with no benchmark.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="log to stderr what is decided"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _data_commands(commands)
    _model_commands(commands)
    _kernel_commands(commands)
    return parser


def at_least_one(text: str) -> int:
    """A whole number from 1 up, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found {text!r}")
    return int(text)


def _data_commands(commands: Commands) -> None:
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


def _model_commands(commands: Commands) -> None:
    train = commands.add_parser(
        "train", help="train on a corpus or on logs, evaluate, track, publish"
    )
    train.add_argument(
        "data", nargs="*", help="corpus folders or Helion logs, or one recipe.toml"
    )
    train.add_argument(
        "--recipe", metavar="FILE", help="settings for the data of the command line"
    )
    train.add_argument(
        "--output",
        metavar="DIR",
        default="build/model",
        help="where the model is published (default: %(default)s)",
    )
    train.add_argument("--seed", type=int, help="default: the recipe's, 0")
    train.add_argument("--name", help="registered model; default: the recipe's")
    train.add_argument(
        "--base",
        action="append",
        metavar="DIR",
        help="fine-tune: what to start from, a corpus or `bundled`; with --logs",
    )
    train.add_argument(
        "--logs",
        action="extend",
        nargs="+",
        metavar="DIR",
        help="fine-tune: your own logs or corpora, as `costmodel fine-tune` does",
    )
    train.add_argument(
        "--learning-curve",
        action="store_true",
        help="also fit on parts of the data; as report.learning_curve of a recipe",
    )
    train.add_argument(
        "--external-memory",
        action="store_true",
        help="fit from Parquet shards on disk; as scale.external_memory of a recipe",
    )
    train.add_argument(
        "--dask", metavar="ADDRESS", help="fit on the workers of this Dask scheduler"
    )
    train.add_argument("--no-track", action="store_true", help="leave MLflow out")
    train.add_argument("--json", action="store_true")
    train.set_defaults(run="costmodel.cli_model:train")

    evaluate = commands.add_parser(
        "evaluate", help="judge a model on Helion logs it was not trained on"
    )
    evaluate.add_argument("logs", nargs="+", help="log files, base paths or folders")
    evaluate.add_argument("--model", metavar="FILE", help="default: the bundled one")
    evaluate.add_argument(
        "--baseline",
        choices=("auto", "first", "helion"),
        default="auto",
        help="which attempt is Helion's default (default: %(default)s)",
    )
    evaluate.add_argument("--json", action="store_true")
    evaluate.set_defaults(run="costmodel.cli_model:evaluate")

    # Their options are read by the commands themselves.
    for name, text in (
        ("report", "write one page that shows how good the picks are"),
        ("fine-tune", "train on the bundled corpus and your logs, if that helps you"),
        ("monitor", "say when new logs or statistics have left the training"),
        ("tune", "search a recipe's space by regret on families left out"),
    ):
        command = commands.add_parser(name, help=text, add_help=False)
        module, function = f"cli_{name.replace('-', '_')}", name.replace("-", "_")
        command.set_defaults(run=f"costmodel.{module}:{function}", takes_rest=True)

    _registry_commands(commands)

    ui = commands.add_parser("ui", help="open the MLflow page of your experiments")
    ui.add_argument("--port", type=int, default=5000)
    ui.set_defaults(run="costmodel.cli_model:ui")


def _registry_commands(commands: Commands) -> None:
    compared = commands.add_parser(
        "compare", help="say what changed between two trainings, by workload"
    )
    compared.add_argument(
        "run_a", metavar="RUN_A", help="the reference: a run id, champion, NAME/VERSION"
    )
    compared.add_argument("run_b", metavar="RUN_B")
    compared.add_argument(
        "--name", default=MODEL_NAME, help="whose alias a bare one is"
    )
    compared.add_argument("--plot", metavar="FILE", help="also draw it: .png, .svg")
    compared.add_argument("--json", action="store_true")
    compared.set_defaults(run="costmodel.cli_compare:compare")

    fetched = commands.add_parser(
        "fetch-model", help="cache a tracking server's model, for COSTMODEL_MODEL"
    )
    fetched.add_argument("model", metavar="models:/NAME@ALIAS")
    fetched.add_argument("--timeout", type=float, metavar="SECONDS")
    fetched.add_argument("--json", action="store_true")
    fetched.set_defaults(run="costmodel.cli_fetch:fetch_model")

    promote = commands.add_parser(
        "promote",
        help="make the challenger champion if it is better beyond noise",
        epilog="Exit code: 0 promoted, or with --dry-run would be; 3 refused, the "
        "table says by which check; 1 no challenger, no store; 2 wrong usage.",
    )
    promote.add_argument("--name", default=MODEL_NAME, help="registered model")
    promote.add_argument(
        "--recipe", metavar="FILE", help="whose bounds; default: the champion's recipe"
    )
    promote.add_argument("--dry-run", action="store_true", help="judge, move nothing")
    promote.add_argument(
        "--rollback", action="store_true", help="make the champion before champion"
    )
    promote.add_argument("--json", action="store_true")
    promote.set_defaults(run="costmodel.cli_promote:promote")


def _kernel_commands(commands: Commands) -> None:
    for name, text in (
        ("pick", "pick a config for a kernel, with no GPU"),
        ("explain", "say why, against Helion's default"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("kernel", metavar="FILE.py:KERNEL")
        command.add_argument(
            "--arg",
            action="append",
            default=[],
            dest="args",
            metavar="SPEC",
            help="one per argument: 'bf16[4096,5120]', 'f32[64,32]:1,64', 1e-5, [8,8]",
        )
        command.add_argument("--gpu", default="H200", help="default: %(default)s")
        command.add_argument("--model", metavar="FILE", help="default: the bundled one")
        command.add_argument(
            "--verify",
            choices=("compile", "code"),
            help="compile the pick for the GPU, without it, and take the next if it "
            "fails; or compile the best few and choose again by their code",
        )
        command.add_argument(
            "--top",
            type=at_least_one,
            default=16,
            metavar="N",
            help="picks to compile at most",
        )
        command.add_argument("--json", action="store_true")
        command.set_defaults(run=f"costmodel.cli_kernel:{name}")

    # As with `collect`: its options are read by the command itself.
    analysed = commands.add_parser(
        "analyse", help="show what a kernel is: class, loops, tiles", add_help=False
    )
    analysed.set_defaults(run="costmodel.cli_analyse:analyse", takes_rest=True)

    check = commands.add_parser("check", help="compile configs for a GPU without it")
    check.add_argument("kernel", metavar="FILE.py:KERNEL")
    check.add_argument(
        "--arg", action="append", default=[], dest="args", metavar="SPEC"
    )
    check.add_argument(
        "--config",
        action="append",
        default=[],
        dest="configs",
        metavar="JSON",
        help="a Helion config; may be given several times",
    )
    check.add_argument("--default", action="store_true", help="Helion's own config too")
    check.add_argument("--gpu", default="H200", help="default: %(default)s")
    check.add_argument(
        "--time-limit",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="for one config (default: %(default)s)",
    )
    check.add_argument("--json", action="store_true")
    check.set_defaults(run="costmodel.cli_check:check")

    controls = commands.add_parser(
        "acf", help="keep ptxas control files that you have", add_help=False
    )
    controls.set_defaults(run="costmodel.cli_acf:acf", takes_rest=True)

    _serving_commands(commands)

    doctor = commands.add_parser(
        "doctor", help="versions, hooks, model and GPU of this machine"
    )
    doctor.add_argument("--model", metavar="FILE", help="default: the bundled one")
    doctor.add_argument("--json", action="store_true")
    doctor.set_defaults(run="costmodel.cli_kernel:doctor")


def _serving_commands(commands: Commands) -> None:
    export = commands.add_parser(
        "export", help="write configs for many shapes in files that others read"
    )
    export.add_argument("kernel", metavar="FILE.py:KERNEL", nargs="?")
    export.add_argument("--list", metavar="FILE", help="kernels and shapes: TOML, JSON")
    export.add_argument(
        "--shape",
        nargs="+",
        action="append",
        default=[],
        dest="shapes",
        metavar="SPEC",
        help="one set of arguments; sizes may be named: 'bf16[tokens,4096]'",
    )
    export.add_argument(
        "--size",
        action="append",
        default=[],
        dest="sizes",
        metavar="NAME=1,64",
        help="values of a named size; every combination is one shape",
    )
    export.add_argument(
        "--layout",
        choices=("aot", "folders", "kernels", "decorator"),
        default="aot",
        help="aot: Helion's own; folders: KERNEL/GPU.json with keys; kernels: "
        "KERNEL.json with GPUs; decorator: one line to paste (default: %(default)s)",
    )
    export.add_argument("--output", metavar="DIR")
    export.add_argument("--gpu", default="H200", help="default: %(default)s")
    export.add_argument("--gpu-file", metavar="NAME", help="such as nvidia_h200")
    export.add_argument("--max-configs", type=int, metavar="N", help="of each kernel")
    export.add_argument("--model", metavar="FILE", help="default: the bundled one")
    export.add_argument(
        "--candidates",
        action="append",
        default=[],
        metavar="FILE",
        help="a file of configs to choose from as well, such as another GPU's",
    )
    export.add_argument(
        "--for-helion",
        choices=("1.4", "1.5"),
        default="1.5",
        help="who reads the files; 1.4 refuses some knobs (default: %(default)s)",
    )
    export.add_argument("--dry-run", action="store_true", help="write nothing")
    export.add_argument("--json", action="store_true")
    export.set_defaults(run="costmodel.cli_export:export")

    migrate = commands.add_parser(
        "migrate", help="make config files of other Helion versions current"
    )
    migrate.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="JSON, *.best_config, Python source or text with helion.Config(...)",
    )
    migrate.add_argument(
        "--kernel", metavar="FILE.py:KERNEL", help="what the configs are for"
    )
    migrate.add_argument(
        "--arg",
        action="append",
        default=[],
        dest="args",
        metavar="SPEC",
        help="its arguments; sizes may be named as in the entries' keys",
    )
    migrate.add_argument(
        "--size",
        action="append",
        default=[],
        dest="sizes",
        metavar="NAME=64",
        help="a named size, for entries whose key lacks it",
    )
    migrate.add_argument("--gpu", default="H200", help="default: %(default)s")
    migrate.add_argument("--output", metavar="DIR", help="write the current files here")
    migrate.add_argument("--json", action="store_true")
    migrate.set_defaults(run="costmodel.cli_migrate:migrate")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = build_parser()
    arguments, rest = parser.parse_known_args(argv)
    if rest and not getattr(arguments, "takes_rest", False):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    arguments.rest = rest
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO if arguments.verbose else logging.WARNING,
        format="%(message)s",
    )
    module_name, function_name = arguments.run.split(":")
    try:
        module = __import__(module_name, fromlist=[function_name])
        code = getattr(module, function_name)(arguments)
        sys.stdout.flush()
        return int(code or EXIT_OK)
    except CostModelError as error:
        return _fail(str(error))
    except BrokenPipeError:
        # The reader left (`| head`); point stdout elsewhere so that exit stays quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except OSError as error:
        place = error.filename or "the operating system"
        reason = error.strerror or str(error) or type(error).__name__
        return _fail(f"{place}: {reason}; name a place that can be read and written")
    except KeyboardInterrupt as stop:
        # Ctrl-C itself has no text; a command that knows what is kept adds one.
        kept = str(stop) or "what was finished is kept"
        print(f"interrupted; {kept}", file=sys.stderr)
        return EXIT_INTERRUPTED


def _fail(message: str) -> int:
    print(f"costmodel: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_ERROR


if __name__ == "__main__":
    sys.exit(main())
