"""Shapes of dots as a config tiles them: what tensor cores and registers see."""

from __future__ import annotations

import numpy as np

from costmodel.features.compute import Dot
from costmodel.features.graph import KernelGraph
from costmodel.features.ops import item_bytes
from costmodel.features.symbols import Sizes
from costmodel.features.tiles import Tiles

# A warp-group MMA takes 64 rows and four warps (PTX ISA, wgmma.mma_async).
WGMMA_MIN_ROWS = 64.0
WGMMA_MIN_THREADS = 128.0


def dot_features(graph: KernelGraph, tiles: Tiles, threads: Sizes) -> dict[str, Sizes]:
    """Features of the heaviest dot of each config, and sums over all dots."""
    zero = np.zeros(tiles.n)
    names = (
        "dot_m_log2",
        "dot_n_log2",
        "dot_k_log2",
        "dot_k_bytes_log2",
        "dot_aspect_log2",
        "dot_batch_log2",
        "accumulators_per_thread_log2",
        "last_dot_n_log2",
        "wgmma_share",
        "rows_per_warp_log2",
        "register_fed_bytes_log2",
        "converted_bytes_log2",
    )
    if not graph.dots:
        return dict.fromkeys(names, zero)
    heaviest = np.full(tiles.n, -1.0)
    best = dict.fromkeys(("m", "n", "k", "item", "batch"), np.ones(tiles.n))
    total, large = zero, zero
    register_fed, converted = zero, zero
    for dot in graph.dots:
        m, n, k, batch = (
            np.broadcast_to(value, (tiles.n,)) for value in _tile(tiles, dot)
        )
        item = np.full(tiles.n, float(item_bytes(dot.lhs_dtype)))
        work = m * n * k * batch
        heavier = work > heaviest
        heaviest = np.where(heavier, work, heaviest)
        for name, value in zip(best, (m, n, k, item, batch), strict=True):
            best[name] = np.where(heavier, value, best[name])
        total = total + work
        large = large + work * (m >= WGMMA_MIN_ROWS) * (threads >= WGMMA_MIN_THREADS)
        if not dot.lhs_loaded:
            register_fed = np.maximum(register_fed, batch * m * k * item)
        if not dot.rhs_loaded:
            made = batch * k * n * float(item_bytes(dot.rhs_dtype))
            converted = np.maximum(converted, made)
    last_n = np.broadcast_to(tiles.dim(graph.dots[-1].n), (tiles.n,))
    warps = np.maximum(threads / 32.0, 1.0)
    return {
        "dot_m_log2": np.log2(best["m"]),
        "dot_n_log2": np.log2(best["n"]),
        "dot_k_log2": np.log2(best["k"]),
        "dot_k_bytes_log2": np.log2(best["k"] * best["item"]),
        "dot_aspect_log2": np.log2(best["m"] / best["n"]),
        "dot_batch_log2": np.log2(best["batch"]),
        "accumulators_per_thread_log2": np.log2(
            best["m"] * best["n"] * best["batch"] / threads
        ),
        "last_dot_n_log2": np.log2(last_n),
        "wgmma_share": large / total,
        "rows_per_warp_log2": np.log2(best["m"] / warps),
        "register_fed_bytes_log2": np.log2(1.0 + register_fed),
        "converted_bytes_log2": np.log2(1.0 + converted),
    }


def _tile(tiles: Tiles, dot: Dot) -> tuple[Sizes, Sizes, Sizes, Sizes]:
    return tiles.dim(dot.m), tiles.dim(dot.n), tiles.dim(dot.k), tiles.numel(dot.batch)
