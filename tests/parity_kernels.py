"""Kernels of every shape of loop, for the laws that features must keep.

Each is small and written for this project. `CASES` gives a kernel, its arguments in
the command line's grammar, and the class that its structure should be read as.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import helion
import helion.language as hl
import torch

from costmodel import helion_hook
from costmodel.arguments import parse_argument
from costmodel.hardware import load_hardware
from costmodel.target import bind
from costmodel.types import KernelClass

static = helion.kernel(static_shapes=True)
dynamic = helion.kernel(static_shapes=False)


@static
def broadcast_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a, b = torch.broadcast_tensors(a, b)
    out = torch.empty(a.shape, dtype=a.dtype, device=a.device)
    for tile in hl.tile(out.size()):
        out[tile] = a[tile] + b[tile]
    return out


@static
def row_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        value = x[rows, :].to(torch.float32)
        scale = torch.rsqrt((value * value).mean(-1) + 1e-6)
        out[rows, :] = (value * scale[:, None] * w[:].to(torch.float32)).to(x.dtype)
    return out


@static
def two_pass_softmax(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty_like(x)
    row_block = hl.register_block_size(m)
    column_block = hl.register_block_size(n)
    for rows in hl.tile(m, block_size=row_block):
        top = hl.full([rows], float("-inf"), dtype=torch.float32)
        total = hl.zeros([rows], dtype=torch.float32)
        for columns in hl.tile(n, block_size=column_block):
            value = x[rows, columns].to(torch.float32)
            higher = torch.maximum(top, torch.amax(value, dim=1))
            total = total * torch.exp(top - higher)
            total = total + torch.exp(value - higher[:, None]).sum(dim=1)
            top = higher
        for columns in hl.tile(n, block_size=column_block):
            value = x[rows, columns].to(torch.float32)
            share = torch.exp(value - top[:, None]) / total[:, None]
            out[rows, columns] = share.to(x.dtype)
    return out


@static
def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = y.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([m, n]):
        acc = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            acc = torch.addmm(acc, x[rows, inner], y[inner, columns])
        out[rows, columns] = acc.to(x.dtype)
    return out


@static
def product_gelu(x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = y.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([m, n]):
        acc = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            acc = torch.addmm(acc, x[rows, inner], y[inner, columns])
        value = torch.nn.functional.gelu(acc + bias[columns])
        out[rows, columns] = value.to(x.dtype)
    return out


@static
def product_row_norm(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = hl.specialize(y.size(1))
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for rows in hl.tile(m):
        acc = hl.zeros([rows, n], dtype=torch.float32)
        for inner in hl.tile(k):
            acc = torch.addmm(acc, x[rows, inner], y[inner, :])
        scale = torch.rsqrt((acc * acc).mean(-1) + 1e-6)
        out[rows, :] = (acc * scale[:, None]).to(x.dtype)
    return out


@static
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    heads, m, depth = q.size()
    n = k.size(1)
    depth = hl.specialize(depth)
    out = torch.empty_like(q)
    for head, rows in hl.tile([heads, m]):
        top = hl.full([head, rows], float("-inf"), dtype=torch.float32)
        total = hl.full([head, rows], 1.0, dtype=torch.float32)
        acc = hl.zeros([head, rows, depth], dtype=torch.float32)
        query = q[head, rows, :]
        for columns in hl.tile(n):
            score = torch.bmm(query, k[head, columns, :].transpose(1, 2))
            score = score.to(torch.float32) * 0.125
            higher = torch.maximum(top, torch.amax(score, -1))
            weight = torch.exp2(score - higher[:, :, None])
            fade = torch.exp2(top - higher)
            total = total * fade + torch.sum(weight, -1)
            acc = acc * fade[:, :, None]
            acc = torch.baddbmm(acc, weight.to(v.dtype), v[head, columns, :])
            top = higher
        out[head, rows, :] = (acc / total[:, :, None]).to(out.dtype)
    return out


@static
def causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    heads, m, depth = q.size()
    depth = hl.specialize(depth)
    out = torch.empty_like(q)
    for head, rows in hl.tile([heads, m], block_size=[1, None]):
        top = hl.full([rows], float("-inf"), dtype=torch.float32)
        total = hl.zeros([rows], dtype=torch.float32)
        acc = hl.zeros([rows, depth], dtype=torch.float32)
        query = q[head.begin, rows, :]
        for columns in hl.tile(0, rows.end):
            score = hl.dot(query, k[head.begin, columns, :].T) * 0.125
            seen = rows.index[:, None] >= columns.index[None, :]
            score = torch.where(seen, score, float("-inf"))
            higher = torch.maximum(top, torch.amax(score, 1))
            weight = torch.exp2(score - higher[:, None])
            fade = torch.exp2(top - higher)
            total = total * fade + weight.sum(1)
            acc = acc * fade[:, None]
            acc = hl.dot(weight.to(v.dtype), v[head.begin, columns, :], acc=acc)
            top = higher
        out[head.begin, rows, :] = (acc / total[:, None]).to(out.dtype)
    return out


@static
def ragged_total(values: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    # Whole-row accumulators stand in the IR at their padded length, without a symbol.
    width = values.size(1)
    groups = starts.size(0) - 1
    out = torch.empty([groups], dtype=torch.float32, device=values.device)
    for group in hl.grid(groups):
        acc = hl.zeros([width], dtype=torch.float32)
        for rows in hl.tile(starts[group], starts[group + 1]):
            acc = acc + values[rows, :].sum(0)
        out[group] = acc.sum()
    return out


@static
def ragged_sum(values: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    width = values.size(1)
    groups = starts.size(0) - 1
    out = torch.zeros([groups, width], dtype=torch.float32, device=values.device)
    flat = values.view(-1)
    for group in hl.tile(groups):
        first = starts[group]
        length = starts[group.index + 1] - first
        longest = length.amax()
        for columns in hl.tile(width):
            acc = hl.zeros([group, columns], dtype=torch.float32)
            for step in hl.tile(0, longest):
                row = first[:, None] + step.index[None, :]
                inside = step.index[None, :] < length[:, None]
                index = row[:, :, None] * width + columns.index[None, None, :]
                keep = inside[:, :, None] & (columns.index < width)[None, None, :]
                acc = acc + hl.load(flat, [index], extra_mask=keep).sum(dim=1)
            out[group, columns] = acc
    return out


@static
def grouped_product(
    x: torch.Tensor, w: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    total, k = x.size()
    groups, _, n = w.size()
    out = torch.empty([total, n], dtype=x.dtype, device=x.device)
    for group in hl.grid(groups):
        low = starts[group]
        high = starts[group + 1]
        for rows, columns in hl.tile([low, 0], [high, n]):
            acc = hl.zeros([rows, columns], dtype=torch.float32)
            for inner in hl.tile(k):
                acc = torch.addmm(acc, x[rows, inner], w[group, inner, columns])
            out[rows, columns] = acc.to(x.dtype)
    return out


@static
def split_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = y.size(1)
    out = torch.zeros([m, n], dtype=torch.float32, device=x.device)
    split_k = hl.register_tunable(
        "split_k", helion.autotuner.PowerOfTwoFragment(1, 256)
    )
    chunk = helion.next_power_of_2(helion.cdiv(k, split_k))
    for rows, columns, outer in hl.tile([m, n, k], block_size=[None, None, chunk]):
        acc = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(outer.begin, outer.end):
            acc = torch.addmm(acc, x[rows, inner], y[inner, columns])
        hl.atomic_add(out, [rows, columns], acc)
    return out


@static
def product_in_chunks(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = y.size(1)
    out = torch.zeros([m, n], dtype=torch.float32, device=x.device)
    for rows, columns, outer in hl.tile([m, n, k]):
        acc = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(outer.begin, outer.end):
            acc = torch.addmm(acc, x[rows, inner], y[inner, columns])
        hl.atomic_add(out, [rows, columns], acc)
    return out


@static
def literal_tiles(x: torch.Tensor) -> torch.Tensor:
    b, m, n = x.size()
    out = torch.empty_like(x)
    for batch, rows in hl.tile([b, m], block_size=[1, None]):
        for columns in hl.tile(n, block_size=64):
            value = x[batch, rows, columns].to(torch.float32)
            out[batch, rows, columns] = torch.exp(value).to(x.dtype)
    return out


@static
def grid_rows(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    b, m, _ = x.size()
    out = torch.empty_like(x)
    for i in hl.grid(b):
        for rows in hl.tile(m):
            value = x[i, rows, :].to(torch.float32)
            scale = torch.rsqrt((value * value).mean(-1, keepdim=True) + 1e-6)
            out[i, rows, :] = (value * scale * w[i, :][None, :]).to(x.dtype)
    return out


@static
def row_chunk_gradient(
    dy: torch.Tensor, x: torch.Tensor, scale: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    m, n = x.size()
    chunk = hl.register_block_size(m)
    dx = torch.empty_like(x)
    dw = x.new_empty([(m + chunk - 1) // chunk, n], dtype=torch.float32)
    for outer in hl.tile(m, block_size=chunk):
        acc = w.new_zeros([n], dtype=torch.float32)
        for rows in hl.tile(outer.begin, outer.end):
            value = x[rows, :].to(torch.float32) * scale[rows][:, None]
            up = dy[rows, :].to(torch.float32)
            acc += (up * value).sum(0)
            weighted = w[None, :].to(torch.float32) * up
            mean = (weighted * value).mean(-1)
            dx[rows, :] = (weighted - value * mean[:, None]).to(x.dtype)
        dw[outer.id, :] = acc
    return dx, dw


@dynamic
def dynamic_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = y.size(1)
    out = torch.empty([m, 2 * n], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([m, n]):
        acc = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            acc = torch.addmm(acc, x[rows, inner], y[inner, columns])
        out[rows, columns] = acc.to(x.dtype)
        hl.store(out, [rows, columns.index + n], acc.to(x.dtype))
    return out


@dynamic
def dynamic_row_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        value = x[rows, :].to(torch.float32)
        scale = torch.rsqrt((value * value).mean(-1) + 1e-6)
        out[rows, :] = (value * scale[:, None] * w[:].to(torch.float32)).to(x.dtype)
    return out


@static
def quantise_groups(
    x: torch.Tensor, group: hl.constexpr
) -> tuple[torch.Tensor, torch.Tensor]:
    n, d = x.size()
    d = hl.specialize(d)
    groups = d // group
    q = torch.empty([n, groups, group], dtype=torch.float8_e4m3fn, device=x.device)
    s = torch.empty([n, groups], dtype=torch.float32, device=x.device)
    grouped = x.view(n, groups, group)
    for rows, part in hl.tile([n, groups]):
        value = grouped[rows, part, :].to(torch.float32)
        scale = torch.clamp(value.abs().amax(-1), min=1e-10) / 448.0
        s[rows, part] = scale
        q[rows, part, :] = (value / scale[:, :, None]).to(torch.float8_e4m3fn)
    return q, s


@static
def float8_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = y.size(1)
    out = torch.empty([m, n], dtype=torch.float16, device=x.device)
    for rows, columns in hl.tile([m, n]):
        acc = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            acc = hl.dot(x[rows, inner], y[inner, columns], acc=acc)
        out[rows, columns] = acc.to(torch.float16)
    return out


@static
def packed_int4_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    m, k = a.shape
    n = b.shape[1]
    out = torch.zeros(m, n, dtype=torch.bfloat16, device=a.device)
    block = hl.register_block_size(k // 2)
    for rows, columns in hl.tile([m, n]):
        acc = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k // 2, block_size=block):
            first = inner.begin * 2
            left = a[rows, first : first + inner.block_size * 2].to(torch.float32)
            packed = b[inner, columns]
            low = ((packed << 4) >> 4).to(torch.float32)
            high = (packed >> 4).to(torch.float32)
            right = torch.stack([low, high], dim=1)
            right = right.reshape(inner.block_size * 2, columns.block_size)
            acc = acc + (left.unsqueeze(2) * right.unsqueeze(0)).sum(dim=1)
        out[rows, columns] = acc.to(torch.bfloat16)
    return out


@static
def gather_rows(index: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    n = index.size(0)
    width = table.size(1)
    out = torch.empty([n, width], dtype=table.dtype, device=table.device)
    for rows, columns in hl.tile([n, width]):
        out[rows, columns] = table[index[rows], columns]
    return out


@static
def join_columns(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, a = x.size()
    b = y.size(1)
    out = torch.empty([m, a + b], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([m, a + b]):
        is_left = (columns.index < a)[None, :]
        left = hl.load(x, [rows, columns], extra_mask=is_left)
        is_right = (columns.index >= a)[None, :]
        right = hl.load(y, [rows, columns.index - a], extra_mask=is_right)
        out[rows, columns] = torch.where(is_left, left, right)
    return out


@static
def two_grids(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty_like(x)
    total = torch.empty([m], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        total[rows] = x[rows, :].to(torch.float32).sum(-1)
    hl.barrier()
    for rows, columns in hl.tile([m, n]):
        out[rows, columns] = (x[rows, columns] / total[rows][:, None]).to(x.dtype)
    return out


@static
def chunk_scan(
    x: torch.Tensor, decay: torch.Tensor, c: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    batch, chunks, length, heads, width = x.size()
    hl.specialize(b.size(-1))
    out = torch.empty_like(x)
    for i, j, h in hl.tile([batch, chunks, heads], block_size=[1, 1, 1]):
        for rows, columns in hl.tile([length, width]):
            acc = hl.zeros([rows, columns], dtype=torch.float32)
            for inner in hl.tile((rows.id + 1) * rows.block_size):
                left = c[i.begin, j.begin, rows, :]
                mix = torch.matmul(left, b[i.begin, j.begin, inner, :].T)
                fade = torch.exp(
                    decay[i.begin, h.begin, j.begin, rows][:, None]
                    - decay[i.begin, h.begin, j.begin, inner][None, :]
                )
                part = x[i.begin, j.begin, inner, h.begin, columns]
                acc = hl.dot((mix * fade).to(x.dtype), part, acc=acc)
            out[i.begin, j.begin, rows, h.begin, columns] = acc.to(x.dtype)
    return out


@dataclass(frozen=True, slots=True)
class ParityCase:
    """A kernel, its arguments, and the class it should be read as."""

    kernel: Any
    arguments: tuple[str, ...]
    kernel_class: KernelClass


_POINTWISE = KernelClass.POINTWISE
_REDUCTION = KernelClass.REDUCTION
_MATMUL = KernelClass.MATMUL
_MULTI_DOT = KernelClass.MULTI_DOT
_DATA = KernelClass.DATA_DEPENDENT
_SQUARE = ("bf16[512,1024]", "bf16[1024,2048]")
_HEADS = ("bf16[16,1024,64]", "bf16[16,1024,64]", "bf16[16,1024,64]")

CASES: dict[str, ParityCase] = {
    case.kernel.name: case
    for case in (
        ParityCase(broadcast_add, ("bf16[2048,4096]", "bf16[4096]"), _POINTWISE),
        ParityCase(row_norm, ("bf16[4096,5120]", "bf16[5120]"), _REDUCTION),
        ParityCase(two_pass_softmax, ("bf16[4096,8192]",), _REDUCTION),
        ParityCase(product, _SQUARE, _MATMUL),
        ParityCase(product_gelu, (*_SQUARE, "bf16[2048]"), _MATMUL),
        ParityCase(
            product_row_norm,
            ("bf16[4096,1024]", "bf16[1024,256]"),
            KernelClass.MATMUL_REDUCTION,
        ),
        ParityCase(attention, _HEADS, _MULTI_DOT),
        ParityCase(causal_attention, _HEADS, _MULTI_DOT),
        ParityCase(ragged_sum, ("f32[904,128]", "i32[5]@offsets(904)"), _DATA),
        ParityCase(
            grouped_product,
            ("bf16[256,256]", "bf16[4,256,512]", "i32[5]@offsets(256)"),
            _DATA,
        ),
        ParityCase(split_product, ("bf16[64,8192]", "bf16[8192,256]"), _MATMUL),
        ParityCase(product_in_chunks, ("bf16[64,8192]", "bf16[8192,256]"), _MATMUL),
        ParityCase(literal_tiles, ("bf16[8,256,1000]",), _POINTWISE),
        ParityCase(grid_rows, ("bf16[8,256,1000]", "bf16[8,1000]"), _REDUCTION),
        ParityCase(
            row_chunk_gradient,
            ("bf16[4096,2048]", "bf16[4096,2048]", "f32[4096]", "bf16[2048]"),
            _REDUCTION,
        ),
        ParityCase(dynamic_product, ("bf16[500,700]", "bf16[700,900]"), _MATMUL),
        ParityCase(dynamic_row_norm, ("bf16[500,700]", "bf16[700]"), _REDUCTION),
        ParityCase(quantise_groups, ("bf16[4096,4096]", "128"), _REDUCTION),
        ParityCase(float8_product, ("f8e4m3[512,1024]", "f8e4m3[1024,2048]"), _MATMUL),
        ParityCase(packed_int4_product, ("bf16[512,1024]", "i8[512,2048]"), _REDUCTION),
        ParityCase(
            gather_rows, ("i32[4096]@index(32000)", "bf16[32000,512]"), _POINTWISE
        ),
        ParityCase(join_columns, ("bf16[512,300]", "bf16[512,400]"), _POINTWISE),
        ParityCase(two_grids, ("bf16[512,1000]",), _REDUCTION),
        ParityCase(
            chunk_scan,
            (
                "bf16[2,4,256,8,64]",
                "f32[2,8,4,256]",
                "bf16[2,4,256,64]",
                "bf16[2,4,256,64]",
            ),
            _MULTI_DOT,
        ),
    )
}


def bind_case(name: str, gpu: str = "H200") -> Any:
    """Bind a case for a GPU that need not be here; a fresh bind every time."""
    case = CASES[name]
    arguments = [parse_argument(text) for text in case.arguments]
    return bind(case.kernel, arguments, load_hardware(gpu))


@functools.cache
def bound_case(name: str) -> Any:
    """One bind for H200, shared by the tests of a session."""
    return bind_case(name)


@functools.cache
def view_of(name: str) -> helion_hook.HelionView:
    """What Helion says of a case on H200."""
    return helion_hook.view(bound_case(name))
