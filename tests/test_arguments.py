"""The argument grammar: what is written is what is read, and values obey their fill."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from costmodel.arguments import DTYPES
from costmodel.arguments import Argument
from costmodel.arguments import DtypeArgument
from costmodel.arguments import Fill
from costmodel.arguments import ScalarArgument
from costmodel.arguments import SequenceArgument
from costmodel.arguments import TensorArgument
from costmodel.arguments import contiguous_strides
from costmodel.arguments import describe_argument
from costmodel.arguments import format_argument
from costmodel.arguments import parse_argument
from costmodel.errors import ArgumentSpecError

SIZES = st.integers(min_value=0, max_value=9)
SHAPES = st.lists(SIZES, max_size=4).map(tuple)


@st.composite
def tensors(draw: st.DrawFn) -> TensorArgument:
    shape = draw(SHAPES)
    strides = None
    if draw(st.booleans()):
        strides = tuple(draw(SIZES) for _ in shape)
    fills = [None, Fill("ones"), Fill("zeros"), Fill("normal"), Fill("uniform")]
    fills.append(Fill("index", draw(st.integers(1, 100))))
    if len(shape) == 1 and shape[0] >= 2 and strides is None:
        fills.append(Fill("offsets", draw(st.integers(0, 100))))
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    return TensorArgument(dtype, shape, strides, draw(st.sampled_from(fills)))


SCALARS = st.builds(
    ScalarArgument,
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
)


DTYPE_ARGUMENTS = st.sampled_from(sorted(DTYPES)).map(DtypeArgument)
ARGUMENTS = st.recursive(
    tensors() | SCALARS | DTYPE_ARGUMENTS,
    lambda inner: st.builds(
        SequenceArgument, st.lists(inner, max_size=4).map(tuple), st.booleans()
    ),
    max_leaves=8,
)


@given(ARGUMENTS)
def test_written_and_read_again_is_the_same(argument: Argument) -> None:
    again = parse_argument(format_argument(argument))
    assert again == argument
    if isinstance(argument, ScalarArgument):
        assert isinstance(again, ScalarArgument)
        assert type(again.value) is type(argument.value)


def test_lists_and_tuples_are_written_as_in_python() -> None:
    argument = parse_argument(" [64, (1,), 'a,]', none, bf16[4,8]:1,4 ] ")
    assert isinstance(argument, SequenceArgument) and not argument.is_tuple
    mode = FakeTensorMode()
    made = argument.fake(mode, device="cpu")
    assert isinstance(made, list)
    assert made[:4] == [64, (1,), "a,]", None]
    assert made[4].stride() == (1, 4) and made[4].dtype is torch.bfloat16
    assert describe_argument(made) == argument


@pytest.mark.parametrize(
    "text",
    [
        *("[", "[1", "[1 2]", "(1]", "[1]]", "[1]x", "[,]", "[1,,2]", "['a]"),
        *("[bf16[2]:]", "[bf16[2,2]:1]", "[bf16[2", "[f32[2]@]", "[f32[2]@index(0)]"),
        *("[str:a]", "[silu]", "(", "[[1]", "[b'a']"),
    ],
)
def test_a_malformed_list_is_refused(text: str) -> None:
    with pytest.raises(ArgumentSpecError):
        parse_argument(text)


def test_a_dtype_is_an_argument() -> None:
    assert describe_argument(torch.bfloat16) == DtypeArgument("bf16")
    assert parse_argument("dtype:bf16") == DtypeArgument("bf16")
    assert DtypeArgument("bf16").fake(FakeTensorMode()) is torch.bfloat16
    other = describe_argument(torch.complex64)
    assert other.fake(FakeTensorMode()) is torch.complex64
    with pytest.raises(ArgumentSpecError):
        parse_argument("dtype:nothing").fake(FakeTensorMode())


@given(st.lists(st.integers(-3, 40), min_size=1, max_size=6), st.booleans())
def test_what_is_read_from_values_holds_of_them(
    values: list[int], is_sorted: bool
) -> None:
    tensor = torch.tensor(sorted(values) if is_sorted else values, dtype=torch.int32)
    argument = describe_argument(tensor, read_values=True)
    assert isinstance(argument, TensorArgument)
    assert parse_argument(format_argument(argument)) == argument
    fill = argument.fill
    if fill is None:
        assert min(values) < 0
    else:
        assert min(values) >= 0 and fill.limit is not None
        rises = tensor.tolist() == sorted(values)
        could_be_offsets = rises and min(values) == 0 and len(values) > 1
        assert fill.name == ("offsets" if could_be_offsets else "index")
        assert max(values) == fill.limit - (fill.name == "index")
    assert describe_argument(tensor) == TensorArgument("i32", (len(values),))


def test_nan_is_a_number() -> None:
    argument = parse_argument("nan")
    assert isinstance(argument, ScalarArgument)
    assert isinstance(argument.value, float) and math.isnan(argument.value)


@given(tensors())
@settings(deadline=None)
def test_fake_and_real_have_the_same_layout(argument: TensorArgument) -> None:
    real = argument.materialize("cpu", torch.Generator().manual_seed(0))
    fake = argument.fake(FakeTensorMode())
    assert isinstance(real, torch.Tensor) and isinstance(fake, torch.Tensor)
    assert fake.device.type == "cuda"
    for tensor in (real, fake):
        assert tuple(tensor.shape) == argument.shape
        assert tensor.dtype == getattr(torch, DTYPES[argument.dtype])
        expected = argument.strides or contiguous_strides(argument.shape)
        assert tensor.stride() == expected


@given(tensors())
@settings(deadline=None)
def test_equal_seeds_give_equal_values(argument: TensorArgument) -> None:
    one, two = (
        argument.materialize("cpu", torch.Generator().manual_seed(7)) for _ in range(2)
    )
    assert torch.equal(one.to(torch.float64), two.to(torch.float64))


@given(SHAPES)
def test_strides_are_torchs(shape: tuple[int, ...]) -> None:
    assert contiguous_strides(shape) == torch.empty(shape).stride()


@given(st.integers(2, 50), st.integers(0, 10_000), st.integers(0, 99))
def test_offsets_rise_from_zero_to_the_end(length: int, last: int, seed: int) -> None:
    argument = parse_argument(f"i32[{length}]@offsets({last})")
    values = argument.materialize("cpu", torch.Generator().manual_seed(seed)).tolist()
    assert values[0] == 0 and values[-1] == last
    assert values == sorted(values)


@given(st.integers(1, 1000), st.integers(0, 99))
def test_indices_stay_inside(limit: int, seed: int) -> None:
    argument = parse_argument(f"i64[40]@index({limit})")
    values = argument.materialize("cpu", torch.Generator().manual_seed(seed))
    assert int(values.min()) >= 0 and int(values.max()) < limit


@given(tensors())
@settings(deadline=None)
def test_a_live_tensor_is_described_as_it_was_asked_for(arg: TensorArgument) -> None:
    described = describe_argument(arg.materialize("cpu", torch.Generator()))
    assert isinstance(described, TensorArgument)
    assert (described.dtype, described.shape) == (arg.dtype, arg.shape)
    contiguous = arg.strides in (None, contiguous_strides(arg.shape))
    assert described.strides == (None if contiguous else arg.strides)


def test_the_largest_count_that_fits() -> None:
    for text in ("i8[4]@index(128)", "u8[4]@index(256)", "i8[4]@offsets(127)"):
        values = parse_argument(text).materialize("cpu", torch.Generator())
        assert isinstance(values, torch.Tensor) and int(values.min()) >= 0


def test_scalars_pass_through() -> None:
    generator = torch.Generator()
    for text, value in (("128", 128), ("1e-5", 1e-5), ("true", True), ("none", None)):
        argument = parse_argument(text)
        assert argument.materialize("cpu", generator) == value
        assert argument.fake(FakeTensorMode()) == value
        assert describe_argument(value) == argument
    assert parse_argument("str:a:b ") == ScalarArgument("a:b ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bf17[4]", "a dtype among bf16"),
        ("bf16[4", "dtype[shape]"),
        ("4]", "dtype[shape]"),
        ("[4", "a comma or ]"),
        ("bf16[4,x]", "a shape of whole numbers"),
        ("bf16[-1]", "a shape of whole numbers"),
        (f"bf16[{10**18}]", "at most 18 digits"),
        ("bf16[4,5]:1", "2 strides"),
        ("f32[4]@purple", "a fill among"),
        ("f32[4]@ones(3)", "a fill among"),
        ("i32[4]@index", "a fill among"),
        ("i32[4]@index(0)", "at least 1"),
        ("i32[4,4]@offsets(9)", "one dimension"),
        ("i32[1]@offsets(9)", "at least 2"),
        ("i32[4]:2@offsets(9)", "contiguous"),
        ("i8[4]@index(129)", "fits in i8"),
        ("i8[4]@offsets(128)", "fits in i8"),
        ("True", "true"),
        ("12a", "a number"),
        ("", "a tensor such as"),
    ],
)
def test_errors_say_expected_and_found(text: str, expected: str) -> None:
    with pytest.raises(ArgumentSpecError) as caught:
        parse_argument(text)
    message = str(caught.value)
    assert expected in message and repr(text) in message and "\n" not in message


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_argument(text)
    except ArgumentSpecError as error:
        assert "expected" in str(error)


def test_a_float_that_helion_made_symbolic_is_some_float() -> None:
    free = ShapeEnv().create_unbacked_symfloat()
    assert describe_argument(free) == ScalarArgument(1.0)


def test_what_the_grammar_lacks_is_refused() -> None:
    for value in (torch.zeros(2, dtype=torch.complex64), [1, {}], object()):
        with pytest.raises(ArgumentSpecError):
            describe_argument(value)
