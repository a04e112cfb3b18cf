"""Matrix products followed by work on the output tile before it is stored."""

from __future__ import annotations

from typing import Any

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase


@helion.kernel(static_shapes=True, autotune_effort="none")
def mm_bias_gelu(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """gelu(x @ w + bias): first half of a transformer's feed-forward block."""
    rows, depth = x.size()
    _, cols = w.size()
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = torch.addmm(total, x[tr, td], w[td, tc])
        y[tr, tc] = torch.nn.functional.gelu(total + bias[tc]).to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def linear_bias_residual(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor
) -> torch.Tensor:
    """residual + x @ w^T + bias: an output projection with its skip connection."""
    rows, depth = x.size()
    cols, _ = w.size()
    y = torch.empty_like(residual)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = hl.dot(x[tr, td], w[tc, td].T, acc=total)
        skip = residual[tr, tc].to(torch.float32)
        total = total + skip + bias[tc].to(torch.float32)[None, :]
        y[tr, tc] = total.to(residual.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def linear_residual_start(
    x: torch.Tensor, w: torch.Tensor, residual: torch.Tensor
) -> torch.Tensor:
    """residual + x @ w^T, the residual loaded first as the accumulator's start."""
    rows, depth = x.size()
    cols, _ = w.size()
    y = torch.empty_like(residual)
    for tr, tc in hl.tile([rows, cols]):
        total = residual[tr, tc].to(torch.float32)
        for td in hl.tile(depth):
            total = hl.dot(x[tr, td], w[tc, td].T, acc=total)
        y[tr, tc] = total.to(residual.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def mm_silu_times(x: torch.Tensor, w: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(x @ w) * up, where `up` [m, n] was computed before."""
    rows, depth = x.size()
    _, cols = w.size()
    y = torch.empty_like(up)
    for tr, tc in hl.tile([rows, cols]):
        gate = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            gate = torch.addmm(gate, x[tr, td], w[td, tc])
        gated = gate * torch.sigmoid(gate) * up[tr, tc].to(torch.float32)
        y[tr, tc] = gated.to(up.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def mm_row_scale(
    x: torch.Tensor, w: torch.Tensor, row_scale: torch.Tensor
) -> torch.Tensor:
    """row_scale[:, None] * (x @ w): routed experts weigh each token's output."""
    rows, depth = x.size()
    _, cols = w.size()
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = torch.addmm(total, x[tr, td], w[td, tc])
        y[tr, tc] = (total * row_scale[tr][:, None]).to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def mm_square_relu(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """relu(x @ w^T)^2, the activation of some long-context models."""
    rows, depth = x.size()
    cols, _ = w.size()
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = hl.dot(x[tr, td], w[tc, td].T, acc=total)
        positive = torch.relu(total)
        y[tr, tc] = (positive * positive).to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def mm_soft_cap(x: torch.Tensor, w: torch.Tensor, cap: float) -> torch.Tensor:
    """cap * tanh(x @ w^T / cap) in fp32: a language-model head with bounded logits."""
    rows, depth = x.size()
    cols, _ = w.size()
    y = torch.empty([rows, cols], dtype=torch.float32, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = hl.dot(x[tr, td], w[tc, td].T, acc=total)
        y[tr, tc] = cap * torch.tanh(total / cap)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def mm_to_fp8(
    x: torch.Tensor, w: torch.Tensor, inverse_scale: torch.Tensor
) -> torch.Tensor:
    """x @ w quantised to fp8 (e4m3, at most 448) with one static scale."""
    rows, depth = x.size()
    _, cols = w.size()
    q = torch.empty([rows, cols], dtype=torch.float8_e4m3fn, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = torch.addmm(total, x[tr, td], w[td, tc])
        scaled = torch.clamp(total * inverse_scale[0], -448.0, 448.0)
        q[tr, tc] = scaled.to(torch.float8_e4m3fn)
    return q


@helion.kernel(static_shapes=True, autotune_effort="none")
def skinny_square_gate(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """3 * x * sigmoid(x @ w): squeeze-and-excite with the whole weight held."""
    rows, width = x.size()
    width = hl.specialize(width)
    y = torch.empty_like(x)
    for tr in hl.tile(rows):
        gate = torch.matmul(x[tr, :], w[:, :]).to(torch.float32)
        gated = x[tr, :].to(torch.float32) * torch.sigmoid(gate) * 3.0
        y[tr, :] = gated.to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def tiled_square_gate(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """3 * x * sigmoid(x @ w) with columns and k tiled, for widths too large to hold."""
    rows, width = x.size()
    y = torch.empty_like(x)
    for tr, tc in hl.tile([rows, width]):
        gate = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(width):
            gate = torch.addmm(gate, x[tr, td], w[td, tc])
        gated = x[tr, tc].to(torch.float32) * torch.sigmoid(gate) * 3.0
        y[tr, tc] = gated.to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def project_and_rotate(
    x: torch.Tensor, w: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Query projection with rotary embedding: x [t, k], w [k, heads, 2, d/2].

    Both halves of a head are two dots over one load of x; `cos` and `sin` are [t, d/2].
    """
    tokens, depth = x.size()
    _, heads, _, half = w.size()
    half = hl.specialize(half)
    y = torch.empty([tokens, heads, 2, half], dtype=x.dtype, device=x.device)
    for tt, th in hl.tile([tokens, heads], block_size=[None, 1]):
        head = th.begin
        first = hl.zeros([tt, half], dtype=torch.float32)
        second = hl.zeros([tt, half], dtype=torch.float32)
        for td in hl.tile(depth):
            xs = x[tt, td]
            first = hl.dot(xs, w[td, head, 0, :], acc=first)
            second = hl.dot(xs, w[td, head, 1, :], acc=second)
        c = cos[tt, :].to(torch.float32)
        s = sin[tt, :].to(torch.float32)
        y[tt, head, 0, :] = (first * c - second * s).to(x.dtype)
        y[tt, head, 1, :] = (second * c + first * s).to(x.dtype)
    return y


def _ref_bias_gelu(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    total = x.float() @ w.float() + bias.float()
    return torch.nn.functional.gelu(total).to(x.dtype)


def _ref_bias_residual(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor
) -> torch.Tensor:
    total = x.float() @ w.float().T + bias.float() + residual.float()
    return total.to(residual.dtype)


def _ref_residual(
    x: torch.Tensor, w: torch.Tensor, residual: torch.Tensor
) -> torch.Tensor:
    return (x.float() @ w.float().T + residual.float()).to(residual.dtype)


def _ref_silu_times(x: torch.Tensor, w: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    gate = torch.nn.functional.silu(x.float() @ w.float())
    return (gate * up.float()).to(up.dtype)


def _ref_row_scale(
    x: torch.Tensor, w: torch.Tensor, row_scale: torch.Tensor
) -> torch.Tensor:
    return (x.float() @ w.float() * row_scale[:, None]).to(x.dtype)


def _ref_square_relu(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(x.float() @ w.float().T).square().to(x.dtype)


def _ref_soft_cap(x: torch.Tensor, w: torch.Tensor, cap: float) -> torch.Tensor:
    return cap * torch.tanh(x.float() @ w.float().T / cap)


def _ref_to_fp8(
    x: torch.Tensor, w: torch.Tensor, inverse_scale: torch.Tensor
) -> torch.Tensor:
    scaled = (x.float() @ w.float() * inverse_scale[0]).clamp(-448.0, 448.0)
    return scaled.to(torch.float8_e4m3fn)


def _ref_square_gate(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    gate = torch.sigmoid(x.float() @ w.float())
    return (x.float() * gate * 3.0).to(x.dtype)


def _ref_project_and_rotate(
    x: torch.Tensor, w: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    first, second = torch.einsum("tk,khpd->pthd", x.float(), w.float())
    c = cos.float()[:, None, :]
    s = sin.float()[:, None, :]
    return torch.stack([first * c - second * s, second * c + first * s], 2).to(x.dtype)


def _case(
    kernel: object,
    reference: Any,
    variant: str,
    tiny: tuple[str, ...],
    *shapes: tuple[str, ...],
    rtol: float = 2e-2,
) -> KernelCase:
    return KernelCase(
        kernel, reference, "matmul_epilogue", variant, tiny, shapes, rtol=rtol
    )


def _nn(dtype: str, m: int, k: int, n: int, *more: str) -> tuple[str, ...]:
    return (f"{dtype}[{m},{k}]", f"{dtype}[{k},{n}]", *more)


def _nt(dtype: str, m: int, k: int, n: int, *more: str) -> tuple[str, ...]:
    return (f"{dtype}[{m},{k}]", f"{dtype}[{n},{k}]", *more)


def _bias(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    return _nn(dtype, m, k, n, f"{dtype}[{n}]")


def _bias_skip(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    return _nt(dtype, m, k, n, f"{dtype}[{n}]", f"{dtype}[{m},{n}]")


def _skip(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    return _nt(dtype, m, k, n, f"{dtype}[{m},{n}]")


def _up(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    return _nn(dtype, m, k, n, f"{dtype}[{m},{n}]")


def _scale(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    return _nn(dtype, m, k, n, f"f32[{m}]")


def _fp8_out(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    return _nn(dtype, m, k, n, "f32[1]")


def _rotary(dtype: str, t: int, k: int, heads: int, d: int) -> tuple[str, ...]:
    half = d // 2
    angles = f"{dtype}[{t},{half}]"
    return (f"{dtype}[{t},{k}]", f"{dtype}[{k},{heads},2,{half}]", angles, angles)


CASES = (
    _case(
        mm_bias_gelu,
        _ref_bias_gelu,
        "bias_gelu",
        _bias("f16", 33, 48, 40),
        _bias("bf16", 1024, 2048, 4096),
        _bias("bf16", 32, 4096, 14336),
        _bias("f16", 4096, 1024, 4096),
        _bias("bf16", 8192, 768, 3072),
        _bias("bf16", 1, 5120, 20480),
        _bias("f32", 512, 1024, 4096),
        _bias("bf16", 197, 1280, 5120),
        _bias("bf16", 256, 8192, 8192),
    ),
    _case(
        linear_bias_residual,
        _ref_bias_residual,
        "bias_residual",
        _bias_skip("f16", 33, 48, 40),
        _bias_skip("bf16", 2048, 4096, 4096),
        _bias_skip("bf16", 16, 14336, 4096),
        _bias_skip("f16", 1024, 3072, 768),
        _bias_skip("bf16", 128, 5120, 5120),
        _bias_skip("bf16", 8192, 2048, 2048),
        _bias_skip("bf16", 1, 8192, 8192),
        _bias_skip("f32", 1024, 1024, 1024),
        _bias_skip("bf16", 577, 4096, 1024),
    ),
    _case(
        linear_residual_start,
        _ref_residual,
        "residual_start",
        _skip("f16", 33, 48, 40),
        _skip("bf16", 64, 4096, 4096),
        _skip("bf16", 4096, 4096, 4096),
        _skip("bf16", 512, 11008, 4096),
        _skip("f16", 8, 2048, 2048),
        _skip("bf16", 2048, 6144, 2048),
        _skip("bf16", 256, 25600, 5120),
        _skip("f32", 2048, 1024, 1024),
        _skip("bf16", 24, 5120, 5120),
    ),
    _case(
        mm_silu_times,
        _ref_silu_times,
        "silu_times",
        _up("f16", 33, 48, 40),
        _up("bf16", 64, 4096, 11008),
        _up("bf16", 1024, 4096, 14336),
        _up("f16", 2048, 2048, 5632),
        _up("bf16", 8, 5120, 25600),
        _up("bf16", 8192, 2048, 6144),
        _up("bf16", 256, 2880, 2880),
        _up("f32", 256, 2048, 4096),
        _up("bf16", 1, 8192, 28672),
    ),
    _case(
        mm_row_scale,
        _ref_row_scale,
        "row_scale",
        _scale("f16", 33, 48, 40),
        _scale("f16", 4096, 1536, 4096),
        _scale("bf16", 128, 768, 2048),
        _scale("bf16", 2048, 14336, 2048),
        _scale("bf16", 16, 2048, 7168),
        _scale("bf16", 8192, 768, 2048),
        _scale("f16", 1000, 500, 200),
        _scale("f32", 1024, 512, 1024),
        _scale("bf16", 64, 3072, 5120),
    ),
    _case(
        mm_square_relu,
        _ref_square_relu,
        "square_relu",
        _nt("f16", 33, 48, 40),
        _nt("bf16", 4096, 1024, 4096),
        _nt("bf16", 32, 2048, 8192),
        _nt("bf16", 512, 6144, 24576),
        _nt("f16", 8192, 768, 3072),
        _nt("bf16", 1, 6144, 24576),
        _nt("bf16", 256, 4096, 16384),
        _nt("f32", 512, 768, 3072),
        _nt("bf16", 1023, 2047, 4095),
    ),
    _case(
        mm_soft_cap,
        _ref_soft_cap,
        "soft_cap",
        _nt("f16", 33, 48, 40, "30.0"),
        _nt("bf16", 16, 2304, 256000, "30.0"),
        _nt("bf16", 1024, 2048, 32000, "30.0"),
        _nt("bf16", 1, 4096, 128256, "50.0"),
        _nt("f16", 256, 1024, 50257, "15.0"),
        _nt("bf16", 128, 3584, 152064, "30.0"),
        _nt("bf16", 2048, 4096, 8192, "50.0"),
        _nt("bf16", 4, 5120, 151936, "30.0"),
        _nt("f32", 64, 1024, 32000, "30.0"),
    ),
    _case(
        mm_to_fp8,
        _ref_to_fp8,
        "to_fp8",
        _fp8_out("f16", 33, 48, 40),
        _fp8_out("bf16", 1024, 4096, 4096),
        _fp8_out("bf16", 16, 7168, 1536),
        _fp8_out("f16", 256, 2048, 8192),
        _fp8_out("bf16", 8192, 1024, 2048),
        _fp8_out("bf16", 1, 4096, 6144),
        _fp8_out("bf16", 64, 8192, 10240),
        _fp8_out("f32", 512, 1024, 1024),
        _fp8_out("bf16", 4096, 5120, 5120),
        # One rounding step of e4m3 is 1/8 of the value.
        rtol=0.13,
    ),
    _case(
        skinny_square_gate,
        _ref_square_gate,
        "gate_whole_weight",
        ("f16[33,32]", "f16[32,32]"),
        ("bf16[65536,64]", "bf16[64,64]"),
        ("bf16[262144,128]", "bf16[128,128]"),
        ("f16[16384,32]", "f16[32,32]"),
        ("bf16[8192,256]", "bf16[256,256]"),
        ("f32[65536,64]", "f32[64,64]"),
        ("bf16[1024,128]", "bf16[128,128]"),
        ("bf16[1048576,64]", "bf16[64,64]"),
        ("f16[100003,128]", "f16[128,128]"),
    ),
    _case(
        tiled_square_gate,
        _ref_square_gate,
        "gate_tiled",
        ("f16[33,48]", "f16[48,48]"),
        ("bf16[1024,1024]", "bf16[1024,1024]"),
        ("bf16[16384,512]", "bf16[512,512]"),
        ("bf16[64,4096]", "bf16[4096,4096]"),
        ("f16[4096,2048]", "f16[2048,2048]"),
        ("bf16[65536,128]", "bf16[128,128]"),
        ("bf16[8,8192]", "bf16[8192,8192]"),
        ("f32[2048,512]", "f32[512,512]"),
        ("bf16[3000,1000]", "bf16[1000,1000]"),
    ),
    _case(
        project_and_rotate,
        _ref_project_and_rotate,
        "project_rotate",
        _rotary("f16", 33, 48, 3, 32),
        _rotary("bf16", 1024, 4096, 32, 128),
        _rotary("bf16", 16, 4096, 32, 128),
        _rotary("f16", 4096, 2048, 16, 128),
        _rotary("bf16", 256, 5120, 40, 128),
        _rotary("bf16", 1, 8192, 64, 128),
        _rotary("bf16", 8192, 2048, 8, 128),
        _rotary("bf16", 2048, 768, 12, 64),
        _rotary("f32", 512, 1024, 16, 64),
    ),
)
