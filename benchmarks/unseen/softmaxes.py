"""Softmax and its relatives: thresholds by bisection, log-probabilities, transport."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "unseen_softmax"


@helion.kernel(static_shapes=True)
def sparsemax_rows(x: torch.Tensor, steps: hl.constexpr) -> torch.Tensor:
    """Projection of each row on the simplex; its threshold by bisection."""
    m, _n = x.size()
    out = torch.empty_like(x)
    for rows in hl.tile(m):
        z = x[rows, :].to(torch.float32)
        high = torch.amax(z, dim=-1)
        low = high - 1.0
        for _ in hl.static_range(steps):
            middle = 0.5 * (low + high)
            mass = torch.sum(torch.relu(z - middle[:, None]), dim=-1)
            low = torch.where(mass >= 1.0, middle, low)
            high = torch.where(mass >= 1.0, high, middle)
        out[rows, :] = torch.relu(z - low[:, None]).to(x.dtype)
    return out


def sparsemax_rows_reference(x: torch.Tensor, steps: int) -> torch.Tensor:
    """Plain PyTorch: sorted, exact."""
    z, _ = x.float().sort(-1, descending=True)
    rank = torch.arange(1, z.size(-1) + 1, device=x.device)
    total = z.cumsum(-1)
    support = (1 + rank * z > total).sum(-1, keepdim=True)
    threshold = (total.gather(-1, support - 1) - 1) / support
    return torch.relu(x.float() - threshold).to(x.dtype)


@helion.kernel(static_shapes=False)
def token_log_probs(
    logits: torch.Tensor, tokens: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each row's token and the row's entropy, in one pass."""
    n, v = logits.size()
    flat = logits.view(-1)
    chosen = torch.empty([n], dtype=torch.float32, device=logits.device)
    entropy = torch.empty([n], dtype=torch.float32, device=logits.device)
    for rows in hl.tile(n):
        top = hl.full([rows], float("-inf"), dtype=torch.float32)
        total = hl.zeros([rows], dtype=torch.float32)
        first = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(v):
            z = logits[rows, cols].to(torch.float32) / temperature
            new_top = torch.maximum(top, torch.amax(z, dim=1))
            fade = torch.exp(top - new_top)
            e = torch.exp(z - new_top[:, None])
            total = total * fade + e.sum(dim=1)
            # Padding holds zeros, whose weight is masked but whose product is too.
            first = first * fade + (e * z).sum(dim=1)
            top = new_top
        log_z = top + torch.log(total)
        place = rows.index * v + tokens[rows]
        picked = hl.load(flat, [place]).to(torch.float32) / temperature
        chosen[rows] = picked - log_z
        entropy[rows] = log_z - first / total
    return chosen, entropy


def token_log_probs_reference(
    logits: torch.Tensor, tokens: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    logp = torch.log_softmax(logits.float() / temperature, -1)
    chosen = logp.gather(1, tokens[:, None].long())[:, 0]
    return chosen, -(logp.exp() * logp).sum(-1)


@helion.kernel(static_shapes=True)
def nucleus_filter(logits: torch.Tensor, mass: float) -> torch.Tensor:
    """Probabilities of the smallest top set that holds `mass`, scaled to sum to one.

    The set is all tokens at or above a probability that twenty halvings find.
    """
    b, v = logits.size()
    out = torch.empty([b, v], dtype=torch.float32, device=logits.device)
    for ib in hl.tile(b, block_size=1):
        p = torch.softmax(logits[ib, :].to(torch.float32), dim=-1)
        high = p.amax(-1)
        low = high * 0.0
        for _ in range(20):
            cut = 0.5 * (low + high)
            held = torch.where(p >= cut[:, None], p, 0.0).sum(-1)
            low = torch.where(held >= mass, cut, low)
            high = torch.where(held >= mass, high, cut)
        kept = torch.where(p >= low[:, None], p, 0.0)
        out[ib, :] = kept / kept.sum(-1)[:, None]
    return out


def nucleus_filter_reference(logits: torch.Tensor, mass: float) -> torch.Tensor:
    """Plain PyTorch: sorted, exact."""
    p = torch.softmax(logits.float(), -1)
    ordered, order = p.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.where(before < mass, ordered, 0.0)
    kept = kept / kept.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, kept)


@helion.kernel(static_shapes=True)
def sinkhorn_plan(cost: torch.Tensor, sharpness: float, n_rounds: int) -> torch.Tensor:
    """Entropic transport plans of small square costs [b, s, s], uniform marginals."""
    b = cost.size(0)
    s = hl.specialize(cost.size(1))
    out = torch.empty_like(cost)
    for tb in hl.tile(b):
        log_k = -sharpness * cost[tb, :, :]
        f = hl.zeros([tb, s], dtype=torch.float32)
        g = hl.zeros([tb, s], dtype=torch.float32)
        for _ in range(n_rounds):
            z = log_k + g[:, None, :]
            top = z.amax(2)
            f = -top - torch.log(torch.exp(z - top[:, :, None]).sum(2))
            z = log_k + f[:, :, None]
            top = z.amax(1)
            g = -top - torch.log(torch.exp(z - top[:, None, :]).sum(1))
        out[tb, :, :] = torch.exp(log_k + f[:, :, None] + g[:, None, :])
    return out


def sinkhorn_plan_reference(
    cost: torch.Tensor, sharpness: float, n_rounds: int
) -> torch.Tensor:
    """Plain PyTorch."""
    log_k = -sharpness * cost
    g = torch.zeros_like(cost[:, 0])
    f = g
    for _ in range(n_rounds):
        f = -torch.logsumexp(log_k + g[:, None, :], 2)
        g = -torch.logsumexp(log_k + f[:, :, None], 1)
    return torch.exp(log_k + f[:, :, None] + g[:, None, :])


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=sparsemax_rows,
        reference=sparsemax_rows_reference,
        family=FAMILY,
        variant="bisection_unrolled",
        tiny=("f32[6,40]", "24"),
        shapes=(("bf16[4096,2048]", "16"), ("f32[1024,10000]", "24")),
    ),
    KernelCase(
        kernel=token_log_probs,
        reference=token_log_probs_reference,
        family=FAMILY,
        variant="online_two_outputs",
        tiny=("f32[6,64]", "i64[6]@index(64)", "0.7"),
        shapes=(
            ("bf16[4096,50304]", "i64[4096]@index(50304)", "0.8"),
            ("f32[512,128256]", "i64[512]@index(128256)", "1.0"),
        ),
    ),
    KernelCase(
        kernel=nucleus_filter,
        reference=nucleus_filter_reference,
        family=FAMILY,
        variant="bisection_loop",
        tiny=("f32[4,64]", "0.9"),
        shapes=(("f32[256,32000]", "0.9"), ("bf16[1024,8192]", "0.95")),
    ),
    KernelCase(
        kernel=sinkhorn_plan,
        reference=sinkhorn_plan_reference,
        family=FAMILY,
        variant="iterated_small",
        tiny=("f32[3,8,8]@uniform", "2.0", "5"),
        shapes=(
            ("f32[8192,32,32]@uniform", "5.0", "20"),
            ("f32[1000,64,64]@uniform", "10.0", "10"),
        ),
    ),
)
