"""Attention forward, in one kernel per masking rule and way of writing.

Tensors are [heads, sequence, d] with batch and heads merged, or [batch, heads,
sequence, d] where query heads share key heads. Scores are scaled by d^-1/2 and the
softmax runs online in base e unless said otherwise.
"""

from __future__ import annotations

from typing import Any

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase


@helion.kernel(static_shapes=True, autotune_effort="none")
def attention_full(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> torch.Tensor:
    """Every query sees every key; the head axis is tiled too, in base 2."""
    heads, rows, d = q.size()
    cols = k.size(1)
    d = hl.specialize(d)
    out = torch.empty_like(q)
    scale2 = scale * 1.44269504  # log2(e): exp(x) = exp2(x * log2(e))
    for th, tr in hl.tile([heads, rows]):
        peak = hl.full([th, tr], float("-inf"), dtype=torch.float32)
        mass = hl.zeros([th, tr], dtype=torch.float32)
        acc = hl.zeros([th, tr, d], dtype=torch.float32)
        queries = q[th, tr, :]
        for tc in hl.tile(cols):
            s = torch.bmm(queries, k[th, tc, :].transpose(1, 2)).to(torch.float32)
            s = torch.where((tc.index < cols)[None, None, :], s * scale2, -1.0e30)
            new_peak = torch.maximum(peak, torch.amax(s, -1))
            p = torch.exp2(s - new_peak[:, :, None])
            shrink = torch.exp2(peak - new_peak)
            mass = mass * shrink + torch.sum(p, -1)
            acc = acc * shrink[:, :, None]
            acc = torch.baddbmm(acc, p.to(v.dtype), v[th, tc, :])
            peak = new_peak
        out[th, tr, :] = (acc / mass[:, :, None]).to(q.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def attention_one_head(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> torch.Tensor:
    """Every query sees every key; one head per program, 2-d dots."""
    heads, rows, d = q.size()
    cols = k.size(1)
    d = hl.specialize(d)
    out = torch.empty_like(q)
    for th, tr in hl.tile([heads, rows], block_size=[1, None]):
        h = th.begin
        peak = hl.full([tr], float("-inf"), dtype=torch.float32)
        mass = hl.zeros([tr], dtype=torch.float32)
        acc = hl.zeros([tr, d], dtype=torch.float32)
        queries = q[h, tr, :]
        for tc in hl.tile(cols):
            s = hl.dot(queries, k[h, tc, :].T, out_dtype=torch.float32) * scale
            s = torch.where((tc.index < cols)[None, :], s, -1.0e30)
            new_peak = torch.maximum(peak, torch.amax(s, -1))
            p = torch.exp(s - new_peak[:, None])
            shrink = torch.exp(peak - new_peak)
            mass = mass * shrink + torch.sum(p, -1)
            acc = hl.dot(p.to(v.dtype), v[h, tc, :], acc=acc * shrink[:, None])
            peak = new_peak
        out[h, tr, :] = (acc / mass[:, None]).to(q.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def attention_causal_masked(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> torch.Tensor:
    """Causal, all keys visited and the future masked."""
    heads, rows, d = q.size()
    cols = k.size(1)
    d = hl.specialize(d)
    out = torch.empty_like(q)
    for th, tr in hl.tile([heads, rows], block_size=[1, None]):
        h = th.begin
        peak = hl.full([tr], float("-inf"), dtype=torch.float32)
        mass = hl.zeros([tr], dtype=torch.float32)
        acc = hl.zeros([tr, d], dtype=torch.float32)
        queries = q[h, tr, :]
        for tc in hl.tile(cols):
            s = hl.dot(queries, k[h, tc, :].T, out_dtype=torch.float32) * scale
            s = torch.where(tr.index[:, None] >= tc.index[None, :], s, -1.0e30)
            new_peak = torch.maximum(peak, torch.amax(s, -1))
            p = torch.exp(s - new_peak[:, None])
            shrink = torch.exp(peak - new_peak)
            mass = mass * shrink + torch.sum(p, -1)
            acc = hl.dot(p.to(v.dtype), v[h, tc, :], acc=acc * shrink[:, None])
            peak = new_peak
        out[h, tr, :] = (acc / mass[:, None]).to(q.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def attention_causal_bounded(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal, the key loop ends at the query tile; also stores the log-sum-exp."""
    heads, rows, d = q.size()
    d = hl.specialize(d)
    out = torch.empty_like(q)
    lse = torch.empty([heads, rows], dtype=torch.float32, device=q.device)
    for th, tr in hl.tile([heads, rows], block_size=[1, None]):
        h = th.begin
        peak = hl.full([tr], float("-inf"), dtype=torch.float32)
        mass = hl.zeros([tr], dtype=torch.float32)
        acc = hl.zeros([tr, d], dtype=torch.float32)
        queries = q[h, tr, :]
        for tc in hl.tile(0, tr.end):
            s = hl.dot(queries, k[h, tc, :].T, out_dtype=torch.float32) * scale
            s = torch.where(tr.index[:, None] >= tc.index[None, :], s, -1.0e30)
            new_peak = torch.maximum(peak, torch.amax(s, -1))
            p = torch.exp(s - new_peak[:, None])
            shrink = torch.exp(peak - new_peak)
            mass = mass * shrink + torch.sum(p, -1)
            acc = hl.dot(p.to(v.dtype), v[h, tc, :], acc=acc * shrink[:, None])
            peak = new_peak
        out[h, tr, :] = (acc / mass[:, None]).to(q.dtype)
        lse[h, tr] = peak + torch.log(mass)
    return out, lse


@helion.kernel(static_shapes=True, autotune_effort="none")
def attention_windowed(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    window: hl.constexpr,
) -> torch.Tensor:
    """Causal over the last `window` keys; the key loop starts near the query tile."""
    heads, rows, d = q.size()
    d = hl.specialize(d)
    out = torch.empty_like(q)
    for th, tr in hl.tile([heads, rows], block_size=[1, None]):
        h = th.begin
        peak = hl.full([tr], float("-inf"), dtype=torch.float32)
        mass = hl.zeros([tr], dtype=torch.float32)
        acc = hl.zeros([tr, d], dtype=torch.float32)
        queries = q[h, tr, :]
        first = max(tr.begin - window + 1, 0)
        for tc in hl.tile(first, tr.end):
            s = hl.dot(queries, k[h, tc, :].T, out_dtype=torch.float32) * scale
            gap = tr.index[:, None] - tc.index[None, :]
            s = torch.where((gap >= 0) & (gap < window), s, -1.0e30)
            new_peak = torch.maximum(peak, torch.amax(s, -1))
            p = torch.exp(s - new_peak[:, None])
            p = torch.where((gap >= 0) & (gap < window), p, 0.0)
            shrink = torch.exp(peak - new_peak)
            mass = mass * shrink + torch.sum(p, -1)
            acc = hl.dot(p.to(v.dtype), v[h, tc, :], acc=acc * shrink[:, None])
            peak = new_peak
        out[h, tr, :] = (acc / mass[:, None]).to(q.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def attention_grouped_query(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> torch.Tensor:
    """Causal; q [b, heads, s, d] shares k, v [b, kv_heads, s, d] among query heads."""
    batch, heads, rows, d = q.size()
    group = heads // k.size(1)
    d = hl.specialize(d)
    out = torch.empty_like(q)
    for tb, th, tr in hl.tile([batch, heads, rows], block_size=[1, 1, None]):
        b = tb.begin
        h = th.begin
        shared = h // group
        peak = hl.full([tr], float("-inf"), dtype=torch.float32)
        mass = hl.zeros([tr], dtype=torch.float32)
        acc = hl.zeros([tr, d], dtype=torch.float32)
        queries = q[b, h, tr, :]
        for tc in hl.tile(0, tr.end):
            s = hl.dot(queries, k[b, shared, tc, :].T, out_dtype=torch.float32) * scale
            s = torch.where(tr.index[:, None] >= tc.index[None, :], s, -1.0e30)
            new_peak = torch.maximum(peak, torch.amax(s, -1))
            p = torch.exp(s - new_peak[:, None])
            shrink = torch.exp(peak - new_peak)
            mass = mass * shrink + torch.sum(p, -1)
            values = v[b, shared, tc, :]
            acc = hl.dot(p.to(v.dtype), values, acc=acc * shrink[:, None])
            peak = new_peak
        out[b, h, tr, :] = (acc / mass[:, None]).to(q.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def attention_two_pass(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> torch.Tensor:
    """Every query sees every key; scores twice, first for the log-sum-exp only.

    Costs one more product of q and k, and never rescales the output sum.
    """
    heads, rows, d = q.size()
    cols = k.size(1)
    d = hl.specialize(d)
    out = torch.empty_like(q)
    for th, tr in hl.tile([heads, rows], block_size=[1, None]):
        h = th.begin
        peak = hl.full([tr], float("-inf"), dtype=torch.float32)
        mass = hl.zeros([tr], dtype=torch.float32)
        queries = q[h, tr, :]
        for tc in hl.tile(cols):
            s = hl.dot(queries, k[h, tc, :].T, out_dtype=torch.float32) * scale
            s = torch.where((tc.index < cols)[None, :], s, -1.0e30)
            new_peak = torch.maximum(peak, torch.amax(s, -1))
            grown = torch.sum(torch.exp(s - new_peak[:, None]), -1)
            mass = mass * torch.exp(peak - new_peak) + grown
            peak = new_peak
        lse = peak + torch.log(mass)
        acc = hl.zeros([tr, d], dtype=torch.float32)
        for tc in hl.tile(cols):
            s = hl.dot(queries, k[h, tc, :].T, out_dtype=torch.float32) * scale
            p = torch.exp(s - lse[:, None])
            acc = hl.dot(p.to(v.dtype), v[h, tc, :], acc=acc)
        out[h, tr, :] = acc.to(q.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def attention_distance_bias(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slope: torch.Tensor, scale: float
) -> torch.Tensor:
    """Causal, a linear penalty on distance, slope [heads], and tanh-capped scores."""
    heads, rows, d = q.size()
    d = hl.specialize(d)
    out = torch.empty_like(q)
    for th, tr in hl.tile([heads, rows], block_size=[1, None]):
        h = th.begin
        steep = torch.abs(slope[h])
        peak = hl.full([tr], float("-inf"), dtype=torch.float32)
        mass = hl.zeros([tr], dtype=torch.float32)
        acc = hl.zeros([tr, d], dtype=torch.float32)
        queries = q[h, tr, :]
        for tc in hl.tile(0, tr.end):
            s = hl.dot(queries, k[h, tc, :].T, out_dtype=torch.float32) * scale
            gap = tr.index[:, None] - tc.index[None, :]
            s = 30.0 * torch.tanh(s / 30.0) - steep * gap.to(torch.float32)
            s = torch.where(gap >= 0, s, -1.0e30)
            new_peak = torch.maximum(peak, torch.amax(s, -1))
            p = torch.exp(s - new_peak[:, None])
            shrink = torch.exp(peak - new_peak)
            mass = mass * shrink + torch.sum(p, -1)
            acc = hl.dot(p.to(v.dtype), v[h, tc, :], acc=acc * shrink[:, None])
            peak = new_peak
        out[h, tr, :] = (acc / mass[:, None]).to(q.dtype)
    return out


def _scores(q: torch.Tensor, k: torch.Tensor, scale: float) -> torch.Tensor:
    return q.float() @ k.float().transpose(-1, -2) * scale


def _gap(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(q.size(-2), device=q.device)
    cols = torch.arange(k.size(-2), device=q.device)
    return rows[:, None] - cols[None, :]


def _weigh(s: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (torch.softmax(s, -1) @ v.float()).to(v.dtype)


def _ref_full(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> torch.Tensor:
    return _weigh(_scores(q, k, scale), v)


def _causal_scores(q: torch.Tensor, k: torch.Tensor, scale: float) -> torch.Tensor:
    return _scores(q, k, scale).masked_fill(_gap(q, k) < 0, float("-inf"))


def _ref_causal(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> torch.Tensor:
    return _weigh(_causal_scores(q, k, scale), v)


def _ref_causal_lse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    s = _causal_scores(q, k, scale)
    return _weigh(s, v), torch.logsumexp(s, -1)


def _ref_windowed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, window: int
) -> torch.Tensor:
    s = _causal_scores(q, k, scale)
    return _weigh(s.masked_fill(_gap(q, k) >= window, float("-inf")), v)


def _ref_grouped(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> torch.Tensor:
    group = q.size(1) // k.size(1)
    keys = k.repeat_interleave(group, 1)
    return _ref_causal(q, keys, v.repeat_interleave(group, 1), scale)


def _ref_distance(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slope: torch.Tensor, scale: float
) -> torch.Tensor:
    gap = _gap(q, k)
    s = 30.0 * torch.tanh(_scores(q, k, scale) / 30.0)
    s = s - slope.abs()[:, None, None] * gap
    return _weigh(s.masked_fill(gap < 0, float("-inf")), v)


def _case(
    kernel: object,
    reference: Any,
    variant: str,
    tiny: tuple[str, ...],
    *shapes: tuple[str, ...],
) -> KernelCase:
    return KernelCase(kernel, reference, "attention_forward", variant, tiny, shapes)


def _qkv(dtype: str, h: int, m: int, d: int, n: int = 0) -> tuple[str, ...]:
    key = f"{dtype}[{h},{n or m},{d}]"
    return (f"{dtype}[{h},{m},{d}]", key, key, f"{d**-0.5:.6g}")


def _window(dtype: str, h: int, m: int, d: int, window: int) -> tuple[str, ...]:
    return (*_qkv(dtype, h, m, d), str(window))


def _shared(dtype: str, b: int, h: int, kv: int, m: int, d: int) -> tuple[str, ...]:
    key = f"{dtype}[{b},{kv},{m},{d}]"
    return (f"{dtype}[{b},{h},{m},{d}]", key, key, f"{d**-0.5:.6g}")


def _sloped(dtype: str, h: int, m: int, d: int) -> tuple[str, ...]:
    *tensors, scale = _qkv(dtype, h, m, d)
    return (*tensors, f"f32[{h}]", scale)


CASES = (
    _case(
        attention_full,
        _ref_full,
        "head_tiled_base_2",
        _qkv("f16", 3, 33, 32, 40),
        _qkv("bf16", 64, 1024, 64),
        _qkv("bf16", 32, 4096, 128),
        _qkv("f16", 16, 512, 64, 2048),
        _qkv("bf16", 384, 197, 64),
        _qkv("bf16", 128, 2048, 128),
        _qkv("f16", 1024, 128, 32),
        _qkv("bf16", 16, 4096, 64, 77),
        _qkv("bf16", 8, 8192, 128),
    ),
    _case(
        attention_one_head,
        _ref_full,
        "one_head",
        _qkv("f16", 3, 33, 32, 40),
        _qkv("bf16", 32, 2048, 128),
        _qkv("bf16", 64, 1024, 64),
        _qkv("f16", 128, 256, 128, 4096),
        _qkv("bf16", 12, 8192, 64),
        _qkv("bf16", 20, 1500, 64),
        _qkv("bf16", 256, 512, 128),
        _qkv("f16", 16, 1024, 256),
        _qkv("f32", 16, 1024, 64),
    ),
    _case(
        attention_causal_masked,
        _ref_causal,
        "causal_masked",
        _qkv("f16", 3, 33, 32),
        _qkv("bf16", 64, 2048, 64),
        _qkv("bf16", 256, 256, 64),
        _qkv("bf16", 32, 1024, 128),
        _qkv("f16", 16, 4096, 128),
        _qkv("bf16", 96, 512, 128),
        _qkv("bf16", 12, 1023, 64),
        _qkv("bf16", 8, 8192, 64),
        _qkv("f16", 32, 2048, 32),
    ),
    _case(
        attention_causal_bounded,
        _ref_causal_lse,
        "causal_bounded_lse",
        _qkv("f16", 3, 33, 32),
        _qkv("bf16", 32, 4096, 128),
        _qkv("bf16", 64, 2048, 64),
        _qkv("f16", 128, 1024, 128),
        _qkv("bf16", 8, 16384, 64),
        _qkv("bf16", 16, 8192, 128),
        _qkv("bf16", 512, 512, 64),
        _qkv("bf16", 40, 777, 128),
        _qkv("f32", 16, 1024, 64),
    ),
    _case(
        attention_windowed,
        _ref_windowed,
        "windowed",
        _window("f16", 3, 65, 32, 24),
        _window("bf16", 32, 8192, 128, 1024),
        _window("bf16", 64, 4096, 64, 128),
        _window("f16", 16, 16384, 128, 512),
        _window("bf16", 8, 32768, 128, 4096),
        _window("bf16", 32, 2048, 128, 256),
        _window("bf16", 128, 2048, 64, 64),
        _window("bf16", 24, 5000, 64, 300),
        _window("f16", 64, 4096, 128, 1024),
    ),
    _case(
        attention_grouped_query,
        _ref_grouped,
        "grouped_query_causal",
        _shared("f16", 2, 4, 2, 33, 32),
        _shared("bf16", 1, 32, 8, 4096, 128),
        _shared("bf16", 8, 32, 8, 1024, 128),
        _shared("f16", 4, 16, 2, 2048, 64),
        _shared("bf16", 1, 64, 8, 4096, 128),
        _shared("bf16", 16, 28, 4, 512, 128),
        _shared("bf16", 1, 16, 8, 8192, 128),
        _shared("bf16", 2, 64, 8, 2048, 64),
        _shared("bf16", 3, 40, 8, 1000, 128),
    ),
    _case(
        attention_two_pass,
        _ref_full,
        "two_pass",
        _qkv("f16", 3, 33, 32, 40),
        _qkv("bf16", 32, 1024, 128),
        _qkv("bf16", 64, 2048, 64),
        _qkv("f16", 16, 512, 128, 4096),
        _qkv("bf16", 384, 197, 64),
        _qkv("bf16", 16, 4096, 64),
        _qkv("bf16", 128, 512, 128),
        _qkv("bf16", 12, 1500, 64),
        _qkv("f32", 16, 512, 64),
    ),
    _case(
        attention_distance_bias,
        _ref_distance,
        "distance_bias_capped",
        _sloped("f16", 3, 33, 32),
        _sloped("bf16", 32, 2048, 128),
        _sloped("bf16", 64, 1024, 64),
        _sloped("f16", 16, 4096, 64),
        _sloped("bf16", 112, 1024, 128),
        _sloped("bf16", 8, 8192, 128),
        _sloped("bf16", 256, 512, 64),
        _sloped("bf16", 40, 999, 128),
        _sloped("f16", 32, 2048, 64),
    ),
)
