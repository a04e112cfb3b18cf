"""Values of a kernel's host code, as far as shapes alone decide them.

Between a kernel's signature and its loops stands ordinary Python: `m, k = x.size()`,
`half = d // 2`, `hl.specialize(n)`. Evaluating it on the shapes of a record gives loop
bounds and fixed tile sizes. Whatever shapes do not decide is UNKNOWN, never a guess.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import Final

from costmodel.frozen import dataclass


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()


@dataclass(frozen=True, slots=True)
class HostTensor:
    """A tensor of the host, by its sizes; a size may be UNKNOWN."""

    shape: tuple[Any, ...]


_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.LShift: lambda a, b: a << min(int(b), 62),
    ast.RShift: operator.rshift,
}

_COMPARISONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

_SAME_SHAPE = frozenset(
    {
        "empty_like",
        "zeros_like",
        "ones_like",
        "full_like",
        "contiguous",
        "to",
        "float",
        "half",
        "bfloat16",
        "int",
        "clone",
    }
)
_NEW_SHAPE = frozenset({"empty", "zeros", "ones", "full", "new_empty", "new_zeros"})


class HostValues:
    """An environment of names and what shapes say about them."""

    def __init__(
        self,
        tensors: Mapping[str, tuple[int, ...]],
        known_tensors: Mapping[str, tuple[int, ...]],
        tunables: Mapping[str, int],
    ) -> None:
        """Start from a signature.

        Args:
            tensors: Shapes of tensor parameters by name.
            known_tensors: Shapes of host tensors that the IR graph names; they win
                over what the host code would give, as Helion has run it.
            tunables: Values of the kernel's own tunables.
        """
        self._known = {n: HostTensor(tuple(s)) for n, s in known_tensors.items()}
        self._names: dict[str, Any] = {n: HostTensor(s) for n, s in tensors.items()}
        self._tunables = tunables
        self.tunable_defaults: dict[str, int] = {}

    def bind(self, target: ast.expr, value: Any) -> None:
        """Assign a value to a name or to a tuple of names."""
        if isinstance(target, ast.Name):
            self._names[target.id] = self._known.get(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = value if isinstance(value, (tuple, list)) else ()
            fits = len(parts) == len(target.elts)
            for index, element in enumerate(target.elts):
                self.bind(element, parts[index] if fits else UNKNOWN)

    def run(self, statement: ast.stmt) -> None:
        """Carry out one assignment; anything else changes nothing."""
        if isinstance(statement, ast.Assign):
            value = self.value(statement.value)
            for target in statement.targets:
                self.bind(target, value)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self.bind(statement.target, self.value(statement.value))
        elif isinstance(statement, ast.AugAssign):
            value = self.value(
                ast.BinOp(
                    left=_as_load(statement.target),
                    op=statement.op,
                    right=statement.value,
                )
            )
            self.bind(statement.target, value)

    def value(self, node: ast.expr) -> Any:
        """Evaluate an expression; UNKNOWN where shapes do not decide it."""
        try:
            return self._value(node)
        except (TypeError, ValueError, ZeroDivisionError, IndexError, OverflowError):
            return UNKNOWN

    def integer(self, node: ast.expr | None) -> int | None:
        """Evaluate to an integer, or None."""
        return None if node is None else as_integer(self.value(node))

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            known = self._known.get(node.id, UNKNOWN)
            return self._names.get(node.id, known)
        if isinstance(node, (ast.Tuple, ast.List)):
            return tuple(self._value(element) for element in node.elts)
        if isinstance(node, ast.BinOp):
            left, right = self._value(node.left), self._value(node.right)
            apply = _OPERATORS.get(type(node.op))
            if UNKNOWN in (left, right) or apply is None:
                return UNKNOWN
            return apply(left, right)
        if isinstance(node, ast.UnaryOp):
            inner = self._value(node.operand)
            if inner is UNKNOWN:
                return UNKNOWN
            if isinstance(node.op, ast.USub):
                return -inner
            return (not inner) if isinstance(node.op, ast.Not) else UNKNOWN
        if isinstance(node, ast.IfExp):
            test = self._value(node.test)
            if test is UNKNOWN:
                return UNKNOWN
            return self._value(node.body if test else node.orelse)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self._value(node.left), self._value(node.comparators[0])
            apply = _COMPARISONS.get(type(node.ops[0]))
            if UNKNOWN in (left, right) or apply is None:
                return UNKNOWN
            return apply(left, right)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        return UNKNOWN

    def _attribute(self, node: ast.Attribute) -> Any:
        base = self._value(node.value)
        if not isinstance(base, HostTensor):
            return UNKNOWN
        if node.attr == "shape":
            return base.shape
        if node.attr == "T":
            return HostTensor(tuple(reversed(base.shape)))
        return len(base.shape) if node.attr == "ndim" else UNKNOWN

    def _subscript(self, node: ast.Subscript) -> Any:
        base = self._value(node.value)
        if not isinstance(base, tuple):
            return UNKNOWN
        if isinstance(node.slice, ast.Slice):
            parts = (node.slice.lower, node.slice.upper, node.slice.step)
            bounds = [None if p is None else self._value(p) for p in parts]
            return UNKNOWN if UNKNOWN in bounds else base[slice(*bounds)]
        index = self._value(node.slice)
        return base[index] if isinstance(index, int) else UNKNOWN

    def _call(self, node: ast.Call) -> Any:
        func = node.func
        name = func.attr if isinstance(func, ast.Attribute) else ""
        name = func.id if isinstance(func, ast.Name) else name
        if name == "register_tunable":
            return self._tunable(node)
        arguments = [
            self._value(a) for a in node.args if not isinstance(a, ast.Starred)
        ]
        base = self._value(func.value) if isinstance(func, ast.Attribute) else UNKNOWN
        if isinstance(base, HostTensor):
            return self._method(name, base, arguments)
        if name in _SAME_SHAPE and arguments and isinstance(arguments[0], HostTensor):
            return arguments[0]
        if name in _NEW_SHAPE and arguments:
            return _new_tensor(arguments if name != "full" else arguments[:1])
        return _function(name, arguments)

    def _method(self, name: str, base: HostTensor, arguments: list[Any]) -> Any:
        if name in ("size", "stride") and not arguments:
            return base.shape if name == "size" else UNKNOWN
        if name == "size":
            return base.shape[arguments[0]] if arguments[0] is not UNKNOWN else UNKNOWN
        if name in ("dim", "ndimension"):
            return len(base.shape)
        if name == "numel":
            return UNKNOWN if UNKNOWN in base.shape else math.prod(base.shape)
        if name in _SAME_SHAPE:
            return base
        if name in ("view", "reshape"):
            return _viewed(base, _flat(arguments))
        if name in ("new_empty", "new_zeros"):
            return _new_tensor(arguments[:1])
        if name in ("t", "transpose") and len(base.shape) == 2:
            return HostTensor(tuple(reversed(base.shape)))
        return UNKNOWN

    def _tunable(self, node: ast.Call) -> Any:
        first = node.args[0] if node.args else None
        if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            return UNKNOWN
        fragment = node.args[1] if len(node.args) > 1 else None
        numbers: list[int] = []
        if isinstance(fragment, ast.Call):
            numbers = [n for a in fragment.args if (n := self.integer(a)) is not None]
        # Helion's fragments take (low, high, default); without a default the lowest.
        default = numbers[2] if len(numbers) > 2 else (numbers or [1])[0]
        self.tunable_defaults[first.value] = default
        return self._tunables.get(first.value, UNKNOWN)


def as_integer(value: Any) -> int | None:
    """The integer a value is, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not (math.isfinite(value) and value == int(value)):
        return None
    return int(value)


