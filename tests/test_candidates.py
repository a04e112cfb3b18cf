"""Laws of the candidate list: what is in it, in which order, and that it runs."""

from __future__ import annotations

import dataclasses
import json
import random

import parity_kernels
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel import helion_hook
from costmodel.candidates import MOST_CANDIDATES
from costmodel.candidates import make_candidates
from costmodel.features.effective import EffectiveKeys
from costmodel.features.extract import FeatureExtractor
from costmodel.features.feasible import feasible
from costmodel.features.graph import KernelGraph
from costmodel.hardware import Hardware
from costmodel.hardware import load_hardware
from costmodel.heuristics.accuracy import keeps_sums_exact
from costmodel.heuristics.read_facts import read_facts
from costmodel.types import Candidate
from costmodel.types import CandidateOrigin

_H200 = load_hardware("H200")
_NAMES = (
    "attention",
    "broadcast_add",
    "causal_attention",
    "float8_product",
    "grouped_product",
    "product_in_chunks",
    "ragged_sum",
    "row_chunk_gradient",
    "row_norm",
    "split_product",
    "two_grids",
)


def _extractor(name: str, hardware: Hardware = _H200) -> FeatureExtractor:
    record = parity_kernels.view_of(name).record
    return FeatureExtractor(KernelGraph.from_record(record), hardware)


def _candidates(name: str, limit: int = MOST_CANDIDATES) -> list[Candidate]:
    space = helion_hook.space(parity_kernels.bound_case(name))
    return make_candidates(parity_kernels.view_of(name), space, _extractor(name), limit)


def _texts(candidates: list[Candidate]) -> set[str]:
    return {json.dumps(c.config, sort_keys=True) for c in candidates}


@pytest.mark.parametrize("name", _NAMES)
def test_the_default_is_first_and_programs_are_distinct(name: str) -> None:
    found = _candidates(name)
    assert found[0].origin is CandidateOrigin.DEFAULT
    view = parity_kernels.view_of(name)
    assert found[0].config == {k: v for k, v in view.default.items() if v is not None}
    assert len(found) <= MOST_CANDIDATES
    keys = EffectiveKeys(_extractor(name).graph, view.default)
    assert len({keys.key(c.config) for c in found}) == len(found)
    assert all(c.reason for c in found)
    origins = {c.origin for c in found}
    assert {CandidateOrigin.ANALYTIC, CandidateOrigin.MOVE} <= origins


@pytest.mark.parametrize("name", _NAMES)
def test_all_but_the_default_run_and_keep_their_sums(name: str) -> None:
    extractor = _extractor(name)
    configs = [c.config for c in _candidates(name)[1:]]
    assert feasible(extractor, configs).all()
    space = helion_hook.space(parity_kernels.bound_case(name))
    facts = read_facts(extractor.graph, space)
    assert keeps_sums_exact(facts, _H200, configs).all()
    assert not [c for c in configs if space.objections(c)]


@pytest.mark.parametrize("name", _NAMES)
def test_helion_takes_a_sample_as_it_is(name: str) -> None:
    bound = parity_kernels.bound_case(name)
    found = _candidates(name)
    rng = random.Random(name)
    for candidate in rng.sample(found, min(6, len(found))):
        normal = helion_hook.normalize(bound, candidate.config)
        assert normal is not None
        kept = {key: value for key, value in normal.items() if value is not None}
        assert kept == candidate.config, candidate.reason
        assert "@triton.jit" in helion_hook.triton_code(bound, candidate.config)


@given(order=st.randoms(use_true_random=False))
@settings(max_examples=5, deadline=None)
def test_the_order_of_seeds_changes_no_candidate(order: random.Random) -> None:
    view = parity_kernels.view_of("product")
    space = helion_hook.space(parity_kernels.bound_case("product"))
    seeds = list(view.seeds)
    order.shuffle(seeds)
    shuffled = dataclasses.replace(view, seeds=tuple(seeds))
    found = make_candidates(shuffled, space, _extractor("product"))
    assert found[0].origin is CandidateOrigin.DEFAULT
    assert _texts(found) == _texts(_candidates("product"))


def test_the_same_kernel_gives_the_same_candidates() -> None:
    assert _candidates("attention") == _candidates("attention")


def test_a_renamed_kernel_gives_the_same_candidates() -> None:
    view = parity_kernels.view_of("row_norm")
    space = helion_hook.space(parity_kernels.bound_case("row_norm"))
    source = view.record.kernel_source.replace("def row_norm(", "def other(")
    record = dataclasses.replace(view.record, kernel_name="other", kernel_source=source)
    extractor = FeatureExtractor(KernelGraph.from_record(record), _H200)
    renamed = make_candidates(
        dataclasses.replace(view, record=record), space, extractor
    )
    assert renamed == _candidates("row_norm")


@given(limit=st.integers(1, 300))
@settings(max_examples=8, deadline=None)
def test_a_limit_is_kept_and_never_costs_the_default(limit: int) -> None:
    found = _candidates("product", limit)
    assert 1 <= len(found) <= limit
    assert found[0].origin is CandidateOrigin.DEFAULT


@given(more=st.integers(0, 200_000))
@settings(max_examples=8, deadline=None)
def test_more_shared_memory_rules_no_candidate_out(more: int) -> None:
    configs = [c.config for c in _candidates("attention")]
    larger = dataclasses.replace(
        _H200,
        smem_per_cta_bytes=_H200.smem_per_cta_bytes + more,
        smem_per_sm_bytes=_H200.smem_per_sm_bytes + more,
    )
    before = feasible(_extractor("attention"), configs)
    after = feasible(_extractor("attention", larger), configs)
    assert (after | ~before).all()


def test_a_cut_keeps_many_tiles() -> None:
    found = _candidates("product", 128)
    tiles = {(*c.config["block_sizes"], c.config["num_warps"]) for c in found}
    assert len(tiles) >= 16


def test_moves_change_several_knobs() -> None:
    moves = [c for c in _candidates("product") if c.origin is CandidateOrigin.MOVE]
    joint = [c for c in moves if "," in c.reason]
    assert len(joint) >= len(moves) * 3 // 4
