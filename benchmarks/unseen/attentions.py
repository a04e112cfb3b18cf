"""Attention with sinks, gates, padding and scores of other kinds."""

from __future__ import annotations

import math

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "unseen_attention"


@helion.kernel(static_shapes=True)
def attention_sink_window(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sink: torch.Tensor,
    window: hl.constexpr,
) -> torch.Tensor:
    """Causal attention to the last `window` keys and one learnt sink logit per head.

    q, k, v [b, h, t, d], sink [h]; the sink takes weight but adds no value.
    """
    b, h, t, d = q.size()
    d = hl.specialize(d)
    scale = 1.0 / math.sqrt(d)
    q3, k3, v3 = q.view(b * h, t, d), k.view(b * h, t, d), v.view(b * h, t, d)
    out = torch.empty_like(q3)
    for bh, tq in hl.tile([b * h, t], block_size=[1, None]):
        logit = sink[bh.begin % h].to(torch.float32)
        top = hl.zeros([tq], dtype=torch.float32) + logit
        total = hl.full([tq], 1.0, dtype=torch.float32)
        acc = hl.zeros([tq, d], dtype=torch.float32)
        query = q3[bh.begin, tq, :]
        first = max(tq.begin - window + 1, 0)
        for tk in hl.tile(first, tq.end):
            scores = torch.matmul(query, k3[bh.begin, tk, :].T).to(torch.float32)
            distance = tq.index[:, None] - tk.index[None, :]
            seen = (distance >= 0) & (distance < window)
            scores = torch.where(seen, scores * scale, float("-inf"))
            new_top = torch.maximum(top, scores.amax(1))
            p = torch.exp(scores - new_top[:, None])
            fade = torch.exp(top - new_top)
            total = total * fade + p.sum(1)
            acc = acc * fade[:, None]
            acc = torch.addmm(acc, p.to(v.dtype), v3[bh.begin, tk, :])
            top = new_top
        out[bh.begin, tq, :] = (acc / total[:, None]).to(out.dtype)
    return out.view(b, h, t, d)


def attention_sink_window_reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor, window: int
) -> torch.Tensor:
    """Plain PyTorch."""
    b, h, t, d = q.shape
    scores = q.float() @ k.float().mT / math.sqrt(d)
    place = torch.arange(t, device=q.device)
    distance = place[:, None] - place[None, :]
    scores = scores.masked_fill((distance < 0) | (distance >= window), float("-inf"))
    extra = sink.float().view(1, h, 1, 1).expand(b, h, t, 1)
    p = torch.softmax(torch.cat([scores, extra], -1), -1)[..., :-1]
    return (p @ v.float()).to(q.dtype)


@helion.kernel(static_shapes=False)
def cross_attention_padded(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Decoder queries attend to the first lengths[b] encoder states of their batch.

    q [b, hq, tq, d], k and v [b, hk, tk, d] with hq a multiple of hk, lengths [b].
    """
    b, hq, tq, d = q.size()
    hk, tk = k.size(1), k.size(2)
    d = hl.specialize(d)
    share = hl.specialize(hq // hk)
    out = torch.empty_like(q)
    block_q = hl.register_block_size(tq)
    # log2(e): the hardware's exponential is of base two.
    scale = 1.44269504 / math.sqrt(d)
    for ib, ih, rows in hl.tile([b, hq, tq], block_size=[1, 1, block_q]):
        head = ih.begin // share
        end = lengths[ib.begin]
        top = hl.full([rows], -1e30, dtype=torch.float32)
        total = hl.zeros([rows], dtype=torch.float32)
        acc = hl.zeros([rows, d], dtype=torch.float32)
        query = q[ib.begin, ih.begin, rows, :]
        for cols in hl.tile(tk):
            key = k[ib.begin, head, cols, :]
            scores = hl.dot(query, key.transpose(0, 1)) * scale
            scores = torch.where(cols.index[None, :] < end, scores, -1e30)
            new_top = torch.maximum(top, torch.amax(scores, dim=-1))
            p = torch.exp2(scores - new_top[:, None])
            fade = torch.exp2(top - new_top)
            total = total * fade + torch.sum(p, dim=-1)
            value = v[ib.begin, head, cols, :]
            acc = hl.dot(p.to(value.dtype), value, acc=acc * fade[:, None])
            top = new_top
        out[ib.begin, ih.begin, rows, :] = (acc / total[:, None]).to(out.dtype)
    return out


def cross_attention_padded_reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch; a batch without states gets the mean of all values."""
    share = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    scores = q.float() @ k.float().mT / math.sqrt(q.size(-1))
    place = torch.arange(k.size(2), device=q.device)
    padding = place[None, :] >= lengths[:, None]
    scores = scores.masked_fill(padding[:, None, None, :], -1e30)
    return (torch.softmax(scores, -1) @ v.float()).to(q.dtype)


@helion.kernel()
def sigmoid_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: float
) -> torch.Tensor:
    """sigmoid(q k^T / sqrt(d) + bias) v: no sum to divide by. All [heads, t, d]."""
    heads, t, d = q.size()
    d = hl.specialize(d)
    scale = d**-0.5
    out = torch.empty_like(q)
    for tile_h, tile_q in hl.tile([heads, t]):
        acc = hl.zeros([tile_h, tile_q, d], dtype=torch.float32)
        query = q[tile_h, tile_q, :]
        for tile_k in hl.tile(t):
            scores = torch.bmm(query, k[tile_h, tile_k, :].transpose(1, 2))
            p = torch.sigmoid(scores.to(torch.float32) * scale + bias)
            acc = torch.baddbmm(acc, p.to(v.dtype), v[tile_h, tile_k, :])
        out[tile_h, tile_q, :] = acc.to(out.dtype)
    return out


