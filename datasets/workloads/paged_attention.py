"""Attention of one new token over a cache in pages, found through a block table.

q is [batch, kv_heads, group, d]; the caches are [pages, kv_heads, page, d]; `table`
[batch, most] lists each sequence's pages and `lengths` [batch] its tokens. A sequence
of length zero reads nothing and gives zeros.
"""

from __future__ import annotations

from typing import Any

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase


@helion.kernel(static_shapes=True, autotune_effort="none")
def paged_by_page(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """One page per step: a scalar table entry, then a dense read of the page."""
    batch, kv_heads, group, d = q.size()
    pages, _, page, _ = k_cache.size()
    group = hl.specialize(group)
    page = hl.specialize(page)
    d = hl.specialize(d)
    # A loaded scalar cannot index beside full axes: page, head and slot become one.
    k_rows = k_cache.view(pages * kv_heads * page, d)
    v_rows = v_cache.view(pages * kv_heads * page, d)
    out = torch.empty_like(q)
    for tb, th in hl.tile([batch, kv_heads], block_size=[1, 1]):
        b = tb.begin
        h = th.begin
        length = lengths[b]
        queries = q[b, h, :, :]
        slots = hl.arange(page)
        peak = hl.full([group], -1.0e30, dtype=torch.float32)
        mass = hl.zeros([group], dtype=torch.float32)
        acc = hl.zeros([group, d], dtype=torch.float32)
        for i in hl.grid((length + page - 1) // page):
            rows = (table[b, i] * kv_heads + h) * page + slots
            inside = (i * page + slots < length)[None, :]
            s = hl.dot(queries, k_rows[rows, :].T, out_dtype=torch.float32) * scale
            s = torch.where(inside, s, -1.0e30)
            new_peak = torch.maximum(peak, torch.amax(s, -1))
            p = torch.where(inside, torch.exp(s - new_peak[:, None]), 0.0)
            shrink = torch.exp(peak - new_peak)
            mass = mass * shrink + torch.sum(p, -1)
            acc = hl.dot(p.to(q.dtype), v_rows[rows, :], acc=acc * shrink[:, None])
            peak = new_peak
        out[b, h, :, :] = (acc / torch.clamp(mass, min=1e-20)[:, None]).to(q.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def paged_by_token(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """A tile of tokens per step, each finding its own page: tile and page are free."""
    batch, kv_heads, group, d = q.size()
    pages, _, page, _ = k_cache.size()
    group = hl.specialize(group)
    page = hl.specialize(page)
    d = hl.specialize(d)
    k_rows = k_cache.view(pages * kv_heads * page, d)
    v_rows = v_cache.view(pages * kv_heads * page, d)
    out = torch.empty_like(q)
    for tb, th in hl.tile([batch, kv_heads], block_size=[1, 1]):
        b = tb.begin
        h = th.begin
        length = lengths[b]
        queries = q[b, h, :, :]
        peak = hl.full([group], -1.0e30, dtype=torch.float32)
        mass = hl.zeros([group], dtype=torch.float32)
        acc = hl.zeros([group, d], dtype=torch.float32)
        for tc in hl.tile(0, length):
            of_token = hl.load(table, [b, tc.index // page])
            rows = (of_token * kv_heads + h) * page + tc.index % page
            inside = (tc.index < length)[None, :]
            s = hl.dot(queries, k_rows[rows, :].T, out_dtype=torch.float32) * scale
            s = torch.where(inside, s, -1.0e30)
            new_peak = torch.maximum(peak, torch.amax(s, -1))
            p = torch.where(inside, torch.exp(s - new_peak[:, None]), 0.0)
            shrink = torch.exp(peak - new_peak)
            mass = mass * shrink + torch.sum(p, -1)
            acc = hl.dot(p.to(q.dtype), v_rows[rows, :], acc=acc * shrink[:, None])
            peak = new_peak
        out[b, h, :, :] = (acc / torch.clamp(mass, min=1e-20)[:, None]).to(q.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def paged_split(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    part: hl.constexpr,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """First stage over parts of `part` tokens: unnormalised sums, peaks and masses."""
    batch, kv_heads, group, d = q.size()
    pages, _, page, _ = k_cache.size()
    n_parts = table.size(1) * page // part
    group = hl.specialize(group)
    page = hl.specialize(page)
    d = hl.specialize(d)
    k_rows = k_cache.view(pages * kv_heads * page, d)
    v_rows = v_cache.view(pages * kv_heads * page, d)
    shape = [batch, kv_heads, n_parts, group]
    sums = torch.empty([*shape, d], dtype=torch.float32, device=q.device)
    peaks = torch.empty(shape, dtype=torch.float32, device=q.device)
    masses = torch.empty(shape, dtype=torch.float32, device=q.device)
    for tb, th, tp in hl.tile([batch, kv_heads, n_parts], block_size=[1, 1, 1]):
        b = tb.begin
        h = th.begin
        first = tp.begin * part
        length = lengths[b]
        queries = q[b, h, :, :]
        peak = hl.full([group], -1.0e30, dtype=torch.float32)
        mass = hl.zeros([group], dtype=torch.float32)
        acc = hl.zeros([group, d], dtype=torch.float32)
        for tc in hl.tile(first, first + part):
            of_token = hl.load(table, [b, tc.index // page])
            rows = (of_token * kv_heads + h) * page + tc.index % page
            inside = (tc.index < length)[None, :]
            s = hl.dot(queries, k_rows[rows, :].T, out_dtype=torch.float32) * scale
            s = torch.where(inside, s, -1.0e30)
            new_peak = torch.maximum(peak, torch.amax(s, -1))
            p = torch.where(inside, torch.exp(s - new_peak[:, None]), 0.0)
            shrink = torch.exp(peak - new_peak)
            mass = mass * shrink + torch.sum(p, -1)
            acc = hl.dot(p.to(q.dtype), v_rows[rows, :], acc=acc * shrink[:, None])
            peak = new_peak
        sums[b, h, tp.begin, :, :] = acc
        peaks[b, h, tp.begin, :] = peak
        masses[b, h, tp.begin, :] = mass
    return sums, peaks, masses


def _tokens(cache: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """The cache of every sequence in order: [batch, kv_heads, most * page, d]."""
    chosen = cache[table.long()].float()
    return chosen.transpose(1, 2).flatten(2, 3)


def _masked_scores(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    keys = _tokens(k_cache, table)
    s = q.float() @ keys.transpose(2, 3) * scale
    at = torch.arange(keys.size(2), device=q.device)
    inside = (at[None, :] < lengths[:, None])[:, None, None, :]
    return torch.where(inside, s, -1.0e30), inside


def _ref_paged(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    s, inside = _masked_scores(q, k_cache, table, lengths, scale)
    p = torch.where(inside, torch.softmax(s, -1), 0.0)
    return (p @ _tokens(v_cache, table)).to(q.dtype)


def _ref_split(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    part: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    s, inside = _masked_scores(q, k_cache, table, lengths, scale)
    s = s.unflatten(3, (-1, part)).transpose(2, 3)
    inside = inside.unflatten(3, (-1, part)).transpose(2, 3)
    peaks = s.amax(-1)
    p = torch.where(inside, torch.exp(s - peaks[..., None]), 0.0)
    values = _tokens(v_cache, table).unflatten(2, (-1, part))
    return p @ values, peaks, p.sum(-1)


def _case(
    kernel: object,
    reference: Any,
    variant: str,
    tiny: tuple[str, ...],
    *shapes: tuple[str, ...],
) -> KernelCase:
    return KernelCase(kernel, reference, "attention_paged", variant, tiny, shapes)


def _paged(
    dtype: str, b: int, kv: int, g: int, d: int, page: int, most: int, pages: int
) -> tuple[str, ...]:
    """Lengths are uniform up to a full table."""
    return (
        f"{dtype}[{b},{kv},{g},{d}]",
        f"{dtype}[{pages},{kv},{page},{d}]",
        f"{dtype}[{pages},{kv},{page},{d}]",
        f"i32[{b},{most}]@index({pages})",
        f"i32[{b}]@index({most * page + 1})",
        f"{d**-0.5:.6g}",
    )


def _grid(kernel_takes_part: bool) -> tuple[tuple[str, ...], ...]:
    """Serving's grid, best value first: batch, heads, head width, page, context."""
    heads = ((8, 4, 128), (8, 8, 128), (2, 16, 64), (4, 8, 128))
    loads = (
        (64, 16, 2048),
        (1, 16, 32768),
        (256, 16, 1024),
        (16, 64, 8192),
        (32, 32, 4096),
        (128, 128, 1024),
        (8, 16, 16384),
        (4, 64, 32768),
    )
    turns = [(i, j) for i in range(3) for j in range(8)]
    shapes = []
    for turn, j in turns:
        b, page, context = loads[j]
        kv, g, d = heads[(j + turn) % len(heads)]
        most = context // page
        # Half as many pages as the tables could name: prefixes are shared.
        pages = max(most, b * most // 2)
        args = _paged("bf16", b, kv, g, d, page, most, pages)
        shapes.append((*args, "512") if kernel_takes_part else args)
    return tuple(shapes)


_TINY = _paged("f16", 3, 2, 16, 32, 16, 4, 7)

CASES = (
    _case(paged_by_page, _ref_paged, "page_per_step", _TINY, *_grid(False)),
    _case(paged_by_token, _ref_paged, "token_tile", _TINY, *_grid(False)),
    _case(paged_split, _ref_split, "split_context", (*_TINY, "32"), *_grid(True)),
)
