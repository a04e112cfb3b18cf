"""Linear attention by chunks: the softmax dropped, a d-by-d state carried instead.

Tensors are [heads, sequence, d] with batch and heads merged. `chunk` tokens at a time
meet each other through a masked product and the past through the state. Gates arrive as
raw numbers; their log decay is log(sigmoid(gate)), at most zero.
"""

from __future__ import annotations

from typing import Any

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase


@helion.kernel(static_shapes=True, autotune_effort="none")
def linear_attention_chunks(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, chunk: hl.constexpr
) -> torch.Tensor:
    """o_t = sum over j <= t of (q_t . k_j) v_j; chunks in order, columns of v split."""
    heads, length, d = q.size()
    d = hl.specialize(d)
    width = v.size(2)
    out = torch.empty_like(v)
    for th, tv in hl.tile([heads, width], block_size=[1, None]):
        h = th.begin
        state = hl.zeros([d, tv], dtype=torch.float32)
        for tc in hl.tile(length, block_size=chunk):
            queries = q[h, tc, :]
            keys = k[h, tc, :]
            values = v[h, tc, tv]
            s = hl.dot(queries, keys.T, out_dtype=torch.float32)
            s = torch.where(tc.index[:, None] >= tc.index[None, :], s, 0.0)
            o = hl.dot(queries, state.to(q.dtype), out_dtype=torch.float32)
            o = hl.dot(s.to(q.dtype), values, acc=o)
            out[h, tc, tv] = o.to(q.dtype)
            state = hl.dot(keys.T, values, acc=state)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def retention_chunks(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gate: torch.Tensor,
    chunk: hl.constexpr,
) -> torch.Tensor:
    """As above with each head's past fading by a constant factor per token."""
    heads, length, d = q.size()
    d = hl.specialize(d)
    width = v.size(2)
    out = torch.empty_like(v)
    for th, tv in hl.tile([heads, width], block_size=[1, None]):
        h = th.begin
        fade = torch.log(torch.sigmoid(gate[h].to(torch.float32) + 3.0))
        state = hl.zeros([d, tv], dtype=torch.float32)
        for tc in hl.tile(length, block_size=chunk):
            queries = q[h, tc, :]
            keys = k[h, tc, :]
            values = v[h, tc, tv]
            step = (tc.index - tc.begin).to(torch.float32)
            gap = (tc.index[:, None] - tc.index[None, :]).to(torch.float32)
            s = hl.dot(queries, keys.T, out_dtype=torch.float32)
            s = torch.where(gap >= 0.0, s * torch.exp(fade * gap), 0.0)
            o = hl.dot(queries, state.to(q.dtype), out_dtype=torch.float32)
            o = o * torch.exp(fade * (step + 1.0))[:, None]
            o = hl.dot(s.to(q.dtype), values, acc=o)
            out[h, tc, tv] = o.to(q.dtype)
            left = torch.exp(fade * (chunk - 1.0 - step))
            faded = (keys.to(torch.float32) * left[:, None]).to(k.dtype)
            state = state * torch.exp(fade * chunk)
            state = hl.dot(faded.T, values, acc=state)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def chunk_states(k: torch.Tensor, v: torch.Tensor, chunk: hl.constexpr) -> torch.Tensor:
    """Every chunk's k^T v at once, in parallel: [heads, chunks, d, width] in fp32."""
    heads, length, d = k.size()
    width = v.size(2)
    chunks = length // chunk
    d = hl.specialize(d)
    states = torch.empty(
        [heads, chunks, d, width], dtype=torch.float32, device=k.device
    )
    for th, tn, tv in hl.tile([heads, chunks, width], block_size=[1, 1, None]):
        h = th.begin
        first = tn.begin * chunk
        acc = hl.zeros([d, tv], dtype=torch.float32)
        for tc in hl.tile(first, first + chunk):
            acc = hl.dot(k[h, tc, :].T, v[h, tc, tv], acc=acc)
        states[h, tn.begin, :, tv] = acc
    return states