def sigmoid_attention_reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: float
) -> torch.Tensor:
    """Plain PyTorch."""
    scores = q.float() @ k.float().mT * q.size(-1) ** -0.5 + bias
    return (torch.sigmoid(scores) @ v.float()).to(q.dtype)


@helion.kernel(static_shapes=True)
def additive_attention_weights(
    query: torch.Tensor, keys: torch.Tensor, score: torch.Tensor
) -> torch.Tensor:
    """softmax over keys of score . tanh(query + key). query [b, d], keys [b, t, d]."""
    b, t, _d = keys.size()
    logits = torch.empty([b, t], dtype=torch.float32, device=keys.device)
    weights = torch.empty_like(logits)
    for ib in hl.grid(b):
        for tt in hl.tile(t):
            hidden = torch.tanh(
                query[ib, :].to(torch.float32)[None, :]
                + keys[ib, tt, :].to(torch.float32)
            )
            logits[ib, tt] = (hidden * score[:].to(torch.float32)[None, :]).sum(-1)
    for rows in hl.tile(b):
        weights[rows, :] = torch.softmax(logits[rows, :], dim=-1)
    return weights


def additive_attention_weights_reference(
    query: torch.Tensor, keys: torch.Tensor, score: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    hidden = torch.tanh(query.float()[:, None, :] + keys.float())
    return torch.softmax(hidden @ score.float(), -1)


def _heads(b: int, h: int, t: int, d: int, dtype: str = "bf16") -> str:
    return f"{dtype}[{b},{h},{t},{d}]"


def _sink(b: int, h: int, t: int, d: int, window: int, dt: str) -> tuple[str, ...]:
    return (*[_heads(b, h, t, d, dt)] * 3, f"f32[{h}]", str(window))


def _cross(
    b: int, heads: tuple[int, int], t: tuple[int, int], d: int, dt: str = "bf16"
) -> tuple[str, ...]:
    key = _heads(b, heads[1], t[1], d, dt)
    lengths = f"i32[{b}]@index({t[1]})"
    return (_heads(b, heads[0], t[0], d, dt), key, key, lengths)


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=attention_sink_window,
        reference=attention_sink_window_reference,
        family=FAMILY,
        variant="sink_window",
        tiny=_sink(2, 2, 40, 16, 12, "f32"),
        shapes=(
            _sink(2, 16, 4096, 64, 512, "bf16"),
            _sink(1, 8, 2048, 128, 128, "f16"),
        ),
    ),
    KernelCase(
        kernel=cross_attention_padded,
        reference=cross_attention_padded_reference,
        family=FAMILY,
        variant="cross_grouped_padded",
        tiny=_cross(2, (4, 2), (24, 40), 16, "f32"),
        shapes=(
            _cross(8, (16, 4), (512, 1500), 64),
            _cross(4, (8, 8), (333, 1024), 128, "f16"),
        ),
    ),
    KernelCase(
        kernel=sigmoid_attention,
        reference=sigmoid_attention_reference,
        family=FAMILY,
        variant="no_softmax",
        tiny=(*["f32[3,24,16]"] * 3, "-2.0"),
        shapes=(
            (*["bf16[32,2048,64]"] * 3, "-7.6"),
            (*["f16[96,512,128]"] * 3, "-6.2"),
        ),
    ),
    KernelCase(
        kernel=additive_attention_weights,
        reference=additive_attention_weights_reference,
        family=FAMILY,
        variant="pointwise_scores",
        tiny=("f32[3,32]", "f32[3,20,32]", "f32[32]"),
        shapes=(
            ("bf16[256,512]", "bf16[256,400,512]", "bf16[512]"),
            ("f32[64,1024]", "f32[64,256,1024]", "f32[1024]"),
        ),
    ),
)
