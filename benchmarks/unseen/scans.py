"""Scans and recurrences along time."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "unseen_scan"


def _join_segments(
    left_sum: torch.Tensor,
    left_flag: torch.Tensor,
    right_sum: torch.Tensor,
    right_flag: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum that starts anew wherever the right side holds a start."""
    joined = torch.where(right_flag > 0, right_sum, left_sum + right_sum)
    return joined, torch.maximum(left_flag, right_flag)


@helion.kernel(static_shapes=True)
def segmented_cumsum(x: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Running sums along rows that begin again where starts is 1. x [b, t] f32."""
    b, _t = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(b):
        values = x[rows, :]
        flags = starts[rows, :].to(torch.float32)
        sums, _ = hl.associative_scan(_join_segments, (values, flags), dim=1)
        out[rows, :] = sums
    return out


def segmented_cumsum_reference(x: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch, column by column."""
    out = torch.empty_like(x)
    run = torch.zeros_like(x[:, 0])
    for place in range(x.size(1)):
        run = torch.where(starts[:, place] > 0, x[:, place], run + x[:, place])
        out[:, place] = run
    return out


@helion.kernel(static_shapes=True)
def moving_average(x: torch.Tensor, decay: float) -> torch.Tensor:
    """Exponential moving average along time, one step after another. x [b, t, d]."""
    b, t, d = x.size()
    out = torch.empty_like(x)
    for ib, td in hl.tile([b, d], block_size=[1, None]):
        state = hl.zeros([td], dtype=torch.float32)
        for step in hl.grid(t):
            state = decay * state + (1.0 - decay) * x[ib.begin, step, td]
            out[ib.begin, step, td] = state.to(x.dtype)
    return out


def moving_average_reference(x: torch.Tensor, decay: float) -> torch.Tensor:
    """Plain PyTorch."""
    state = torch.zeros_like(x[:, 0], dtype=torch.float32)
    steps = []
    for step in range(x.size(1)):
        state = decay * state + (1 - decay) * x[:, step].float()
        steps.append(state)
    return torch.stack(steps, 1).to(x.dtype)


@helion.kernel()
def softmax_prefix(x: torch.Tensor) -> torch.Tensor:
    """log of the running sum of exponentials along rows, in tiles. x [b, t]."""
    b, t = x.size()
    out = torch.empty([b, t], dtype=torch.float32, device=x.device)
    for rows in hl.tile(b):
        base = torch.amax(x[rows, :].to(torch.float32), dim=1)
        carry = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(t):
            e = torch.exp(x[rows, cols].to(torch.float32) - base[:, None])
            run = torch.cumsum(e, dim=1) + carry[:, None]
            out[rows, cols] = torch.log(run) + base[:, None]
            carry = carry + e.sum(1)
    return out


def softmax_prefix_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return torch.logcumsumexp(x.float(), 1)


@helion.kernel(static_shapes=True)
def max_plus_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """max over k of a[i, k] + b[k, j]: best paths of one more step, no tensor cores."""
    m, k = a.size()
    n = b.size(1)
    out = torch.empty([m, n], dtype=a.dtype, device=a.device)
    for ti, tj in hl.tile([m, n]):
        best = hl.full([ti, tj], float("-inf"), dtype=torch.float32)
        for tk in hl.tile(k):
            path = a[ti, tk][:, :, None] + b[tk, tj][None, :, :]
            path = torch.where((tk.index < k)[None, :, None], path, float("-inf"))
            best = torch.maximum(best, path.amax(1))
        out[ti, tj] = best.to(a.dtype)
    return out


def max_plus_product_reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch, row by row of a."""
    return torch.stack([(row[:, None] + b).amax(0) for row in a])


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=segmented_cumsum,
        reference=segmented_cumsum_reference,
        family=FAMILY,
        variant="tuple_scan",
        tiny=("f32[4,32]", "i32[4,32]@index(2)"),
        shapes=(
            ("f32[4096,1024]", "i32[4096,1024]@index(2)"),
            ("f32[512,4096]", "i32[512,4096]@index(2)"),
        ),
    ),
    KernelCase(
        kernel=moving_average,
        reference=moving_average_reference,
        family=FAMILY,
        variant="step_by_step",
        tiny=("f32[2,12,20]", "0.9"),
        shapes=(("f32[16,512,1024]", "0.9"), ("bf16[64,256,768]", "0.99")),
    ),
    KernelCase(
        kernel=softmax_prefix,
        reference=softmax_prefix_reference,
        family=FAMILY,
        variant="tiles_with_carry",
        tiny=("f32[4,48]",),
        shapes=(("f32[8192,2048]",), ("bf16[1000,5000]",)),
    ),
    KernelCase(
        kernel=max_plus_product,
        reference=max_plus_product_reference,
        family=FAMILY,
        variant="tropical",
        tiny=("f32[12,20]", "f32[20,16]"),
        shapes=(("f32[512,512]", "f32[512,512]"), ("f32[1024,256]", "f32[256,1024]")),
    ),
)
