"""Depthwise convolutions and windows: causal, images, pooling, a decode step."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "convolution_depthwise"


@helion.kernel(static_shapes=True, autotune_effort="none")
def causal_conv(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """y[b, d, t] = bias[d] + sum_k w[d, k] x[b, d, t - width + 1 + k], time last."""
    batch, dim, time = x.size()
    width = hl.specialize(w.size(1))
    out = torch.empty_like(x)
    for b, d, t in hl.tile([batch, dim, time], block_size=[1, None, None]):
        total = (
            hl.zeros([d, t], dtype=torch.float32) + bias[d].to(torch.float32)[:, None]
        )
        for k in hl.static_range(width):
            at = t.index - (width - 1 - k)
            keep = (at >= 0)[None, :] & (d.index < dim)[:, None]
            v = hl.load(x, [b.begin, d, at], extra_mask=keep).to(torch.float32)
            total = total + v * w[d, k].to(torch.float32)[:, None]
        out[b.begin, d, t] = total.to(x.dtype)
    return out


def causal_conv_reference(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    width = w.size(1)
    padded = torch.nn.functional.pad(x.float(), (width - 1, 0))
    y = torch.nn.functional.conv1d(
        padded, w.float()[:, None, :], bias.float(), groups=x.size(1)
    )
    return y.to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def causal_conv_silu(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The same with channels last, [b, t, d], followed by silu. w [d, width]."""
    batch, time, dim = x.size()
    width = hl.specialize(w.size(1))
    out = torch.empty_like(x)
    for b, t, d in hl.tile([batch, time, dim], block_size=[1, None, None]):
        total = hl.zeros([t, d], dtype=torch.float32)
        for k in hl.static_range(width):
            at = t.index - (width - 1 - k)
            keep = (at >= 0)[:, None] & (d.index < dim)[None, :]
            v = hl.load(x, [b.begin, at, d], extra_mask=keep).to(torch.float32)
            total = total + v * w[d, k].to(torch.float32)[None, :]
        out[b.begin, t, d] = (total * torch.sigmoid(total)).to(x.dtype)
    return out


