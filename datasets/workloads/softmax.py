"""Softmax and its relatives over the last dimension, forward and backward."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "softmax"


@helion.kernel(static_shapes=True, autotune_effort="none")
def softmax_rows(x: torch.Tensor) -> torch.Tensor:
    """Softmax of whole rows. x [m, n]."""
    m, _ = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        v = x[rows, :].to(torch.float32)
        e = torch.exp(v - v.amax(-1)[:, None])
        out[rows, :] = (e / e.sum(-1)[:, None]).to(x.dtype)
    return out


def softmax_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return torch.softmax(x.float(), -1).to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def softmax2(x: torch.Tensor) -> torch.Tensor:
    """Online maximum and sum in one column loop, the result in a second."""
    m, n = x.size()
    out = torch.empty_like(x)
    block_n = hl.register_block_size(n)
    for rows in hl.tile(m):
        top = hl.full([rows], float("-inf"), dtype=torch.float32)
        total = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(n, block_size=block_n):
            v = x[rows, cols].to(torch.float32)
            new_top = torch.maximum(top, v.amax(-1))
            total = total * torch.exp(top - new_top)
            total = total + torch.exp(v - new_top[:, None]).sum(-1)
            top = new_top
        for cols in hl.tile(n, block_size=block_n):
            v = x[rows, cols].to(torch.float32)
            e = torch.exp(v - top[:, None]) / total[:, None]
            out[rows, cols] = e.to(x.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def softmax_three_pass(x: torch.Tensor) -> torch.Tensor:
    """Maximum, sum and result in three column loops, exponentials base two."""
    m, n = x.size()
    out = torch.empty_like(x)
    block_n = hl.register_block_size(n)
    for rows in hl.tile(m):
        top = hl.full([rows], float("-inf"), dtype=torch.float32)
        for cols in hl.tile(n, block_size=block_n):
            top = torch.maximum(top, x[rows, cols].to(torch.float32).amax(-1))
        # 1.4426950 = log2(e)
        top = top * 1.4426950408889634
        total = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(n, block_size=block_n):
            v = x[rows, cols].to(torch.float32) * 1.4426950408889634
            total = total + torch.exp2(v - top[:, None]).sum(-1)
        inverse = 1.0 / total
        for cols in hl.tile(n, block_size=block_n):
            v = x[rows, cols].to(torch.float32) * 1.4426950408889634
            e = torch.exp2(v - top[:, None]) * inverse[:, None]
            out[rows, cols] = e.to(x.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def log_softmax_rows(x: torch.Tensor) -> torch.Tensor:
    """x - logsumexp(x), whole rows."""
    m, _ = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        v = x[rows, :].to(torch.float32)
        shifted = v - v.amax(-1)[:, None]
        out[rows, :] = (shifted - shifted.exp().sum(-1).log()[:, None]).to(x.dtype)
    return out


def log_softmax_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return torch.log_softmax(x.float(), -1).to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def logsumexp_looped(x: torch.Tensor) -> torch.Tensor:
    """Log of the sum of exponentials of each row, online. Returns f32 [m]."""
    m, n = x.size()
    out = torch.empty([m], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        top = hl.full([rows], float("-inf"), dtype=torch.float32)
        total = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(n):
            v = x[rows, cols].to(torch.float32)
            new_top = torch.maximum(top, v.amax(-1))
            total = total * torch.exp(top - new_top)
            total = total + torch.exp(v - new_top[:, None]).sum(-1)
            top = new_top
        out[rows] = top + total.log()
    return out


def logsumexp_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return torch.logsumexp(x.float(), -1)


@helion.kernel(static_shapes=True, autotune_effort="none")
def causal_softmax(scores: torch.Tensor, scale: float) -> torch.Tensor:
    """Softmax of scaled scores [heads, queries, keys], keys <= query only."""
    heads, queries, keys = scores.size()
    out = torch.empty_like(scores)
    for head, query in hl.tile([heads, queries]):
        v = scores[head, query, :].to(torch.float32) * scale
        seen = hl.arange(keys)[None, :] <= query.index[:, None]
        v = torch.where(seen[None, :, :], v, float("-inf"))
        e = torch.exp(v - v.amax(-1)[:, :, None])
        out[head, query, :] = (e / e.sum(-1)[:, :, None]).to(scores.dtype)
    return out


def causal_softmax_reference(scores: torch.Tensor, scale: float) -> torch.Tensor:
    """Plain PyTorch."""
    seen = torch.ones_like(scores, dtype=torch.bool).tril()
    v = (scores.float() * scale).masked_fill(~seen, float("-inf"))
    return torch.softmax(v, -1).to(scores.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def masked_softmax(scores: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Softmax of soft-capped rows [m, n] over their first lengths[m] + 1 columns."""
    m, n = scores.size()
    out = torch.empty_like(scores)
    block_n = hl.register_block_size(n)
    for rows in hl.tile(m):
        limit = lengths[rows]
        top = hl.full([rows], float("-inf"), dtype=torch.float32)
        total = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(n, block_size=block_n):
            v = 30.0 * torch.tanh(scores[rows, cols].to(torch.float32) / 30.0)
            keep = cols.index[None, :] <= limit[:, None]
            v = torch.where(keep, v, float("-inf"))
            new_top = torch.maximum(top, v.amax(-1))
            total = total * torch.exp(top - new_top)
            total = total + torch.exp(v - new_top[:, None]).sum(-1)
            top = new_top
        for cols in hl.tile(n, block_size=block_n):
            v = 30.0 * torch.tanh(scores[rows, cols].to(torch.float32) / 30.0)
            keep = cols.index[None, :] <= limit[:, None]
            p = torch.where(keep, torch.exp(v - top[:, None]) / total[:, None], 0.0)
            out[rows, cols] = p.to(scores.dtype)
    return out


