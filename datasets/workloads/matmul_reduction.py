"""Matrix products fused with a reduction over whole rows.

After the product: layer norm, RMS norm, softmax, row maximum, log-sum-exp. Before it:
an RMS norm whose row factor can be applied once the product is done.
"""

from __future__ import annotations

from typing import Any

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase


@helion.kernel(static_shapes=True, autotune_effort="none")
def mm_layer_norm(
    x: torch.Tensor, w: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor
) -> torch.Tensor:
    """layer_norm(x @ w) with all n columns of a row block in one program."""
    rows, depth = x.size()
    cols = hl.specialize(w.size(1))
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr in hl.tile(rows):
        total = hl.zeros([tr, cols], dtype=torch.float32)
        for td in hl.tile(depth):
            total = total + torch.matmul(x[tr, td], w[td, :])
        mean = torch.mean(total, dim=-1)
        centred = total - mean[:, None]
        variance = torch.mean(centred * centred, dim=-1)
        normed = centred * torch.rsqrt(variance + 1e-5)[:, None]
        scaled = normed * gain[:].to(torch.float32)[None, :]
        y[tr, :] = (scaled + shift[:].to(torch.float32)[None, :]).to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def mm_residual_rms_norm(
    x: torch.Tensor, w: torch.Tensor, residual: torch.Tensor, gain: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """h = residual + x @ w and rms_norm(h), both stored."""
    rows, depth = x.size()
    cols = hl.specialize(w.size(1))
    h = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr in hl.tile(rows):
        total = residual[tr, :].to(torch.float32)
        for td in hl.tile(depth):
            total = hl.dot(x[tr, td], w[td, :], acc=total)
        h[tr, :] = total.to(x.dtype)
        factor = torch.rsqrt(torch.mean(total * total, dim=-1) + 1e-6)
        scaled = total * factor[:, None] * gain[:].to(torch.float32)[None, :]
        y[tr, :] = scaled.to(x.dtype)
    return h, y


@helion.kernel(static_shapes=True, autotune_effort="none")
def router_softmax(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """softmax(x @ w^T) in fp32 over a few dozen experts."""
    rows, depth = x.size()
    cols = hl.specialize(w.size(0))
    p = torch.empty([rows, cols], dtype=torch.float32, device=x.device)
    for tr in hl.tile(rows):
        total = hl.zeros([tr, cols], dtype=torch.float32)
        for td in hl.tile(depth):
            total = hl.dot(x[tr, td], w[:, td].T, acc=total)
        peak = torch.amax(total, dim=-1)
        weight = torch.exp(total - peak[:, None])
        p[tr, :] = weight / torch.sum(weight, dim=-1)[:, None]
    return p


@helion.kernel(static_shapes=True, autotune_effort="none")
def mm_row_peak(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Largest entry of each row of x @ w^T; the product is never stored."""
    rows, depth = x.size()
    cols = w.size(0)
    out = torch.empty([rows], dtype=torch.float32, device=x.device)
    for tr in hl.tile(rows):
        peak = hl.full([tr], float("-inf"), dtype=torch.float32)
        for tc in hl.tile(cols):
            total = hl.zeros([tr, tc], dtype=torch.float32)
            for td in hl.tile(depth):
                total = hl.dot(x[tr, td], w[tc, td].T, acc=total)
            inside = tc.index < cols
            total = torch.where(inside[None, :], total, float("-inf"))
            peak = torch.maximum(peak, torch.amax(total, dim=-1))
        out[tr] = peak
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def head_cross_entropy(
    x: torch.Tensor, w: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    """Cross entropy of logits x @ w^T per row, logits never stored.

    x [n, k], w [vocabulary, k], target [n]; a running log-sum-exp over the vocabulary.
    """
    rows, depth = x.size()
    vocabulary = w.size(0)
    loss = torch.empty([rows], dtype=torch.float32, device=x.device)
    for tr in hl.tile(rows):
        wanted = target[tr]
        peak = hl.full([tr], float("-inf"), dtype=torch.float32)
        mass = hl.zeros([tr], dtype=torch.float32)
        at_target = hl.zeros([tr], dtype=torch.float32)
        for tv in hl.tile(vocabulary):
            logits = hl.zeros([tr, tv], dtype=torch.float32)
            for td in hl.tile(depth):
                logits = hl.dot(x[tr, td], w[tv, td].T, acc=logits)
            inside = (tv.index < vocabulary)[None, :]
            logits = torch.where(inside, logits, float("-inf"))
            new_peak = torch.maximum(peak, torch.amax(logits, dim=-1))
            grown = torch.exp(logits - new_peak[:, None]).sum(dim=-1)
            mass = mass * torch.exp(peak - new_peak) + grown
            hit = tv.index[None, :] == wanted[:, None]
            at_target = at_target + torch.where(hit, logits, 0.0).sum(dim=-1)
            peak = new_peak
        loss[tr] = peak + torch.log(mass) - at_target
    return loss


@helion.kernel(static_shapes=True, autotune_effort="none")
def nearest_centre(x: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """Squared distance of each row of x to its nearest centre, k held whole."""
    rows, depth = x.size()
    depth = hl.specialize(depth)
    count = centres.size(0)
    out = torch.empty([rows], dtype=torch.float32, device=x.device)
    for tr in hl.tile(rows):
        points = x[tr, :]
        best = hl.full([tr], float("inf"), dtype=torch.float32)
        for tc in hl.tile(count):
            others = centres[tc, :]
            size = torch.sum(others.to(torch.float32) * others.to(torch.float32), -1)
            cross = hl.dot(points, others.T, out_dtype=torch.float32)
            gap = size[None, :] - 2.0 * cross
            gap = torch.where((tc.index < count)[None, :], gap, float("inf"))
            best = torch.minimum(best, torch.amin(gap, dim=-1))
        wide = points.to(torch.float32)
        out[tr] = best + torch.sum(wide * wide, -1)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def rms_norm_linear(
    x: torch.Tensor, w: torch.Tensor, gain: torch.Tensor
) -> torch.Tensor:
    """rms_norm(x) @ w^T in one sweep of k: the row factor multiplies the sum."""
    rows, depth = x.size()
    cols = w.size(0)
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        squares = hl.zeros([tr], dtype=torch.float32)
        for td in hl.tile(depth):
            values = x[tr, td].to(torch.float32)
            squares = squares + torch.sum(values * values, dim=-1)
            gained = values * gain[td].to(torch.float32)[None, :]
            total = hl.dot(gained.to(x.dtype), w[tc, td].T, acc=total)
        factor = torch.rsqrt(squares / depth + 1e-6)
        y[tr, tc] = (total * factor[:, None]).to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def rms_norm_linear_two_pass(
    x: torch.Tensor, w: torch.Tensor, gain: torch.Tensor
) -> torch.Tensor:
    """rms_norm(x) @ w^T: one loop for the row factor, a second for the product."""
    rows, depth = x.size()
    cols = w.size(0)
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        squares = hl.zeros([tr], dtype=torch.float32)
        for td in hl.tile(depth):
            values = x[tr, td].to(torch.float32)
            squares = squares + torch.sum(values * values, dim=-1)
        factor = torch.rsqrt(squares / depth + 1e-6)
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            scaled = x[tr, td].to(torch.float32) * factor[:, None]
            scaled = scaled * gain[td].to(torch.float32)[None, :]
            total = hl.dot(scaled.to(x.dtype), w[tc, td].T, acc=total)
        y[tr, tc] = total.to(x.dtype)
    return y


def _ref_layer_norm(
    x: torch.Tensor, w: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor
) -> torch.Tensor:
    product = x.float() @ w.float()
    normed = torch.nn.functional.layer_norm(
        product, product.shape[-1:], gain.float(), shift.float(), 1e-5
    )
    return normed.to(x.dtype)


def _rms_factor(x: torch.Tensor) -> torch.Tensor:
    return torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def _ref_residual_rms_norm(
    x: torch.Tensor, w: torch.Tensor, residual: torch.Tensor, gain: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    h = residual.float() + x.float() @ w.float()
    return h.to(x.dtype), (h * _rms_factor(h) * gain.float()).to(x.dtype)


def _ref_router(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.float() @ w.float().T, -1)


def _ref_row_peak(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x.float() @ w.float().T).amax(-1)


def _ref_cross_entropy(
    x: torch.Tensor, w: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    logits = x.float() @ w.float().T
    return torch.nn.functional.cross_entropy(logits, target, reduction="none")


def _ref_nearest(x: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    return torch.cdist(x.float(), centres.float()).square().amin(-1)


def _ref_rms_linear(
    x: torch.Tensor, w: torch.Tensor, gain: torch.Tensor
) -> torch.Tensor:
    wide = x.float()
    return (wide * _rms_factor(wide) * gain.float() @ w.float().T).to(x.dtype)


def _case(
    kernel: object,
    reference: Any,
    variant: str,
    tiny: tuple[str, ...],
    *shapes: tuple[str, ...],
) -> KernelCase:
    return KernelCase(kernel, reference, "matmul_reduction", variant, tiny, shapes)


def _ln(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    row = f"{dtype}[{n}]"
    return (f"{dtype}[{m},{k}]", f"{dtype}[{k},{n}]", row, row)


def _rms(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    residual = f"{dtype}[{m},{n}]"
    return (f"{dtype}[{m},{k}]", f"{dtype}[{k},{n}]", residual, f"{dtype}[{n}]")


def _nt(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    return (f"{dtype}[{m},{k}]", f"{dtype}[{n},{k}]")


def _loss(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    return (*_nt(dtype, m, k, n), f"i64[{m}]@index({n})")


def _norm_first(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    return (*_nt(dtype, m, k, n), f"{dtype}[{k}]")


CASES = (
    _case(
        mm_layer_norm,
        _ref_layer_norm,
        "layer_norm_full_row",
        _ln("f16", 33, 48, 32),
        _ln("bf16", 4096, 1024, 512),
        _ln("bf16", 1024, 4096, 256),
        _ln("f16", 16384, 256, 128),
        _ln("bf16", 128, 2048, 1024),
        _ln("bf16", 8192, 768, 768),
        _ln("f32", 2048, 512, 256),
        _ln("bf16", 32, 64, 200),
        _ln("bf16", 2048, 512, 2048),
    ),
    _case(
        mm_residual_rms_norm,
        _ref_residual_rms_norm,
        "residual_rms_norm",
        _rms("f16", 33, 48, 32),
        _rms("bf16", 2048, 2048, 512),
        _rms("bf16", 64, 4096, 1024),
        _rms("f16", 8192, 512, 256),
        _rms("bf16", 1024, 1024, 1024),
        _rms("bf16", 16, 2048, 2048),
        _rms("f32", 1024, 512, 512),
        _rms("bf16", 32768, 128, 128),
        _rms("bf16", 500, 1500, 384),
    ),
    _case(
        router_softmax,
        _ref_router,
        "router_softmax",
        _nt("f16", 33, 48, 16),
        _nt("bf16", 4096, 4096, 64),
        _nt("bf16", 64, 7168, 256),
        _nt("f16", 16384, 2048, 128),
        _nt("bf16", 1, 2048, 128),
        _nt("bf16", 1024, 2880, 32),
        _nt("f32", 4096, 4096, 16),
        _nt("bf16", 256, 5120, 128),
        _nt("bf16", 8192, 1024, 60),
    ),
    _case(
        mm_row_peak,
        _ref_row_peak,
        "row_peak",
        _nt("f16", 33, 48, 40),
        _nt("bf16", 2048, 128, 8192),
        _nt("bf16", 1024, 1024, 4096),
        _nt("f16", 16384, 64, 1024),
        _nt("bf16", 4096, 768, 2048),
        _nt("bf16", 65536, 128, 256),
        _nt("f32", 2048, 128, 2048),
        _nt("bf16", 512, 2048, 32000),
        _nt("bf16", 3000, 300, 3000),
    ),
    _case(
        head_cross_entropy,
        _ref_cross_entropy,
        "running_log_sum_exp",
        _loss("f16", 33, 48, 40),
        _loss("bf16", 1024, 1024, 32000),
        _loss("bf16", 4096, 512, 8192),
        _loss("bf16", 2048, 2048, 16384),
        _loss("f16", 8192, 256, 10000),
        _loss("bf16", 512, 2048, 32000),
        _loss("bf16", 256, 1024, 128256),
        _loss("f32", 1024, 256, 8192),
        _loss("bf16", 16384, 768, 1024),
    ),
    _case(
        nearest_centre,
        _ref_nearest,
        "nearest_centre",
        _nt("f16", 33, 32, 40),
        _nt("bf16", 65536, 64, 1024),
        _nt("bf16", 16384, 128, 4096),
        _nt("f16", 131072, 32, 256),
        _nt("bf16", 8192, 256, 8192),
        _nt("bf16", 262144, 64, 128),
        _nt("f32", 16384, 64, 512),
        _nt("bf16", 4096, 128, 16384),
        _nt("bf16", 100000, 96, 500),
    ),
    _case(
        rms_norm_linear,
        _ref_rms_linear,
        "norm_first_one_pass",
        _norm_first("f16", 33, 48, 40),
        _norm_first("bf16", 16, 4096, 6144),
        _norm_first("bf16", 2048, 4096, 4096),
        _norm_first("f16", 256, 2048, 2048),
        _norm_first("bf16", 1, 5120, 10240),
        _norm_first("bf16", 1024, 2048, 6144),
        _norm_first("bf16", 64, 8192, 10240),
        _norm_first("f32", 512, 1024, 1024),
        _norm_first("bf16", 128, 2880, 5120),
    ),
    _case(
        rms_norm_linear_two_pass,
        _ref_rms_linear,
        "norm_first_two_pass",
        _norm_first("f16", 33, 48, 40),
        _norm_first("bf16", 16, 4096, 6144),
        _norm_first("bf16", 1024, 4096, 4096),
        _norm_first("f16", 256, 2048, 2048),
        _norm_first("bf16", 1, 4096, 28672),
        _norm_first("bf16", 4096, 1024, 3072),
        _norm_first("bf16", 64, 8192, 8192),
        _norm_first("f32", 512, 1024, 1024),
        _norm_first("bf16", 333, 1111, 2222),
    ),
)
