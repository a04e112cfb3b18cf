"""What decides about the machine code of a config, for the cache of compiled facts.

The same in the process that asks and in the child that compiles, so that a result is
found again without starting a child: the generated program is reduced to what runs.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
from collections.abc import Sequence
from typing import Any

from costmodel import fake_driver
from costmodel import helion_hook
from costmodel import ptxas
from costmodel.acf.identity import KNOB
from costmodel.acf.identity import record_name
from costmodel.compiled_facts import Toolchain
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.types import Config

_SOURCE_MODULE = re.compile(r"^import (\S+) as _source_module$", re.MULTILINE)
_FROM_SOURCE = re.compile(r"\b_source_module\.(\w+)")


@dataclass(frozen=True, slots=True)
class Tools:
    """The compilers of this process.

    Attributes:
        toolchain: Versions.
        ptxas_text: What the assembler that Triton will run says of itself.
    """

    toolchain: Toolchain
    ptxas_text: str


def tools_for(hardware: Hardware) -> Tools:
    """The compilers Triton would use for `hardware`; needs no driver.

    Raises:
        Exception: Whatever Triton raises where it has none.
    """
    from triton.compiler.compiler import make_backend

    text = str(make_backend(fake_driver.compile_target(hardware)).hash())
    versions = helion_hook.installed_versions()
    toolchain = Toolchain(
        helion=versions["helion"],
        torch=versions["torch"],
        triton=versions["triton"],
        ptxas=ptxas.version_of(text),
    )
    return Tools(toolchain, text)


def program_of(
    bound: Any,
    config: Config,
    arguments: Sequence[str],
    hardware: Hardware,
    tools: Tools,
) -> dict[str, Any]:
    """Everything that decides about the machine code of a config.

    Raises:
        Exception: Whatever Helion raises for a config it generates no code for.
    """
    code = helion_hook.triton_code(bound, config)
    name = config.get(KNOB)
    return {
        "code": what_runs(code),
        # The code holds a control file's path, which says nothing of its content.
        **({"controls": record_name(str(name))} if name else {}),
        "globals": _globals(code),
        "arguments": list(arguments),
        **what_limits(hardware, tools),
    }


def what_limits(hardware: Hardware, tools: Tools) -> dict[str, Any]:
    """What the GPU and the compilers bring to it, the program apart."""
    return {
        "arch": hardware.arch,
        "limits": [
            hardware.smem_per_cta_bytes,
            hardware.tmem_columns,
            hardware.regs_per_sm,
            hardware.max_threads_per_cta,
            hardware.n_sms,
        ],
        "toolchain": dataclasses.asdict(tools.toolchain),
        "ptxas": tools.ptxas_text,
    }


def what_runs(code: str) -> str:
    """A generated program without comments, documentation, annotations and the name of
    the module it came from: equal for the same kernel from another file."""
    tree = ast.parse(code)
    kept: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            continue
        if isinstance(statement, ast.FunctionDef) and not statement.decorator_list:
            _strip(statement)
        kept.append(statement)
    return "\n".join(ast.unparse(statement) for statement in kept)


def _globals(code: str) -> dict[str, str]:
    """Numbers that the program takes from the kernel's module: Triton compiles another
    kernel where an integer is 1 or a multiple of 16."""
    found = _SOURCE_MODULE.search(code)
    values = vars(sys.modules[found[1]]) if found and found[1] in sys.modules else {}
    names = sorted(set(_FROM_SOURCE.findall(code)))
    plain = (bool, int, float, str)
    return {n: repr(values[n]) for n in names if isinstance(values.get(n), plain)}


def _strip(function: ast.FunctionDef) -> None:
    """Of the host function, only what it does."""
    function.returns = None
    every = function.args
    for argument in (*every.posonlyargs, *every.args, *every.kwonlyargs):
        argument.annotation = None
    first = function.body[0]
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    if is_text and len(function.body) > 1:
        del function.body[0]