def masked_softmax_reference(
    scores: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    v = 30.0 * torch.tanh(scores.float() / 30.0)
    columns = torch.arange(scores.size(1), device=scores.device)
    v = v.masked_fill(columns[None, :] > lengths[:, None], float("-inf"))
    return torch.softmax(v, -1).to(scores.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def softmax_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """y * (dy - sum(dy * y)), whole rows."""
    m, _ = y.size()
    dx = torch.empty_like(y)
    for rows in hl.tile(m):
        p = y[rows, :].to(torch.float32)
        g = dy[rows, :].to(torch.float32)
        inner = (p * g).sum(-1)
        dx[rows, :] = (p * (g - inner[:, None])).to(y.dtype)
    return dx


def softmax_backward_reference(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    p, g = y.float(), dy.float()
    return (p * (g - (p * g).sum(-1, keepdim=True))).to(y.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def softmax_backward_looped(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The same with two column loops."""
    m, n = y.size()
    dx = torch.empty_like(y)
    block_n = hl.register_block_size(n)
    for rows in hl.tile(m):
        inner = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(n, block_size=block_n):
            p = y[rows, cols].to(torch.float32)
            inner = inner + (p * dy[rows, cols].to(torch.float32)).sum(-1)
        for cols in hl.tile(n, block_size=block_n):
            p = y[rows, cols].to(torch.float32)
            g = dy[rows, cols].to(torch.float32) - inner[:, None]
            dx[rows, cols] = (p * g).to(y.dtype)
    return dx


def _one(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]",)


def _two(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]",) * 2


def _masked(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]", f"i32[{m}]@index({n})")


def _causal(heads: int, length: int) -> tuple[str, ...]:
    return (f"bf16[{heads},{length},{length}]", "0.088")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=softmax_rows,
        reference=softmax_reference,
        family=FAMILY,
        variant="one_pass",
        tiny=_one(5, 96),
        shapes=(
            _one(4096, 4096, "f16"),
            _one(2048, 32768),
            _one(65536, 512),
            _one(4096, 12672, "f16"),
            _one(256, 8192),
            _one(16384, 1023, "f32"),
            _one(262144, 128),
            _one(1024, 65536),
        ),
    ),
    KernelCase(
        kernel=softmax2,
        reference=softmax_reference,
        family=FAMILY,
        variant="two_pass_online",
        tiny=_one(5, 96),
        shapes=(
            _one(4096, 8192),
            _one(1024, 128256),
            _one(16384, 2048, "f16"),
            _one(128, 32000, "f32"),
            _one(4096, 16384, "f16"),
            _one(32768, 1025),
            _one(64, 151936),
            _one(8192, 4096, "f32"),
        ),
    ),
    KernelCase(
        kernel=softmax_three_pass,
        reference=softmax_reference,
        family=FAMILY,
        variant="three_pass",
        tiny=_one(5, 96),
        shapes=(
            _one(2048, 16384, "f16"),
            _one(512, 128256),
            _one(8192, 4096),
            _one(65536, 256, "f32"),
            _one(4096, 6272, "f16"),
            _one(32, 256000),
            _one(16384, 3000),
            _one(1024, 32768),
        ),
    ),
    KernelCase(
        kernel=log_softmax_rows,
        reference=log_softmax_reference,
        family=FAMILY,
        variant="one_pass",
        tiny=_one(5, 96),
        shapes=(
            _one(8192, 8192),
            _one(1024, 32000, "f32"),
            _one(16384, 1000),
            _one(64, 50257),
            _one(4096, 2048, "f16"),
            _one(131072, 64, "f32"),
            _one(512, 32768),
            _one(2048, 16384),
        ),
    ),
    KernelCase(
        kernel=logsumexp_looped,
        reference=logsumexp_reference,
        family=FAMILY,
        variant="looped_online",
        tiny=_one(5, 96),
        shapes=(
            _one(2048, 128256),
            _one(4096, 32000, "f32"),
            _one(64, 151936),
            _one(16384, 4096),
            _one(256, 256000, "f32"),
            _one(65536, 1000),
            _one(1, 129280, "f32"),
            _one(8192, 8191, "f16"),
        ),
    ),
    KernelCase(
        kernel=causal_softmax,
        reference=causal_softmax_reference,
        family=FAMILY,
        variant="one_pass_masked_3d",
        tiny=("bf16[3,8,8]", "0.5"),
        shapes=(
            _causal(32, 2048),
            _causal(128, 512),
            _causal(8, 4096),
            _causal(16, 1024),
            _causal(512, 128),
            _causal(4, 8192),
            _causal(64, 1000),
            _causal(2, 2048),
        ),
    ),
    KernelCase(
        kernel=masked_softmax,
        reference=masked_softmax_reference,
        family=FAMILY,
        variant="two_pass_masked",
        tiny=_masked(5, 96),
        shapes=(
            _masked(8192, 4096),
            _masked(2048, 16384),
            _masked(32768, 1024, "f16"),
            _masked(256, 32768),
            _masked(4096, 5000, "f32"),
            _masked(65536, 512),
            _masked(1024, 8192),
            _masked(64, 131072),
        ),
    ),
    KernelCase(
        kernel=softmax_backward,
        reference=softmax_backward_reference,
        family=FAMILY,
        variant="backward_one_pass",
        tiny=_two(5, 96),
        shapes=(
            _two(8192, 4096),
            _two(65536, 512, "f16"),
            _two(2048, 16384),
            _two(16384, 1024, "f32"),
            _two(512, 32768),
            _two(262144, 128),
            _two(256, 4096),
            _two(4096, 6000),
        ),
    ),
    KernelCase(
        kernel=softmax_backward_looped,
        reference=softmax_backward_reference,
        family=FAMILY,
        variant="backward_looped",
        tiny=_two(5, 96),
        shapes=(
            _two(4096, 8192),
            _two(1024, 65536),
            _two(16384, 2048, "f16"),
            _two(2048, 32000, "f32"),
            _two(65536, 1000),
            _two(128, 128256),
            _two(8192, 4095),
            _two(1024, 2048),
        ),
    ),
)
