"""Classes are read from structure, never from names."""

from __future__ import annotations

import dataclasses

import parity_kernels
import pytest

from costmodel.features.classify import classify
from costmodel.features.graph import KernelGraph


@pytest.mark.parametrize("name", sorted(parity_kernels.CASES))
def test_class_follows_structure(name: str) -> None:
    record = parity_kernels.view_of(name).record
    expected = parity_kernels.CASES[name].kernel_class
    assert classify(KernelGraph.from_record(record)) is expected


@pytest.mark.parametrize("name", ["attention", "ragged_sum", "split_product"])
def test_class_does_not_depend_on_names(name: str) -> None:
    record = parity_kernels.view_of(name).record
    renamed = dataclasses.replace(
        record,
        kernel_name="rms_norm_matmul",
        kernel_source=record.kernel_source.replace(
            f"def {name}(", "def rms_norm_matmul("
        ),
    )
    graph = KernelGraph.from_record(renamed)
    assert classify(graph) is classify(KernelGraph.from_record(record))
