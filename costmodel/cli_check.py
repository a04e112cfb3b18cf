"""The command that compiles configs without a GPU and says what came of each."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from costmodel import compiled_facts
from costmodel.compile_check import Checked
from costmodel.compile_check import CompileChecker
from costmodel.compile_check import is_sound
from costmodel.config_argument import parse_config
from costmodel.errors import ArgumentSpecError
from costmodel.hardware import load_hardware
from costmodel.types import Config

_WIDTH = 100  # characters; a table in a log must not depend on a terminal


def check(arguments: argparse.Namespace) -> int:
    """Compile the configs given; exit code 1 where one cannot be handed out.

    Raises:
        ArgumentSpecError: A config is no JSON object, or there is none.
    """
    configs: list[Config | None] = [parse_config(text) for text in arguments.configs]
    if arguments.default:
        configs.insert(0, None)
    if not configs:
        raise ArgumentSpecError(
            "expected a config to compile, found none: give --config '{...}' or "
            "--default"
        )
    with CompileChecker(
        arguments.kernel,
        arguments.args,
        arguments.gpu,
        limit_s=arguments.time_limit,
        disassemble=True,
    ) as checker:
        found = [checker.check(config) for config in configs]
    if arguments.json:
        print(json.dumps(as_json(found, load_hardware(arguments.gpu).name), indent=2))
    else:
        _print(found, load_hardware(arguments.gpu).name)
    return 0 if all(is_sound(one.facts) for one in found) else 1


def as_json(found: list[Checked], gpu: str) -> dict[str, Any]:
    """All results as one JSON object."""
    return {
        "gpu": gpu,
        "configs": [
            {
                "config": one.config,
                "sound": is_sound(one.facts),
                "from_cache": one.from_cache,
                "facts": compiled_facts.to_json(one.facts),
            }
            for one in found
        ],
    }


def _print(found: list[Checked], gpu: str) -> None:
    console = Console(width=_WIDTH)
    tools = found[0].facts.toolchain
    console.print(
        f"compiled for {gpu} without it: helion {tools.helion}, triton {tools.triton}, "
        f"ptxas {tools.ptxas}",
        highlight=False,
    )
    table = Table()
    table.add_column("")
    for number, _one in enumerate(found, start=1):
        table.add_column(f"config {number}", justify="right")
    columns = [_cells(one) for one in found]
    for label in columns[0]:
        table.add_row(label, *(column[label] for column in columns))
    console.print(table)
    for number, one in enumerate(found, start=1):
        # Not through the console, which would break a config that is to be copied.
        print(f"config {number}: {json.dumps(one.config)}")
        if one.facts.detail:
            print(f"  {one.facts.detail}")


def _cells(one: Checked) -> dict[str, str]:
    """What is worth a row, by its label; a dash where nothing is known."""
    facts, code = one.facts, one.facts.code
    kept = " (kept)" if one.from_cache else ""
    rows: dict[str, Any] = {
        "status": facts.status.value,
        "registers of a thread": facts.registers,
        "spill stores, bytes": facts.spill_store_bytes,
        "spill loads, bytes": facts.spill_load_bytes,
        "stack, bytes": facts.stack_bytes,
        "shared memory, bytes": facts.smem_bytes,
        "tensor memory, columns": facts.tmem_columns or None,
        "warps": facts.num_warps,
        "kernels launched": facts.n_launches,
        "instructions": facts.n_instructions if code is None else code.n_instructions,
        "loops": None if code is None else len(code.loops),
        "warp group products": None if code is None else code.has_wgmma,
        "copies by descriptor": None if code is None else code.has_tma,
        "load bytes in flight": None if code is None else code.bytes_in_flight,
        "copy groups pending": None if code is None else code.pending_copy_groups,
        "code digest": facts.code_digest,
        "seconds": f"{facts.compile_s:.1f}{kept}",
    }
    return {label: _text(value) for label, value in rows.items()}


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
