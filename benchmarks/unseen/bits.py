"""Few bits for each number: packing, distances, block scales, ternary weights."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "unseen_bits"


@helion.kernel(static_shapes=True)
def pack_signs(x: torch.Tensor) -> torch.Tensor:
    """Signs of 32 neighbours in one word, first in the lowest bit. x [m, n, 32]."""
    m, n, _ = x.size()
    out = torch.empty([m, n], dtype=torch.int32, device=x.device)
    for rows, words in hl.tile([m, n]):
        bit = torch.where(x[rows, words, :].to(torch.float32) < 0, 1, 0)
        word = bit << hl.arange(32)[None, None, :]
        out[rows, words] = word.sum(-1).to(torch.int32)
    return out


def pack_signs_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    place = torch.arange(32, device=x.device, dtype=torch.int64)
    words = ((x < 0).long() << place).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


@helion.kernel(static_shapes=False)
def hamming_table(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Differing bits of every pair of codes. a [m, words], b [n, words] i32."""
    m, words = a.size()
    n = b.size(0)
    out = torch.empty([m, n], dtype=torch.int32, device=a.device)
    for ti, tj in hl.tile([m, n]):
        acc = hl.zeros([ti, tj], dtype=torch.int32)
        for word in hl.grid(words):
            v = a[ti, word][:, None] ^ b[tj, word][None, :]
            # Bits are counted in pairs, fours, bytes; shifts of negatives are masked.
            v = v - ((v >> 1) & 0x55555555)
            v = (v & 0x33333333) + ((v >> 2) & 0x33333333)
            v = (v + (v >> 4)) & 0x0F0F0F0F
            v = v + (v >> 8)
            acc = acc + ((v + (v >> 16)) & 0x3F)
        out[ti, tj] = acc
    return out


def hamming_table_reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch, a bit at a time."""
    out = torch.zeros(a.size(0), b.size(0), dtype=torch.int32, device=a.device)
    for bit in range(32):
        x, y = ((a >> bit) & 1).float(), ((b >> bit) & 1).float()
        both = x @ y.T
        out += (x.sum(1)[:, None] + y.sum(1)[None, :] - 2 * both).to(torch.int32)
    return out


@helion.kernel()
def power_scale_fp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks of 32 in fp8 with a shared power of two, kept as its exponent + 127.

    x [m, n, 32]; gives codes [m, n, 32] and exponents [m, n].
    """
    m, n, size = x.shape
    codes = torch.empty([m, n, size], dtype=torch.float8_e4m3fn, device=x.device)
    exponents = torch.empty([m, n], dtype=torch.uint8, device=x.device)
    for rows, blocks in hl.tile([m, n]):
        z = x[rows, blocks, :].to(torch.float32)
        peak = torch.clamp(torch.amax(torch.abs(z), dim=-1), min=1e-30)
        # 448 is the largest number of this format.
        power = torch.ceil(torch.log2(peak / 448.0))
        codes[rows, blocks, :] = (z * torch.exp2(-power)[:, :, None]).to(codes.dtype)
        exponents[rows, blocks] = (power + 127.0).to(torch.uint8)
    return codes, exponents


def power_scale_fp8_reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    z = x.float()
    power = torch.ceil(torch.log2(z.abs().amax(-1).clamp(min=1e-30) / 448.0))
    codes = (z * torch.exp2(-power)[..., None]).to(torch.float8_e4m3fn)
    return codes, (power + 127).to(torch.uint8)


@helion.kernel(static_shapes=True)
def ternary_linear(
    x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """x w scale for weights of -1, 0, 1, four in a byte. packed [k / 4, n] u8.

    Weight 4 j + s of a column stands in bits 2 s and 2 s + 1 of byte j, plus one.
    """
    m, _k = x.size()
    quarter, n = packed.size()
    x3 = x.view(m, quarter, 4)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tm, tn in hl.tile([m, n]):
        acc = hl.zeros([tm, tn], dtype=torch.float32)
        for tq in hl.tile(quarter):
            byte = packed[tq, tn].to(torch.int32)
            for slot in hl.static_range(4):
                weight = ((byte >> (2 * slot)) & 3) - 1
                acc = torch.addmm(acc, x3[tm, tq, slot], weight.to(x.dtype))
        out[tm, tn] = (acc * scale[tn][None, :]).to(x.dtype)
    return out


def ternary_linear_reference(
    x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    slots = [((packed.int() >> (2 * slot)) & 3) - 1 for slot in range(4)]
    weight = torch.stack(slots, 1).flatten(0, 1).float()
    return (x.float() @ weight * scale).to(x.dtype)


@helion.kernel(static_shapes=True)
def codebook_rows(
    codes: torch.Tensor, book: torch.Tensor, absmax: torch.Tensor
) -> torch.Tensor:
    """Four-bit codes looked up in a book of 16 and scaled by block. codes [m, n] u8."""
    m, n = codes.size()
    out = torch.empty([m, n, 2], dtype=torch.bfloat16, device=codes.device)
    n_blocks = absmax.size(1)
    per_block = n // n_blocks
    for rows, cols in hl.tile([m, n]):
        byte = codes[rows, cols].to(torch.int32)
        scale = absmax[rows, cols.index // per_block]
        out[rows, cols, 0] = (book[byte & 15] * scale).to(torch.bfloat16)
        out[rows, cols, 1] = (book[byte >> 4] * scale).to(torch.bfloat16)
    return out.view(m, 2 * n)


def codebook_rows_reference(
    codes: torch.Tensor, book: torch.Tensor, absmax: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    both = torch.stack([codes & 15, codes >> 4], -1).long()
    scale = absmax.repeat_interleave(codes.size(1) // absmax.size(1), 1)
    return (book[both] * scale[..., None]).flatten(1).to(torch.bfloat16)


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=pack_signs,
        reference=pack_signs_reference,
        family=FAMILY,
        variant="pack",
        tiny=("f32[6,5,32]",),
        shapes=(("bf16[4096,128,32]",), ("f32[10000,24,32]",)),
    ),
    KernelCase(
        kernel=hamming_table,
        reference=hamming_table_reference,
        family=FAMILY,
        variant="popcount",
        tiny=("i32[10,3]", "i32[14,3]"),
        shapes=(("i32[4096,8]", "i32[8192,8]"), ("i32[1000,32]", "i32[3000,32]")),
    ),
    KernelCase(
        kernel=power_scale_fp8,
        reference=power_scale_fp8_reference,
        family=FAMILY,
        variant="block_exponent",
        tiny=("f32[6,5,32]",),
        shapes=(("bf16[8192,128,32]",), ("f32[1000,96,32]",)),
        rtol=1.3e-1,
    ),
    KernelCase(
        kernel=ternary_linear,
        reference=ternary_linear_reference,
        family=FAMILY,
        variant="two_bit_weights",
        tiny=("f32[20,64]", "u8[16,24]@index(171)", "f32[24]"),
        shapes=(
            ("bf16[256,4096]", "u8[1024,4096]@index(171)", "f32[4096]"),
            ("f16[2048,2560]", "u8[640,6912]@index(171)", "f32[6912]"),
        ),
        atol=5e-1,
    ),
    KernelCase(
        kernel=codebook_rows,
        reference=codebook_rows_reference,
        family=FAMILY,
        variant="book_of_16",
        tiny=("u8[6,32]@index(256)", "f32[16]", "f32[6,4]"),
        shapes=(
            ("u8[4096,2048]@index(256)", "f32[16]", "f32[4096,64]"),
            ("u8[1000,5120]@index(256)", "f32[16]", "f32[1000,80]"),
        ),
    ),
)
