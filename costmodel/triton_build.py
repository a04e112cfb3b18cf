"""From a captured Triton launch to machine code, through Triton's own compiler.

The launch's tensors are fake and have no address, so stand-ins take their place: they
know what Triton specialises on, which is dtype and alignment. `run(warmup=True)` then
takes the same road as a launch up to the point where a driver would be needed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from costmodel import ptxas
from costmodel.frozen import dataclass
from costmodel.helion_hook import CapturedLaunch

_BASE_ADDRESS = 1 << 32  # torch's allocator aligns to 512 bytes; any multiple will do


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """One compiled Triton kernel.

    Attributes:
        name: Of the kernel's function.
        cubin: The ELF file.
        smem_bytes: Shared memory of a CTA, static and dynamic.
        tmem_columns: Tensor memory of a CTA; 0 on GPUs without it.
        num_warps: Warps of a CTA, those that warp specialisation adds included.
        grid: CTAs in each dimension.
        report: What the assembler said; None if it said nothing.
        ptx: What it was given.
        command: How Triton ran it, last; () if it did not.
    """

    name: str
    cubin: bytes
    smem_bytes: int
    tmem_columns: int
    num_warps: int
    grid: tuple[int, ...]
    report: ptxas.PtxasReport | None
    ptx: str = ""
    command: tuple[str, ...] = ()


class AssemblerError(Exception):
    """The assembler failed; the message is what it printed."""


def build(launch: CapturedLaunch) -> BuiltKernel:
    """Compile what a launch would compile.

    Raises:
        AssemblerError: ptxas refuses the program.
        Exception: Whatever Triton raises where it fails earlier.
    """
    args = [_stand_in(value) for value in launch.args]
    # Compiled before in this process, it would not be assembled, and nothing heard.
    launch.kernel.device_caches.clear()
    with ptxas.listening() as heard:
        try:
            compiled = launch.kernel.run(
                *args, grid=launch.grid, warmup=True, **launch.options
            )
        except Exception as error:
            if heard:
                raise AssemblerError(heard[-1].words) from error
            raise
    if compiled is None:
        raise RuntimeError("Triton compiled nothing: a compile hook of its stops it")
    metadata = compiled.metadata
    return BuiltKernel(
        name=str(metadata.name),
        cubin=compiled.asm["cubin"],
        smem_bytes=int(metadata.shared),
        tmem_columns=int(getattr(metadata, "tmem_size", None) or 0),
        num_warps=int(metadata.num_warps),
        grid=launch.grid,
        report=ptxas.parse_report("\n".join(one.words for one in heard)),
        ptx=str(compiled.asm.get("ptx", "")),
        command=heard[-1].command if heard else (),
    )


class _StandIn:
    """A tensor without memory, as far as Triton's argument binder looks at one."""

    def __init__(self, tensor: Any) -> None:
        self.dtype = tensor.dtype
        self.device = tensor.device
        self.shape = tuple(tensor.shape)
        self._strides = tuple(tensor.stride())
        self._offset_bytes = tensor.storage_offset() * tensor.element_size()
        self._element_size = tensor.element_size()

    def data_ptr(self) -> int:
        return int(_BASE_ADDRESS + self._offset_bytes)

    def element_size(self) -> int:
        return int(self._element_size)

    def stride(self, dim: int | None = None) -> Any:
        return self._strides if dim is None else self._strides[dim]

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]


def _stand_in(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return _StandIn(value)
    base = getattr(value, "base", None)
    if isinstance(base, torch.Tensor) and dataclasses.is_dataclass(value):
        # A host-side tensor descriptor.
        return dataclasses.replace(value, base=_StandIn(base))  # type: ignore[type-var,unused-ignore]
    return value
