"""Norms over the last dimension, forward: several ways of writing each.

Shapes: hidden sizes of language models, vision-like tall ones, and odd widths.
"""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "norm_forward"
EPS = 1e-5


@helion.kernel(static_shapes=True, autotune_effort="none")
def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * w, whole rows at once. x [m, n], w [n]."""
    m, _ = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        v = x[rows, :].to(torch.float32)
        mean_square = torch.mean(v * v, dim=-1)
        scaled = v * torch.rsqrt(mean_square + EPS)[:, None]
        out[rows, :] = (scaled * w[:].to(torch.float32)).to(x.dtype)
    return out


def rms_norm_reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    v = x.float()
    y = v * torch.rsqrt(v.square().mean(-1, keepdim=True) + EPS)
    return (y * w.float()).to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def rms_norm_two_pass(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The same with explicit column loops: sum of squares, then scaling."""
    m, n = x.size()
    out = torch.empty_like(x)
    block_n = hl.register_block_size(n)
    for rows in hl.tile(m):
        total = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(n, block_size=block_n):
            v = x[rows, cols].to(torch.float32)
            total = total + (v * v).sum(-1)
        scale = torch.rsqrt(total / n + EPS)
        for cols in hl.tile(n, block_size=block_n):
            v = x[rows, cols].to(torch.float32)
            y = v * scale[:, None] * w[cols].to(torch.float32)[None, :]
            out[rows, cols] = y.to(x.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def scale_rows(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Root-mean-square norm that multiplies the weight in the input's dtype."""
    m, _ = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        v = x[rows, :].to(torch.float32)
        r = torch.rsqrt((v * v).mean(-1) + EPS)
        out[rows, :] = (v * r[:, None]).to(x.dtype) * w[:][None, :]
    return out


def scale_rows_reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    v = x.float()
    return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + EPS)).to(x.dtype) * w


@helion.kernel(static_shapes=True, autotune_effort="none")
def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """s = x + residual; returns the norm of s, and s. All [m, n]."""
    m, _ = x.size()
    out = torch.empty_like(x)
    total = torch.empty_like(x)
    for rows in hl.tile(m):
        s = x[rows, :].to(torch.float32) + residual[rows, :].to(torch.float32)
        total[rows, :] = s.to(x.dtype)
        r = torch.rsqrt((s * s).mean(-1) + EPS)
        out[rows, :] = (s * r[:, None] * w[:].to(torch.float32)).to(x.dtype)
    return out, total


