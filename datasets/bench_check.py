"""Whether a config computes what it should, judged on the GPU that times it.

The judge is the kernel's plain PyTorch reference where it runs and Helion's default
agrees with it, and the default's own result otherwise: a reference that needs more
memory than the GPU has, or rounds otherwise than the kernel, convicts nobody. A config
that agrees with either is right. Tolerances are the recorder's.

Where a kernel rounds in between (a normalised row to bfloat16, then a product over it),
a few results in a million lie beyond any fixed tolerance of each other and of the
reference. There a config is right as well if it is no further from the reference than
the default is: 13 of 4 million elements off were held against the same kernel with
another tile otherwise (`rms_norm_linear_two_pass`, H200, 2026-11).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Protocol

from costmodel.datasets.bench_select import BenchKernel
from costmodel.datasets.retime import copy_arguments

HELION_TOLERANCE = 1e-2  # Helion's own default for its accuracy check
REFERENCE = "reference"
DEFAULT_RESULT = "default's result"

# The default must be this close to the reference to be a measure of accuracy at all:
# share of elements beyond tolerance. More is another meaning, not another rounding.
_ROUNDED_SHARE = 1e-3
# Where elements fall beyond a tolerance is chance; twice as many, or twice as far, is
# what two equally accurate results differ by.
_AS_ACCURATE = 2.0
_CHANCE = 8  # elements; twice a handful is still a handful

_CHUNK = 1 << 24  # elements compared at once, so that copies in float32 stay small
_UNTOUCHED = "untouched"

Launch = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far one result lies from another.

    Attributes:
        n_off: Elements beyond tolerance; 0 if none.
        n_elements: Elements compared.
        worst: Largest absolute difference among those beyond tolerance.
        kind: What is wrong where elements cannot be compared, or "".
    """

    n_off: int = 0
    n_elements: int = 0
    worst: float = 0.0
    kind: str = ""

    @property
    def words(self) -> str | None:
        """In one line; None where the results agree."""
        if self.kind or not self.n_off:
            return self.kind or None
        return (
            f"{self.n_off} of {self.n_elements} elements differ, "
            f"by up to {self.worst:.3g}"
        )

    @property
    def is_rounding(self) -> bool:
        """Few elements, and numbers all of them."""
        few = self.n_off <= _ROUNDED_SHARE * self.n_elements
        return not self.kind and few and math.isfinite(self.worst)

    def no_worse_than(self, other: Deviation) -> bool:
        """Whether this result is about as accurate as another."""
        return (
            not self.kind
            and self.n_off <= _AS_ACCURATE * other.n_off + _CHANCE
            and self.worst <= _AS_ACCURATE * other.worst
        )


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
        self._reference: list[Any] | None = None
        self._allowed: list[Deviation] = []
        mine = None if default is None else _run(default, args)
        reference = kernel.reference if use_reference else None
        theirs = None if reference is None else _try_run(reference, args)
        _release_memory()
        off = [] if mine is None or theirs is None else self._deviations(mine, theirs)
        if theirs is not None and _words(off) is None:
            self.judged_by = REFERENCE
            self._right.append(theirs)
        else:
            self.judged_by = DEFAULT_RESULT if mine is not None else "nothing"
            if off and all(one.is_rounding for one in off):
                self._reference, self._allowed = theirs, off
        if mine is not None:
            self._right.append(mine)

    def fault(self, launch: Launch) -> str | None:
        """See `Judge`."""
        found = _run(launch, self._args)
        faults = []
        for right in self._right:
            fault = _words(self._deviations(found, right))
            if fault is None:
                return None
            faults.append(fault)
        if self._reference is not None and self._is_as_accurate(found):
            return None
        return faults[0] if faults else None

    def _is_as_accurate(self, found: Sequence[Any]) -> bool:
        """Whether a launch lies as near to the reference as the default does."""
        off = self._deviations(found, self._reference or [])
        return len(off) == len(self._allowed) and all(
            one.no_worse_than(limit)
            for one, limit in zip(off, self._allowed, strict=True)
        )

    def _deviations(
        self, found: Sequence[Any], right: Sequence[Any]
    ) -> list[Deviation]:
        if len(found) != len(right):
            return [Deviation(kind=f"{len(found)} results, expected {len(right)}")]
        return [
            _deviation(mine, theirs, self._rtol, self._atol)
            for mine, theirs in zip(found, right, strict=True)
        ]


def _words(deviations: Sequence[Deviation]) -> str | None:
    """The first that matters; None if none does."""
    for place, one in enumerate(deviations):
        if one.words is not None:
            return f"result {place}: {one.words}"
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


def _deviation(mine: Any, theirs: Any, rtol: float, atol: float) -> Deviation:
    """How two results differ beyond tolerance."""
    import torch

    if not isinstance(mine, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        same = type(mine) is type(theirs) and mine == theirs
        words = f"{_name(mine)}, expected {_name(theirs)}"
        return Deviation(kind="" if same else words)
    if mine.shape != theirs.shape:
        words = f"shape {tuple(mine.shape)}, expected {tuple(theirs.shape)}"
        return Deviation(kind=words)
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
    return Deviation(n_off, mine.numel(), worst)


def _name(value: Any) -> str:
    return "a tensor" if hasattr(value, "element_size") else repr(value)
