"""Top-k and routing: repeated maxima, gates of experts, sampling, histograms."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "top_k"


@helion.kernel(static_shapes=True, autotune_effort="none")
def repeated_max(x: torch.Tensor, k: hl.constexpr) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest entries of each row and their positions, one maximum at a time."""
    m, n = x.size()
    values = torch.empty([m, k], dtype=torch.float32, device=x.device)
    places = torch.empty([m, k], dtype=torch.int32, device=x.device)
    for rows in hl.tile(m):
        v = x[rows, :].to(torch.float32)
        column = hl.arange(n)[None, :]
        for i in hl.static_range(k):
            top = v.amax(-1)
            # Ties go to the smaller position.
            at = torch.where(v == top[:, None], column, n).amin(-1)
            values[rows, i] = top
            places[rows, i] = at.to(torch.int32)
            v = torch.where(column == at[:, None], float("-inf"), v)
    return values, places


def repeated_max_reference(
    x: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch: a stable sort keeps the smaller position first."""
    values, places = torch.sort(x.float(), stable=True, dim=-1, descending=True)
    return values[:, :k].contiguous(), places[:, :k].to(torch.int32)


@helion.kernel(static_shapes=True, autotune_effort="none")
def expert_gates(
    logits: torch.Tensor, k: hl.constexpr
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax over experts, the k largest renormalised to one. logits [t, experts]."""
    tokens, experts = logits.size()
    weights = torch.empty([tokens, k], dtype=torch.float32, device=logits.device)
    chosen = torch.empty([tokens, k], dtype=torch.int32, device=logits.device)
    for t in hl.tile(tokens):
        z = logits[t, :].to(torch.float32)
        p = torch.exp(z - z.amax(-1)[:, None])
        column = hl.arange(experts)[None, :]
        left = p
        total = hl.zeros([t], dtype=torch.float32)
        for i in hl.static_range(k):
            top = left.amax(-1)
            at = torch.where(left == top[:, None], column, experts).amin(-1)
            chosen[t, i] = at.to(torch.int32)
            total = total + top
            left = torch.where(column == at[:, None], -1.0, left)
        again = p
        for i in hl.static_range(k):
            top = again.amax(-1)
            at = torch.where(again == top[:, None], column, experts).amin(-1)
            weights[t, i] = top / total
            again = torch.where(column == at[:, None], -1.0, again)
    return weights, chosen


def expert_gates_reference(
    logits: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    p = torch.softmax(logits.float(), -1)
    top, chosen = torch.sort(p, stable=True, dim=-1, descending=True)
    top = top[:, :k]
    return top / top.sum(-1, keepdim=True), chosen[:, :k].to(torch.int32)


@helion.kernel(static_shapes=True, autotune_effort="none")
def sigmoid_gate_first(
    logits: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The expert with the largest biased sigmoid, and its unbiased weight."""
    tokens, experts = logits.size()
    weight = torch.empty([tokens], dtype=torch.float32, device=logits.device)
    chosen = torch.empty([tokens], dtype=torch.int32, device=logits.device)
    for t in hl.tile(tokens):
        p = torch.sigmoid(logits[t, :].to(torch.float32))
        score = p + bias[:].to(torch.float32)[None, :]
        column = hl.arange(experts)[None, :]
        top = score.amax(-1)
        at = torch.where(score == top[:, None], column, experts).amin(-1)
        chosen[t] = at.to(torch.int32)
        weight[t] = torch.where(column == at[:, None], p, 0.0).sum(-1)
    return weight, chosen


def sigmoid_gate_first_reference(
    logits: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    p = torch.sigmoid(logits.float())
    at = (p + bias.float()).argmax(-1, keepdim=True)
    return p.gather(1, at).squeeze(1), at.squeeze(1).to(torch.int32)


@helion.kernel(static_shapes=True, autotune_effort="none")
def expert_histogram(chosen: torch.Tensor, experts: hl.constexpr) -> torch.Tensor:
    """How many of the flat choices each expert got, by compare and atomic add."""
    n = chosen.size(0)
    out = torch.zeros([experts], dtype=torch.int32, device=chosen.device)
    for items in hl.tile(n):
        for e in hl.tile(experts):
            hit = chosen[items][:, None] == e.index[None, :]
            inside = (items.index < n)[:, None]
            count = (hit & inside).to(torch.int32).sum(0).to(torch.int32)
            hl.atomic_add(out, [e], count)
    return out


def expert_histogram_reference(chosen: torch.Tensor, experts: int) -> torch.Tensor:
    """Plain PyTorch."""
    return torch.bincount(chosen.long(), minlength=experts).to(torch.int32)


@helion.kernel(static_shapes=True, autotune_effort="none")
def gumbel_sample(
    logits: torch.Tensor, uniform: torch.Tensor, temperature: float
) -> torch.Tensor:
    """argmax(logits / temperature + Gumbel noise) by row, looped. Returns i32 [m]."""
    m, n = logits.size()
    place = torch.empty([m], dtype=torch.int32, device=logits.device)
    for rows in hl.tile(m):
        top = hl.full([rows], float("-inf"), dtype=torch.float32)
        at = hl.zeros([rows], dtype=torch.int32)
        for cols in hl.tile(n):
            # The uniform number is made from any float by a sigmoid.
            u = torch.sigmoid(uniform[rows, cols].to(torch.float32))
            noise = -torch.log(-torch.log(u))
            v = logits[rows, cols].to(torch.float32) / temperature + noise
            block_top = v.amax(-1)
            here = torch.where(
                v == block_top[:, None], cols.index[None, :], 2147483647
            ).amin(-1)
            at = torch.where(block_top > top, here.to(torch.int32), at)
            top = torch.maximum(top, block_top)
        place[rows] = at
    return place


def gumbel_sample_reference(
    logits: torch.Tensor, uniform: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Plain PyTorch."""
    u = torch.sigmoid(uniform.float())
    v = logits.float() / temperature - torch.log(-torch.log(u))
    return v.argmax(-1).to(torch.int32)


def _top(m: int, n: int, k: int, dtype: str = "f32") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]", str(k))


def _gate(t: int, experts: int) -> tuple[str, ...]:
    return (f"f32[{t},{experts}]", f"f32[{experts}]")


def _histogram(n: int, experts: int) -> tuple[str, ...]:
    return (f"i32[{n}]@index({experts})", str(experts))


def _sample(m: int, n: int, dtype: str = "f32") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]", f"f32[{m},{n}]", "0.7")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=repeated_max,
        reference=repeated_max_reference,
        family=FAMILY,
        variant="repeated_max",
        tiny=_top(5, 32, 3),
        shapes=(
            _top(8192, 1024, 8),
            _top(32768, 128, 8),
            _top(1024, 4096, 4),
            _top(256, 8192, 8),
            _top(65536, 256, 4),
            _top(4096, 2048, 16),
            _top(512, 1000, 5),
            _top(16384, 64, 6, "bf16"),
        ),
        rtol=0.0,
        atol=0.0,
    ),
    KernelCase(
        kernel=expert_gates,
        reference=expert_gates_reference,
        family=FAMILY,
        variant="softmax_gates",
        tiny=_top(5, 32, 3),
        shapes=(
            _top(8192, 128, 8),
            _top(16384, 64, 6),
            _top(512, 128, 8),
            _top(4096, 256, 8),
            _top(65536, 8, 2),
            _top(2048, 512, 10),
            _top(32768, 32, 4, "bf16"),
            _top(64, 128, 4),
        ),
        rtol=1e-4,
        atol=1e-5,
    ),
    KernelCase(
        kernel=sigmoid_gate_first,
        reference=sigmoid_gate_first_reference,
        family=FAMILY,
        variant="sigmoid_gate",
        tiny=_gate(5, 32),
        shapes=(
            _gate(65536, 256),
            _gate(16384, 128),
            _gate(262144, 64),
            _gate(4096, 512),
            _gate(131072, 16),
            _gate(32768, 384),
            _gate(8192, 1024),
            _gate(1024, 256),
        ),
        rtol=1e-4,
        atol=1e-5,
    ),
    KernelCase(
        kernel=expert_histogram,
        reference=expert_histogram_reference,
        family=FAMILY,
        variant="histogram",
        tiny=_histogram(50, 8),
        shapes=(
            _histogram(65536, 128),
            _histogram(1048576, 64),
            _histogram(131072, 256),
            _histogram(4096, 128),
            _histogram(524288, 32),
            _histogram(262144, 512),
            _histogram(16384, 1024),
            _histogram(100003, 60),
        ),
        rtol=0.0,
        atol=0.0,
    ),
    KernelCase(
        kernel=gumbel_sample,
        reference=gumbel_sample_reference,
        family=FAMILY,
        variant="sample_looped",
        tiny=_sample(5, 64),
        shapes=(
            _sample(256, 128256),
            _sample(64, 151936),
            _sample(1024, 32000),
            _sample(512, 50257, "f16"),
            _sample(8, 128256),
            _sample(4096, 8192),
            _sample(128, 256000),
            _sample(32, 32000),
        ),
        rtol=0.0,
        atol=0.0,
    ),
)
