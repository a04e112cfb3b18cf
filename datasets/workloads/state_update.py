"""Decode steps that keep a state: delta rule, selective state, decaying outer products.

One token per sequence, so every product is a vector's: no tensor cores, the state's
traffic is the cost.
"""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "state_update"


@helion.kernel(static_shapes=True, autotune_effort="none")
def gated_delta_step(
    state: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """S' = d S + beta k (v - k.(d S)); y = q.S'. One program row per head.

    state f32 [h, K, V]; q, k [h, K]; v [h, V]; decay, beta f32 [h].
    """
    heads, key_dim, value_dim = state.size()
    key_dim = hl.specialize(key_dim)
    out = torch.empty([heads, value_dim], dtype=v.dtype, device=v.device)
    new_state = torch.empty_like(state)
    for h, j in hl.tile([heads, value_dim]):
        kv = k[h, :].to(torch.float32)[:, :, None]
        s = state[h, :, j] * torch.exp(decay[h])[:, None, None]
        seen = (s * kv).sum(1)
        delta = (v[h, j].to(torch.float32) - seen) * torch.sigmoid(beta[h])[:, None]
        s = s + kv * delta[:, None, :]
        new_state[h, :, j] = s
        qv = q[h, :].to(torch.float32)[:, :, None]
        out[h, j] = (s * qv).sum(1).to(v.dtype)
    return out, new_state


def gated_delta_step_reference(
    state: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    kv = k.float()[:, :, None]
    s = state * decay.exp()[:, None, None]
    delta = (v.float() - (s * kv).sum(1)) * torch.sigmoid(beta)[:, None]
    s = s + kv * delta[:, None, :]
    return (s * q.float()[:, :, None]).sum(1).to(v.dtype), s


@helion.kernel(static_shapes=True, autotune_effort="none")
def selective_state_step(
    state: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """h' = exp(dt a) h + dt b x; y = c.h'. Selective state-space decode.

    state f32 [batch, d, n]; x, dt [batch, d]; a f32 [d, n]; b, c [batch, n].
    """
    batch, dim, _ = state.size()
    out = torch.empty_like(x)
    new_state = torch.empty_like(state)
    for i, d in hl.tile([batch, dim]):
        raw = dt[i, d].to(torch.float32)
        step = torch.log1p(torch.exp(raw))
        decay = torch.exp(-step[:, :, None] * torch.exp(a[d, :])[None, :, :])
        drive = (step * x[i, d].to(torch.float32))[:, :, None]
        h = state[i, d, :] * decay + drive * b[i, :].to(torch.float32)[:, None, :]
        new_state[i, d, :] = h
        y = (h * c[i, :].to(torch.float32)[:, None, :]).sum(-1)
        out[i, d] = y.to(x.dtype)
    return out, new_state


def selective_state_step_reference(
    state: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    step = torch.nn.functional.softplus(dt.float())
    decay = torch.exp(-step[:, :, None] * a.exp())
    h = state * decay + (step * x.float())[:, :, None] * b.float()[:, None, :]
    return (h * c.float()[:, None, :]).sum(-1).to(x.dtype), h


@helion.kernel(static_shapes=True, autotune_effort="none")
def decayed_outer_step(
    state: torch.Tensor, k: torch.Tensor, v: torch.Tensor, decay: torch.Tensor
) -> torch.Tensor:
    """S' = sigmoid(decay) S + k v^T, all axes tiled. state [h, K, V], decay [h, K]."""
    heads, key_dim, value_dim = state.size()
    new_state = torch.empty_like(state)
    for h, i, j in hl.tile([heads, key_dim, value_dim]):
        keep = torch.sigmoid(decay[h, i].to(torch.float32))[:, :, None]
        kv = k[h, i].to(torch.float32)[:, :, None]
        s = state[h, i, j].to(torch.float32) * keep
        s = s + kv * v[h, j].to(torch.float32)[:, None, :]
        new_state[h, i, j] = s.to(state.dtype)
    return new_state


def decayed_outer_step_reference(
    state: torch.Tensor, k: torch.Tensor, v: torch.Tensor, decay: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    s = state.float() * torch.sigmoid(decay.float())[:, :, None]
    return (s + k.float()[:, :, None] * v.float()[:, None, :]).to(state.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def vector_matrix(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """y[n] = sum_k x[k] w[n, k] by multiply and sum: a matrix-vector product."""
    n, k = w.size()
    out = torch.empty([n], dtype=torch.float32, device=w.device)
    block_k = hl.register_block_size(k)
    for rows in hl.tile(n):
        total = hl.zeros([rows, block_k], dtype=torch.float32)
        for cols in hl.tile(k, block_size=block_k):
            a = w[rows, cols].to(torch.float32)
            total = total + a * x[cols].to(torch.float32)[None, :]
        out[rows] = total.sum(-1)
    return out


def vector_matrix_reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return (w.float() * x.float()).sum(-1)


@helion.kernel(static_shapes=True, autotune_effort="none")
def vector_int8_matrix(
    x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """The same for two vectors and int8 weights with a scale per row. x [2, k]."""
    n, k = w.size()
    out = torch.empty([2, n], dtype=torch.float32, device=w.device)
    for rows in hl.tile(n):
        first = hl.zeros([rows], dtype=torch.float32)
        second = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(k):
            a = w[rows, cols].to(torch.float32)
            first = first + (a * x[0, cols].to(torch.float32)[None, :]).sum(-1)
            second = second + (a * x[1, cols].to(torch.float32)[None, :]).sum(-1)
        out[0, rows] = first * scale[rows]
        out[1, rows] = second * scale[rows]
    return out


def vector_int8_matrix_reference(
    x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    return (w.float()[None] * x.float()[:, None]).sum(-1) * scale


def _delta(heads: int, key: int, value: int) -> tuple[str, ...]:
    return (
        f"f32[{heads},{key},{value}]",
        f"bf16[{heads},{key}]",
        f"bf16[{heads},{key}]",
        f"bf16[{heads},{value}]",
        f"f32[{heads}]",
        f"f32[{heads}]",
    )


def _selective(batch: int, dim: int, n: int) -> tuple[str, ...]:
    return (
        f"f32[{batch},{dim},{n}]",
        f"bf16[{batch},{dim}]",
        f"bf16[{batch},{dim}]",
        f"f32[{dim},{n}]",
        f"bf16[{batch},{n}]",
        f"bf16[{batch},{n}]",
    )


def _outer(heads: int, key: int, value: int, dtype: str = "f32") -> tuple[str, ...]:
    return (
        f"{dtype}[{heads},{key},{value}]",
        f"bf16[{heads},{key}]",
        f"bf16[{heads},{value}]",
        f"bf16[{heads},{key}]",
    )


def _vector(n: int, k: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{k}]", f"{dtype}[{n},{k}]")


def _vector_int8(n: int, k: int) -> tuple[str, ...]:
    return (f"bf16[2,{k}]", f"i8[{n},{k}]", f"f32[{n}]")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=gated_delta_step,
        reference=gated_delta_step_reference,
        family=FAMILY,
        variant="delta_rule",
        tiny=_delta(3, 16, 8),
        shapes=(
            _delta(2048, 128, 128),
            _delta(256, 128, 128),
            _delta(8192, 64, 64),
            _delta(1024, 128, 256),
            _delta(32, 128, 128),
            _delta(4096, 128, 128),
            _delta(512, 256, 256),
            _delta(96, 128, 128),
        ),
    ),
    KernelCase(
        kernel=selective_state_step,
        reference=selective_state_step_reference,
        family=FAMILY,
        variant="selective_state",
        tiny=_selective(3, 24, 8),
        shapes=(
            _selective(64, 8192, 16),
            _selective(32, 4096, 128),
            _selective(256, 5120, 16),
            _selective(1, 8192, 128),
            _selective(128, 4096, 64),
            _selective(8, 10240, 128),
            _selective(512, 3072, 16),
            _selective(16, 5120, 64),
        ),
    ),
    KernelCase(
        kernel=decayed_outer_step,
        reference=decayed_outer_step_reference,
        family=FAMILY,
        variant="decayed_outer",
        tiny=_outer(3, 16, 8),
        shapes=(
            _outer(2048, 128, 128),
            _outer(512, 256, 256, "bf16"),
            _outer(8192, 64, 64),
            _outer(128, 128, 128),
            _outer(1024, 64, 128, "bf16"),
            _outer(4096, 128, 64),
            _outer(32, 256, 512),
            _outer(640, 96, 160),
        ),
    ),
    KernelCase(
        kernel=vector_matrix,
        reference=vector_matrix_reference,
        family=FAMILY,
        variant="vector_matrix",
        tiny=_vector(24, 96),
        shapes=(
            _vector(14336, 4096),
            _vector(4096, 14336),
            _vector(128256, 4096),
            _vector(6144, 4096, "f16"),
            _vector(5120, 25600),
            _vector(8192, 8192, "f32"),
            _vector(2048, 2048),
            _vector(151936, 2048),
        ),
        atol=1e-1,
    ),
    KernelCase(
        kernel=vector_int8_matrix,
        reference=vector_int8_matrix_reference,
        family=FAMILY,
        variant="vector_int8_matrix",
        tiny=_vector_int8(24, 96),
        shapes=(
            _vector_int8(14336, 4096),
            _vector_int8(28672, 8192),
            _vector_int8(4096, 4096),
            _vector_int8(5120, 13824),
            _vector_int8(32000, 4096),
            _vector_int8(8192, 28672),
            _vector_int8(2048, 6144),
            _vector_int8(128256, 2048),
        ),
        atol=1e-1,
    ),
)
