"""Which kernels at which shapes: a list file, or one kernel with argument templates.

An argument may name sizes, `bf16[tokens,2*width]`; every combination of the listed
values is one shape, and its named sizes are the key under which serving layouts look
its config up. A list file is TOML or JSON:

    [[kernel]]
    kernel = "ops.py:silu_mul"          # relative to the list
    args = ["bf16[tokens,2*width]"]
    max_configs = 4                     # optional
    name = "silu_mul"                   # optional: folder or entry in the layout
    [kernel.sizes]
    tokens = [1, 16, 256, 4096]
    width = [4096, 14336]

    [[kernel]]
    kernel = "ops.py:norm"
    [[kernel.shapes]]                   # or each shape by itself
    args = ["bf16[64,4096]", 1e-5]
    key = {tokens = 64}
    weight = 3.0
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import operator
import re
import tomllib
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodel.arguments import ScalarArgument
from costmodel.arguments import parse_argument
from costmodel.errors import ArgumentSpecError
from costmodel.errors import ExportError
from costmodel.frozen import dataclass
from costmodel.shape_losses import ShapeCase

# Each shape costs a bind and a pick, about a second.
MOST_SHAPES = 512

DEFAULT_CONFIGS = 4

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
# What may hold expressions in an argument: its shape, its strides, its fill's limit.
_PARTS = re.compile(r"\[([^\]]*)\]|:([^@\[\]]+)|\(([^)]*)\)")
# Inside a list: text in quotes, the shape of a tensor, a name.
_ITEM_PARTS = re.compile(r"""('[^']*'|"[^"]*")|(?<=\w)\[([^\[\]]*)\]|([A-Za-z_]\w*)""")
_KERNEL_FIELDS = {"kernel", "name", "args", "sizes", "shapes", "max_configs"}
_SHAPE_FIELDS = {"args", "key", "weight", "sizes"}


@dataclass(frozen=True, slots=True)
class KernelJob:
    """One kernel with the shapes it is to serve.

    Attributes:
        reference: `FILE.py:KERNEL`.
        name: What layouts call it; "" means the kernel's own name.
        cases: Its shapes.
        max_configs: Most distinct configs.
    """

    reference: str
    name: str
    cases: tuple[ShapeCase, ...]
    max_configs: int


