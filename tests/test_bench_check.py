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


def _rounded(places: list[int], by: float) -> Any:
    """A kernel that is right but for a few elements, as rounding in between makes."""

    def launch(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[places] += by
        return y

    return launch


def _judge_of_rounding(default: Any, n_elements: int = 100_000) -> ResultJudge:
    kernel = BenchKernel(kernel=None, reference=torch.clone)
    return ResultJudge(kernel, [torch.linspace(1.0, 2.0, n_elements)], default)


def test_a_config_as_accurate_as_the_default_is_right() -> None:
    judge = _judge_of_rounding(_rounded([5, 900, 70_000], 0.08))
    assert judge.judged_by == DEFAULT_RESULT
    # Other elements, and so neither the default's result nor the reference's.
    assert judge.fault(_rounded([17, 3000], -0.09)) is None
    too_far = judge.fault(_rounded([17, 3000], 0.5))
    assert too_far is not None and "5 of 100000" in too_far
    assert judge.fault(_rounded(list(range(40)), 0.08)) is not None
    assert judge.fault(_rounded([17], float("nan"))) is not None
    assert judge.fault(lambda x: x[:-1].clone()) is not None


def test_a_default_that_means_something_else_is_no_measure_of_accuracy() -> None:
    many = list(range(0, 100_000, 100))
    judge = _judge_of_rounding(_rounded(many, 0.08))
    assert judge.judged_by == DEFAULT_RESULT
    assert judge.fault(_rounded([many[0] + 1], 0.08)) is not None
    broken = _judge_of_rounding(_rounded([3], float("nan")))
    assert broken.fault(_rounded([4], 0.08)) is not None


def test_what_a_launch_raises_is_the_callers_to_see() -> None:
    def breaks(x: torch.Tensor, f: float) -> torch.Tensor:
        raise RuntimeError("no launch")

    with pytest.raises(RuntimeError, match="no launch"):
        _judge(_double).fault(breaks)
