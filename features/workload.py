"""Features of a workload that no config changes."""

from __future__ import annotations

import math

import numpy as np

from costmodel.features.blocks import BlockKind
from costmodel.features.graph import KernelGraph
from costmodel.features.loops import BoundKind
from costmodel.features.ops import OpKind
from costmodel.features.ops import item_bytes
from costmodel.features.regions import RegionKind
from costmodel.features.symbols import Sizes
from costmodel.features.symbols import next_power_of_2
from costmodel.features.tiles import make_tiles
from costmodel.features.traffic import Work
from costmodel.features.traffic import estimate_work
from costmodel.hardware import Hardware
from costmodel.types import Config
from costmodel.types import KernelClass

# Side of the tiles at which work is counted once for all configs. Any size would do,
# as long as it is always the same; 64 pads little.
_REFERENCE_BLOCK = 64
_REFERENCE_THREADS = 128.0


def workload_features(
    graph: KernelGraph, kernel_class: KernelClass, hardware: Hardware
) -> dict[str, Sizes]:
    """Features of the kernel, its shapes and the GPU, float64[1] each."""
    work = reference_work(graph)
    values = {
        f"class_{kind.value}": float(kernel_class is kind)
        for kind in KernelClass
        if kind is not KernelClass.UNKNOWN
    }
    values.update(_counts(graph))
    values.update(_totals(graph, work))
    values.update(
        gpu_n_sms=float(hardware.n_sms),
        gpu_dram_gb_per_s=hardware.dram_gb_per_s,
        gpu_l2_mib=hardware.l2_bytes / 2**20,
        gpu_smem_per_cta_kib=hardware.smem_per_cta_bytes / 2**10,
        gpu_peak_bf16_tflops=float(hardware.peak_tflops.get("bf16", 0.0)),
        gpu_has_wgmma=float(hardware.has_wgmma),
    )
    return {name: np.array([value]) for name, value in values.items()}


def reference_work(graph: KernelGraph) -> Work:
    """Work at one fixed tiling, so that it depends on the workload alone."""
    config: Config = {
        "block_sizes": [
            min(_REFERENCE_BLOCK, next_power_of_2(graph.blocks[key].extent))
            for key in graph.tunable_blocks
        ]
    }
    tiles = make_tiles(graph, [config])
    return estimate_work(graph, tiles, np.array([_REFERENCE_THREADS]))


def _counts(graph: KernelGraph) -> dict[str, float]:
    live = [
        a
        for a in graph.accesses
        if graph.regions[a.graph_id].kind is not RegionKind.ROLLED
    ]
    loops = [r for r in graph.regions.values() if r.kind is RegionKind.LOOP]
    depths = [
        sum(graph.regions[g].kind is RegionKind.LOOP for g in graph.enclosing(r))
        for r in graph.regions
    ]
    axes = [axis for region in graph.loops.values() for axis in region]
    kinds = [block.kind for block in graph.blocks]
    return {
        "n_loads": float(sum(a.kind is OpKind.LOAD for a in live)),
        "n_stores": float(sum(a.kind is OpKind.STORE for a in live)),
        "n_atomics": float(sum(a.kind is OpKind.ATOMIC for a in live)),
        "n_gathers": float(sum(a.gathers for a in live)),
        "n_dots": float(len(graph.dots)),
        "n_reductions": float(sum(not r.is_scan for r in graph.reductions)),
        "n_scans": float(sum(r.is_scan for r in graph.reductions)),
        "n_elementwise": float(len(graph.elementwise)),
        "n_special": float(sum(e.special for e in graph.elementwise)),
        "n_converts": float(sum(e.is_convert for e in graph.elementwise)),
        "n_loops": float(len(loops)),
        "loop_depth": float(max(depths, default=0)),
        "n_roots": float(len(graph.root_ids())),
        "n_tunable_blocks": float(kinds.count(BlockKind.TUNABLE)),
        "n_fixed_blocks": float(kinds.count(BlockKind.FIXED)),
        "n_reduction_slots": float(len(graph.reduction_blocks)),
        "n_unknown_loops": float(sum(not a.known for a in axes)),
        "n_bounded_loops": float(
            sum(a.bound in (BoundKind.INSIDE, BoundKind.PREFIX) for a in axes)
        ),
        "has_rescaled_dot": float(any(d.rescaled for d in graph.dots)),
    }


def _totals(graph: KernelGraph, work: Work) -> dict[str, float]:
    flops = float(sum(v[0] for v in work.flops.values()))
    unique = float(work.unique_bytes[0])
    grid = math.prod(max(1, b.extent) for b in graph.blocks if b.in_grid)
    loops = [
        b.extent
        for b in graph.blocks
        if not b.in_grid and b.kind is not BlockKind.REDUCTION
    ]
    reductions = [b.extent for b in graph.blocks if b.kind is BlockKind.REDUCTION]
    items = [a.itemsize for a in graph.accesses] or [0]
    dots = [item_bytes(d.lhs_dtype) for d in graph.dots]
    return {
        "unique_bytes_log2": math.log2(unique),
        "flops_log2": math.log2(1.0 + flops),
        "special_log2": math.log2(1.0 + float(work.special[0])),
        "work_intensity_log2": math.log2((1.0 + flops) / unique),
        "arithmetic_per_byte_log2": math.log2(
            (1.0 + float(work.arithmetic[0])) / unique
        ),
        "grid_extent_log2": math.log2(max(1, grid)),
        "loop_extent_log2": math.log2(max([1, *loops])),
        "reduction_extent_log2": math.log2(max([1, *reductions])),
        "itemsize_min": float(min(items)),
        "itemsize_max": float(max(items)),
        "dot_itemsize": float(max(dots, default=0)),
    }
