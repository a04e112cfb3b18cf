"""Results are right if they agree with the reference, or with the default's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from costmodel.datasets.bench_check import DEFAULT_RESULT
from costmodel.datasets.bench_check import REFERENCE
from costmodel.datasets.bench_check import ResultJudge
from costmodel.datasets.bench_select import BenchKernel


def _double(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


def _judge(default: Any, reference: Any = _double, **facts: Any) -> ResultJudge:
    kernel = BenchKernel(kernel=None, reference=reference)
    x = torch.linspace(1.0, 2.0, 1000)
    return ResultJudge(kernel, [x, 2.0], default, **facts)


def test_a_right_result_passes_and_a_wrong_element_is_named() -> None:
    judge = _judge(_double)
    assert judge.judged_by == REFERENCE
    assert judge.fault(lambda x, f: x * f * 1.0001) is None

    def one_off(x: torch.Tensor, f: float) -> torch.Tensor:
        y = x * f
        y[17] = 9.0
        return y

    fault = judge.fault(one_off)
    assert fault is not None and "1 of 1000" in fault


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, f: torch.full_like(x, torch.nan),
        lambda x, f: x[:-1] * f,
        lambda x, f: (x * f, x),
        lambda x, f: None,
        lambda x, f: -x * f,
    ],
)
def test_other_shapes_counts_and_values_are_wrong(wrong: Any) -> None:
    assert _judge(_double).fault(wrong) is not None


def test_not_a_number_is_right_where_the_reference_says_so() -> None:
    def nan(x: torch.Tensor, f: float) -> torch.Tensor:
        return torch.full_like(x, torch.nan)

    assert _judge(nan, nan).fault(nan) is None


def test_a_reference_that_breaks_or_differs_convicts_nobody() -> None:
    def breaks(x: torch.Tensor, f: float) -> torch.Tensor:
        raise RuntimeError("out of memory")

    for reference in (breaks, lambda x, f: x * f + 1.0, None):
        judge = _judge(_double, reference)
        assert judge.judged_by == DEFAULT_RESULT
        assert judge.fault(_double) is None
        assert judge.fault(lambda x, f: x) is not None
    assert _judge(_double, use_reference=False).judged_by == DEFAULT_RESULT


def test_without_a_default_the_reference_judges_alone() -> None:
    judge = _judge(None)
    assert judge.judged_by == REFERENCE
    assert judge.fault(_double) is None
    assert judge.fault(lambda x, f: x) is not None


def test_what_is_written_into_arguments_is_compared_and_undone() -> None:
    def in_place(x: torch.Tensor, f: float) -> None:
        x.mul_(f)

    def half(x: torch.Tensor, f: float) -> None:
        x[: x.numel() // 2].mul_(f)

    x = torch.linspace(1.0, 2.0, 100)
    before = x.clone()
    judge = ResultJudge(BenchKernel(None, in_place), [x, 2.0], in_place)
    assert judge.fault(in_place) is None
    assert judge.fault(half) is not None
    assert judge.fault(lambda x, f: None) is not None
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int64, torch.bool])
def test_every_kind_of_argument_can_be_judged(dtype: torch.dtype) -> None:
    x = torch.linspace(0.0, 2.0, 64).to(dtype)[::2]

    def same(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    judge = ResultJudge(BenchKernel(None, same), [x], same)
    assert judge.judged_by == REFERENCE
    assert judge.fault(same) is None
    assert judge.fault(torch.zeros_like) is not None


def test_what_a_launch_raises_is_the_callers_to_see() -> None:
    def breaks(x: torch.Tensor, f: float) -> torch.Tensor:
        raise RuntimeError("no launch")

    with pytest.raises(RuntimeError, match="no launch"):
        _judge(_double).fault(breaks)