def _as_load(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Name):
        return ast.Name(id=target.id, ctx=ast.Load())
    return target


def _flat(arguments: list[Any]) -> tuple[Any, ...]:
    if len(arguments) == 1 and isinstance(arguments[0], tuple):
        return arguments[0]
    return tuple(arguments)


def _new_tensor(arguments: list[Any]) -> Any:
    return HostTensor(_flat(arguments))


def _viewed(base: HostTensor, shape: tuple[Any, ...]) -> HostTensor:
    if -1 not in shape or UNKNOWN in shape or UNKNOWN in base.shape:
        return HostTensor(tuple(UNKNOWN if s == -1 else s for s in shape))
    rest = math.prod(s for s in shape if s != -1)
    missing = math.prod(base.shape) // max(1, rest)
    return HostTensor(tuple(missing if s == -1 else s for s in shape))


def _function(name: str, arguments: list[Any]) -> Any:
    if not arguments or any(a is UNKNOWN for a in arguments):
        return UNKNOWN
    if name in ("specialize", "int", "constexpr"):
        return arguments[0]
    if name == "len" and isinstance(arguments[0], tuple):
        return len(arguments[0])
    if name in ("min", "max"):
        values = _flat(arguments)
        return UNKNOWN if UNKNOWN in values else (min if name == "min" else max)(values)
    if name == "cdiv" and len(arguments) == 2:
        return -(-arguments[0] // arguments[1])
    if name == "next_power_of_2":
        return 1 << max(0, int(arguments[0]) - 1).bit_length()
    return UNKNOWN