def add_rms_norm_reference(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    s = x.float() + residual.float()
    y = s * torch.rsqrt(s.square().mean(-1, keepdim=True) + EPS)
    return (y * w.float()).to(x.dtype), s.to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def layer_norm(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float
) -> torch.Tensor:
    """(x - mean) / std * w + b with whole rows at once, variance from deviations."""
    m, _ = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        v = x[rows, :].to(torch.float32)
        centred = v - torch.mean(v, dim=-1)[:, None]
        variance = torch.mean(centred * centred, dim=-1)
        y = centred * torch.rsqrt(variance + eps)[:, None]
        y = y * w[:].to(torch.float32) + b[:].to(torch.float32)
        out[rows, :] = y.to(x.dtype)
    return out


def layer_norm_reference(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float
) -> torch.Tensor:
    """Plain PyTorch."""
    v = x.float()
    y = torch.nn.functional.layer_norm(v, (x.size(1),), w.float(), b.float(), eps)
    return y.to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def layer_norm_two_pass(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float
) -> torch.Tensor:
    """Column loops: sum and sum of squares in one pass, then normalise."""
    m, n = x.size()
    out = torch.empty_like(x)
    block_n = hl.register_block_size(n)
    for rows in hl.tile(m):
        total = hl.zeros([rows], dtype=torch.float32)
        squares = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(n, block_size=block_n):
            v = x[rows, cols].to(torch.float32)
            total = total + v.sum(-1)
            squares = squares + (v * v).sum(-1)
        mean = total / n
        scale = torch.rsqrt(squares / n - mean * mean + eps)
        for cols in hl.tile(n, block_size=block_n):
            v = x[rows, cols].to(torch.float32)
            y = (v - mean[:, None]) * scale[:, None]
            y = y * w[cols].to(torch.float32)[None, :]
            y = y + b[cols].to(torch.float32)[None, :]
            out[rows, cols] = y.to(x.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def layer_norm_merge(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float
) -> torch.Tensor:
    """Column blocks' means and squared deviations merged pairwise (Chan et al.)."""
    m, n = x.size()
    out = torch.empty_like(x)
    block_n = hl.register_block_size(n)
    for rows in hl.tile(m):
        count = hl.zeros([rows], dtype=torch.float32)
        mean = hl.zeros([rows], dtype=torch.float32)
        m2 = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(n, block_size=block_n):
            inside = (cols.index < n)[None, :]
            v = x[rows, cols].to(torch.float32)
            size = torch.where(inside, 1.0, 0.0 * v).sum(-1)
            block_mean = v.sum(-1) / size
            deviation = torch.where(inside, v - block_mean[:, None], 0.0)
            block_m2 = (deviation * deviation).sum(-1)
            both = count + size
            delta = block_mean - mean
            mean = mean + delta * size / both
            m2 = m2 + block_m2 + delta * delta * count * size / both
            count = both
        scale = torch.rsqrt(m2 / n + eps)
        for cols in hl.tile(n, block_size=block_n):
            v = x[rows, cols].to(torch.float32)
            y = (v - mean[:, None]) * scale[:, None]
            y = y * w[cols].to(torch.float32)[None, :]
            y = y + b[cols].to(torch.float32)[None, :]
            out[rows, cols] = y.to(x.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def group_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Each of [batch, groups, size] rows normalised; w, b [groups, size]."""
    batch, groups, _ = x.size()
    out = torch.empty_like(x)
    for images, parts in hl.tile([batch, groups]):
        v = x[images, parts, :].to(torch.float32)
        centred = v - v.mean(-1)[:, :, None]
        variance = (centred * centred).mean(-1)
        y = centred * torch.rsqrt(variance + EPS)[:, :, None]
        y = y * w[parts, :].to(torch.float32)[None, :, :]
        y = y + b[parts, :].to(torch.float32)[None, :, :]
        out[images, parts, :] = y.to(x.dtype)
    return out


def group_norm_reference(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    v = x.float()
    centred = v - v.mean(-1, keepdim=True)
    y = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPS)
    return (y * w.float() + b.float()).to(x.dtype)


def _rms(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]", f"{dtype}[{n}]")


def _add_rms(m: int, n: int) -> tuple[str, ...]:
    return (f"bf16[{m},{n}]", f"bf16[{m},{n}]", f"bf16[{n}]")


def _layer(m: int, n: int, dtype: str = "f16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]", f"{dtype}[{n}]", f"{dtype}[{n}]", "1e-5")


def _group(batch: int, groups: int, size: int) -> tuple[str, ...]:
    return (f"bf16[{batch},{groups},{size}]",) + (f"bf16[{groups},{size}]",) * 2


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=rms_norm,
        reference=rms_norm_reference,
        family=FAMILY,
        variant="one_pass",
        tiny=_rms(5, 96),
        shapes=(
            _rms(8192, 4096),
            _rms(2048, 8192),
            _rms(145956, 384, "f16"),
            _rms(4096, 5120),
            _rms(128, 5120),
            _rms(16384, 2047),
            _rms(2048, 32768),
            _rms(262144, 128),
            _rms(4096, 7168),
        ),
    ),
    KernelCase(
        kernel=rms_norm_two_pass,
        reference=rms_norm_reference,
        family=FAMILY,
        variant="two_pass",
        tiny=_rms(5, 96),
        shapes=(
            _rms(4096, 4096),
            _rms(1024, 16384),
            _rms(8192, 5120, "f16"),
            _rms(32768, 1536),
            _rms(256, 8192),
            _rms(2048, 36864),
            _rms(65536, 512),
            _rms(4096, 3071),
        ),
    ),
    KernelCase(
        kernel=scale_rows,
        reference=scale_rows_reference,
        family=FAMILY,
        variant="one_pass",
        tiny=_rms(5, 96),
        shapes=(
            _rms(2048, 4096),
            _rms(16384, 2880),
            _rms(8192, 7168),
            _rms(64, 8192),
            _rms(380668, 512, "f16"),
            _rms(4096, 12288),
            _rms(16384, 1023),
            _rms(8192, 2048, "f32"),
        ),
    ),
    KernelCase(
        kernel=add_rms_norm,
        reference=add_rms_norm_reference,
        family=FAMILY,
        variant="fused_residual",
        tiny=_add_rms(5, 96),
        shapes=(
            _add_rms(4096, 5120),
            _add_rms(16384, 2048),
            _add_rms(1024, 8192),
            _add_rms(32, 4096),
            _add_rms(8192, 7168),
            _add_rms(8192, 2880),
            _add_rms(256, 5120),
            _add_rms(2048, 14336),
        ),
    ),
    KernelCase(
        kernel=layer_norm,
        reference=layer_norm_reference,
        family=FAMILY,
        variant="one_pass",
        tiny=_layer(5, 96),
        shapes=(
            _layer(4096, 4096),
            _layer(4096, 16384),
            _layer(32768, 1024),
            _layer(8192, 7168, "bf16"),
            _layer(1152, 36864),
            _layer(2048, 3584),
            _layer(65536, 768, "f32"),
            _layer(128, 4096),
        ),
    ),
    KernelCase(
        kernel=layer_norm_two_pass,
        reference=layer_norm_reference,
        family=FAMILY,
        variant="two_pass",
        tiny=_layer(5, 96),
        shapes=(
            _layer(8192, 4096),
            _layer(4096, 15872),
            _layer(1024, 36864),
            _layer(16384, 1536, "bf16"),
            _layer(4096, 2560, "f32"),
            _layer(512, 8192),
            _layer(100000, 384),
            _layer(4096, 5119),
        ),
    ),
    KernelCase(
        kernel=layer_norm_merge,
        reference=layer_norm_reference,
        family=FAMILY,
        variant="merged_moments",
        tiny=_layer(5, 96),
        shapes=(
            _layer(65536, 1536, "f32"),
            _layer(4096, 8192, "bf16"),
            _layer(16384, 3072),
            _layer(2048, 12288, "f32"),
            _layer(262144, 512, "bf16"),
            _layer(1024, 5120),
            _layer(4096, 4095),
            _layer(8192, 2048, "bf16"),
        ),
    ),
    KernelCase(
        kernel=group_norm,
        reference=group_norm_reference,
        family=FAMILY,
        variant="one_pass_3d",
        tiny=_group(2, 3, 64),
        shapes=(
            _group(1024, 32, 1024),
            _group(256, 8, 16384),
            _group(4096, 32, 128),
            _group(64, 32, 8192),
            _group(512, 16, 2560),
            _group(2048, 40, 128),
            _group(16, 32, 16384),
            _group(8192, 8, 256),
        ),
    ),
)
