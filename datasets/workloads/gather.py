"""Gathers and scatters by index: embeddings, bags, permutations, cache writes."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "gather"


@helion.kernel(static_shapes=True, autotune_effort="none")
def embedding_rows(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """table[ids], both axes tiled. ids [t], table [vocab, d]."""
    tokens = ids.size(0)
    dim = table.size(1)
    out = torch.empty([tokens, dim], dtype=table.dtype, device=table.device)
    for t, d in hl.tile([tokens, dim]):
        out[t, d] = table[ids[t], d]
    return out


def embedding_rows_reference(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return table[ids.long()]


@helion.kernel(static_shapes=True, autotune_effort="none")
def embedding_with_position(
    ids: torch.Tensor, table: torch.Tensor, position: torch.Tensor, scale: float
) -> torch.Tensor:
    """table[ids] * scale + position, ids [batch, length], position [length, d]."""
    batch, length = ids.size()
    dim = table.size(1)
    out = torch.empty([batch, length, dim], dtype=table.dtype, device=table.device)
    for b, t in hl.tile([batch, length]):
        for d in hl.tile(dim):
            v = table[ids[b, t], d].to(torch.float32) * scale
            p = position[t, d].to(torch.float32)[None, :, :]
            out[b, t, d] = (v + p).to(table.dtype)
    return out


def embedding_with_position_reference(
    ids: torch.Tensor, table: torch.Tensor, position: torch.Tensor, scale: float
) -> torch.Tensor:
    """Plain PyTorch."""
    return (table[ids.long()].float() * scale + position.float()).to(table.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def embedding_bag(
    ids: torch.Tensor, weight: torch.Tensor, table: torch.Tensor
) -> torch.Tensor:
    """sum_k weight[b, k] * table[ids[b, k]]; the bag is looped one entry at a time."""
    bags, entries = ids.size()
    entries = hl.specialize(entries)
    dim = table.size(1)
    out = torch.empty([bags, dim], dtype=table.dtype, device=table.device)
    for b, d in hl.tile([bags, dim]):
        total = hl.zeros([b, d], dtype=torch.float32)
        for k in range(entries):
            row = table[ids[b, k], d].to(torch.float32)
            total = total + row * weight[b, k].to(torch.float32)[:, None]
        out[b, d] = total.to(table.dtype)
    return out


def embedding_bag_reference(
    ids: torch.Tensor, weight: torch.Tensor, table: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    rows = table[ids.long()].float() * weight.float()[:, :, None]
    return rows.sum(1).to(table.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def scatter_add_rows(
    ids: torch.Tensor, grad: torch.Tensor, zeros: torch.Tensor
) -> torch.Tensor:
    """zeros + rows of grad added at ids, atomically. zeros f32 [vocab, d]."""
    tokens, dim = grad.size()
    out = torch.zeros(zeros.size(), dtype=torch.float32, device=grad.device)
    for t, d in hl.tile([tokens, dim]):
        hl.atomic_add(out, [ids[t], d], grad[t, d].to(torch.float32))
    return out


def scatter_add_rows_reference(
    ids: torch.Tensor, grad: torch.Tensor, zeros: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    out = torch.zeros(zeros.size(), dtype=torch.float32, device=grad.device)
    return out.index_add(0, ids.long(), grad.float())


@helion.kernel(static_shapes=True, autotune_effort="none")
def gather_columns(x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """x[row, ids[row, j]] for each row: scattered loads within a row."""
    m, n = x.size()
    k = ids.size(1)
    flat = x.view(-1)
    out = torch.empty([m, k], dtype=x.dtype, device=x.device)
    for rows, cols in hl.tile([m, k]):
        at = rows.index[:, None] * n + ids[rows, cols]
        out[rows, cols] = hl.load(flat, [at])
    return out


def gather_columns_reference(x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return x.gather(1, ids.long())


@helion.kernel(static_shapes=True, autotune_effort="none")
def permute_and_scale(
    x: torch.Tensor, source: torch.Tensor, gate: torch.Tensor
) -> torch.Tensor:
    """x[source] * gate by whole rows: how tokens travel to experts. gate [t]."""
    tokens = source.size(0)
    dim = x.size(1)
    out = torch.empty([tokens, dim], dtype=x.dtype, device=x.device)
    for t in hl.tile(tokens):
        v = x[source[t], :].to(torch.float32) * gate[t].to(torch.float32)[:, None]
        out[t, :] = v.to(x.dtype)
    return out


def permute_and_scale_reference(
    x: torch.Tensor, source: torch.Tensor, gate: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    return (x[source.long()].float() * gate.float()[:, None]).to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def masked_fill_rows(x: torch.Tensor, keep: torch.Tensor, value: float) -> torch.Tensor:
    """x where keep (one flag per row, by length) else value. keep i32 [m] > 0."""
    m, n = x.size()
    out = torch.empty_like(x)
    for rows, cols in hl.tile([m, n]):
        flag = cols.index[None, :] < keep[rows][:, None]
        v = x[rows, cols].to(torch.float32)
        out[rows, cols] = torch.where(flag, v, value).to(x.dtype)
    return out


def masked_fill_rows_reference(
    x: torch.Tensor, keep: torch.Tensor, value: float
) -> torch.Tensor:
    """Plain PyTorch."""
    flag = torch.arange(x.size(1), device=x.device)[None, :] < keep[:, None]
    return torch.where(flag, x.float(), value).to(x.dtype)


def _embedding(t: int, vocab: int, d: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"i64[{t}]@index({vocab})", f"{dtype}[{vocab},{d}]")


def _positioned(batch: int, length: int, vocab: int, d: int) -> tuple[str, ...]:
    return (
        f"i64[{batch},{length}]@index({vocab})",
        f"bf16[{vocab},{d}]",
        f"bf16[{length},{d}]",
        "2.0",
    )


def _bag(bags: int, entries: int, vocab: int, d: int, dtype: str) -> tuple[str, ...]:
    return (
        f"i32[{bags},{entries}]@index({vocab})",
        f"f32[{bags},{entries}]",
        f"{dtype}[{vocab},{d}]",
    )


def _scatter(t: int, vocab: int, d: int) -> tuple[str, ...]:
    return (f"i64[{t}]@index({vocab})", f"bf16[{t},{d}]", f"f32[{vocab},{d}]")


def _columns(m: int, n: int, k: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]", f"i32[{m},{k}]@index({n})")


def _permute(rows: int, tokens: int, d: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{rows},{d}]", f"i32[{tokens}]@index({rows})", f"f32[{tokens}]")


def _fill(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]", f"i32[{m}]@index({n})", "-1e4")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=embedding_rows,
        reference=embedding_rows_reference,
        family=FAMILY,
        variant="embedding_2d",
        tiny=_embedding(7, 20, 24),
        shapes=(
            _embedding(8192, 128256, 4096),
            _embedding(32768, 32000, 2048),
            _embedding(512, 151936, 5120),
            _embedding(4096, 50257, 768, "f32"),
            _embedding(16384, 128256, 1024),
            _embedding(32, 152064, 8192),
            _embedding(131072, 100000, 128, "f32"),
            _embedding(2048, 32000, 4096, "f32"),
        ),
    ),
    KernelCase(
        kernel=embedding_with_position,
        reference=embedding_with_position_reference,
        family=FAMILY,
        variant="embedding_inner_loop",
        tiny=_positioned(3, 5, 20, 24),
        shapes=(
            _positioned(8, 1024, 50257, 768),
            _positioned(4, 2048, 32000, 4096),
            _positioned(64, 512, 30522, 1024),
            _positioned(1, 512, 128256, 4096),
            _positioned(16, 2048, 50257, 1600),
            _positioned(256, 77, 49408, 768),
            _positioned(32, 128, 32000, 2048),
            _positioned(2, 8192, 32000, 2560),
        ),
    ),
    KernelCase(
        kernel=embedding_bag,
        reference=embedding_bag_reference,
        family=FAMILY,
        variant="weighted_bag",
        tiny=_bag(5, 3, 20, 24, "f32"),
        shapes=(
            _bag(8192, 16, 200000, 128, "f32"),
            _bag(4096, 8, 8192, 4096, "bf16"),
            _bag(65536, 4, 1000000, 64, "f32"),
            _bag(16384, 32, 100000, 128, "bf16"),
            _bag(2048, 6, 12288, 7168, "bf16"),
            _bag(1024, 64, 50000, 256, "f32"),
            _bag(128, 8, 1024, 5120, "bf16"),
            _bag(30000, 10, 500000, 96, "bf16"),
        ),
    ),
    KernelCase(
        kernel=scatter_add_rows,
        reference=scatter_add_rows_reference,
        family=FAMILY,
        variant="atomic_scatter",
        tiny=_scatter(7, 5, 24),
        shapes=(
            _scatter(8192, 4096, 4096),
            _scatter(65536, 1024, 256),
            _scatter(16384, 32000, 1024),
            _scatter(4096, 2048, 7168),
            _scatter(32768, 16384, 512),
            _scatter(1024, 512, 5120),
            _scatter(131072, 50000, 128),
            _scatter(2048, 64, 2048),
        ),
    ),
    KernelCase(
        kernel=gather_columns,
        reference=gather_columns_reference,
        family=FAMILY,
        variant="gather_within_rows",
        tiny=_columns(5, 24, 10),
        shapes=(
            _columns(8192, 4096, 1024),
            _columns(4096, 32000, 256, "f32"),
            _columns(65536, 128, 128),
            _columns(1024, 128256, 2048),
            _columns(16384, 2048, 2048, "f32"),
            _columns(256, 8192, 4096),
            _columns(131072, 256, 8),
            _columns(3001, 5001, 999),
        ),
    ),
    KernelCase(
        kernel=permute_and_scale,
        reference=permute_and_scale_reference,
        family=FAMILY,
        variant="permute_rows",
        tiny=_permute(5, 9, 24),
        shapes=(
            _permute(8192, 16384, 4096),
            _permute(4096, 32768, 2048),
            _permute(1024, 8192, 7168),
            _permute(64, 512, 5120),
            _permute(16384, 65536, 512, "f16"),
            _permute(2048, 4096, 2880),
            _permute(8192, 8192, 8192),
            _permute(256, 2048, 6144, "f32"),
        ),
    ),
    KernelCase(
        kernel=masked_fill_rows,
        reference=masked_fill_rows_reference,
        family=FAMILY,
        variant="masked_fill",
        tiny=_fill(5, 24),
        shapes=(
            _fill(8192, 4096),
            _fill(2048, 32768, "f32"),
            _fill(65536, 512),
            _fill(1024, 2048),
            _fill(16384, 8192),
            _fill(128, 131072, "f32"),
            _fill(4096, 5120, "f16"),
            _fill(9999, 1001),
        ),
        rtol=2e-2,
    ),
)
