"""Laws of the decision lists, and what each class's pick must look like."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import parity_kernels
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel import helion_hook
from costmodel.features.extract import FeatureExtractor
from costmodel.features.feasible import feasible
from costmodel.features.graph import KernelGraph
from costmodel.hardware import Hardware
from costmodel.hardware import load_hardware
from costmodel.heuristics.accuracy import keeps_sums_exact
from costmodel.heuristics.drafts import plain_config
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.facts import power_above
from costmodel.heuristics.facts import power_below
from costmodel.heuristics.matmul import ranked_tiles
from costmodel.heuristics.mma import uses_group_instruction
from costmodel.heuristics.multi_dot import propose_multi_dot
from costmodel.heuristics.pointwise import propose_pointwise
from costmodel.heuristics.propose import MOST_PROPOSALS
from costmodel.heuristics.propose import SPREAD
from costmodel.heuristics.propose import n_differences
from costmodel.heuristics.propose import propose
from costmodel.heuristics.read_facts import read_facts
from costmodel.heuristics.tiles import Problem
from costmodel.heuristics.tiles import make_tiles
from costmodel.heuristics.tiles import matmul_us
from costmodel.types import Candidate
from costmodel.types import Config
from costmodel.types import KernelClass

_GPUS = ("H200", "B200", "A100", "RTX-4090", "RTX-5090")
_NAMES = sorted(parity_kernels.CASES)


@functools.cache
def _graph(name: str) -> KernelGraph:
    return KernelGraph.from_record(parity_kernels.view_of(name).record)


def _propose(name: str, hardware: Hardware) -> list[Candidate]:
    """Proposals for a case bound on H200, on any hardware, from powers of two."""
    view = parity_kernels.view_of(name)
    graph = _graph(name)
    return propose(graph, FeatureExtractor(graph, hardware), view.default)


def _facts(name: str) -> Facts:
    space = helion_hook.space(parity_kernels.bound_case(name))
    return read_facts(_graph(name), space)


@pytest.mark.parametrize("gpu", _GPUS)
@pytest.mark.parametrize("name", _NAMES)
def test_proposals_keep_hard_limits_and_say_why(name: str, gpu: str) -> None:
    hardware = load_hardware(gpu)
    proposals = _propose(name, hardware)
    assert 1 <= len(proposals) <= MOST_PROPOSALS
    configs = [candidate.config for candidate in proposals]
    extractor = FeatureExtractor(_graph(name), hardware)
    assert feasible(extractor, configs).all()
    for candidate in proposals:
        warps = candidate.config["num_warps"]
        assert f"{warps} warps:" in candidate.reason, "a reason names what it is about"
    # A row alone in a program, with four warps at most, leaves only four choices.
    few = 4 if name == "dynamic_row_norm" else SPREAD
    for one, other in itertools.combinations(configs[:few], 2):
        assert n_differences(one, other) > 1
    more = dataclasses.replace(
        hardware,
        smem_per_cta_bytes=2 * hardware.smem_per_cta_bytes,
        smem_per_sm_bytes=2 * hardware.smem_per_sm_bytes,
        regs_per_sm=2 * hardware.regs_per_sm,
    )
    assert feasible(FeatureExtractor(_graph(name), more), configs).all()
    texts = [repr(sorted(config.items())) for config in configs]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("name", _NAMES)
def test_proposals_are_legal_and_structurally_different(name: str) -> None:
    bound = parity_kernels.bound_case(name)
    view = parity_kernels.view_of(name)
    space = helion_hook.space(bound)
    extractor = FeatureExtractor(_graph(name), load_hardware("H200"))
    proposals = propose(_graph(name), extractor, view.default, space)
    assert len(proposals) >= 4
    for candidate in proposals:
        assert not space.objections(candidate.config), candidate.reason
    tiles = {
        (
            *c.config.get("block_sizes", ()),
            *(c.config.get("reduction_loops") or ()),
            c.config["num_warps"],
        )
        for c in proposals
    }
    assert len(tiles) >= 3


@pytest.mark.parametrize("name", ("attention", "product", "ragged_sum", "row_norm"))
def test_names_decide_nothing(name: str) -> None:
    record = parity_kernels.view_of(name).record
    source = record.kernel_source.replace(f"def {name}(", "def some_other_kernel(")
    renamed = dataclasses.replace(
        record, kernel_name="some_other_kernel", kernel_source=source
    )
    hardware = load_hardware("H200")
    other = dataclasses.replace(hardware, name="Unheard Of 9000", aliases=("x",))
    graph = KernelGraph.from_record(renamed)
    default = parity_kernels.view_of(name).default
    plain = _propose(name, hardware)
    assert propose(graph, FeatureExtractor(graph, hardware), default) == plain
    assert _propose(name, other) == plain


def test_the_default_only_gives_keys_and_lengths() -> None:
    view = parity_kernels.view_of("product")
    graph = _graph("product")
    extractor = FeatureExtractor(graph, load_hardware("H200"))
    other = {**view.default, "num_warps": 1, "block_sizes": [16, 16, 16]}
    assert propose(graph, extractor, other) == propose(graph, extractor, view.default)


def test_float8_sums_stay_exact_on_hopper_only() -> None:
    facts = _facts("float8_product")
    depths = {k.slot: k.extent for k in facts.loop_knobs}
    assert max(depths.values()) > 64
    wide: Config = {"block_sizes": [128, 128, 128], "num_warps": 8}
    narrow: Config = {"block_sizes": [32, 128, 128], "num_warps": 8}
    two_warps: Config = {"block_sizes": [64, 128, 128], "num_warps": 2}
    configs = [wide, narrow, two_warps]
    hopper = keeps_sums_exact(facts, load_hardware("H200"), configs)
    assert hopper.tolist() == [False, True, True]
    for gpu in ("B200", "A100", "RTX-4090"):
        assert keeps_sums_exact(facts, load_hardware(gpu), configs).all()
    picked = [c.config for c in _propose("float8_product", load_hardware("H200"))]
    assert keeps_sums_exact(facts, load_hardware("H200"), picked).all()


@pytest.mark.parametrize(
    ("name", "least"),
    [("float8_product", 2048), ("grouped_product", 4096), ("ragged_sum", 1024)],
)
def test_kernels_without_a_rule_get_more_than_the_default_tile(
    name: str, least: int
) -> None:
    """Helion guesses blocks of 16 for these, 3 to 39 times too slow on an H200."""
    assert not parity_kernels.view_of(name).promoted
    pick = _propose(name, load_hardware("H200"))[0].config
    blocks = pick["block_sizes"]
    tile = blocks[0] * blocks[1]
    if name == "ragged_sum":
        assert blocks[0] == 1, "groups of unequal length stay apart"
        tile = blocks[1] * blocks[2]
    assert tile >= least


def test_big_square_products_get_two_warp_groups_on_hopper() -> None:
    problem = Problem(8192, 8192, 8192, 1, 2, 2, 2, "bf16")
    tiles = make_tiles((64, 128, 256), (64, 128, 256), (64,), (4, 8), (3, 4))
    light = tiles.m * tiles.n / (32 * tiles.num_warps) <= 128
    tiles = tiles.take(light)
    best = int(matmul_us(problem, tiles, load_hardware("H200")).argmin())
    assert sorted((tiles.m[best], tiles.n[best])) == [128, 256]
    assert tiles.num_warps[best] == 8


@given(
    m=st.integers(1, 20_000),
    n=st.integers(1, 20_000),
    k=st.integers(16, 20_000),
    gpu=st.sampled_from(_GPUS),
    scale=st.sampled_from((2, 4)),
)
@settings(max_examples=40, deadline=None)
def test_more_of_everything_is_never_slower(
    m: int, n: int, k: int, gpu: str, scale: int
) -> None:
    hardware = load_hardware(gpu)
    faster = dataclasses.replace(
        hardware,
        dram_gb_per_s=hardware.dram_gb_per_s * scale,
        clock_ghz=hardware.clock_ghz * scale,
        peak_tflops={key: v * scale for key, v in hardware.peak_tflops.items()},
    )
    problem = Problem(m, n, k, 1, 2, 2, 2, "bf16")
    tiles = make_tiles((16, 64, 128), (16, 128, 256), (32, 64), (4, 8), (1, 3, 5))
    slow, fast = (matmul_us(problem, tiles, hw) for hw in (hardware, faster))
    assert (slow > 0).all()
    assert (fast <= slow * (1 + 1e-9)).all()


@given(
    m=st.integers(1, 10_000),
    n=st.integers(16, 10_000),
    k=st.integers(64, 10_000),
    gpu=st.sampled_from(_GPUS),
)
@settings(max_examples=30, deadline=None)
def test_enough_rows_get_whole_warp_groups(m: int, n: int, k: int, gpu: str) -> None:
    facts = _facts("product")
    (dot,) = facts.dots
    hardware = load_hardware(gpu)
    problem = Problem(m, n, k, 1, 2, 2, 2, "bf16")
    choices = ranked_tiles(facts, dot, problem, hardware)
    has_groups = hardware.has_wgmma or hardware.has_tcgen05
    grouped = [uses_group_instruction(hardware, c.m, c.num_warps) for c in choices]
    if has_groups and m >= 64:
        assert all(grouped)
    assert has_groups or not any(grouped)
    assert len({(c.m, c.n) for c in choices}) > 1


def test_a_second_warp_group_has_rows_of_its_own() -> None:
    hardware = load_hardware("H200")
    for candidate in _propose("attention", hardware):
        if "Helion's own rule" in candidate.reason:
            continue
        config = candidate.config
        rows = max(config["block_sizes"][:-1])
        if rows >= 64 and config["num_warps"] > 4:
            assert rows >= 64 * config["num_warps"] // 4


def test_scattered_operands_are_not_staged() -> None:
    graph, hardware = _graph("attention"), load_hardware("H200")
    view = parity_kernels.view_of("attention")
    facts = _facts("attention")
    base = plain_config(view.default)
    resources_of = FeatureExtractor(graph, hardware).resources
    usual = propose_multi_dot(facts, base, hardware, resources_of)
    assert all(draft.config["num_stages"] > 1 for draft in usual)
    looked_up = dataclasses.replace(
        facts,
        accesses=tuple(
            dataclasses.replace(a, is_scattered=a.in_loop) for a in facts.accesses
        ),
    )
    drafts = propose_multi_dot(looked_up, base, hardware, resources_of)
    assert drafts and all(draft.config["num_stages"] == 1 for draft in drafts)


def test_a_stencil_keeps_rows() -> None:
    name = _two_knob_map()
    facts, hardware = _facts(name), load_hardware("H200")
    base = plain_config(parity_kernels.view_of(name).default)
    lane = facts.lane_slot()
    (outer,) = {k.slot for k in facts.knobs} - {lane}
    plain = propose_pointwise(facts, base, hardware)[0].config["block_sizes"]
    main = facts.widest()
    assert main is not None
    read = dataclasses.replace(main, is_store=False, shifted=frozenset({outer}))
    shifted = dataclasses.replace(facts, accesses=(*facts.accesses, read, read))
    assert shifted.stencil_slot() == outer and facts.stencil_slot() is None
    rows = propose_pointwise(shifted, base, hardware)[0].config["block_sizes"]
    assert rows[outer] > plain[outer] and rows[lane] >= 32


def _two_knob_map() -> str:
    """A map of two axes, whose rows are long."""
    for name in _NAMES:
        facts = _facts(name)
        if (
            facts.kernel_class is KernelClass.POINTWISE
            and len(facts.knobs) == 2
            and facts.lane_slot() is not None
            and len(facts.contiguous_slots()) == 1
        ):
            return name
    raise AssertionError("no map of two axes among the parity kernels")


@given(value=st.floats(0.1, 1e9))
def test_powers_of_two_enclose(value: float) -> None:
    low, high = power_below(value), power_above(value)
    assert low & (low - 1) == 0 and high & (high - 1) == 0
    assert low <= max(1.0, value) <= high < 4 * max(1.0, value)


_SIDES = st.sampled_from([16, 32, 64, 128])
_CONFIGS = st.fixed_dictionaries(
    {
        "block_sizes": st.lists(_SIDES, min_size=2, max_size=2),
        "num_warps": st.sampled_from([1, 4, 8]),
        "num_stages": st.integers(1, 6),
        "indexing": st.lists(
            st.sampled_from(["pointer", "tensor_descriptor"]), min_size=2, max_size=2
        ),
    }
)


@given(one=_CONFIGS, other=_CONFIGS)
@settings(max_examples=50, deadline=None)
def test_the_bench_matches_by_a_distance(one: Config, other: Config) -> None:
    """What stands for a proposal that was never recorded is near in every knob."""
    apart = _bench().distance(one, other, [])
    assert apart == pytest.approx(_bench().distance(other, one, []))
    assert (apart == 0) == (one == other)
    wider = {**one, "block_sizes": [2 * one["block_sizes"][0], one["block_sizes"][1]]}
    assert _bench().distance(one, wider, []) == pytest.approx(1.0)


@functools.cache
def _bench() -> ModuleType:
    path = Path(__file__).parent.parent / "benchmarks" / "bench_heuristics.py"
    spec = importlib.util.spec_from_file_location("bench_heuristics", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_access_of_a_slot_has_its_emission_order() -> None:
    facts = _facts("attention")
    slots: list[Any] = [(a.is_store, a.indexing_slot) for a in facts.accesses]
    assert slots == [(False, 0), (False, 1), (False, 2), (True, 3)]
    assert not facts.accesses[0].in_loop and facts.accesses[1].in_loop
