"""Attention of one new token over a long cache: few query rows, many keys.

The query heads of one key head are the rows of the dots: q is [batch, kv_heads, group,
d] and the caches are [batch, kv_heads, s, d].
"""

from __future__ import annotations

from typing import Any

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase


@helion.kernel(static_shapes=True, autotune_effort="none")
def decode_one_program(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> torch.Tensor:
    """One program per key head walks the whole cache."""
    batch, kv_heads, group, d = q.size()
    length = k.size(2)
    group = hl.specialize(group)
    d = hl.specialize(d)
    out = torch.empty_like(q)
    for tb, th in hl.tile([batch, kv_heads], block_size=[1, 1]):
        b = tb.begin
        h = th.begin
        peak = hl.full([group], float("-inf"), dtype=torch.float32)
        mass = hl.zeros([group], dtype=torch.float32)
        acc = hl.zeros([group, d], dtype=torch.float32)
        queries = q[b, h, :, :]
        for tc in hl.tile(length):
            s = hl.dot(queries, k[b, h, tc, :].T, out_dtype=torch.float32) * scale
            s = torch.where((tc.index < length)[None, :], s, -1.0e30)
            new_peak = torch.maximum(peak, torch.amax(s, -1))
            p = torch.exp(s - new_peak[:, None])
            shrink = torch.exp(peak - new_peak)
            mass = mass * shrink + torch.sum(p, -1)
            acc = hl.dot(p.to(v.dtype), v[b, h, tc, :], acc=acc * shrink[:, None])
            peak = new_peak
        out[b, h, :, :] = (acc / mass[:, None]).to(q.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def decode_split_cache(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    n_parts: hl.constexpr,
) -> tuple[torch.Tensor, torch.Tensor]:
    """First stage, a cache in `n_parts` pieces: outputs and log-sum-exps of each."""
    batch, kv_heads, group, d = q.size()
    length = k.size(2)
    group = hl.specialize(group)
    d = hl.specialize(d)
    share = length // n_parts
    shape = [batch, kv_heads, n_parts, group]
    sums = torch.empty([*shape, d], dtype=torch.float32, device=q.device)
    lse = torch.empty(shape, dtype=torch.float32, device=q.device)
    for tb, th, tp in hl.tile([batch, kv_heads, n_parts], block_size=[1, 1, 1]):
        b = tb.begin
        h = th.begin
        first = tp.begin * share
        peak = hl.full([group], float("-inf"), dtype=torch.float32)
        mass = hl.zeros([group], dtype=torch.float32)
        acc = hl.zeros([group, d], dtype=torch.float32)
        queries = q[b, h, :, :]
        for tc in hl.tile(first, first + share):
            s = hl.dot(queries, k[b, h, tc, :].T, out_dtype=torch.float32) * scale
            s = torch.where((tc.index < first + share)[None, :], s, -1.0e30)
            new_peak = torch.maximum(peak, torch.amax(s, -1))
            p = torch.exp(s - new_peak[:, None])
            shrink = torch.exp(peak - new_peak)
            mass = mass * shrink + torch.sum(p, -1)
            acc = hl.dot(p.to(v.dtype), v[b, h, tc, :], acc=acc * shrink[:, None])
            peak = new_peak
        sums[b, h, tp.begin, :, :] = acc / mass[:, None]
        lse[b, h, tp.begin, :] = peak + torch.log(mass)
    return sums, lse


@helion.kernel(static_shapes=True, autotune_effort="none")
def decode_fp8_cache(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """As the first, the cache in fp8 with one scale per key head, widened on load."""
    batch, kv_heads, group, d = q.size()
    length = k.size(2)
    group = hl.specialize(group)
    d = hl.specialize(d)
    out = torch.empty_like(q)
    for tb, th in hl.tile([batch, kv_heads], block_size=[1, 1]):
        b = tb.begin
        h = th.begin
        key_scale = k_scale[h] * scale
        peak = hl.full([group], float("-inf"), dtype=torch.float32)
        mass = hl.zeros([group], dtype=torch.float32)
        acc = hl.zeros([group, d], dtype=torch.float32)
        queries = q[b, h, :, :]
        for tc in hl.tile(length):
            keys = k[b, h, tc, :].to(q.dtype)
            s = hl.dot(queries, keys.T, out_dtype=torch.float32) * key_scale
            s = torch.where((tc.index < length)[None, :], s, -1.0e30)
            new_peak = torch.maximum(peak, torch.amax(s, -1))
            p = torch.exp(s - new_peak[:, None])
            shrink = torch.exp(peak - new_peak)
            mass = mass * shrink + torch.sum(p, -1)
            values = v[b, h, tc, :].to(q.dtype)
            acc = hl.dot(p.to(q.dtype), values, acc=acc * shrink[:, None])
            peak = new_peak
        out[b, h, :, :] = (acc / mass[:, None] * v_scale[h]).to(q.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def decode_latent_cache(
    q: torch.Tensor,
    q_rope: torch.Tensor,
    latent: torch.Tensor,
    k_rope: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """All heads share one latent key, which is also the value, and a rotary key.

    q [b, heads, c], q_rope [b, heads, r], latent [b, s, c], k_rope [b, s, r].
    """
    batch, heads, width = q.size()
    length = latent.size(1)
    width = hl.specialize(width)
    out = torch.empty_like(q)
    for tb, th in hl.tile([batch, heads], block_size=[1, None]):
        b = tb.begin
        peak = hl.full([th], float("-inf"), dtype=torch.float32)
        mass = hl.zeros([th], dtype=torch.float32)
        acc = hl.zeros([th, width], dtype=torch.float32)
        queries = q[b, th, :]
        rotary = q_rope[b, th, :]
        for tc in hl.tile(length):
            keys = latent[b, tc, :]
            s = hl.dot(queries, keys.T, out_dtype=torch.float32)
            s = hl.dot(rotary, k_rope[b, tc, :].T, acc=s) * scale
            s = torch.where((tc.index < length)[None, :], s, -1.0e30)
            new_peak = torch.maximum(peak, torch.amax(s, -1))
            p = torch.exp(s - new_peak[:, None])
            shrink = torch.exp(peak - new_peak)
            mass = mass * shrink + torch.sum(p, -1)
            acc = hl.dot(p.to(q.dtype), keys, acc=acc * shrink[:, None])
            peak = new_peak
        out[b, th, :] = (acc / mass[:, None]).to(q.dtype)
    return out


def _ref_decode(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> torch.Tensor:
    p = torch.softmax(q.float() @ k.float().transpose(2, 3) * scale, -1)
    return (p @ v.float()).to(q.dtype)


def _ref_split(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, n_parts: int
) -> tuple[torch.Tensor, torch.Tensor]:
    keys = k.float().unflatten(2, (n_parts, -1))
    s = q.float()[:, :, None] @ keys.transpose(3, 4) * scale
    values = v.float().unflatten(2, (n_parts, -1))
    return torch.softmax(s, -1) @ values, torch.logsumexp(s, -1)


def _ref_fp8(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    keys = k.float() * k_scale[:, None, None]
    return _ref_decode(q, keys, v.float() * v_scale[:, None, None], scale)


def _ref_latent(
    q: torch.Tensor,
    q_rope: torch.Tensor,
    latent: torch.Tensor,
    k_rope: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    s = q.float() @ latent.float().transpose(1, 2)
    s = (s + q_rope.float() @ k_rope.float().transpose(1, 2)) * scale
    return (torch.softmax(s, -1) @ latent.float()).to(q.dtype)


def _case(
    kernel: object,
    reference: Any,
    variant: str,
    tiny: tuple[str, ...],
    *shapes: tuple[str, ...],
) -> KernelCase:
    return KernelCase(kernel, reference, "attention_decode", variant, tiny, shapes)


def _plain(dtype: str, b: int, kv: int, g: int, s: int, d: int) -> tuple[str, ...]:
    cache = f"{dtype}[{b},{kv},{s},{d}]"
    return (f"{dtype}[{b},{kv},{g},{d}]", cache, cache, f"{d**-0.5:.6g}")


def _split(
    dtype: str, b: int, kv: int, g: int, s: int, d: int, parts: int
) -> tuple[str, ...]:
    return (*_plain(dtype, b, kv, g, s, d), str(parts))


def _fp8(dtype: str, b: int, kv: int, g: int, s: int, d: int) -> tuple[str, ...]:
    cache = f"f8e4m3[{b},{kv},{s},{d}]"
    scales = f"f32[{kv}]"
    query = f"{dtype}[{b},{kv},{g},{d}]"
    return (query, cache, cache, scales, scales, f"{d**-0.5:.6g}")


def _latent(dtype: str, b: int, h: int, s: int, c: int, r: int) -> tuple[str, ...]:
    query = (f"{dtype}[{b},{h},{c}]", f"{dtype}[{b},{h},{r}]")
    scale = f"{(c + r) ** -0.5:.6g}"
    return (*query, f"{dtype}[{b},{s},{c}]", f"{dtype}[{b},{s},{r}]", scale)


CASES = (
    _case(
        decode_one_program,
        _ref_decode,
        "one_program",
        _plain("f16", 2, 2, 16, 40, 32),
        _plain("bf16", 64, 8, 16, 2048, 128),
        _plain("bf16", 256, 8, 8, 1024, 128),
        _plain("f16", 16, 8, 16, 4096, 64),
        _plain("bf16", 128, 4, 16, 2048, 128),
        _plain("bf16", 32, 2, 16, 8192, 128),
        _plain("bf16", 1, 8, 8, 8192, 128),
        _plain("bf16", 512, 8, 4, 512, 64),
        _plain("bf16", 24, 8, 5, 3000, 128),
    ),
    _case(
        decode_split_cache,
        _ref_split,
        "split_cache",
        _split("f16", 2, 2, 16, 80, 32, 2),
        _split("bf16", 1, 8, 16, 32768, 128, 32),
        _split("bf16", 16, 8, 8, 8192, 128, 8),
        _split("f16", 8, 4, 16, 16384, 64, 16),
        _split("bf16", 64, 8, 4, 4096, 128, 4),
        _split("bf16", 2, 1, 16, 65536, 128, 64),
        _split("bf16", 4, 8, 8, 16384, 128, 16),
        _split("bf16", 128, 2, 16, 2048, 128, 2),
        _split("bf16", 32, 8, 4, 1024, 64, 4),
    ),
    _case(
        decode_fp8_cache,
        _ref_fp8,
        "fp8_cache",
        _fp8("f16", 2, 2, 16, 40, 32),
        _fp8("bf16", 64, 8, 16, 2048, 128),
        _fp8("bf16", 16, 8, 8, 8192, 128),
        _fp8("f16", 128, 4, 16, 1024, 64),
        _fp8("bf16", 256, 8, 4, 1024, 128),
        _fp8("bf16", 8, 2, 16, 16384, 128),
        _fp8("bf16", 1, 8, 8, 8192, 128),
        _fp8("bf16", 32, 16, 16, 4096, 64),
        _fp8("bf16", 20, 8, 5, 5000, 128),
    ),
    _case(
        decode_latent_cache,
        _ref_latent,
        "latent_cache",
        _latent("f16", 2, 17, 40, 64, 32),
        _latent("f16", 16, 128, 4096, 256, 64),
        _latent("bf16", 128, 16, 4096, 512, 64),
        _latent("bf16", 64, 128, 2048, 512, 64),
        _latent("bf16", 256, 16, 1024, 512, 64),
        _latent("bf16", 8, 128, 8192, 512, 64),
        _latent("bf16", 1, 128, 4096, 512, 64),
        _latent("bf16", 32, 64, 2048, 128, 32),
        _latent("bf16", 48, 20, 3000, 256, 64),
    ),
)
