"""Matrix products with 8-bit and 4-bit operands.

Activations come first and weights second. Scales multiply the product (or the weight)
back to real values: per tensor, per row and column, per group of k, or per 128-wide
block. Outputs are bf16 where the inputs have too few bits to hold them.
"""

from __future__ import annotations

from typing import Any

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

# One fp32 scale covers this many consecutive k of a block-scaled fp8 operand.
SCALE_BLOCK = 128


@helion.kernel(static_shapes=True, autotune_effort="none")
def fp8_gemm_tensor_scale(
    xq: torch.Tensor, wq: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """fp8 [m, k] @ fp8 [k, n] times one scale, to bf16."""
    rows, depth = xq.size()
    _, cols = wq.size()
    y = torch.empty([rows, cols], dtype=torch.bfloat16, device=xq.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = hl.dot(xq[tr, td], wq[td, tc], acc=total)
        y[tr, tc] = (total * scale[0]).to(torch.bfloat16)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def fp8_gemm_row_col_scale(
    xq: torch.Tensor, wq: torch.Tensor, row_scale: torch.Tensor, col_scale: torch.Tensor
) -> torch.Tensor:
    """fp8 [m, k] @ fp8 [n, k]^T with a scale per token and per output channel."""
    rows, depth = xq.size()
    cols, _ = wq.size()
    y = torch.empty([rows, cols], dtype=torch.bfloat16, device=xq.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = hl.dot(xq[tr, td], wq[tc, td].T, acc=total)
        scaled = total * row_scale[tr][:, None] * col_scale[tc][None, :]
        y[tr, tc] = scaled.to(torch.bfloat16)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def fp8_gemm_block_scale(
    xq: torch.Tensor, wq: torch.Tensor, x_scale: torch.Tensor, w_scale: torch.Tensor
) -> torch.Tensor:
    """fp8 [m, k] @ fp8 [n, k]^T; scales [m, k/128] and [n/128, k/128]."""
    rows, depth = xq.size()
    cols, _ = wq.size()
    y = torch.empty([rows, cols], dtype=torch.bfloat16, device=xq.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth, block_size=128):
            block = td.begin // 128
            product = hl.dot(xq[tr, td], wq[tc, td].T, out_dtype=torch.float32)
            from_rows = x_scale[tr, block]
            from_cols = hl.load(w_scale, [tc.index // 128, block])
            total = total + product * from_rows[:, None] * from_cols[None, :]
        y[tr, tc] = total.to(torch.bfloat16)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def int8_gemm(
    xq: torch.Tensor, wq: torch.Tensor, row_scale: torch.Tensor, col_scale: torch.Tensor
) -> torch.Tensor:
    """int8 [m, k] @ int8 [k, n] summed exactly in int32, then scaled to bf16."""
    rows, depth = xq.size()
    _, cols = wq.size()
    y = torch.empty([rows, cols], dtype=torch.bfloat16, device=xq.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.int32)
        for td in hl.tile(depth):
            total = hl.dot(xq[tr, td], wq[td, tc], acc=total)
        scaled = total.to(torch.float32) * row_scale[tr][:, None]
        y[tr, tc] = (scaled * col_scale[tc][None, :]).to(torch.bfloat16)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def int8_weight_gemm(
    x: torch.Tensor, wq: torch.Tensor, col_scale: torch.Tensor
) -> torch.Tensor:
    """16-bit [m, k] @ int8 [k, n]; the weight is widened in the loop."""
    rows, depth = x.size()
    _, cols = wq.size()
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = hl.dot(x[tr, td], wq[td, tc].to(x.dtype), acc=total)
        y[tr, tc] = (total * col_scale[tc][None, :]).to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def fp8_weight_gemm(
    x: torch.Tensor, wq: torch.Tensor, col_scale: torch.Tensor
) -> torch.Tensor:
    """16-bit [m, k] @ fp8 [n, k]^T; the weight is widened in the loop."""
    rows, depth = x.size()
    cols, _ = wq.size()
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = hl.dot(x[tr, td], wq[tc, td].to(x.dtype).T, acc=total)
        y[tr, tc] = (total * col_scale[tc][None, :]).to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def int4_weight_gemm_halves(
    x: torch.Tensor, packed: torch.Tensor, col_scale: torch.Tensor
) -> torch.Tensor:
    """16-bit [m, k] @ int4 [k, n]: low nibbles hold the first half of k, high the rest.

    Two dots per step and no interleaving; `packed` is int8 [k/2, n].
    """
    rows = x.size(0)
    half, cols = packed.size()
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(half):
            byte = packed[td, tc]
            low = ((byte << 4) >> 4).to(x.dtype)
            high = (byte >> 4).to(x.dtype)
            total = hl.dot(x[tr, td], low, acc=total)
            total = hl.dot(hl.load(x, [tr, td.index + half]), high, acc=total)
        y[tr, tc] = (total * col_scale[tc][None, :]).to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def int4_weight_gemm_grouped(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, group: hl.constexpr
) -> torch.Tensor:
    """16-bit [m, k] @ int4 [k, n] with scales [k/group, n]; nibbles interleave along k.

    Row 2i of the weight is the low nibble of `packed[i]`, row 2i+1 the high one.
    """
    rows = x.size(0)
    half, cols = packed.size()
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    pairs = x.view(rows, half, 2)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(half):
            byte = packed[td, tc]
            scale = hl.load(scales, [td.index * 2 // group, tc])
            low = (((byte << 4) >> 4).to(torch.float32) * scale).to(x.dtype)
            high = ((byte >> 4).to(torch.float32) * scale).to(x.dtype)
            total = hl.dot(pairs[tr, td, 0], low, acc=total)
            total = hl.dot(pairs[tr, td, 1], high, acc=total)
        y[tr, tc] = total.to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def fp4_weight_gemm(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor
) -> torch.Tensor:
    """16-bit [m, k] @ e2m1 [n, k]^T with one scale per 32 consecutive k.

    A 4-bit float is sign, two exponent bits and one mantissa bit. Low nibbles hold the
    first half of k, high nibbles the second; `packed` is uint8 [n, k/2] and `scales`
    fp32 [n, k/32].
    """
    rows = x.size(0)
    cols, half = packed.size()
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(half):
            byte = packed[tc, td].to(torch.int32)
            low = _e2m1(byte & 15) * hl.load(scales, [tc, td.index // 32])
            high_at = (td.index + half) // 32
            high = _e2m1(byte >> 4) * hl.load(scales, [tc, high_at])
            total = hl.dot(x[tr, td], low.to(x.dtype).T, acc=total)
            right = hl.load(x, [tr, td.index + half])
            total = hl.dot(right, high.to(x.dtype).T, acc=total)
        y[tr, tc] = total.to(x.dtype)
    return y


def _e2m1(code: torch.Tensor) -> torch.Tensor:
    """Values of 4-bit floats given as int32 codes 0..15: 0, .5, 1, 1.5, 2, 3, 4, 6."""
    mantissa = code & 1
    exponent = (code >> 1) & 3
    # Twice the value is an integer; exponent 0 marks the subnormals 0 and 0.5.
    twice = torch.where(exponent == 0, mantissa, ((2 + mantissa) << exponent) >> 1)
    size = twice.to(torch.float32) * 0.5
    return torch.where(code >= 8, -size, size)


def _ref_tensor_scale(
    xq: torch.Tensor, wq: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    return (xq.float() @ wq.float() * scale[0]).to(torch.bfloat16)


def _ref_row_col_nt(
    xq: torch.Tensor, wq: torch.Tensor, row_scale: torch.Tensor, col_scale: torch.Tensor
) -> torch.Tensor:
    product = xq.float() @ wq.float().T
    return (product * row_scale[:, None] * col_scale[None, :]).to(torch.bfloat16)


def _ref_row_col_nn(
    xq: torch.Tensor, wq: torch.Tensor, row_scale: torch.Tensor, col_scale: torch.Tensor
) -> torch.Tensor:
    return _ref_row_col_nt(xq, wq.T, row_scale, col_scale)


def _ref_block_scale(
    xq: torch.Tensor, wq: torch.Tensor, x_scale: torch.Tensor, w_scale: torch.Tensor
) -> torch.Tensor:
    depth = xq.size(1)
    cols = wq.size(0)
    x = xq.float() * x_scale.repeat_interleave(SCALE_BLOCK, 1)[:, :depth]
    w_rows = w_scale.repeat_interleave(SCALE_BLOCK, 0)[:cols]
    w = wq.float() * w_rows.repeat_interleave(SCALE_BLOCK, 1)[:, :depth]
    return (x @ w.T).to(torch.bfloat16)


def _ref_weight_nn(
    x: torch.Tensor, wq: torch.Tensor, col_scale: torch.Tensor
) -> torch.Tensor:
    return (x.float() @ wq.float() * col_scale).to(x.dtype)


def _ref_weight_nt(
    x: torch.Tensor, wq: torch.Tensor, col_scale: torch.Tensor
) -> torch.Tensor:
    return _ref_weight_nn(x, wq.T, col_scale)


def _nibbles(packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    low = (packed << 4) >> 4
    return low.float(), (packed >> 4).float()


def _ref_int4_halves(
    x: torch.Tensor, packed: torch.Tensor, col_scale: torch.Tensor
) -> torch.Tensor:
    return _ref_weight_nn(x, torch.cat(_nibbles(packed)), col_scale)


def _ref_int4_grouped(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, group: int
) -> torch.Tensor:
    codes = torch.stack(_nibbles(packed), dim=1).flatten(0, 1)
    weight = codes * scales.repeat_interleave(group, 0)
    return (x.float() @ weight).to(x.dtype)


def _ref_fp4(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor
) -> torch.Tensor:
    sizes = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], device=x.device)
    table = torch.cat([sizes, -sizes])
    codes = torch.cat([packed & 15, packed >> 4], dim=1).long()
    weight = table[codes] * scales.repeat_interleave(32, 1)
    return (x.float() @ weight.T).to(x.dtype)


def _case(
    kernel: object,
    reference: Any,
    variant: str,
    tiny: tuple[str, ...],
    *shapes: tuple[str, ...],
) -> KernelCase:
    return KernelCase(kernel, reference, "matmul_low_precision", variant, tiny, shapes)


def _fp8(m: int, k: int, n: int) -> tuple[str, ...]:
    return (f"f8e4m3[{m},{k}]", f"f8e4m3[{k},{n}]", "f32[1]")


def _fp8_rc(m: int, k: int, n: int) -> tuple[str, ...]:
    return (f"f8e4m3[{m},{k}]", f"f8e4m3[{n},{k}]", f"f32[{m}]", f"f32[{n}]")


def _fp8_block(m: int, k: int, n: int) -> tuple[str, ...]:
    n_blocks = -(-n // SCALE_BLOCK)
    k_blocks = -(-k // SCALE_BLOCK)
    scales = (f"f32[{m},{k_blocks}]", f"f32[{n_blocks},{k_blocks}]")
    return (f"f8e4m3[{m},{k}]", f"f8e4m3[{n},{k}]", *scales)


def _int8(m: int, k: int, n: int) -> tuple[str, ...]:
    return (f"i8[{m},{k}]", f"i8[{k},{n}]", f"f32[{m}]", f"f32[{n}]")


def _w8_nn(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    return (f"{dtype}[{m},{k}]", f"i8[{k},{n}]", f"f32[{n}]")


def _w8_nt(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    return (f"{dtype}[{m},{k}]", f"f8e4m3[{n},{k}]", f"f32[{n}]")


def _int4(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    return (f"{dtype}[{m},{k}]", f"i8[{k // 2},{n}]@index(128)", f"f32[{n}]")


def _int4_grouped(dtype: str, m: int, k: int, n: int, group: int) -> tuple[str, ...]:
    scales = f"f32[{k // group},{n}]"
    return (f"{dtype}[{m},{k}]", f"i8[{k // 2},{n}]@index(128)", scales, str(group))


def _fp4(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    return (f"{dtype}[{m},{k}]", f"u8[{n},{k // 2}]@index(256)", f"f32[{n},{k // 32}]")


CASES = (
    _case(
        fp8_gemm_tensor_scale,
        _ref_tensor_scale,
        "fp8_tensor_scale",
        _fp8(33, 64, 40),
        _fp8(64, 4096, 4096),
        _fp8(2048, 4096, 4096),
        _fp8(1024, 2048, 6144),
        _fp8(16, 12288, 4096),
        _fp8(512, 5120, 10240),
        _fp8(8192, 2048, 4096),
        _fp8(1, 4096, 24576),
        _fp8(256, 8192, 8192),
    ),
    _case(
        fp8_gemm_row_col_scale,
        _ref_row_col_nt,
        "fp8_row_col_scale",
        _fp8_rc(33, 64, 40),
        _fp8_rc(16, 4096, 6144),
        _fp8_rc(2048, 4096, 4096),
        _fp8_rc(64, 5120, 25600),
        _fp8_rc(512, 6144, 2048),
        _fp8_rc(1, 2048, 4096),
        _fp8_rc(1024, 4096, 14336),
        _fp8_rc(128, 25600, 5120),
        _fp8_rc(100, 4096, 12288),
    ),
    _case(
        fp8_gemm_block_scale,
        _ref_block_scale,
        "fp8_block_scale",
        _fp8_block(33, 256, 160),
        _fp8_block(64, 7168, 2048),
        _fp8_block(2048, 7168, 4096),
        _fp8_block(16, 2048, 7168),
        _fp8_block(1024, 4096, 4096),
        _fp8_block(1, 7168, 16384),
        _fp8_block(4096, 2048, 7168),
        _fp8_block(256, 1536, 24576),
        _fp8_block(128, 4096, 576),
    ),
    _case(
        int8_gemm,
        _ref_row_col_nn,
        "int8_exact",
        _int8(33, 64, 40),
        _int8(64, 4096, 4096),
        _int8(2048, 4096, 4096),
        _int8(512, 2048, 8192),
        _int8(16, 5120, 5120),
        _int8(1, 4096, 14336),
        _int8(8192, 1024, 4096),
        _int8(1000, 3000, 2000),
        _int8(128, 11008, 4096),
    ),
    _case(
        int8_weight_gemm,
        _ref_weight_nn,
        "int8_weight",
        _w8_nn("f16", 33, 64, 40),
        _w8_nn("bf16", 16, 4096, 4096),
        _w8_nn("bf16", 1024, 4096, 4096),
        _w8_nn("f16", 128, 5120, 13824),
        _w8_nn("bf16", 1, 8192, 8192),
        _w8_nn("bf16", 4096, 2048, 6144),
        _w8_nn("bf16", 64, 14336, 4096),
        _w8_nn("f16", 8, 4096, 28672),
        _w8_nn("bf16", 512, 2880, 2880),
    ),
    _case(
        fp8_weight_gemm,
        _ref_weight_nt,
        "fp8_weight",
        _w8_nt("f16", 33, 64, 40),
        _w8_nt("bf16", 32, 4096, 6144),
        _w8_nt("bf16", 2048, 4096, 4096),
        _w8_nt("bf16", 1, 5120, 25600),
        _w8_nt("f16", 256, 2048, 8192),
        _w8_nt("bf16", 8, 14336, 4096),
        _w8_nt("bf16", 128, 8192, 10240),
        _w8_nt("f16", 4096, 1024, 4096),
        _w8_nt("bf16", 16, 7168, 2112),
    ),
    _case(
        int4_weight_gemm_halves,
        _ref_int4_halves,
        "int4_halves",
        _int4("f16", 33, 64, 40),
        _int4("bf16", 4, 8192, 7168),
        _int4("bf16", 1024, 4096, 4096),
        _int4("f16", 64, 4096, 14336),
        _int4("bf16", 16, 5120, 5120),
        _int4("bf16", 1, 14336, 4096),
        _int4("bf16", 256, 8192, 8192),
        _int4("f16", 4096, 2048, 2048),
        _int4("bf16", 32, 4096, 28672),
    ),
    _case(
        int4_weight_gemm_grouped,
        _ref_int4_grouped,
        "int4_grouped",
        _int4_grouped("f16", 33, 64, 40, 32),
        _int4_grouped("bf16", 16, 4096, 4096, 128),
        _int4_grouped("f16", 512, 4096, 4096, 128),
        _int4_grouped("bf16", 1, 5120, 13824, 64),
        _int4_grouped("bf16", 128, 8192, 8192, 128),
        _int4_grouped("f16", 8, 14336, 4096, 32),
        _int4_grouped("bf16", 64, 2048, 6144, 128),
        _int4_grouped("bf16", 2048, 2048, 4096, 64),
        _int4_grouped("f16", 32, 4096, 11008, 128),
    ),
    _case(
        fp4_weight_gemm,
        _ref_fp4,
        "fp4_weight",
        _fp4("f16", 33, 128, 40),
        _fp4("bf16", 16, 4096, 4096),
        _fp4("bf16", 512, 4096, 6144),
        _fp4("bf16", 1, 4096, 28672),
        _fp4("f16", 64, 14336, 4096),
        _fp4("bf16", 8, 8192, 8192),
        _fp4("bf16", 128, 5120, 5120),
        _fp4("bf16", 2048, 2880, 2880),
        _fp4("f16", 4, 8192, 28672),
    ),
)
