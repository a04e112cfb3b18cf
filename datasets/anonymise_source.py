"""A kernel's source with every private word taken out, line for line.

Features read literal tile sizes, loop bounds and the order of loops from the source,
and tie loops to the IR graph by line. So the text is edited in place: names that the
user chose become `v0001`, ..., docstrings, comments and decorators are emptied, other
strings are replaced, and every line stays where it is. What stays are Python's words,
numbers, and names of torch's, Helion's and math's public interfaces where the kernel
uses them as such.
"""

from __future__ import annotations

import ast
import builtins
import functools
import io
import keyword
import math
import re
import textwrap
import tokenize
from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import dataclass

from costmodel.errors import UnreadableKernelError

# Called as plain functions, whoever they were imported from; features evaluate them.
_HELPERS = frozenset({"cdiv", "next_power_of_2", "specialize", "constexpr", "self"})
_PUBLIC_KEYWORDS = frozenset(
    [
        "acc",
        "block_size",
        "combine_fn",
        "default",
        "device",
        "dim",
        "dims",
        "dtype",
        "end",
        "eps",
        "input",
        "keepdim",
        "memory_format",
        "other",
        "out",
        "out_dtype",
        "precision",
        "requires_grad",
        "reverse",
        "sem",
        "shape",
        "size",
        "step",
        "src",
        "start",
        "stop",
        "sum",
        "value",
        "values",
    ]
)
_NEW_NAME = re.compile(r"^(?:Tensor_)?v\d{4}$")

Rename = Callable[[str], str]
"""New name of a private word or string; equal words get equal names."""


