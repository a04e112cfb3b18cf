"""Helion's own ahead-of-time files: `_helion_aot_<source>_cuda_<arch>.py`.

Helion asks such a file for `autotune_<kernel>(*args)`, and for `key_<kernel>(*args)`
where the kernel is an `aot_kernel`; one file serves all kernels of a source file and
all GPUs of an architecture. Our part of a file stands between two marks with its own
digest, so that it can be written again and nobody else's part is touched.

The functions are made to survive Helion's `HELION_AOT_MODE=compile`, which copies
`key_<kernel>` alone, line by line: its head is one line, it needs no import and defines
nothing inside, and the configs are a literal named `_C`.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodel.arguments import DTYPES
from costmodel.arguments import Argument
from costmodel.errors import ExportError
from costmodel.export_marks import is_unchanged
from costmodel.export_marks import marked
from costmodel.export_marks import span_of
from costmodel.export_plan import KernelExport

_HEADER = '''"""Configs for Helion's ahead-of-time lookup, by `costmodel export`.

What stands between the marks is replaced by the next export; the rest is left alone.
"""
'''


def aot_file_name(source: Path | str, arch: str) -> str:
    """What Helion calls the file of a source file on an architecture, such as sm90."""
    return f"_helion_aot_{Path(source).stem}_cuda_{arch}.py"


def aot_section(kernel: Any, export: KernelExport) -> str:
    """Our part of the file for one kernel.

    Args:
        kernel: The `helion.kernel` object; its signature and key function are read.
        export: Its configs and shapes.

    Raises:
        ExportError: The kernel's key function cannot be asked.
    """
    name = str(kernel.name)
    table: dict[str, list[tuple[tuple[int, ...], int]]] = {}
    for entry in export.entries:
        kinds, sizes = shape_signature(kernel, entry.case.arguments)
        table.setdefault(kinds, []).append((sizes, entry.index))
    rows = []
    for kinds, shapes in table.items():
        rows.append(f"        {kinds!r}: (")
        rows += [f"            ({sizes!r}, {index})," for sizes, index in shapes]
        rows.append("        ),")
    configs = [f"        {_literal(config)}," for config in export.configs]
    body = "\n".join(
        [
            f"def key_{name}(*args, _seen={{}}):",
            *_REMEMBER,
            *_READ_SHAPE,
            "    table = {",
            *rows,
            "    }",
            *_FIND_NEAREST,
            "",
            "",
            f"def autotune_{name}(*args):",
            "    _C = [",
            *configs,
            "    ]",
            f"    return _C[key_{name}(*args)]",
            "",
        ]
    )
    return marked(name, body)


# Every launch asks, so calls are remembered by what is at hand. Others than tensors and
# plain values are not: a list may hold tensors, which must not be kept alive.
_REMEMBER = (
    "    call = ()",
    "    for arg in args:",
    '        if hasattr(arg, "dtype"):',
    "            call += (arg.dtype, arg.shape)",
    "        elif isinstance(arg, (int, str)):",
    "            call += (type(arg), arg)",
    "        elif isinstance(arg, float) or arg is None:",
    "            call += (type(arg),)",
    "        else:",
    "            call += ([],)",
    "    try:",
    "        return _seen[call]",
    "    except KeyError:",
    "        can_keep = True",
    "    except TypeError:",
    "        can_keep = False",
)

_READ_SHAPE = (
    "    kinds, sizes, rest = [], [], list(args)[::-1]",
    "    while rest:",
    "        arg = rest.pop()",
    "        if isinstance(arg, (list, tuple)):",
    '            kinds.append(f"{type(arg).__name__} of {len(arg)}")',
    "            rest.extend(arg[::-1])",
    '        elif hasattr(arg, "dtype"):',
    '            kinds.append(f"{arg.dtype}[{len(arg.shape)}]")',
    "            sizes.extend(int(size) for size in arg.shape)",
    "        elif isinstance(arg, int):",
    '            kinds.append("int")',
    "            sizes.append(int(arg))",
    "        elif isinstance(arg, str):",
    '            kinds.append("str " + arg)',
    '        elif type(arg).__name__ == "dtype":',
    "            kinds.append(str(arg))",
    "        else:",
    "            kinds.append(type(arg).__name__)",
    '    shape = ("; ".join(kinds), *sizes)',
)

# The nearest listed shape with the same dtypes and ranks, by the product of the ratios
# of its sizes; the larger of two equally near; config 0 where there is none.
_FIND_NEAREST = (
    "    best = None",
    "    for listed, index in table.get(shape[0], ()):",
    "        ratio = 1.0",
    "        for one, other in zip(sizes, listed):",
    "            small, large = sorted((abs(one) or 1, abs(other) or 1))",
    "            ratio *= large / small",
    "        rank = (round(ratio, 9), [-size for size in listed], index)",
    "        best = rank if best is None else min(best, rank)",
    "    answer = 0 if best is None else best[2]",
    "    if can_keep:",
    "        if len(_seen) >= 4096:",
    "            _seen.clear()",
    "        _seen[call] = answer",
    "    return answer",
)


def shape_signature(
    kernel: Any, arguments: Sequence[Argument]
) -> tuple[str, tuple[int, ...]]:
    """Kinds and sizes of a call's arguments, as the written function reads them.

    A kernel with its own key function (`aot_kernel(key=...)`) is looked up by what that
    returns, as Helion does; else by the arguments, defaults filled in.
    """
    values = _call_values(kernel, arguments)
    user_key = getattr(kernel, "_aot_user_key", None)
    if user_key is not None:
        values = _flat(_asked(user_key, values))
    kinds: list[str] = []
    sizes: list[int] = []
    rest = values[::-1]
    while rest:
        value = rest.pop()
        if isinstance(value, list | tuple):
            kinds.append(f"{type(value).__name__} of {len(value)}")
            rest.extend(value[::-1])
        elif hasattr(value, "dtype"):
            kinds.append(f"{value.dtype}[{len(value.shape)}]")
            sizes.extend(int(size) for size in value.shape)
        elif isinstance(value, int):
            kinds.append("int")
            sizes.append(int(value))
        elif isinstance(value, str):
            kinds.append("str " + value)
        elif type(value).__name__ == "dtype":
            kinds.append(str(value))
        else:
            kinds.append(type(value).__name__)
    return "; ".join(kinds), tuple(sizes)


def _call_values(kernel: Any, arguments: Sequence[Argument]) -> list[Any]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    values = [spec.fake(mode, device="cpu") for spec in arguments]
    try:
        call = inspect.signature(kernel.fn).bind(*values)
    except TypeError as error:
        raise ExportError(f"kernel {kernel.name!r}: {error}") from error
    call.apply_defaults()
    return list(call.args)


def _asked(user_key: Any, values: Sequence[Any]) -> Any:
    try:
        return user_key(*values)
    except Exception as error:  # a user's function may raise anything
        raise ExportError(
            f"expected the kernel's key function to answer, found "
            f"{type(error).__name__}: {' '.join(str(error).split())}"
        ) from error


def _flat(value: Any) -> list[Any]:
    """A key as Helion hands it on: flat, dtypes as their bytes, None left out."""
    if isinstance(value, tuple | list):
        return [one for item in value for one in _flat(item)]
    if value is None:
        return []
    if str(value).removeprefix("torch.") in DTYPES.values():
        return [int(value.itemsize)]
    return [value if isinstance(value, int | float | str) else str(value)]


def merge_aot(existing: str | None, sections: dict[str, str]) -> tuple[str, list[str]]:
    """Put sections into a file, leaving everything else as it is.

    Args:
        existing: The file's text, or None where there is none.
        sections: Our part for each kernel, by kernel name.

    Returns:
        The new text, and the kernels that were left alone because the file holds an
        answer for them that we did not write, or ours after someone changed it.

    Raises:
        ExportError: The file is no Python.
    """
    text = _HEADER if existing is None else existing
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise ExportError(f"expected Python, found {error}") from error
    refused = []
    for name, section in sections.items():
        span = span_of(text, name)
        if span is None:
            if _defines(text, name):
                refused.append(name)
                continue
            text = text.rstrip("\n") + "\n\n\n" + section
            continue
        start, end = span
        if not is_unchanged(text[start:end]):
            refused.append(name)
            continue
        text = text[:start] + section + text[end:]
    return text, refused


def _defines(text: str, name: str) -> bool:
    wanted = {f"autotune_{name}", f"key_{name}"}
    return any(
        isinstance(node, ast.FunctionDef) and node.name in wanted
        for node in ast.walk(ast.parse(text))
    )


def _literal(config: dict[str, Any]) -> str:
    """A config as a Python literal, keys in order; one line, as nothing counts on."""
    return repr(json.loads(json.dumps(config, sort_keys=True)))
