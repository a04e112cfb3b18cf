"""Jagged rows given by offsets: sums, means, softmax, padding, segments."""

from __future__ import annotations

import itertools

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "jagged"


@helion.kernel(static_shapes=True, autotune_effort="none")
def ragged_total(values: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Sum of each group's rows, several groups a tile. values [t, d], starts [g+1]."""
    feats = values.size(1)
    groups = starts.size(0) - 1
    out = torch.zeros([groups, feats], dtype=torch.float32, device=values.device)
    flat_values = values.view(-1)
    for group in hl.tile(groups):
        first = starts[group]
        length = starts[group.index + 1] - first
        longest = length.amax()
        for cols in hl.tile(feats):
            total = hl.zeros([group, cols], dtype=torch.float32)
            for item in hl.tile(0, longest):
                row = first[:, None] + item.index[None, :]
                inside = item.index[None, :] < length[:, None]
                flat = row[:, :, None] * feats + cols.index[None, None, :]
                keep = inside[:, :, None] & (cols.index < feats)[None, None, :]
                loaded = hl.load(flat_values, [flat], extra_mask=keep)
                total = total + loaded.to(torch.float32).sum(dim=1)
            out[group, cols] = total
    return out


def ragged_total_reference(values: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    bounds = starts.tolist()
    pieces = itertools.pairwise(bounds)
    return torch.stack([values[lo:hi].float().sum(0) for lo, hi in pieces])


@helion.kernel(static_shapes=True, autotune_effort="none")
def ragged_mean(values: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Mean of each group's rows, one group a program, zero for an empty group."""
    feats = values.size(1)
    groups = starts.size(0) - 1
    out = torch.empty([groups, feats], dtype=values.dtype, device=values.device)
    for group in hl.grid(groups):
        lo = starts[group]
        hi = starts[group + 1]
        count = torch.clamp((hi - lo).to(torch.float32), min=1.0)
        for cols in hl.tile(feats):
            total = hl.zeros([cols], dtype=torch.float32)
            for rows in hl.tile(lo, hi):
                total = total + values[rows, cols].to(torch.float32).sum(0)
            out[group, cols] = (total / count).to(values.dtype)
    return out


def ragged_mean_reference(values: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    count = starts.diff().clamp(min=1).float()[:, None]
    return (ragged_total_reference(values, starts) / count).to(values.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def ragged_softmax(values: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Softmax over each group's rows, column by column. values [t, d]."""
    feats = values.size(1)
    groups = starts.size(0) - 1
    out = torch.empty_like(values)
    for group, cols in hl.tile([groups, feats], block_size=[1, None]):
        lo = starts[group.begin]
        hi = starts[group.begin + 1]
        top = hl.full([cols], float("-inf"), dtype=torch.float32)
        total = hl.zeros([cols], dtype=torch.float32)
        for rows in hl.tile(lo, hi):
            v = values[rows, cols].to(torch.float32)
            new_top = torch.maximum(top, v.amax(0))
            total = total * torch.exp(top - new_top)
            total = total + torch.exp(v - new_top[None, :]).sum(0)
            top = new_top
        for rows in hl.tile(lo, hi):
            v = values[rows, cols].to(torch.float32)
            e = torch.exp(v - top[None, :]) / total[None, :]
            out[rows, cols] = e.to(values.dtype)
    return out


def ragged_softmax_reference(
    values: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    sizes = starts.diff().tolist()
    parts = values.float().split(sizes)
    return torch.cat([torch.softmax(p, 0) for p in parts]).to(values.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def ragged_to_padded(
    values: torch.Tensor, starts: torch.Tensor, longest: hl.constexpr
) -> torch.Tensor:
    """[groups, longest, d] with zeros after each group's rows; longer ones are cut."""
    feats = values.size(1)
    groups = starts.size(0) - 1
    out = torch.empty(
        [groups, longest, feats], dtype=values.dtype, device=values.device
    )
    for group, item, cols in hl.tile(
        [groups, longest, feats], block_size=[1, None, None]
    ):
        lo = starts[group.begin]
        length = starts[group.begin + 1] - lo
        inside = (item.index < length)[:, None] & (cols.index < feats)[None, :]
        row = lo + item.index
        loaded = hl.load(values, [row, cols], extra_mask=inside)
        out[group.begin, item, cols] = loaded
    return out


def ragged_to_padded_reference(
    values: torch.Tensor, starts: torch.Tensor, longest: int
) -> torch.Tensor:
    """Plain PyTorch."""
    groups = starts.size(0) - 1
    out = values.new_zeros(groups, longest, values.size(1))
    for group in range(groups):
        piece = values[starts[group] : starts[group + 1]][:longest]
        out[group, : piece.size(0)] = piece
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def ragged_row_bias(
    values: torch.Tensor, starts: torch.Tensor, dense: torch.Tensor
) -> torch.Tensor:
    """values + dense[group of the row]: a program per group. dense [groups, d]."""
    feats = values.size(1)
    groups = starts.size(0) - 1
    out = torch.empty_like(values)
    for group in hl.grid(groups):
        lo = starts[group]
        hi = starts[group + 1]
        for cols in hl.tile(feats):
            b = dense[group, cols].to(torch.float32)[None, :]
            for rows in hl.tile(lo, hi):
                v = values[rows, cols].to(torch.float32)
                out[rows, cols] = (v + b).to(values.dtype)
    return out


def ragged_row_bias_reference(
    values: torch.Tensor, starts: torch.Tensor, dense: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    rows = dense.float().repeat_interleave(starts.diff().long(), 0)
    return (values.float() + rows).to(values.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def segment_sum(
    values: torch.Tensor, segment: torch.Tensor, dense: torch.Tensor
) -> torch.Tensor:
    """Rows added to their segment's row atomically; f32 of dense's shape [s, d]."""
    m, n = values.size()
    out = torch.zeros(dense.size(), dtype=torch.float32, device=values.device)
    for rows in hl.tile(m):
        target = segment[rows]
        for cols in hl.tile(n):
            hl.atomic_add(out, [target, cols], values[rows, cols].to(torch.float32))
    return out


def segment_sum_reference(
    values: torch.Tensor, segment: torch.Tensor, dense: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    out = torch.zeros(dense.size(), dtype=torch.float32, device=values.device)
    return out.index_add(0, segment.long(), values.float())


def _ragged(total: int, groups: int, d: int, dtype: str = "f32") -> tuple[str, ...]:
    return (f"{dtype}[{total},{d}]", f"i32[{groups + 1}]@offsets({total})")


def _padded(total: int, groups: int, d: int, longest: int) -> tuple[str, ...]:
    return (*_ragged(total, groups, d, "bf16"), str(longest))


def _bias(total: int, groups: int, d: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (*_ragged(total, groups, d, dtype), f"{dtype}[{groups},{d}]")


def _segment(m: int, segments: int, d: int, dtype: str = "f32") -> tuple[str, ...]:
    return (f"{dtype}[{m},{d}]", f"i32[{m}]@index({segments})", f"f32[{segments},{d}]")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=ragged_total,
        reference=ragged_total_reference,
        family=FAMILY,
        variant="sum_tile_of_groups",
        tiny=_ragged(40, 6, 24),
        shapes=(
            _ragged(32768, 512, 128),
            _ragged(65536, 1024, 64, "bf16"),
            _ragged(8192, 64, 512),
            _ragged(131072, 256, 128, "bf16"),
            _ragged(4096, 128, 128),
            _ragged(16384, 2048, 256),
            _ragged(20000, 32, 300),
            _ragged(262144, 4096, 32),
        ),
        atol=5e-2,
    ),
    KernelCase(
        kernel=ragged_mean,
        reference=ragged_mean_reference,
        family=FAMILY,
        variant="mean_group_per_program",
        tiny=_ragged(40, 6, 24),
        shapes=(
            _ragged(131072, 1024, 256),
            _ragged(65536, 512, 512, "bf16"),
            _ragged(16384, 256, 1024),
            _ragged(8192, 128, 128),
            _ragged(262144, 4096, 128, "bf16"),
            _ragged(32768, 64, 2048, "bf16"),
            _ragged(500000, 10000, 64),
            _ragged(65536, 300, 300),
        ),
    ),
    KernelCase(
        kernel=ragged_softmax,
        reference=ragged_softmax_reference,
        family=FAMILY,
        variant="softmax_two_pass",
        tiny=_ragged(40, 6, 24),
        shapes=(
            _ragged(65536, 512, 256, "bf16"),
            _ragged(131072, 1024, 64),
            _ragged(16384, 128, 512),
            _ragged(8192, 256, 128),
            _ragged(262144, 2048, 128, "bf16"),
            _ragged(32768, 1000, 100),
            _ragged(32768, 64, 1024, "bf16"),
            _ragged(400000, 8192, 32),
        ),
    ),
    KernelCase(
        kernel=ragged_to_padded,
        reference=ragged_to_padded_reference,
        family=FAMILY,
        variant="pad",
        tiny=(*_ragged(40, 6, 24), "9"),
        shapes=(
            _padded(65536, 256, 512, 512),
            _padded(16384, 64, 2048, 512),
            _padded(131072, 1024, 128, 256),
            _padded(8192, 128, 256, 128),
            _padded(32768, 32, 4096, 1024),
            _padded(200000, 4096, 64, 96),
            _padded(4096, 16, 5120, 512),
            _padded(50000, 500, 300, 200),
        ),
    ),
    KernelCase(
        kernel=ragged_row_bias,
        reference=ragged_row_bias_reference,
        family=FAMILY,
        variant="add_dense_by_group",
        tiny=_bias(40, 6, 24),
        shapes=(
            _bias(65536, 512, 1024),
            _bias(131072, 1024, 256, "f32"),
            _bias(16384, 64, 4096),
            _bias(8192, 256, 512),
            _bias(262144, 4096, 128),
            _bias(32768, 128, 2048, "f32"),
            _bias(300000, 8192, 64),
            _bias(40000, 333, 777),
        ),
    ),
    KernelCase(
        kernel=segment_sum,
        reference=segment_sum_reference,
        family=FAMILY,
        variant="segments_atomic",
        tiny=_segment(40, 6, 24),
        shapes=(
            _segment(131072, 4096, 128),
            _segment(32768, 512, 512, "bf16"),
            _segment(500000, 50000, 64),
            _segment(16384, 8192, 1024),
            _segment(8192, 64, 256),
            _segment(262144, 16384, 96, "bf16"),
            _segment(4096, 1024, 2048),
            _segment(1000000, 100000, 32),
        ),
        atol=5e-2,
    ),
)
