"""The loops that a kernel's source declares, in the order Helion numbers them.

The IR graph has no loop bounds and no literal tile size: both stand only in the
source, as `hl.tile(n, block_size=64)` or `hl.grid(b)`. Helion hands out block ids in
the order of these calls, so their order here ties a loop to its block ids.
"""

from __future__ import annotations

import ast
import enum
import functools
import textwrap
from collections.abc import Iterator
from collections.abc import Mapping
from typing import TypeAlias

from costmodel.features.hostvalues import HostTensor
from costmodel.features.hostvalues import HostValues
from costmodel.features.hostvalues import as_integer
from costmodel.frozen import dataclass


class AxisKind(enum.StrEnum):
    """Who decides the size of one axis of a loop."""

    TUNABLE = "tunable"
    REGISTERED = "registered"
    FIXED = "fixed"
    GRID = "grid"
    JAGGED = "jagged"


AxisKey: TypeAlias = tuple[int, int]
"""Line of a loop in the logged source, and index of one of its axes."""


@dataclass(frozen=True, slots=True)
class LoopAxis:
    """One axis of one loop.

    Attributes:
        kind: Who decides its size.
        begin: First index, or None where shapes do not decide it.
        end: Index after the last, or None likewise.
        size: Fixed size or grid step in elements, or None likewise.
        registered: Variable of the registered size, or of the tile whose size it
            reuses; None for the other kinds.
    """

    kind: AxisKind
    begin: int | None = 0
    end: int | None = None
    size: int | None = None
    registered: str | None = None

    @property
    def extent(self) -> int | None:
        """Elements walked, or None where shapes do not decide it."""
        if self.begin is None or self.end is None:
            return None
        return max(0, self.end - self.begin)


@dataclass(frozen=True, slots=True)
class SourceLoop:
    """One `for` over `hl.tile`, `hl.grid` or `range`, with the loops inside it.

    Attributes:
        line: Line of the `for` in the logged source, from 1.
        targets: Loop variables where they are plain names.
        axes: Axes, outermost first; fewer than Helion's if a size list is unknown.
        inner: Loops directly inside, in program order.
    """

    line: int
    targets: tuple[str, ...]
    axes: tuple[LoopAxis, ...]
    inner: tuple[SourceLoop, ...]


@dataclass(frozen=True, slots=True)
class KernelSource:
    """What the source of a kernel says about its loops.

    Attributes:
        parameters: Shapes of tensor parameters, by name.
        roots: Loops of the grid, in order.
        allocations: What gets a block id, in Helion's order: the variable of a
            registered size, or the line and axis of a loop.
        tunables: The kernel's own tunables and their defaults.
    """

    parameters: Mapping[str, tuple[int, ...]]
    roots: tuple[SourceLoop, ...]
    allocations: tuple[str | AxisKey, ...]
    tunables: Mapping[str, int]

    def loops(self) -> Iterator[SourceLoop]:
        """All loops, outer before inner, in program order."""
        stack = list(reversed(self.roots))
        while stack:
            loop = stack.pop()
            yield loop
            stack.extend(reversed(loop.inner))


def read_source(
    kernel_source: str,
    input_shapes: tuple[tuple[int, ...], ...],
    host_shapes: Mapping[str, tuple[int, ...]],
    tunables: Mapping[str, int] | None = None,
) -> KernelSource | None:
    """Parse a kernel's logged source; None when it holds no function to read.

    Args:
        kernel_source: As Helion logs it.
        input_shapes: Shapes of tensor arguments in argument order.
        host_shapes: Shapes of host tensors by the name that the IR graph gives.
        tunables: Values of the kernel's own tunables; absent ones are unknown.
    """
    function = _function_of(kernel_source)
    if function is None:
        return None
    shapes = parameter_shapes(function, input_shapes)
    values = HostValues(shapes, host_shapes, tunables or {})
    reader = _Reader(values, registers=_REGISTER in kernel_source)
    roots = reader.loops_of(function.body, on_host=True)
    return KernelSource(
        parameters=shapes,
        roots=tuple(roots),
        allocations=tuple(reader.allocations),
        tunables=dict(reader.values.tunable_defaults),
    )


# One kernel is read several times: its loops, its parameters, its tunables' sizes.
@functools.lru_cache(maxsize=8)
def _function_of(kernel_source: str) -> ast.FunctionDef | None:
    """The outermost function of a source, read-only; None where there is none."""
    try:
        tree = ast.parse(textwrap.dedent(kernel_source))
    except (SyntaxError, ValueError, RecursionError):
        return None
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return next(functions, None)


def read_parameters(
    kernel_source: str, input_shapes: tuple[tuple[int, ...], ...]
) -> dict[str, tuple[int, ...]]:
    """Shapes by parameter, as `read_source` has them; empty where it reads none."""
    function = _function_of(kernel_source)
    return {} if function is None else parameter_shapes(function, input_shapes)


def parameter_shapes(
    function: ast.FunctionDef, input_shapes: tuple[tuple[int, ...], ...]
) -> dict[str, tuple[int, ...]]:
    """Match logged shapes, one per tensor argument, to parameters by position."""
    parameters = [*function.args.posonlyargs, *function.args.args]
    names = [p.arg for p in parameters]
    if len(names) != len(input_shapes):
        names = [p.arg for p in parameters if _may_be_tensor(p)]
    if len(names) < len(input_shapes):
        return {}
    return dict(zip(names, input_shapes, strict=False))


