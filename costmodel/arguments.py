"""One grammar for kernel arguments, used by every command, plan and side file.

    bf16[4096,5120]            a tensor: dtype and shape
    bf16[4096,5120]:1,4096     the same with strides, in elements
    f32[]                      a zero-dimensional tensor
    i64[4096]@index(32000)     values in 0..31999, for gathers
    i32[65]@offsets(8192)      0 = first <= ... <= last = 8192, for jagged rows
    f32[8]@ones                also @zeros, @normal, @uniform
    128   1e-5   true   none   str:silu   dtype:bf16
    [64,64]   (1,[2,none])   ['silu',bf16[8,8]:1,8]

In lists and tuples, which nest, strings are quoted as in Python. Without a fill, floats
are normal, integers small and booleans fair coin flips.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any
from typing import TypeAlias

from costmodel.argument_items import SplitError
from costmodel.argument_items import split_items
from costmodel.errors import ArgumentSpecError
from costmodel.frozen import dataclass

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

DTYPES = {
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "bool": "bool",
}
"""Our short dtype names and torch's."""

PLAIN_FILLS = ("normal", "uniform", "zeros", "ones")
COUNTED_FILLS = ("index", "offsets")

_TENSOR = re.compile(
    r"(?P<dtype>\w+)\[(?P<shape>[^\]]*)\](?::(?P<strides>[^@]*))?(?:@(?P<fill>.*))?"
)
_FILL = re.compile(r"(?P<name>[a-z]+)(?:\((?P<limit>\d+)\))?")
_INTEGER_DTYPES = ("i8", "u8", "i16", "i32", "i64")
_LARGEST = {"i8": 2**7 - 1, "u8": 2**8 - 1, "i16": 2**15 - 1, "i32": 2**31 - 1}
# Small enough to be exact in every dtype and to keep integer dot products in range.
_INTEGER_LIMIT = 8


@dataclass(frozen=True, slots=True)
class Fill:
    """How a tensor's values are made; `limit` belongs to the counted fills."""

    name: str
    limit: int | None = None

    def __str__(self) -> str:
        return self.name if self.limit is None else f"{self.name}({self.limit})"


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """A tensor argument.

    Attributes:
        dtype: Short dtype name, a key of `DTYPES`.
        shape: In elements.
        strides: In elements; None means contiguous.
        fill: How to make values, or None for the dtype's usual ones.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    fill: Fill | None = None

    def fake(self, mode: FakeTensorMode, device: str = "cuda") -> torch.Tensor:
        """A tensor without memory; arguments of one call share one mode."""
        import torch

        with mode:
            return torch.empty_strided(
                self.shape, self._strides(), dtype=self._torch_dtype(), device=device
            )

    def materialize(
        self, device: str | torch.device, generator: torch.Generator
    ) -> torch.Tensor:
        """A tensor with values, equal for equal generator states.

        Values are drawn on the generator's device and then moved.
        """
        import torch

        numel = 1 + sum(
            (size - 1) * stride
            for size, stride in zip(self.shape, self._strides(), strict=True)
        )
        if 0 in self.shape:
            numel = 0
        values = self._values(numel, generator).to(device)
        # `as_strided` keeps the storage exactly as long as the strides need.
        return torch.as_strided(values, self.shape, self._strides())

    def _values(self, numel: int, generator: torch.Generator) -> torch.Tensor:
        """The storage, flat."""
        import torch

        dtype = self._torch_dtype()
        where: dict[str, Any] = {"generator": generator, "device": generator.device}
        name = self.fill.name if self.fill else self._usual_fill()
        limit = self.fill.limit if self.fill else None
        if name == "zeros":
            return torch.zeros(numel, device=generator.device).to(dtype)
        if name == "ones":
            return torch.ones(numel, device=generator.device).to(dtype)
        if name == "uniform":
            return torch.rand(numel, **where).to(dtype)
        if name == "normal":
            return torch.randn(numel, **where).to(dtype)
        if name == "index":
            return torch.randint(0, limit or 1, (numel,), **where).to(dtype)
        if name == "offsets":
            last = limit or 0
            cuts = torch.randint(0, last + 1, (numel - 2,), **where).sort().values
            ends = [cuts.new_tensor([edge]) for edge in (0, last)]
            return torch.cat([ends[0], cuts, ends[1]]).to(dtype)
        low = 0 if self.dtype in ("u8", "bool") else -_INTEGER_LIMIT
        high = 2 if self.dtype == "bool" else _INTEGER_LIMIT
        return torch.randint(low, high, (numel,), **where).to(dtype)

    def _usual_fill(self) -> str:
        discrete = self.dtype == "bool" or self.dtype in _INTEGER_DTYPES
        return "integer" if discrete else "normal"

    def _torch_dtype(self) -> torch.dtype:
        import torch

        dtype = getattr(torch, DTYPES[self.dtype])
        assert isinstance(dtype, torch.dtype)
        return dtype

    def _strides(self) -> tuple[int, ...]:
        return contiguous_strides(self.shape) if self.strides is None else self.strides


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """A number, truth value, string or None."""

    value: int | float | bool | str | None

    def fake(
        self, mode: FakeTensorMode, device: str = "cuda"
    ) -> int | float | bool | str | None:
        """The value itself."""
        return self.value

    def materialize(
        self, device: str | torch.device, generator: torch.Generator
    ) -> int | float | bool | str | None:
        """The value itself."""
        return self.value


@dataclass(frozen=True, slots=True)
class DtypeArgument:
    """A torch dtype: a key of `DTYPES`, or torch's own name for one that has none."""

    name: str

    def fake(self, mode: FakeTensorMode, device: str = "cuda") -> torch.dtype:
        """The dtype."""
        return self._torch_dtype()

    def materialize(
        self, device: str | torch.device, generator: torch.Generator
    ) -> torch.dtype:
        """The dtype."""
        return self._torch_dtype()

    def _torch_dtype(self) -> torch.dtype:
        import torch

        dtype = getattr(torch, DTYPES.get(self.name, self.name), None)
        if not isinstance(dtype, torch.dtype):
            raise _error(f"dtype:{self.name}", "the name of a torch dtype")
        return dtype


