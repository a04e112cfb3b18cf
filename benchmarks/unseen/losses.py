"""Losses: imbalanced pixels, overlaps, contrast, preferences."""

from __future__ import annotations

import helion
import helion.language as hl
import torch
import torch.nn.functional as F

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "unseen_loss"


@helion.kernel(static_shapes=True)
def focal_loss_total(
    logits: torch.Tensor, target: torch.Tensor, alpha: float = 0.25
) -> torch.Tensor:
    """Sum of the binary focal loss with exponent two, over a flat tensor."""
    n = logits.numel()
    flat, truth = logits.view(-1), target.view(-1)
    total = torch.zeros([1], dtype=torch.float32, device=logits.device)
    for tile in hl.tile(n):
        z = flat[tile].to(torch.float32)
        t = truth[tile].to(torch.float32)
        soft = torch.log1p(torch.exp(-torch.abs(z)))
        entropy = torch.relu(z) - z * t + soft
        p = torch.sigmoid(z)
        miss = p + t - 2.0 * p * t
        weight = alpha * t + (1.0 - alpha) * (1.0 - t)
        value = weight * miss * miss * entropy
        value = torch.where(tile.index < n, value, 0.0)
        hl.atomic_add(total, [0], value.sum())
    return total


def focal_loss_total_reference(
    logits: torch.Tensor, target: torch.Tensor, alpha: float = 0.25
) -> torch.Tensor:
    """Plain PyTorch."""
    z, t = logits.float(), target.float()
    entropy = F.binary_cross_entropy_with_logits(z, t, reduction="none")
    p = torch.sigmoid(z)
    miss = p * (1 - t) + (1 - p) * t
    weight = alpha * t + (1 - alpha) * (1 - t)
    return (weight * miss**2 * entropy).sum()[None]


@helion.kernel()
def dice_by_class(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """1 - 2 |a b| / (|a| + |b|) for each sample and class. scores [b, c, pixels]."""
    b, c, pixels = scores.shape
    out = torch.empty([b, c], dtype=torch.float32, device=scores.device)
    for ib, ic in hl.tile([b, c]):
        both = hl.zeros([ib, ic], dtype=torch.float32)
        either = hl.zeros([ib, ic], dtype=torch.float32)
        for ip in hl.tile(pixels):
            p = torch.sigmoid(scores[ib, ic, ip].to(torch.float32))
            p = torch.where((ip.index < pixels)[None, None, :], p, 0.0)
            t = target[ib, ic, ip].to(torch.float32)
            both += torch.sum(p * t, dim=-1)
            either += torch.sum(p + t, dim=-1)
        out[ib, ic] = 1.0 - (2.0 * both + 1.0) / (either + 1.0)
    return out


def dice_by_class_reference(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    p, t = torch.sigmoid(scores.float()), target.float()
    return 1 - (2 * (p * t).sum(-1) + 1) / ((p + t).sum(-1) + 1)


@helion.kernel(static_shapes=True)
def info_nce_rows(
    anchors: torch.Tensor, others: torch.Tensor, temperature: float
) -> torch.Tensor:
    """-log softmax of the matching pair's similarity, without the score matrix.

    anchors, others [n, d]; row i matches row i.
    """
    n, d = anchors.size()
    d = hl.specialize(d)
    loss = torch.empty([n], dtype=torch.float32, device=anchors.device)
    for ti in hl.tile(n):
        a = anchors[ti, :]
        top = hl.full([ti], float("-inf"), dtype=torch.float32)
        total = hl.zeros([ti], dtype=torch.float32)
        for tj in hl.tile(n):
            s = hl.dot(a, others[tj, :].T).to(torch.float32) / temperature
            s = torch.where((tj.index < n)[None, :], s, float("-inf"))
            new_top = torch.maximum(top, s.amax(1))
            total = total * torch.exp(top - new_top)
            total = total + torch.exp(s - new_top[:, None]).sum(1)
            top = new_top
        match = a.to(torch.float32) * others[ti, :].to(torch.float32)
        loss[ti] = top + torch.log(total) - match.sum(1) / temperature
    return loss


def info_nce_rows_reference(
    anchors: torch.Tensor, others: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Plain PyTorch."""
    s = anchors.float() @ others.float().T / temperature
    return torch.logsumexp(s, 1) - s.diagonal()


@helion.kernel(static_shapes=False)
def triplet_hinge(
    anchor: torch.Tensor, near: torch.Tensor, far: torch.Tensor, margin: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """relu(|a - p| - |a - n| + margin) by row, and how many rows are not zero."""
    n, _d = anchor.size()
    loss = torch.empty([n], dtype=torch.float32, device=anchor.device)
    active = torch.zeros([1], dtype=torch.int32, device=anchor.device)
    for rows in hl.tile(n):
        a = anchor[rows, :].to(torch.float32)
        good = torch.sqrt((a - near[rows, :].to(torch.float32)).square().sum(-1))
        bad = torch.sqrt((a - far[rows, :].to(torch.float32)).square().sum(-1))
        value = torch.relu(good - bad + margin)
        loss[rows] = value
        counted = (value > 0) & (rows.index < n)
        hl.atomic_add(active, [0], counted.to(torch.int32).sum())
    return loss, active


def triplet_hinge_reference(
    anchor: torch.Tensor, near: torch.Tensor, far: torch.Tensor, margin: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    a = anchor.float()
    value = (a - near.float()).norm(dim=-1) - (a - far.float()).norm(dim=-1) + margin
    loss = torch.relu(value)
    return loss, (loss > 0).sum().to(torch.int32)[None]


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=focal_loss_total,
        reference=focal_loss_total_reference,
        family=FAMILY,
        variant="atomic_total",
        tiny=("f32[6,40]", "i8[6,40]@index(2)", "0.25"),
        shapes=(
            ("bf16[64,100,800]", "i8[64,100,800]@index(2)", "0.25"),
            ("f32[16,21,65536]", "i8[16,21,65536]@index(2)", "0.3"),
        ),
    ),
    KernelCase(
        kernel=dice_by_class,
        reference=dice_by_class_reference,
        family=FAMILY,
        variant="two_sums",
        tiny=("f32[2,3,50]", "u8[2,3,50]@index(2)"),
        shapes=(
            ("f16[16,19,65536]", "u8[16,19,65536]@index(2)"),
            ("f32[64,4,12544]", "u8[64,4,12544]@index(2)"),
        ),
    ),
    KernelCase(
        kernel=info_nce_rows,
        reference=info_nce_rows_reference,
        family=FAMILY,
        variant="scores_not_stored",
        tiny=("f32[24,16]", "f32[24,16]", "4.0"),
        shapes=(
            ("bf16[8192,256]", "bf16[8192,256]", "16.0"),
            ("f16[3000,512]", "f16[3000,512]", "20.0"),
        ),
    ),
    KernelCase(
        kernel=triplet_hinge,
        reference=triplet_hinge_reference,
        family=FAMILY,
        variant="rows_and_count",
        tiny=(*["f32[12,32]"] * 3, "0.5"),
        shapes=((*["f32[32768,256]"] * 3, "0.2"), (*["f16[5000,768]"] * 3, "1.0")),
    ),
)
