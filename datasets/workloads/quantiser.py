"""Quantisers and dequantisers: per tensor, row, group and block; fp8, int8, int4."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "quantiser"

# Largest finite float8_e4m3fn, the OCP 8-bit format.
E4M3_MAX = 448.0


@helion.kernel(static_shapes=True, autotune_effort="none")
def scale_to_fp8(x: torch.Tensor, inverse_scale: torch.Tensor) -> torch.Tensor:
    """x * inverse_scale clamped to e4m3's range. x [m, n], inverse_scale f32 [1]."""
    m, n = x.size()
    q = torch.empty([m, n], dtype=torch.float8_e4m3fn, device=x.device)
    for rows, cols in hl.tile([m, n]):
        v = x[rows, cols].to(torch.float32) * inverse_scale[0]
        q[rows, cols] = torch.clamp(v, -448.0, 448.0).to(torch.float8_e4m3fn)
    return q


def scale_to_fp8_reference(
    x: torch.Tensor, inverse_scale: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    v = x.float() * inverse_scale
    return v.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


@helion.kernel(static_shapes=True, autotune_effort="none")
def tensor_amax(x: torch.Tensor) -> torch.Tensor:
    """Largest magnitude of a matrix, by atomic maximum. Returns f32 [1]."""
    m, n = x.size()
    top = torch.zeros([1], dtype=torch.float32, device=x.device)
    for rows, cols in hl.tile([m, n]):
        part = x[rows, cols].to(torch.float32).abs().amax(-1).amax(-1)
        hl.atomic_max(top, [0], part)
    return top


def tensor_amax_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return x.float().abs().amax().reshape(1)


@helion.kernel(static_shapes=True, autotune_effort="none")
def row_fp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """e4m3 with one scale per row, whole rows. Returns q [m, n], scale f32 [m]."""
    m, n = x.size()
    q = torch.empty([m, n], dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty([m], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        v = x[rows, :].to(torch.float32)
        s = torch.clamp(v.abs().amax(-1), min=1e-10) / 448.0
        scale[rows] = s
        q[rows, :] = (v / s[:, None]).to(torch.float8_e4m3fn)
    return q, scale


def row_fp8_reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    v = x.float()
    s = v.abs().amax(-1).clamp(min=1e-10) / E4M3_MAX
    return (v / s[:, None]).to(torch.float8_e4m3fn), s


@helion.kernel(static_shapes=True, autotune_effort="none")
def row_fp8_two_pass(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same with column loops."""
    m, n = x.size()
    q = torch.empty([m, n], dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty([m], dtype=torch.float32, device=x.device)
    block_n = hl.register_block_size(n)
    for rows in hl.tile(m):
        top = hl.full([rows], 1e-10, dtype=torch.float32)
        for cols in hl.tile(n, block_size=block_n):
            top = torch.maximum(top, x[rows, cols].to(torch.float32).abs().amax(-1))
        scale[rows] = top / 448.0
        inverse = 448.0 / top
        for cols in hl.tile(n, block_size=block_n):
            v = x[rows, cols].to(torch.float32) * inverse[:, None]
            v = torch.clamp(v, -448.0, 448.0)
            q[rows, cols] = v.to(torch.float8_e4m3fn)
    return q, scale


@helion.kernel(static_shapes=True, autotune_effort="none")
def norm_row_fp8(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Root-mean-square norm, then e4m3 with one scale per row."""
    m, n = x.size()
    q = torch.empty([m, n], dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty([m], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        v = x[rows, :].to(torch.float32)
        r = torch.rsqrt((v * v).mean(-1) + 1e-6)
        y = v * r[:, None] * w[:].to(torch.float32)[None, :]
        s = torch.clamp(y.abs().amax(-1), min=1e-10) / 448.0
        scale[rows] = s
        q[rows, :] = (y / s[:, None]).to(torch.float8_e4m3fn)
    return q, scale


def norm_row_fp8_reference(
    x: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    v = x.float()
    y = v * torch.rsqrt(v.square().mean(-1, keepdim=True) + 1e-6) * w.float()
    return row_fp8_reference(y)


@helion.kernel(static_shapes=True, autotune_effort="none")
def group_absmax_fp8(
    x: torch.Tensor, group: hl.constexpr
) -> tuple[torch.Tensor, torch.Tensor]:
    """e4m3, one scale per `group` columns. q [m, n/group, group], s [m, n/group]."""
    m, n = x.size()
    n = hl.specialize(n)
    groups = n // group
    q = torch.empty([m, groups, group], dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty([m, groups], dtype=torch.float32, device=x.device)
    grouped = x.view(m, groups, group)
    for rows, parts in hl.tile([m, groups]):
        v = grouped[rows, parts, :].to(torch.float32)
        s = torch.clamp(v.abs().amax(-1), min=1e-10) / 448.0
        scale[rows, parts] = s
        q[rows, parts, :] = (v / s[:, :, None]).to(torch.float8_e4m3fn)
    return q, scale


def group_absmax_fp8_reference(
    x: torch.Tensor, group: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    v = x.float().view(x.size(0), -1, group)
    s = v.abs().amax(-1).clamp(min=1e-10) / E4M3_MAX
    return (v / s[:, :, None]).to(torch.float8_e4m3fn), s


@helion.kernel(static_shapes=True, autotune_effort="none")
def row_int8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 with one scale per row, rounded to the nearest even."""
    m, n = x.size()
    q = torch.empty([m, n], dtype=torch.int8, device=x.device)
    scale = torch.empty([m], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        v = x[rows, :].to(torch.float32)
        s = torch.clamp(v.abs().amax(-1), min=1e-8) / 127.0
        scale[rows] = s
        y = torch.clamp(torch.round(v / s[:, None]), -127.0, 127.0)
        q[rows, :] = y.to(torch.int8)
    return q, scale


def row_int8_reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    v = x.float()
    s = v.abs().amax(-1).clamp(min=1e-8) / 127.0
    return (v / s[:, None]).round().clamp(-127, 127).to(torch.int8), s


@helion.kernel(static_shapes=True, autotune_effort="none")
def block_fp8(x: torch.Tensor, side: hl.constexpr) -> tuple[torch.Tensor, torch.Tensor]:
    """e4m3 with one scale per side x side block, as weights are stored."""
    m, n = x.size()
    bm = m // side
    bn = n // side
    blocks = x.view(bm, side, bn, side)
    q = torch.empty([bm, side, bn, side], dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty([bm, bn], dtype=torch.float32, device=x.device)
    for down, across in hl.tile([bm, bn]):
        v = blocks[down, :, across, :].to(torch.float32)
        s = torch.clamp(v.abs().amax(-1).amax(1), min=1e-10) / 448.0
        scale[down, across] = s
        y = v / s[:, None, :, None]
        q[down, :, across, :] = y.to(torch.float8_e4m3fn)
    return q, scale


def block_fp8_reference(
    x: torch.Tensor, side: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    v = x.float().view(x.size(0) // side, side, x.size(1) // side, side)
    s = v.abs().amax((1, 3)).clamp(min=1e-10) / E4M3_MAX
    return (v / s[:, None, :, None]).to(torch.float8_e4m3fn), s


@helion.kernel(static_shapes=True, autotune_effort="none")
def dequantise_int8(q: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """bf16 from int8 [m, n] with one f32 scale per row."""
    m, n = q.size()
    out = torch.empty([m, n], dtype=torch.bfloat16, device=q.device)
    for rows, cols in hl.tile([m, n]):
        v = q[rows, cols].to(torch.float32) * scale[rows][:, None]
        out[rows, cols] = v.to(torch.bfloat16)
    return out


def dequantise_int8_reference(q: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return (q.float() * scale[:, None]).to(torch.bfloat16)


@helion.kernel(static_shapes=True, autotune_effort="none")
def unpack_int4(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """bf16 [m, 2n] from bytes [m, n] of two 4-bit codes, low half then high half."""
    m, n = packed.size()
    out = torch.empty([m, 2, n], dtype=torch.bfloat16, device=packed.device)
    for rows, cols in hl.tile([m, n]):
        byte = packed[rows, cols].to(torch.int32)
        s = scale[rows][:, None]
        low = ((byte & 15) - 8).to(torch.float32) * s
        high = (((byte >> 4) & 15) - 8).to(torch.float32) * s
        out[rows, 0, cols] = low.to(torch.bfloat16)
        out[rows, 1, cols] = high.to(torch.bfloat16)
    return out


def unpack_int4_reference(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    byte = packed.int()
    codes = torch.stack([(byte & 15) - 8, ((byte >> 4) & 15) - 8], 1)
    return (codes.float() * scale[:, None, None]).to(torch.bfloat16)


def _x(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]",)


def _scaled(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]", "f32[1]@ones")


def _norm(m: int, n: int) -> tuple[str, ...]:
    return (f"bf16[{m},{n}]", f"bf16[{n}]")


def _grouped(m: int, n: int, group: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]", str(group))


def _codes(m: int, n: int, dtype: str = "i8") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]", f"f32[{m}]")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=scale_to_fp8,
        reference=scale_to_fp8_reference,
        family=FAMILY,
        variant="per_tensor",
        tiny=_scaled(5, 96),
        shapes=(
            _scaled(4096, 5120),
            _scaled(16384, 7168),
            _scaled(64, 4096),
            _scaled(8192, 2048, "f32"),
            _scaled(1024, 14336),
            _scaled(1, 5120),
            _scaled(8192, 2880, "f16"),
            _scaled(333, 8191),
        ),
    ),
    KernelCase(
        kernel=tensor_amax,
        reference=tensor_amax_reference,
        family=FAMILY,
        variant="atomic_max",
        tiny=_x(5, 96),
        shapes=(
            _x(4096, 4096),
            _x(1024, 2048, "f32"),
            _x(16384, 8192),
            _x(256, 5120),
            _x(65536, 512, "f16"),
            _x(7168, 2048, "f32"),
            _x(8192, 28672),
            _x(3000, 5001),
        ),
    ),
    KernelCase(
        kernel=row_fp8,
        reference=row_fp8_reference,
        family=FAMILY,
        variant="per_row_one_pass",
        tiny=_x(5, 96),
        shapes=(
            _x(4096, 5120),
            _x(16384, 2048),
            _x(256, 4096),
            _x(4096, 14336),
            _x(8192, 7168, "f16"),
            _x(16, 5120),
            _x(32768, 2880),
            _x(2048, 4096, "f32"),
        ),
        rtol=1.3e-1,
    ),
    KernelCase(
        kernel=row_fp8_two_pass,
        reference=row_fp8_reference,
        family=FAMILY,
        variant="per_row_two_pass",
        tiny=_x(5, 96),
        shapes=(
            _x(8192, 4096),
            _x(2048, 25600),
            _x(1024, 5120),
            _x(16384, 6144, "f16"),
            _x(64, 28672),
            _x(4096, 12288),
            _x(65536, 1024),
            _x(4096, 3001, "f32"),
        ),
        rtol=1.3e-1,
    ),
    KernelCase(
        kernel=norm_row_fp8,
        reference=norm_row_fp8_reference,
        family=FAMILY,
        variant="norm_then_per_row",
        tiny=_norm(5, 96),
        shapes=(
            _norm(4096, 4096),
            _norm(16384, 5120),
            _norm(1024, 8192),
            _norm(32, 4096),
            _norm(2048, 7168),
            _norm(8192, 2048),
            _norm(512, 5120),
            _norm(4096, 12288),
        ),
        rtol=1.3e-1,
    ),
    KernelCase(
        kernel=group_absmax_fp8,
        reference=group_absmax_fp8_reference,
        family=FAMILY,
        variant="per_group",
        tiny=_grouped(3, 64, 16),
        shapes=(
            _grouped(4096, 4096, 128),
            _grouped(256, 8192, 128, "f32"),
            _grouped(8192, 7168, 128),
            _grouped(64, 5120, 128),
            _grouped(4096, 12288, 64),
            _grouped(16384, 2048, 128),
            _grouped(2048, 25600, 128),
            _grouped(8192, 5120, 32),
        ),
        rtol=1.3e-1,
    ),
    KernelCase(
        kernel=row_int8,
        reference=row_int8_reference,
        family=FAMILY,
        variant="per_row_one_pass",
        tiny=_x(5, 96),
        shapes=(
            _x(8192, 4096),
            _x(1024, 14336, "f16"),
            _x(16384, 2048),
            _x(128, 8192),
            _x(4096, 5120, "f32"),
            _x(8, 4096),
            _x(32768, 1024),
            _x(2048, 11008),
        ),
        atol=1.0,
    ),
    KernelCase(
        kernel=block_fp8,
        reference=block_fp8_reference,
        family=FAMILY,
        variant="per_block_2d",
        tiny=_grouped(32, 48, 16),
        shapes=(
            _grouped(4096, 4096, 128),
            _grouped(7168, 2048, 128),
            _grouped(8192, 14336, 64),
            _grouped(2048, 2048, 32),
            _grouped(5120, 25600, 128),
            _grouped(4096, 14336, 32),
            _grouped(1024, 4096, 128),
            _grouped(6144, 4096, 64, "f32"),
        ),
        rtol=1.3e-1,
    ),
    KernelCase(
        kernel=dequantise_int8,
        reference=dequantise_int8_reference,
        family=FAMILY,
        variant="dequantise_row",
        tiny=_codes(5, 96),
        shapes=(
            _codes(4096, 14336),
            _codes(8192, 8192),
            _codes(512, 4096),
            _codes(4096, 4096),
            _codes(32000, 2048),
            _codes(25600, 5120),
            _codes(2048, 6144),
            _codes(3001, 5003),
        ),
    ),
    KernelCase(
        kernel=unpack_int4,
        reference=unpack_int4_reference,
        family=FAMILY,
        variant="unpack_nibbles",
        tiny=_codes(5, 96, "u8"),
        shapes=(
            _codes(4096, 7168, "u8"),
            _codes(8192, 4096, "u8"),
            _codes(1024, 2048, "u8"),
            _codes(14336, 2048, "u8"),
            _codes(28672, 4096, "u8"),
            _codes(5120, 2560, "u8"),
            _codes(2048, 1024, "u8"),
            _codes(7000, 3001, "u8"),
        ),
    ),
)