@dataclass(frozen=True, slots=True)
class _Edit:
    """Bytes to replace; lines from 1, columns in bytes from 0, the end exclusive."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


@functools.cache
def public_names() -> frozenset[str]:
    """Names of the interfaces that a kernel may use, which tell nothing about it."""
    import helion
    import helion.language as hl
    import torch

    torches = (torch, torch.Tensor, torch.nn.functional)
    spaces = (*torches, helion, hl, hl.Tile, math, builtins)
    found = {name for space in spaces for name in dir(space)}
    return frozenset(found | _HELPERS | {"hl", "torch", "helion", "math", "triton"})


def private_words(kernel_source: str) -> set[str]:
    """Every word and string of a source that must get another name."""
    tree = _parse(kernel_source)
    if tree is None:
        return set()
    return {old for _, old in _Visitor(tree, str).renamed()}


def anonymous_source(kernel_source: str, rename: Rename) -> str:
    """The source with private words renamed; empty where it is not Python.

    Args:
        kernel_source: As Helion logs it.
        rename: Gives `v` and four digits.

    Raises:
        UnreadableKernelError: A word would remain, in syntax that no kernel has.
    """
    text = textwrap.dedent(kernel_source)
    tree = _parse(text)
    if tree is None:
        return ""  # features read nothing from it either
    visitor = _Visitor(tree, rename)
    edits = [edit for edit, _ in visitor.renamed()]
    edits += [*visitor.emptied(), *_comments(text)]
    edited = _apply(text, edits)
    _check(edited)
    return edited


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError, RecursionError):
        return None


class _Visitor:
    """Finds what to replace. Positions inside an f-string are not reliable before
    Python 3.12, so an f-string is replaced as a whole."""

    def __init__(self, tree: ast.Module, rename: Rename) -> None:
        self._tree = tree
        self._rename = rename
        self._bound = _bound_names(tree)
        self._nodes = list(_walk(tree))

    def renamed(self) -> Iterator[tuple[_Edit, str]]:
        """Edits that give a new name, each with the old word."""
        for node in self._nodes:
            if isinstance(node, ast.Name):
                if self._is_private(node.id):
                    yield self._named(node.lineno, node.col_offset, node.id), node.id
            elif isinstance(node, ast.arg):
                yield self._named(node.lineno, node.col_offset, node.arg), node.arg
            elif isinstance(node, ast.Attribute):
                if node.attr not in public_names() and node.end_lineno:
                    start = (node.end_col_offset or 0) - len(node.attr.encode())
                    yield self._named(node.end_lineno, start, node.attr), node.attr
            elif isinstance(node, ast.keyword) and node.arg is not None:
                if node.arg not in public_names() | _PUBLIC_KEYWORDS:
                    edit = self._named(node.lineno, node.col_offset, node.arg)
                    yield edit, node.arg
            elif isinstance(node, ast.FunctionDef):
                column = node.col_offset + len("def ")
                yield self._named(node.lineno, column, node.name), node.name
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield _quoted(node, self._string(node.value)), node.value

    def emptied(self) -> Iterator[_Edit]:
        """Edits that leave nothing of what stood there but its lines."""
        for node in self._nodes:
            if isinstance(node, ast.Expr) and _is_text(node.value):
                yield _quoted(node.value, "")
            elif isinstance(node, ast.JoinedStr) or (
                isinstance(node, ast.Constant) and isinstance(node.value, bytes)
            ):
                yield _quoted(node, "")
            elif isinstance(node, ast.Import | ast.ImportFrom | ast.Global):
                yield _spanning(node, "pass", "")
            elif isinstance(node, ast.FunctionDef):
                for one in node.decorator_list:
                    yield _spanning(one, "helion.kernel(", ")")

    def _is_private(self, name: str) -> bool:
        return name in self._bound or name not in public_names()

    def _named(self, line: int, column: int, old: str) -> _Edit:
        new = self._rename(old)
        if "Tensor" in old and old not in self._bound:
            new = f"Tensor_{new}"  # an annotation that says what a parameter is
        return _Edit((line, column), (line, column + len(old.encode())), new)

    def _string(self, value: str) -> str:
        return "Tensor" if "Tensor" in value else self._rename(value)


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes whose positions can be trusted; decorators go as a whole."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, ast.Expr) and _is_text(node.value):
            continue
        skip = node.decorator_list if isinstance(node, ast.FunctionDef) else []
        stack.extend(one for one in ast.iter_child_nodes(node) if one not in skip)


def _bound_names(tree: ast.Module) -> set[str]:
    """Names that the source itself gives a meaning; those that it also calls keep
    theirs where they are public, since features go by what is called."""
    found: set[str] = set()
    called: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called.add(node.func.id)
    return found - (called & public_names())


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _quoted(node: ast.expr, text: str) -> _Edit:
    if node.end_lineno == node.lineno:
        return _spanning(node, f'"{text}"', "")
    return _spanning(node, f'"""{text}', '"""')


def _spanning(node: ast.expr | ast.stmt, before: str, after: str) -> _Edit:
    """An edit of a whole node that keeps its number of lines."""
    end_line = node.end_lineno or node.lineno
    lines = "\n" * (end_line - node.lineno)
    end = (end_line, node.end_col_offset or 0)
    return _Edit((node.lineno, node.col_offset), end, before + lines + after)


def _comments(text: str) -> Iterator[_Edit]:
    lines = text.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row = token.start[0]
            column = len(lines[row - 1][: token.start[1]].encode())
            end = column + len(token.string.encode())
            yield _Edit((row, column), (row, end), "")


def _apply(text: str, edits: list[_Edit]) -> str:
    """Apply edits; of two that overlap, the one that begins first and ends last."""
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def offset(place: tuple[int, int]) -> int:
        return starts[place[0] - 1] + place[1]

    pieces: list[bytes] = []
    done = 0
    for edit in sorted(edits, key=lambda e: (offset(e.start), -offset(e.end))):
        if offset(edit.start) < done:
            continue
        pieces += [data[done : offset(edit.start)], edit.text.encode()]
        done = offset(edit.end)
    return b"".join([*pieces, data[done:]]).decode()


def _check(edited: str) -> None:
    """Refuse a text in which a word is left that is neither public nor new."""
    for token in tokenize.generate_tokens(io.StringIO(edited).readline):
        if token.type == tokenize.NAME:
            word = token.string
            known = keyword.iskeyword(word) or word in public_names()
            if not (known or word in _PUBLIC_KEYWORDS or _NEW_NAME.match(word)):
                raise UnreadableKernelError(
                    f"expected a kernel's source without private words, found line "
                    f"{token.start[0]} in syntax that cannot be anonymised: leave the "
                    "run out"
                )
