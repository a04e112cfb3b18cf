"""Matrix products with epilogues, operands and layouts of their own."""

from __future__ import annotations

import helion
import helion.language as hl
import torch
import torch.nn.functional as F

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "unseen_matmul"


def mish(x: torch.Tensor) -> torch.Tensor:
    """x tanh(softplus(x)), with softplus in a form that does not overflow."""
    soft = torch.log(1.0 + torch.exp(-torch.abs(x))) + torch.relu(x)
    return x * (1.0 - 2.0 / (torch.exp(2.0 * soft) + 1.0))


@helion.kernel(static_shapes=False)
def linear_mish(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """mish(x w^T + bias). x [m, k], w [n, k], bias [n]."""
    m, k = x.size()
    n = w.size(0)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], w[tile_n, tile_k].T)
        out[tile_m, tile_n] = mish(acc + bias[tile_n].to(torch.float32)).to(x.dtype)
    return out


def linear_mish_reference(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    return F.mish(F.linear(x.float(), w.float(), bias.float())).to(x.dtype)


@helion.kernel()
def linear_hard_swish_saved(
    x: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """z = x w and hard_swish(z); z is kept for the backward pass."""
    m, k = x.shape
    n = w.shape[1]
    pre = x.new_empty([m, n])
    out = x.new_empty([m, n])
    for tm, tn in hl.tile([m, n]):
        acc = hl.zeros([tm, tn], dtype=torch.float32)
        for tk in hl.tile(k):
            acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
        pre[tm, tn] = acc.to(pre.dtype)
        gate = torch.clamp(acc + 3.0, min=0.0, max=6.0)
        out[tm, tn] = (acc * gate * (1.0 / 6.0)).to(out.dtype)
    return pre, out


def linear_hard_swish_saved_reference(
    x: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    z = x.float() @ w.float()
    return z.to(x.dtype), F.hardswish(z).to(x.dtype)


@helion.kernel(static_shapes=True)
def complex_matmul(
    a_re: torch.Tensor, a_im: torch.Tensor, b_re: torch.Tensor, b_im: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Real and imaginary part of a complex product, planes kept apart."""
    m, k = a_re.size()
    n = b_re.size(1)
    c_re = torch.empty([m, n], dtype=torch.float32, device=a_re.device)
    c_im = torch.empty_like(c_re)
    for rows, cols in hl.tile([m, n]):
        re = hl.zeros([rows, cols], dtype=torch.float32)
        im = hl.zeros([rows, cols], dtype=torch.float32)
        for red in hl.tile(k):
            ar, ai = a_re[rows, red], a_im[rows, red]
            br, bi = b_re[red, cols], b_im[red, cols]
            re = re + torch.matmul(ar, br) - torch.matmul(ai, bi)
            im = im + torch.matmul(ar, bi) + torch.matmul(ai, br)
        c_re[rows, cols] = re
        c_im[rows, cols] = im
    return c_re, c_im


def complex_matmul_reference(
    a_re: torch.Tensor, a_im: torch.Tensor, b_re: torch.Tensor, b_im: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    a = torch.complex(a_re.float(), a_im.float())
    product = a @ torch.complex(b_re.float(), b_im.float())
    return product.real.contiguous(), product.imag.contiguous()


@helion.kernel()
def weighted_gram(x: torch.Tensor, weight: torch.Tensor, ridge: float) -> torch.Tensor:
    """x^T diag(weight) x + ridge I, the matrix of a weighted ridge regression."""
    n, d = x.size()
    out = torch.empty([d, d], dtype=torch.float32, device=x.device)
    for ti, tj in hl.tile([d, d]):
        acc = hl.zeros([ti, tj], dtype=torch.float32)
        for tn in hl.tile(n):
            left = x[tn, ti] * weight[tn][:, None]
            acc = torch.addmm(acc, left.to(x.dtype).T, x[tn, tj])
        diagonal = ti.index[:, None] == tj.index[None, :]
        out[ti, tj] = torch.where(diagonal, acc + ridge, acc)
    return out


def weighted_gram_reference(
    x: torch.Tensor, weight: torch.Tensor, ridge: float
) -> torch.Tensor:
    """Plain PyTorch."""
    left = (x * weight[:, None]).to(x.dtype).float()
    return left.T @ x.float() + ridge * torch.eye(x.size(1), device=x.device)


@helion.kernel(static_shapes=True)
def maxout_linear(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Largest of p affine pieces. x [m, k], w [p, k, n], bias [p, n]."""
    m, k = x.size()
    pieces, _, n = w.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        best = hl.full([tile_m, tile_n], float("-inf"), dtype=torch.float32)
        for piece in hl.grid(pieces):
            acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
            for tile_k in hl.tile(k):
                acc = torch.addmm(acc, x[tile_m, tile_k], w[piece, tile_k, tile_n])
            best = torch.maximum(best, acc + bias[piece, tile_n].to(torch.float32))
        out[tile_m, tile_n] = best.to(x.dtype)
    return out


def maxout_linear_reference(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    pieces = torch.einsum("mk,pkn->pmn", x.float(), w.float())
    return (pieces + bias.float()[:, None, :]).amax(0).to(x.dtype)


@helion.kernel(static_shapes=True)
def fp8_relu_requantise(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, scale: float, out_scale: float
) -> torch.Tensor:
    """relu(scale x w + bias) / out_scale in fp8. x [m, k] and w [k, n] in fp8."""
    m, k = x.size()
    n = w.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = hl.dot(x[tile_m, tile_k], w[tile_k, tile_n], acc=acc)
        y = torch.relu(acc * scale + bias[tile_n]) / out_scale
        out[tile_m, tile_n] = torch.clamp(y, max=448.0).to(out.dtype)
    return out


def fp8_relu_requantise_reference(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, scale: float, out_scale: float
) -> torch.Tensor:
    """Plain PyTorch."""
    y = torch.relu(x.float() @ w.float() * scale + bias) / out_scale
    return y.clamp(max=448.0).to(x.dtype)


def _gemm(m: int, k: int, n: int) -> tuple[str, ...]:
    return (f"bf16[{m},{k}]", f"bf16[{k},{n}]")


def _complex(m: int, k: int, n: int, dtype: str = "f16") -> tuple[str, ...]:
    return (*[f"{dtype}[{m},{k}]"] * 2, *[f"{dtype}[{k},{n}]"] * 2)


def _fp8(m: int, k: int, n: int) -> tuple[str, ...]:
    # Weights column-major, as tensor cores of this kind want them.
    weight = f"f8e4m3[{k},{n}]:1,{k}"
    return (f"f8e4m3[{m},{k}]", weight, f"f32[{n}]", "0.02", "0.25")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=linear_mish,
        reference=linear_mish_reference,
        family=FAMILY,
        variant="epilogue",
        tiny=("f32[20,32]", "f32[48,32]", "f32[48]"),
        shapes=(
            ("bf16[2048,1536]", "bf16[6144,1536]", "bf16[6144]"),
            ("f16[777,2048]", "f16[1000,2048]", "f16[1000]"),
        ),
        atol=1e-1,
    ),
    KernelCase(
        kernel=linear_hard_swish_saved,
        reference=linear_hard_swish_saved_reference,
        family=FAMILY,
        variant="two_outputs",
        tiny=("f32[20,32]", "f32[32,40]"),
        shapes=(_gemm(4096, 1280, 5120), _gemm(256, 3072, 8192)),
        atol=1e-1,
    ),
    KernelCase(
        kernel=complex_matmul,
        reference=complex_matmul_reference,
        family=FAMILY,
        variant="four_dots",
        tiny=_complex(20, 32, 24, "f32"),
        shapes=(_complex(1024, 1024, 2048), _complex(300, 2000, 500)),
        atol=1e-1,
    ),
    KernelCase(
        kernel=weighted_gram,
        reference=weighted_gram_reference,
        family=FAMILY,
        variant="transposed_operand",
        tiny=("f32[50,24]", "f32[50]@uniform", "0.5"),
        shapes=(
            ("bf16[65536,512]", "f32[65536]@uniform", "0.1"),
            ("f32[20000,300]", "f32[20000]@uniform", "1.0"),
        ),
        atol=1.0,
    ),
    KernelCase(
        kernel=maxout_linear,
        reference=maxout_linear_reference,
        family=FAMILY,
        variant="loop_of_pieces",
        tiny=("f32[20,32]", "f32[3,32,24]", "f32[3,24]"),
        shapes=(
            ("bf16[4096,1024]", "bf16[4,1024,1024]", "bf16[4,1024]"),
            ("f16[512,768]", "f16[2,768,3072]", "f16[2,3072]"),
        ),
        atol=1e-1,
    ),
    KernelCase(
        kernel=fp8_relu_requantise,
        reference=fp8_relu_requantise_reference,
        family=FAMILY,
        variant="fp8",
        tiny=("f8e4m3[32,32]", "f8e4m3[32,32]:1,32", "f32[32]", "0.1", "0.25"),
        shapes=(_fp8(4096, 4096, 6144), _fp8(64, 8192, 4096)),
        rtol=1.3e-1,
        atol=1e-1,
    ),
)
