"""Layouts, shared memory, registers and tensor memory: laws, and compiled examples."""

from __future__ import annotations

import dataclasses

import numpy as np
import parity_kernels
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel.features.barriers import programs_by_barriers
from costmodel.features.extract import FeatureExtractor
from costmodel.features.feasible import Limit
from costmodel.features.feasible import feasible
from costmodel.features.feasible import reasons
from costmodel.features.graph import KernelGraph
from costmodel.features.layouts import Layout
from costmodel.features.layouts import blocked
from costmodel.features.layouts import conversion_bytes
from costmodel.features.layouts import mma
from costmodel.features.layouts import mma_warps
from costmodel.features.loops import BoundKind
from costmodel.features.registers import GIVEN_UP_REGISTERS
from costmodel.features.registers import likely_registers
from costmodel.features.staging import make_staging_plan
from costmodel.features.tensor_memory import allocated
from costmodel.features.tensor_memory import programs_by_columns
from costmodel.features.upper import shared_memory_upper
from costmodel.hardware import Hardware
from costmodel.hardware import load_hardware
from costmodel.types import Config

H200, B200 = load_hardware("H200"), load_hardware("B200")
NAMES = sorted(parity_kernels.CASES)


def _bits(*values: int) -> list[np.ndarray]:
    return [np.array([value], dtype=np.int64) for value in values]


def _extractor(name: str, hardware: Hardware = H200) -> FeatureExtractor:
    record = parity_kernels.view_of(name).record
    return FeatureExtractor(KernelGraph.from_record(record), hardware)


def _config(data: st.DataObject, name: str) -> Config:
    """A config of a kernel: its default with other tiles, warps and loops."""
    default = parity_kernels.view_of(name).default
    n_ranges = len(default.get("range_unroll_factors") or [])
    draw = data.draw
    return {
        **default,
        "block_sizes": [2 ** draw(st.integers(4, 8)) for _ in default["block_sizes"]],
        "num_warps": 2 ** draw(st.integers(0, 5)),
        "num_stages": draw(st.integers(1, 8)),
        "pid_type": draw(st.sampled_from(["flat", "persistent_interleaved"])),
        "range_unroll_factors": [draw(st.integers(0, 4)) for _ in range(n_ranges)],
        "indexing": [
            draw(st.sampled_from(["pointer", "tensor_descriptor"]))
            for _ in default["indexing"]
        ],
    }


def _masks(layout: Layout) -> list[tuple[int, int]]:
    pairs = zip(layout.registers, layout.warps, strict=True)
    return [(int(np.ravel(r)[0]), int(np.ravel(w)[0])) for r, w in pairs]


sizes = st.integers(0, 11)


@given(m=sizes, n=sizes, vector=st.integers(0, 4), warps=st.integers(0, 5))
def test_each_index_bit_has_one_owner(m: int, n: int, vector: int, warps: int) -> None:
    rows, columns, vec, w = _bits(m, n, vector, warps)
    for order in ((1, 0), (0, 1)):
        layout = blocked([rows, columns], order, vec, w)
        lanes = 0
        for size, (registers, of_warps) in zip((m, n), _masks(layout), strict=True):
            assert registers & of_warps == 0
            assert (registers | of_warps) < 2**size
            lanes += size - (registers | of_warps).bit_count()
        assert lanes <= 5
        # A tile with an element for every thread leaves no thread without one.
        if m + n >= 5 + warps and vector <= max(0, m + n - 5 - warps):
            held = sum((r | w_).bit_count() for r, w_ in _masks(layout))
            assert held == m + n - 5


@given(m=sizes, n=sizes, warps=st.integers(0, 5), group=st.booleans())
def test_all_warps_of_a_product_are_placed(
    m: int, n: int, warps: int, group: bool
) -> None:
    rows, columns, w = _bits(m, n, warps)
    group = group and warps >= 2 and m >= 6
    along_rows, along_columns = mma_warps(rows, columns, w, np.array([group]))
    assert along_rows[0] + along_columns[0] == warps
    assert min(along_rows[0], along_columns[0]) >= 0
    if group:
        assert along_rows[0] >= 2  # a warp group is four warps along 64 rows


