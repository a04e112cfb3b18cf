"""Grids fused with the loop inside them, and what dots take there: compiled examples.

Expected bytes were read off allocations of Triton 3.9 for sm90, columns off sm100.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import parity_kernels
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel.features.extract import FeatureExtractor
from costmodel.features.feasible import Limit
from costmodel.features.feasible import reasons
from costmodel.features.fusion import find_pairs
from costmodel.features.graph import KernelGraph
from costmodel.features.staging import make_staging_plan
from costmodel.features.upper import shared_memory_upper
from costmodel.hardware import load_hardware

_H200, _B200 = load_hardware("H200"), load_hardware("B200")
_POINTERS = ["pointer", "pointer", "pointer"]


def _extractor(name: str, gpu: Any = _H200) -> FeatureExtractor:
    record = parity_kernels.view_of(name).record
    return FeatureExtractor(KernelGraph.from_record(record), gpu)


def _config(flatten: bool | None, **knobs: Any) -> dict[str, Any]:
    return {
        "block_sizes": [64, 256, 64],
        "num_warps": 8,
        "num_stages": 4,
        "pid_type": "persistent_interleaved",
        "indexing": _POINTERS,
        "range_flattens": [flatten, None],
        "range_unroll_factors": [0, 0],
        **knobs,
    }


def test_a_flattened_grid_hides_where_its_columns_are() -> None:
    # x is contiguous along the loop and keeps its buffers; y is along the grid, and its
    # neighbours are no longer seen as such: one tile beside the buffers.
    apart, fused = (
        _extractor("product").resources([_config(None), _config(True)]).smem_bytes
    )
    assert apart == 4 * (64 * 64 + 64 * 256) * 2
    assert fused == 4 * 64 * 64 * 2 + 64 * 256 * 2


def test_descriptors_need_no_neighbours() -> None:
    indexing = ["pointer", "tensor_descriptor", "pointer"]
    found = _extractor("product").resources([_config(True, indexing=indexing)])
    assert found.pipelined_bytes[0] >= 4 * (64 * 64 + 64 * 256) * 2


@pytest.mark.parametrize(
    "knobs",
    [
        {"pid_type": "flat"},
        {"range_unroll_factors": [2, 0]},
        {"block_sizes": [64, 256, 2048]},
    ],
)
def test_only_a_loop_right_inside_a_loop_is_fused(knobs: dict[str, Any]) -> None:
    configs = [_config(None, **knobs), _config(True, **knobs)]
    found = _extractor("product").resources(configs).smem_bytes
    assert found[0] == found[1]


def test_stages_of_a_fused_loop_are_the_larger_of_both() -> None:
    extractor = _extractor("product")
    one = extractor.resources([_config(True, range_num_stages=[0, 3])])
    other = extractor.resources([_config(True, range_num_stages=[3, 2])])
    assert one.smem_bytes[0] == other.smem_bytes[0]
    assert one.stages[0] == 3.0


def test_a_loop_whose_end_moves_is_never_fused() -> None:
    assert len(find_pairs(_extractor("product").graph)) == 1
    assert len(find_pairs(_extractor("attention").graph)) == 1
    for name in ("causal_attention", "product_in_chunks", "grouped_product"):
        assert find_pairs(_extractor(name).graph) == ()


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_no_fused_estimate_is_above_its_bound(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["product", "attention", "float8_product"]))
    sizes = parity_kernels.view_of(name).default["block_sizes"]
    n_accesses = len(parity_kernels.view_of(name).default["indexing"])
    config = _config(
        True,
        block_sizes=[2 ** data.draw(st.integers(4, 8)) for _ in sizes],
        num_warps=2 ** data.draw(st.integers(0, 5)),
        num_stages=data.draw(st.integers(1, 8)),
        indexing=[
            data.draw(st.sampled_from(["pointer", "tensor_descriptor"]))
            for _ in range(n_accesses)
        ],
    )
    extractor = _extractor(name)
    plan = make_staging_plan(extractor.graph)
    bound = shared_memory_upper(extractor.graph, plan, [config], _H200)
    assert extractor.resources([config]).smem_bytes[0] <= bound[0]


def test_an_instruction_has_the_columns_that_its_warps_leave() -> None:
    # 64 rows are four warps; of eight, two share the columns: 64 columns, 32 registers.
    configs = [
        {"block_sizes": [64, 128, 64], "num_warps": 8},
        {"block_sizes": [128, 128, 64], "num_warps": 8},
        {"block_sizes": [64, 128, 64], "num_warps": 4},
    ]
    found = _extractor("product").resources(configs).instruction_registers
    assert (found - found[0]).tolist() == [0.0, 32.0, 32.0]
    capped = [{**c, "maxnreg": 64, "pid_type": "persistent_blocked"} for c in configs]
    broken = [
        Limit.INSTRUCTION in one for one in reasons(_extractor("product"), capped)
    ]
    assert broken == [False, True, True]


def test_scores_over_a_batch_take_turns_with_the_result() -> None:
    # Batched attention reads its result out on every trip; keys decide.
    configs = [{"block_sizes": [1, 128, n], "num_warps": 8} for n in (128, 256, 512)]
    found = _extractor("attention", _B200).resources(configs).tmem_columns
    assert np.array_equal(found, [128.0, 256.0, 512.0])
