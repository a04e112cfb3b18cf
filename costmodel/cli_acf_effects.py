"""`costmodel acf effects`: what control files do to a kernel's code, without a GPU."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from costmodel import compiled_facts
from costmodel.acf.catalogue import AcfCatalogue
from costmodel.acf.choice import worth_measuring
from costmodel.acf.effect_check import ACF_LIMIT_S
from costmodel.acf.effect_check import EffectChecker
from costmodel.acf.effect_check import EffectPool
from costmodel.acf.effects import Effect
from costmodel.acf.entry import PTXAS_STAGE
from costmodel.acf.entry import AcfEntry
from costmodel.acf.pairs import MOST_ACFS
from costmodel.acf.toolchain import PtxasTool
from costmodel.acf.toolchain import find_ptxas
from costmodel.acf.toolchain import how_to_get
from costmodel.compiled_facts import CompileStatus
from costmodel.config_argument import parse_config
from costmodel.errors import NoAcfToolchainError
from costmodel.hardware import Hardware
from costmodel.hardware import load_hardware

_WIDTH = 110  # characters; a table in a log must not depend on a terminal
_SHORT_DIGITS = 12  # of a digest, for people


def add_options(command: argparse.ArgumentParser) -> None:
    """Options of the action, but for those that all actions have."""
    command.add_argument("kernel", metavar="FILE.py:KERNEL")
    command.add_argument(
        "--arg", action="append", default=[], dest="args", metavar="SPEC"
    )
    command.add_argument(
        "--config",
        action="append",
        default=[],
        dest="configs",
        metavar="JSON",
        help="a Helion config; may be given several times; default: Helion's own",
    )
    command.add_argument("--gpu", default="H200", help="default: %(default)s")
    command.add_argument(
        "--time-limit",
        type=float,
        default=ACF_LIMIT_S,
        metavar="SECONDS",
        help="for one run of ptxas with a control file (default: %(default)s)",
    )


def effects(arguments: argparse.Namespace) -> int:
    """Compile configs with every control file meant for the kernel, and without.

    Exit code 1 where a config does not compile without one.

    Raises:
        NoAcfToolchainError: No ptxas takes the files.
        ArgumentSpecError: A config is no JSON object.
    """
    hardware = load_hardware(arguments.gpu)
    catalogue = AcfCatalogue.open(arguments.dir)
    major, minor = hardware.compute_capability
    tool = find_ptxas(arch=major * 10 + minor)
    name = arguments.kernel.rpartition(":")[2]
    entries = _meant(catalogue, name, hardware, tool)
    paths = {one.acf_id: str(catalogue.path(one.acf_id)) for one in entries}
    make = functools.partial(
        EffectChecker,
        arguments.kernel,
        arguments.args,
        hardware.name,
        paths,
        acf_limit_s=arguments.time_limit,
    )
    configs = [parse_config(text) for text in arguments.configs]
    if configs:
        with EffectPool(make) as pool:
            found = pool.effects(configs)
    else:
        with make() as checker:
            found = [checker.effects(None)]
    every = [one for of_config in found for one in of_config]
    tried = [one.pair.key for one in worth_measuring(every, hardware)]
    if arguments.json:
        print(json.dumps(_json(found, entries, hardware, tool, tried), indent=2))
    else:
        _show(found, entries, hardware, tool, tried)
        if not entries:
            print(f"no control files for {name} in {catalogue.root}")
    fine = all(of_config[0].facts.status is CompileStatus.OK for of_config in found)
    return 0 if fine else 1


def _meant(
    catalogue: AcfCatalogue, kernel: str, hardware: Hardware, tool: PtxasTool
) -> list[AcfEntry]:
    """Control files to try.

    Raises:
        NoAcfToolchainError: All that are meant for the kernel are for another ptxas.
    """
    meant = [one for one in catalogue.entries() if one.applies(kernel, hardware)]
    usable = catalogue.applicable(kernel, hardware, tool.version)
    if meant and not usable:
        cudas = sorted({one.cuda for one in meant})
        raise NoAcfToolchainError(
            f"expected ptxas {' or '.join(cudas)} for the control files of {kernel}, "
            f"found {tool.version}: {how_to_get(cudas[-1])}"
        )
    return [one for one in usable if one.stage == PTXAS_STAGE][:MOST_ACFS]


def _json(
    found: Sequence[Sequence[Effect]],
    entries: Sequence[AcfEntry],
    hardware: Hardware,
    tool: PtxasTool,
    tried: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    names = {one.acf_id: one.name for one in entries}
    return {
        "gpu": hardware.name,
        "ptxas": tool.version,
        "configs": [
            {
                "config": of_config[0].pair.config,
                "pairs": [
                    {
                        "acf_id": one.pair.acf_id,
                        "name": names.get(one.pair.acf_id or "", ""),
                        "verdict": one.verdict.value,
                        "twin": one.twin,
                        "measured_as": _place(one, tried),
                        "facts": compiled_facts.to_json(one.facts),
                    }
                    for one in of_config
                ],
            }
            for of_config in found
        ],
    }


def _place(one: Effect, tried: Sequence[tuple[str, str]]) -> int | None:
    """When it would be measured, from 1; None where it would not."""
    return tried.index(one.pair.key) + 1 if one.pair.key in tried else None


def _show(
    found: Sequence[Sequence[Effect]],
    entries: Sequence[AcfEntry],
    hardware: Hardware,
    tool: PtxasTool,
    tried: Sequence[tuple[str, str]],
) -> None:
    console = Console(width=_WIDTH)
    console.print(
        f"compiled for {hardware.name} without it, ptxas {tool.version}; what would "
        "be measured, and in which order, is numbered",
        highlight=False,
    )
    names = {one.acf_id: one.name for one in entries}
    for number, of_config in enumerate(found, start=1):
        table = Table(box=None, pad_edge=False, header_style="")
        for heading in ("control file", "name"):
            table.add_column(heading, overflow="fold")
        for heading in ("registers", "spilled, bytes", "instructions"):
            table.add_column(heading, justify="right")
        table.add_column("verdict")
        table.add_column("measured", justify="right")
        for one in of_config:
            acf_id = one.pair.acf_id
            table.add_row(
                "none" if acf_id is None else acf_id[:_SHORT_DIGITS],
                names.get(acf_id or "", ""),
                *_numbers(one),
                one.verdict.value
                + (f" {one.twin[:_SHORT_DIGITS]}" if one.twin else ""),
                str(_place(one, tried) or ""),
            )
        # Not through the console, which would break a config that is to be copied.
        print(f"config {number}: {json.dumps(of_config[0].pair.config)}")
        console.print(table, markup=False)
        for one in of_config:
            if one.facts.detail:
                print(f"  {(one.pair.acf_id or 'none')[:12]}: {one.facts.detail}")


def _numbers(one: Effect) -> list[str]:
    """Registers, spills and instructions, with their change."""
    values = [
        (one.facts.registers, one.none.registers),
        (one.facts.spill_bytes, one.none.spill_bytes),
        (one.facts.n_instructions, one.none.n_instructions),
    ]
    if one.pair.acf_id is None:
        return ["-" if value is None else str(value) for value, _ in values]
    return [
        "-" if value is None or none is None else f"{value} ({value - none:+d})"
        for value, none in values
    ]
