"""What a compiler said of one config, as data that goes to JSON and back."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

from costmodel.disassembly import CodeShape
from costmodel.disassembly import Loop
from costmodel.frozen import dataclass


class CompileStatus(enum.StrEnum):
    """How compiling a config ended."""

    OK = "ok"
    SHARED_MEMORY = "shared_memory"
    """Compiles, but a CTA needs more shared memory than the GPU has."""
    TENSOR_MEMORY = "tensor_memory"
    """Compiles, but a CTA needs more tensor memory than the GPU has."""
    THREADS = "threads"
    """Compiles, but has more threads than the GPU launches in a CTA."""
    REGISTERS = "registers"
    """A thread, or all threads of a CTA, would need more registers than there are."""
    MLIR = "mlir"
    """Triton's own passes fail or end the process."""
    PTXAS = "ptxas"
    """The assembler fails for another reason than registers."""
    CRASH = "crash"
    """The assembler ends by a signal, as some control files make it."""
    REFUSED = "refused"
    """Helion generates no code for it."""
    TIMEOUT = "timeout"
    """Not done within the limit."""
    ERROR = "error"
    """Anything else, such as host code that needs values."""

    @property
    def is_of_the_config(self) -> bool:
        """Whether it would come out the same on another day: worth keeping."""
        return self is not CompileStatus.ERROR


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Versions that decide about machine code; facts of two never mix."""

    helion: str
    torch: str
    triton: str
    ptxas: str


@dataclass(frozen=True, slots=True)
class CompiledFacts:
    """One config as the compiler sees it, without a GPU.

    Where a call launches several kernels they count as one: the largest registers,
    warps and memory, the sum of spills and instructions. Register and byte counts are
    None where no machine code was made.

    Attributes:
        status: How it ended.
        detail: Why, in one line; empty if it is ok.
        arch: What was compiled for, such as "sm90".
        toolchain: Versions.
        registers: 32-bit registers of a thread.
        spill_store_bytes: Bytes of a thread's spilling instructions.
        spill_load_bytes: Bytes of a thread's instructions that bring spills back.
        stack_bytes: Local memory of a thread; what a driver reports as spills.
        smem_bytes: Shared memory of a CTA.
        tmem_columns: Tensor memory of a CTA.
        num_warps: Warps of a CTA.
        n_launches: Kernels that one call launches.
        n_instructions: Instructions in the code, padding included.
        code_digest: 16 hex digits over the instructions, as corpora record it.
        code: What the disassembly shows of the longest kernel, if asked for.
        compile_s: Seconds it took, codegen to cubin.
        limit_s: Seconds it was allowed to take.
    """

    status: CompileStatus
    detail: str
    arch: str
    toolchain: Toolchain
    registers: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    stack_bytes: int | None = None
    smem_bytes: int | None = None
    tmem_columns: int | None = None
    num_warps: int | None = None
    n_launches: int | None = None
    n_instructions: int | None = None
    code_digest: str | None = None
    code: CodeShape | None = None
    compile_s: float = 0.0
    limit_s: float = 0.0

    @property
    def spill_bytes(self) -> int | None:
        """Bytes a thread moves to or from local memory because of spills."""
        if self.spill_store_bytes is None or self.spill_load_bytes is None:
            return None
        return self.spill_store_bytes + self.spill_load_bytes


def to_json(facts: CompiledFacts) -> dict[str, Any]:
    """As JSON values."""
    return dataclasses.asdict(facts)


def from_json(body: Mapping[str, Any]) -> CompiledFacts:
    """The inverse of `to_json`.

    Raises:
        TypeError, KeyError, ValueError: Not something that `to_json` made.
    """
    fields = dict(body)
    fields["status"] = CompileStatus(fields["status"])
    fields["toolchain"] = Toolchain(**fields["toolchain"])
    code = fields.get("code")
    if code is not None:
        loops = tuple(Loop(**loop) for loop in code["loops"])
        fields["code"] = CodeShape(**{**code, "loops": loops})
    return CompiledFacts(**fields)
