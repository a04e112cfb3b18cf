"""Fused optimiser steps, in place and not."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "unseen_optimiser"


@helion.kernel(static_shapes=True)
def lion_step(
    weight: torch.Tensor,
    grad: torch.Tensor,
    momentum: torch.Tensor,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.99,
    decay: float = 0.1,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sign of an interpolated momentum, weights decayed apart; both in place."""
    m, n = weight.size()
    for tile in hl.tile([m, n]):
        g = grad[tile].to(torch.float32)
        mom = momentum[tile]
        w = weight[tile].to(torch.float32)
        blend = beta1 * mom + (1.0 - beta1) * g
        up = torch.where(blend > 0, 1.0, torch.where(blend < 0, -1.0, 0.0))
        weight[tile] = (w - lr * (up + decay * w)).to(weight.dtype)
        momentum[tile] = beta2 * mom + (1.0 - beta2) * g
    return weight, momentum


def lion_step_reference(
    weight: torch.Tensor,
    grad: torch.Tensor,
    momentum: torch.Tensor,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.99,
    decay: float = 0.1,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    g, w = grad.float(), weight.float()
    up = torch.sign(beta1 * momentum + (1 - beta1) * g)
    weight.copy_(w - lr * (up + decay * w))
    momentum.copy_(beta2 * momentum + (1 - beta2) * g)
    return weight, momentum


@helion.kernel(static_shapes=True)
def factored_moments(
    grad: torch.Tensor, row: torch.Tensor, col: torch.Tensor, decay: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Moving row and column means of the squared gradient, grad read once.

    grad [m, n], row [m], col [n]; columns are summed atomically.
    """
    m, n = grad.size()
    new_row = torch.empty_like(row)
    new_col = col * decay
    for tm in hl.tile(m):
        g = grad[tm, :].to(torch.float32)
        square = g * g + 1e-30
        new_row[tm] = decay * row[tm] + (1.0 - decay) * square.mean(-1)
        inside = (tm.index < m)[:, None]
        part = torch.where(inside, square, 0.0).sum(0) * ((1.0 - decay) / m)
        hl.atomic_add(new_col, [hl.arange(n)], part)
    return new_row, new_col


def factored_moments_reference(
    grad: torch.Tensor, row: torch.Tensor, col: torch.Tensor, decay: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    square = grad.float().square() + 1e-30
    new_row = decay * row + (1 - decay) * square.mean(1)
    return new_row, decay * col + (1 - decay) * square.mean(0)


@helion.kernel(static_shapes=False)
def clipped_nesterov(
    weight: torch.Tensor,
    grad: torch.Tensor,
    velocity: torch.Tensor,
    norm: torch.Tensor,
    lr: float,
    limit: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Nesterov's step with the gradient scaled down to a global norm of `limit`."""
    (n,) = weight.size()
    new_weight = torch.empty_like(weight)
    new_velocity = torch.empty_like(velocity)
    for tile in hl.tile(n):
        scale = torch.clamp(limit / (norm[0] + 1e-6), max=1.0)
        g = grad[tile].to(torch.float32) * scale
        v = 0.9 * velocity[tile] + g
        step = lr * (g + 0.9 * v)
        new_weight[tile] = (weight[tile].to(torch.float32) - step).to(weight.dtype)
        new_velocity[tile] = v
    return new_weight, new_velocity


def clipped_nesterov_reference(
    weight: torch.Tensor,
    grad: torch.Tensor,
    velocity: torch.Tensor,
    norm: torch.Tensor,
    lr: float,
    limit: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    g = grad.float() * (limit / (norm + 1e-6)).clamp(max=1.0)
    v = 0.9 * velocity + g
    return (weight.float() - lr * (g + 0.9 * v)).to(weight.dtype), v


def _lion(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    both = [f"{dtype}[{m},{n}]"] * 2
    return (*both, f"f32[{m},{n}]", "1e-4", "0.95", "0.98", "0.1")


def _flat(n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (*[f"{dtype}[{n}]"] * 2, f"f32[{n}]", "f32[1]@ones", "0.1", "0.5")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=lion_step,
        reference=lion_step_reference,
        family=FAMILY,
        variant="in_place",
        tiny=_lion(6, 40, "f32"),
        shapes=(_lion(4096, 11008), _lion(1000, 1000, "f32")),
    ),
    KernelCase(
        kernel=factored_moments,
        reference=factored_moments_reference,
        family=FAMILY,
        variant="rows_and_columns",
        tiny=("f32[12,32]", "f32[12]@uniform", "f32[32]@uniform", "0.9"),
        shapes=(
            ("bf16[4096,4096]", "f32[4096]@uniform", "f32[4096]@uniform", "0.99"),
            ("f32[32000,1024]", "f32[32000]@uniform", "f32[1024]@uniform", "0.95"),
        ),
    ),
    KernelCase(
        kernel=clipped_nesterov,
        reference=clipped_nesterov_reference,
        family=FAMILY,
        variant="flat",
        tiny=_flat(100, "f32"),
        shapes=(_flat(33554432), _flat(1234567, "f32")),
    ),
)
