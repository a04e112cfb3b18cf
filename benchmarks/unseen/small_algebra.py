"""Batches of small matrices, distances between all pairs, butterflies, rotations."""

from __future__ import annotations

import math

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "unseen_algebra"


@helion.kernel(static_shapes=True)
def newton_inverse(a: torch.Tensor, n_steps: hl.constexpr) -> torch.Tensor:
    """Inverses of positive definite a [b, s, s] by Newton's iteration, in f32."""
    b = a.size(0)
    s = hl.specialize(a.size(1))
    out = torch.empty_like(a)
    for ib in hl.tile(b, block_size=1):
        matrix = a[ib.begin, :, :]
        size = hl.arange(s)
        unit = (size[:, None] == size[None, :]).to(torch.float32)
        widest = torch.abs(matrix).sum(1).amax()
        guess = unit / widest
        for _ in hl.static_range(n_steps):
            rest = 2.0 * unit - hl.dot(matrix, guess)
            guess = hl.dot(guess, rest)
        out[ib.begin, :, :] = guess
    return out


def newton_inverse_reference(a: torch.Tensor, n_steps: int) -> torch.Tensor:
    """Plain PyTorch: the same steps, since few of them need not have converged."""
    unit = torch.eye(a.size(1), device=a.device)
    guess = unit / a.abs().sum(2).amax(1)[:, None, None]
    for _ in range(n_steps):
        guess = guess @ (2 * unit - a @ guess)
    return guess


@helion.kernel(static_shapes=True)
def power_iteration(a: torch.Tensor, start: torch.Tensor, n_steps: int) -> torch.Tensor:
    """Length of a v after so many normalised steps, for each of a [b, s, s]."""
    b = a.size(0)
    out = torch.empty([b], dtype=torch.float32, device=a.device)
    for tb in hl.tile(b):
        matrix = a[tb, :, :].to(torch.float32)
        v = start[tb, :].to(torch.float32)
        size = torch.sqrt((v * v).sum(-1))
        for _ in range(n_steps):
            v = (matrix * (v / size[:, None])[:, None, :]).sum(-1)
            size = torch.sqrt((v * v).sum(-1))
        out[tb] = size
    return out


def power_iteration_reference(
    a: torch.Tensor, start: torch.Tensor, n_steps: int
) -> torch.Tensor:
    """Plain PyTorch."""
    v = start.float()
    for _ in range(n_steps):
        unit = v / v.norm(dim=-1, keepdim=True)
        v = (a.float() * unit[:, None, :]).sum(-1)
    return v.norm(dim=-1)