@helion.kernel(static_shapes=True, autotune_effort="none")
def chunk_outputs(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, states: torch.Tensor
) -> torch.Tensor:
    """Outputs of all chunks in parallel, from the state before each chunk.

    q, k [heads, chunks, c, d], v [heads, chunks, c, width], states [heads, chunks, d,
    width].
    """
    heads, chunks, chunk, d = q.size()
    width = v.size(3)
    chunk = hl.specialize(chunk)
    d = hl.specialize(d)
    out = torch.empty_like(v)
    for th, tn, tv in hl.tile([heads, chunks, width], block_size=[1, 1, None]):
        h = th.begin
        n = tn.begin
        queries = q[h, n, :, :]
        s = hl.dot(queries, k[h, n, :, :].T, out_dtype=torch.float32)
        at = hl.arange(chunk)
        s = torch.where(at[:, None] >= at[None, :], s, 0.0)
        past = states[h, n, :, tv].to(q.dtype)
        o = hl.dot(queries, past, out_dtype=torch.float32)
        o = hl.dot(s.to(q.dtype), v[h, n, :, tv], acc=o)
        out[h, n, :, tv] = o.to(q.dtype)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def gated_delta_states(
    k: torch.Tensor,
    w: torch.Tensor,
    u: torch.Tensor,
    decay: torch.Tensor,
    chunk: hl.constexpr,
) -> tuple[torch.Tensor, torch.Tensor]:
    """States before each chunk under the gated delta rule, and corrected values.

    Within a chunk, new = u - w @ state; then state = exp(g_last) * state + k^T (new *
    exp(g_last - g)). k, w [heads, s, d]; u [heads, s, width]; decay [heads, s] holds
    raw numbers whose negated magnitudes, divided by the chunk length, are summed into g.
    """
    heads, length, d = k.size()
    d = hl.specialize(d)
    width = u.size(2)
    chunks = length // chunk
    states = torch.empty([heads, chunks, d, width], dtype=k.dtype, device=k.device)
    fresh = torch.empty_like(u)
    for th, tv in hl.tile([heads, width], block_size=[1, None]):
        h = th.begin
        state = hl.zeros([d, tv], dtype=torch.float32)
        for tc in hl.tile(length, block_size=chunk):
            states[h, tc.id, :, tv] = state.to(k.dtype)
            past = hl.dot(w[h, tc, :], state.to(k.dtype), out_dtype=torch.float32)
            new = u[h, tc, tv].to(torch.float32) - past
            fresh[h, tc, tv] = new.to(u.dtype)
            raw = -torch.abs(decay[h, tc].to(torch.float32)) / chunk
            g = hl.cumsum(raw, dim=0)
            last = torch.sum(raw, dim=0)
            scaled = (new * torch.exp(last - g)[:, None]).to(k.dtype)
            state = state * torch.exp(last)
            state = hl.dot(k[h, tc, :].T, scaled, acc=state)
    return states, fresh


@helion.kernel(static_shapes=True, autotune_effort="none")
def gated_delta_weights(
    t: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """w = t (beta k) and u = t (beta v) per chunk, t a lower triangular [c, c] inverse.

    t [n, c, c], k [n, c, d], v [n, c, width], beta [n, c].
    """
    n, chunk, d = k.size()
    chunk = hl.specialize(chunk)
    d = hl.specialize(d)
    w = torch.empty_like(k)
    u = torch.empty_like(v)
    for tn in hl.tile(n, block_size=1):
        i = tn.begin
        weight = torch.sigmoid(beta[i, :].to(torch.float32))
        inverse = t[i, :, :]
        at = hl.arange(chunk)
        inverse = torch.where(at[:, None] >= at[None, :], inverse, 0.0).to(k.dtype)
        keys = (k[i, :, :].to(torch.float32) * weight[:, None]).to(k.dtype)
        w[i, :, :] = hl.dot(inverse, keys, out_dtype=torch.float32).to(k.dtype)
        values = (v[i, :, :].to(torch.float32) * weight[:, None]).to(v.dtype)
        u[i, :, :] = hl.dot(inverse, values, out_dtype=torch.float32).to(v.dtype)
    return w, u


def _ref_linear(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, chunk: int
) -> torch.Tensor:
    s = torch.tril(q.float() @ k.float().transpose(1, 2))
    return (s @ v.float()).to(v.dtype)


def _ref_retention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor, chunk: int
) -> torch.Tensor:
    fade = torch.log(torch.sigmoid(gate.float() + 3.0))[:, None, None]
    at = torch.arange(q.size(1), device=q.device)
    gap = (at[:, None] - at[None, :]).float()
    s = torch.tril(q.float() @ k.float().transpose(1, 2) * torch.exp(fade * gap.relu()))
    return (s @ v.float()).to(v.dtype)


