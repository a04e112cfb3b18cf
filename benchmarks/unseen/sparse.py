"""Rows of different lengths, sparse matrices, routing, counting."""

from __future__ import annotations

import itertools

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "unseen_sparse"


@helion.kernel(static_shapes=True)
def csr_times_dense(
    starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    """Sparse rows times dense b [k, n]. starts [m+1], columns and values [nnz]."""
    m = starts.size(0) - 1
    n = b.size(1)
    out = torch.empty([m, n], dtype=b.dtype, device=b.device)
    for row, tn in hl.tile([m, n], block_size=[1, None]):
        lo = starts[row.begin]
        hi = starts[row.begin + 1]
        acc = hl.zeros([tn], dtype=torch.float32)
        for entry in hl.tile(lo, hi):
            gathered = b[columns[entry], tn].to(torch.float32)
            acc = acc + (gathered * values[entry][:, None]).sum(0)
        out[row.begin, tn] = acc.to(b.dtype)
    return out


def csr_times_dense_reference(
    starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    m = starts.numel() - 1
    rows = torch.arange(m, device=b.device).repeat_interleave(starts.diff().long())
    out = torch.zeros(m, b.size(1), dtype=torch.float32, device=b.device)
    part = b[columns.long()].float() * values[:, None].float()
    return out.index_add(0, rows, part).to(b.dtype)


@helion.kernel(static_shapes=False)
def jagged_layer_norm(x: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Each sample's rows and columns together at zero mean, unit variance. x [t, d]."""
    groups = starts.size(0) - 1
    d = x.size(1)
    out = torch.empty_like(x)
    for g in hl.grid(groups):
        lo = starts[g]
        hi = starts[g + 1]
        count = ((hi - lo) * d).to(torch.float32)
        first = hl.zeros([d], dtype=torch.float32)
        second = hl.zeros([d], dtype=torch.float32)
        for rows in hl.tile(lo, hi):
            part = x[rows, :].to(torch.float32)
            first = first + part.sum(0)
            second = second + (part * part).sum(0)
        mean = first.sum() / count
        scale = torch.rsqrt(second.sum() / count - mean * mean + 1e-5)
        for rows in hl.tile(lo, hi):
            part = x[rows, :].to(torch.float32)
            out[rows, :] = ((part - mean) * scale).to(x.dtype)
    return out


def jagged_layer_norm_reference(x: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    out = torch.empty_like(x)
    for lo, hi in itertools.pairwise(starts.tolist()):
        if hi > lo:
            part = x[lo:hi].float()
            centred = part - part.mean()
            out[lo:hi] = (centred * torch.rsqrt(centred.square().mean() + 1e-5)).to(
                x.dtype
            )
    return out


@helion.kernel(static_shapes=True)
def top_two_router(
    logits: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two best experts by token, their shares of one, and tokens for each expert."""
    tokens, experts = logits.size()
    place = torch.empty([tokens, 2], dtype=torch.int32, device=logits.device)
    share = torch.empty([tokens, 2], dtype=torch.float32, device=logits.device)
    load = torch.zeros([experts], dtype=torch.int32, device=logits.device)
    for tt in hl.tile(tokens):
        z = logits[tt, :].to(torch.float32)
        best = torch.argmax(z, dim=-1)
        top = torch.amax(z, dim=-1)
        expert = hl.arange(experts)
        rest = torch.where(expert[None, :] == best[:, None], float("-inf"), z)
        second = torch.argmax(rest, dim=-1)
        weight = torch.sigmoid(top - torch.amax(rest, dim=-1))
        place[tt, 0] = best.to(torch.int32)
        place[tt, 1] = second.to(torch.int32)
        share[tt, 0] = weight
        share[tt, 1] = 1.0 - weight
        one = torch.full_like(top, 1, dtype=torch.int32)
        hl.atomic_add(load, [best], one)
        hl.atomic_add(load, [second], one)
    return place, share, load


def top_two_router_reference(
    logits: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    values, place = logits.float().topk(2, -1)
    load = torch.bincount(place.reshape(-1), minlength=logits.size(1))
    share = torch.softmax(values, -1)
    return place.to(torch.int32), share, load.to(torch.int32)


@helion.kernel()
def channel_histogram(image: torch.Tensor, n_bins: hl.constexpr) -> torch.Tensor:
    """Counts of byte values in equal bins, by channel. image [c, pixels] u8."""
    c, pixels = image.shape
    counts = torch.zeros([c, n_bins], dtype=torch.int32, device=image.device)
    for tc, tp in hl.tile([c, pixels]):
        value = image[tc, tp].to(torch.int32)
        bucket = value * n_bins // 256
        channel = tc.index[:, None] + bucket * 0
        one = torch.full_like(value, 1)
        hl.atomic_add(counts, [channel, bucket], one)
    return counts


def channel_histogram_reference(image: torch.Tensor, n_bins: int) -> torch.Tensor:
    """Plain PyTorch."""
    bucket = image.long() * n_bins // 256
    rows = [torch.bincount(row, minlength=n_bins) for row in bucket]
    return torch.stack(rows).to(torch.int32)


@helion.kernel(static_shapes=True)
def scatter_max_nodes(
    messages: torch.Tensor, target: torch.Tensor, start: torch.Tensor
) -> torch.Tensor:
    """Largest message [e, d] at each node [v], never below its start [v, d]."""
    e, d = messages.size()
    out = start.clone()
    for te, td in hl.tile([e, d]):
        hl.atomic_max(out, [target[te], td], messages[te, td])
    return out


def scatter_max_nodes_reference(
    messages: torch.Tensor, target: torch.Tensor, start: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    place = target.long()[:, None].expand_as(messages)
    return start.scatter_reduce(0, place, messages, "amax")


def _csr(m: int, nnz: int, k: int, n: int, dtype: str = "f32") -> tuple[str, ...]:
    columns = f"i32[{nnz}]@index({k})"
    return (f"i32[{m + 1}]@offsets({nnz})", columns, f"f32[{nnz}]", f"{dtype}[{k},{n}]")


def _jagged(t: int, groups: int, d: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{t},{d}]", f"i32[{groups + 1}]@offsets({t})")


def _graph(e: int, v: int, d: int) -> tuple[str, ...]:
    return (f"f32[{e},{d}]@uniform", f"i64[{e}]@index({v})", f"f32[{v},{d}]@zeros")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=csr_times_dense,
        reference=csr_times_dense_reference,
        family=FAMILY,
        variant="csr",
        tiny=_csr(10, 60, 20, 24),
        shapes=(_csr(16384, 524288, 16384, 256), _csr(4000, 100000, 8000, 64, "f16")),
        atol=1e-1,
    ),
    KernelCase(
        kernel=jagged_layer_norm,
        reference=jagged_layer_norm_reference,
        family=FAMILY,
        variant="jagged_whole_sample",
        tiny=_jagged(40, 5, 32, "f32"),
        shapes=(_jagged(65536, 512, 256), _jagged(20000, 64, 768, "f32")),
    ),
    KernelCase(
        kernel=top_two_router,
        reference=top_two_router_reference,
        family=FAMILY,
        variant="top_two_counted",
        tiny=("f32[24,16]",),
        shapes=(("f32[32768,64]",), ("f32[4096,128]",)),
    ),
    KernelCase(
        kernel=channel_histogram,
        reference=channel_histogram_reference,
        family=FAMILY,
        variant="atomics_two_axes",
        tiny=("u8[3,100]@index(256)", "16"),
        shapes=(
            ("u8[3,2073600]@index(256)", "256"),
            ("u8[64,65536]@index(256)", "32"),
        ),
    ),
    KernelCase(
        kernel=scatter_max_nodes,
        reference=scatter_max_nodes_reference,
        family=FAMILY,
        variant="atomic_max",
        tiny=_graph(40, 10, 16),
        shapes=(_graph(262144, 16384, 128), _graph(1000000, 50000, 32)),
    ),
)
