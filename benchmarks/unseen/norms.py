"""Normalisations and their gradients: weight, batch, instance, gated groups."""

from __future__ import annotations

import helion
import helion.language as hl
import torch
import torch.nn.functional as F

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "unseen_norm"


@helion.kernel(static_shapes=False)
def weight_norm_rows(v: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """g v / |v| by row, the reparametrised weight. v [n, k], g [n]."""
    n, _k = v.size()
    out = torch.empty_like(v)
    for tile_n in hl.tile(n):
        row = v[tile_n, :].to(torch.float32)
        length = torch.sqrt(torch.sum(row * row, dim=-1))
        factor = g[tile_n].to(torch.float32) / length
        out[tile_n, :] = (row * factor[:, None]).to(v.dtype)
    return out


def weight_norm_rows_reference(v: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    unit = v.float() / v.float().norm(dim=-1, keepdim=True)
    return (unit * g.float()[:, None]).to(v.dtype)


@helion.kernel(static_shapes=True)
def weight_norm_gradients(
    grad: torch.Tensor, v: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of v and g from that of the weight; the row is read twice."""
    n, k = v.size()
    dv = torch.empty_like(v)
    dg = torch.empty_like(g)
    for rows in hl.tile(n):
        square = hl.zeros([rows], dtype=torch.float32)
        along = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(k):
            w = v[rows, cols].to(torch.float32)
            square += (w * w).sum(1)
            along += (w * grad[rows, cols].to(torch.float32)).sum(1)
        inverse = torch.rsqrt(square)
        slope = along * inverse
        dg[rows] = slope.to(dg.dtype)
        gain = g[rows].to(torch.float32) * inverse
        for cols in hl.tile(k):
            unit = v[rows, cols].to(torch.float32) * inverse[:, None]
            pull = grad[rows, cols].to(torch.float32) - unit * slope[:, None]
            dv[rows, cols] = (pull * gain[:, None]).to(dv.dtype)
    return dv, dg


def weight_norm_gradients_reference(
    grad: torch.Tensor, v: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    w, up = v.float(), grad.float()
    length = w.norm(dim=-1, keepdim=True)
    unit = w / length
    slope = (unit * up).sum(-1, keepdim=True)
    dv = (up - unit * slope) * (g.float()[:, None] / length)
    return dv.to(v.dtype), slope[:, 0].to(g.dtype)


@helion.kernel(static_shapes=True)
def batch_norm_train(
    x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Batch norm over rows of [n, c], with the mean and variance it used."""
    n, c = x.size()
    out = torch.empty_like(x)
    mean = torch.empty([c], dtype=torch.float32, device=x.device)
    var = torch.empty_like(mean)
    for tc in hl.tile(c):
        first = hl.zeros([tc], dtype=torch.float32)
        second = hl.zeros([tc], dtype=torch.float32)
        for tn in hl.tile(n):
            part = x[tn, tc].to(torch.float32)
            first = first + part.sum(0)
            second = second + (part * part).sum(0)
        mu = first / n
        variance = second / n - mu * mu
        mean[tc] = mu
        var[tc] = variance
        gain = torch.rsqrt(variance + eps) * gamma[tc].to(torch.float32)
        shift = beta[tc].to(torch.float32) - mu * gain
        for tn in hl.tile(n):
            part = x[tn, tc].to(torch.float32)
            out[tn, tc] = (part * gain[None, :] + shift[None, :]).to(x.dtype)
    return out, mean, var


def batch_norm_train_reference(
    x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    z = x.float()
    mean, var = z.mean(0), z.var(0, unbiased=False)
    y = F.batch_norm(z, mean, var, gamma.float(), beta.float(), eps=eps)
    return y.to(x.dtype), mean, var


@helion.kernel()
def instance_norm_planes(x: torch.Tensor, slope: float) -> torch.Tensor:
    """leaky_relu of each plane of [b, c, h, w] at zero mean and unit variance."""
    b, c, h, w = x.size()
    planes = x.view(b * c, h * w)
    out = torch.empty_like(planes)
    for tile in hl.tile(b * c):
        z = planes[tile, :].to(torch.float32)
        centred = z - z.mean(dim=1, keepdim=True)
        y = centred * torch.rsqrt(centred.square().mean(dim=1, keepdim=True) + 1e-5)
        out[tile, :] = torch.where(y > 0, y, slope * y).to(x.dtype)
    return out.view(b, c, h, w)


def instance_norm_planes_reference(x: torch.Tensor, slope: float) -> torch.Tensor:
    """Plain PyTorch."""
    return F.leaky_relu(F.instance_norm(x.float()), slope).to(x.dtype)


@helion.kernel(static_shapes=True)
def gated_group_rms(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, group: hl.constexpr
) -> torch.Tensor:
    """RMS norm within groups of columns of x silu(gate), times weight. x [t, d]."""
    t, d = x.size()
    group = hl.specialize(group)
    x3, gate3 = x.view(t, d // group, group), gate.view(t, d // group, group)
    weight2 = weight.view(d // group, group)
    out = torch.empty_like(x3)
    for tt, tg in hl.tile([t, d // group]):
        z = gate3[tt, tg, :].to(torch.float32)
        y = x3[tt, tg, :].to(torch.float32) * z * torch.sigmoid(z)
        scale = torch.rsqrt(torch.mean(y * y, dim=-1) + 1e-6)
        w = weight2[tg, :].to(torch.float32)
        out[tt, tg, :] = (y * scale[:, :, None] * w[None, :, :]).to(x.dtype)
    return out.view(t, d)


def gated_group_rms_reference(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, group: int
) -> torch.Tensor:
    """Plain PyTorch."""
    y = (x.float() * F.silu(gate.float())).unflatten(-1, (-1, group))
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)
    return (y.flatten(-2) * weight.float()).to(x.dtype)


def _bn(n: int, c: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{n},{c}]", f"f32[{c}]", f"f32[{c}]", "1e-5")


def _gated(t: int, d: int, group: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (*[f"{dtype}[{t},{d}]"] * 2, f"{dtype}[{d}]", str(group))


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=weight_norm_rows,
        reference=weight_norm_rows_reference,
        family=FAMILY,
        variant="whole_row",
        tiny=("f32[10,48]", "f32[10]"),
        shapes=(
            ("bf16[4096,11008]", "bf16[4096]"),
            ("f32[1536,2304]", "f32[1536]"),
        ),
    ),
    KernelCase(
        kernel=weight_norm_gradients,
        reference=weight_norm_gradients_reference,
        family=FAMILY,
        variant="backward_looped",
        tiny=("f32[10,48]", "f32[10,48]", "f32[10]"),
        shapes=(
            ("bf16[4096,8192]", "bf16[4096,8192]", "bf16[4096]"),
            ("f32[3000,1000]", "f32[3000,1000]", "f32[3000]"),
        ),
    ),
    KernelCase(
        kernel=batch_norm_train,
        reference=batch_norm_train_reference,
        family=FAMILY,
        variant="columns_two_pass",
        tiny=_bn(40, 24, "f32"),
        shapes=(_bn(16384, 1024), _bn(50176, 64, "f16")),
    ),
    KernelCase(
        kernel=instance_norm_planes,
        reference=instance_norm_planes_reference,
        family=FAMILY,
        variant="planes",
        tiny=("f32[2,3,6,8]", "0.2"),
        shapes=(("f16[8,128,64,64]", "0.2"), ("f32[4,96,112,112]", "0.01")),
    ),
    KernelCase(
        kernel=gated_group_rms,
        reference=gated_group_rms_reference,
        family=FAMILY,
        variant="groups_of_columns",
        tiny=_gated(6, 32, 8, "f32"),
        shapes=(_gated(8192, 4096, 512), _gated(2000, 6144, 128)),
    ),
)