def _ref_states(k: torch.Tensor, v: torch.Tensor, chunk: int) -> torch.Tensor:
    keys = k.float().unflatten(1, (-1, chunk))
    states: torch.Tensor = keys.transpose(2, 3) @ v.float().unflatten(1, (-1, chunk))
    return states


def _ref_outputs(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, states: torch.Tensor
) -> torch.Tensor:
    s = torch.tril(q.float() @ k.float().transpose(2, 3))
    return (s @ v.float() + q.float() @ states.float()).to(v.dtype)


def _ref_delta_states(
    k: torch.Tensor, w: torch.Tensor, u: torch.Tensor, decay: torch.Tensor, chunk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    heads, length, d = k.shape
    state = torch.zeros(heads, d, u.size(2), device=k.device)
    states, fresh = [], []
    for first in range(0, length, chunk):
        part = slice(first, first + chunk)
        states.append(state.to(k.dtype))
        new = u[:, part].float() - w[:, part].float() @ state
        fresh.append(new.to(u.dtype))
        g = torch.cumsum(-decay[:, part].float().abs() / chunk, 1)
        scaled = new * torch.exp(g[:, -1:] - g)[:, :, None]
        state = state * torch.exp(g[:, -1])[:, None, None]
        state = state + k[:, part].float().transpose(1, 2) @ scaled
    return torch.stack(states, 1), torch.cat(fresh, 1)


def _ref_delta_weights(
    t: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    weight = torch.sigmoid(beta.float())[:, :, None]
    inverse = torch.tril(t.float())
    w = inverse @ (k.float() * weight)
    return w.to(k.dtype), (inverse @ (v.float() * weight)).to(v.dtype)


def _case(
    kernel: object,
    reference: Any,
    variant: str,
    tiny: tuple[str, ...],
    *shapes: tuple[str, ...],
    atol: float = 2e-2,
) -> KernelCase:
    return KernelCase(
        kernel, reference, "linear_attention", variant, tiny, shapes, atol=atol
    )


def _qkv(dtype: str, h: int, s: int, d: int, width: int, c: int) -> tuple[str, ...]:
    query = f"{dtype}[{h},{s},{d}]"
    return (query, query, f"{dtype}[{h},{s},{width}]", str(c))


def _gated(dtype: str, h: int, s: int, d: int, width: int, c: int) -> tuple[str, ...]:
    *tensors, chunk = _qkv(dtype, h, s, d, width, c)
    return (*tensors, f"f32[{h}]", chunk)


def _kv(dtype: str, h: int, s: int, d: int, width: int, c: int) -> tuple[str, ...]:
    return (f"{dtype}[{h},{s},{d}]", f"{dtype}[{h},{s},{width}]", str(c))


def _parts(dtype: str, h: int, n: int, c: int, d: int, width: int) -> tuple[str, ...]:
    query = f"{dtype}[{h},{n},{c},{d}]"
    state = f"f32[{h},{n},{d},{width}]"
    return (query, query, f"{dtype}[{h},{n},{c},{width}]", state)


def _delta(dtype: str, h: int, s: int, d: int, width: int, c: int) -> tuple[str, ...]:
    key = f"{dtype}[{h},{s},{d}]"
    # Zero w keeps a chain of random, unrelated w and k from growing without bound.
    frozen = f"{key}@zeros"
    return (key, frozen, f"{dtype}[{h},{s},{width}]", f"f32[{h},{s}]", str(c))


def _weights(dtype: str, n: int, c: int, d: int, width: int) -> tuple[str, ...]:
    tensors = (
        f"f32[{n},{c},{c}]",
        f"{dtype}[{n},{c},{d}]",
        f"{dtype}[{n},{c},{width}]",
    )
    return (*tensors, f"f32[{n},{c}]")


CASES = (
    _case(
        linear_attention_chunks,
        _ref_linear,
        "chunks_in_order",
        _qkv("f16", 2, 64, 32, 32, 16),
        _qkv("bf16", 128, 2048, 128, 128, 64),
        _qkv("bf16", 32, 4096, 64, 64, 64),
        _qkv("f16", 64, 1024, 64, 64, 32),
        _qkv("bf16", 96, 8192, 128, 128, 128),
        _qkv("bf16", 256, 2048, 64, 64, 64),
        _qkv("bf16", 16, 4096, 128, 256, 64),
        _qkv("bf16", 512, 512, 64, 64, 128),
        _qkv("f16", 64, 4096, 128, 128, 64),
        atol=0.5,
    ),
    _case(
        retention_chunks,
        _ref_retention,
        "constant_decay",
        _gated("f16", 2, 64, 32, 32, 16),
        _gated("bf16", 64, 2048, 128, 128, 64),
        _gated("bf16", 32, 4096, 64, 128, 64),
        _gated("f16", 128, 1024, 64, 64, 32),
        _gated("bf16", 128, 4096, 128, 128, 64),
        _gated("bf16", 16, 8192, 64, 64, 128),
        _gated("bf16", 256, 1024, 128, 128, 64),
        _gated("bf16", 8, 4096, 128, 256, 128),
        _gated("f16", 64, 2048, 64, 64, 64),
        atol=0.5,
    ),
    _case(
        chunk_states,
        _ref_states,
        "states_in_parallel",
        _kv("f16", 2, 128, 32, 48, 64),
        _kv("bf16", 32, 4096, 128, 128, 64),
        _kv("bf16", 128, 2048, 64, 64, 128),
        _kv("f16", 64, 4096, 128, 64, 256),
        _kv("bf16", 256, 1024, 128, 128, 64),
        _kv("bf16", 16, 16384, 64, 128, 256),
        _kv("bf16", 96, 4096, 128, 128, 128),
        _kv("bf16", 8, 8192, 256, 256, 64),
        _kv("f32", 32, 2048, 64, 64, 64),
    ),
    _case(
        chunk_outputs,
        _ref_outputs,
        "outputs_in_parallel",
        _parts("f16", 2, 3, 32, 32, 48),
        _parts("bf16", 32, 64, 64, 128, 128),
        _parts("bf16", 128, 16, 128, 64, 64),
        _parts("f16", 64, 32, 64, 64, 64),
        _parts("bf16", 256, 16, 64, 128, 128),
        _parts("bf16", 16, 64, 128, 128, 128),
        _parts("bf16", 96, 128, 64, 128, 128),
        _parts("bf16", 64, 128, 32, 64, 128),
        _parts("f16", 8, 128, 64, 128, 256),
        atol=0.1,
    ),
    _case(
        gated_delta_states,
        _ref_delta_states,
        "gated_delta_states",
        ("f16[2,32,32]", "f16[2,32,32]", "f16[2,32,32]", "f32[2,32]", "16"),
        _delta("bf16", 32, 4096, 128, 128, 64),
        _delta("bf16", 6, 1024, 64, 64, 64),
        _delta("f16", 64, 2048, 128, 128, 64),
        _delta("bf16", 128, 2048, 64, 64, 64),
        _delta("bf16", 64, 4096, 128, 256, 64),
        _delta("bf16", 16, 8192, 128, 128, 128),
        _delta("bf16", 256, 1024, 128, 128, 64),
        _delta("bf16", 96, 2048, 64, 128, 32),
        atol=0.1,
    ),
    _case(
        gated_delta_weights,
        _ref_delta_weights,
        "gated_delta_weights",
        _weights("f16", 3, 32, 32, 64),
        _weights("bf16", 4096, 64, 128, 128),
        _weights("bf16", 96, 64, 64, 64),
        _weights("f16", 16384, 64, 64, 64),
        _weights("bf16", 1024, 128, 128, 128),
        _weights("bf16", 8192, 64, 128, 256),
        _weights("bf16", 2048, 32, 64, 128),
        _weights("bf16", 512, 64, 128, 128),
        _weights("bf16", 32768, 32, 64, 64),
        atol=0.1,
    ),
)
