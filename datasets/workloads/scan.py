"""Scans: running sums and maxima, linear recurrences, parallel and sequential."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "scan"


@helion.kernel(static_shapes=True, autotune_effort="none")
def cumsum_rows(x: torch.Tensor) -> torch.Tensor:
    """Running sum of each row, whole rows. Returns f32 [m, n]."""
    m, n = x.size()
    out = torch.empty([m, n], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        out[rows, :] = hl.cumsum(x[rows, :].to(torch.float32), dim=1)
    return out


def cumsum_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return x.float().cumsum(-1)


@helion.kernel(static_shapes=True, autotune_effort="none")
def cumsum_looped(x: torch.Tensor) -> torch.Tensor:
    """The same by blocks of columns that carry the sum so far."""
    m, n = x.size()
    out = torch.empty([m, n], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        carry = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(n):
            v = x[rows, cols].to(torch.float32)
            out[rows, cols] = hl.cumsum(v, dim=1) + carry[:, None]
            carry = carry + v.sum(-1)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def suffix_sum_rows(x: torch.Tensor, decay: float) -> torch.Tensor:
    """Sum of each entry and all after it, scaled: rewards-to-go of whole rows."""
    m, n = x.size()
    out = torch.empty([m, n], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        v = x[rows, :].to(torch.float32) * decay
        out[rows, :] = hl.cumsum(v, dim=1, reverse=True)
    return out


def suffix_sum_reference(x: torch.Tensor, decay: float) -> torch.Tensor:
    """Plain PyTorch."""
    return (x.float() * decay).flip(-1).cumsum(-1).flip(-1)


def _maximum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.maximum(a, b)


@helion.kernel(static_shapes=True, autotune_effort="none")
def running_max(x: torch.Tensor) -> torch.Tensor:
    """Largest entry so far in each row, whole rows. Returns f32 [m, n]."""
    m, n = x.size()
    out = torch.empty([m, n], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        v = x[rows, :].to(torch.float32)
        out[rows, :] = hl.associative_scan(_maximum, v, dim=1)
    return out


def running_max_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return x.float().cummax(-1).values


def _affine(
    a1: torch.Tensor, b1: torch.Tensor, a2: torch.Tensor, b2: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return a1 * a2, b1 * a2 + b2


@helion.kernel(static_shapes=True, autotune_effort="none")
def linear_recurrence(gate: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """h_t = sigmoid(gate_t) h_{t-1} + x_t along rows, by an associative scan."""
    m, n = x.size()
    out = torch.empty([m, n], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        a = torch.sigmoid(gate[rows, :].to(torch.float32))
        b = x[rows, :].to(torch.float32)
        _, h = hl.associative_scan(_affine, (a, b), dim=1)
        out[rows, :] = h
    return out


def linear_recurrence_reference(gate: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    a, b = torch.sigmoid(gate.float()), x.float()
    h = torch.zeros_like(b[:, 0])
    steps = []
    for t in range(x.size(1)):
        h = a[:, t] * h + b[:, t]
        steps.append(h)
    return torch.stack(steps, 1)


@helion.kernel(static_shapes=True, autotune_effort="none")
def recurrence_over_time(gate: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The same over [batch, time, channels], one time step after another."""
    batch, time, channels = x.size()
    out = torch.empty_like(x)
    for b, c in hl.tile([batch, channels]):
        h = hl.zeros([b, c], dtype=torch.float32)
        for t in hl.grid(time):
            a = torch.sigmoid(gate[b, t, c].to(torch.float32))
            h = a * h + (1.0 - a) * x[b, t, c].to(torch.float32)
            out[b, t, c] = h.to(x.dtype)
    return out


def recurrence_over_time_reference(gate: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    a, v = torch.sigmoid(gate.float()), x.float()
    h = torch.zeros_like(v[:, 0])
    steps = []
    for t in range(x.size(1)):
        h = a[:, t] * h + (1 - a[:, t]) * v[:, t]
        steps.append(h)
    return torch.stack(steps, 1).to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def discounted_returns(
    reward: torch.Tensor, value: torch.Tensor, discount: float, smooth: float
) -> torch.Tensor:
    """Generalised advantages: a recurrence backwards in time. reward, value [t, e]."""
    steps, envs = reward.size()
    out = torch.empty([steps, envs], dtype=torch.float32, device=reward.device)
    for e in hl.tile(envs):
        advantage = hl.zeros([e], dtype=torch.float32)
        later = hl.zeros([e], dtype=torch.float32)
        for i in hl.grid(steps):
            t = steps - 1 - i
            now = value[t, e].to(torch.float32)
            delta = reward[t, e].to(torch.float32) + discount * later - now
            advantage = delta + discount * smooth * advantage
            out[t, e] = advantage
            later = now
    return out


def discounted_returns_reference(
    reward: torch.Tensor, value: torch.Tensor, discount: float, smooth: float
) -> torch.Tensor:
    """Plain PyTorch."""
    out = torch.empty(reward.size(), dtype=torch.float32, device=reward.device)
    advantage = torch.zeros_like(out[0])
    later = torch.zeros_like(out[0])
    for t in reversed(range(reward.size(0))):
        delta = reward[t].float() + discount * later - value[t].float()
        advantage = delta + discount * smooth * advantage
        out[t] = advantage
        later = value[t].float()
    return out


def _one(m: int, n: int, dtype: str = "f32") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]",)


