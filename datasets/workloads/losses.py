"""Losses by row over vocabularies and wide targets, whole rows and looped."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "losses"


@helion.kernel(static_shapes=True, autotune_effort="none")
def cross_entropy_rows(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """logsumexp(row) - row[label], whole rows. logits [m, v], labels i64 [m]."""
    m, v = logits.size()
    losses = torch.empty([m], dtype=torch.float32, device=logits.device)
    flat = logits.view(-1)
    for rows in hl.tile(m):
        z = logits[rows, :].to(torch.float32)
        top = z.amax(-1)
        total = torch.exp(z - top[:, None]).sum(-1)
        picked = hl.load(flat, [rows.index * v + labels[rows]]).to(torch.float32)
        losses[rows] = total.log() + top - picked
    return losses


def cross_entropy_reference(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return torch.nn.functional.cross_entropy(logits.float(), labels, reduction="none")


@helion.kernel(static_shapes=True, autotune_effort="none")
def cross_entropy_online(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The same in one column loop; the label's logit found by comparing columns."""
    m, v = logits.size()
    losses = torch.empty([m], dtype=torch.float32, device=logits.device)
    for rows in hl.tile(m):
        label = labels[rows]
        top = hl.full([rows], float("-inf"), dtype=torch.float32)
        total = hl.zeros([rows], dtype=torch.float32)
        picked = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(v):
            z = logits[rows, cols].to(torch.float32)
            new_top = torch.maximum(top, z.amax(-1))
            total = total * torch.exp(top - new_top)
            total = total + torch.exp(z - new_top[:, None]).sum(-1)
            hit = cols.index[None, :] == label[:, None]
            picked = picked + torch.where(hit, z, 0.0).sum(-1)
            top = new_top
        losses[rows] = total.log() + top - picked
    return losses


@helion.kernel(static_shapes=True, autotune_effort="none")
def cross_entropy_smoothed(
    logits: torch.Tensor, labels: torch.Tensor, smoothing: float
) -> torch.Tensor:
    """Cross entropy against (1 - smoothing) one-hot + smoothing uniform, looped."""
    m, v = logits.size()
    losses = torch.empty([m], dtype=torch.float32, device=logits.device)
    flat = logits.view(-1)
    for rows in hl.tile(m):
        top = hl.full([rows], float("-inf"), dtype=torch.float32)
        total = hl.zeros([rows], dtype=torch.float32)
        linear = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(v):
            z = logits[rows, cols].to(torch.float32)
            new_top = torch.maximum(top, z.amax(-1))
            total = total * torch.exp(top - new_top)
            total = total + torch.exp(z - new_top[:, None]).sum(-1)
            linear = linear + z.sum(-1)
            top = new_top
        log_total = total.log() + top
        picked = hl.load(flat, [rows.index * v + labels[rows]]).to(torch.float32)
        hard = log_total - picked
        soft = log_total - linear / v
        losses[rows] = hard * (1.0 - smoothing) + soft * smoothing
    return losses


def cross_entropy_smoothed_reference(
    logits: torch.Tensor, labels: torch.Tensor, smoothing: float
) -> torch.Tensor:
    """Plain PyTorch."""
    return torch.nn.functional.cross_entropy(
        logits.float(), labels, reduction="none", label_smoothing=smoothing
    )


@helion.kernel(static_shapes=True, autotune_effort="none")
def cross_entropy_backward(
    logits: torch.Tensor, labels: torch.Tensor, lse: torch.Tensor, scale: float
) -> torch.Tensor:
    """(softmax(logits) - one_hot(labels)) * scale from saved lse [m]; pointwise."""
    m, v = logits.size()
    grad = torch.empty_like(logits)
    for rows, cols in hl.tile([m, v]):
        z = logits[rows, cols].to(torch.float32)
        p = torch.exp(z - lse[rows][:, None])
        hit = cols.index[None, :] == labels[rows][:, None]
        grad[rows, cols] = (torch.where(hit, p - 1.0, p) * scale).to(logits.dtype)
    return grad


