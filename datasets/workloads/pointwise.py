"""Pointwise kernels: broadcasts, casts, long chains, transposes, random numbers."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "pointwise"


@helion.kernel(static_shapes=True, autotune_effort="none")
def plus(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a + b of equal shapes, any strides."""
    out = torch.empty(a.size(), dtype=a.dtype, device=a.device)
    for tile in hl.tile(a.size()):
        out[tile] = a[tile] + b[tile]
    return out


def plus_reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return (a + b).contiguous()


@helion.kernel(static_shapes=True, autotune_effort="none")
def add_broadcast(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """x + b with b broadcast to x's shape."""
    x, b = torch.broadcast_tensors(x, b)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] + b[tile]
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def bias_relu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """max(x + bias, 0) squared, bias by column."""
    m, n = x.size()
    out = torch.empty_like(x)
    for rows, cols in hl.tile([m, n]):
        v = x[rows, cols].to(torch.float32) + bias[cols].to(torch.float32)[None, :]
        v = torch.relu(v)
        out[rows, cols] = (v * v).to(x.dtype)
    return out


def bias_relu_reference(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return (x.float() + bias.float()).relu().square().to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def cast_scale(x: torch.Tensor, scale: float) -> torch.Tensor:
    """bf16(x * scale) over the flattened input."""
    out = torch.empty(x.size(), dtype=torch.bfloat16, device=x.device)
    flat = x.view(-1)
    flat_out = out.view(-1)
    for tile in hl.tile(flat.size(0)):
        flat_out[tile] = (flat[tile].to(torch.float32) * scale).to(torch.bfloat16)
    return out


def cast_scale_reference(x: torch.Tensor, scale: float) -> torch.Tensor:
    """Plain PyTorch."""
    return (x.float() * scale).to(torch.bfloat16)


@helion.kernel(static_shapes=True, autotune_effort="none")
def horner_chain(x: torch.Tensor, rounds: hl.constexpr) -> torch.Tensor:
    """`rounds` dependent fused multiply-adds per element: arithmetic over memory."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        v = x[tile].to(torch.float32)
        y = v
        for _ in hl.static_range(rounds):
            y = y * 0.5 + v
        out[tile] = y.to(x.dtype)
    return out


def horner_chain_reference(x: torch.Tensor, rounds: int) -> torch.Tensor:
    """Plain PyTorch."""
    v = x.float()
    y = v
    for _ in range(rounds):
        y = y * 0.5 + v
    return y.to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def special_functions(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A sum of transcendental functions: special-function units are the limit."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        a = x[tile].to(torch.float32)
        b = y[tile].to(torch.float32)
        v = torch.sin(a) * torch.cos(b) + torch.tanh(a) + torch.erf(b)
        v = v + torch.log1p(torch.exp(-torch.abs(a))) + torch.sqrt(torch.abs(b) + 1.0)
        v = v + torch.exp2(-a * a) * torch.rsqrt(b * b + 1.0)
        out[tile] = v.to(x.dtype)
    return out


def special_functions_reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    a, b = x.float(), y.float()
    v = a.sin() * b.cos() + a.tanh() + b.erf()
    v = v + torch.log1p((-a.abs()).exp()) + (b.abs() + 1).sqrt()
    v = v + torch.exp2(-a * a) * torch.rsqrt(b * b + 1)
    return v.to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def hash_dropout(x: torch.Tensor, keep: float, seed: int) -> torch.Tensor:
    """Dropout by an integer hash of the flat position; reproducible by hand."""
    out = torch.empty_like(x)
    flat = x.view(-1)
    flat_out = out.view(-1)
    for tile in hl.tile(flat.size(0)):
        # One round of a multiply-xorshift hash; 15 bits give the uniform number.
        h = (tile.index + seed) * 1103515245 + 12345
        h = (h ^ (h >> 13)) * 69069 + 1
        uniform = ((h >> 15) & 32767).to(torch.float32) * (1.0 / 32768.0)
        v = flat[tile].to(torch.float32) / keep
        flat_out[tile] = torch.where(uniform < keep, v, 0.0).to(x.dtype)
    return out


def hash_dropout_reference(x: torch.Tensor, keep: float, seed: int) -> torch.Tensor:
    """Plain PyTorch; integers wrap at 32 bits as on the device."""
    h = torch.arange(x.numel(), dtype=torch.int32, device=x.device)
    h = (h + seed) * 1103515245 + 12345
    h = (h ^ (h >> 13)) * 69069 + 1
    uniform = ((h >> 15) & 32767).float() / 32768.0
    v = torch.where(uniform < keep, x.float().view(-1) / keep, 0.0)
    return v.view_as(x).to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def philox_noise_sign(x: torch.Tensor, seed: int) -> torch.Tensor:
    """1 + floor(u) with u uniform in [0, 1) from Philox, times x: checks itself."""
    m, n = x.size()
    out = torch.empty_like(x)
    for rows, cols in hl.tile([m, n]):
        u = hl.rand([rows, cols], seed=seed)
        out[rows, cols] = (x[rows, cols] * (1.0 + torch.floor(u))).to(x.dtype)
    return out


def philox_noise_sign_reference(x: torch.Tensor, seed: int) -> torch.Tensor:
    """Plain PyTorch: floor of a number in [0, 1) is zero."""
    return x.clone()


@helion.kernel(static_shapes=True, autotune_effort="none")
def transpose_copy(x: torch.Tensor) -> torch.Tensor:
    """x [m, n] copied to a contiguous [n, m]: one side is always uncoalesced."""
    m, n = x.size()
    out = torch.empty([n, m], dtype=x.dtype, device=x.device)
    for rows, cols in hl.tile([m, n]):
        out[cols, rows] = x[rows, cols].transpose(0, 1)
    return out


def transpose_copy_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return x.t().contiguous()


@helion.kernel(static_shapes=True, autotune_effort="none")
def heads_to_tokens(x: torch.Tensor) -> torch.Tensor:
    """[batch, heads, length, dim] copied to [batch, length, heads, dim]."""
    batch, heads, length, dim = x.size()
    out = torch.empty([batch, length, heads, dim], dtype=x.dtype, device=x.device)
    for b, h, t in hl.tile([batch, heads, length]):
        out[b, t, h, :] = x[b, h, t, :].permute(0, 2, 1, 3)
    return out


def heads_to_tokens_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return x.transpose(1, 2).contiguous()


@helion.kernel(static_shapes=True, autotune_effort="none")
def outer_mix(x: torch.Tensor, row: torch.Tensor, col: torch.Tensor) -> torch.Tensor:
    """x * row[:, None] + col[None, :], two broadcasts at once."""
    m, n = x.size()
    out = torch.empty_like(x)
    for rows, cols in hl.tile([m, n]):
        v = x[rows, cols].to(torch.float32) * row[rows].to(torch.float32)[:, None]
        out[rows, cols] = (v + col[cols].to(torch.float32)[None, :]).to(x.dtype)
    return out


def outer_mix_reference(
    x: torch.Tensor, row: torch.Tensor, col: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    return (x.float() * row.float()[:, None] + col.float()).to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def adam_step(
    p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor, rate: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One Adam update of flat parameters; moments in f32, bias correction folded in."""
    new_p = torch.empty_like(p)
    new_m = torch.empty_like(m)
    new_v = torch.empty_like(v)
    for tile in hl.tile(p.size(0)):
        grad = g[tile].to(torch.float32)
        first = 0.9 * m[tile] + 0.1 * grad
        second = 0.95 * v[tile] + 0.05 * grad * grad
        new_m[tile] = first
        new_v[tile] = second
        step = rate * first / (torch.sqrt(second) + 1e-8)
        new_p[tile] = (p[tile].to(torch.float32) * (1.0 - 0.01 * rate) - step).to(
            p.dtype
        )
    return new_p, new_m, new_v


def adam_step_reference(
    p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor, rate: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    grad = g.float()
    first = 0.9 * m + 0.1 * grad
    second = 0.95 * v + 0.05 * grad * grad
    step = rate * first / (second.sqrt() + 1e-8)
    new_p = p.float() * (1 - 0.01 * rate) - step
    return new_p.to(p.dtype), first, second


def _one(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]",)


def _two(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]",) * 2


def _plus_transposed(m: int, n: int) -> tuple[str, ...]:
    return (f"bf16[{m},{n}]", f"bf16[{m},{n}]:1,{m}")


def _column_bias(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]", f"{dtype}[{n}]")


def _outer(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]", f"{dtype}[{m}]", f"{dtype}[{n}]")


def _adam(n: int, dtype: str = "bf16") -> tuple[str, ...]:
    # The second moment is a mean of squares; ones keep its root real.
    return (f"{dtype}[{n}]", f"{dtype}[{n}]", f"f32[{n}]", f"f32[{n}]@ones", "1e-3")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=plus,
        reference=plus_reference,
        family=FAMILY,
        variant="equal_shapes",
        tiny=_two(5, 96, "f32"),
        shapes=(
            _two(4096, 4096),
            _plus_transposed(4096, 4096),
            _two(10240, 10240, "f32"),
            _two(1024, 1024),
            ("f32[16777216]", "f32[16777216]"),
            _plus_transposed(8192, 1024),
            ("bf16[8,64,64,1024]", "bf16[8,64,64,1024]"),
            _two(3001, 4999),
        ),
    ),
    KernelCase(
        kernel=add_broadcast,
        reference=plus_reference,
        family=FAMILY,
        variant="broadcast",
        tiny=_column_bias(5, 96, "f32"),
        shapes=(
            _column_bias(2048, 4096),
            ("bf16[16,1024,2048]", "bf16[1024,2048]"),
            ("f32[8192,4096]", "f32[8192,1]"),
            _column_bias(65536, 512),
            ("f16[32,32,1024,64]", "f16[32,1,1024,64]"),
            _column_bias(128, 8192),
            ("bf16[64,1,8192]", "bf16[64,256,1]"),
            _column_bias(5000, 3001),
        ),
    ),
    KernelCase(
        kernel=bias_relu,
        reference=bias_relu_reference,
        family=FAMILY,
        variant="column_bias",
        tiny=_column_bias(5, 96),
        shapes=(
            _column_bias(8192, 8192),
            _column_bias(1024, 28672, "f16"),
            _column_bias(32768, 1024),
            _column_bias(64, 14336),
            _column_bias(4096, 4096, "f32"),
            _column_bias(262144, 128),
            _column_bias(2048, 5120),
            _column_bias(4000, 6001),
        ),
    ),
    KernelCase(
        kernel=cast_scale,
        reference=cast_scale_reference,
        family=FAMILY,
        variant="flattened_cast",
        tiny=(*_one(5, 96, "f32"), "0.5"),
        shapes=(
            (*_one(8192, 4096, "f32"), "0.5"),
            (*_one(1024, 5120, "f32"), "0.5"),
            (*_one(16384, 7168, "f16"), "0.5"),
            (*_one(128, 4096, "f32"), "0.5"),
            (*_one(1, 134217728, "f32"), "0.5"),
            (*_one(32000, 4096, "f32"), "0.5"),
            (*_one(4096, 3001, "f16"), "0.5"),
            (*_one(1, 65537, "f32"), "0.5"),
        ),
    ),
    KernelCase(
        kernel=horner_chain,
        reference=horner_chain_reference,
        family=FAMILY,
        variant="compute_bound",
        tiny=(*_one(5, 96, "f32"), "4"),
        shapes=(
            (*_one(4096, 4096, "f32"), "64"),
            (*_one(8192, 4096), "16"),
            (*_one(2048, 2048, "f32"), "128"),
            (*_one(16384, 4096, "f16"), "32"),
            (*_one(512, 4096, "f32"), "64"),
            (*_one(65536, 512), "64"),
            (*_one(1, 16777216, "f32"), "8"),
            (*_one(3001, 3001, "f32"), "128"),
        ),
    ),
    KernelCase(
        kernel=special_functions,
        reference=special_functions_reference,
        family=FAMILY,
        variant="transcendental",
        tiny=_two(5, 96, "f32"),
        shapes=(
            _two(4096, 4096, "f32"),
            _two(8192, 8192),
            _two(1024, 2048, "f32"),
            _two(16384, 1024, "f16"),
            _two(256, 16384),
            _two(131072, 128, "f32"),
            _two(2048, 5120),
            _two(4001, 1999, "f32"),
        ),
    ),
    KernelCase(
        kernel=hash_dropout,
        reference=hash_dropout_reference,
        family=FAMILY,
        variant="hash_dropout",
        tiny=(*_one(5, 96), "0.9", "7"),
        shapes=(
            (*_one(8192, 4096), "0.9", "7"),
            (*_one(1024, 1024, "f32"), "0.9", "7"),
            (*_one(16384, 8192), "0.9", "7"),
            (*_one(4096, 5120, "f32"), "0.5", "7"),
            (*_one(32768, 1024, "f16"), "0.9", "7"),
            (*_one(64, 8192), "0.9", "7"),
            (*_one(2048, 14336), "0.9", "7"),
            (*_one(777, 7777), "0.9", "7"),
        ),
    ),
    KernelCase(
        kernel=philox_noise_sign,
        reference=philox_noise_sign_reference,
        family=FAMILY,
        variant="philox",
        tiny=(*_one(5, 96, "f32"), "7"),
        shapes=(
            (*_one(4096, 4096), "7"),
            (*_one(16384, 4096), "7"),
            (*_one(1024, 2048, "f32"), "7"),
            (*_one(8192, 8192, "f16"), "7"),
            (*_one(65536, 512), "7"),
            (*_one(128, 8192), "7"),
            (*_one(2048, 14336), "7"),
            (*_one(3001, 2999, "f32"), "7"),
        ),
    ),
    KernelCase(
        kernel=transpose_copy,
        reference=transpose_copy_reference,
        family=FAMILY,
        variant="transpose_2d",
        tiny=_one(24, 40),
        shapes=(
            _one(4096, 4096),
            _one(16384, 1024, "f32"),
            _one(8192, 8192),
            _one(65536, 128),
            _one(1024, 2048, "f32"),
            _one(32000, 4096),
            _one(512, 28672, "f16"),
            _one(5003, 3001),
        ),
    ),
    KernelCase(
        kernel=heads_to_tokens,
        reference=heads_to_tokens_reference,
        family=FAMILY,
        variant="permute_4d",
        tiny=("bf16[2,4,8,16]",),
        shapes=(
            ("bf16[4,32,2048,128]",),
            ("f16[16,16,1024,64]",),
            ("bf16[1,64,8192,128]",),
            ("bf16[32,8,512,128]",),
            ("f32[8,12,1024,64]",),
            ("bf16[64,32,16,128]",),
            ("bf16[2,40,4096,128]",),
            ("bf16[8,32,1000,96]",),
        ),
    ),
    KernelCase(
        kernel=outer_mix,
        reference=outer_mix_reference,
        family=FAMILY,
        variant="two_broadcasts",
        tiny=_outer(5, 96),
        shapes=(
            _outer(8192, 5120),
            _outer(1024, 16384, "f16"),
            _outer(131072, 256),
            _outer(4096, 4096, "f32"),
            _outer(128, 4096),
            _outer(16384, 7168),
            _outer(2048, 2048),
            _outer(9999, 1023),
        ),
    ),
    KernelCase(
        kernel=adam_step,
        reference=adam_step_reference,
        family=FAMILY,
        variant="many_arrays",
        tiny=_adam(100),
        shapes=(
            _adam(16777216),
            _adam(2097152, "f32"),
            _adam(58720256),
            _adam(262144),
            _adam(33554432, "f16"),
            _adam(20971520, "f32"),
            _adam(4194304),
            _adam(10000019),
        ),
    ),
)
