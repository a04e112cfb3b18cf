"""Batched matrix products: a leading axis, shared weights, heads, Gram matrices."""

from __future__ import annotations

from typing import Any

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase


@helion.kernel(static_shapes=True, autotune_effort="none")
def bmm_nn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """[b, m, k] @ [b, k, n], the batch axis tiled like the others."""
    batch, rows, depth = a.size()
    cols = b.size(2)
    c = torch.empty([batch, rows, cols], dtype=a.dtype, device=a.device)
    for tb, tr, tc in hl.tile([batch, rows, cols]):
        total = hl.zeros([tb, tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = torch.baddbmm(total, a[tb, tr, td], b[tb, td, tc])
        c[tb, tr, tc] = total.to(a.dtype)
    return c


@helion.kernel(static_shapes=True, autotune_effort="none")
def bmm_one_batch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """[b, m, k] @ [b, k, n] with one batch entry per program and 2-d dots."""
    batch, rows, depth = a.size()
    cols = b.size(2)
    c = torch.empty([batch, rows, cols], dtype=a.dtype, device=a.device)
    for tb, tr, tc in hl.tile([batch, rows, cols], block_size=[1, None, None]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = torch.addmm(total, a[tb.begin, tr, td], b[tb.begin, td, tc])
        c[tb.begin, tr, tc] = total.to(a.dtype)
    return c


@helion.kernel(static_shapes=True, autotune_effort="none")
def bmm_nt_bias(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """[b, m, k] @ [b, n, k]^T + [b, n]: one linear layer per batch entry."""
    batch, rows, depth = x.size()
    cols = w.size(1)
    y = torch.empty([batch, rows, cols], dtype=x.dtype, device=x.device)
    for tb, tr, tc in hl.tile([batch, rows, cols], block_size=[1, None, None]):
        i = tb.begin
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = hl.dot(x[i, tr, td], w[i, tc, td].T, acc=total)
        total = total + bias[i, tc].to(torch.float32)[None, :]
        y[i, tr, tc] = total.to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def bmm_shared_weight(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """[b, m, k] @ [k, n]: every batch entry meets the same weight."""
    batch, rows, depth = x.size()
    cols = w.size(1)
    y = torch.empty([batch, rows, cols], dtype=x.dtype, device=x.device)
    for tb, tr, tc in hl.tile([batch, rows, cols], block_size=[1, None, None]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = hl.dot(x[tb.begin, tr, td], w[td, tc], acc=total)
        y[tb.begin, tr, tc] = total.to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def per_head_projection(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """x [t, h, d] times w [h, d, c] per head: absorbing a latent up-projection."""
    tokens, heads, depth = x.size()
    cols = w.size(2)
    y = torch.empty([tokens, heads, cols], dtype=x.dtype, device=x.device)
    for th, tt, tc in hl.tile([heads, tokens, cols], block_size=[1, None, None]):
        head = th.begin
        total = hl.zeros([tt, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = hl.dot(x[tt, head, td], w[head, td, tc], acc=total)
        y[tt, head, tc] = total.to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def per_head_projection_full(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """x [t, h, d] times w [h, d, c] per head, the short d in one dot."""
    tokens, heads, depth = x.size()
    depth = hl.specialize(depth)
    cols = w.size(2)
    y = torch.empty([tokens, heads, cols], dtype=x.dtype, device=x.device)
    for th, tt, tc in hl.tile([heads, tokens, cols], block_size=[1, None, None]):
        head = th.begin
        rows = x[tt, head, :]
        product = hl.dot(rows, w[head, :, tc], out_dtype=torch.float32)
        y[tt, head, tc] = product.to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def batched_channel_gram(x: torch.Tensor) -> torch.Tensor:
    """x [b, t, c] to [b, c, c], the mean over t of outer products, in fp32."""
    batch, tokens, chans = x.size()
    g = torch.empty([batch, chans, chans], dtype=torch.float32, device=x.device)
    for tb, tr, tc in hl.tile([batch, chans, chans], block_size=[1, None, None]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for tt in hl.tile(tokens):
            total = hl.dot(x[tb.begin, tt, tr].T, x[tb.begin, tt, tc], acc=total)
        g[tb.begin, tr, tc] = total / tokens
    return g


@helion.kernel(static_shapes=True, autotune_effort="none")
def bmm_scale_mask(
    q: torch.Tensor, k: torch.Tensor, keep: torch.Tensor, scale: float
) -> torch.Tensor:
    """scale * q k^T where keep [m, n] is set, -1e4 elsewhere: scores kept in memory."""
    batch, rows, depth = q.size()
    cols = k.size(1)
    depth = hl.specialize(depth)
    s = torch.empty([batch, rows, cols], dtype=q.dtype, device=q.device)
    for tb, tr, tc in hl.tile([batch, rows, cols]):
        product = torch.bmm(q[tb, tr, :], k[tb, tc, :].transpose(1, 2))
        scaled = product.to(torch.float32) * scale
        scaled = torch.where(keep[tr, tc][None, :, :] != 0, scaled, -1.0e4)
        s[tb, tr, tc] = scaled.to(q.dtype)
    return s


def _nn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.float() @ b.float()).to(a.dtype)


def _nt_bias(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    total = x.float() @ w.float().transpose(1, 2) + bias.float()[:, None, :]
    return total.to(x.dtype)


def _per_head(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.einsum("thd,hdc->thc", x.float(), w.float()).to(x.dtype)


def _channel_gram(x: torch.Tensor) -> torch.Tensor:
    return x.float().transpose(1, 2) @ x.float() / x.size(1)


def _scale_mask(
    q: torch.Tensor, k: torch.Tensor, keep: torch.Tensor, scale: float
) -> torch.Tensor:
    scaled = q.float() @ k.float().transpose(1, 2) * scale
    return torch.where(keep != 0, scaled, -1.0e4).to(q.dtype)


def _case(
    kernel: object,
    reference: Any,
    variant: str,
    tiny: tuple[str, ...],
    *shapes: tuple[str, ...],
) -> KernelCase:
    return KernelCase(kernel, reference, "matmul_batched", variant, tiny, shapes)


def _bmm(dtype: str, b: int, m: int, k: int, n: int) -> tuple[str, ...]:
    return (f"{dtype}[{b},{m},{k}]", f"{dtype}[{b},{k},{n}]")


def _bmm_bias(dtype: str, b: int, m: int, k: int, n: int) -> tuple[str, ...]:
    return (f"{dtype}[{b},{m},{k}]", f"{dtype}[{b},{n},{k}]", f"{dtype}[{b},{n}]")


def _shared(dtype: str, b: int, m: int, k: int, n: int) -> tuple[str, ...]:
    return (f"{dtype}[{b},{m},{k}]", f"{dtype}[{k},{n}]")


def _heads(dtype: str, t: int, h: int, d: int, c: int) -> tuple[str, ...]:
    return (f"{dtype}[{t},{h},{d}]", f"{dtype}[{h},{d},{c}]")


def _scores(dtype: str, b: int, m: int, d: int, n: int) -> tuple[str, ...]:
    keep = f"i32[{m},{n}]@index(2)"
    return (f"{dtype}[{b},{m},{d}]", f"{dtype}[{b},{n},{d}]", keep, str(d**-0.5))


CASES = (
    _case(
        bmm_nn,
        _nn,
        "batch_tiled",
        _bmm("f16", 3, 17, 48, 24),
        _bmm("bf16", 16, 512, 768, 1024),
        _bmm("bf16", 256, 128, 64, 128),
        _bmm("f16", 64, 1024, 64, 1024),
        _bmm("bf16", 8, 2048, 128, 2048),
        _bmm("bf16", 4096, 16, 128, 64),
        _bmm("f32", 32, 256, 256, 256),
        _bmm("bf16", 128, 1, 2048, 128),
        _bmm("bf16", 12, 197, 197, 64),
    ),
    _case(
        bmm_one_batch,
        _nn,
        "batch_per_program",
        _bmm("f16", 3, 17, 48, 24),
        _bmm("bf16", 32, 1024, 1024, 128),
        _bmm("bf16", 8, 64, 4096, 4096),
        _bmm("f16", 16, 512, 768, 1024),
        _bmm("bf16", 128, 256, 512, 256),
        _bmm("bf16", 1024, 64, 64, 64),
        _bmm("f32", 16, 512, 512, 512),
        _bmm("bf16", 2, 4096, 4096, 1024),
        _bmm("bf16", 60, 77, 640, 77),
    ),
    _case(
        bmm_nt_bias,
        _nt_bias,
        "nt_bias",
        _bmm_bias("f16", 3, 17, 48, 24),
        _bmm_bias("bf16", 8, 256, 2048, 2048),
        _bmm_bias("bf16", 64, 16, 2048, 768),
        _bmm_bias("f16", 4, 1024, 4096, 1024),
        _bmm_bias("bf16", 128, 8, 2880, 2880),
        _bmm_bias("bf16", 16, 2048, 512, 512),
        _bmm_bias("f32", 8, 512, 512, 512),
        _bmm_bias("bf16", 32, 100, 1000, 300),
        _bmm_bias("bf16", 2, 4096, 2048, 4096),
    ),
    _case(
        bmm_shared_weight,
        _nn,
        "shared_weight",
        _shared("f16", 3, 17, 48, 24),
        _shared("bf16", 16, 512, 768, 1024),
        _shared("bf16", 64, 128, 2048, 2048),
        _shared("f16", 8, 1024, 1024, 4096),
        _shared("bf16", 128, 1, 4096, 4096),
        _shared("bf16", 32, 197, 768, 3072),
        _shared("f32", 16, 256, 512, 512),
        _shared("bf16", 4, 4096, 2048, 2048),
        _shared("bf16", 256, 16, 1024, 1024),
    ),
    _case(
        per_head_projection,
        _per_head,
        "per_head_loop",
        _heads("f16", 17, 3, 48, 24),
        _heads("bf16", 64, 128, 512, 128),
        _heads("bf16", 1024, 16, 512, 128),
        _heads("bf16", 1, 128, 512, 128),
        _heads("f16", 4096, 16, 128, 128),
        _heads("bf16", 256, 64, 192, 512),
        _heads("bf16", 16, 32, 4096, 128),
        _heads("f32", 512, 8, 256, 256),
        _heads("bf16", 2000, 12, 300, 64),
    ),
    _case(
        per_head_projection_full,
        _per_head,
        "per_head_full_depth",
        _heads("f16", 17, 3, 32, 24),
        _heads("bf16", 64, 128, 128, 512),
        _heads("bf16", 1024, 16, 128, 512),
        _heads("f16", 8192, 16, 64, 64),
        _heads("bf16", 8, 128, 128, 512),
        _heads("bf16", 256, 64, 128, 512),
        _heads("bf16", 512, 32, 256, 256),
        _heads("f32", 1024, 8, 64, 128),
        _heads("bf16", 4096, 32, 128, 128),
    ),
    _case(
        batched_channel_gram,
        _channel_gram,
        "channel_gram",
        ("f16[3,48,24]",),
        ("bf16[32,1024,256]",),
        ("bf16[8,16384,128]",),
        ("f16[4,4096,1024]",),
        ("bf16[256,196,384]",),
        ("f32[16,1024,256]",),
        ("bf16[1,32768,512]",),
        ("bf16[128,4096,64]",),
        ("bf16[10,1000,200]",),
    ),
    _case(
        bmm_scale_mask,
        _scale_mask,
        "scores_in_memory",
        _scores("f16", 3, 17, 32, 24),
        _scores("bf16", 32, 1024, 64, 1024),
        _scores("bf16", 8, 4096, 128, 4096),
        _scores("f16", 128, 512, 64, 512),
        _scores("bf16", 512, 16, 128, 1024),
        _scores("bf16", 64, 2048, 32, 256),
        _scores("f32", 16, 512, 64, 512),
        _scores("bf16", 12, 577, 64, 577),
        _scores("bf16", 1024, 128, 128, 128),
    ),
)
