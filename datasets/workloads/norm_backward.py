"""Norms' gradients: by row for the input, over all rows for the weight.

The weight's gradient collapses the long axis: by columns, by atomics, or by a fixed
number of partial sums, three programs with very different best configs.
"""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "norm_backward"


@helion.kernel(static_shapes=True, autotune_effort="none")
def rms_norm_dx(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, rstd: torch.Tensor
) -> torch.Tensor:
    """Input gradient of x * rstd * w, whole rows. dy, x [m, n]; w [n]; rstd [m]."""
    m, _ = x.size()
    dx = torch.empty_like(x)
    for rows in hl.tile(m):
        r = rstd[rows].to(torch.float32)[:, None]
        xhat = x[rows, :].to(torch.float32) * r
        g = dy[rows, :].to(torch.float32) * w[:].to(torch.float32)[None, :]
        inner = (g * xhat).mean(-1)
        dx[rows, :] = (r * (g - xhat * inner[:, None])).to(x.dtype)
    return dx


def rms_norm_dx_reference(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, rstd: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    r = rstd.float()[:, None]
    xhat = x.float() * r
    g = dy.float() * w.float()
    return (r * (g - xhat * (g * xhat).mean(-1, keepdim=True))).to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def rms_norm_dx_looped(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, rstd: torch.Tensor
) -> torch.Tensor:
    """The same with two column loops."""
    m, n = x.size()
    dx = torch.empty_like(x)
    block_n = hl.register_block_size(n)
    for rows in hl.tile(m):
        r = rstd[rows].to(torch.float32)
        total = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(n, block_size=block_n):
            g = dy[rows, cols].to(torch.float32) * w[cols].to(torch.float32)[None, :]
            total = total + (g * x[rows, cols].to(torch.float32)).sum(-1)
        inner = total * r * r / n
        for cols in hl.tile(n, block_size=block_n):
            g = dy[rows, cols].to(torch.float32) * w[cols].to(torch.float32)[None, :]
            v = x[rows, cols].to(torch.float32)
            dx[rows, cols] = (r[:, None] * (g - v * inner[:, None])).to(x.dtype)
    return dx


@helion.kernel(static_shapes=True, autotune_effort="none")
def layer_norm_dx(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
) -> torch.Tensor:
    """Input gradient of a layer norm from saved statistics; mean, rstd [m]."""
    m, _ = x.size()
    dx = torch.empty_like(x)
    for rows in hl.tile(m):
        r = rstd[rows].to(torch.float32)[:, None]
        centred = x[rows, :].to(torch.float32) - mean[rows].to(torch.float32)[:, None]
        xhat = centred * r
        g = dy[rows, :].to(torch.float32) * w[:].to(torch.float32)[None, :]
        c1 = (g * xhat).mean(-1)
        c2 = g.mean(-1)
        dx[rows, :] = ((g - xhat * c1[:, None] - c2[:, None]) * r).to(x.dtype)
    return dx


def layer_norm_dx_reference(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
) -> torch.Tensor:
    """Plain PyTorch."""
    r = rstd.float()[:, None]
    xhat = (x.float() - mean.float()[:, None]) * r
    g = dy.float() * w.float()
    c1 = (g * xhat).mean(-1, keepdim=True)
    return ((g - xhat * c1 - g.mean(-1, keepdim=True)) * r).to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def norm_dw_columns(
    dy: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor
) -> torch.Tensor:
    """Weight gradient sum_m dy * x * rstd: a program per column block, rows looped."""
    m, n = x.size()
    dw = torch.empty([n], dtype=torch.float32, device=x.device)
    for cols in hl.tile(n):
        total = hl.zeros([cols], dtype=torch.float32)
        for rows in hl.tile(m):
            v = x[rows, cols].to(torch.float32) * rstd[rows].to(torch.float32)[:, None]
            total = total + (v * dy[rows, cols].to(torch.float32)).sum(0)
        dw[cols] = total
    return dw


def norm_dw_reference(
    dy: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    return (dy.float() * x.float() * rstd.float()[:, None]).sum(0)


@helion.kernel(static_shapes=True, autotune_effort="none")
def norm_dw_atomic(
    dy: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor
) -> torch.Tensor:
    """The same over a grid of row and column blocks that add atomically."""
    m, n = x.size()
    dw = torch.zeros([n], dtype=torch.float32, device=x.device)
    for rows, cols in hl.tile([m, n]):
        v = x[rows, cols].to(torch.float32) * rstd[rows].to(torch.float32)[:, None]
        part = (v * dy[rows, cols].to(torch.float32)).sum(0)
        hl.atomic_add(dw, [cols], part)
    return dw


@helion.kernel(static_shapes=True, autotune_effort="none")
def norm_dw_partials(
    dy: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor, parts: hl.constexpr
) -> torch.Tensor:
    """Partial weight gradients [parts, n], each over m / parts rows."""
    m, n = x.size()
    span = m // parts
    dw = torch.empty([parts, n], dtype=torch.float32, device=x.device)
    for part, cols in hl.tile([parts, n], block_size=[1, None]):
        total = hl.zeros([cols], dtype=torch.float32)
        for rows in hl.tile(part.begin * span, (part.begin + 1) * span):
            v = x[rows, cols].to(torch.float32) * rstd[rows].to(torch.float32)[:, None]
            total = total + (v * dy[rows, cols].to(torch.float32)).sum(0)
        dw[part.begin, cols] = total
    return dw


def norm_dw_partials_reference(
    dy: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor, parts: int
) -> torch.Tensor:
    """Plain PyTorch."""
    product = dy.float() * x.float() * rstd.float()[:, None]
    return product.view(parts, -1, x.size(1)).sum(1)


@helion.kernel(static_shapes=True, autotune_effort="none")
def rms_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    rstd: torch.Tensor,
    parts: hl.constexpr,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both gradients in one sweep: dx [m, n] and partial dw [parts, n]."""
    m, n = x.size()
    n = hl.specialize(n)
    span = m // parts
    dx = torch.empty_like(x)
    dw = torch.empty([parts, n], dtype=torch.float32, device=x.device)
    for part in hl.grid(parts):
        total = hl.zeros([n], dtype=torch.float32)
        for rows in hl.tile(part * span, (part + 1) * span):
            r = rstd[rows].to(torch.float32)[:, None]
            xhat = x[rows, :].to(torch.float32) * r
            upstream = dy[rows, :].to(torch.float32)
            total = total + (upstream * xhat).sum(0)
            g = upstream * w[:].to(torch.float32)[None, :]
            inner = (g * xhat).mean(-1)
            dx[rows, :] = (r * (g - xhat * inner[:, None])).to(x.dtype)
        dw[part, :] = total
    return dx, dw


def rms_norm_backward_reference(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    rstd: torch.Tensor,
    parts: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    return (
        rms_norm_dx_reference(dy, x, w, rstd),
        norm_dw_partials_reference(dy, x, rstd, parts),
    )


def _dx(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]", f"{dtype}[{m},{n}]", f"{dtype}[{n}]", f"f32[{m}]@ones")


def _layer(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    row = f"f32[{m}]"
    return (f"{dtype}[{m},{n}]", f"{dtype}[{m},{n}]", f"{dtype}[{n}]", row, row)


def _dw(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]", f"{dtype}[{m},{n}]", f"f32[{m}]@ones")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=rms_norm_dx,
        reference=rms_norm_dx_reference,
        family=FAMILY,
        variant="dx_one_pass",
        tiny=_dx(5, 96),
        shapes=(
            _dx(4096, 4096),
            _dx(2048, 16384),
            _dx(16384, 2048),
            _dx(8192, 5120, "f16"),
            _dx(2048, 1024),
            _dx(8192, 7168),
            _dx(32768, 1023),
            _dx(2048, 8192, "f32"),
        ),
    ),
    KernelCase(
        kernel=rms_norm_dx_looped,
        reference=rms_norm_dx_reference,
        family=FAMILY,
        variant="dx_looped",
        tiny=_dx(5, 96),
        shapes=(
            _dx(8192, 4096),
            _dx(2048, 32768),
            _dx(16384, 2880),
            _dx(1024, 8192),
            _dx(4096, 12288),
            _dx(65536, 512),
            _dx(4096, 5120, "f32"),
            _dx(512, 5120),
        ),
    ),
    KernelCase(
        kernel=layer_norm_dx,
        reference=layer_norm_dx_reference,
        family=FAMILY,
        variant="dx_one_pass",
        tiny=_layer(5, 96),
        shapes=(
            _layer(4096, 8192),
            _layer(16384, 1024, "f16"),
            _layer(4096, 2560),
            _layer(4096, 15872, "f16"),
            _layer(2048, 5120, "f32"),
            _layer(65536, 768),
            _layer(1024, 4096),
            _layer(8192, 4097),
        ),
    ),
    KernelCase(
        kernel=norm_dw_columns,
        reference=norm_dw_reference,
        family=FAMILY,
        variant="dw_columns",
        tiny=_dw(24, 96),
        shapes=(
            _dw(4096, 4096),
            _dw(16384, 1024),
            _dw(2048, 16384, "f16"),
            _dw(8192, 5120),
            _dw(65536, 256, "f32"),
            _dw(1024, 8192),
            _dw(4096, 2880),
            _dw(8191, 3071),
        ),
        rtol=1e-2,
        atol=1e-1,
    ),
    KernelCase(
        kernel=norm_dw_atomic,
        reference=norm_dw_reference,
        family=FAMILY,
        variant="dw_atomic",
        tiny=_dw(24, 96),
        shapes=(
            _dw(8192, 4096),
            _dw(2048, 1024),
            _dw(32768, 512, "f32"),
            _dw(4096, 8192, "f16"),
            _dw(16384, 2048),
            _dw(100000, 384),
            _dw(1024, 5120),
            _dw(4096, 12288),
        ),
        rtol=1e-2,
        atol=1e-1,
    ),
    KernelCase(
        kernel=norm_dw_partials,
        reference=norm_dw_partials_reference,
        family=FAMILY,
        variant="dw_partials",
        tiny=(*_dw(24, 96), "4"),
        shapes=(
            (*_dw(8192, 4096), "64"),
            (*_dw(32768, 1024), "256"),
            (*_dw(4096, 16384, "f16"), "32"),
            (*_dw(2048, 5120), "128"),
            (*_dw(16384, 2880), "64"),
            (*_dw(65536, 512, "f32"), "512"),
            (*_dw(8192, 8192), "16"),
            (*_dw(1024, 2048), "32"),
        ),
        rtol=1e-2,
        atol=1e-1,
    ),
    KernelCase(
        kernel=rms_norm_backward,
        reference=rms_norm_backward_reference,
        family=FAMILY,
        variant="dx_and_dw_partials",
        tiny=(*_dx(24, 64), "4"),
        shapes=(
            (*_dx(4096, 4096), "256"),
            (*_dx(16384, 1024), "256"),
            (*_dx(2048, 8192), "128"),
            (*_dx(8192, 2048, "f16"), "512"),
            (*_dx(32768, 512), "512"),
            (*_dx(2048, 2048, "f32"), "128"),
            (*_dx(8192, 5120), "128"),
            (*_dx(1024, 4096), "128"),
        ),
        rtol=1e-2,
        atol=1e-1,
    ),
)