def causal_conv_silu_reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    zero = torch.zeros(w.size(0), device=x.device)
    y = causal_conv_reference(x.float().transpose(1, 2), w, zero)
    return torch.nn.functional.silu(y).transpose(1, 2).contiguous().to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def conv_update(
    state: torch.Tensor, x: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One decode step of a width-4 convolution: y [b, d] and the state shifted by one.

    state [b, 3, d] holds the last three inputs, x [b, d], w [4, d].
    """
    batch, dim = x.size()
    out = torch.empty_like(x)
    new_state = torch.empty_like(state)
    for b, d in hl.tile([batch, dim]):
        v0 = state[b, 0, d].to(torch.float32)
        v1 = state[b, 1, d].to(torch.float32)
        v2 = state[b, 2, d].to(torch.float32)
        v3 = x[b, d].to(torch.float32)
        y = v0 * w[0, d].to(torch.float32)[None, :]
        y = y + v1 * w[1, d].to(torch.float32)[None, :]
        y = y + v2 * w[2, d].to(torch.float32)[None, :]
        y = y + v3 * w[3, d].to(torch.float32)[None, :]
        out[b, d] = (y * torch.sigmoid(y)).to(x.dtype)
        new_state[b, 0, d] = v1.to(x.dtype)
        new_state[b, 1, d] = v2.to(x.dtype)
        new_state[b, 2, d] = v3.to(x.dtype)
    return out, new_state


def conv_update_reference(
    state: torch.Tensor, x: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    window = torch.cat([state, x[:, None]], 1)
    y = (window.float() * w.float()).sum(1)
    return torch.nn.functional.silu(y).to(x.dtype), window[:, 1:].contiguous()


@helion.kernel(static_shapes=True, autotune_effort="none")
def depthwise_3x3(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """3 x 3 depthwise convolution without padding, channels last. x [b, h, w, c]."""
    batch, high, wide, channels = x.size()
    out = torch.empty(
        [batch, high - 2, wide - 2, channels], dtype=x.dtype, device=x.device
    )
    for b, i, j, c in hl.tile(
        [batch, high - 2, wide - 2, channels], block_size=[1, 1, None, None]
    ):
        total = hl.zeros([j, c], dtype=torch.float32)
        for di in hl.static_range(3):
            for dj in hl.static_range(3):
                v = x[b.begin, i.begin + di, j.index + dj, c].to(torch.float32)
                total = total + v * w[di, dj, c].to(torch.float32)[None, :]
        out[b.begin, i.begin, j, c] = total.to(x.dtype)
    return out


def depthwise_3x3_reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    y = torch.nn.functional.conv2d(
        x.float().permute(0, 3, 1, 2),
        w.float().permute(2, 0, 1)[:, None],
        groups=x.size(3),
    )
    return y.permute(0, 2, 3, 1).contiguous().to(x.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def max_pool_2x2(x: torch.Tensor) -> torch.Tensor:
    """2 x 2 maximum pooling, channels last. x [b, 2h, 2w, c] -> [b, h, w, c]."""
    batch, high, wide, channels = x.size()
    h = high // 2
    w = wide // 2
    cells = x.view(batch * h, 2, w, 2, channels)
    out = torch.empty([batch * h, w, channels], dtype=x.dtype, device=x.device)
    for i, j, c in hl.tile([batch * h, w, channels]):
        a = torch.maximum(cells[i, 0, j, 0, c], cells[i, 0, j, 1, c])
        b = torch.maximum(cells[i, 1, j, 0, c], cells[i, 1, j, 1, c])
        out[i, j, c] = torch.maximum(a, b)
    return out.view(batch, h, w, channels)


def max_pool_2x2_reference(x: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    batch, high, wide, channels = x.size()
    cells = x.view(batch, high // 2, 2, wide // 2, 2, channels)
    return cells.float().amax((2, 4)).to(x.dtype)


def _conv(batch: int, dim: int, time: int, dtype: str = "f32") -> tuple[str, ...]:
    return (f"{dtype}[{batch},{dim},{time}]", f"{dtype}[{dim},4]", f"{dtype}[{dim}]")


def _silu(batch: int, time: int, dim: int) -> tuple[str, ...]:
    return (f"bf16[{batch},{time},{dim}]", f"bf16[{dim},4]")


def _update(batch: int, dim: int) -> tuple[str, ...]:
    return (f"bf16[{batch},3,{dim}]", f"bf16[{batch},{dim}]", f"bf16[4,{dim}]")


def _image(b: int, h: int, w: int, c: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{b},{h},{w},{c}]", f"{dtype}[3,3,{c}]")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=causal_conv,
        reference=causal_conv_reference,
        family=FAMILY,
        variant="causal_time_last",
        tiny=_conv(2, 24, 20),
        shapes=(
            _conv(1, 1536, 2048),
            _conv(4, 4096, 2048, "bf16"),
            _conv(1, 2560, 4096),
            _conv(8, 2048, 1024, "bf16"),
            _conv(1, 8192, 8192, "bf16"),
            _conv(16, 768, 512),
            _conv(2, 5120, 4096, "f16"),
            _conv(1, 1536, 333),
        ),
    ),
    KernelCase(
        kernel=causal_conv_silu,
        reference=causal_conv_silu_reference,
        family=FAMILY,
        variant="causal_channels_last",
        tiny=_silu(2, 20, 24),
        shapes=(
            _silu(4, 2048, 4096),
            _silu(1, 8192, 2048),
            _silu(1, 1024, 8192),
            _silu(16, 512, 2560),
            _silu(1, 16384, 6144),
            _silu(8, 4096, 768),
            _silu(1, 256, 4096),
            _silu(2, 3001, 1536),
        ),
    ),
    KernelCase(
        kernel=conv_update,
        reference=conv_update_reference,
        family=FAMILY,
        variant="decode_step",
        tiny=_update(5, 24),
        shapes=(
            _update(256, 8192),
            _update(64, 4096),
            _update(1024, 6144),
            _update(8, 8192),
            _update(512, 2560),
            _update(2048, 4096),
            _update(1, 12288),
            _update(128, 10240),
        ),
    ),
    KernelCase(
        kernel=depthwise_3x3,
        reference=depthwise_3x3_reference,
        family=FAMILY,
        variant="image_3x3",
        tiny=_image(2, 6, 7, 8),
        shapes=(
            _image(32, 58, 58, 128),
            _image(64, 30, 30, 256),
            _image(8, 114, 114, 96),
            _image(128, 16, 16, 512),
            _image(1, 258, 258, 64, "f32"),
            _image(16, 58, 58, 384, "f16"),
            _image(256, 9, 9, 768),
            _image(4, 226, 226, 32),
        ),
    ),
    KernelCase(
        kernel=max_pool_2x2,
        reference=max_pool_2x2_reference,
        family=FAMILY,
        variant="pool_2x2",
        tiny=("f32[2,6,8,8]",),
        shapes=(
            ("f32[32,112,112,64]",),
            ("f32[64,56,56,128]",),
            ("f32[128,28,28,256]",),
            ("f32[8,224,224,32]",),
            ("f32[256,14,14,512]",),
            ("f32[1,512,512,64]",),
            ("f16[64,56,56,192]",),
            ("f32[16,64,64,96]",),
        ),
    ),
)
