"""Our restatement of Helion's promotion rules, against Helion itself."""

from __future__ import annotations

from typing import Any

import parity_kernels
import pytest

from costmodel import helion_hook
from costmodel.arguments import parse_argument
from costmodel.datasets.workloads.registry import all_cases
from costmodel.errors import BindError
from costmodel.errors import UnreadableKernelError
from costmodel.features.graph import KernelGraph
from costmodel.hardware import load_hardware
from costmodel.heuristics.rules import has_promoted_rule
from costmodel.target import bind

_OTHER_GPUS = ("A100", "B200", "RTX-4090")
_FEW = ("attention", "float8_product", "gather_rows", "row_norm")


def _predicted(view: helion_hook.HelionView, gpu: str) -> bool:
    graph = KernelGraph.from_record(view.record)
    return has_promoted_rule(graph, load_hardware(gpu))


@pytest.mark.parametrize("name", sorted(parity_kernels.CASES))
def test_rules_agree_with_helion_on_an_h200(name: str) -> None:
    view = parity_kernels.view_of(name)
    assert _predicted(view, "H200") == view.promoted


@pytest.mark.parametrize("gpu", _OTHER_GPUS)
@pytest.mark.parametrize("name", _FEW)
def test_rules_agree_with_helion_elsewhere(name: str, gpu: str) -> None:
    view = helion_hook.view(parity_kernels.bind_case(name, gpu))
    assert _predicted(view, gpu) == view.promoted


def test_no_rule_where_helion_has_none() -> None:
    for name in ("float8_product", "ragged_sum", "grouped_product"):
        view = parity_kernels.view_of(name)
        assert not view.promoted
        assert not _predicted(view, "H200")


def _cases() -> list[tuple[str, Any]]:
    return sorted(all_cases().items())


@pytest.mark.slow
@pytest.mark.parametrize(
    "gpu",
    (
        "H200",
        pytest.param("B200", marks=pytest.mark.exhaustive),
        pytest.param("A100", marks=pytest.mark.exhaustive),
    ),
)
def test_rules_agree_on_every_workload(gpu: str) -> None:
    wrong = []
    hardware = load_hardware(gpu)
    for reference, case in _cases():
        arguments = [parse_argument(text) for text in case.shapes[0]]
        try:
            view = helion_hook.view(bind(case.kernel, arguments, hardware))
            predicted = _predicted(view, gpu)
        except (BindError, UnreadableKernelError):
            continue  # nothing is predicted for these
        if predicted != view.promoted:
            wrong.append((reference, predicted, view.promoted))
    assert not wrong
