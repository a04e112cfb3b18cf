"""Selective state-space models by chunks: the parts that are matrix products.

Tensors are split into chunks of c tokens: x [batch, chunks, c, heads, p], steps dt and
summed log decays da [batch, heads, chunks, c], b and cc (the matrix C) [batch, chunks,
c, n], shared by all heads. Decays are made from raw numbers inside, so that any input
is valid: a token's decay never grows.
"""

from __future__ import annotations

from typing import Any

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase


@helion.kernel(static_shapes=True, autotune_effort="none")
def ssm_chunk_states(
    x: torch.Tensor, b: torch.Tensor, dt: torch.Tensor, da: torch.Tensor
) -> torch.Tensor:
    """State each chunk adds: sum over t of exp(da_last - da_t) dt_t x_t b_t^T.

    Returns [batch, chunks, heads, p, n] in fp32.
    """
    batch, chunks, chunk, heads, p = x.size()
    n = b.size(3)
    chunk = hl.specialize(chunk)
    states = torch.empty(
        [batch, chunks, heads, p, n], dtype=torch.float32, device=x.device
    )
    for ti, tj, th, tp, tn in hl.tile(
        [batch, chunks, heads, p, n], block_size=[1, 1, 1, None, None]
    ):
        i = ti.begin
        j = tj.begin
        h = th.begin
        last = da[i, h, j, chunk - 1].to(torch.float32)
        acc = hl.zeros([tp, tn], dtype=torch.float32)
        for tc in hl.tile(chunk):
            fade = torch.exp(-torch.abs(last - da[i, h, j, tc].to(torch.float32)))
            step = torch.sigmoid(dt[i, h, j, tc].to(torch.float32))
            scaled = x[i, j, tc, h, tp].to(torch.float32) * (fade * step)[:, None]
            acc = hl.dot(scaled.to(x.dtype).T, b[i, j, tc, tn], acc=acc)
        states[i, j, h, tp, tn] = acc
    return states