@given(
    m=st.integers(4, 9),
    n=st.integers(4, 9),
    warps=st.integers(0, 4),
    item=st.sampled_from([1.0, 2.0, 4.0]),
)
def test_a_change_of_layout_takes_at_most_the_tile(
    m: int, n: int, warps: int, item: float
) -> None:
    rows, columns, w, vec = _bits(m, n, warps, 2)
    group = np.array([warps >= 2 and m >= 6])
    result = mma(rows, columns, mma_warps(rows, columns, w, group), group)
    stored = blocked([rows, columns], (1, 0), vec, w)
    numel = np.array([2.0 ** (m + n)])
    for by_matrices in (False, True):
        found = conversion_bytes(result, stored, numel, item, by_matrices)
        assert 0.0 <= found[0] <= numel[0] * item
        assert conversion_bytes(stored, stored, numel, item, by_matrices)[0] == 0.0


@pytest.mark.parametrize(
    ("m", "n", "warps", "is_group", "item", "expected"),
    [
        # Read off Triton 3.6's allocations of result stores on sm90.
        (64, 512, 2, False, 4, 16384),
        (64, 256, 32, True, 4, 65536),
        (64, 64, 4, True, 4, 16384),
    ],
)
def test_result_stores_take_what_triton_allocated(
    m: int, n: int, warps: int, is_group: bool, item: int, expected: int
) -> None:
    rows, columns, w = _bits(*(int(np.log2(v)) for v in (m, n, warps)))
    group = np.array([is_group])
    result = mma(rows, columns, mma_warps(rows, columns, w, group), group)
    stored = blocked([rows, columns], (1, 0), np.array([2]), w)
    found = conversion_bytes(result, stored, np.array([float(m * n)]), float(item))
    assert found[0] == expected


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_estimate_is_above_its_bound_or_below_its_part(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    extractor = _extractor(name)
    configs = [_config(data, name) for _ in range(3)]
    found = extractor.resources(configs)
    plan = make_staging_plan(extractor.graph)
    upper = shared_memory_upper(extractor.graph, plan, configs, H200)
    assert (found.smem_bytes <= upper).all()
    assert (found.pipelined_bytes <= found.smem_bytes).all()
    assert (found.pipelined_bytes >= 0).all()


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_programs_on_an_sm_keep_its_limits(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    hardware = data.draw(st.sampled_from([H200, B200, load_hardware("A100")]))
    found = _extractor(name, hardware).resources([_config(data, name)])
    programs, threads = found.occupancy_ctas[0], found.threads[0]
    assert 1.0 <= programs <= hardware.max_ctas_per_sm
    if programs > 1.0:
        assert programs * threads <= hardware.max_threads_per_sm
        assert programs * (found.smem_bytes[0] + 1024) <= hardware.smem_per_sm_bytes
        held = found.registers_held[0]
        assert held <= min(found.regs_per_thread[0], found.register_cap[0])
        assert programs * threads * held <= hardware.regs_per_sm
        assert programs <= found.limit_barriers[0]
        assert programs * found.tmem_columns[0] <= hardware.tmem_columns


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_larger_gpu_never_forbids_more(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["product", "attention", "row_norm"]))
    extra = data.draw(st.integers(0, 2**17))
    larger = dataclasses.replace(
        H200,
        regs_per_sm=H200.regs_per_sm + extra,
        smem_per_cta_bytes=H200.smem_per_cta_bytes + extra,
        smem_per_sm_bytes=H200.smem_per_sm_bytes + extra,
    )
    configs = [_config(data, name) for _ in range(6)]
    before = feasible(_extractor(name), configs)
    after = feasible(_extractor(name, larger), configs)
    assert (after | ~before).all()


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_one_more_stage_never_takes_less(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["product", "attention", "float8_product"]))
    config = {**_config(data, name), "num_stages": data.draw(st.integers(2, 7))}
    more = {**config, "num_stages": config["num_stages"] + 1}
    found = _extractor(name).resources([config, more])
    assert found.smem_bytes[0] <= found.smem_bytes[1]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_row_does_not_depend_on_the_rows_around_it(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    configs = [_config(data, name) for _ in range(4)]
    extractor = _extractor(name)
    together = extractor.resources(configs)
    for row, config in enumerate(configs):
        alone = extractor.resources([config])
        for field in dataclasses.fields(together):
            whole = getattr(together, field.name)
            assert getattr(alone, field.name)[0] == whole[row], field.name


@pytest.mark.parametrize(("barriers", "programs"), [(0, np.inf), (1, 64), (16, 4)])
def test_barriers_of_an_sm_are_twice_its_programs(
    barriers: int, programs: float
) -> None:
    found = programs_by_barriers(np.array([float(barriers)]), H200)
    assert H200.max_ctas_per_sm == 32
    assert found[0] == programs


@given(
    need=st.floats(1.0, 1e4),
    cap=st.sampled_from([64.0, 128.0, 255.0]),
    warps=st.integers(0, 5),
    has_dot=st.booleans(),
)
def test_a_program_never_holds_more_registers_than_it_may(
    need: float, cap: float, warps: int, has_dot: bool
) -> None:
    args = (np.array([cap]), np.array([32.0 * 2**warps]), has_dot)
    found = likely_registers(np.array([need]), *args)[0]
    assert found <= min(need, cap)
    assert found == min(need, cap) or (found == GIVEN_UP_REGISTERS and need > cap)


def test_dots_that_meet_put_their_warps_one_way() -> None:
    # Two warps: too few for a warp group, so older MMA. The last product of an
    # attention has fewer rows than columns, or not, and the first follows it.
    extractor = _extractor("attention")
    dots = extractor.graph.dots
    plan = make_staging_plan(extractor.graph)
    assert len(dots) >= 2
    assert dots[0].node_id in plan.chains.feeding
    assert dots[-1].node_id not in plan.chains.feeding
    assert plan.chains.neighbours[dots[0].node_id] == dots


def test_a_loop_inside_a_tile_has_no_known_trips() -> None:
    for name in ("causal_attention", "product_in_chunks", "product"):
        graph = _extractor(name).graph
        for loop in make_staging_plan(graph).loops:
            axes = graph.loops.get(loop.graph_id, ())
            free = all(a.bound is BoundKind.FREE and not a.moves for a in axes)
            assert not loop.trips_known or free


def test_a_loop_of_one_trip_has_no_buffers() -> None:
    extractor = _extractor("product")
    k = int(parity_kernels.CASES["product"].arguments[0].strip("]").split(",")[-1])
    flat = {"num_warps": 8, "num_stages": 4, "pid_type": "flat"}
    short = {"block_sizes": [64, 64, k], **flat}
    looped = {"block_sizes": [64, 64, k // 2], **flat}
    found = extractor.resources([short, looped])
    assert found.pipelined_bytes[0] == 0.0
    assert found.pipelined_bytes[1] == 4 * 2 * 64 * (k // 2) * 2


def test_a_tile_of_2_to_the_20_elements_is_the_largest() -> None:
    extractor = _extractor("broadcast_add")
    fits = {"block_sizes": [1024, 1024], "num_warps": 32}
    does_not = {"block_sizes": [2048, 1024], "num_warps": 32}
    allowed, refused = reasons(extractor, [fits, does_not])
    assert Limit.TILE not in allowed
    assert Limit.TILE in refused


@pytest.mark.parametrize(("share", "programs"), [(0.6, 1), (0.5, 2), (0.25, 4)])
def test_tensor_memory_limits_the_programs_of_an_sm(
    share: float, programs: int
) -> None:
    columns = allocated(np.array([share * B200.tmem_columns]))
    assert programs_by_columns(B200.tmem_columns, columns)[0] == programs


def test_a_product_takes_tensor_memory_for_its_result() -> None:
    # 256 columns for 128 x 256 and for 64 x 256, 512 for 256 x 256: as compiled for
    # sm100 by Triton 3.9.
    shapes = [[128, 256, 64], [64, 256, 64], [256, 256, 64], [256, 512, 64]]
    configs = [{"block_sizes": one, "num_warps": 8} for one in shapes]
    extractor = _extractor("product", B200)
    found = extractor.resources(configs)
    assert found.tmem_columns.tolist() == [256.0, 256.0, 512.0, 1024.0]
    assert found.occupancy_ctas[2] == 1.0
    broken = [Limit.TENSOR_MEMORY in one for one in reasons(extractor, configs)]
    assert broken == [False, False, False, True]
    assert _extractor("product").resources(configs).tmem_columns.max() == 0.0
