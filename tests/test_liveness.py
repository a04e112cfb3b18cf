"""Live tiles, against Helion's own timeline and as laws."""

from __future__ import annotations

import json
import random
from typing import Any

import helion
import numpy as np
import parity_kernels
import pytest
from helion._compiler.autotuner_heuristics.triton import TritonH100MatmulHeuristic
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel import helion_hook
from costmodel.features.graph import KernelGraph
from costmodel.features.liveness import live_bytes
from costmodel.features.liveness import make_live_plan
from costmodel.features.symbols import next_power_of_2
from costmodel.features.tiles import make_tiles
from costmodel.types import Config

# Helion's fact is wrong for one: it takes the size hint of a computed dimension, and
# does not resolve a tile that the kernel's own tunable sizes.
COMPARABLE = sorted(
    set(parity_kernels.CASES)
    - {"packed_int4_product", "split_product", "ragged_sum", "grouped_product"}
)
LAWS = ("attention", "product_gelu", "row_norm", "two_pass_softmax", "quantise_groups")


def _helion_sizes(bound: Any, config: Config) -> dict[int, int]:
    sizes = {}
    with bound.env:
        for block in bound.env.block_sizes:
            size = block.from_config(helion.Config(**config))
            if size is None or not isinstance(size, int):
                size = int(bound.env.size_hint(block.size))
            padded = next_power_of_2(size) if block.reduction else size
            sizes[block.block_id] = padded
    return sizes


def _helion_peak(bound: Any, sizes: dict[int, int]) -> int:
    steps = bound.config_spec.reduction_kernel_fact.live_tile_steps
    return max(
        sum(
            TritonH100MatmulHeuristic._resolve_tile_bytes(tile, sizes)
            for tile in step
            if tile.kind != "global"
        )
        for step in steps
    )


@pytest.mark.parametrize("name", COMPARABLE)
def test_peak_and_tile_sizes_equal_helions(name: str) -> None:
    bound = parity_kernels.bound_case(name)
    view = parity_kernels.view_of(name)
    random.seed(11)
    with helion_hook.device_of(bound):
        generation = bound.config_spec.create_config_generation()
        drawn = [dict(generation.random_config().config) for _ in range(5)]
        configs = [view.default, *json.loads(json.dumps(drawn))]
        sizes = [_helion_sizes(bound, config) for config in configs]
        expected = [_helion_peak(bound, one) for one in sizes]
    graph = KernelGraph.from_record(view.record)
    tiles = make_tiles(graph, configs)
    for block in graph.blocks:
        if block.block_id is not None:
            column = np.broadcast_to(tiles.size[block.key], (tiles.n,))
            assert column.tolist() == [one[block.block_id] for one in sizes]
    assert live_bytes(make_live_plan(graph), tiles).total.tolist() == expected


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_doubling_a_tile_never_lowers_live_bytes(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(LAWS))
    graph = KernelGraph.from_record(parity_kernels.view_of(name).record)
    power = st.integers(0, 8)
    sizes = [2 ** data.draw(power) for _ in graph.tunable_blocks]
    index = data.draw(st.integers(0, len(sizes) - 1))
    larger = [s * 2 if i == index else s for i, s in enumerate(sizes)]
    tiles = make_tiles(graph, [{"block_sizes": sizes}, {"block_sizes": larger}])
    found = live_bytes(make_live_plan(graph), tiles)
    for column in (
        found.total,
        found.without_loads,
        found.accumulators,
        found.loads,
        found.registers,
        found.largest_tile,
    ):
        assert column[0] <= column[1]


def test_register_view_leaves_dot_operands_to_shared_memory() -> None:
    graph = KernelGraph.from_record(parity_kernels.view_of("product").record)
    tiles = make_tiles(graph, [{"block_sizes": [128, 128, 64]}])
    found = live_bytes(make_live_plan(graph), tiles)
    assert found.registers[0] < found.total[0]
    assert found.registers[0] >= 128 * 128 * 4  # the accumulator stays