def _two(m: int, n: int, dtype: str = "f32") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]",) * 2


def _time(batch: int, time: int, channels: int) -> tuple[str, ...]:
    return (f"bf16[{batch},{time},{channels}]",) * 2


def _returns(steps: int, envs: int) -> tuple[str, ...]:
    return (f"f32[{steps},{envs}]", f"f32[{steps},{envs}]", "0.99", "0.95")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=cumsum_rows,
        reference=cumsum_reference,
        family=FAMILY,
        variant="sum_one_pass",
        tiny=_one(5, 64),
        shapes=(
            _one(8192, 1024),
            _one(32768, 256, "bf16"),
            _one(2048, 2048),
            _one(131072, 64),
            _one(512, 1024),
            _one(16384, 512, "f16"),
            _one(4096, 1000),
            _one(100000, 100),
        ),
        atol=5e-2,
    ),
    KernelCase(
        kernel=cumsum_looped,
        reference=cumsum_reference,
        family=FAMILY,
        variant="sum_looped",
        tiny=_one(5, 64),
        shapes=(
            _one(4096, 4096),
            _one(512, 65536, "bf16"),
            _one(16384, 2048),
            _one(1024, 32000),
            _one(65536, 256, "f16"),
            _one(128, 8192),
            _one(64, 131072),
            _one(3000, 5001),
        ),
        atol=1e-1,
    ),
    KernelCase(
        kernel=suffix_sum_rows,
        reference=suffix_sum_reference,
        family=FAMILY,
        variant="reverse_one_pass",
        tiny=(*_one(5, 64), "0.5"),
        shapes=(
            (*_one(4096, 2048), "0.5"),
            (*_one(16384, 512, "bf16"), "0.5"),
            (*_one(65536, 128), "0.5"),
            (*_one(1024, 1024), "0.5"),
            (*_one(8192, 256), "0.5"),
            (*_one(2048, 1500), "0.5"),
            (*_one(32768, 200), "0.5"),
            (*_one(256, 512), "0.5"),
        ),
        atol=5e-2,
    ),
    KernelCase(
        kernel=running_max,
        reference=running_max_reference,
        family=FAMILY,
        variant="max_one_pass",
        tiny=_one(5, 64),
        shapes=(
            _one(8192, 512),
            _one(2048, 2048, "bf16"),
            _one(65536, 128),
            _one(16384, 1024, "f16"),
            _one(1024, 1500),
            _one(32768, 256),
            _one(4096, 900),
            _one(128, 1024),
        ),
    ),
    KernelCase(
        kernel=linear_recurrence,
        reference=linear_recurrence_reference,
        family=FAMILY,
        variant="affine_scan",
        tiny=_two(5, 64),
        shapes=(
            _two(8192, 1024),
            _two(2048, 2048, "bf16"),
            _two(32768, 256),
            _two(1024, 1500),
            _two(16384, 512, "f16"),
            _two(4096, 1000),
            _two(65536, 128, "bf16"),
            _two(256, 1024),
        ),
    ),
    KernelCase(
        kernel=recurrence_over_time,
        reference=recurrence_over_time_reference,
        family=FAMILY,
        variant="sequential_channels",
        tiny=_time(2, 8, 24),
        shapes=(
            _time(8, 512, 4096),
            _time(64, 128, 2048),
            _time(2, 1024, 8192),
            _time(256, 64, 1024),
            _time(16, 256, 5120),
            _time(1, 2048, 2560),
            _time(32, 512, 768),
            _time(128, 32, 4096),
        ),
    ),
    KernelCase(
        kernel=discounted_returns,
        reference=discounted_returns_reference,
        family=FAMILY,
        variant="sequential_backwards",
        tiny=_returns(8, 24),
        shapes=(
            _returns(512, 16384),
            _returns(128, 65536),
            _returns(1024, 4096),
            _returns(64, 262144),
            _returns(256, 8192),
            _returns(2048, 1024),
            _returns(32, 100000),
            _returns(400, 5000),
        ),
        atol=5e-2,
    ),
)
