"""Recompute Helion's default for a workload that only a log knows.

The kernel is rebuilt from the source text in the log (`kernel_source.py` decides what
is safe to rebuild), bound to tensors without memory of the logged shapes, as if on the
logged GPU, and the installed Helion is asked for its default. A default recorded by
another Helion version can differ.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from costmodel import helion_hook
from costmodel.arguments import DTYPES
from costmodel.arguments import Argument
from costmodel.arguments import ScalarArgument
from costmodel.arguments import TensorArgument
from costmodel.arguments import contiguous_strides
from costmodel.arguments import format_argument
from costmodel.errors import BindError
from costmodel.hardware import match_hardware
from costmodel.kernel_source import defined
from costmodel.kernel_source import parse_kernel
from costmodel.target import bind
from costmodel.types import Config
from costmodel.types import WorkloadRecord

# A bind takes a few tenths of a second, and a log has hundreds of runs.
_MAX_GUESSES = 4
# Settings that change what Helion generates, hence its default; the others in a log
# say how it searched. `index_dtype` is logged as text and handled apart.
CODE_SETTINGS = (
    "allow_warp_specialize",
    "debug_dtype_asserts",
    "disable_autotuner_heuristics",
    "dot_precision",
    "fast_math",
    "persistent_reserved_sms",
    "static_shapes",
)


def rebuild_default(
    record: WorkloadRecord, scalars: Mapping[str, object] | None = None
) -> Config | None:
    """Helion's default for a logged workload, by the installed Helion.

    Args:
        record: From a log.
        scalars: Values of the arguments that are no tensors, by parameter name; a log
            does not hold them. A missing one is its literal default, or for a float any
            number (Helion's default does not depend on it), or for one integer what
            gives the logged IR graph again.

    Returns:
        The default in full form; None where the kernel cannot be rebuilt. Never raises.
    """
    try:
        for guess in _guesses(record, scalars or {}):
            config = _default_with(record, guess)
            if config is not None:
                return config
    except Exception:  # whatever a foreign log holds, "cannot say" is the answer
        return None
    return None


def rebuilt_arguments(
    record: WorkloadRecord, scalars: Mapping[str, object] | None = None
) -> list[str] | None:
    """The arguments of a logged workload as texts, such as "bf16[4096,5120]".

    Args:
        record: From a log.
        scalars: As of `rebuild_default`.

    Returns:
        One text a parameter; None where a scalar cannot be told. Never raises.
    """
    try:
        function = parse_kernel(record.kernel_source)
        for guess in _guesses(record, scalars or {}):
            if guess.unsure and not _binds_alike(record, guess.scalars):
                continue
            assert function is not None  # or there would be no guesses
            arguments = _arguments(function, record, guess.scalars)
            if arguments is not None:
                return [format_argument(argument) for argument in arguments]
    except Exception:  # whatever a foreign log holds, "cannot say" is the answer
        return None
    return None


def _binds_alike(record: WorkloadRecord, scalars: Mapping[str, object]) -> bool:
    try:
        bound = rebuild(record, scalars)
    except BindError:
        return False
    return bound is not None and _same_graph(bound, record)


def rebuild(record: WorkloadRecord, scalars: Mapping[str, object]) -> Any | None:
    """The logged kernel bound for its GPU, or None where that cannot be done.

    Raises:
        BindError: Helion refuses the rebuilt kernel.
    """
    hardware = match_hardware(record.hardware).hardware
    usable = record.settings.get("backend", "triton") == "triton"
    interpreted = (
        str(record.settings.get("ref_mode", "OFF")).rpartition(".")[2] != "OFF"
    )
    if not usable or interpreted or hardware.compute_capability == (0, 0):
        return None
    function = parse_kernel(record.kernel_source)
    if function is None:
        return None
    arguments = _arguments(function, record, scalars)
    settings = kernel_settings(record.settings)
    if arguments is None or settings is None:
        return None
    import helion

    with defined(function) as fn:
        return bind(helion.kernel(fn, **settings), arguments, hardware)


def _default_with(record: WorkloadRecord, guess: _Guess) -> Config | None:
    try:
        bound = rebuild(record, guess.scalars)
    except BindError:
        return None
    if bound is None or (guess.unsure and not _same_graph(bound, record)):
        return None
    return helion_hook.default_config(bound)


class _Guess(NamedTuple):
    scalars: dict[str, object]
    unsure: bool
    """Whether only the logged IR graph can tell that the scalars are right."""


def _guesses(record: WorkloadRecord, scalars: Mapping[str, object]) -> Iterator[_Guess]:
    """Scalars to try, best first; one that needs no check where all are known."""
    function = parse_kernel(record.kernel_source)
    if function is None:
        return
    known = {**_literal_defaults(function), **scalars}
    missing = [
        parameter
        for parameter in function.args.args
        if not _may_be_tensor(parameter) and parameter.arg not in known
    ]
    floats = [p.arg for p in missing if _annotation(p) == "float"]
    others = [p for p in missing if p.arg not in floats]
    filled = {**scalars, **dict.fromkeys(floats, 1.0)}
    if not others:
        yield _Guess(filled, unsure=False)
    if len(others) == 1:
        flags = [False, True]
        flag = _annotation(others[0]) == "bool"
        for value in flags if flag else _logged_sizes(record):
            yield _Guess({**filled, others[0].arg: value}, unsure=True)


def _logged_sizes(record: WorkloadRecord) -> list[int]:
    """Sizes that occur in the IR graph, most frequent first, the inputs' own last."""
    shapes = [
        node.get("concrete_shape") or () for node in record.ir_graph.get("nodes", ())
    ]
    counts = Counter(
        size for shape in shapes for size in shape if isinstance(size, int)
    )
    inputs = {size for shape in record.input_shapes for size in shape}
    ranked = sorted(counts, key=lambda size: (size in inputs, -counts[size], size))
    return ranked[:_MAX_GUESSES]


def _same_graph(bound: Any, record: WorkloadRecord) -> bool:
    """Whether the rebuilt kernel has the logged operations on the logged shapes."""
    fields = ("target", "shape", "concrete_shape", "dtype", "value")

    def facts(graph: Mapping[str, Any]) -> list[list[Any]]:
        return [[node.get(name) for name in fields] for node in graph["nodes"]]

    return facts(helion_hook.record_of(bound).ir_graph) == facts(record.ir_graph)


def kernel_settings(logged: Mapping[str, Any]) -> dict[str, Any] | None:
    """Settings of `helion.kernel` that decide about the code, from those of a log.

    None where one is spelled in a way that is not known.
    """
    import torch

    settings = {name: logged[name] for name in CODE_SETTINGS if name in logged}
    index_dtype = logged.get("index_dtype")
    if index_dtype is not None:
        dtype = getattr(torch, str(index_dtype).removeprefix("torch."), None)
        if not isinstance(dtype, torch.dtype):
            return None
        settings["index_dtype"] = dtype
    return settings


def _arguments(
    function: ast.FunctionDef, record: WorkloadRecord, scalars: Mapping[str, object]
) -> list[Argument] | None:
    """One argument for each parameter: logged tensors in order, scalars by name."""
    parameters = function.args.args
    special = function.args.posonlyargs or function.args.kwonlyargs
    if special or function.args.vararg or function.args.kwarg:
        return None
    values = {**_literal_defaults(function), **scalars}
    tensors = [
        parameter.arg
        for parameter in parameters
        if parameter.arg not in scalars and _may_be_tensor(parameter)
    ]
    if len(tensors) > len(record.input_shapes):
        # An optional tensor that was not given keeps its default.
        tensors = [name for name in tensors if name not in values]
    if len(tensors) != len(record.input_shapes):
        return None
    short = {f"torch.{name}": short for short, name in DTYPES.items()}
    facts = dict(
        zip(tensors, zip(record.input_shapes, record.dtypes, strict=True), strict=True)
    )
    arguments: list[Argument] = []
    for parameter in parameters:
        name = parameter.arg
        if name in facts:
            shape, dtype = facts[name]
            if dtype not in short:
                return None
            strides = _logged_strides(record, name, shape)
            arguments.append(TensorArgument(short[dtype], shape, strides))
        elif name in values:
            value = values[name]
            if not (value is None or isinstance(value, (bool, int, float, str))):
                return None
            arguments.append(ScalarArgument(value))
        else:
            return None
    return arguments


def _may_be_tensor(parameter: ast.arg) -> bool:
    return _annotation(parameter) in ("", "torch.Tensor")


def _annotation(parameter: ast.arg) -> str:
    return "" if parameter.annotation is None else ast.unparse(parameter.annotation)


def _literal_defaults(function: ast.FunctionDef) -> dict[str, object]:
    """Defaults that are written as literals, by parameter name."""
    defaults = function.args.defaults
    named = function.args.args[len(function.args.args) - len(defaults) :]
    found = {}
    for parameter, default in zip(named, defaults, strict=True):
        try:
            found[parameter.arg] = ast.literal_eval(default)
        except ValueError:
            continue
    return found


def _logged_strides(
    record: WorkloadRecord, name: str, shape: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of the host tensor of that name and shape, or None for contiguous.

    A view that the kernel makes under the same name has another shape or, like a
    broadcast, zero strides; then the argument is taken for contiguous.
    """
    for node in record.ir_graph.get("nodes", ()):
        target = str(node.get("target", ""))
        if target.endswith("._host_tensor") and node["id"].endswith(f":{name}"):
            strides = node.get("concrete_stride") or ()
            same = node.get("concrete_shape") == list(shape)
            if same and all(isinstance(s, int) and s > 0 for s in strides):
                found = tuple(strides)
                return None if found == contiguous_strides(shape) else found
    return None
