"""What the graph reader finds in kernels of every shape of loop."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import parity_kernels
import pytest

from costmodel import helion_hook
from costmodel.arguments import parse_argument
from costmodel.errors import UnreadableKernelError
from costmodel.features.blocks import BlockKind
from costmodel.features.graph import KernelGraph
from costmodel.features.indices import DimKind
from costmodel.features.knobs import range_slots
from costmodel.features.loops import BoundKind
from costmodel.features.loops import LoopAxisFact
from costmodel.features.regions import RegionKind
from costmodel.features.tiles import make_tiles
from costmodel.hardware import load_hardware
from costmodel.target import bind
from costmodel.types import WorkloadRecord

NAMES = sorted(parity_kernels.CASES)


def _graph(name: str) -> KernelGraph:
    return KernelGraph.from_record(parity_kernels.view_of(name).record)


def _axes(graph: KernelGraph) -> list[LoopAxisFact]:
    return [axis for axes in graph.loops.values() for axis in axes]


@pytest.mark.parametrize("name", NAMES)
def test_knob_slots_are_those_of_helions_config_spec(name: str) -> None:
    graph = _graph(name)
    spec = parity_kernels.bound_case(name).config_spec
    tiles = [graph.blocks[key].block_id for key in graph.tunable_blocks]
    assert tiles == [item.block_id for item in spec.block_sizes]
    rolled = [graph.blocks[key].block_id for key in graph.reduction_blocks]
    assert rolled == [item.block_id for item in spec.reduction_loops]
    assert graph.n_memory_slots == spec.indexing.length
    assert graph.n_load_slots == spec.load_eviction_policies.length
    assert graph.n_atomic_slots == spec.atomic_indexing.length
    assert 1 + max(range_slots(graph).values()) == len(spec.range_num_stages)


def test_a_rolled_reduction_over_a_padded_number_has_its_slot() -> None:
    specs = [parse_argument(text) for text in ("f32[904,768]", "i32[5]@offsets(904)")]
    bound = bind(parity_kernels.ragged_total, specs, load_hardware("H200"))
    view = helion_hook.view(bound)
    graph = KernelGraph.from_record(view.record)
    rolled = [graph.blocks[key] for key in graph.reduction_blocks]
    spec = bound.config_spec.reduction_loops
    assert [one.block_id for one in rolled] == [item.block_id for item in spec]
    assert [one.extent for one in rolled] == [1024]  # 768, as Helion pads it
    tiles = make_tiles(graph, [view.default, {**view.default, "reduction_loops": [32]}])
    assert tiles.size[rolled[0].key].tolist() == [1024, 32]


@pytest.mark.parametrize("name", NAMES)
def test_slots_point_at_the_loads_of_the_generated_code(name: str) -> None:
    graph, default = _graph(name), parity_kernels.view_of(name).default
    bound = parity_kernels.bound_case(name)
    chunks = [[None] * len(graph.reduction_blocks)]
    if graph.reduction_blocks:
        chunks.append([16] * len(graph.reduction_blocks))
    for loops in chunks:
        is_rolled = loops != chunks[0]
        slots = {}
        for access in graph.accesses:
            slot = access.rolled_load_slot if is_rolled else access.load_slot
            is_twin = graph.regions[access.graph_id].kind is RegionKind.ROLLED
            if slot is not None and (is_rolled or not is_twin):
                slots[slot] = access.tensor
        for wanted in (1, 2, 4):  # bits of a slot's number, so that each slot shows
            policies = [
                "first" if slot & wanted else "" for slot in range(graph.n_load_slots)
            ]
            config = {**default, "load_eviction_policies": policies}
            config |= {"reduction_loops": loops} if loops else {}
            code = helion_hook.triton_code(bound, config)
            found = re.findall(r"tl\.load\((\w+) .*evict_first", code)
            expected = [slots[s] for s in sorted(slots) if s & wanted]
            # A kernel of several grids is emitted once for each persistent launch.
            copies = len(found) // max(1, len(expected))
            assert found == expected * copies
            assert bool(found) == bool(expected)


@pytest.mark.parametrize("name", NAMES)
def test_every_access_is_aligned_and_every_loop_found_in_the_source(name: str) -> None:
    graph = _graph(name)
    assert graph.source_matched
    assert graph.accesses
    assert all(access.exact for access in graph.accesses)
    assert set(graph.root_ids()) <= set(graph.loops)


def test_literal_tile_sizes_come_from_the_source() -> None:
    graph = _graph("literal_tiles")
    fixed = [b.fixed_size for b in graph.blocks if b.kind is BlockKind.FIXED]
    assert fixed == [1, 64]
    assert [b.extent for b in graph.blocks] == [8, 256, 1000]


def test_a_grid_index_has_an_extent_and_no_knob() -> None:
    graph = _graph("grid_rows")
    (block,) = [b for b in graph.blocks if b.kind is BlockKind.GRID]
    assert (block.extent, block.in_grid, block.slot) == (8, True, None)
    walked = [a for a in graph.accesses if block.symbol in a.symbols]
    assert len(walked) == len(graph.accesses)


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("split_product", BoundKind.INSIDE),
        ("product_in_chunks", BoundKind.INSIDE),
        ("row_chunk_gradient", BoundKind.INSIDE),
        ("causal_attention", BoundKind.PREFIX),
        ("chunk_scan", BoundKind.PREFIX),
        ("ragged_sum", BoundKind.DATA),
        ("grouped_product", BoundKind.DATA),
    ],
)
def test_bounds_of_inner_loops(name: str, bound: BoundKind) -> None:
    found = [axis for axis in _axes(_graph(name)) if axis.bound is not BoundKind.FREE]
    assert [axis.bound for axis in found] == [bound]
    assert found[0].known is (bound is not BoundKind.DATA)


@pytest.mark.parametrize(
    ("name", "rows"), [("ragged_sum", 904 / 4), ("grouped_product", 256 / 4)]
)
def test_unknown_trips_get_an_even_split(name: str, rows: float) -> None:
    (axis,) = [a for a in _axes(_graph(name)) if a.bound is BoundKind.DATA]
    assert axis.extent == rows


def test_dynamic_shapes_have_the_extents_of_the_arguments() -> None:
    assert [b.extent for b in _graph("dynamic_product").blocks] == [500, 900, 700]
    assert [b.extent for b in _graph("dynamic_row_norm").blocks] == [500, 700]


def test_dots_know_their_sides() -> None:
    first, second = _graph("attention").dots
    assert (first.m, first.n, first.k) == ("u1", "u3", "64")
    assert (second.m, second.n, second.k) == ("u1", "64", "u3")
    assert first.lhs_loaded and first.rhs_loaded and not first.carried
    assert second.rescaled and not second.lhs_loaded


def test_gathers_are_told_from_plain_indices() -> None:
    graph = _graph("gather_rows")
    table = next(a for a in graph.accesses if a.tensor == "table")
    assert [d.kind for d in table.dims] == [DimKind.GATHER, DimKind.TILE]
    assert [a.tensor for a in graph.accesses if a.gathers] == ["table"]


def test_renaming_a_kernel_and_its_function_changes_nothing() -> None:
    for name in ("product", "split_product", "two_pass_softmax"):
        record = parity_kernels.view_of(name).record
        source = record.kernel_source.replace(f"def {name}(", "def other(")
        renamed = dataclasses.replace(record, kernel_name="other", kernel_source=source)
        assert renamed != record
        facts = [
            (g.blocks, dict(g.loops), g.accesses, g.dots, g.reductions, g.elementwise)
            for g in map(KernelGraph.from_record, (record, renamed))
        ]
        assert facts[0] == facts[1]


def test_without_source_a_plain_kernel_is_still_read() -> None:
    record = parity_kernels.view_of("product").record
    bare = KernelGraph.from_record(dataclasses.replace(record, kernel_source=""))
    full = KernelGraph.from_record(record)
    assert [b.extent for b in bare.blocks] == [b.extent for b in full.blocks]
    assert bare.tunable_blocks == full.tunable_blocks


def _without(key: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda graph: {k: v for k, v in graph.items() if k != key}


def _dangling(graph: dict[str, Any]) -> dict[str, Any]:
    edge = {**graph["edges"][0], "source": "g9:nowhere"}
    return {**graph, "edges": [edge, *graph["edges"]]}


@pytest.mark.parametrize(
    "damage",
    [
        lambda graph: {},
        _without("nodes"),
        _without("edges"),
        _without("graph"),
        _dangling,
        lambda graph: {**graph, "nodes": [{"id": "g0:x"}]},
        lambda graph: {**graph, "graph": {**graph["graph"], "graphs": []}},
        lambda graph: {**graph, "nodes": None},
    ],
)
def test_a_damaged_graph_is_refused_in_one_line(
    damage: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    record: WorkloadRecord = parity_kernels.view_of("product").record
    broken = dataclasses.replace(record, ir_graph=damage(dict(record.ir_graph)))
    with pytest.raises(UnreadableKernelError) as caught:
        KernelGraph.from_record(broken)
    assert "\n" not in str(caught.value)


def test_an_unknown_operation_is_read_as_arithmetic() -> None:
    record = parity_kernels.view_of("product_gelu").record
    nodes = [
        {**n, "target": "torch._ops.aten.aten::not_invented_yet.Tensor"}
        if n["target"].endswith("aten::add.Tensor")
        else n
        for n in record.ir_graph["nodes"]
    ]
    strange = dataclasses.replace(record, ir_graph={**record.ir_graph, "nodes": nodes})
    plain = KernelGraph.from_record(record)
    assert KernelGraph.from_record(strange).elementwise == plain.elementwise
