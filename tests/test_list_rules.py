"""Single rules of the decision lists, each against the reason that it gives."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import parity_kernels
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel import helion_hook
from costmodel import target
from costmodel.arguments import parse_argument
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.hardware import load_hardware
from costmodel.heuristics.data_dependent import propose_data_dependent
from costmodel.heuristics.drafts import plain_config
from costmodel.heuristics.fill import busy_bytes
from costmodel.heuristics.mma import converted_per_us
from costmodel.heuristics.mma import converts_fp8
from costmodel.heuristics.propose import propose
from costmodel.heuristics.read_facts import read_facts
from costmodel.heuristics.tiles import Problem
from costmodel.heuristics.tiles import make_tiles
from costmodel.heuristics.tiles import matmul_us
from costmodel.heuristics.tiles import occupancy
from costmodel.kernel_file import load_kernel
from costmodel.types import Candidate

_UNSEEN = Path(__file__).resolve().parents[1] / "benchmarks" / "unseen"
_OWN = "Helion's own rule"
_GPUS = ("H200", "B200", "A100", "RTX-4090", "RTX-5090")


_POWERS = tuple(1 << e for e in range(13))


@functools.cache
def _graph(name: str) -> KernelGraph:
    return KernelGraph.from_record(parity_kernels.view_of(name).record)


@functools.cache
def _proposals(name: str, gpu: str = "H200") -> tuple[Candidate, ...]:
    view = parity_kernels.view_of(name)
    graph = KernelGraph.from_record(view.record)
    extractor = FeatureExtractor(graph, load_hardware(gpu))
    return tuple(propose(graph, extractor, view.default))


def _ours(name: str, gpu: str = "H200") -> list[Candidate]:
    """Proposals of our own lists, Helion's answer left out."""
    return [c for c in _proposals(name, gpu) if _OWN not in c.reason]


def test_eight_bit_operands_cost_their_conversion_on_hopper_only() -> None:
    problem = Problem(64, 2048, 7168, 1, 1, 1, 2, "fp8")
    tiles = make_tiles((16,), (64,), (128,), (2, 4), (6,))
    converting = [gpu for gpu in _GPUS if converts_fp8(load_hardware(gpu), "fp8")]
    assert converting == ["H200"]
    two, four = matmul_us(problem, tiles, load_hardware("H200"))
    assert four < two, "two of four schedulers would convert nothing"
    assert not converts_fp8(load_hardware("H200"), "bf16")


@given(warps=st.integers(1, 64))
def test_more_warps_never_convert_less(warps: int) -> None:
    hardware = load_hardware("H200")
    few, more = converted_per_us(hardware, np.array([warps, warps + 1], dtype=float))
    assert 0 < few <= more


@given(
    m=st.integers(1, 100_000),
    n=st.integers(1, 100_000),
    gpu=st.sampled_from(_GPUS),
)
@settings(max_examples=60, deadline=None)
def test_tiles_that_a_loop_walks_do_not_spread(m: int, n: int, gpu: str) -> None:
    """One program walks all columns: no fewer tiles an SM than on a grid, and never
    fewer than one program's own."""
    hardware = load_hardware(gpu)
    tiles = make_tiles((16, 64), (32, 256), (64,), (4,), (3,))
    spread = Problem(m, n, 1024, 1, 2, 2, 2, "bf16")
    walked = Problem(m, n, 1024, 1, 2, 2, 2, "bf16", columns_on_grid=False)
    on_grid, _ = occupancy(spread, tiles, hardware)
    in_loop, resident = occupancy(walked, tiles, hardware)
    assert (in_loop >= on_grid).all()
    assert (in_loop >= np.ceil(n / tiles.n)).all()
    programs = np.ceil(np.ceil(m / tiles.m) / hardware.n_sms)
    assert (resident <= np.maximum(programs, 1.0)).all()


@pytest.mark.parametrize("gpu", _GPUS)
def test_a_product_whose_rows_are_summed_leaves_registers_for_it(gpu: str) -> None:
    """At most half of Helion's own bound of 128 KiB of accumulators, all columns."""
    columns = 256
    for candidate in _ours("product_row_norm", gpu):
        rows = candidate.config["block_sizes"][0]
        assert 4 * rows * columns <= 128 * 1024
        assert rows * columns <= 64 * 32 * candidate.config["num_warps"]


@pytest.mark.parametrize("gpu", _GPUS)
def test_loops_that_data_ends_keep_threads_busy(gpu: str) -> None:
    for candidate in _proposals("ragged_sum", gpu):
        groups, columns, steps = candidate.config["block_sizes"]
        threads = 32 * candidate.config["num_warps"]
        assert groups * columns * steps >= 4 * threads, candidate.reason
    groups, columns, steps = _proposals("ragged_sum", gpu)[0].config["block_sizes"]
    assert groups == 1, "groups of unequal length stay apart"
    in_flight = 4 * columns * steps
    assert in_flight <= max(4 * 4096, 6 * busy_bytes(load_hardware(gpu)))


