"""Attention backward: gradients of queries, or of keys and values, from stored sums.

`lse` [heads, s] is the forward's log-sum-exp and `delta` [heads, s] the row sums of
do * out; with p = exp(scale * q k^T - lse) and ds = p * (do v^T - delta):
dq = scale * ds k, dk = scale * ds^T q, dv = p^T do.
"""

from __future__ import annotations

from typing import Any

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase


@helion.kernel(static_shapes=True, autotune_effort="none")
def attention_query_gradient(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    do: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """dq without a mask: a query tile stays, keys pass."""
    heads, rows, d = q.size()
    cols = k.size(1)
    d = hl.specialize(d)
    dq = torch.empty_like(q)
    for th, tr in hl.tile([heads, rows], block_size=[1, None]):
        h = th.begin
        queries = q[h, tr, :]
        grads = do[h, tr, :]
        row_lse = lse[h, tr]
        row_delta = delta[h, tr]
        acc = hl.zeros([tr, d], dtype=torch.float32)
        for tc in hl.tile(cols):
            keys = k[h, tc, :]
            s = hl.dot(queries, keys.T, out_dtype=torch.float32) * scale
            p = torch.exp(s - row_lse[:, None])
            dp = hl.dot(grads, v[h, tc, :].T, out_dtype=torch.float32)
            ds = p * (dp - row_delta[:, None])
            acc = hl.dot(ds.to(k.dtype), keys, acc=acc)
        dq[h, tr, :] = (acc * scale).to(q.dtype)
    return dq


@helion.kernel(static_shapes=True, autotune_effort="none")
def attention_query_gradient_causal(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    do: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """dq, causal: the key loop ends at the query tile."""
    heads, rows, d = q.size()
    d = hl.specialize(d)
    dq = torch.empty_like(q)
    for th, tr in hl.tile([heads, rows], block_size=[1, None]):
        h = th.begin
        queries = q[h, tr, :]
        grads = do[h, tr, :]
        row_lse = lse[h, tr]
        row_delta = delta[h, tr]
        acc = hl.zeros([tr, d], dtype=torch.float32)
        for tc in hl.tile(0, tr.end):
            keys = k[h, tc, :]
            s = hl.dot(queries, keys.T, out_dtype=torch.float32) * scale
            p = torch.exp(s - row_lse[:, None])
            p = torch.where(tr.index[:, None] >= tc.index[None, :], p, 0.0)
            dp = hl.dot(grads, v[h, tc, :].T, out_dtype=torch.float32)
            ds = p * (dp - row_delta[:, None])
            acc = hl.dot(ds.to(k.dtype), keys, acc=acc)
        dq[h, tr, :] = (acc * scale).to(q.dtype)
    return dq


@helion.kernel(static_shapes=True, autotune_effort="none")
def attention_key_value_gradient(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    do: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """dk and dv without a mask: a key tile stays, queries pass."""
    heads, rows, d = q.size()
    cols = k.size(1)
    d = hl.specialize(d)
    dk = torch.empty_like(k)
    dv = torch.empty_like(v)
    for th, tc in hl.tile([heads, cols], block_size=[1, None]):
        h = th.begin
        keys = k[h, tc, :]
        values = v[h, tc, :]
        key_acc = hl.zeros([tc, d], dtype=torch.float32)
        value_acc = hl.zeros([tc, d], dtype=torch.float32)
        for tr in hl.tile(rows):
            queries = q[h, tr, :]
            grads = do[h, tr, :]
            s = hl.dot(keys, queries.T, out_dtype=torch.float32) * scale
            p = torch.exp(s - lse[h, tr][None, :])
            p = torch.where((tr.index < rows)[None, :], p, 0.0)
            value_acc = hl.dot(p.to(do.dtype), grads, acc=value_acc)
            dp = hl.dot(values, grads.T, out_dtype=torch.float32)
            ds = p * (dp - delta[h, tr][None, :])
            key_acc = hl.dot(ds.to(q.dtype), queries, acc=key_acc)
        dk[h, tc, :] = (key_acc * scale).to(k.dtype)
        dv[h, tc, :] = value_acc.to(v.dtype)
    return dk, dv


@helion.kernel(static_shapes=True, autotune_effort="none")
def attention_key_value_gradient_causal(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    do: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """dk and dv, causal: the query loop starts at the key tile."""
    heads, rows, d = q.size()
    d = hl.specialize(d)
    dk = torch.empty_like(k)
    dv = torch.empty_like(v)
    for th, tc in hl.tile([heads, rows], block_size=[1, None]):
        h = th.begin
        keys = k[h, tc, :]
        values = v[h, tc, :]
        key_acc = hl.zeros([tc, d], dtype=torch.float32)
        value_acc = hl.zeros([tc, d], dtype=torch.float32)
        for tr in hl.tile(tc.begin, rows):
            queries = q[h, tr, :]
            grads = do[h, tr, :]
            s = hl.dot(keys, queries.T, out_dtype=torch.float32) * scale
            p = torch.exp(s - lse[h, tr][None, :])
            seen = (tr.index[None, :] >= tc.index[:, None]) & (tr.index < rows)[None, :]
            p = torch.where(seen, p, 0.0)
            value_acc = hl.dot(p.to(do.dtype), grads, acc=value_acc)
            dp = hl.dot(values, grads.T, out_dtype=torch.float32)
            ds = p * (dp - delta[h, tr][None, :])
            key_acc = hl.dot(ds.to(q.dtype), queries, acc=key_acc)
        dk[h, tc, :] = (key_acc * scale).to(k.dtype)
        dv[h, tc, :] = value_acc.to(v.dtype)
    return dk, dv


def _parts(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    do: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    scale: float,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """p and ds, both [heads, rows, cols] in fp32."""
    s = q.float() @ k.float().transpose(1, 2) * scale
    p = torch.exp(s - lse[:, :, None])
    if causal:
        p = torch.tril(p)
    dp = do.float() @ v.float().transpose(1, 2)
    return p, p * (dp - delta[:, :, None])


def _ref_query(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    do: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    scale: float,
    causal: bool = False,
) -> torch.Tensor:
    _, ds = _parts(q, k, v, do, lse, delta, scale, causal)
    return (ds @ k.float() * scale).to(q.dtype)


def _ref_query_causal(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    do: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    return _ref_query(q, k, v, do, lse, delta, scale, causal=True)


def _ref_key_value(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    do: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    scale: float,
    causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    p, ds = _parts(q, k, v, do, lse, delta, scale, causal)
    dk = ds.transpose(1, 2) @ q.float() * scale
    return dk.to(k.dtype), (p.transpose(1, 2) @ do.float()).to(v.dtype)


def _ref_key_value_causal(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    do: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    return _ref_key_value(q, k, v, do, lse, delta, scale, causal=True)


def _args(dtype: str, h: int, m: int, d: int, n: int = 0) -> tuple[str, ...]:
    query = f"{dtype}[{h},{m},{d}]"
    key = f"{dtype}[{h},{n or m},{d}]"
    sums = f"f32[{h},{m}]"
    return (query, key, key, query, sums, sums, f"{d**-0.5:.6g}")


def _case(
    kernel: object,
    reference: Any,
    variant: str,
    tiny: tuple[str, ...],
    *shapes: tuple[str, ...],
) -> KernelCase:
    # Random log-sum-exps let p grow to several hundred, rounded to 11 bits in fp16.
    return KernelCase(
        kernel, reference, "attention_backward", variant, tiny, shapes, atol=0.5
    )


CASES = (
    _case(
        attention_query_gradient,
        _ref_query,
        "query_full",
        _args("f16", 2, 33, 32, 40),
        _args("bf16", 32, 1024, 128),
        _args("bf16", 64, 1024, 64),
        _args("f16", 16, 2048, 128),
        _args("bf16", 384, 197, 64),
        _args("bf16", 16, 512, 128, 4096),
        _args("bf16", 128, 512, 128),
        _args("f32", 16, 512, 64),
        _args("bf16", 12, 4096, 64),
    ),
    _case(
        attention_query_gradient_causal,
        _ref_query_causal,
        "query_causal",
        _args("f16", 2, 33, 32),
        _args("bf16", 32, 2048, 128),
        _args("bf16", 64, 1024, 64),
        _args("f16", 16, 4096, 64),
        _args("bf16", 256, 256, 64),
        _args("bf16", 96, 1024, 128),
        _args("bf16", 8, 8192, 128),
        _args("f32", 16, 512, 64),
        _args("bf16", 12, 1000, 128),
    ),
    _case(
        attention_key_value_gradient,
        _ref_key_value,
        "key_value_full",
        _args("f16", 2, 33, 32, 40),
        _args("bf16", 32, 1024, 128),
        _args("bf16", 64, 1024, 64),
        _args("f16", 16, 2048, 64),
        _args("bf16", 384, 197, 64),
        _args("bf16", 16, 4096, 128, 512),
        _args("bf16", 128, 512, 128),
        _args("f32", 16, 512, 64),
        _args("bf16", 12, 4096, 64),
    ),
    _case(
        attention_key_value_gradient_causal,
        _ref_key_value_causal,
        "key_value_causal",
        _args("f16", 2, 33, 32),
        _args("bf16", 32, 2048, 128),
        _args("bf16", 64, 1024, 64),
        _args("f16", 16, 4096, 64),
        _args("bf16", 256, 256, 64),
        _args("bf16", 96, 1024, 128),
        _args("bf16", 8, 8192, 64),
        _args("f32", 16, 512, 64),
        _args("bf16", 12, 1000, 128),
    ),
)
