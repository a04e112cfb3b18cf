"""Gated activations of feed-forward layers, with casts, quantisation and gradients."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

from costmodel.datasets.workloads.workload import KernelCase

FAMILY = "gated_activation"


@helion.kernel(static_shapes=True, autotune_effort="none")
def silu_times_up(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of two matrices [m, n]."""
    out = torch.empty_like(gate)
    for tile in hl.tile(gate.size()):
        g = gate[tile].to(torch.float32)
        out[tile] = (g * torch.sigmoid(g) * up[tile].to(torch.float32)).to(gate.dtype)
    return out


def silu_times_up_reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    return (torch.nn.functional.silu(gate.float()) * up.float()).to(gate.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def silu_packed(gate_up: torch.Tensor) -> torch.Tensor:
    """silu of the left half times the right half. gate_up [m, 2n] -> [m, n]."""
    m, both = gate_up.size()
    n = both // 2
    halves = gate_up.view(m, 2, n)
    out = torch.empty([m, n], dtype=gate_up.dtype, device=gate_up.device)
    for rows, cols in hl.tile([m, n]):
        g = halves[rows, 0, cols].to(torch.float32)
        u = halves[rows, 1, cols].to(torch.float32)
        out[rows, cols] = (g * torch.sigmoid(g) * u).to(gate_up.dtype)
    return out


def silu_packed_reference(gate_up: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    g, u = gate_up.float().chunk(2, -1)
    return (torch.nn.functional.silu(g) * u).to(gate_up.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def gelu_interleaved(gate_up: torch.Tensor) -> torch.Tensor:
    """Exact gelu of even columns times odd columns. gate_up [m, 2n] -> [m, n]."""
    m, both = gate_up.size()
    n = both // 2
    pairs = gate_up.view(m, n, 2)
    out = torch.empty([m, n], dtype=gate_up.dtype, device=gate_up.device)
    for rows, cols in hl.tile([m, n]):
        g = pairs[rows, cols, 0].to(torch.float32)
        u = pairs[rows, cols, 1].to(torch.float32)
        gelu = 0.5 * g * (1.0 + torch.erf(g * 0.7071067811865476))
        out[rows, cols] = (gelu * u).to(gate_up.dtype)
    return out


def gelu_interleaved_reference(gate_up: torch.Tensor) -> torch.Tensor:
    """Plain PyTorch."""
    v = gate_up.float()
    gelu = torch.nn.functional.gelu(v[:, 0::2])
    return (gelu * v[:, 1::2]).to(gate_up.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def gelu_tanh_bias(
    gate: torch.Tensor, up: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """tanh-approximated gelu of gate + bias, times up. bias [n]."""
    m, n = gate.size()
    out = torch.empty_like(gate)
    for rows, cols in hl.tile([m, n]):
        g = gate[rows, cols].to(torch.float32) + bias[cols].to(torch.float32)[None, :]
        # sqrt(2 / pi) and the cubic coefficient of the usual approximation.
        inner = 0.7978845608028654 * (g + 0.044715 * g * g * g)
        y = 0.5 * g * (1.0 + torch.tanh(inner)) * up[rows, cols].to(torch.float32)
        out[rows, cols] = y.to(gate.dtype)
    return out


def gelu_tanh_bias_reference(
    gate: torch.Tensor, up: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    g = gate.float() + bias.float()
    gelu = torch.nn.functional.gelu(g, approximate="tanh")
    return (gelu * up.float()).to(gate.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def gated_act_to_fp8(gate_up: torch.Tensor, inv_scale: torch.Tensor) -> torch.Tensor:
    """silu(left half) * right half * inv_scale as e4m3. gate_up [m, 2n]."""
    tokens, both = gate_up.size()
    width = both // 2
    q = torch.empty([tokens, width], dtype=torch.float8_e4m3fn, device=gate_up.device)
    for rows, cols in hl.tile([tokens, width]):
        g = gate_up[rows, cols].to(torch.float32)
        u = hl.load(gate_up, [rows, cols.index + width]).to(torch.float32)
        y = g * torch.sigmoid(g) * u * inv_scale[0]
        q[rows, cols] = torch.clamp(y, -448.0, 448.0).to(torch.float8_e4m3fn)
    return q


def gated_act_to_fp8_reference(
    gate_up: torch.Tensor, inv_scale: torch.Tensor
) -> torch.Tensor:
    """Plain PyTorch."""
    g, u = gate_up.float().chunk(2, -1)
    y = torch.nn.functional.silu(g) * u * inv_scale
    return y.clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


@helion.kernel(static_shapes=True, autotune_effort="none")
def gated_row_fp8(
    gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """silu(gate) * up as e4m3 with one scale per row, whole rows."""
    m, n = gate.size()
    q = torch.empty([m, n], dtype=torch.float8_e4m3fn, device=gate.device)
    scale = torch.empty([m], dtype=torch.float32, device=gate.device)
    for rows in hl.tile(m):
        g = gate[rows, :].to(torch.float32)
        y = g * torch.sigmoid(g) * up[rows, :].to(torch.float32)
        s = torch.clamp(y.abs().amax(-1), min=1e-10) / 448.0
        scale[rows] = s
        q[rows, :] = (y / s[:, None]).to(torch.float8_e4m3fn)
    return q, scale


def gated_row_fp8_reference(
    gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    y = torch.nn.functional.silu(gate.float()) * up.float()
    s = y.abs().amax(-1).clamp(min=1e-10) / 448.0
    return (y / s[:, None]).to(torch.float8_e4m3fn), s


@helion.kernel(static_shapes=True, autotune_effort="none")
def gated_group_fp8(
    gate: torch.Tensor, up: torch.Tensor, group: hl.constexpr
) -> tuple[torch.Tensor, torch.Tensor]:
    """silu(gate) * up as e4m3, one scale per `group` columns. q [m, n/group, group]."""
    m, n = gate.size()
    n = hl.specialize(n)
    groups = n // group
    q = torch.empty([m, groups, group], dtype=torch.float8_e4m3fn, device=gate.device)
    scale = torch.empty([m, groups], dtype=torch.float32, device=gate.device)
    gates = gate.view(m, groups, group)
    ups = up.view(m, groups, group)
    for rows, parts in hl.tile([m, groups]):
        g = gates[rows, parts, :].to(torch.float32)
        y = g * torch.sigmoid(g) * ups[rows, parts, :].to(torch.float32)
        s = torch.clamp(y.abs().amax(-1), min=1e-10) / 448.0
        scale[rows, parts] = s
        q[rows, parts, :] = (y / s[:, :, None]).to(torch.float8_e4m3fn)
    return q, scale


def gated_group_fp8_reference(
    gate: torch.Tensor, up: torch.Tensor, group: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    y = torch.nn.functional.silu(gate.float()) * up.float()
    y = y.view(gate.size(0), -1, group)
    s = y.abs().amax(-1).clamp(min=1e-10) / 448.0
    return (y / s[:, :, None]).to(torch.float8_e4m3fn), s


@helion.kernel(static_shapes=True, autotune_effort="none")
def clamped_swiglu(gate: torch.Tensor, up: torch.Tensor, limit: float) -> torch.Tensor:
    """min(gate, limit) * sigmoid(1.702 gate) * (clamp(up, limit) + 1), flattened."""
    out = torch.empty_like(gate)
    flat_gate = gate.view(-1)
    flat_up = up.view(-1)
    flat_out = out.view(-1)
    for tile in hl.tile(flat_gate.size(0)):
        g = flat_gate[tile].to(torch.float32)
        g = torch.minimum(g, hl.full([tile], limit, dtype=torch.float32))
        u = torch.clamp(flat_up[tile].to(torch.float32), -limit, limit)
        flat_out[tile] = (g * torch.sigmoid(1.702 * g) * (u + 1.0)).to(gate.dtype)
    return out


def clamped_swiglu_reference(
    gate: torch.Tensor, up: torch.Tensor, limit: float
) -> torch.Tensor:
    """Plain PyTorch."""
    g = gate.float().clamp(max=limit)
    u = up.float().clamp(-limit, limit)
    return (g * torch.sigmoid(1.702 * g) * (u + 1)).to(gate.dtype)


@helion.kernel(static_shapes=True, autotune_effort="none")
def silu_backward(
    dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of silu(gate) * up for gate and up; five matrices in flight."""
    dgate = torch.empty_like(gate)
    dup = torch.empty_like(up)
    for tile in hl.tile(gate.size()):
        d = dy[tile].to(torch.float32)
        g = gate[tile].to(torch.float32)
        u = up[tile].to(torch.float32)
        s = torch.sigmoid(g)
        dup[tile] = (d * g * s).to(up.dtype)
        dgate[tile] = (d * u * s * (1.0 + g * (1.0 - s))).to(gate.dtype)
    return dgate, dup


def silu_backward_reference(
    dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain PyTorch."""
    d, g, u = dy.float(), gate.float(), up.float()
    s = torch.sigmoid(g)
    dgate = d * u * s * (1 + g * (1 - s))
    return dgate.to(gate.dtype), (d * g * s).to(up.dtype)


def _two(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]",) * 2


def _three(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{n}]",) * 3


def _bias(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (*_two(m, n, dtype), f"{dtype}[{n}]")


def _packed(m: int, n: int, dtype: str = "bf16") -> tuple[str, ...]:
    return (f"{dtype}[{m},{2 * n}]",)


def _packed_fp8(m: int, n: int) -> tuple[str, ...]:
    return (*_packed(m, n), "f32[1]@ones")


CASES: tuple[KernelCase, ...] = (
    KernelCase(
        kernel=silu_times_up,
        reference=silu_times_up_reference,
        family=FAMILY,
        variant="two_inputs",
        tiny=_two(5, 96),
        shapes=(
            _two(4096, 14336),
            _two(1024, 11008),
            _two(8192, 6144, "f16"),
            _two(64, 28672),
            _two(16384, 2048, "f32"),
            _two(8, 14336),
            _two(8192, 18944),
            _two(777, 12287),
        ),
    ),
    KernelCase(
        kernel=silu_packed,
        reference=silu_packed_reference,
        family=FAMILY,
        variant="packed_halves",
        tiny=_packed(5, 96),
        shapes=(
            _packed(4096, 11008),
            _packed(8192, 14336),
            _packed(256, 25600),
            _packed(2048, 5632, "f16"),
            _packed(32, 12288),
            _packed(16384, 3072),
            _packed(4096, 2880),
            _packed(1, 28672),
        ),
    ),
    KernelCase(
        kernel=gelu_interleaved,
        reference=gelu_interleaved_reference,
        family=FAMILY,
        variant="interleaved_pairs",
        tiny=_packed(5, 96),
        shapes=(
            _packed(4096, 8192),
            _packed(8192, 2880),
            _packed(1024, 16384, "f16"),
            _packed(128, 10240),
            _packed(2048, 4096, "f32"),
            _packed(16384, 5632),
            _packed(512, 2880),
            _packed(3001, 3001),
        ),
    ),
    KernelCase(
        kernel=gelu_tanh_bias,
        reference=gelu_tanh_bias_reference,
        family=FAMILY,
        variant="bias_tanh",
        tiny=_bias(5, 96),
        shapes=(
            _bias(8192, 4096),
            _bias(2048, 16384, "f16"),
            _bias(4096, 10240),
            _bias(256, 8192),
            _bias(32768, 1536, "f32"),
            _bias(16384, 5120),
            _bias(16, 16384),
            _bias(5000, 5001),
        ),
    ),
    KernelCase(
        kernel=gated_act_to_fp8,
        reference=gated_act_to_fp8_reference,
        family=FAMILY,
        variant="packed_to_fp8",
        tiny=_packed_fp8(5, 96),
        shapes=(
            _packed_fp8(4096, 14336),
            _packed_fp8(256, 8192),
            _packed_fp8(8192, 2880),
            _packed_fp8(2048, 11008),
            _packed_fp8(32, 2048),
            _packed_fp8(1024, 28672),
            _packed_fp8(16384, 6144),
            _packed_fp8(1, 14336),
        ),
        rtol=1.3e-1,
    ),
    KernelCase(
        kernel=gated_row_fp8,
        reference=gated_row_fp8_reference,
        family=FAMILY,
        variant="row_fp8_one_pass",
        tiny=_two(5, 96),
        shapes=(
            _two(4096, 6144),
            _two(1024, 12288),
            _two(8192, 2048),
            _two(256, 25600),
            _two(2048, 14336),
            _two(16, 12288),
            _two(16384, 2880),
            _two(4096, 11008),
        ),
        rtol=1.3e-1,
    ),
    KernelCase(
        kernel=gated_group_fp8,
        reference=gated_group_fp8_reference,
        family=FAMILY,
        variant="group_fp8",
        tiny=(*_two(3, 64), "16"),
        shapes=(
            (*_two(4096, 6144), "128"),
            (*_two(1024, 25600), "128"),
            (*_two(8192, 2048), "128"),
            (*_two(256, 12288), "128"),
            (*_two(4096, 14336), "64"),
            (*_two(16, 6144), "128"),
            (*_two(16384, 4096), "128"),
            (*_two(2048, 18432), "32"),
        ),
        rtol=1.3e-1,
    ),
    KernelCase(
        kernel=clamped_swiglu,
        reference=clamped_swiglu_reference,
        family=FAMILY,
        variant="flattened_clamped",
        tiny=(*_two(5, 96), "7.0"),
        shapes=(
            (*_two(8192, 2880), "7.0"),
            (*_two(1024, 11520), "7.0"),
            (*_two(16384, 8192), "7.0"),
            (*_two(64, 2880), "7.0"),
            (*_two(4096, 5760, "f32"), "7.0"),
            (*_two(256, 23040), "7.0"),
            (*_two(32768, 1440, "f16"), "7.0"),
            (*_two(4, 2880), "7.0"),
        ),
    ),
    KernelCase(
        kernel=silu_backward,
        reference=silu_backward_reference,
        family=FAMILY,
        variant="backward",
        tiny=_three(5, 96),
        shapes=(
            _three(4096, 11008),
            _three(8192, 4096, "f16"),
            _three(2048, 14336),
            _three(16384, 2048, "f32"),
            _three(1024, 5632),
            _three(8192, 12288),
            _three(512, 28672),
            _three(4097, 4097),
        ),
    ),
)
