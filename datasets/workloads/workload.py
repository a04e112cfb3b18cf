"""What a workload is: a kernel of ours, the arguments it gets, and its family.

A family module (`datasets/workloads/<family>.py`) defines Helion kernels at module
level, each with a plain PyTorch reference, and one tuple `CASES`. Adding a file is
all it takes to add workloads: `registry.py` finds it.

All kernels are written by us from the mathematics. Kernels we are judged on (Helion's
examples and pretuned kernels, serving engines' kernels) never enter this folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class KernelCase:
    """One kernel, its reference and the shapes it is recorded with.

    Attributes:
        kernel: The `helion.kernel` object, a module-level name of its file.
        reference: The same mathematics in plain PyTorch; same signature and results.
        family: Label every split uses, such as "attention" or "norm_forward".
        variant: Which way of writing the operation this is, such as "two_pass".
        tiny: One argument list small enough for the interpreter on a CPU.
        shapes: Argument lists to record, in the command line's argument grammar,
            best value first.
        rtol: Relative tolerance against the reference.
        atol: Absolute tolerance against the reference.
    """

    kernel: Any
    reference: Callable[..., Any]
    family: str
    variant: str
    tiny: tuple[str, ...]
    shapes: tuple[tuple[str, ...], ...]
    rtol: float = 2e-2
    atol: float = 2e-2

    @property
    def name(self) -> str:
        """Kernel name, for people and for joining with logs."""
        return str(self.kernel.name)


@dataclass(frozen=True, slots=True)
class Workload:
    """One kernel with one argument list, as data.

    Attributes:
        kernel: Reference of the form `family_module:kernel_name`.
        args: Arguments in the command line's grammar, such as "bf16[4096,5120]".
        family: The case's family label.
        variant: The case's variant.
    """

    kernel: str
    args: tuple[str, ...]
    family: str
    variant: str

    @property
    def workload_id(self) -> str:
        """16 hex digits over kernel reference and arguments; stable across machines."""
        text = "\0".join((self.kernel, *self.args))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