def read_list(path: Path) -> tuple[KernelJob, ...]:
    """Read a list file, TOML or JSON by its suffix.

    Raises:
        ExportError: Says what is wrong and where.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "text that is not UTF-8"
        raise ExportError(
            f"{path}: expected a list of kernels (TOML or JSON), found: {reason}; "
            "name a file with [[kernel]] tables, as docs/serving.md shows"
        ) from error
    try:
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise ExportError(f"{path}: expected TOML, or JSON: {error}") from error
    entries = found.get("kernel") if isinstance(found, dict) else found
    if not isinstance(entries, list) or not entries:
        raise ExportError(f"expected [[kernel]] entries in {path}, found none")
    return tuple(
        _job(entry, f"{path}, kernel {place}", path.parent)
        for place, entry in enumerate(entries, start=1)
    )


def _job(entry: Any, where: str, folder: Path) -> KernelJob:
    _check_fields(entry, _KERNEL_FIELDS, where)
    reference = entry.get("kernel")
    if not isinstance(reference, str):
        raise ExportError(f"{where}: expected kernel = 'FILE.py:KERNEL'")
    if ("shapes" in entry) == ("args" in entry):
        raise ExportError(f"{where}: expected either args (with sizes) or shapes")
    whole = {field: entry[field] for field in ("args", "sizes") if field in entry}
    shapes = entry.get("shapes", [whole])
    if not isinstance(shapes, list):
        raise ExportError(f"{where}: expected a list of shapes")
    cases: list[ShapeCase] = []
    for shape in shapes:
        _check_fields(shape, _SHAPE_FIELDS, where)
        try:
            cases += make_cases(
                shape.get("args", ()),
                shape.get("sizes", {}),
                key=shape.get("key"),
                weight=shape.get("weight", 1.0),
            )
        except (ExportError, ArgumentSpecError) as error:
            raise ExportError(f"{where}: {error}") from error
    limit = entry.get("max_configs", DEFAULT_CONFIGS)
    if not isinstance(limit, int) or limit < 1:
        raise ExportError(f"{where}: expected max_configs >= 1, found {limit!r}")
    file, colon, kernel = reference.rpartition(":")
    path = Path(file if colon else reference)
    full = path if path.is_absolute() else folder / path
    reference = f"{full}:{kernel}" if colon else str(full)
    return KernelJob(reference, entry.get("name", ""), tuple(cases), limit)


def _check_fields(entry: Any, known: set[str], where: str) -> None:
    if not isinstance(entry, dict):
        raise ExportError(f"{where}: expected a table, found {type(entry).__name__}")
    unknown = sorted(set(entry) - known)
    if unknown:
        raise ExportError(
            f"{where}: unknown {unknown[0]!r}, known: {', '.join(sorted(known))}"
        )


def make_cases(
    args: Sequence[object],
    sizes: Mapping[str, Sequence[int]],
    *,
    key: Mapping[str, Any] | None = None,
    weight: float = 1.0,
) -> list[ShapeCase]:
    """Every combination of the named sizes in some argument templates.

    Args:
        args: Templates: text of the argument grammar in which sizes may be named, or
            numbers, truth values and None as they are.
        sizes: Values of each named size; every one must be used.
        key: Names for layouts; None means the sizes themselves.
        weight: Of each shape.

    Raises:
        ExportError: A size is unknown, unused, no positive integer, or there are too
            many shapes.
        ArgumentSpecError: An argument cannot be read.
    """
    for name, values in sizes.items():
        listed = values if isinstance(values, list | tuple) else []
        good = [v for v in listed if isinstance(v, int) and v >= 1 and v is not True]
        if not good or len(good) != len(listed):
            raise ExportError(
                f"expected sizes.{name} to list integers >= 1, found {values!r}"
            )
    n_shapes = math.prod(len(values) for values in sizes.values())
    if n_shapes > MOST_SHAPES:
        raise ExportError(f"expected at most {MOST_SHAPES} shapes, found {n_shapes}")
    if not isinstance(weight, int | float) or not weight > 0:
        raise ExportError(f"expected a weight above 0, found {weight!r}")
    if isinstance(args, str) or not isinstance(args, Sequence):
        raise ExportError(f"expected a list of arguments, found {args!r}")
    _check_used(args, sizes)
    cases = []
    for combination in itertools.product(*sizes.values()):
        named = dict(zip(sizes, combination, strict=True))
        texts = [expand(arg, named) for arg in args]
        cases.append(
            ShapeCase(
                arguments=tuple(
                    parse_argument(text)
                    if isinstance(text, str)
                    else ScalarArgument(text)
                    for text in texts
                ),
                weight=float(weight),
                key=dict(named if key is None else key),
                label=" ".join(map(str, texts)),
            )
        )
    return cases


def expand(template: Any, sizes: Mapping[str, int]) -> str | int | float | bool | None:
    """An argument with its named sizes put in.

    Raises:
        ExportError: A size has no value, or the arithmetic is none.
    """
    if not isinstance(template, str):
        if template is None or isinstance(template, bool | int | float):
            return template
        raise ExportError(f"expected an argument as text or number, found {template!r}")
    if template.startswith("str:"):
        return template
    if "[" not in template and not template.lstrip().startswith("("):
        names = _names(template)
        return str(_value(template, sizes)) if names & set(sizes) else template
    if template.lstrip().startswith(("[", "(")):
        return _expand_items(template, sizes)

    def put_in(found: re.Match[str]) -> str:
        text = found.group(0)
        inside = next(part for part in found.groups() if part is not None)
        values = [
            str(_value(part, sizes)) for part in inside.split(",") if part.strip()
        ]
        return text.replace(inside, ",".join(values), 1) if values else text

    return _PARTS.sub(put_in, template)


def _expand_items(template: str, sizes: Mapping[str, int]) -> str:
    """A list or tuple: sizes of its tensors, and names that stand alone."""

    def put_in(found: re.Match[str]) -> str:
        quoted, shape, name = found.groups()
        if quoted is not None:
            return quoted
        if shape is not None:
            parts = [part for part in shape.split(",") if part.strip()]
            return f"[{','.join(str(_value(part, sizes)) for part in parts)}]"
        return str(sizes.get(name, name))

    return _ITEM_PARTS.sub(put_in, template)


def _value(text: str, sizes: Mapping[str, int]) -> int:
    """Integers, named sizes, + - * //."""

    def of(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name):
            if node.id not in sizes:
                known = ", ".join(sizes) or "none"
                raise ExportError(
                    f"expected a value for size {node.id!r} in {text!r}, known: {known}"
                )
            return sizes[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](of(node.left), of(node.right))
        raise ExportError(f"expected integers, names, + - * // in {text!r}")

    try:
        return of(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError) as error:
        raise ExportError(f"expected a size, found {text!r}") from error


def _names(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def _check_used(args: Sequence[object], sizes: Mapping[str, object]) -> None:
    used: set[str] = set()
    for arg in args:
        if isinstance(arg, str):
            is_tensor = "[" in arg and not arg.lstrip().startswith(("[", "("))
            inside = _PARTS.findall(arg) if is_tensor else [(arg,)]
            used |= {
                name for parts in inside for part in parts for name in _names(part)
            }
    unused = sorted(set(sizes) - used)
    if unused:
        raise ExportError(f"expected every size in an argument, unused: {unused[0]!r}")
