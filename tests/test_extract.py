"""Laws of the feature matrix: rows stand alone, are finite, and ignore names."""

from __future__ import annotations

import dataclasses
import json
import random

import numpy as np
import parity_kernels
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel import helion_hook
from costmodel.errors import UnreadableKernelError
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.features.schema import SCHEMA
from costmodel.hardware import known_hardware
from costmodel.hardware import load_hardware
from costmodel.heuristics.listed import with_list
from costmodel.types import Config
from costmodel.types import WorkloadRecord

H200 = load_hardware("H200")
LAWS = ("attention", "product_gelu", "row_norm", "broadcast_add", "grouped_product")
_POOL: dict[str, list[Config]] = {}


def _pool(name: str) -> list[Config]:
    """The default and two dozen random configs of a kernel."""
    if name not in _POOL:
        bound = parity_kernels.bound_case(name)
        random.seed(5)
        with helion_hook.device_of(bound):
            generation = bound.config_spec.create_config_generation()
            drawn = [dict(generation.random_config().config) for _ in range(24)]
        default = parity_kernels.view_of(name).default
        _POOL[name] = [default, *json.loads(json.dumps(drawn))]
    return _POOL[name]


def _extractor(name: str) -> FeatureExtractor:
    view = parity_kernels.view_of(name)
    return _listed(view.record, view.default)


def _listed(record: WorkloadRecord, default: Config) -> FeatureExtractor:
    extractor = FeatureExtractor(KernelGraph.from_record(record), H200)
    with_list(extractor, default)
    return extractor


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_row_does_not_depend_on_the_rows_around_it(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(LAWS))
    pool = _pool(name)
    order = data.draw(st.lists(st.integers(0, len(pool) - 1), min_size=1, max_size=12))
    extractor = _extractor(name)
    whole = extractor.matrix(pool, pool[0])
    some = extractor.matrix([pool[i] for i in order], pool[0])
    assert some.tobytes() == np.ascontiguousarray(whole[order]).tobytes()
    times = extractor.analytic_us(pool)
    assert extractor.analytic_us([pool[i] for i in order]).tolist() == (
        times[order].tolist()
    )


@pytest.mark.parametrize("name", LAWS)
def test_layout(name: str) -> None:
    pool = _pool(name)
    extractor = _extractor(name)
    matrix = extractor.matrix(pool, pool[0])
    base = extractor.base(pool)
    assert matrix.shape == (len(pool), len(SCHEMA))
    assert matrix.dtype == base.dtype == np.float32
    assert np.isfinite(matrix).all()
    assert (matrix[:, SCHEMA.columns("base")] == base).all()
    assert (matrix[0, SCHEMA.columns("difference")] == 0.0).all()
    workload = matrix[:, SCHEMA.columns("workload")]
    assert (workload == workload[0]).all()
    assert extractor.base([]).shape == (0, base.shape[1])


@pytest.mark.parametrize("name", LAWS)
def test_features_move_with_the_config(name: str) -> None:
    pool = _pool(name)
    matrix = _extractor(name).base(pool)
    assert len(np.unique(matrix, axis=0)) > len(pool) / 2


@pytest.mark.parametrize("gpu", known_hardware())
def test_every_gpu_gives_finite_features(gpu: str) -> None:
    record = parity_kernels.view_of("attention").record
    extractor = FeatureExtractor(KernelGraph.from_record(record), load_hardware(gpu))
    pool = _pool("attention")
    with_list(extractor, pool[0])
    assert np.isfinite(extractor.matrix(pool, pool[0])).all()
    assert (extractor.analytic_us(pool) > 0.0).all()


def test_names_are_not_features() -> None:
    name = "product_gelu"
    record = parity_kernels.view_of(name).record
    source = record.kernel_source.replace(f"def {name}(", "def attention(")
    renamed = dataclasses.replace(
        record, kernel_name="attention", kernel_source=source, hardware="else"
    )
    pool = _pool(name)
    matrices = [_listed(r, pool[0]).matrix(pool, pool[0]) for r in (record, renamed)]
    assert matrices[0].tobytes() == matrices[1].tobytes()