def _may_be_tensor(argument: ast.arg) -> bool:
    if argument.annotation is None:
        return True
    return "Tensor" in ast.unparse(argument.annotation)


def call_name(node: ast.AST) -> str:
    """Last name of what a call calls: `hl.tile(...)` -> `tile`; '' for no call."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


_LOOPS = ("tile", "grid", "range", "jagged_tile")
_REGISTER = "register_block_size"


class _Reader:
    """Walks statements in program order, evaluating and collecting loops."""

    def __init__(self, values: HostValues, registers: bool) -> None:
        self.values = values
        self._registers = registers  # whether some statement registers a size
        self.allocations: list[str | AxisKey] = []
        self._tiles: set[str] = set()

    def loops_of(self, body: list[ast.stmt], on_host: bool) -> list[SourceLoop]:
        """Loops directly inside these statements, entering branches and `while`."""
        loops: list[SourceLoop] = []
        for statement in body:
            if isinstance(statement, ast.For):
                loops.extend(self._for(statement, on_host))
            elif isinstance(statement, ast.If):
                loops.extend(self._if(statement, on_host))
            elif isinstance(statement, (ast.While, ast.With)):
                loops.extend(self.loops_of(statement.body, on_host))
            else:
                self._register(statement)
                self.values.run(statement)
        return loops

    def _if(self, statement: ast.If, on_host: bool) -> list[SourceLoop]:
        test = self.values.value(statement.test)
        taken = [statement.body, statement.orelse]
        if isinstance(test, bool):
            taken = [statement.body if test else statement.orelse]
        return [loop for body in taken for loop in self.loops_of(body, on_host)]

    def _register(self, statement: ast.stmt) -> None:
        if not self._registers:
            return
        for node in ast.walk(statement):
            if call_name(node) == _REGISTER:
                target = ""
                if isinstance(statement, ast.Assign):
                    only = statement.targets[0]
                    target = only.id if isinstance(only, ast.Name) else ""
                self.allocations.append(target)

    def _for(self, statement: ast.For, on_host: bool) -> list[SourceLoop]:
        name = call_name(statement.iter)
        if name not in _LOOPS or (on_host and name == "range"):
            return self.loops_of(statement.body, on_host)
        assert isinstance(statement.iter, ast.Call)
        axes = self._axes(name, statement.iter)
        self.allocations.extend(
            (statement.lineno, index)
            for index, axis in enumerate(axes)
            if axis.kind is not AxisKind.REGISTERED
        )
        targets = _target_names(statement.target)
        self._tiles.update(targets)
        inner = self.loops_of(statement.body, on_host=False)
        return [SourceLoop(statement.lineno, targets, axes, tuple(inner))]

    def _axes(self, name: str, call: ast.Call) -> tuple[LoopAxis, ...]:
        if name == "jagged_tile":
            return (LoopAxis(AxisKind.JAGGED),)
        keywords = {k.arg: k.value for k in call.keywords if k.arg}
        begin, end = None, call.args[0] if call.args else None
        if len(call.args) > 1 and not _is_none(call.args[1]):
            begin, end = call.args[0], call.args[1]
        size = keywords.get("block_size" if name == "tile" else "step")
        if size is None and len(call.args) > 2:
            size = call.args[2]
        ends = self._parts(end)
        begins = self._parts(begin) if begin is not None else [0] * len(ends)
        sizes = _expressions(size)
        return tuple(
            self._axis(
                name,
                begins[i] if i < len(begins) else None,
                ends[i],
                sizes[i] if i < len(sizes) else None,
            )
            for i in range(len(ends))
        )

    def _parts(self, node: ast.expr | None) -> list[int | None]:
        """Bounds, one per axis: of a list, of `x.size()`, or of one expression."""
        if node is None:
            return [None]
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.values.integer(element) for element in node.elts]
        value = self.values.value(node)
        if isinstance(value, HostTensor):
            value = value.shape
        if isinstance(value, tuple):
            return [as_integer(part) for part in value]
        return [as_integer(value)]

    def _axis(
        self, name: str, begin: int | None, end: int | None, size: ast.expr | None
    ) -> LoopAxis:
        if name != "tile":
            step = 1 if size is None else self.values.integer(size)
            return LoopAxis(AxisKind.GRID, begin, end, step)
        if size is None or _is_none(size):
            return LoopAxis(AxisKind.TUNABLE, begin, end)
        reused = self._reused(size)
        if reused is not None:
            return LoopAxis(AxisKind.REGISTERED, begin, end, registered=reused)
        return LoopAxis(AxisKind.FIXED, begin, end, self.values.integer(size))

    def _reused(self, size: ast.expr) -> str | None:
        if isinstance(size, ast.Attribute) and size.attr == "block_size":
            size = size.value
        if not isinstance(size, ast.Name):
            return None
        known = size.id in self.allocations or size.id in self._tiles
        return size.id if known else None


def _expressions(node: ast.expr | None) -> list[ast.expr | None]:
    if isinstance(node, (ast.List, ast.Tuple)):
        return list(node.elts)
    return [node]


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _target_names(target: ast.expr) -> tuple[str, ...]:
    if isinstance(target, ast.Name):
        return (target.id,)
    if isinstance(target, (ast.Tuple, ast.List)):
        return tuple(e.id if isinstance(e, ast.Name) else "" for e in target.elts)
    return ()