def cross_entropy_backward_reference(
    logits: torch.Tensor, labels: torch.Tensor, lse: torch.Tensor, scale: float
) -> torch.Tensor:
    """Plain PyTorch."""
    p = torch.exp(logits.float() - lse[:, None])
    one_hot = torch.nn.functional.one_hot(labels, logits.size(1))
    return ((p - one_hot) * scale).to(logits.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def kl_div_rows(log_q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """sum p * (log p - log q) per row with p > 0 counted, whole rows."""
    m, _ = p.size()
    out = torch.empty([m], dtype=torch.float32, device=p.device)
    for rows in hl.tile(m):
        pv = p[rows, :].to(torch.float32)
        lv = log_q[rows, :].to(torch.float32)
        term = pv * (torch.log(torch.clamp(pv, min=1e-10)) - lv)
        out[rows] = torch.where(pv > 0.0, term, 0.0).sum(-1)
    return out


def kl_div_reference(log_q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    pv = p.float()
    term = pv * (pv.clamp(min=1e-10).log() - log_q.float())
    return torch.where(pv > 0, term, 0.0).sum(-1)


@helion.kernel(static_shapes=True, autotune_effort="none")
def kl_div_looped(log_q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """The same in one column loop that keeps a two-dimensional accumulator."""
    m, n = p.size()
    out = torch.empty([m], dtype=torch.float32, device=p.device)
    block_n = hl.register_block_size(n)
    for rows in hl.tile(m):
        total = hl.zeros([rows, block_n], dtype=torch.float32)
        for cols in hl.tile(n, block_size=block_n):
            pv = p[rows, cols].to(torch.float32)
            lv = log_q[rows, cols].to(torch.float32)
            term = pv * (torch.log(torch.clamp(pv, min=1e-10)) - lv)
            total = total + torch.where(pv > 0.0, term, 0.0)
        out[rows] = total.sum(-1)
    return out


@helion.kernel(static_shapes=True, autotune_effort="none")
def js_div_looped(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """Jensen-Shannon divergence of two log-probability rows, looped. Returns [m]."""
    m, n = log_p.size()
    out = torch.empty([m], dtype=torch.float32, device=log_p.device)
    for rows in hl.tile(m):
        total = hl.zeros([rows], dtype=torch.float32)
        for cols in hl.tile(n):
            lp = log_p[rows, cols].to(torch.float32)
            lq = log_q[rows, cols].to(torch.float32)
            p = torch.where((cols.index < n)[None, :], torch.exp(lp), 0.0)
            q = torch.where((cols.index < n)[None, :], torch.exp(lq), 0.0)
            mixed = torch.log(torch.clamp(0.5 * (p + q), min=1e-20))
            total = total + (p * (lp - mixed) + q * (lq - mixed)).sum(-1)
        out[rows] = 0.5 * total
    return out


def js_div_reference(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    lp, lq = log_p.float(), log_q.float()
    p, q = lp.exp(), lq.exp()
    mixed = (0.5 * (p + q)).clamp(min=1e-20).log()
    return 0.5 * (p * (lp - mixed) + q * (lq - mixed)).sum(-1)


@helion.kernel(static_shapes=True, autotune_effort="none")
def squared_error_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean squared difference per row, whole rows."""
    m, _ = x.size()
    out = torch.empty([m], dtype=torch.float32, device=x.device)
    for rows in hl.tile(m):
        d = x[rows, :].to(torch.float32) - y[rows, :].to(torch.float32)
        out[rows] = (d * d).mean(-1)
    return out


def squared_error_reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return (x.float() - y.float()).square().mean(-1)


@helion.kernel(static_shapes=True, autotune_effort="none")
def huber_total(x: torch.Tensor, y: torch.Tensor, delta: float) -> torch.Tensor:
    """Sum of Huber losses over a matrix, added atomically block by block. f32 [1]."""
    m, n = x.size()
    out = torch.zeros([1], dtype=torch.float32, device=x.device)
    for rows, cols in hl.tile([m, n]):
        d = (x[rows, cols].to(torch.float32) - y[rows, cols].to(torch.float32)).abs()
        inside = (rows.index < m)[:, None] & (cols.index < n)[None, :]
        loss = torch.where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta))
        part = torch.where(inside, loss, 0.0).sum(-1).sum(-1)
        hl.atomic_add(out, [0], part)
    return out


def huber_total_reference(
    x: torch.Tensor, y: torch.Tensor, delta: float
) -> torch.Tensor:
    """Plain PyTorch."""
    loss = torch.nn.functional.huber_loss(x.float(), y.float(), "sum", delta)
    return loss.reshape(1)


@helion.kernel(static_shapes=True, autotune_effort="none")
def policy_loss(
    logp: torch.Tensor, old_logp: torch.Tensor, advantage: torch.Tensor, clip: float
) -> torch.Tensor:
    """Clipped policy-gradient loss averaged over tokens. logp [m, t], adv [m]."""
    m, _ = logp.size()
    out = torch.empty([m], dtype=torch.float32, device=logp.device)
    for rows in hl.tile(m):
        new = logp[rows, :].to(torch.float32)
        ratio = torch.exp(new - old_logp[rows, :].to(torch.float32))
        a = advantage[rows].to(torch.float32)[:, None]
        clipped = torch.clamp(ratio, 1.0 - clip, 1.0 + clip)
        out[rows] = -torch.minimum(ratio * a, clipped * a).mean(-1)
    return out


def policy_loss_reference(
    logp: torch.Tensor, old_logp: torch.Tensor, advantage: torch.Tensor, clip: float
) -> torch.Tensor:
    """Plain PyTorch."""
    ratio = torch.exp(logp.float() - old_logp.float())
    a = advantage.float()[:, None]
    return -torch.minimum(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a).mean(-1)


def _ce(m: int, v: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{v}]", f"i64[{m}]@index({v})")


def _two(m: int, n: int, dtype: str = "f32") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]",) * 2


def _ce_backward(m: int, v: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (*_ce(m, v, dtype), f"f32[{m}]", "0.125")


def _policy(m: int, t: int, dtype: str = "f32") -> tuple[str, ...]:
    return (*_two(m, t, dtype), f"f32[{m}]", "0.2")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=cross_entropy_rows,
        reference=cross_entropy_reference,
        family=FAMILY,
        variant="one_pass_gather",
        tiny=_ce(5, 96),
        shapes=(
            _ce(4096, 32000),
            _ce(16384, 4096, "f32"),
            _ce(1024, 32768),
            _ce(256, 50257),
            _ce(8192, 8192),
            _ce(65536, 1000),
            _ce(512, 65536),
            _ce(128, 32000, "f32"),
        ),
    ),
    KernelCase(
        kernel=cross_entropy_online,
        reference=cross_entropy_reference,
        family=FAMILY,
        variant="looped_compare",
        tiny=_ce(5, 96),
        shapes=(
            _ce(2048, 128256),
            _ce(1024, 151936),
            _ce(8192, 32000),
            _ce(256, 256000, "f32"),
            _ce(4096, 50257),
            _ce(64, 128256),
            _ce(512, 129280, "f32"),
            _ce(16384, 8192),
        ),
    ),
    KernelCase(
        kernel=cross_entropy_smoothed,
        reference=cross_entropy_smoothed_reference,
        family=FAMILY,
        variant="looped_gather",
        tiny=(*_ce(5, 96), "0.1"),
        shapes=(
            (*_ce(4096, 32000), "0.1"),
            (*_ce(1024, 128256), "0.1"),
            (*_ce(2048, 50257, "f32"), "0.1"),
            (*_ce(65536, 1000), "0.1"),
            (*_ce(512, 152064), "0.1"),
            (*_ce(128, 32000, "f32"), "0.1"),
            (*_ce(8192, 16384), "0.1"),
            (*_ce(32, 256000), "0.1"),
        ),
    ),
    KernelCase(
        kernel=cross_entropy_backward,
        reference=cross_entropy_backward_reference,
        family=FAMILY,
        variant="backward_pointwise",
        tiny=_ce_backward(5, 96),
        shapes=(
            _ce_backward(2048, 32000),
            _ce_backward(1024, 128256),
            _ce_backward(16384, 4096, "f32"),
            _ce_backward(256, 151936),
            _ce_backward(4096, 50257),
            _ce_backward(65536, 1000),
            _ce_backward(64, 128256, "f32"),
            _ce_backward(1024, 32000),
        ),
        atol=1e-1,
    ),
    KernelCase(
        kernel=kl_div_rows,
        reference=kl_div_reference,
        family=FAMILY,
        variant="one_pass",
        tiny=_two(5, 96),
        shapes=(
            _two(4096, 8192),
            _two(2048, 32000, "bf16"),
            _two(32768, 1024),
            _two(4096, 4096),
            _two(512, 32768),
            _two(8192, 16384, "bf16"),
            _two(256, 16384),
            _two(16384, 2047),
        ),
    ),
    KernelCase(
        kernel=kl_div_looped,
        reference=kl_div_reference,
        family=FAMILY,
        variant="looped_wide_accumulator",
        tiny=_two(5, 96),
        shapes=(
            _two(1024, 128256),
            _two(4096, 16384),
            _two(2048, 65536, "bf16"),
            _two(4096, 32768),
            _two(128, 131072),
            _two(16384, 4096, "bf16"),
            _two(512, 50257),
            _two(8192, 6000),
        ),
    ),
    KernelCase(
        kernel=js_div_looped,
        reference=js_div_reference,
        family=FAMILY,
        variant="looped",
        tiny=_two(5, 96),
        shapes=(
            _two(2048, 32000),
            _two(1024, 128256, "bf16"),
            _two(8192, 8192),
            _two(4096, 16384, "bf16"),
            _two(256, 65536),
            _two(16384, 2048),
            _two(64, 151936),
            _two(2048, 4096),
        ),
    ),
    KernelCase(
        kernel=squared_error_rows,
        reference=squared_error_reference,
        family=FAMILY,
        variant="one_pass",
        tiny=_two(5, 96),
        shapes=(
            _two(8192, 4096, "bf16"),
            _two(65536, 512),
            _two(1024, 16384),
            _two(262144, 128, "bf16"),
            _two(2048, 2048),
            _two(4096, 12288, "f16"),
            _two(16384, 3000),
            _two(256, 65536),
        ),
    ),
    KernelCase(
        kernel=huber_total,
        reference=huber_total_reference,
        family=FAMILY,
        variant="atomic_total",
        tiny=(*_two(5, 96), "1.0"),
        shapes=(
            (*_two(4096, 4096), "1.0"),
            (*_two(16384, 4096, "bf16"), "0.5"),
            (*_two(1024, 2048), "1.0"),
            (*_two(65536, 512), "1.0"),
            (*_two(256, 65536, "bf16"), "1.0"),
            (*_two(8192, 8192), "1.0"),
            (*_two(1, 16777216), "1.0"),
            (*_two(5000, 3001), "1.0"),
        ),
    ),
    KernelCase(
        kernel=policy_loss,
        reference=policy_loss_reference,
        family=FAMILY,
        variant="one_pass",
        tiny=_policy(5, 96),
        shapes=(
            _policy(4096, 2048),
            _policy(1024, 8192),
            _policy(16384, 1024, "bf16"),
            _policy(512, 32768),
            _policy(65536, 256),
            _policy(128, 4096),
            _policy(2048, 16384, "bf16"),
            _policy(8192, 1500),
        ),
        rtol=2e-2,
        atol=5e-2,
    ),
)