@dataclass(frozen=True, slots=True)
class SequenceArgument:
    """A list or tuple of arguments."""

    items: tuple[Argument, ...]
    is_tuple: bool = False

    def fake(
        self, mode: FakeTensorMode, device: str = "cuda"
    ) -> list[Any] | tuple[Any, ...]:
        """A list or tuple of what the items are."""
        return self._made([item.fake(mode, device) for item in self.items])

    def materialize(
        self, device: str | torch.device, generator: torch.Generator
    ) -> list[Any] | tuple[Any, ...]:
        """A list or tuple of the items' values, drawn in order."""
        return self._made([one.materialize(device, generator) for one in self.items])

    def _made(self, values: list[Any]) -> list[Any] | tuple[Any, ...]:
        return tuple(values) if self.is_tuple else values


Argument: TypeAlias = TensorArgument | ScalarArgument | DtypeArgument | SequenceArgument


def parse_argument(text: str) -> Argument:
    """Read one argument.

    Raises:
        ArgumentSpecError: Says what was expected and found.
    """
    stripped = text.strip()
    if stripped.startswith("str:"):
        # Spaces are part of a string, so it is cut from the unstripped text.
        return ScalarArgument(text.lstrip().removeprefix("str:"))
    if stripped.startswith("dtype:"):
        return DtypeArgument(stripped.removeprefix("dtype:"))
    if stripped.startswith(("[", "(")):
        return _parse_sequence(text)
    if "[" in stripped or "]" in stripped:
        return _parse_tensor(stripped)
    if stripped in ("true", "false"):
        return ScalarArgument(stripped == "true")
    if stripped == "none":
        return ScalarArgument(None)
    for number in (int, float):
        try:
            return ScalarArgument(number(stripped))
        except ValueError:
            continue
    raise _error(
        text,
        "a tensor such as bf16[4096,5120], a number, true, false, none, str:..., "
        "dtype:... or a list",
    )


def format_argument(argument: Argument) -> str:
    """Write an argument so that `parse_argument` gives it back."""
    if isinstance(argument, TensorArgument):
        text = f"{argument.dtype}[{','.join(map(str, argument.shape))}]"
        if argument.strides is not None:
            text += f":{','.join(map(str, argument.strides))}"
        return text if argument.fill is None else f"{text}@{argument.fill}"
    if isinstance(argument, DtypeArgument):
        return f"dtype:{argument.name}"
    if isinstance(argument, SequenceArgument):
        inside = ",".join(_format_item(item) for item in argument.items)
        if not argument.is_tuple:
            return f"[{inside}]"
        return f"({inside},)" if len(argument.items) == 1 else f"({inside})"
    value = argument.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    return f"str:{value}" if isinstance(value, str) else repr(value)


def _format_item(item: Argument) -> str:
    if isinstance(item, ScalarArgument) and isinstance(item.value, str):
        return repr(item.value)
    return format_argument(item)


def describe_argument(value: object, read_values: bool = False) -> Argument:
    """The argument that a live value is an instance of.

    Args:
        value: An argument of a call.
        read_values: Whether to look into integer tensors for the fill they obey,
            offsets or an index; on a GPU that waits for it. If not, values are lost.

    Raises:
        ArgumentSpecError: The value's type or dtype is not in the grammar.
    """
    import torch

    if isinstance(value, torch.Tensor):
        dtype = _short_name(value.dtype)
        if dtype not in DTYPES:
            raise _error(str(value.dtype), f"a dtype among {', '.join(DTYPES)}")
        shape = tuple(_plain_size(size) for size in value.shape)
        strides = tuple(_plain_size(stride) for stride in value.stride())
        contiguous = strides == contiguous_strides(shape)
        fill = _fill_of(value, dtype) if read_values else None
        return TensorArgument(dtype, shape, None if contiguous else strides, fill)
    if isinstance(value, torch.SymInt):
        return ScalarArgument(_plain_size(value))
    if isinstance(value, torch.SymFloat):
        # Helion knows no number here, so no program of it depends on which.
        hint = value.node.hint
        return ScalarArgument(1.0 if hint is None else float(hint))
    if value is None or isinstance(value, (bool, int, float, str)):
        return ScalarArgument(value)
    if isinstance(value, torch.dtype):
        return DtypeArgument(_short_name(value))
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        items = tuple(describe_argument(item, read_values) for item in value)
        return SequenceArgument(items, isinstance(value, tuple))
    raise _error(
        type(value).__name__,
        "a tensor, number, truth value, string, dtype, None or a list of them",
    )


