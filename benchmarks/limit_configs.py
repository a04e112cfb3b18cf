"""Configs built to meet one hard limit each: which kernels, which GPU, which tiles.

A plan names kernels of the training workloads and the knobs to try; tiles are given as
rows, columns and depth of the kernel's first product, whatever slots decide them. What
a plan does not name stays as in Helion's default.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from costmodel.features.graph import KernelGraph
from costmodel.types import Config

_PRODUCTS = (
    "matmul:gemm_nn",
    "batched:bmm_nt_bias",
    "matmul_epilogue:mm_bias_gelu",
    "grouped:packed_expert_gemm_columns",
    "matmul_low_precision:fp8_gemm_row_col_scale",
    "matmul_reduction:rms_norm_linear",
    "gated_mlp:swiglu_two_weights",
    "convolution:conv1d_channels_last",
    "attention:attention_full",
    "attention:attention_causal_masked",
)
# Kernels of every class, with and without products.
_ANY = (
    *_PRODUCTS[:4],
    "attention:attention_full",
    "norm_forward:rms_norm",
    "softmax:softmax_rows",
    "pointwise:add_broadcast",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to build for one limit.

    Attributes:
        limit: Its name in the table.
        gpu: Target.
        kernels: References of training workloads.
        rows: Tiles along the rows of the first product; empty to leave all tiles.
        columns: Along its columns, as far as a knob decides them.
        depth: Along the contracted dimension, likewise.
        warps: Values of `num_warps`.
        caps: Values of `maxnreg`, 0 for none.
        stages: `num_stages`.
    """

    limit: str
    gpu: str
    kernels: tuple[str, ...]
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = (0,)
    depth: tuple[int, ...] = (32,)
    warps: tuple[int, ...] = (4, 8)
    caps: tuple[int, ...] = (0,)
    stages: int = 2


PLANS = (
    Plan(
        "registers, capped",
        "H200",
        _PRODUCTS,
        rows=(64, 128),
        columns=(64, 128, 256),
        caps=(32, 64, 128),
    ),
    Plan(
        "registers, many warps",
        "H200",
        _PRODUCTS,
        rows=(64, 256),
        columns=(64, 128, 256),
        warps=(16, 32),
    ),
    Plan(
        "tensor memory",
        "B200",
        _PRODUCTS,
        rows=(128, 256),
        columns=(128, 256, 512),
        stages=1,
    ),
    Plan("threads", "H200", _ANY, warps=(16, 32, 64)),
    Plan("threads", "B200", _ANY, warps=(32, 64)),
    Plan("threads", "RTX 4090", _ANY, warps=(32, 64)),
)


def configs_of(plan: Plan, graph: KernelGraph, default: Config) -> Iterator[Config]:
    """A plan's configs for one of its kernels."""
    if not plan.rows:
        for warps in plan.warps:
            yield {**default, "num_warps": warps, "num_stages": plan.stages}
        return
    dot = graph.dots[0]
    slots = [_slot(graph, part) for part in (dot.m, dot.n, dot.k)]
    choices = [
        values if slot is not None else (0,)
        for slot, values in zip(
            slots, (plan.rows, plan.columns, plan.depth), strict=True
        )
    ]
    for *sizes, warps, cap in itertools.product(*choices, plan.warps, plan.caps):
        blocks = list(default["block_sizes"])
        for slot, size in zip(slots, sizes, strict=True):
            if slot is not None:
                blocks[slot] = size
        config: dict[str, Any] = {**default, "block_sizes": blocks}
        config |= {"num_warps": warps, "num_stages": plan.stages}
        if cap:
            # Helion takes a cap for persistent programs only.
            config |= {"maxnreg": cap, "pid_type": "persistent_interleaved"}
        yield config


def _slot(graph: KernelGraph, part: str) -> int | None:
    """Place in `block_sizes` of what decides a dimension, or None."""
    key = graph.by_symbol.get(part)
    return None if key is None else graph.blocks[key].slot
