"""Key-value caches: writes by slot, quantising writes, reads through a block table."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "kv_cache"


@helion.kernel(static_shapes=True, autotune_effort="none")
def cache_write(
    k: torch.Tensor, v: torch.Tensor, slot: torch.Tensor, cache: torch.Tensor
) -> torch.Tensor:
    """Rows of k and v [t, d] stored at cache[0, slot] and cache[1, slot]; in place.

    The recorded slots repeat, so equal slots must hold equal rows: the kernel stores
    the row of `slot` itself, which makes the result independent of the order.
    """
    tokens = slot.size(0)
    dim = k.size(1)
    for t, d in hl.tile([tokens, dim]):
        at = slot[t]
        cache[0, at, d] = k[at, d]
        cache[1, at, d] = v[at, d]
    return cache


def cache_write_reference(
    k: torch.Tensor, v: torch.Tensor, slot: torch.Tensor, cache: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    at = slot.long()
    cache[0, at] = k[at]
    cache[1, at] = v[at]
    return cache


@helion.kernel(static_shapes=True, autotune_effort="none")
def cache_write_fp8(
    k: torch.Tensor, slot: torch.Tensor, scale: torch.Tensor, cache: torch.Tensor
) -> torch.Tensor:
    """k [t, heads, d] * scale[head] as e4m3, stored at cache[slot]; in place."""
    tokens = slot.size(0)
    heads = k.size(1)
    for t, h in hl.tile([tokens, heads]):
        at = slot[t]
        v = k[at, h, :].to(torch.float32) * scale[h][None, :, None]
        v = torch.clamp(v, -448.0, 448.0)
        cache[at, h, :] = v.to(torch.float8_e4m3fn)
    return cache


def cache_write_fp8_reference(
    k: torch.Tensor, slot: torch.Tensor, scale: torch.Tensor, cache: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    at = slot.long()
    v = (k[at].float() * scale[None, :, None]).clamp(-448.0, 448.0)
    out = cache.clone()
    out[at] = v.to(torch.float8_e4m3fn)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def cache_read(table: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    """Blocks of a paged cache copied to one row per sequence.

    table i32 [sequences, blocks], cache [pages, page, d].
    """
    sequences, blocks = table.size()
    _, page, dim = cache.size()
    page = hl.specialize(page)
    out = torch.empty(
        [sequences, blocks, page, dim], dtype=cache.dtype, device=cache.device
    )
    for s, b, d in hl.tile([sequences, blocks, dim]):
        out[s, b, :, d] = cache[table[s, b], :, d]
    return out


def cache_read_reference(table: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return cache[table.long()]


@helion.kernel(static_shapes=True, autotune_effort="none")
def cache_read_fp8(
    table: torch.Tensor, cache: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """The same from e4m3 with one scale per page, every axis tiled, to bf16."""
    flat_table = table.view(-1)
    wanted = flat_table.size(0)
    _, page, dim = cache.size()
    out = torch.empty([wanted, page, dim], dtype=torch.bfloat16, device=cache.device)
    for i, r, d in hl.tile([wanted, page, dim]):
        source = flat_table[i]
        v = cache[source, r, d].to(torch.float32) * scale[source][:, None, None]
        out[i, r, d] = v.to(torch.bfloat16)
    return out


def cache_read_fp8_reference(
    table: torch.Tensor, cache: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    at = table.long().view(-1)
    return (cache[at].float() * scale[at][:, None, None]).to(torch.bfloat16)


def _write(rows: int, tokens: int, d: int) -> tuple[str, ...]:
    kv = f"bf16[{rows},{d}]"
    return (kv, kv, f"i64[{tokens}]@index({rows})", f"bf16[2,{rows},{d}]")


def _write_fp8(rows: int, tokens: int, heads: int, d: int) -> tuple[str, ...]:
    return (
        f"bf16[{rows},{heads},{d}]",
        f"i64[{tokens}]@index({rows})",
        f"f32[{heads}]@ones",
        f"f8e4m3[{rows},{heads},{d}]@ones",
    )


def _read(
    sequences: int, blocks: int, pages: int, page: int, d: int
) -> tuple[str, ...]:
    return (f"i32[{sequences},{blocks}]@index({pages})", f"bf16[{pages},{page},{d}]")


def _read_fp8(
    sequences: int, blocks: int, pages: int, page: int, d: int
) -> tuple[str, ...]:
    return (
        f"i32[{sequences},{blocks}]@index({pages})",
        f"f8e4m3[{pages},{page},{d}]@ones",
        f"f32[{pages}]",
    )


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=cache_write,
        reference=cache_write_reference,
        family=FAMILY,
        variant="write_by_slot",
        tiny=_write(12, 5, 24),
        shapes=(
            _write(16384, 8192, 1024),
            _write(8192, 256, 1024),
            _write(65536, 16384, 512),
            _write(32768, 4096, 2048),
            _write(16384, 32, 1024),
            _write(8192, 8192, 4096),
            _write(131072, 65536, 128),
            _write(4096, 1024, 576),
        ),
    ),
    KernelCase(
        kernel=cache_write_fp8,
        reference=cache_write_fp8_reference,
        family=FAMILY,
        variant="write_quantised",
        tiny=_write_fp8(12, 5, 4, 16),
        shapes=(
            _write_fp8(16384, 8192, 8, 128),
            _write_fp8(8192, 512, 8, 128),
            _write_fp8(32768, 16384, 16, 128),
            _write_fp8(16384, 4096, 32, 64),
            _write_fp8(8192, 64, 8, 128),
            _write_fp8(4096, 4096, 40, 128),
            _write_fp8(65536, 32768, 4, 256),
            _write_fp8(16384, 2048, 1, 512),
        ),
        rtol=1.3e-1,
    ),
    KernelCase(
        kernel=cache_read,
        reference=cache_read_reference,
        family=FAMILY,
        variant="read_blocks",
        tiny=_read(2, 3, 6, 4, 24),
        shapes=(
            _read(32, 128, 8192, 16, 1024),
            _read(8, 64, 4096, 64, 1024),
            _read(256, 32, 16384, 16, 512),
            _read(1, 512, 4096, 16, 1024),
            _read(64, 256, 8192, 16, 128),
            _read(4, 128, 1024, 128, 2048),
            _read(128, 8, 4096, 32, 1024),
            _read(16, 64, 2048, 16, 576),
        ),
    ),
    KernelCase(
        kernel=cache_read_fp8,
        reference=cache_read_fp8_reference,
        family=FAMILY,
        variant="read_dequantised",
        tiny=_read_fp8(2, 3, 6, 4, 24),
        shapes=(
            _read_fp8(32, 128, 8192, 16, 1024),
            _read_fp8(8, 64, 4096, 64, 1024),
            _read_fp8(128, 16, 8192, 32, 512),
            _read_fp8(1, 256, 4096, 16, 1024),
            _read_fp8(64, 256, 16384, 16, 128),
            _read_fp8(4, 32, 1024, 128, 2048),
            _read_fp8(256, 8, 8192, 16, 576),
            _read_fp8(16, 512, 8192, 16, 512),
        ),
    ),
)
