"""Command `collect`: record a corpus on this machine's GPU, or plan one without."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

from costmodel.datasets import collect as collector
from costmodel.errors import CorruptRecordError
from costmodel.errors import CostModelError


def collect(arguments: argparse.Namespace) -> int:
    """Record, plan (`--dry-run`), or choose what to record next (`--next`)."""
    options = _parser().parse_args(arguments.rest)
    lists = [one for one in (options.order, options.plan) if one is not None]
    for path in (*options.skip, *lists):
        if not Path(path).is_file():
            raise CorruptRecordError(
                f"{path}: expected a file of workload ids or an archive, found none: "
                "make a list with `costmodel collect OUT --dry-run`"
            )
    if options.next is None and not options.dry_run:
        _require_gpu()
    with collector.local_out(options) as options:
        if options.next is not None:
            from costmodel.cli_next import choose_next

            return choose_next(options)
        return collector.run(options)


def _parser() -> argparse.ArgumentParser:
    parser = collector.parser()
    group = parser.add_argument_group("choosing what to record next (needs no GPU)")
    group.add_argument(
        "--next",
        type=int,
        metavar="N",
        help="write OUT/next.jsonl: the N measurements that teach --model most",
    )
    group.add_argument("--model", metavar="FILE", help="default: the bundled one")
    group.add_argument(
        "--corpus", metavar="DIR", help="a corpus whose workloads are known already"
    )
    return parser


def _require_gpu() -> None:
    """Say so at once where no recording is possible.

    Raises:
        CostModelError: No CUDA device.
    """
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            return
    raise CostModelError(
        "expected a CUDA GPU to record on, found none: add --dry-run to print the "
        "plan, or run this on the GPU's machine"
    )
