"""Words of the command line: what is made of measurements.

Only options: the commands themselves are imported when they run.
"""

from __future__ import annotations

from typing import Any
from typing import TypeAlias

MODEL_NAME = "helion-costmodel"
"""Registered name of the model that ships."""

# argparse has no public name for what `add_subparsers` returns.
Commands: TypeAlias = Any


def add_model_commands(commands: Commands) -> None:
    """Training, judging, tracking and promoting."""
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