@helion.kernel(static_shapes=True, autotune_effort="none")
def ssm_chunk_products(cc: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """C b^T inside every chunk: two [batch, chunks, c, n] to [batch, chunks, c, c]."""
    batch, chunks, chunk, n = cc.size()
    s = torch.empty([batch, chunks, chunk, chunk], dtype=cc.dtype, device=cc.device)
    for ti, tj, tr, tc in hl.tile(
        [batch, chunks, chunk, chunk], block_size=[1, 1, None, None]
    ):
        i = ti.begin
        j = tj.begin
        acc = hl.zeros([tr, tc], dtype=torch.float32)
        for tn in hl.tile(n):
            acc = hl.dot(cc[i, j, tr, tn], b[i, j, tc, tn].T, acc=acc)
        s[i, j, tr, tc] = acc.to(cc.dtype)
    return s


@helion.kernel(static_shapes=True, autotune_effort="none")
def ssm_chunk_scan(
    x: torch.Tensor,
    s: torch.Tensor,
    cc: torch.Tensor,
    dt: torch.Tensor,
    da: torch.Tensor,
    states: torch.Tensor,
    skip: torch.Tensor,
) -> torch.Tensor:
    """Chunk outputs from the stored products s, the states before, and a skip D x.

    out_t = exp(-|da_t|) C_t state^T + sum over j <= t of s_tj decay_tj dt_j x_j + D x_t
    """
    batch, chunks, chunk, heads, p = x.size()
    out = torch.empty_like(x)
    for ti, tj, th, tr, tp in hl.tile(
        [batch, chunks, heads, chunk, p], block_size=[1, 1, 1, None, None]
    ):
        i = ti.begin
        j = tj.begin
        h = th.begin
        row_da = da[i, h, j, tr].to(torch.float32)
        past = states[i, j, h, tp, :].to(x.dtype)
        acc = hl.dot(cc[i, j, tr, :], past.T, out_dtype=torch.float32)
        acc = acc * torch.exp(-torch.abs(row_da))[:, None]
        for tc in hl.tile(0, tr.end):
            col_da = da[i, h, j, tc].to(torch.float32)
            step = torch.sigmoid(dt[i, h, j, tc].to(torch.float32))
            weight = torch.exp(-torch.abs(row_da[:, None] - col_da[None, :]))
            weight = weight * step[None, :] * s[i, j, tr, tc].to(torch.float32)
            seen = tr.index[:, None] >= tc.index[None, :]
            weight = torch.where(seen, weight, 0.0).to(x.dtype)
            acc = hl.dot(weight, x[i, j, tc, h, tp], acc=acc)
        direct = x[i, j, tr, h, tp].to(torch.float32) * skip[h].to(torch.float32)
        out[i, j, tr, h, tp] = (acc + direct).to(x.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def ssm_chunk_scan_fused(
    x: torch.Tensor, cc: torch.Tensor, b: torch.Tensor, da: torch.Tensor
) -> torch.Tensor:
    """In-chunk outputs with C b^T formed on the fly; no state from before."""
    batch, chunks, chunk, heads, p = x.size()
    p = hl.specialize(p)
    out = torch.empty_like(x)
    for ti, tj, th, tr in hl.tile(
        [batch, chunks, heads, chunk], block_size=[1, 1, 1, None]
    ):
        i = ti.begin
        j = tj.begin
        h = th.begin
        rows = cc[i, j, tr, :]
        row_da = da[i, h, j, tr].to(torch.float32)
        acc = hl.zeros([tr, p], dtype=torch.float32)
        for tc in hl.tile(chunk):
            s = hl.dot(rows, b[i, j, tc, :].T, out_dtype=torch.float32)
            col_da = da[i, h, j, tc].to(torch.float32)
            s = s * torch.exp(-torch.abs(row_da[:, None] - col_da[None, :]))
            s = torch.where(tr.index[:, None] >= tc.index[None, :], s, 0.0)
            acc = hl.dot(s.to(x.dtype), x[i, j, tc, h, :], acc=acc)
        out[i, j, tr, h, :] = acc.to(x.dtype)
    return out


def _ref_states(
    x: torch.Tensor, b: torch.Tensor, dt: torch.Tensor, da: torch.Tensor
) -> torch.Tensor:
    fade = torch.exp(-(da.float()[..., -1:] - da.float()).abs())
    weight = fade * torch.sigmoid(dt.float())
    return torch.einsum("ijchp,ijcn,ihjc->ijhpn", x.float(), b.float(), weight)


def _ref_products(cc: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (cc.float() @ b.float().transpose(2, 3)).to(cc.dtype)


def _decay(da: torch.Tensor) -> torch.Tensor:
    gap = (da.float()[..., :, None] - da.float()[..., None, :]).abs()
    return torch.tril(torch.exp(-gap))


def _ref_scan(
    x: torch.Tensor,
    s: torch.Tensor,
    cc: torch.Tensor,
    dt: torch.Tensor,
    da: torch.Tensor,
    states: torch.Tensor,
    skip: torch.Tensor,
) -> torch.Tensor:
    weight = _decay(da) * torch.sigmoid(dt.float())[..., None, :]
    inside = torch.einsum("ihjrc,ijrc,ijchp->ijrhp", weight, s.float(), x.float())
    past = torch.einsum("ijrn,ijhpn->ijrhp", cc.float(), states.float())
    fade = torch.exp(-da.float().abs()).permute(0, 2, 3, 1)[..., None]
    direct = x.float() * skip.float()[:, None]
    return (inside + past * fade + direct).to(x.dtype)


def _ref_fused(
    x: torch.Tensor, cc: torch.Tensor, b: torch.Tensor, da: torch.Tensor
) -> torch.Tensor:
    s = cc.float() @ b.float().transpose(2, 3)
    out = torch.einsum("ihjrc,ijrc,ijchp->ijrhp", _decay(da), s, x.float())
    return out.to(x.dtype)


def _case(
    kernel: object,
    reference: Any,
    variant: str,
    tiny: tuple[str, ...],
    *shapes: tuple[str, ...],
) -> KernelCase:
    # Sums of a chunk's products reach a few hundred, rounded to 11 bits in fp16.
    return KernelCase(kernel, reference, "state_space", variant, tiny, shapes, atol=0.2)


def _states(
    dtype: str, i: int, j: int, c: int, h: int, p: int, n: int
) -> tuple[str, ...]:
    decay = f"f32[{i},{h},{j},{c}]"
    return (f"{dtype}[{i},{j},{c},{h},{p}]", f"{dtype}[{i},{j},{c},{n}]", decay, decay)


def _products(dtype: str, i: int, j: int, c: int, n: int) -> tuple[str, ...]:
    matrix = f"{dtype}[{i},{j},{c},{n}]"
    return (matrix, matrix)


def _scan(
    dtype: str, i: int, j: int, c: int, h: int, p: int, n: int
) -> tuple[str, ...]:
    decay = f"f32[{i},{h},{j},{c}]"
    return (
        f"{dtype}[{i},{j},{c},{h},{p}]",
        f"{dtype}[{i},{j},{c},{c}]",
        f"{dtype}[{i},{j},{c},{n}]",
        decay,
        decay,
        f"f32[{i},{j},{h},{p},{n}]",
        f"f32[{h}]",
    )


def _fused(
    dtype: str, i: int, j: int, c: int, h: int, p: int, n: int
) -> tuple[str, ...]:
    matrix = f"{dtype}[{i},{j},{c},{n}]"
    return (f"{dtype}[{i},{j},{c},{h},{p}]", matrix, matrix, f"f32[{i},{h},{j},{c}]")


CASES = (
    _case(
        ssm_chunk_states,
        _ref_states,
        "chunk_states",
        _states("f16", 1, 2, 48, 2, 32, 24),
        _states("bf16", 8, 16, 256, 80, 64, 128),
        _states("bf16", 1, 16, 128, 64, 64, 128),
        _states("f16", 4, 8, 256, 24, 64, 64),
        _states("bf16", 2, 32, 256, 48, 64, 128),
        _states("bf16", 16, 4, 256, 32, 128, 128),
        _states("bf16", 1, 64, 256, 80, 64, 128),
        _states("f32", 2, 8, 128, 16, 64, 64),
        _states("bf16", 4, 32, 64, 64, 64, 256),
    ),
    _case(
        ssm_chunk_products,
        _ref_products,
        "chunk_products",
        _products("f16", 1, 2, 48, 24),
        _products("bf16", 8, 16, 256, 128),
        _products("bf16", 1, 64, 256, 128),
        _products("f16", 32, 32, 64, 64),
        _products("bf16", 64, 16, 128, 128),
        _products("bf16", 16, 64, 256, 64),
        _products("bf16", 4, 8, 256, 256),
        _products("f32", 8, 16, 128, 64),
        _products("bf16", 2, 16, 512, 128),
    ),
    _case(
        ssm_chunk_scan,
        _ref_scan,
        "chunk_scan",
        _scan("f16", 1, 2, 48, 2, 32, 16),
        _scan("bf16", 8, 16, 256, 80, 64, 128),
        _scan("bf16", 1, 16, 128, 64, 64, 128),
        _scan("f16", 4, 8, 256, 24, 64, 64),
        _scan("bf16", 2, 32, 256, 48, 64, 128),
        _scan("bf16", 16, 4, 256, 32, 128, 128),
        _scan("bf16", 4, 32, 64, 64, 64, 128),
        _scan("f32", 2, 8, 128, 16, 64, 64),
        _scan("bf16", 1, 8, 256, 128, 64, 128),
    ),
    _case(
        ssm_chunk_scan_fused,
        _ref_fused,
        "chunk_scan_fused",
        _fused("f16", 1, 2, 48, 2, 32, 16),
        _fused("bf16", 4, 16, 256, 32, 64, 128),
        _fused("bf16", 8, 32, 64, 48, 64, 128),
        _fused("f16", 1, 32, 128, 64, 64, 64),
        _fused("bf16", 2, 16, 256, 80, 64, 128),
        _fused("bf16", 16, 8, 128, 24, 128, 64),
        _fused("bf16", 1, 64, 256, 24, 64, 128),
        _fused("f32", 2, 8, 128, 16, 64, 64),
        _fused("bf16", 8, 8, 256, 16, 64, 256),
    ),
)