def test_rows_in_a_program_that_holds_them_whole_are_few() -> None:
    width = 2048
    for candidate in _proposals("row_chunk_gradient"):
        inner = min(candidate.config["block_sizes"])
        assert inner * width <= 16 * 4096
    pick = _proposals("row_chunk_gradient")[0].config
    assert min(pick["block_sizes"]) * width <= 16384


@pytest.mark.parametrize("name", sorted(parity_kernels.CASES))
def test_helion_is_first_where_it_has_a_rule_and_ours_is_no_surer(name: str) -> None:
    """Its answer is in front or nowhere, as it is but for warps; on GPUs that it has no
    rules for, the list is ours alone."""
    view = parity_kernels.view_of(name)
    own = [i for i, c in enumerate(_proposals(name)) if _OWN in c.reason]
    assert own in ([], [0])
    if own:
        assert view.promoted
        first = _proposals(name)[0].config
        assert {**view.default, "num_warps": first["num_warps"]} == first
        assert first["num_warps"] <= view.default["num_warps"]
    assert not any(_OWN in c.reason for c in _proposals(name, "A100"))


def test_helion_is_first_where_nothing_tells_the_two_apart() -> None:
    """A row that one program holds; but a chunked row and a sum of columns are ours."""
    assert _OWN in _proposals("row_norm")[0].reason


@given(share=st.floats(0.1, 10.0))
@settings(max_examples=20, deadline=None)
def test_a_longer_group_never_gets_a_shorter_trip(share: float) -> None:
    facts = read_facts(_graph("ragged_sum"))
    base = plain_config(parity_kernels.view_of("ragged_sum").default)
    longer = dataclasses.replace(
        facts,
        knobs=tuple(
            knob
            if knob.certain
            else dataclasses.replace(
                knob, extent=max(1, int(share * knob.extent)), choices=_POWERS
            )
            for knob in facts.knobs
        ),
    )
    same = dataclasses.replace(
        facts,
        knobs=tuple(
            knob if knob.certain else dataclasses.replace(knob, choices=_POWERS)
            for knob in facts.knobs
        ),
    )
    (slot,) = [knob.slot for knob in facts.knobs if not knob.certain]
    hardware = load_hardware("H200")
    steps = [
        propose_data_dependent(one, base, hardware)[0].config["block_sizes"][slot]
        for one in (same, longer)
    ]
    assert (steps[1] >= steps[0]) if share >= 1 else (steps[1] <= steps[0])
    assert max(steps) <= 128


# First three of a list: block sizes, warps, stages. What changes here changes picks and
# features, and every model with them: say why in the page of measurements.
_GOLDEN = {
    ("attention", "H200"): (
        ([1, 64, 64], 4, 3),
        ([1, 128, 64], 8, 3),
        ([1, 32, 128], 4, 3),
    ),
    ("causal_attention", "A100"): (
        ([64, 64], 4, 3),
        ([32, 32], 4, 3),
        ([64, 64], 4, 3),
    ),
    ("float8_product", "H200"): (
        ([64, 64, 128], 2, 6),
        ([32, 256, 128], 4, 6),
        ([32, 128, 128], 4, 5),
    ),
    ("gather_rows", "H200"): (([4, 512], 4, 1), ([2, 512], 2, 1), ([8, 512], 16, 1)),
    ("product", "H200"): (
        ([64, 128, 128], 4, 4),
        ([128, 64, 128], 4, 4),
        ([64, 64, 64], 4, 6),
    ),
    ("product_row_norm", "H200"): (
        ([32, 64], 4, 5),
        ([32, 128], 4, 3),
        ([64, 64], 8, 5),
    ),
    ("ragged_sum", "H200"): (
        ([1, 32, 128], 4, 1),
        ([1, 32, 64], 2, 1),
        ([1, 64, 64], 4, 1),
    ),
    ("row_norm", "H200"): (([1], 8, 1), ([2], 8, 1), ([16], 32, 1)),
    ("row_norm", "A100"): (([1], 8, 1), ([2], 8, 1), ([16], 32, 1)),
}


@pytest.mark.parametrize(("name", "gpu"), sorted(_GOLDEN))
def test_the_front_of_a_list_is_as_recorded(name: str, gpu: str) -> None:
    front = [
        (c.config["block_sizes"], c.config["num_warps"], c.config["num_stages"])
        for c in _proposals(name, gpu)[:3]
    ]
    assert front == list(_GOLDEN[name, gpu])


@pytest.mark.parametrize("gpu", ["A100", "H200"])
def test_a_second_loop_over_a_row_is_cut_as_the_first(gpu: str) -> None:
    """Two passes with a block size each: neither goes element by element."""
    hardware = load_hardware(gpu)
    kernel = load_kernel(f"{_UNSEEN / 'norms.py'}:weight_norm_gradients")
    specs = ("bf16[4096,8192]", "bf16[4096,8192]", "bf16[4096]")
    bound = target.bind(kernel, [parse_argument(text) for text in specs], hardware)
    view = helion_hook.view(bound)
    graph = KernelGraph.from_record(view.record)
    found = propose(graph, FeatureExtractor(graph, hardware), view.default)
    loops = [one.config["block_sizes"][1:] for one in found if _OWN not in one.reason]
    assert loops
    assert all(min(blocks) > 1 for blocks in loops)