@helion.kernel()
def city_block_distances(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Sum over coordinates of |x_i - y_j| for all pairs. x [m, d], y [n, d]."""
    m, d = x.shape
    n = y.shape[0]
    out = torch.empty([m, n], dtype=torch.float32, device=x.device)
    for ti, tj in hl.tile([m, n]):
        acc = hl.zeros([ti, tj], dtype=torch.float32)
        for td in hl.tile(d):
            gap = x[ti, td][:, None, :] - y[tj, td][None, :, :]
            acc = acc + torch.abs(gap).to(torch.float32).sum(-1)
        out[ti, tj] = acc
    return out


def city_block_distances_reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return torch.cdist(x.float(), y.float(), p=1.0)


@helion.kernel(static_shapes=True)
def gaussian_kernel_matvec(
    x: torch.Tensor, y: torch.Tensor, coefficient: torch.Tensor, gamma: float
) -> torch.Tensor:
    """sum_j exp(-gamma |x_i - y_j|^2) c_j without the kernel matrix. x [m, d]."""
    m, d = x.size()
    n = y.size(0)
    d = hl.specialize(d)
    out = torch.empty([m], dtype=torch.float32, device=x.device)
    for ti in hl.tile(m):
        left = x[ti, :]
        left_square = left.to(torch.float32).square().sum(-1)
        acc = hl.zeros([ti], dtype=torch.float32)
        for tj in hl.tile(n):
            right = y[tj, :]
            right_square = right.to(torch.float32).square().sum(-1)
            inner = hl.dot(left, right.T).to(torch.float32)
            square = left_square[:, None] + right_square[None, :] - 2.0 * inner
            weight = torch.exp(-gamma * torch.relu(square))
            acc = acc + (weight * coefficient[tj][None, :]).sum(-1)
        out[ti] = acc
    return out


def gaussian_kernel_matvec_reference(
    x: torch.Tensor, y: torch.Tensor, coefficient: torch.Tensor, gamma: float
) -> torch.Tensor:
    """Plain PyTorch."""
    square = x.float().square().sum(1)[:, None] + y.float().square().sum(1)[None, :]
    square = torch.relu(square - 2 * x.float() @ y.float().T)
    return torch.exp(-gamma * square) @ coefficient


@helion.kernel(static_shapes=True)
def hadamard_stage(x: torch.Tensor, half: hl.constexpr) -> torch.Tensor:
    """One butterfly of the Walsh-Hadamard transform: sums and differences. x [m, n]."""
    m, n = x.size()
    pairs = x.view(m, n // (2 * half), 2, half)
    out = torch.empty_like(pairs)
    for tm, tg, th in hl.tile([m, n // (2 * half), half]):
        a = pairs[tm, tg, 0, th]
        b = pairs[tm, tg, 1, th]
        out[tm, tg, 0, th] = (a + b) * math.sqrt(0.5)
        out[tm, tg, 1, th] = (a - b) * math.sqrt(0.5)
    return out.view(m, n)


def hadamard_stage_reference(x: torch.Tensor, half: int) -> torch.Tensor:
    """Plain PyTorch."""
    a, b = x.unflatten(1, (-1, 2, half)).unbind(2)
    both = torch.stack([a + b, a - b], 2) * math.sqrt(0.5)
    return both.flatten(1).to(x.dtype)


@helion.kernel(static_shapes=True)
def fft_stage(
    re: torch.Tensor, im: torch.Tensor, stride: hl.constexpr
) -> tuple[torch.Tensor, torch.Tensor]:
    """A radix-two stage of a Fourier transform, twiddles made on the way. re [m, n]."""
    m, n = re.size()
    half = n // 2
    out_re = torch.empty_like(re)
    out_im = torch.empty_like(im)
    for tm, tk in hl.tile([m, half]):
        block = tk.index // stride
        low = tk.index + block * stride
        high = low + stride
        angle = (tk.index % stride).to(torch.float32) * (-math.pi / stride)
        c = torch.cos(angle)[None, :]
        s = torch.sin(angle)[None, :]
        br, bi = re[tm, high], im[tm, high]
        tr = br * c - bi * s
        ti = br * s + bi * c
        ar, ai = re[tm, low], im[tm, low]
        out_re[tm, low] = ar + tr
        out_im[tm, low] = ai + ti
        out_re[tm, high] = ar - tr
        out_im[tm, high] = ai - ti
    return out_re, out_im


def fft_stage_reference(
    re: torch.Tensor, im: torch.Tensor, stride: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    a, b = torch.complex(re, im).unflatten(1, (-1, 2, stride)).unbind(2)
    place = torch.arange(stride, device=re.device) * (-math.pi / stride)
    b = b * torch.polar(torch.ones_like(place), place)
    out = torch.stack([a + b, a - b], 2).flatten(1)
    return out.real.contiguous(), out.imag.contiguous()


@helion.kernel(static_shapes=False)
def rotary_two_axes(
    x: torch.Tensor, row: torch.Tensor, column: torch.Tensor, base: hl.constexpr
) -> torch.Tensor:
    """Rotary positions of a grid: first half of d by row, second by column.

    x [t, heads, 2, 2, d / 4], row and column [t] with places.
    """
    t, heads, _, _, quarter = x.size()
    quarter = hl.specialize(quarter)
    out = torch.empty_like(x)
    for tt, th in hl.tile([t, heads]):
        power = hl.arange(quarter).to(torch.float32) * (-math.log2(base) / quarter)
        speed = torch.exp2(power)
        for axis in hl.static_range(2):
            place = row[tt] if axis == 0 else column[tt]
            angle = place.to(torch.float32)[:, None] * speed[None, :]
            c = torch.cos(angle)[:, None, :]
            s = torch.sin(angle)[:, None, :]
            a = x[tt, th, axis, 0, :].to(torch.float32)
            b = x[tt, th, axis, 1, :].to(torch.float32)
            out[tt, th, axis, 0, :] = (a * c - b * s).to(x.dtype)
            out[tt, th, axis, 1, :] = (b * c + a * s).to(x.dtype)
    return out


def rotary_two_axes_reference(
    x: torch.Tensor, row: torch.Tensor, column: torch.Tensor, base: float
) -> torch.Tensor:
    """Plain PyTorch."""
    quarter = x.size(-1)
    power = torch.arange(quarter, device=x.device) / quarter
    place = torch.stack([row, column], 1).float()
    angle = place[:, None, :, None] * base**-power
    a, b = x.float().unbind(3)
    c, s = angle.cos(), angle.sin()
    return torch.stack([a * c - b * s, b * c + a * s], 3).to(x.dtype)


def _grid(
    t: int, heads: int, d: int, side: int, dtype: str = "bf16"
) -> tuple[str, ...]:
    place = f"i32[{t}]@index({side})"
    return (f"{dtype}[{t},{heads},2,2,{d // 4}]", place, place, "100.0")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=newton_inverse,
        reference=newton_inverse_reference,
        family=FAMILY,
        variant="iterated_dots",
        tiny=("f32[3,16,16]@uniform", "3"),
        shapes=(("f32[4096,32,32]@uniform", "6"), ("f32[1000,64,64]@uniform", "4")),
    ),
    KernelCase(
        kernel=power_iteration,
        reference=power_iteration_reference,
        family=FAMILY,
        variant="iterated_sums",
        tiny=("f32[3,16,16]@uniform", "f32[3,16]@ones", "4"),
        shapes=(
            ("f32[16384,32,32]@uniform", "f32[16384,32]@ones", "16"),
            ("f16[2000,128,128]@uniform", "f16[2000,128]@ones", "8"),
        ),
    ),
    KernelCase(
        kernel=city_block_distances,
        reference=city_block_distances_reference,
        family=FAMILY,
        variant="all_pairs_no_dot",
        tiny=("f32[10,20]", "f32[12,20]"),
        shapes=(
            ("f32[2048,128]", "f32[4096,128]"),
            ("f32[1000,300]", "f32[1000,300]"),
        ),
    ),
    KernelCase(
        kernel=gaussian_kernel_matvec,
        reference=gaussian_kernel_matvec_reference,
        family=FAMILY,
        variant="all_pairs_dot",
        tiny=("f32[20,16]", "f32[24,16]", "f32[24]", "0.02"),
        shapes=(
            ("f16[8192,64]", "f16[32768,64]", "f32[32768]", "0.005"),
            ("bf16[2000,128]", "bf16[10000,128]", "f32[10000]", "0.005"),
        ),
        atol=5e-1,
    ),
    KernelCase(
        kernel=hadamard_stage,
        reference=hadamard_stage_reference,
        family=FAMILY,
        variant="butterfly_view",
        tiny=("f32[5,32]", "4"),
        shapes=(("f32[8192,4096]", "64"), ("bf16[16384,2048]", "4")),
    ),
    KernelCase(
        kernel=fft_stage,
        reference=fft_stage_reference,
        family=FAMILY,
        variant="butterfly_index",
        tiny=("f32[5,32]", "f32[5,32]", "4"),
        shapes=(
            ("f32[4096,4096]", "f32[4096,4096]", "256"),
            ("f32[1000,1024]", "f32[1000,1024]", "8"),
        ),
    ),
    KernelCase(
        kernel=rotary_two_axes,
        reference=rotary_two_axes_reference,
        family=FAMILY,
        variant="rotary_grid",
        tiny=_grid(10, 3, 32, 4, "f32"),
        shapes=(_grid(16384, 16, 64, 32), _grid(4096, 12, 128, 64, "f16")),
    ),
)
