"""What an operation of the IR is, read from its target's spelling.

Targets come in two spellings, `torch._ops.aten.aten::sum.dim_IntList` and
`helion.language.memory_ops.load`; only the last name counts. Unknown names are
pointwise arithmetic of one instruction an element: a new operation must make the
estimates coarser, never fail.
"""

from __future__ import annotations

import enum


class OpKind(enum.StrEnum):
    """What a node does to data."""

    HOST_TENSOR = "host_tensor"
    PLACEHOLDER = "placeholder"
    OUTPUT = "output"
    SYMBOL = "symbol"
    TILE_SCALAR = "tile_scalar"
    TILE_INDEX = "tile_index"
    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    DOT = "dot"
    REDUCTION = "reduction"
    SCAN = "scan"
    FOR_LOOP = "for_loop"
    IF = "if"
    WHILE = "while"
    CREATE = "create"
    VIEW = "view"
    ALIAS = "alias"
    CONVERT = "convert"
    SCALAR = "scalar"
    POINTWISE = "pointwise"


_BY_NAME = {
    "_host_tensor": OpKind.HOST_TENSOR,
    "_get_symnode": OpKind.SYMBOL,
    "sym_size": OpKind.SYMBOL,
    "tile_begin": OpKind.TILE_SCALAR,
    "tile_end": OpKind.TILE_SCALAR,
    "tile_id": OpKind.TILE_SCALAR,
    "tile_count": OpKind.TILE_SCALAR,
    "tile_block_size": OpKind.TILE_SCALAR,
    "tile_index": OpKind.TILE_INDEX,
    "load": OpKind.LOAD,
    "store": OpKind.STORE,
    "_associative_scan": OpKind.SCAN,
    "cumsum": OpKind.SCAN,
    "cumprod": OpKind.SCAN,
    "_reduce": OpKind.REDUCTION,
    "_if": OpKind.IF,
    "_while_loop": OpKind.WHILE,
    "full": OpKind.CREATE,
    "zeros": OpKind.CREATE,
    "iota": OpKind.CREATE,
    "arange": OpKind.CREATE,
    "scalar_tensor": OpKind.CREATE,
    "_new_var": OpKind.ALIAS,
    "_phi": OpKind.ALIAS,
    "getitem": OpKind.ALIAS,
    "alias": OpKind.ALIAS,
    "clone": OpKind.ALIAS,
    "detach": OpKind.ALIAS,
    "_mask_to": OpKind.POINTWISE,
    "_inductor_lowering_extra": OpKind.POINTWISE,
    "subscript": OpKind.VIEW,
    "view": OpKind.VIEW,
    "_unsafe_view": OpKind.VIEW,
    "reshape": OpKind.VIEW,
    "permute": OpKind.VIEW,
    "transpose": OpKind.VIEW,
    "t": OpKind.VIEW,
    "unsqueeze": OpKind.VIEW,
    "squeeze": OpKind.VIEW,
    "expand": OpKind.VIEW,
    "slice": OpKind.VIEW,
    "select": OpKind.VIEW,
    "split": OpKind.VIEW,
    "join": OpKind.VIEW,
    "stack": OpKind.VIEW,
    "cat": OpKind.VIEW,
    "convert_element_type": OpKind.CONVERT,
    "_to_copy": OpKind.CONVERT,
}

DOT_NAMES = frozenset(
    {"addmm", "mm", "bmm", "baddbmm", "dot", "matmul", "dot_scaled", "_scaled_mm"}
)

# Operations that run on the special function unit or expand to a call of it; at 16
# lanes an SM and clock against 128 for an FMA (CUDA C++ programming guide, table of
# arithmetic throughput, compute capability 8.x and 9.0).
SPECIAL_NAMES = frozenset(
    {
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "tanh",
        "erf",
        "erfinv",
        "gelu",
        "_gelu_erf",
        "_gelu_tanh_approx",
        "sigmoid",
        "silu",
        "softplus",
        "mish",
        "rsqrt",
        "sqrt",
        "div",
        "true_divide",
        "reciprocal",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "atan2",
        "sinh",
        "cosh",
        "pow",
        "fmod",
        "remainder",
        "floor_divide",
        "rand",
        "randint",
        "_softmax",
        "_log_softmax",
    }
)

_ITEM_BYTES = {
    "float64": 8,
    "int64": 8,
    "uint64": 8,
    "complex64": 8,
    "float32": 4,
    "int32": 4,
    "uint32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int16": 2,
    "uint16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}


def item_bytes(dtype: str | None) -> int:
    """Bytes of one element of a dtype as torch prints it; 4 for one not known."""
    name = (dtype or "").removeprefix("torch.")
    if name in _ITEM_BYTES:
        return _ITEM_BYTES[name]
    if name.startswith(("float8", "float4")):
        return 1  # float4 is stored two to a byte, and torch counts the byte
    return 4


def is_float8(dtype: str | None) -> bool:
    """Whether a dtype is one of the 8-bit floats."""
    return "float8" in (dtype or "")


def math_dtype(dtype: str | None) -> str:
    """Name of the tensor-core rate (`Hardware.peak_tflops`) that a dtype uses."""
    name = (dtype or "").removeprefix("torch.")
    if name in ("bfloat16", "float16"):
        return "bf16" if name == "bfloat16" else "fp16"
    if name.startswith(("float8", "float4")):
        return "fp8"
    if name in ("int8", "uint8", "bool"):
        return "int8"
    return "tf32" if name == "float32" else "fp32"


def op_name(target: str) -> str:
    """Last name of a target, without overload: `aten::sum.dim_IntList` -> `sum`."""
    if "::" in target:
        return target.rsplit("::", 1)[1].split(".", 1)[0]
    return target.rsplit(".", 1)[-1]


def op_kind(op: str, target: str, lowering: str | None) -> OpKind:
    """Classify one node.

    Args:
        op: FX op of the node: `placeholder`, `output`, `call_function`, ...
        target: Spelling of what is called.
        lowering: Helion's lowering class, which alone tells an inductor reduction.
    """
    if op == "placeholder":
        return OpKind.PLACEHOLDER
    if op == "output":
        return OpKind.OUTPUT
    name = op_name(target)
    if name in DOT_NAMES:
        return OpKind.DOT
    if lowering == "ReductionLowering":
        return OpKind.REDUCTION
    known = _BY_NAME.get(name)
    if known is not None:
        return known
    if "for_loop" in name:
        return OpKind.FOR_LOOP
    if name.startswith("atomic_") or ".atomic_ops." in target:
        return OpKind.ATOMIC
    if target.startswith("_operator.") and lowering != "PointwiseLowering":
        return OpKind.SCALAR
    return OpKind.POINTWISE
