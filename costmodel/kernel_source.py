"""Turn a kernel's logged source text back into a function, if it is plainly a kernel.

A log is data from elsewhere, so its source is not trusted: only text made of array
operations passes. It must be one function that reaches nothing but the tensor
functions of torch, Helion's language, a few builtins and its own arguments; what is
not on a list here is refused. Loops are not run, since Helion traces the syntax tree.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable
from collections.abc import Iterator
from types import ModuleType
from typing import Any

# Names a kernel may use without having defined them.
_BUILTINS = frozenset(
    {"abs", "bool", "divmod", "enumerate", "float", "int", "len", "list", "max", "min"}
    | {"pow", "range", "reversed", "round", "slice", "sum", "tuple", "zip"}
)
# Python functions of torch, and constants, that only make or shape tensors; tensor
# functions written in C++ are recognised as such.
_TORCH = frozenset(
    {"Size", "Tensor", "device", "finfo", "iinfo", "inf", "nan", "pi"}
    | {"broadcast_shapes", "broadcast_tensors", "einsum", "split"}
    | {"sym_int", "sym_max", "sym_min"}
)
# C++ functions of torch that touch files or foreign memory.
_TORCH_REFUSED = frozenset({"from_file", "frombuffer"})
_HELION = frozenset({"cdiv", "next_power_of_2"})
_DTYPE_QUESTIONS = (["itemsize"], ["is_floating_point"], ["is_signed"])
# Methods that leave the world of fake tensors, and attributes that lead to frames or
# reach names inside format strings.
_ATTRIBUTES_REFUSED = frozenset(
    {"apply_", "format", "format_map", "map2_", "map_", "numpy", "tofile"}
    | {"f_back", "f_builtins", "f_globals", "f_locals", "gi_code", "gi_frame"}
)
_STATEMENTS = (
    ast.AnnAssign,
    ast.Assert,
    ast.Assign,
    ast.AugAssign,
    ast.Break,
    ast.Continue,
    ast.Expr,
    ast.For,
    ast.FunctionDef,
    ast.If,
    ast.Pass,
    ast.Return,
    ast.While,
)
_EXPRESSIONS_REFUSED = (
    ast.Await,
    ast.GeneratorExp,
    ast.NamedExpr,
    ast.Yield,
    ast.YieldFrom,
)


def parse_kernel(source: str) -> ast.FunctionDef | None:
    """The one function of the source without decorators, or None if it is refused.

    Args:
        source: As Helion logs it: possibly indented, decorators included.
    """
    try:
        tree = ast.parse(textwrap.dedent(source))
    except (SyntaxError, ValueError, RecursionError):
        return None
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        return None
    function = tree.body[0]
    function.decorator_list = []
    for argument in _all_arguments(function):
        if argument.annotation is not None:
            argument.annotation = _plain_annotation(argument.annotation)
    function.returns = None
    for node in ast.walk(function):
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return function if _is_plain(function) else None


@contextlib.contextmanager
def defined(function: ast.FunctionDef) -> Iterator[Callable[..., Any]]:
    """The function as Python code whose source Helion can read, while in the block."""
    text = ast.unparse(function)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    name = f"_costmodel_rebuilt_{digest}"
    filename = f"<{name}>"
    module = ModuleType(name)
    module.__dict__.update(_roots())
    # No modification time: the cache then keeps a text that has no file.
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    sys.modules[name] = module
    try:
        code = compile(text, filename, "exec", dont_inherit=True)
        exec(code, module.__dict__)
        yield module.__dict__[function.name]
    finally:
        sys.modules.pop(name, None)
        linecache.cache.pop(filename, None)


def _roots() -> dict[str, ModuleType]:
    """Modules under the names kernels use for them."""
    import math

    import helion
    import helion.language
    import torch

    return {
        "torch": torch,
        "helion": helion,
        "hl": helion.language,
        "math": math,
        "F": torch.nn.functional,
    }


def _is_plain(function: ast.FunctionDef) -> bool:
    own = _own_names(function)
    roots = _roots()
    if own & set(roots):
        return False
    # Names that are the base of an attribute chain are judged with the chain.
    bases: set[int] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.stmt) and not isinstance(node, _STATEMENTS):
            return False
        if isinstance(node, _EXPRESSIONS_REFUSED):
            return False
        if isinstance(node, ast.Attribute) and (
            node.attr.startswith("_") or node.attr in _ATTRIBUTES_REFUSED
        ):
            return False
        if isinstance(node, ast.Attribute) and id(node) not in bases:
            chain = _chain(node)
            if chain and chain[0].id in roots:
                found = _resolves(roots[chain[0].id], chain[1])
                if not found:
                    return False
                bases |= chain[2]
        if isinstance(node, ast.Name) and id(node) not in bases:
            known = node.id in own or node.id in _BUILTINS
            if not known or node.id.startswith("__"):
                return False
    # Defaults are the one part that runs when the function is defined.
    defaults = [*function.args.defaults, *function.args.kw_defaults]
    return all(default is None or _is_inert(default) for default in defaults)


def _is_inert(expression: ast.expr) -> bool:
    """Whether evaluating it does nothing: a literal or a dotted name."""
    calls = (ast.Call, ast.Subscript, ast.BinOp, ast.Lambda, ast.comprehension)
    return not any(isinstance(node, calls) for node in ast.walk(expression))


def _chain(node: ast.Attribute) -> tuple[ast.Name, list[str], set[int]] | None:
    """The name at the base, the attributes after it, and the nodes on the way."""
    attributes: list[str] = []
    passed: set[int] = set()
    current: ast.expr = node
    while isinstance(current, ast.Attribute):
        attributes.append(current.attr)
        passed.add(id(current))
        current = current.value
    if not isinstance(current, ast.Name):
        return None
    passed.add(id(current))
    return current, attributes[::-1], passed


def _resolves(module: ModuleType, attributes: list[str]) -> bool:
    """Whether a chain from a module ends at something a kernel may use."""
    import torch

    inner = (torch.nn, torch.nn.functional, torch.special)
    for position, attribute in enumerate(attributes):
        value = getattr(module, attribute, None)
        if isinstance(value, ModuleType):
            if value not in inner and value is not _roots()["hl"]:
                return False
            module = value
            continue
        rest = attributes[position + 1 :]
        # A dtype may be asked for its size; nothing else here has useful attributes.
        asked = isinstance(value, torch.dtype) and rest in _DTYPE_QUESTIONS
        return (not rest or asked) and _is_usable(module, attribute, value)
    return False


def _is_usable(module: ModuleType, name: str, value: Any) -> bool:
    import torch

    if name.startswith("_") or value is None:
        return False
    if module is torch:
        native = hasattr(torch._C._VariableFunctions, name)
        allowed = native and name not in _TORCH_REFUSED
        return allowed or name in _TORCH or isinstance(value, torch.dtype)
    if module is _roots()["helion"]:
        return name in _HELION
    if module is _roots()["hl"]:
        return not isinstance(value, ModuleType) and name != "triton_kernel"
    if module is torch.nn:
        return False
    return inspect.isroutine(value) or isinstance(value, float)


def _own_names(function: ast.FunctionDef) -> set[str]:
    """Parameters and everything the function assigns, its inner functions included."""
    names = {function.name}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
    return names - set(dir(builtins))


def _all_arguments(function: ast.FunctionDef) -> Iterator[ast.arg]:
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            yield node


def _plain_annotation(annotation: ast.expr) -> ast.expr | None:
    """Annotations Helion looks at; others are dropped, not run."""
    text = ast.unparse(annotation).strip("'\"")
    kept = ("torch.Tensor", "hl.constexpr", "int", "float", "bool")
    return ast.parse(text, mode="eval").body if text in kept else None
