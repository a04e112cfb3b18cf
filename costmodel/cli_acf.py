"""The command about ptxas control files: add, list, verify, effects, remove."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from costmodel import cli_acf_effects
from costmodel.acf import entry as entries_
from costmodel.acf.adding import SKIPPED
from costmodel.acf.adding import AddReport
from costmodel.acf.adding import VerifyReport
from costmodel.acf.catalogue import DIR_VARIABLE
from costmodel.acf.catalogue import AcfCatalogue
from costmodel.acf.entry import AcfEntry
from costmodel.acf.probe import DEFAULT_LIMIT_S
from costmodel.acf.probe import Probe
from costmodel.acf.probe import ProbeStatus
from costmodel.acf.toolchain import PtxasTool
from costmodel.acf.toolchain import find_ptxas
from costmodel.acf.toolchain import how_to_get
from costmodel.acf.toolchain import ptxas_at
from costmodel.acf.toolchain import triton_ptxas
from costmodel.errors import AcfSourceError
from costmodel.errors import NoAcfToolchainError
from costmodel.hardware import Hardware
from costmodel.hardware import load_hardware

_WIDTH = 100  # characters; a table in a log must not depend on a terminal
_SHORT_DIGITS = 12  # of a digest, for people


def acf(arguments: argparse.Namespace) -> int:
    """Run `costmodel acf ACTION`."""
    parsed = _parser().parse_args(arguments.rest)
    return int(parsed.action_of(parsed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="costmodel acf",
        description="Keep control files for ptxas (ACFs) that you have.",
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    add = actions.add_parser("add", help="try control files and keep what passes")
    add.add_argument("source", metavar="DIR|FILE", type=Path)
    _trial_options(add)
    add.set_defaults(action_of=_add)

    shown = actions.add_parser("list", help="show what is kept, and for what")
    shown.add_argument("--kernel", metavar="NAME", help="only those meant for it")
    shown.add_argument("--gpu", metavar="NAME", help="only those meant for it")
    _common_options(shown)
    shown.set_defaults(action_of=_list)

    verify = actions.add_parser("verify", help="try again what is kept")
    _trial_options(verify)
    verify.set_defaults(action_of=_verify)

    effect = actions.add_parser("effects", help="show what they do to a kernel's code")
    cli_acf_effects.add_options(effect)
    _common_options(effect)
    effect.set_defaults(action_of=cli_acf_effects.effects)

    remove = actions.add_parser("remove", help="forget one")
    remove.add_argument("acf_id", metavar="DIGEST", help="its first digits are enough")
    _common_options(remove)
    remove.set_defaults(action_of=_remove)
    return parser


def _common_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--dir", type=Path, help=f"the catalogue; default: {DIR_VARIABLE}, else cache"
    )
    command.add_argument("--json", action="store_true")


def _trial_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--ptxas", metavar="FILE", type=Path, help="default: the one Triton would run"
    )
    command.add_argument("--gpu", default="H200", help="default: %(default)s")
    command.add_argument(
        "--ptx",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="try them on this program as well; may be given several times",
    )
    command.add_argument(
        "--time-limit",
        type=float,
        default=DEFAULT_LIMIT_S,
        metavar="SECONDS",
        help="for one program and file (default: %(default)s)",
    )
    _common_options(command)


def _add(arguments: argparse.Namespace) -> int:
    """Exit code 1 where nothing was taken."""
    catalogue = AcfCatalogue.open(arguments.dir)
    probe = _probe(arguments)
    report = catalogue.add(arguments.source, probe=probe)
    if arguments.json:
        print(json.dumps(_added_json(catalogue, report), indent=2))
    else:
        for found in report.added:
            print(f"added {_short(found)}  {catalogue.path(found.acf_id)}")
        for found in report.unchanged:
            print(f"there already: {_short(found)}")
        for one in report.rejected:
            print(f"not taken: {one.label}: {one.why}")
        print(
            f"{len(report.added)} added, {len(report.unchanged)} there already, "
            f"{len(report.rejected)} not taken; catalogue: {catalogue.root}"
        )
        if any(ProbeStatus.REFUSED in one.why for one in report.rejected):
            print(
                f"tried on ptxas {probe.tool.version}, which refuses files of any CUDA "
                f"minor but {probe.tool.cuda}; --ptxas FILE tries another"
            )
    return 0 if report.added or report.unchanged else 1


def _list(arguments: argparse.Namespace) -> int:
    catalogue = AcfCatalogue.open(arguments.dir)
    hardware = None if arguments.gpu is None else load_hardware(arguments.gpu)
    found = [
        one for one in catalogue.entries() if _is_meant(one, arguments.kernel, hardware)
    ]
    tool = triton_ptxas(*(() if hardware is None else (_arch(hardware),)))
    for line in catalogue.problems:
        print(f"costmodel: {line}", file=sys.stderr)
    if arguments.json:
        body = {
            "catalogue": str(catalogue.root),
            "ptxas": None if tool is None else tool.version,
            "entries": [_entry_json(catalogue, one, tool) for one in found],
            "problems": list(catalogue.problems),
        }
        print(json.dumps(body, indent=2))
        return 0
    if not found:
        print(f"no control files in {catalogue.root}: `costmodel acf add DIR`")
        print(f"Triton would run {_words(tool)}")
        return 0
    _show(found, tool)
    for cuda in sorted({one.cuda for one in found if not _is_usable(one, tool)}):
        print(f"for those of {cuda}: {how_to_get(cuda)}")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    """Exit code 1 where something fails."""
    catalogue = AcfCatalogue.open(arguments.dir)
    report = catalogue.verify(_probe(arguments))
    if arguments.json:
        print(json.dumps(_verified_json(report), indent=2))
        return 0 if report.is_ok else 1
    for one in report.verdicts:
        print(f"{one.status:12} {_short(one.entry)}  {one.detail}".rstrip())
    for line in report.problems:
        print(f"{'damaged':12} {line}")
    good = sum(one.is_ok for one in report.verdicts)
    skipped = sum(one.status == SKIPPED for one in report.verdicts)
    bad = len(report.verdicts) - good - skipped + len(report.problems)
    print(f"{good} good, {skipped} for another ptxas, {bad} bad; {catalogue.root}")
    return 0 if report.is_ok else 1


def _remove(arguments: argparse.Namespace) -> int:
    found = AcfCatalogue.open(arguments.dir).remove(arguments.acf_id)
    if arguments.json:
        print(json.dumps({"removed": entries_.to_json(found)}, indent=2))
    else:
        print(f"removed {_short(found)}")
    return 0


def _probe(arguments: argparse.Namespace) -> Probe:
    """The trial that the options ask for.

    Raises:
        NoAcfToolchainError: No assembler takes control files.
        AcfSourceError: A program cannot be read.
    """
    hardware = load_hardware(arguments.gpu)
    arch = _arch(hardware)
    if arguments.ptxas is None:
        tool = find_ptxas(arch=arch)
    else:
        found = ptxas_at(arguments.ptxas)
        if found is None:
            raise NoAcfToolchainError(
                f"expected --ptxas with an assembler, found none at {arguments.ptxas}: "
                f"{how_to_get('13.3')}"
            )
        tool = found
    programs = {}
    for path in arguments.ptx:
        try:
            programs[path.name] = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise AcfSourceError(
                f"expected PTX at {path}, cannot read it: {error}"
            ) from None
    suffix = "a" if arch >= 90 else ""  # what Triton assembles for since Hopper
    return Probe(tool, f"sm_{arch}{suffix}", arguments.time_limit, programs)


def _is_meant(one: AcfEntry, kernel: str | None, hardware: Hardware | None) -> bool:
    return (kernel is None or one.is_for_kernel(kernel)) and (
        hardware is None or one.is_for_gpu(hardware)
    )


def _is_usable(one: AcfEntry, tool: PtxasTool | None) -> bool:
    return tool is not None and one.is_for_ptxas(tool.version)


def _arch(hardware: Hardware) -> int:
    major, minor = hardware.compute_capability
    return major * 10 + minor


def _short(one: AcfEntry) -> str:
    return f"{one.acf_id[:_SHORT_DIGITS]} ({one.name or 'no name'}, {one.cuda})"


def _show(found: Sequence[AcfEntry], tool: PtxasTool | None) -> None:
    table = Table(box=None, pad_edge=False, header_style="")
    for heading in ("digest", "name", "kernels", "GPUs", "CUDA", "usable here"):
        table.add_column(heading, overflow="fold")
    for one in found:
        table.add_row(
            one.acf_id[:_SHORT_DIGITS],
            one.name,
            ", ".join(one.kernels) or "any",
            ", ".join(one.gpus) or "any",
            one.cuda,
            "yes" if _is_usable(one, tool) else "no",
        )
    Console(width=_WIDTH).print(table, markup=False)
    print(f"{len(found)} control files; Triton would run {_words(tool)}")


def _words(tool: PtxasTool | None) -> str:
    return "no ptxas" if tool is None else f"ptxas {tool.version}"


def _entry_json(
    catalogue: AcfCatalogue, one: AcfEntry, tool: PtxasTool | None
) -> dict[str, Any]:
    return {
        **entries_.to_json(one),
        "path": str(catalogue.path(one.acf_id)),
        "usable": _is_usable(one, tool),
    }


def _added_json(catalogue: AcfCatalogue, report: AddReport) -> dict[str, Any]:
    return {
        "catalogue": str(catalogue.root),
        "added": [entries_.to_json(one) for one in report.added],
        "unchanged": [entries_.to_json(one) for one in report.unchanged],
        "rejected": [{"file": one.label, "why": one.why} for one in report.rejected],
    }


def _verified_json(report: VerifyReport) -> dict[str, Any]:
    return {
        "ok": report.is_ok,
        "entries": [
            {
                "acf_id": one.entry.acf_id,
                "name": one.entry.name,
                "status": one.status,
                "detail": one.detail,
            }
            for one in report.verdicts
        ],
        "problems": list(report.problems),
    }
