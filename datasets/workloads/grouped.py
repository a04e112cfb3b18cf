"""Grouped matrix products: rows belong to experts (or segments) of unequal size.

`starts` [e+1] are offsets into rows already sorted by expert.
"""

from __future__ import annotations

import itertools
from typing import Any

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase


@helion.kernel(static_shapes=True, autotune_effort="none")
def packed_expert_gemm(
    xs: torch.Tensor, ws: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    """xs [rows, k] times ws [e, k, n]: one program per expert walks its tiles."""
    total, depth = xs.size()
    experts, _, cols = ws.size()
    y = torch.empty([total, cols], dtype=xs.dtype, device=xs.device)
    for e in hl.grid(experts):
        low = starts[e]
        high = starts[e + 1]
        for tr, tc in hl.tile([low, 0], [high, cols]):
            acc = hl.zeros([tr, tc], dtype=torch.float32)
            for td in hl.tile(depth):
                acc = torch.addmm(acc, xs[tr, td], ws[e, td, tc])
            y[tr, tc] = acc.to(xs.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def packed_expert_gemm_columns(
    xs: torch.Tensor, ws: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    """xs [rows, k] times ws [e, k, n]: programs over experts and columns."""
    total, depth = xs.size()
    experts, _, cols = ws.size()
    y = torch.empty([total, cols], dtype=xs.dtype, device=xs.device)
    for te, tc in hl.tile([experts, cols], block_size=[1, None]):
        e = te.begin
        low = starts[e]
        high = starts[e + 1]
        for tr in hl.tile(low, high):
            acc = hl.zeros([tr, tc], dtype=torch.float32)
            for td in hl.tile(depth):
                acc = hl.dot(xs[tr, td], ws[e, td, tc], acc=acc)
            y[tr, tc] = acc.to(xs.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def padded_block_gemm(
    xs: torch.Tensor, ws: torch.Tensor, block_expert: torch.Tensor
) -> torch.Tensor:
    """Rows padded to blocks of fixed size, one expert each; ws is [e, n, k].

    xs is [blocks, size, k] and `block_expert` [blocks] names the expert of each.
    """
    blocks, size, depth = xs.size()
    size = hl.specialize(size)
    _, cols, _ = ws.size()
    y = torch.empty([blocks, size, cols], dtype=xs.dtype, device=xs.device)
    # A loaded scalar cannot index beside two tiles, so expert and column are one axis.
    flat = ws.view(-1, depth)
    for tb, tc in hl.tile([blocks, cols], block_size=[1, None]):
        b = tb.begin
        weight_rows = block_expert[b] * cols + tc.index
        inside = (tc.index < cols)[:, None]
        acc = hl.zeros([size, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            weight = hl.load(flat, [weight_rows, td], extra_mask=inside)
            acc = hl.dot(xs[b, :, td], weight.T, acc=acc)
        y[b, :, tc] = acc.to(xs.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def gathered_block_gemm(
    x: torch.Tensor, ws: torch.Tensor, row_of: torch.Tensor, block_expert: torch.Tensor
) -> torch.Tensor:
    """As the padded form, rows gathered from x [t, k] by `row_of` [blocks, size]."""
    depth = x.size(1)
    blocks, size = row_of.size()
    size = hl.specialize(size)
    _, cols, _ = ws.size()
    y = torch.empty([blocks, size, cols], dtype=x.dtype, device=x.device)
    flat = ws.view(-1, depth)
    for tb, tc in hl.tile([blocks, cols], block_size=[1, None]):
        b = tb.begin
        weight_rows = block_expert[b] * cols + tc.index
        inside = (tc.index < cols)[:, None]
        rows = row_of[b, :]
        acc = hl.zeros([size, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            weight = hl.load(flat, [weight_rows, td], extra_mask=inside)
            acc = hl.dot(hl.load(x, [rows, td]), weight.T, acc=acc)
        y[b, :, tc] = acc.to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def expert_weight_gradient(
    xs: torch.Tensor, dys: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    """Per expert, xs^T dys over its rows: [rows, k], [rows, n] to fp32 [e, k, n]."""
    _, depth = xs.size()
    _, cols = dys.size()
    experts = starts.size(0) - 1
    dw = torch.empty([experts, depth, cols], dtype=torch.float32, device=xs.device)
    for te, td, tc in hl.tile([experts, depth, cols], block_size=[1, None, None]):
        e = te.begin
        low = starts[e]
        high = starts[e + 1]
        acc = hl.zeros([td, tc], dtype=torch.float32)
        for tr in hl.tile(low, high):
            acc = hl.dot(xs[tr, td].T, dys[tr, tc], acc=acc)
        dw[e, td, tc] = acc
    return dw


@helion.kernel(static_shapes=True, autotune_effort="none")
def packed_expert_gated(
    xs: torch.Tensor, gates: torch.Tensor, ups: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    """silu(xs @ gate_e) * (xs @ up_e) for packed rows; weights [e, k, n]."""
    total, depth = xs.size()
    experts, _, cols = gates.size()
    y = torch.empty([total, cols], dtype=xs.dtype, device=xs.device)
    for te, tc in hl.tile([experts, cols], block_size=[1, None]):
        e = te.begin
        low = starts[e]
        high = starts[e + 1]
        for tr in hl.tile(low, high):
            gate = hl.zeros([tr, tc], dtype=torch.float32)
            up = hl.zeros([tr, tc], dtype=torch.float32)
            for td in hl.tile(depth):
                rows = xs[tr, td]
                gate = hl.dot(rows, gates[e, td, tc], acc=gate)
                up = hl.dot(rows, ups[e, td, tc], acc=up)
            y[tr, tc] = (gate * torch.sigmoid(gate) * up).to(xs.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def jagged_scores(
    q: torch.Tensor, k: torch.Tensor, starts: torch.Tensor, longest: hl.constexpr
) -> torch.Tensor:
    """Dense q times jagged keys: [b, m, d] to [b, m, longest].

    Keys of segment i are rows starts[i] to starts[i+1] of k [rows, d]; columns past a
    segment's end are zero.
    """
    batch, rows, depth = q.size()
    depth = hl.specialize(depth)
    s = torch.empty([batch, rows, longest], dtype=torch.float32, device=q.device)
    for tb, tr, tc in hl.tile([batch, rows, longest], block_size=[1, None, None]):
        b = tb.begin
        low = starts[b]
        count = starts[b + 1] - low
        inside = tc.index < count
        keys = hl.load(k, [low + tc.index, slice(None)], extra_mask=inside[:, None])
        product = hl.dot(q[b, tr, :], keys.T, out_dtype=torch.float32)
        s[b, tr, tc] = torch.where(inside[None, :], product, 0.0)
    return s


def _ref_packed(
    xs: torch.Tensor, ws: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    at = starts.tolist()
    parts = [
        xs[low:high].float() @ ws[e].float()
        for e, (low, high) in enumerate(itertools.pairwise(at))
    ]
    return torch.cat(parts).to(xs.dtype)


def _ref_padded(
    xs: torch.Tensor, ws: torch.Tensor, block_expert: torch.Tensor
) -> torch.Tensor:
    chosen = ws[block_expert.long()].float()
    return (xs.float() @ chosen.transpose(1, 2)).to(xs.dtype)


def _ref_gathered(
    x: torch.Tensor, ws: torch.Tensor, row_of: torch.Tensor, block_expert: torch.Tensor
) -> torch.Tensor:
    return _ref_padded(x[row_of.long()], ws, block_expert)


def _ref_weight_gradient(
    xs: torch.Tensor, dys: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    at = starts.tolist()
    parts = [
        xs[low:high].float().T @ dys[low:high].float()
        for low, high in itertools.pairwise(at)
    ]
    return torch.stack(parts)


def _ref_gated(
    xs: torch.Tensor, gates: torch.Tensor, ups: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    gate = _ref_packed(xs.float(), gates, starts)
    up = _ref_packed(xs.float(), ups, starts)
    return (torch.nn.functional.silu(gate) * up).to(xs.dtype)


def _ref_jagged_scores(
    q: torch.Tensor, k: torch.Tensor, starts: torch.Tensor, longest: int
) -> torch.Tensor:
    s = torch.zeros([q.size(0), q.size(1), longest], device=q.device)
    for b, (low, high) in enumerate(itertools.pairwise(starts.tolist())):
        keys = k[low : min(high, low + longest)].float()
        s[b, :, : keys.size(0)] = q[b].float() @ keys.T
    return s


def _case(
    kernel: object,
    reference: Any,
    variant: str,
    tiny: tuple[str, ...],
    *shapes: tuple[str, ...],
) -> KernelCase:
    return KernelCase(kernel, reference, "matmul_grouped", variant, tiny, shapes)


def _packed(dtype: str, e: int, rows: int, k: int, n: int) -> tuple[str, ...]:
    starts = f"i32[{e + 1}]@offsets({rows})"
    return (f"{dtype}[{rows},{k}]", f"{dtype}[{e},{k},{n}]", starts)


def _padded(
    dtype: str, e: int, blocks: int, size: int, k: int, n: int
) -> tuple[str, ...]:
    experts = f"i32[{blocks}]@index({e})"
    return (f"{dtype}[{blocks},{size},{k}]", f"{dtype}[{e},{n},{k}]", experts)


def _gathered(
    dtype: str, t: int, e: int, blocks: int, size: int, k: int, n: int
) -> tuple[str, ...]:
    rows = f"i32[{blocks},{size}]@index({t})"
    experts = f"i32[{blocks}]@index({e})"
    return (f"{dtype}[{t},{k}]", f"{dtype}[{e},{n},{k}]", rows, experts)


def _gradient(dtype: str, e: int, rows: int, k: int, n: int) -> tuple[str, ...]:
    starts = f"i32[{e + 1}]@offsets({rows})"
    return (f"{dtype}[{rows},{k}]", f"{dtype}[{rows},{n}]", starts)


def _gated(dtype: str, e: int, rows: int, k: int, n: int) -> tuple[str, ...]:
    weight = f"{dtype}[{e},{k},{n}]"
    starts = f"i32[{e + 1}]@offsets({rows})"
    return (f"{dtype}[{rows},{k}]", weight, weight, starts)


def _jagged(dtype: str, b: int, m: int, d: int, rows: int, n: int) -> tuple[str, ...]:
    starts = f"i32[{b + 1}]@offsets({rows})"
    return (f"{dtype}[{b},{m},{d}]", f"{dtype}[{rows},{d}]", starts, str(n))


CASES = (
    _case(
        packed_expert_gemm,
        _ref_packed,
        "program_per_expert",
        _packed("f16", 4, 70, 48, 40),
        _packed("bf16", 64, 2048, 1024, 512),
        _packed("bf16", 128, 4096, 768, 256),
        _packed("f16", 32, 1000, 500, 200),
        _packed("bf16", 128, 512, 2048, 256),
        _packed("bf16", 256, 1024, 1024, 256),
        _packed("bf16", 4, 640, 256, 128),
        _packed("f32", 64, 1024, 256, 256),
        _packed("bf16", 160, 8192, 512, 512),
    ),
    _case(
        packed_expert_gemm_columns,
        _ref_packed,
        "program_per_expert_column",
        _packed("f16", 4, 70, 48, 40),
        _packed("bf16", 8, 2048, 2048, 2048),
        _packed("bf16", 64, 512, 2048, 768),
        _packed("bf16", 128, 8192, 2048, 768),
        _packed("f16", 32, 2048, 1024, 2048),
        _packed("bf16", 8, 64, 4096, 14336),
        _packed("bf16", 16, 16384, 1024, 1024),
        _packed("f32", 8, 1024, 512, 512),
        _packed("bf16", 60, 3000, 1408, 2048),
    ),
    _case(
        padded_block_gemm,
        _ref_padded,
        "padded_blocks",
        _padded("f16", 4, 5, 16, 48, 40),
        _padded("bf16", 64, 96, 64, 2048, 768),
        _padded("bf16", 8, 64, 128, 4096, 4096),
        _padded("bf16", 128, 128, 16, 2048, 768),
        _padded("f16", 32, 48, 32, 2880, 2880),
        _padded("bf16", 8, 8, 16, 4096, 14336),
        _padded("bf16", 128, 256, 64, 768, 2048),
        _padded("f32", 16, 32, 64, 512, 1024),
        _padded("bf16", 256, 300, 16, 1024, 512),
    ),
    _case(
        gathered_block_gemm,
        _ref_gathered,
        "gathered_blocks",
        _gathered("f16", 30, 4, 5, 16, 48, 40),
        _gathered("bf16", 1024, 64, 128, 64, 2048, 768),
        _gathered("bf16", 64, 128, 128, 16, 2048, 768),
        _gathered("f16", 4096, 8, 72, 128, 1024, 4096),
        _gathered("bf16", 8, 32, 32, 16, 2880, 2880),
        _gathered("bf16", 2048, 128, 256, 64, 1024, 512),
        _gathered("bf16", 256, 16, 32, 32, 4096, 1536),
        _gathered("f32", 512, 8, 24, 64, 512, 512),
        _gathered("bf16", 1000, 60, 100, 64, 1408, 1408),
    ),
    _case(
        expert_weight_gradient,
        _ref_weight_gradient,
        "weight_gradient",
        _gradient("f16", 4, 70, 48, 40),
        _gradient("bf16", 8, 8192, 1024, 2048),
        _gradient("bf16", 64, 16384, 1024, 768),
        _gradient("f16", 16, 4096, 512, 512),
        _gradient("bf16", 128, 8192, 512, 256),
        _gradient("bf16", 4, 4096, 2048, 2048),
        _gradient("f32", 8, 2048, 256, 512),
        _gradient("bf16", 32, 2048, 1024, 1024),
        _gradient("bf16", 30, 10000, 500, 200),
    ),
    _case(
        packed_expert_gated,
        _ref_gated,
        "gated_columns",
        _gated("f16", 4, 70, 48, 40),
        _gated("bf16", 64, 1024, 2048, 768),
        _gated("bf16", 8, 2048, 2048, 2048),
        _gated("bf16", 128, 256, 2048, 768),
        _gated("f16", 16, 4096, 1024, 1024),
        _gated("bf16", 8, 16, 4096, 7168),
        _gated("bf16", 32, 512, 2880, 1440),
        _gated("f32", 8, 512, 512, 512),
        _gated("bf16", 60, 2000, 2048, 1408),
    ),
    _case(
        jagged_scores,
        _ref_jagged_scores,
        "jagged_keys",
        _jagged("f16", 4, 17, 32, 80, 48),
        _jagged("bf16", 256, 64, 64, 65536, 512),
        _jagged("bf16", 64, 128, 128, 65536, 2048),
        _jagged("f16", 1024, 16, 64, 131072, 256),
        _jagged("bf16", 32, 256, 128, 32768, 2048),
        _jagged("bf16", 512, 32, 128, 131072, 512),
        _jagged("f32", 64, 64, 64, 16384, 512),
        _jagged("bf16", 128, 100, 96, 40000, 700),
        _jagged("bf16", 16, 512, 64, 32768, 4096),
    ),
)
