"""Sizes written as text, evaluated for many configs at once.

Helion prints sizes as sympy does: `64`, `u0`, `2*u0`, `Max(1, u1)`, `((s27 + 7)//8)`.
Parsed once as a Python expression, one is evaluated over float64 arrays whose values
are whole numbers, so that sums and products are exact and the order of rows never
matters.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Sizes: TypeAlias = npt.NDArray[np.float64]
"""float64[n] of whole numbers, one per config, or float64[1] where all agree."""

# Beyond 2**53 float64 stops being exact on whole numbers; nothing a kernel touches
# comes near, so a larger value is a misread and is clipped to keep sums finite.
_LARGEST = float(2**53)


@lru_cache(maxsize=4096)
def _parse(text: str) -> ast.expr | None:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=4096)
def names_in(text: str) -> frozenset[str]:
    """Symbols that a size mentions."""
    tree = _parse(text)
    if tree is None:
        return frozenset()
    called = {
        n.func.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
    return frozenset(
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id not in called
    )


@lru_cache(maxsize=4096)
def literal(text: str) -> int | None:
    """The integer that a size spells, or None."""
    text = text.strip()
    digits = text[1:] if text[:1] == "-" else text
    return int(text) if digits.isdigit() else None


def evaluate(text: str, values: Mapping[str, Sizes]) -> Sizes | None:
    """Evaluate a size for all configs; None where a symbol or a form is not known."""
    number = literal(text)
    if number is not None:
        return np.array([float(number)])
    found = values.get(text)
    if found is not None:
        return found
    tree = _parse(text)
    result = None if tree is None else _evaluate(tree, values)
    if result is None:
        return None
    return np.clip(np.nan_to_num(result), -_LARGEST, _LARGEST)


def _evaluate(node: ast.expr, values: Mapping[str, Sizes]) -> Sizes | None:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            return np.array([float(node.value)])
        return None
    if isinstance(node, ast.Name):
        return values.get(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _evaluate(node.operand, values)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp):
        left = _evaluate(node.left, values)
        right = _evaluate(node.right, values)
        if left is None or right is None:
            return None
        return _binary(node.op, left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        parts = [_evaluate(arg, values) for arg in node.args]
        known = [part for part in parts if part is not None]
        if len(known) != len(parts) or not known:
            return None
        return _call(node.func.id, known)
    return None


def _binary(op: ast.operator, left: Sizes, right: Sizes) -> Sizes | None:
    if isinstance(op, ast.Add):
        return left + right
    if isinstance(op, ast.Sub):
        return left - right
    if isinstance(op, ast.Mult):
        return left * right
    safe = np.where(right == 0.0, 1.0, right)
    if isinstance(op, ast.FloorDiv):
        return np.floor(left / safe)
    if isinstance(op, ast.Div):
        return left / safe
    if isinstance(op, ast.Mod):
        rest: Sizes = left - np.floor(left / safe) * safe
        return rest
    if isinstance(op, ast.Pow):
        power: Sizes = np.power(np.clip(left, 0.0, 2.0**32), np.clip(right, 0.0, 2.0))
        return power
    return None


def _call(name: str, parts: list[Sizes]) -> Sizes | None:
    if name in ("Max", "Min"):
        pick = np.maximum if name == "Max" else np.minimum
        result = parts[0]
        for part in parts[1:]:
            result = pick(result, part)
        return result
    if len(parts) == 2:
        ops: dict[str, ast.operator] = {
            "FloorDiv": ast.FloorDiv(),
            "CleanDiv": ast.FloorDiv(),
            "Mod": ast.Mod(),
            "PythonMod": ast.Mod(),
            "IntTrueDiv": ast.Div(),
            "FloatTrueDiv": ast.Div(),
        }
        return _binary(ops[name], *parts) if name in ops else None
    if name in ("ceiling", "CeilToInt"):
        return np.ceil(parts[0])
    if name in ("floor", "FloorToInt", "TruncToInt"):
        return np.floor(parts[0])
    if name in ("Identity", "ToFloat", "RoundToInt"):
        return parts[0]
    return None


def next_power_of_2(size: int) -> int:
    """Smallest power of two that is at least `size`, and at least 1."""
    return 1 << max(0, int(size) - 1).bit_length()


def ceil_div(numerator: Sizes, denominator: Sizes) -> Sizes:
    """Whole tiles that cover an extent, at least one."""
    return np.maximum(1.0, np.ceil(numerator / np.maximum(denominator, 1.0)))