def _short_name(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    return next((short for short, full in DTYPES.items() if full == name), name)


def _plain_size(size: Any) -> int:
    """A number; a symbolic one's hint, since asking itself would fix it."""
    hint = getattr(getattr(size, "node", None), "hint", size)
    if hint is None:
        raise _error(str(size), "a size that is known")
    return int(hint)


def _fill_of(tensor: torch.Tensor, dtype: str) -> Fill | None:
    """Offsets if they can be, else an index; None for what is neither."""
    is_known = type(tensor).__name__ != "FakeTensor" and tensor.numel() > 0
    if dtype not in _INTEGER_DTYPES or not is_known:
        return None
    low, high = int(tensor.min()), int(tensor.max())
    if tensor.dim() == 1 and len(tensor) >= 2 and tensor.is_contiguous():
        rises = bool((tensor[1:] >= tensor[:-1]).all())
        if rises and low == 0:
            return Fill("offsets", high)
    return Fill("index", high + 1) if low >= 0 else None


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a row-major tensor, in elements, as torch counts them."""
    # torch counts a dimension of size zero as one.
    sizes = [max(size, 1) for size in shape]
    return tuple(math.prod(sizes[axis + 1 :]) for axis in range(len(sizes)))


def _parse_sequence(text: str) -> SequenceArgument:
    try:
        items = split_items(text)
    except SplitError as error:
        raise _error(text, str(error)) from None
    is_tuple = text.lstrip().startswith("(")
    return SequenceArgument(tuple(map(_parse_item, items)), is_tuple)


def _parse_item(text: str) -> Argument:
    if text.startswith(("'", '"')):
        try:
            return ScalarArgument(str(ast.literal_eval(text)))
        except (SyntaxError, ValueError):
            raise _error(text, "a string quoted as in Python") from None
    item = parse_argument(text)
    if isinstance(item, ScalarArgument) and isinstance(item.value, str):
        raise _error(text, "a string in quotes, inside a list")
    return item


def _parse_tensor(text: str) -> TensorArgument:
    match = _TENSOR.fullmatch(text)
    if match is None:
        raise _error(text, "dtype[shape], dtype[shape]:strides or dtype[shape]@fill")
    if match["dtype"] not in DTYPES:
        raise _error(text, f"a dtype among {', '.join(DTYPES)}")
    shape = _numbers(text, match["shape"], "a shape")
    strides = None
    if match["strides"] is not None:
        strides = _numbers(text, match["strides"], "strides")
        if len(strides) != len(shape):
            raise _error(text, f"{len(shape)} strides, one for each dimension")
    argument = TensorArgument(match["dtype"], shape, strides)
    if match["fill"] is None:
        return argument
    return replace(argument, fill=_parse_fill(text, match["fill"], argument))


def _parse_fill(text: str, fill_text: str, argument: TensorArgument) -> Fill:
    match = _FILL.fullmatch(fill_text)
    name = match["name"] if match else ""
    limit = int(match["limit"]) if match and match["limit"] else None
    if limit is None and name in PLAIN_FILLS:
        return Fill(name)
    if limit is None or name not in COUNTED_FILLS:
        plain = ", ".join(PLAIN_FILLS)
        raise _error(text, f"a fill among {plain}, index(N), offsets(N)")
    if name == "index" and limit == 0:
        raise _error(text, "index(N) with N of at least 1")
    largest = limit - 1 if name == "index" else limit
    if largest > _LARGEST.get(argument.dtype, largest):
        raise _error(text, f"a count that fits in {argument.dtype}")
    if name == "offsets" and (len(argument.shape) != 1 or argument.shape[0] < 2):
        raise _error(text, "offsets(N) on one dimension of at least 2 elements")
    if name == "offsets" and argument.strides is not None:
        raise _error(text, "offsets(N) on a contiguous tensor")
    return Fill(name, limit)


def _numbers(text: str, part: str, what: str) -> tuple[int, ...]:
    """Comma-separated whole numbers; the empty text is the empty shape."""
    if not part.strip():
        return ()
    if not re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*", part, re.ASCII):
        raise _error(text, f"{what} of whole numbers with commas")
    # A number's text is looked at first: Python refuses to read thousands of digits.
    digits = [number.strip() for number in part.split(",")]
    if any(len(number.lstrip("0")) > 18 for number in digits):
        raise _error(text, f"{what} of numbers of at most 18 digits")
    return tuple(map(int, digits))


def _error(found: str, expected: str) -> ArgumentSpecError:
    return ArgumentSpecError(
        f"expected {expected}; found {found!r}: "
        "see `python -m pydoc costmodel.arguments`"
    )
