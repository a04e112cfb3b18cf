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

from costmodel import __version__
from costmodel.cli_words_data import add_data_commands
from costmodel.cli_words_kernel import add_kernel_commands
from costmodel.cli_words_model import add_model_commands
from costmodel.errors import CostModelError

# MLflow phones home unless told not to; a build tool must not.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

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
    add_data_commands(commands)
    add_model_commands(commands)
    add_kernel_commands(commands)
    return parser


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