def test_absent_knobs_count_as_helions_defaults() -> None:
    extractor = _extractor("product_gelu")
    sparse = {"block_sizes": [64, 64, 32]}
    full = {
        **sparse,
        "num_warps": 4,
        "num_stages": 1,
        "pid_type": "flat",
        "indexing": ["pointer"] * 4,
        "l2_groupings": [1],
        "loop_orders": [[0, 1]],
        "load_eviction_policies": [""] * 3,
        "range_num_stages": [0, 0],
        "range_unroll_factors": [0, 0],
        "range_multi_buffers": [None, None],
        "range_flattens": [None, None],
    }
    sparse_row, full_row = extractor.base([sparse, full])
    assert sparse_row.tobytes() == full_row.tobytes()


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"block_sizes": [64, 64]},
        {"block_sizes": [64, 64, 0]},
        {"block_sizes": [64, 64, "32"]},
        {"block_sizes": [64, 64, 32], "reduction_loops": [None, 16]},
    ],
)
def test_a_config_of_another_kernel_is_refused(config: Config) -> None:
    with pytest.raises(UnreadableKernelError, match="block_sizes"):
        _extractor("product_gelu").base([config])


def test_odd_values_of_knobs_are_read_as_absent() -> None:
    extractor = _extractor("product_gelu")
    plain = {"block_sizes": [64, 64, 32]}
    odd = {**plain, "num_warps": "many", "maxnreg": None, "indexing": "pointer"}
    plain_row, odd_row = extractor.base([plain, odd])
    assert plain_row.tobytes() == odd_row.tobytes()


def test_kernels_own_tunables_size_tiles() -> None:
    extractor = _extractor("split_product")
    sizes = {"block_sizes": [64, 64, 64]}
    found = extractor.evaluate([{**sizes, "split_k": s} for s in (1, 4, 256)])
    assert found.tiles.total_programs.tolist() == [4.0, 16.0, 1024.0]
    assert found.work.trips.tolist() == [128.0, 32.0, 1.0]


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_what_is_remembered_is_what_would_be_computed(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(LAWS))
    pool = _pool(name)
    places = st.lists(st.integers(0, len(pool) - 1), max_size=8)
    kept, asked = data.draw(places), data.draw(places)
    fresh, remembering = _extractor(name), _extractor(name)
    remembering.remember([pool[0], *(pool[i] for i in kept)])
    configs = [pool[i] for i in asked]
    for extractor in (fresh, remembering):
        extractor.resources(pool[:2])  # the last question is remembered, too
    assert remembering.matrix(configs, pool[0]).tobytes() == (
        fresh.matrix(configs, pool[0]).tobytes()
    )
    if not configs:
        return
    assert remembering.analytic_us(configs).tobytes() == (
        fresh.analytic_us(configs).tobytes()
    )
    ours, plain = remembering.resources(configs), fresh.resources(configs)
    for field in dataclasses.fields(plain):
        mine, its = getattr(ours, field.name), getattr(plain, field.name)
        n = len(configs)
        assert np.array_equal(np.broadcast_to(mine, n), np.broadcast_to(its, n))


def test_only_these_very_objects_are_remembered() -> None:
    extractor, pool = _extractor("product_gelu"), _pool("product_gelu")
    extractor.remember(pool[:3])
    changed = {**pool[0], "num_warps": 32}
    assert not np.array_equal(extractor.base([changed]), extractor.base([pool[0]]))
    assert np.array_equal(extractor.base([dict(pool[1])]), extractor.base([pool[1]]))


@pytest.mark.parametrize("name", LAWS)
def test_what_was_asked_in_turns_is_what_would_be_computed(name: str) -> None:
    pool = _pool(name)
    asked, fresh = _extractor(name), _extractor(name)
    for start in range(0, 6, 2):
        asked.resources(pool[start : start + 2])
    apart = [pool[4], pool[1], pool[2]]
    known = asked.known_resources(apart)
    assert known is not None
    plain = fresh.resources(apart)
    for field in dataclasses.fields(plain):
        ours, theirs = getattr(known, field.name), getattr(plain, field.name)
        assert ours.tobytes() == theirs.tobytes(), field.name
    again = asked.analytic_us(apart)
    assert np.array_equal(again, _extractor(name).analytic_us(apart))
    assert asked.known_resources([*apart, dict(pool[0])]) is None
