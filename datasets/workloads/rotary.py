"""Rotary position embeddings: halves, pairs, with norms, forward and backward."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "rotary"


@helion.kernel(static_shapes=True, autotune_effort="none")
def rotate_halves(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Rotate (x[..., i], x[..., i + d/2]). x [tokens, heads, d]; cos, sin [t, d/2]."""
    tokens, heads, dim = x.size()
    half = hl.specialize(dim // 2)
    halves = x.view(tokens, heads, 2, half)
    out = torch.empty_like(halves)
    for t, h in hl.tile([tokens, heads]):
        c = cos[t, :].to(torch.float32)[:, None, :]
        s = sin[t, :].to(torch.float32)[:, None, :]
        a = halves[t, h, 0, :].to(torch.float32)
        b = halves[t, h, 1, :].to(torch.float32)
        out[t, h, 0, :] = (a * c - b * s).to(x.dtype)
        out[t, h, 1, :] = (b * c + a * s).to(x.dtype)
    return out.view(tokens, heads, dim)


def rotate_halves_reference(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    a, b = x.float().chunk(2, -1)
    c, s = cos.float()[:, None, :], sin.float()[:, None, :]
    return torch.cat([a * c - b * s, b * c + a * s], -1).to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def rotate_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate (x[..., 2i], x[..., 2i + 1]) with split and join of whole rows."""
    tokens, heads, dim = x.size()
    half = hl.specialize(dim // 2)
    pairs = x.view(tokens, heads, half, 2)
    out = torch.empty_like(pairs)
    for t, h in hl.tile([tokens, heads]):
        c = cos[t, :].to(torch.float32)[:, None, :]
        s = sin[t, :].to(torch.float32)[:, None, :]
        a, b = hl.split(pairs[t, h, :, :].to(torch.float32))
        out[t, h, :, :] = hl.join(a * c - b * s, b * c + a * s).to(x.dtype)
    return out.view(tokens, heads, dim)


def rotate_pairs_reference(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    v = x.float()
    a, b = v[..., 0::2], v[..., 1::2]
    c, s = cos.float()[:, None, :], sin.float()[:, None, :]
    y = torch.stack([a * c - b * s, b * c + a * s], -1)
    return y.view_as(x).to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def rotate_query_key(
    q: torch.Tensor, k: torch.Tensor, position: torch.Tensor, table: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Halves of q and k by positions into a table [max_position, 2, d/2] (cos, sin)."""
    tokens, q_heads, dim = q.size()
    k_heads = k.size(1)
    half = hl.specialize(dim // 2)
    q_halves = q.view(tokens, q_heads, 2, half)
    k_halves = k.view(tokens, k_heads, 2, half)
    q_out = torch.empty_like(q_halves)
    k_out = torch.empty_like(k_halves)
    for t in hl.tile(tokens):
        at = position[t]
        c = table[at, 0, :].to(torch.float32)[:, None, :]
        s = table[at, 1, :].to(torch.float32)[:, None, :]
        for h in hl.tile(q_heads):
            a = q_halves[t, h, 0, :].to(torch.float32)
            b = q_halves[t, h, 1, :].to(torch.float32)
            q_out[t, h, 0, :] = (a * c - b * s).to(q.dtype)
            q_out[t, h, 1, :] = (b * c + a * s).to(q.dtype)
        for h in hl.tile(k_heads):
            a = k_halves[t, h, 0, :].to(torch.float32)
            b = k_halves[t, h, 1, :].to(torch.float32)
            k_out[t, h, 0, :] = (a * c - b * s).to(k.dtype)
            k_out[t, h, 1, :] = (b * c + a * s).to(k.dtype)
    return q_out.view(tokens, q_heads, dim), k_out.view(tokens, k_heads, dim)


def rotate_query_key_reference(
    q: torch.Tensor, k: torch.Tensor, position: torch.Tensor, table: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    cos, sin = table[position.long(), 0], table[position.long(), 1]
    return rotate_halves_reference(q, cos, sin), rotate_halves_reference(k, cos, sin)


@helion.kernel(static_shapes=True, autotune_effort="none")
def head_norm_rotate(
    x: torch.Tensor, w: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Root-mean-square norm of each head, then rotated halves. w [2, d/2]."""
    tokens, heads, dim = x.size()
    half = hl.specialize(dim // 2)
    halves = x.view(tokens, heads, 2, half)
    out = torch.empty_like(halves)
    for t, h in hl.tile([tokens, heads]):
        a = halves[t, h, 0, :].to(torch.float32)
        b = halves[t, h, 1, :].to(torch.float32)
        square = ((a * a).sum(-1) + (b * b).sum(-1)) / dim
        r = torch.rsqrt(square + 1e-6)[:, :, None]
        a = a * r * w[0, :].to(torch.float32)[None, None, :]
        b = b * r * w[1, :].to(torch.float32)[None, None, :]
        c = cos[t, :].to(torch.float32)[:, None, :]
        s = sin[t, :].to(torch.float32)[:, None, :]
        out[t, h, 0, :] = (a * c - b * s).to(x.dtype)
        out[t, h, 1, :] = (b * c + a * s).to(x.dtype)
    return out.view(tokens, heads, dim)


def head_norm_rotate_reference(
    x: torch.Tensor, w: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    v = x.float()
    y = v * torch.rsqrt(v.square().mean(-1, keepdim=True) + 1e-6)
    y = y * w.float().view(-1)
    return rotate_halves_reference(y, cos, sin).to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def rotate_flat(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Halves again with every axis tiled, d/2 included: a pointwise program."""
    tokens, heads, dim = x.size()
    half = dim // 2
    halves = x.view(tokens, heads, 2, half)
    out = torch.empty_like(halves)
    for t, h, i in hl.tile([tokens, heads, half]):
        c = cos[t, i].to(torch.float32)[:, None, :]
        s = sin[t, i].to(torch.float32)[:, None, :]
        a = halves[t, h, 0, i].to(torch.float32)
        b = halves[t, h, 1, i].to(torch.float32)
        out[t, h, 0, i] = (a * c - b * s).to(x.dtype)
        out[t, h, 1, i] = (b * c + a * s).to(x.dtype)
    return out.view(tokens, heads, dim)


def _rotary(tokens: int, heads: int, dim: int, dtype: str = "bf16") -> tuple[str, ...]:
    angle = f"f32[{tokens},{dim // 2}]"
    return (f"{dtype}[{tokens},{heads},{dim}]", angle, angle)


def _query_key(tokens: int, q: int, k: int, dim: int, limit: int) -> tuple[str, ...]:
    return (
        f"bf16[{tokens},{q},{dim}]",
        f"bf16[{tokens},{k},{dim}]",
        f"i64[{tokens}]@index({limit})",
        f"f32[{limit},2,{dim // 2}]",
    )


def _normed(tokens: int, heads: int, dim: int) -> tuple[str, ...]:
    x, cos, sin = _rotary(tokens, heads, dim)
    return (x, f"bf16[2,{dim // 2}]", cos, sin)


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=rotate_halves,
        reference=rotate_halves_reference,
        family=FAMILY,
        variant="halves",
        tiny=_rotary(5, 4, 16),
        shapes=(
            _rotary(4096, 32, 128),
            _rotary(16384, 16, 128),
            _rotary(2048, 64, 128),
            _rotary(64, 32, 128),
            _rotary(8192, 32, 64, "f16"),
            _rotary(4096, 8, 256),
            _rotary(1024, 40, 128),
            _rotary(1, 32, 128),
        ),
    ),
    KernelCase(
        kernel=rotate_pairs,
        reference=rotate_pairs_reference,
        family=FAMILY,
        variant="pairs_split_join",
        tiny=_rotary(5, 4, 16),
        shapes=(
            _rotary(8192, 32, 128),
            _rotary(2048, 32, 64),
            _rotary(4096, 64, 64, "f16"),
            _rotary(128, 64, 128),
            _rotary(16384, 8, 128),
            _rotary(1024, 16, 256),
            _rotary(8192, 128, 64),
            _rotary(512, 8, 128),
        ),
    ),
    KernelCase(
        kernel=rotate_query_key,
        reference=rotate_query_key_reference,
        family=FAMILY,
        variant="query_key_by_position",
        tiny=_query_key(5, 4, 2, 16, 64),
        shapes=(
            _query_key(4096, 32, 8, 128, 32768),
            _query_key(8192, 64, 8, 128, 131072),
            _query_key(256, 32, 8, 128, 32768),
            _query_key(2048, 16, 16, 64, 8192),
            _query_key(16384, 16, 8, 128, 40960),
            _query_key(16, 64, 8, 128, 131072),
            _query_key(1024, 40, 8, 128, 32768),
            _query_key(4096, 8, 1, 256, 8192),
        ),
    ),
    KernelCase(
        kernel=head_norm_rotate,
        reference=head_norm_rotate_reference,
        family=FAMILY,
        variant="head_norm_then_halves",
        tiny=_normed(5, 4, 16),
        shapes=(
            _normed(4096, 32, 128),
            _normed(8192, 16, 128),
            _normed(512, 64, 128),
            _normed(2048, 8, 128),
            _normed(32, 32, 128),
            _normed(8192, 64, 64),
            _normed(16384, 8, 256),
            _normed(1024, 40, 128),
        ),
    ),
    KernelCase(
        kernel=rotate_flat,
        reference=rotate_halves_reference,
        family=FAMILY,
        variant="halves_flat",
        tiny=_rotary(5, 4, 16),
        shapes=(
            _rotary(8192, 16, 128),
            _rotary(2048, 32, 128, "f16"),
            _rotary(16384, 64, 64),
            _rotary(256, 64, 128),
            _rotary(4096, 40, 128),
            _rotary(32768, 4, 128),
            _rotary(1024, 8, 96),
            _rotary(512, 128, 192),
        ),
    ),
)
