"""Whether a config computes what it should, judged on the GPU that times it.

The judge is the kernel's plain PyTorch reference where it runs and Helion's default
agrees with it, and the default's own result otherwise: a reference that needs more
memory than the GPU has, or rounds otherwise than the kernel, convicts nobody. A config
that agrees with either is right. Tolerances are the recorder's.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import Protocol

from costmodel.datasets.bench_select import BenchKernel
from costmodel.datasets.retime import copy_arguments

HELION_TOLERANCE = 1e-2  # Helion's own default for its accuracy check
REFERENCE = "reference"
DEFAULT_RESULT = "default's result"

_CHUNK = 1 << 24  # elements compared at once, so that copies in float32 stay small
_UNTOUCHED = "untouched"

Launch = Callable[..., Any]


class Judge(Protocol):
    """Says what is wrong with a launch's result."""

    judged_by: str

    def fault(self, launch: Launch) -> str | None:
        """What is wrong, in one line; None if nothing. Raises what the launch does."""


class ResultJudge:
    """Compares results, and what a launch writes into its arguments."""

    def __init__(
        self,
        kernel: BenchKernel,
        args: Sequence[Any],
        default: Launch | None,
        *,
        use_reference: bool = True,
    ) -> None:
        """Run the default and the reference.

        Args:
            kernel: With its reference and tolerances.
            args: Arguments on the device; never written to.
            default: Helion's default compiled; None where it does not run.
            use_reference: False leaves the reference out, if it is slow or breaks.
        """
        self._args = args
        self._rtol = max(kernel.rtol, HELION_TOLERANCE)
        self._atol = max(kernel.atol, HELION_TOLERANCE)
        self._right: list[list[Any]] = []
        mine = None if default is None else _run(default, args)
        reference = kernel.reference if use_reference else None
        theirs = None if reference is None else _try_run(reference, args)
        _release_memory()
        if theirs is not None and (mine is None or self._differ(mine, theirs) is None):
            self.judged_by = REFERENCE
            self._right.append(theirs)
        else:
            self.judged_by = DEFAULT_RESULT if mine is not None else "nothing"
        if mine is not None:
            self._right.append(mine)

    def fault(self, launch: Launch) -> str | None:
        """See `Judge`."""
        found = _run(launch, self._args)
        faults = []
        for right in self._right:
            fault = self._differ(found, right)
            if fault is None:
                return None
            faults.append(fault)
        return faults[0] if faults else None

    def _differ(self, found: Sequence[Any], right: Sequence[Any]) -> str | None:
        if len(found) != len(right):
            return f"{len(found)} results, expected {len(right)}"
        for place, (mine, theirs) in enumerate(zip(found, right, strict=True)):
            fault = _difference(mine, theirs, self._rtol, self._atol)
            if fault is not None:
                return f"result {place}: {fault}"
        return None


def _run(launch: Launch, args: Sequence[Any]) -> list[Any]:
    """All results of a launch: what it returns, then what it wrote into arguments."""
    import torch

    copies = copy_arguments(args)
    returned = _flat(launch(*copies))
    after = [
        # Most arguments are only read; keeping copies of those would cost gigabytes.
        _UNTOUCHED if torch.equal(_bits(copy), _bits(original)) else copy
        for copy, original in zip(copies, args, strict=True)
        if isinstance(copy, torch.Tensor)
    ]
    return [*returned, *after]


def _bits(tensor: Any) -> Any:
    """The same for comparing whole: not every device compares 8-bit floats."""
    import torch

    is_float8 = tensor.element_size() == 1 and tensor.dtype.is_floating_point
    return tensor.view(torch.uint8) if is_float8 else tensor


def _try_run(reference: Launch, args: Sequence[Any]) -> list[Any] | None:
    try:
        return _run(reference, args)
    except Exception:  # out of memory, or a reference that is for small shapes only
        return None


def _release_memory() -> None:
    """Give back what the reference needed besides its result: other processes use the
    same GPU next, and plain PyTorch may have taken most of it."""
    import torch

    torch.cuda.empty_cache()  # nothing where CUDA was never used


def _flat(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [one for part in result for one in _flat(part)]
    return [] if result is None else [result]


def _difference(mine: Any, theirs: Any, rtol: float, atol: float) -> str | None:
    """How two results differ beyond tolerance, in words."""
    import torch

    if not isinstance(mine, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        same = type(mine) is type(theirs) and mine == theirs
        return None if same else f"{_name(mine)}, expected {_name(theirs)}"
    if mine.shape != theirs.shape:
        return f"shape {tuple(mine.shape)}, expected {tuple(theirs.shape)}"
    n_off = 0
    worst = 0.0
    flat_mine, flat_theirs = mine.reshape(-1), theirs.reshape(-1)
    for start in range(0, flat_mine.numel(), _CHUNK):
        a = flat_mine[start : start + _CHUNK].to(torch.float32)
        b = flat_theirs[start : start + _CHUNK].to(torch.float32)
        close = torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
        if bool(close.all()):
            continue
        off = ~close
        n_off += int(off.sum())
        worst = max(worst, float((a[off] - b[off]).abs().nan_to_num(torch.inf).max()))
    if not n_off:
        return None
    return f"{n_off} of {mine.numel()} elements differ, by up to {worst:.3g}"


def _name(value: Any) -> str:
    return "a tensor" if hasattr(value, "element_size") else repr(value)
