"""Feed-forward blocks: gate and up products, whole blocks, low-rank adapters."""

from __future__ import annotations

from typing import Any

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase


@helion.kernel(static_shapes=True, autotune_effort="none")
def swiglu_two_weights(
    x: torch.Tensor, gate_w: torch.Tensor, up_w: torch.Tensor
) -> torch.Tensor:
    """silu(x @ gate_w) * (x @ up_w), weights [k, n]."""
    rows, depth = x.size()
    cols = gate_w.size(1)
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        gate = hl.zeros([tr, tc], dtype=torch.float32)
        up = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            xs = x[tr, td]
            gate = torch.addmm(gate, xs, gate_w[td, tc])
            up = torch.addmm(up, xs, up_w[td, tc])
        y[tr, tc] = (gate * torch.sigmoid(gate) * up).to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def swiglu_one_weight(x: torch.Tensor, gate_up: torch.Tensor) -> torch.Tensor:
    """silu(x @ g^T) * (x @ u^T), where gate_up [2, n, k] holds both as stored."""
    rows, depth = x.size()
    cols = gate_up.size(1)
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        gate = hl.zeros([tr, tc], dtype=torch.float32)
        up = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            xs = x[tr, td]
            gate = hl.dot(xs, gate_up[0, tc, td].T, acc=gate)
            up = hl.dot(xs, gate_up[1, tc, td].T, acc=up)
        y[tr, tc] = (gate * torch.sigmoid(gate) * up).to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def swiglu_two_loops(
    x: torch.Tensor, gate_w: torch.Tensor, up_w: torch.Tensor
) -> torch.Tensor:
    """The same value, one k loop per product: x is read twice, one sum at a time."""
    rows, depth = x.size()
    cols = gate_w.size(1)
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        gate = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            gate = torch.addmm(gate, x[tr, td], gate_w[td, tc])
        gate = gate * torch.sigmoid(gate)
        up = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            up = torch.addmm(up, x[tr, td], up_w[td, tc])
        y[tr, tc] = (gate * up).to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def geglu_bias(
    x: torch.Tensor,
    gate_w: torch.Tensor,
    up_w: torch.Tensor,
    gate_b: torch.Tensor,
    up_b: torch.Tensor,
) -> torch.Tensor:
    """gelu(x @ gate_w + gate_b) * (x @ up_w + up_b)."""
    rows, depth = x.size()
    cols = gate_w.size(1)
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        gate = hl.zeros([tr, tc], dtype=torch.float32)
        up = hl.zeros([tr, tc], dtype=torch.float32)
        for td in hl.tile(depth):
            xs = x[tr, td]
            gate = hl.dot(xs, gate_w[td, tc], acc=gate)
            up = hl.dot(xs, up_w[td, tc], acc=up)
        gate = torch.nn.functional.gelu(gate + gate_b[tc].to(torch.float32)[None, :])
        up = up + up_b[tc].to(torch.float32)[None, :]
        y[tr, tc] = (gate * up).to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def fused_mlp(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
    """gelu(x @ w1) @ w2, hidden activations never stored; narrow models only."""
    rows, width = x.size()
    width = hl.specialize(width)
    hidden = w1.size(1)
    y = torch.empty_like(x)
    for tr in hl.tile(rows):
        xs = x[tr, :]
        total = hl.zeros([tr, width], dtype=torch.float32)
        for th in hl.tile(hidden):
            middle = hl.dot(xs, w1[:, th], out_dtype=torch.float32)
            middle = torch.nn.functional.gelu(middle).to(x.dtype)
            total = hl.dot(middle, w2[th, :], acc=total)
        y[tr, :] = total.to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def fused_swiglu_mlp(
    x: torch.Tensor, gate_w: torch.Tensor, up_w: torch.Tensor, down_w: torch.Tensor
) -> torch.Tensor:
    """(silu(x @ gate_w) * (x @ up_w)) @ down_w in one kernel; narrow models only."""
    rows, width = x.size()
    width = hl.specialize(width)
    hidden = gate_w.size(1)
    y = torch.empty_like(x)
    for tr in hl.tile(rows):
        xs = x[tr, :]
        total = hl.zeros([tr, width], dtype=torch.float32)
        for th in hl.tile(hidden):
            gate = hl.dot(xs, gate_w[:, th], out_dtype=torch.float32)
            up = hl.dot(xs, up_w[:, th], out_dtype=torch.float32)
            middle = (gate * torch.sigmoid(gate) * up).to(x.dtype)
            total = hl.dot(middle, down_w[th, :], acc=total)
        y[tr, :] = total.to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def low_rank_linear(
    x: torch.Tensor, w: torch.Tensor, down: torch.Tensor, up: torch.Tensor, scale: float
) -> torch.Tensor:
    """x @ w^T + scale * (x @ down^T) @ up^T; down [r, k] and up [n, r], small r."""
    rows, depth = x.size()
    cols = w.size(0)
    rank = hl.specialize(down.size(0))
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        total = hl.zeros([tr, tc], dtype=torch.float32)
        inner = hl.zeros([tr, rank], dtype=torch.float32)
        for td in hl.tile(depth):
            xs = x[tr, td]
            total = hl.dot(xs, w[tc, td].T, acc=total)
            inner = hl.dot(xs, down[:, td].T, acc=inner)
        total = hl.dot((inner * scale).to(x.dtype), up[tc, :].T, acc=total)
        y[tr, tc] = total.to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def decode_norm_swiglu(
    x: torch.Tensor,
    residual: torch.Tensor,
    gain: torch.Tensor,
    gate_w: torch.Tensor,
    up_w: torch.Tensor,
) -> torch.Tensor:
    """A region of a decode layer: add, RMS norm, gate and up products, silu and times.

    h = x + residual; silu(n(h) @ gate_w^T) * (n(h) @ up_w^T), in one sweep of k: the
    norm's row factor multiplies both finished sums.
    """
    rows, depth = x.size()
    cols = gate_w.size(0)
    y = torch.empty([rows, cols], dtype=x.dtype, device=x.device)
    for tr, tc in hl.tile([rows, cols]):
        gate = hl.zeros([tr, tc], dtype=torch.float32)
        up = hl.zeros([tr, tc], dtype=torch.float32)
        squares = hl.zeros([tr], dtype=torch.float32)
        for td in hl.tile(depth):
            h = x[tr, td].to(torch.float32) + residual[tr, td].to(torch.float32)
            squares = squares + torch.sum(h * h, dim=-1)
            gained = (h * gain[td].to(torch.float32)[None, :]).to(x.dtype)
            gate = hl.dot(gained, gate_w[tc, td].T, acc=gate)
            up = hl.dot(gained, up_w[tc, td].T, acc=up)
        factor = torch.rsqrt(squares / depth + 1e-6)[:, None]
        gate = gate * factor
        y[tr, tc] = (gate * torch.sigmoid(gate) * up * factor).to(x.dtype)
    return y


def _ref_two_weights(
    x: torch.Tensor, gate_w: torch.Tensor, up_w: torch.Tensor
) -> torch.Tensor:
    gate = torch.nn.functional.silu(x.float() @ gate_w.float())
    return (gate * (x.float() @ up_w.float())).to(x.dtype)


def _ref_one_weight(x: torch.Tensor, gate_up: torch.Tensor) -> torch.Tensor:
    return _ref_two_weights(x, gate_up[0].T, gate_up[1].T)


def _ref_geglu(
    x: torch.Tensor,
    gate_w: torch.Tensor,
    up_w: torch.Tensor,
    gate_b: torch.Tensor,
    up_b: torch.Tensor,
) -> torch.Tensor:
    gate = torch.nn.functional.gelu(x.float() @ gate_w.float() + gate_b.float())
    return (gate * (x.float() @ up_w.float() + up_b.float())).to(x.dtype)


def _ref_mlp(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
    middle = torch.nn.functional.gelu(x.float() @ w1.float()).to(x.dtype)
    return (middle.float() @ w2.float()).to(x.dtype)


def _ref_swiglu_mlp(
    x: torch.Tensor, gate_w: torch.Tensor, up_w: torch.Tensor, down_w: torch.Tensor
) -> torch.Tensor:
    middle = _ref_two_weights(x, gate_w, up_w)
    return (middle.float() @ down_w.float()).to(x.dtype)


def _ref_low_rank(
    x: torch.Tensor, w: torch.Tensor, down: torch.Tensor, up: torch.Tensor, scale: float
) -> torch.Tensor:
    inner = x.float() @ down.float().T * scale
    total = x.float() @ w.float().T + inner.to(x.dtype).float() @ up.float().T
    return total.to(x.dtype)


def _ref_decode(
    x: torch.Tensor,
    residual: torch.Tensor,
    gain: torch.Tensor,
    gate_w: torch.Tensor,
    up_w: torch.Tensor,
) -> torch.Tensor:
    h = x.float() + residual.float()
    normed = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6) * gain.float()
    return _ref_two_weights(normed, gate_w.float().T, up_w.float().T).to(x.dtype)


def _case(
    kernel: object,
    reference: Any,
    variant: str,
    tiny: tuple[str, ...],
    *shapes: tuple[str, ...],
    atol: float = 2e-2,
) -> KernelCase:
    return KernelCase(kernel, reference, "gated_mlp", variant, tiny, shapes, atol=atol)


def _two(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    weight = f"{dtype}[{k},{n}]"
    return (f"{dtype}[{m},{k}]", weight, weight)


def _one(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    return (f"{dtype}[{m},{k}]", f"{dtype}[2,{n},{k}]")


def _biased(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    bias = f"{dtype}[{n}]"
    return (*_two(dtype, m, k, n), bias, bias)


def _mlp(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    return (f"{dtype}[{m},{k}]", f"{dtype}[{k},{n}]", f"{dtype}[{n},{k}]")


def _swiglu_mlp(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    return (*_two(dtype, m, k, n), f"{dtype}[{n},{k}]")


def _low_rank(dtype: str, m: int, k: int, n: int, r: int) -> tuple[str, ...]:
    factors = (f"{dtype}[{r},{k}]", f"{dtype}[{n},{r}]")
    return (f"{dtype}[{m},{k}]", f"{dtype}[{n},{k}]", *factors, "0.25")


def _decode(dtype: str, m: int, k: int, n: int) -> tuple[str, ...]:
    row = f"{dtype}[{m},{k}]"
    weight = f"{dtype}[{n},{k}]"
    return (row, row, f"{dtype}[{k}]", weight, weight)


CASES = (
    _case(
        swiglu_two_weights,
        _ref_two_weights,
        "two_weights",
        _two("f16", 33, 48, 40),
        _two("bf16", 32, 4096, 14336),
        _two("bf16", 1024, 4096, 11008),
        _two("f16", 2048, 1024, 6144),
        _two("bf16", 256, 5120, 13824),
        _two("bf16", 1, 5120, 25600),
        _two("bf16", 8192, 2048, 2048),
        _two("f32", 512, 1024, 2048),
        _two("bf16", 64, 2880, 2880),
    ),
    _case(
        swiglu_one_weight,
        _ref_one_weight,
        "one_weight_nt",
        _one("f16", 33, 48, 40),
        _one("bf16", 16, 4096, 12288),
        _one("bf16", 2048, 4096, 4096),
        _one("f16", 128, 1024, 8192),
        _one("bf16", 8, 8192, 14336),
        _one("bf16", 512, 5120, 12800),
        _one("bf16", 4096, 1536, 8960),
        _one("bf16", 1, 2048, 6144),
        _one("f32", 256, 1024, 4096),
    ),
    _case(
        swiglu_two_loops,
        _ref_two_weights,
        "two_loops",
        _two("f16", 33, 48, 40),
        _two("bf16", 64, 4096, 11008),
        _two("bf16", 1024, 2048, 6144),
        _two("f16", 4096, 1024, 4096),
        _two("bf16", 16, 5120, 13824),
        _two("bf16", 512, 4096, 14336),
        _two("bf16", 1, 4096, 14336),
        _two("f32", 512, 1024, 2048),
        _two("bf16", 2047, 2047, 2047),
    ),
    _case(
        geglu_bias,
        _ref_geglu,
        "geglu_bias",
        _biased("f16", 33, 48, 40),
        _biased("bf16", 4096, 640, 2560),
        _biased("bf16", 1024, 1280, 5120),
        _biased("f16", 128, 768, 3072),
        _biased("bf16", 16384, 320, 1280),
        _biased("bf16", 16, 3584, 14336),
        _biased("bf16", 2048, 2304, 9216),
        _biased("bf16", 1, 2048, 16384),
        _biased("f32", 1024, 512, 2048),
    ),
    _case(
        fused_mlp,
        _ref_mlp,
        "hidden_not_stored",
        _mlp("f16", 33, 32, 48),
        _mlp("bf16", 16384, 128, 512),
        _mlp("bf16", 65536, 64, 256),
        _mlp("f16", 8192, 256, 1024),
        _mlp("bf16", 4096, 128, 2048),
        _mlp("bf16", 262144, 32, 128),
        _mlp("bf16", 1024, 256, 4096),
        _mlp("f32", 16384, 64, 256),
        _mlp("bf16", 50000, 64, 300),
    ),
    _case(
        fused_swiglu_mlp,
        _ref_swiglu_mlp,
        "gated_hidden_not_stored",
        _swiglu_mlp("f16", 33, 32, 48),
        _swiglu_mlp("bf16", 16384, 128, 384),
        _swiglu_mlp("bf16", 4096, 256, 1024),
        _swiglu_mlp("f16", 65536, 64, 192),
        _swiglu_mlp("bf16", 2048, 128, 2048),
        _swiglu_mlp("bf16", 131072, 64, 256),
        _swiglu_mlp("bf16", 512, 256, 2816),
        _swiglu_mlp("f32", 8192, 64, 256),
        _swiglu_mlp("bf16", 30000, 128, 340),
        # Values reach several hundred, and fp16 rounds the hidden ones.
        atol=0.5,
    ),
    _case(
        low_rank_linear,
        _ref_low_rank,
        "low_rank_adapter",
        _low_rank("f16", 33, 48, 40, 16),
        _low_rank("bf16", 1024, 4096, 4096, 16),
        _low_rank("bf16", 16, 4096, 6144, 64),
        _low_rank("f16", 2048, 2048, 2048, 32),
        _low_rank("bf16", 8192, 1024, 1024, 16),
        _low_rank("bf16", 1, 5120, 5120, 16),
        _low_rank("bf16", 256, 4096, 14336, 64),
        _low_rank("bf16", 4096, 4096, 1024, 128),
        _low_rank("f32", 512, 1024, 1024, 16),
    ),
    _case(
        decode_norm_swiglu,
        _ref_decode,
        "decode_layer_region",
        _decode("f16", 17, 48, 40),
        _decode("bf16", 16, 4096, 12288),
        _decode("bf16", 1, 4096, 14336),
        _decode("bf16", 128, 2048, 6144),
        _decode("bf16", 32, 5120, 13824),
        _decode("bf16", 8, 2048, 6144),
        _decode("bf16", 64, 8192, 14336),
        _decode("bf16", 512, 4096, 12288),
        _decode("bf16", 256, 2880, 2880),
        atol=0.1,
    ),
)
