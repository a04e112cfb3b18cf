"""Dense convolutions as sums of matrix products, one for each filter tap."""

from __future__ import annotations

from typing import Any

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase


@helion.kernel(static_shapes=True, autotune_effort="none")
def conv1d_channels_last(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Causal: x [b, t, c_in], w [taps, c_in, c_out], to [b, t, c_out]."""
    batch, length, c_in = x.size()
    taps, _, c_out = w.size()
    taps = hl.specialize(taps)
    y = torch.empty([batch, length, c_out], dtype=x.dtype, device=x.device)
    for tb, tt, tc in hl.tile([batch, length, c_out], block_size=[1, None, None]):
        b = tb.begin
        acc = hl.zeros([tt, tc], dtype=torch.float32)
        for tap in hl.static_range(taps):
            at = tt.index + (tap - taps + 1)
            inside = ((at >= 0) & (at < length))[:, None]
            for td in hl.tile(c_in):
                rows = hl.load(x, [b, at, td], extra_mask=inside)
                acc = hl.dot(rows, w[tap, td, tc], acc=acc)
        y[b, tt, tc] = acc.to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def conv1d_taps_inside(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Centred instead of causal, channels outside and taps inside."""
    batch, length, c_in = x.size()
    taps, _, c_out = w.size()
    taps = hl.specialize(taps)
    y = torch.empty([batch, length, c_out], dtype=x.dtype, device=x.device)
    for tb, tt, tc in hl.tile([batch, length, c_out], block_size=[1, None, None]):
        b = tb.begin
        acc = hl.zeros([tt, tc], dtype=torch.float32)
        for td in hl.tile(c_in):
            for tap in hl.static_range(taps):
                at = tt.index + (tap - taps // 2)
                inside = ((at >= 0) & (at < length))[:, None]
                rows = hl.load(x, [b, at, td], extra_mask=inside)
                acc = hl.dot(rows, w[tap, td, tc], acc=acc)
        y[b, tt, tc] = acc.to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def conv1d_channels_first(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """gelu of a centred one: x [b, c_in, t], w [taps, c_out, c_in], bias [c_out]."""
    batch, c_in, length = x.size()
    taps, c_out, _ = w.size()
    taps = hl.specialize(taps)
    y = torch.empty([batch, c_out, length], dtype=x.dtype, device=x.device)
    for tb, tc, tt in hl.tile([batch, c_out, length], block_size=[1, None, None]):
        b = tb.begin
        acc = hl.zeros([tc, tt], dtype=torch.float32)
        for td in hl.tile(c_in):
            for tap in hl.static_range(taps):
                at = tt.index + (tap - taps // 2)
                inside = ((at >= 0) & (at < length))[None, :]
                cols = hl.load(x, [b, td, at], extra_mask=inside)
                acc = hl.dot(w[tap, tc, td], cols, acc=acc)
        acc = acc + bias[tc].to(torch.float32)[:, None]
        y[b, tc, tt] = torch.nn.functional.gelu(acc).to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def conv2d_same(x: torch.Tensor, w: torch.Tensor, width: hl.constexpr) -> torch.Tensor:
    """3-by-3 convolution of images stored as rows: x [b, height * width, c_in].

    w [9, c_in, c_out]; pixels outside the image are zero; the output is [b, height *
    width, c_out].
    """
    batch, pixels, c_in = x.size()
    c_out = w.size(2)
    y = torch.empty([batch, pixels, c_out], dtype=x.dtype, device=x.device)
    for tb, tp, tc in hl.tile([batch, pixels, c_out], block_size=[1, None, None]):
        b = tb.begin
        column = tp.index % width
        acc = hl.zeros([tp, tc], dtype=torch.float32)
        for tap in hl.static_range(9):
            down = tap // 3 - 1
            right = tap % 3 - 1
            at = tp.index + (down * width + right)
            inside = (at >= 0) & (at < pixels)
            inside = inside & (column + right >= 0) & (column + right < width)
            for td in hl.tile(c_in):
                rows = hl.load(x, [b, at, td], extra_mask=inside[:, None])
                acc = hl.dot(rows, w[tap, td, tc], acc=acc)
        y[b, tp, tc] = acc.to(x.dtype)
    return y


@helion.kernel(static_shapes=True, autotune_effort="none")
def patch_embedding(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, position: torch.Tensor
) -> torch.Tensor:
    """Patches to tokens: x [b, patches, size], w [d, size], plus bias and position."""
    batch, patches, size = x.size()
    d = w.size(0)
    y = torch.empty([batch, patches, d], dtype=x.dtype, device=x.device)
    for tb, tp, tc in hl.tile([batch, patches, d], block_size=[1, None, None]):
        b = tb.begin
        acc = position[tp, tc].to(torch.float32) + bias[tc].to(torch.float32)[None, :]
        for td in hl.tile(size):
            acc = hl.dot(x[b, tp, td], w[tc, td].T, acc=acc)
        y[b, tp, tc] = acc.to(x.dtype)
    return y


def _conv1d(x: torch.Tensor, w: torch.Tensor, left: int) -> torch.Tensor:
    """x [b, c_in, t] and w [c_out, c_in, taps] in fp32, `left` zeros in front."""
    padded = torch.nn.functional.pad(x.float(), (left, w.size(2) - 1 - left))
    return torch.nn.functional.conv1d(padded, w.float())


def _ref_causal(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = _conv1d(x.transpose(1, 2), w.permute(2, 1, 0), w.size(0) - 1)
    return out.transpose(1, 2).to(x.dtype)


def _ref_centred(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = _conv1d(x.transpose(1, 2), w.permute(2, 1, 0), w.size(0) // 2)
    return out.transpose(1, 2).to(x.dtype)


def _ref_channels_first(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    out = _conv1d(x, w.permute(1, 2, 0), w.size(0) // 2)
    return torch.nn.functional.gelu(out + bias.float()[:, None]).to(x.dtype)


def _ref_conv2d(x: torch.Tensor, w: torch.Tensor, width: int) -> torch.Tensor:
    image = x.float().transpose(1, 2).unflatten(2, (-1, width))
    filters = w.float().unflatten(0, (3, 3)).permute(3, 2, 0, 1)
    out = torch.nn.functional.conv2d(image, filters, padding=1)
    return out.flatten(2).transpose(1, 2).to(x.dtype)


def _ref_patches(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, position: torch.Tensor
) -> torch.Tensor:
    total = x.float() @ w.float().T + bias.float() + position.float()
    return total.to(x.dtype)


def _case(
    kernel: object,
    reference: Any,
    variant: str,
    tiny: tuple[str, ...],
    *shapes: tuple[str, ...],
) -> KernelCase:
    return KernelCase(kernel, reference, "convolution", variant, tiny, shapes)


def _last(
    dtype: str, b: int, t: int, c_in: int, c_out: int, taps: int
) -> tuple[str, ...]:
    return (f"{dtype}[{b},{t},{c_in}]", f"{dtype}[{taps},{c_in},{c_out}]")


def _first(
    dtype: str, b: int, t: int, c_in: int, c_out: int, taps: int
) -> tuple[str, ...]:
    weight = f"{dtype}[{taps},{c_out},{c_in}]"
    return (f"{dtype}[{b},{c_in},{t}]", weight, f"{dtype}[{c_out}]")


def _image(
    dtype: str, b: int, h: int, w: int, c_in: int, c_out: int
) -> tuple[str, ...]:
    return (f"{dtype}[{b},{h * w},{c_in}]", f"{dtype}[9,{c_in},{c_out}]", str(w))


def _patch(dtype: str, b: int, n: int, size: int, d: int) -> tuple[str, ...]:
    weight = f"{dtype}[{d},{size}]"
    return (f"{dtype}[{b},{n},{size}]", weight, f"{dtype}[{d}]", f"{dtype}[{n},{d}]")


CASES = (
    _case(
        conv1d_channels_last,
        _ref_causal,
        "causal_taps_outside",
        _last("f16", 2, 33, 24, 40, 3),
        _last("bf16", 16, 1024, 768, 768, 2),
        _last("bf16", 1, 8192, 256, 256, 3),
        _last("bf16", 8, 2048, 512, 512, 4),
        _last("f16", 32, 512, 128, 256, 5),
        _last("bf16", 64, 4096, 64, 64, 7),
        _last("f32", 4, 1024, 128, 128, 3),
        _last("bf16", 2, 3000, 384, 768, 3),
        _last("bf16", 4, 2048, 1024, 1024, 4),
    ),
    _case(
        conv1d_taps_inside,
        _ref_centred,
        "centred_taps_inside",
        _last("f16", 2, 33, 24, 40, 3),
        _last("bf16", 8, 1500, 384, 384, 3),
        _last("bf16", 16, 1024, 512, 512, 5),
        _last("f16", 4, 4096, 256, 128, 3),
        _last("bf16", 64, 1024, 80, 384, 3),
        _last("bf16", 1, 16384, 128, 128, 9),
        _last("f32", 4, 1024, 128, 128, 3),
        _last("bf16", 2, 2048, 1024, 1024, 3),
        _last("bf16", 32, 2048, 64, 128, 7),
    ),
    _case(
        conv1d_channels_first,
        _ref_channels_first,
        "channels_first_gelu",
        _first("f16", 2, 33, 24, 40, 3),
        _first("bf16", 8, 3000, 80, 768, 3),
        _first("bf16", 16, 1024, 512, 512, 3),
        _first("f16", 1, 8192, 256, 256, 5),
        _first("bf16", 4, 1500, 1280, 1280, 3),
        _first("bf16", 64, 2048, 64, 64, 7),
        _first("f32", 4, 1024, 128, 128, 3),
        _first("bf16", 32, 512, 256, 512, 3),
        _first("bf16", 2, 4096, 384, 384, 3),
    ),
    _case(
        conv2d_same,
        _ref_conv2d,
        "three_by_three",
        _image("f16", 2, 6, 7, 24, 40),
        _image("bf16", 32, 56, 56, 64, 64),
        _image("bf16", 16, 28, 28, 256, 256),
        _image("f16", 8, 64, 64, 320, 320),
        _image("bf16", 64, 14, 14, 512, 512),
        _image("bf16", 2, 128, 128, 128, 128),
        _image("bf16", 128, 7, 7, 512, 512),
        _image("f32", 4, 32, 32, 64, 128),
        _image("bf16", 4, 32, 32, 640, 640),
    ),
    _case(
        patch_embedding,
        _ref_patches,
        "patch_embedding",
        _patch("f16", 2, 33, 48, 40),
        _patch("bf16", 64, 196, 768, 768),
        _patch("bf16", 32, 576, 588, 1024),
        _patch("f16", 16, 1024, 588, 1152),
        _patch("bf16", 256, 196, 768, 384),
        _patch("bf16", 1, 4096, 768, 1280),
        _patch("bf16", 8, 2304, 1176, 1280),
        _patch("f32", 8, 256, 768, 768),
        _patch("bf16", 128, 64, 192, 192),
    ),
)
