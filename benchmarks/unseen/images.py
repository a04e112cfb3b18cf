"""Images: resampling, stencils, pooling, edges, rearranged pixels."""

from __future__ import annotations

import helion
import helion.language as hl
import torch
import torch.nn.functional as F

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "unseen_image"


@helion.kernel(static_shapes=True)
def bilinear_resize(image: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Resize planes [p, h, w] bilinearly, pixel centres aligned, edges clamped."""
    planes, h, w = image.size()
    height, width = hl.specialize(height), hl.specialize(width)
    out = torch.empty([planes, height, width], dtype=image.dtype, device=image.device)
    for tp, ty, tx in hl.tile([planes, height, width]):
        y = (ty.index.to(torch.float32) + 0.5) * (h / height) - 0.5
        x = (tx.index.to(torch.float32) + 0.5) * (w / width) - 0.5
        y = torch.clamp(y, min=0.0, max=h - 1.0)
        x = torch.clamp(x, min=0.0, max=w - 1.0)
        y0 = y.to(torch.int32)
        x0 = x.to(torch.int32)
        y1 = torch.clamp(y0 + 1, max=h - 1)
        x1 = torch.clamp(x0 + 1, max=w - 1)
        fy = (y - y0.to(torch.float32))[None, :, None]
        fx = (x - x0.to(torch.float32))[None, None, :]
        above = image[tp, y0, x0] * (1.0 - fx) + image[tp, y0, x1] * fx
        below = image[tp, y1, x0] * (1.0 - fx) + image[tp, y1, x1] * fx
        out[tp, ty, tx] = (above * (1.0 - fy) + below * fy).to(image.dtype)
    return out


def bilinear_resize_reference(
    image: torch.Tensor, height: int, width: int
) -> torch.Tensor:
    """Plain PyTorch."""
    size = (height, width)
    planes = image.float()[None]
    return F.interpolate(planes, size, mode="bilinear")[0].to(image.dtype)


@helion.kernel(static_shapes=True)
def jacobi_sweep(u: torch.Tensor, f: torch.Tensor, h2: float) -> torch.Tensor:
    """One Jacobi sweep of the five-point Poisson stencil; the rim stays. u [n, m]."""
    n, m = u.size()
    out = u.clone()
    for ty, tx in hl.tile([n - 2, m - 2]):
        y = ty.index + 1
        x = tx.index + 1
        around = u[y - 1, x] + u[y + 1, x] + u[y, x - 1] + u[y, x + 1]
        out[y, x] = 0.25 * (around - h2 * f[y, x])
    return out


def jacobi_sweep_reference(u: torch.Tensor, f: torch.Tensor, h2: float) -> torch.Tensor:
    """Plain PyTorch."""
    out = u.clone()
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    out[1:-1, 1:-1] = 0.25 * (around - h2 * f[1:-1, 1:-1])
    return out


@helion.kernel(static_shapes=False)
def average_pool_3x3(x: torch.Tensor) -> torch.Tensor:
    """Mean of each 3 x 3 neighbourhood inside the image. x [b, h, w, c], as given."""
    b, h, w, c = x.size()
    out = torch.empty_like(x)
    for ib, ty, tx, tc in hl.tile([b, h, w, c], block_size=[1, None, None, None]):
        total = hl.zeros([ty, tx, tc], dtype=torch.float32)
        count = hl.zeros([ty, tx], dtype=torch.float32)
        for dy in hl.static_range(3):
            for dx in hl.static_range(3):
                yy = ty.index + dy - 1
                xx = tx.index + dx - 1
                inside_y = (yy >= 0) & (yy < h)
                inside = inside_y[:, None] & ((xx >= 0) & (xx < w))[None, :]
                keep = inside[:, :, None] & (tc.index < c)[None, None, :]
                part = hl.load(x, [ib.begin, yy, xx, tc], extra_mask=keep)
                total = total + part.to(torch.float32)
                count = count + inside.to(torch.float32)
        mean = total / torch.clamp(count, min=1.0)[:, :, None]
        out[ib.begin, ty, tx, tc] = mean.to(x.dtype)
    return out


def average_pool_3x3_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    planes = x.float().permute(0, 3, 1, 2)
    pooled = F.avg_pool2d(planes, 3, 1, 1, count_include_pad=False)
    return pooled.permute(0, 2, 3, 1).to(x.dtype).contiguous()


@helion.kernel()
def edge_strength(image: torch.Tensor) -> torch.Tensor:
    """Length of the Sobel gradient of padded planes [p, h + 2, w + 2]."""
    p, hp, wp = image.shape
    h, w = hp - 2, wp - 2
    out = torch.empty([p, h, w], dtype=torch.float32, device=image.device)
    for tp, ty, tx in hl.tile([p, h, w]):
        nw = image[tp, ty.index, tx.index].to(torch.float32)
        north = image[tp, ty.index, tx.index + 1].to(torch.float32)
        ne = image[tp, ty.index, tx.index + 2].to(torch.float32)
        west = image[tp, ty.index + 1, tx.index].to(torch.float32)
        east = image[tp, ty.index + 1, tx.index + 2].to(torch.float32)
        sw = image[tp, ty.index + 2, tx.index].to(torch.float32)
        south = image[tp, ty.index + 2, tx.index + 1].to(torch.float32)
        se = image[tp, ty.index + 2, tx.index + 2].to(torch.float32)
        gx = ne + 2.0 * east + se - nw - 2.0 * west - sw
        gy = sw + 2.0 * south + se - nw - 2.0 * north - ne
        out[tp, ty, tx] = torch.sqrt(gx * gx + gy * gy)
    return out


def edge_strength_reference(image: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    x = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]], device=image.device)
    taps = torch.stack([x, x.T])[:, None]
    # Convolution in tf32 would round the pixels; these sums are exact.
    patches = image.float().unfold(1, 3, 1).unfold(2, 3, 1)
    gradient = torch.einsum("phwij,oij->ophw", patches, taps[:, 0])
    return gradient.square().sum(0).sqrt()


@helion.kernel(static_shapes=True)
def dilated_conv1d(x: torch.Tensor, w: torch.Tensor, gap: hl.constexpr) -> torch.Tensor:
    """Causal convolution with `gap` between taps. x [b, t, c], w [taps, c, o]."""
    b, t, c = x.size()
    taps, _, o = w.size()
    out = torch.empty([b, t, o], dtype=x.dtype, device=x.device)
    for ib, tt, to in hl.tile([b, t, o], block_size=[1, None, None]):
        acc = hl.zeros([tt, to], dtype=torch.float32)
        for tap in hl.grid(taps):
            when = tt.index - (taps - 1 - tap) * gap
            for tc in hl.tile(c):
                keep = (when >= 0)[:, None] & (tc.index < c)[None, :]
                part = hl.load(x, [ib.begin, when, tc], extra_mask=keep)
                acc = torch.addmm(acc, part, w[tap, tc, to])
        out[ib.begin, tt, to] = torch.tanh(acc).to(x.dtype)
    return out


def dilated_conv1d_reference(
    x: torch.Tensor, w: torch.Tensor, gap: int
) -> torch.Tensor:
    """Plain PyTorch."""
    taps = w.size(0)
    padded = F.pad(x.float(), (0, 0, (taps - 1) * gap, 0))
    out = x.new_zeros(x.size(0), x.size(1), w.size(2), dtype=torch.float32)
    for tap in range(taps):
        part = padded[:, tap * gap : tap * gap + x.size(1)]
        out = out + part @ w[tap].float()
    return torch.tanh(out).to(x.dtype)


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=bilinear_resize,
        reference=bilinear_resize_reference,
        family=FAMILY,
        variant="gather_four",
        tiny=("f32[3,8,10]", "12", "14"),
        shapes=(("f32[96,224,224]", "336", "336"), ("f16[512,64,64]", "128", "128")),
    ),
    KernelCase(
        kernel=jacobi_sweep,
        reference=jacobi_sweep_reference,
        family=FAMILY,
        variant="five_points",
        tiny=("f32[14,18]", "f32[14,18]", "0.01"),
        shapes=(
            ("f32[4098,4098]", "f32[4098,4098]", "0.001"),
            ("f32[1000,1500]", "f32[1000,1500]", "0.01"),
        ),
    ),
    KernelCase(
        kernel=average_pool_3x3,
        reference=average_pool_3x3_reference,
        family=FAMILY,
        variant="pool_channels_last",
        tiny=("f32[2,6,8,10]",),
        shapes=(("bf16[32,56,56,256]",), ("f16[8,112,112,96]",)),
    ),
    KernelCase(
        kernel=edge_strength,
        reference=edge_strength_reference,
        family=FAMILY,
        variant="eight_neighbours",
        tiny=("f32[2,10,12]",),
        shapes=(("f32[16,1026,1026]",), ("u8[8,1082,1922]",)),
    ),
    KernelCase(
        kernel=dilated_conv1d,
        reference=dilated_conv1d_reference,
        family=FAMILY,
        variant="dilated_causal",
        tiny=("f32[2,24,16]", "f32[3,16,16]", "2"),
        shapes=(
            ("bf16[8,4096,256]", "bf16[3,256,512]", "8"),
            ("f16[16,1000,512]", "f16[2,512,512]", "64"),
        ),
    ),
)
