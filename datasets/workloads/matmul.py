"""Plain matrix products, written in seven ways.

Layouts follow the BLAS letters: `nn` multiplies [m, k] by [k, n], `nt` takes the right
factor as [n, k] (a linear layer's weight), `tn` the left one as [k, m] (a weight
gradient). Sums are kept in fp32 and the output has the left factor's dtype unless said
otherwise.
"""

from __future__ import annotations

from typing import Any

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase


@helion.kernel(static_shapes=True, autotune_effort="none")
def gemm_nn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """[m, k] @ [k, n], one output tile per program and a loop over k."""
    rows, depth = a.size()
    _, cols = b.size()
    c = torch.empty([rows, cols], dtype=a.dtype, device=a.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = torch.addmm(total, a[tr, td], b[td, tc])
        c[tr, tc] = total.to(a.dtype)
    return c


@helion.kernel(static_shapes=True, autotune_effort="none")
def gemm_nt(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """[m, k] @ [n, k]^T: a linear layer with its weight as stored."""
    rows, depth = x.size()
    cols, _ = w.size()
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = hl.dot(x[tr, td], w[tc, td].T, acc=total)
        y[tr, tc] = total.to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def gemm_tn(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """[k, m]^T @ [k, n]: a weight gradient, summed over the tokens k, in fp32."""
    depth, rows = x.size()
    _, cols = dy.size()
    dw = torch.empty([rows, cols], dtype=torch.float32, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = hl.dot(x[td, tr].T, dy[td, tc], acc=total)
        dw[tr, tc] = total
    return dw


@helion.kernel(static_shapes=True, autotune_effort="none")
def gemm_full_depth(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """[m, k] @ [k, n] with the whole of a short k in one dot, no inner loop."""
    rows, depth = a.size()
    depth = hl.specialize(depth)
    _, cols = b.size()
    c = torch.empty([rows, cols], dtype=a.dtype, device=a.device)
    for tr, tc in hl.tile([rows, cols]):
        product = hl.dot(a[tr, :], b[:, tc], out_dtype=torch.float32)
        c[tr, tc] = product.to(a.dtype)
    return c


@helion.kernel(static_shapes=True, autotune_effort="none")
def gemm_row_panel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """[m, k] @ [k, n]: keep a row panel of `a`, walk the columns inside a program."""
    rows, depth = a.size()
    depth = hl.specialize(depth)
    _, cols = b.size()
    c = torch.empty([rows, cols], dtype=a.dtype, device=a.device)
    for tr in hl.tile(rows):
        panel = a[tr, :]
        for tc in hl.tile(cols):
            product = hl.dot(panel, b[:, tc], out_dtype=torch.float32)
            c[tr, tc] = product.to(a.dtype)
    return c


@helion.kernel(static_shapes=True, autotune_effort="none")
def gemm_split_k_atomic(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """[m, k] @ [k, n] in fp32: programs also split k and add their parts atomically."""
    rows, depth = a.size()
    _, cols = b.size()
    c = torch.zeros([rows, cols], dtype=torch.float32, device=a.device)
    share = hl.register_block_size(64, depth)
    for tr, tc, ts in hl.tile([rows, cols, depth], block_size=[None, None, share]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(ts.begin, ts.end):
            total = torch.addmm(total, a[tr, td], b[td, tc])
        hl.atomic_add(c, [tr, tc], total)
    return c


@helion.kernel(
    static_shapes=True,
    autotune_effort="none",
    ignore_warnings=[helion.exc.TensorOperationInWrapper],
)
def gemm_split_k_parts(
    x: torch.Tensor, w: torch.Tensor, n_parts: hl.constexpr
) -> torch.Tensor:
    """[m, k] @ [n, k]^T: each program sums one k-th part; torch adds the parts."""
    rows, depth = x.size()
    cols, _ = w.size()
    part = depth // n_parts
    parts = torch.empty([n_parts, rows, cols], dtype=torch.float32, device=x.device)
    for tp, tr, tc in hl.tile([n_parts, rows, cols], block_size=[1, None, None]):
        first = tp.begin * part
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(first, first + part):
            total = hl.dot(x[tr, td], w[tc, td].T, acc=total)
        parts[tp.begin, tr, tc] = total
    return parts.sum(0).to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def gram_rows(x: torch.Tensor) -> torch.Tensor:
    """[m, k] @ [m, k]^T: both factors are the same tensor."""
    rows, depth = x.size()
    g = torch.empty([rows, rows], dtype=torch.float32, device=x.device)
    for tr, tc in hl.tile([rows, rows]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            total = hl.dot(x[tr, td], x[tc, td].T, acc=total)
        g[tr, tc] = total
    return g


def _nn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.float() @ b.float()).to(a.dtype)


def _nn_fp32(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.float() @ b.float()


def _nt(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x.float() @ w.float().T).to(x.dtype)


def _nt_parts(x: torch.Tensor, w: torch.Tensor, n_parts: int) -> torch.Tensor:
    return _nt(x, w)


def _tn(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    return x.float().T @ dy.float()


def _gram(x: torch.Tensor) -> torch.Tensor:
    return x.float() @ x.float().T


def _case(
    kernel: object,
    reference: Any,
    variant: str,
    tiny: tuple[str, ...],
    *shapes: tuple[str, ...],
) -> KernelCase:
    return KernelCase(kernel, reference, "matmul", variant, tiny, shapes)


CASES = (
    _case(
        gemm_nn,
        _nn,
        "nn_loop",
        ("f16[33,48]", "f16[48,40]"),
        ("bf16[64,4096]", "bf16[4096,4096]"),
        ("bf16[2048,4096]", "bf16[4096,4096]"),
        ("f16[1024,1024]", "f16[1024,1024]"),
        ("f32[2048,2048]", "f32[2048,2048]"),
        ("bf16[1,4096]", "bf16[4096,14336]"),
        ("bf16[8192,4096]", "bf16[4096,6144]"),
        ("bf16[512,5120]", "bf16[5120,10240]"),
        ("f16[4096,4096]", "f16[4096,4096]"),
        ("bf16[1000,777]", "bf16[777,1301]"),
        ("bf16[65536,256]", "bf16[256,256]"),
        ("f32[512,1024]", "f32[1024,4096]"),
        ("bf16[16,14336]", "bf16[14336,4096]"),
    ),
    _case(
        gemm_nt,
        _nt,
        "nt_loop",
        ("f16[33,48]", "f16[40,48]"),
        ("bf16[16,4096]", "bf16[6144,4096]"),
        ("bf16[4096,4096]", "bf16[4096,4096]"),
        ("bf16[256,5120]", "bf16[5120,5120]"),
        ("f16[1,5120]", "f16[25600,5120]"),
        ("bf16[128,14336]", "bf16[4096,14336]"),
        ("bf16[1024,2880]", "bf16[5120,2880]"),
        ("bf16[32,4096]", "bf16[28672,4096]"),
        ("bf16[8,2048]", "bf16[151936,2048]"),
        ("bf16[8192,2048]", "bf16[6144,2048]"),
        ("f32[1024,2048]", "f32[2048,2048]"),
        ("bf16[511,4095]", "bf16[4097,4095]"),
        ("bf16[512,7168]", "bf16[2112,7168]"),
    ),
    _case(
        gemm_tn,
        _tn,
        "tn_loop",
        ("f16[48,33]", "f16[48,40]"),
        ("bf16[4096,2048]", "bf16[4096,2048]"),
        ("bf16[8192,1024]", "bf16[8192,4096]"),
        ("bf16[32768,128]", "bf16[32768,512]"),
        ("f16[2048,4096]", "f16[2048,4096]"),
        ("bf16[16384,768]", "bf16[16384,3072]"),
        ("f32[4096,1024]", "f32[4096,1024]"),
        ("bf16[1024,5120]", "bf16[1024,5120]"),
        ("bf16[10007,300]", "bf16[10007,200]"),
    ),
    _case(
        gemm_full_depth,
        _nn,
        "full_depth",
        ("f16[33,32]", "f16[32,40]"),
        ("bf16[16384,128]", "bf16[128,2048]"),
        ("bf16[2048,256]", "bf16[256,4096]"),
        ("f16[65536,64]", "f16[64,512]"),
        ("bf16[64,512]", "bf16[512,16384]"),
        ("bf16[8192,64]", "bf16[64,8192]"),
        ("bf16[4096,128]", "bf16[128,5120]"),
        ("f32[8192,64]", "f32[64,1024]"),
        ("bf16[131072,32]", "bf16[32,256]"),
    ),
    _case(
        gemm_row_panel,
        _nn,
        "row_panel",
        ("f16[33,32]", "f16[32,40]"),
        ("bf16[16384,128]", "bf16[128,1024]"),
        ("bf16[65536,64]", "bf16[64,256]"),
        ("f16[32768,256]", "f16[256,512]"),
        ("bf16[8192,256]", "bf16[256,2048]"),
        ("bf16[131072,64]", "bf16[64,128]"),
        ("bf16[4096,512]", "bf16[512,1024]"),
        ("f32[16384,64]", "f32[64,512]"),
        ("bf16[20000,128]", "bf16[128,300]"),
    ),
    _case(
        gemm_split_k_atomic,
        _nn_fp32,
        "split_k_atomic",
        ("f16[33,160]", "f16[160,40]"),
        ("bf16[64,32768]", "bf16[32768,64]"),
        ("bf16[16,14336]", "bf16[14336,4096]"),
        ("bf16[128,8192]", "bf16[8192,512]"),
        ("f16[256,16384]", "f16[16384,256]"),
        ("bf16[8,7168]", "bf16[7168,2048]"),
        ("bf16[32,5120]", "bf16[5120,5120]"),
        ("f32[64,16384]", "f32[16384,128]"),
        ("bf16[128,131072]", "bf16[131072,128]"),
    ),
    _case(
        gemm_split_k_parts,
        _nt_parts,
        "split_k_two_stage",
        ("f16[33,128]", "f16[40,128]", "4"),
        ("bf16[16,8192]", "bf16[4096,8192]", "4"),
        ("bf16[64,16384]", "bf16[256,16384]", "16"),
        ("bf16[1,14336]", "bf16[4096,14336]", "8"),
        ("f16[128,25600]", "f16[5120,25600]", "2"),
        ("bf16[32,4096]", "bf16[1024,4096]", "8"),
        ("bf16[8,28672]", "bf16[8192,28672]", "8"),
        ("bf16[256,7168]", "bf16[512,7168]", "7"),
        ("bf16[4,5120]", "bf16[5120,5120]", "5"),
    ),
    _case(
        gram_rows,
        _gram,
        "gram",
        ("f16[33,48]",),
        ("bf16[2048,4096]",),
        ("bf16[4096,1024]",),
        ("f16[512,16384]",),
        ("f32[1024,1024]",),
        ("bf16[5120,2048]",),
        ("bf16[256,65536]",),
        ("bf16[1500,3000]",),
        ("bf16[8192,128]",),
    ),
)
