"""Reductions: last axis, first axis, whole arrays; sums, moments, positions."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "reduction"


@helion.kernel(static_shapes=True, autotune_effort="none")
def row_sum(x: torch.Tensor) -> torch.Tensor:
    """Sum over the last axis, whole rows. Returns f32 [m]."""
    m, _ = x.size()
    out = torch.empty([m], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        out[rows] = x[rows, :].to(torch.float32).sum(-1)
    return out


def row_sum_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return x.float().sum(-1)


@helion.kernel(static_shapes=True, autotune_effort="none")
def row_sum_looped(x: torch.Tensor) -> torch.Tensor:
    """The same with a two-dimensional accumulator reduced once at the end."""
    m, n = x.size()
    out = torch.empty([m], dtype=torch.float32, device=x.device)
    block_n = hl.register_block_size(n)
    for rows in hl.tile(m):
        total = hl.zeros([rows, block_n], dtype=torch.float32)
        for cols in hl.tile(n, block_size=block_n):
            total = total + x[rows, cols].to(torch.float32)
        out[rows] = total.sum(-1)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def row_sum_split(x: torch.Tensor) -> torch.Tensor:
    """The same with columns split over the grid and partial sums added atomically."""
    m, n = x.size()
    out = torch.zeros([m], dtype=torch.float32, device=x.device)
    for rows, cols in hl.tile([m, n]):
        hl.atomic_add(out, [rows], x[rows, cols].to(torch.float32).sum(-1))
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def column_sum(x: torch.Tensor) -> torch.Tensor:
    """Sum over the first axis, rows looped. Returns f32 [n]."""
    m, n = x.size()
    out = torch.empty([n], dtype=torch.float32, device=x.device)
    for cols in hl.tile(n):
        total = hl.zeros([cols], dtype=torch.float32)
        for rows in hl.tile(m):
            total = total + x[rows, cols].to(torch.float32).sum(0)
        out[cols] = total
    return out


def column_sum_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return x.float().sum(0)


@helion.kernel(static_shapes=True, autotune_effort="none")
def column_sum_split(x: torch.Tensor) -> torch.Tensor:
    """The same over a grid of blocks that add atomically."""
    m, n = x.size()
    out = torch.zeros([n], dtype=torch.float32, device=x.device)
    for rows, cols in hl.tile([m, n]):
        hl.atomic_add(out, [cols], x[rows, cols].to(torch.float32).sum(0))
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def middle_mean(x: torch.Tensor) -> torch.Tensor:
    """Mean over the middle axis of [a, b, c], as pooling over tokens does."""
    a, b, c = x.size()
    out = torch.empty([a, c], dtype=x.dtype, device=x.device)
    for i, k in hl.tile([a, c]):
        total = hl.zeros([i, k], dtype=torch.float32)
        for j in hl.tile(b):
            total = total + x[i, j, k].to(torch.float32).sum(1)
        out[i, k] = (total / b).to(x.dtype)
    return out


def middle_mean_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return x.float().mean(1).to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def mean_variance(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and biased variance of each row, whole rows. Returns f32 [m] twice."""
    m, _ = x.size()
    mean = torch.empty([m], dtype=torch.float32, device=x.device)
    variance = torch.empty([m], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        v = x[rows, :].to(torch.float32)
        centre = v.mean(-1)
        deviation = v - centre[:, None]
        mean[rows] = centre
        variance[rows] = (deviation * deviation).mean(-1)
    return mean, variance


def mean_variance_reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    v = x.float()
    return v.mean(-1), v.var(-1, correction=0)


@helion.kernel(static_shapes=True, autotune_effort="none")
def row_argmax(x: torch.Tensor) -> torch.Tensor:
    """Position of the largest entry of each row, whole rows. Returns i64 [m]."""
    m, _ = x.size()
    out = torch.empty([m], dtype=torch.int64, device=x.device)
    for rows in hl.tile(m):
        out[rows] = x[rows, :].to(torch.float32).argmax(-1).to(torch.int64)
    return out


def row_argmax_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return x.float().argmax(-1)


@helion.kernel(static_shapes=True, autotune_effort="none")
def row_argmax_looped(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Largest entry and its position, columns looped; what greedy decoding does."""
    m, n = x.size()
    best = torch.empty([m], dtype=torch.float32, device=x.device)
    place = torch.empty([m], dtype=torch.int32, device=x.device)
    for rows in hl.tile(m):
        top = hl.full([rows], float("-inf"), dtype=torch.float32)
        at = hl.zeros([rows], dtype=torch.int32)
        for cols in hl.tile(n):
            v = x[rows, cols].to(torch.float32)
            block_top = v.amax(-1)
            here = torch.where(
                v == block_top[:, None], cols.index[None, :], 2147483647
            ).amin(-1)
            better = block_top > top
            at = torch.where(better, here.to(torch.int32), at)
            top = torch.maximum(top, block_top)
        best[rows] = top
        place[rows] = at
    return best, place


def row_argmax_looped_reference(
    x: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch: the first of equal entries."""
    v = x.float()
    top = v.amax(-1)
    columns = torch.arange(x.size(1), device=x.device)
    at = torch.where(v == top[:, None], columns, x.size(1)).amin(-1)
    return top, at.to(torch.int32)


@helion.kernel(static_shapes=True, autotune_effort="none")
def normalise_l2(x: torch.Tensor) -> torch.Tensor:
    """x / max(norm(x), 1e-6) by row, whole rows."""
    m, _ = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        v = x[rows, :].to(torch.float32)
        norm = torch.clamp(torch.sqrt((v * v).sum(-1)), min=1e-6)
        out[rows, :] = (v / norm[:, None]).to(x.dtype)
    return out


def normalise_l2_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return torch.nn.functional.normalize(x.float(), dim=-1, eps=1e-6).to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def max_and_count(
    x: torch.Tensor, threshold: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Maximum of each row and how many entries exceed a threshold."""
    m, n = x.size()
    top_out = torch.empty([m], dtype=torch.float32, device=x.device)
    count_out = torch.empty([m], dtype=torch.int32, device=x.device)
    for rows in hl.tile(m):
        top = hl.full([rows], float("-inf"), dtype=torch.float32)
        count = hl.zeros([rows], dtype=torch.int32)
        for cols in hl.tile(n):
            v = x[rows, cols].to(torch.float32)
            top = torch.maximum(top, v.amax(-1))
            above = (v > threshold) & (cols.index < n)[None, :]
            count = count + above.to(torch.int32).sum(-1).to(torch.int32)
        top_out[rows] = top
        count_out[rows] = count
    return top_out, count_out


def max_and_count_reference(
    x: torch.Tensor, threshold: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    v = x.float()
    return v.amax(-1), (v > threshold).sum(-1).to(torch.int32)


def _larger(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.abs(a) > torch.abs(b), a, b)


@helion.kernel(static_shapes=True, autotune_effort="none")
def signed_peak(x: torch.Tensor) -> torch.Tensor:
    """The entry of largest magnitude, sign kept, by a reduction of our own. f32 [m]."""
    m, _ = x.size()
    out = torch.empty([m], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        v = x[rows, :].to(torch.float32)
        out[rows] = hl.reduce(_larger, v, dim=1)
    return out


def signed_peak_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    v = x.float()
    return v.gather(1, v.abs().argmax(-1, keepdim=True)).squeeze(1)


@helion.kernel(static_shapes=True, autotune_effort="none")
def total_sum(x: torch.Tensor) -> torch.Tensor:
    """Sum of a long vector, one atomic add per block. Returns f32 [1]."""
    n = x.size(0)
    out = torch.zeros([1], dtype=torch.float32, device=x.device)
    for tile in hl.tile(n):
        hl.atomic_add(out, [0], x[tile].to(torch.float32).sum(-1))
    return out


def total_sum_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return x.float().sum().reshape(1)


def _one(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]",)


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=row_sum,
        reference=row_sum_reference,
        family=FAMILY,
        variant="last_axis_one_pass",
        tiny=_one(5, 96),
        shapes=(
            _one(8192, 8192),
            _one(1024, 32768, "f32"),
            _one(262144, 256),
            _one(4096, 4096, "f32"),
            _one(128, 65536),
            _one(65536, 1023),
            _one(1024, 2048),
            _one(16384, 5120, "f16"),
        ),
        atol=5e-2,
    ),
    KernelCase(
        kernel=row_sum_looped,
        reference=row_sum_reference,
        family=FAMILY,
        variant="last_axis_looped",
        tiny=_one(5, 96),
        shapes=(
            _one(1024, 131072),
            _one(8192, 4096, "f32"),
            _one(64, 1048576),
            _one(16384, 8192),
            _one(2048, 50257, "f16"),
            _one(4, 130000, "f32"),
            _one(65536, 512, "f32"),
            _one(512, 8192),
        ),
        atol=5e-2,
    ),
    KernelCase(
        kernel=row_sum_split,
        reference=row_sum_reference,
        family=FAMILY,
        variant="last_axis_atomic",
        tiny=_one(5, 96),
        shapes=(
            _one(16, 1048576),
            _one(4, 130000, "f32"),
            _one(256, 262144, "f32"),
            _one(2048, 16384),
            _one(1, 8388608),
            _one(8192, 2048),
            _one(128, 128256),
            _one(64, 65536, "f32"),
        ),
        atol=5e-2,
    ),
    KernelCase(
        kernel=column_sum,
        reference=column_sum_reference,
        family=FAMILY,
        variant="first_axis_looped",
        tiny=_one(24, 96),
        shapes=(
            _one(4096, 8192),
            _one(32768, 1024),
            _one(1024, 16384, "f32"),
            _one(8192, 4096, "f16"),
            _one(512, 65536),
            _one(2048, 2880),
            _one(16384, 2048, "f32"),
            _one(128, 32768),
        ),
        atol=5e-2,
    ),
    KernelCase(
        kernel=column_sum_split,
        reference=column_sum_reference,
        family=FAMILY,
        variant="first_axis_atomic",
        tiny=_one(24, 96),
        shapes=(
            _one(65536, 512),
            _one(8192, 8192),
            _one(1048576, 64, "f32"),
            _one(16384, 4096),
            _one(4096, 1024, "f32"),
            _one(262144, 256, "f16"),
            _one(2048, 12288),
            _one(100003, 300),
        ),
        atol=5e-2,
    ),
    KernelCase(
        kernel=middle_mean,
        reference=middle_mean_reference,
        family=FAMILY,
        variant="middle_axis_looped",
        tiny=("bf16[3,8,24]",),
        shapes=(
            ("bf16[64,512,1024]",),
            ("bf16[8,4096,4096]",),
            ("f32[256,196,768]",),
            ("bf16[512,64,2048]",),
            ("f16[4,16384,1024]",),
            ("f32[32,2048,256]",),
            ("bf16[1024,128,512]",),
            ("bf16[16,1000,3000]",),
        ),
    ),
    KernelCase(
        kernel=mean_variance,
        reference=mean_variance_reference,
        family=FAMILY,
        variant="moments_one_pass",
        tiny=_one(5, 96),
        shapes=(
            _one(16384, 4096),
            _one(2048, 16384, "f32"),
            _one(262144, 128),
            _one(4096, 2560, "f16"),
            _one(1024, 1024),
            _one(65536, 768, "f32"),
            _one(256, 65536),
            _one(8192, 3001),
        ),
    ),
    KernelCase(
        kernel=row_argmax,
        reference=row_argmax_reference,
        family=FAMILY,
        variant="position_one_pass",
        tiny=_one(5, 96, "f32"),
        shapes=(
            _one(4096, 8192, "f32"),
            _one(256, 32000, "f32"),
            _one(65536, 256, "f32"),
            _one(1024, 16384, "f32"),
            _one(64, 65536, "f32"),
            _one(16384, 1000, "f32"),
            _one(8, 32768, "f32"),
            _one(131072, 128, "f32"),
        ),
        rtol=0.0,
        atol=0.0,
    ),
    KernelCase(
        kernel=row_argmax_looped,
        reference=row_argmax_looped_reference,
        family=FAMILY,
        variant="position_looped",
        tiny=_one(5, 96),
        shapes=(
            _one(512, 128256),
            _one(64, 151936),
            _one(4096, 32000),
            _one(2048, 50257, "f32"),
            _one(16384, 4096),
            _one(1, 128256),
            _one(256, 256000),
            _one(32768, 1024, "f32"),
        ),
        rtol=0.0,
        atol=0.0,
    ),
    KernelCase(
        kernel=normalise_l2,
        reference=normalise_l2_reference,
        family=FAMILY,
        variant="norm_one_pass",
        tiny=_one(5, 96),
        shapes=(
            _one(32768, 1024),
            _one(262144, 128),
            _one(8192, 4096, "f32"),
            _one(1024, 12288),
            _one(65536, 384, "f16"),
            _one(256, 2048),
            _one(4096, 8192),
            _one(16384, 1535),
        ),
    ),
    KernelCase(
        kernel=max_and_count,
        reference=max_and_count_reference,
        family=FAMILY,
        variant="two_results_looped",
        tiny=(*_one(5, 96), "0.5"),
        shapes=(
            (*_one(8192, 8192), "0.5"),
            (*_one(1024, 128256), "2.0"),
            (*_one(65536, 512, "f32"), "0.5"),
            (*_one(4096, 4096), "0.5"),
            (*_one(128, 32768, "f32"), "0.5"),
            (*_one(2048, 32000), "1.0"),
            (*_one(16384, 2048, "f16"), "0.5"),
            (*_one(32, 1000000), "3.0"),
        ),
        rtol=0.0,
        atol=0.0,
    ),
    KernelCase(
        kernel=signed_peak,
        reference=signed_peak_reference,
        family=FAMILY,
        variant="custom_reduce",
        tiny=_one(5, 96, "f32"),
        shapes=(
            _one(8192, 1024, "f32"),
            _one(65536, 512, "f32"),
            _one(4096, 2048, "f32"),
            _one(131072, 128, "f32"),
            _one(256, 4096, "f32"),
            _one(16384, 1024, "bf16"),
            _one(2048, 3000, "f32"),
            _one(32768, 256, "f32"),
        ),
    ),
    KernelCase(
        kernel=total_sum,
        reference=total_sum_reference,
        family=FAMILY,
        variant="whole_array_atomic",
        tiny=("f32[500]",),
        shapes=(
            ("f32[16777216]",),
            ("f32[1048576]",),
            ("bf16[33554432]",),
            ("f16[8388608]",),
            ("bf16[4194304]",),
            ("f32[262144]",),
            ("f32[10000019]",),
            ("bf16[65536]",),
        ),
        atol=1e-1,
    ),
)
