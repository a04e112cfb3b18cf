"""Which workloads a bench is about: words of a command line to workloads and kernels.

A word is a workload id, a family, a kernel reference (`family_module:kernel`), or a
kernel with its arguments in one word, such as `"matmul:gemm_nn bf16[16,4096]
bf16[4096,4096]"`. The kernel may be one of a file of your own: `"FILE.py:KERNEL ..."`.
A file that lists `CASES`, as the registered ones do, is a word by itself: `FILE.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.arguments import parse_argument
from costmodel.datasets.plan import order_workloads
from costmodel.datasets.workloads.workload import KernelCase
from costmodel.datasets.workloads.workload import Workload
from costmodel.errors import ArgumentSpecError
from costmodel.errors import KernelFileError
from costmodel.kernel_file import load_kernel
from costmodel.kernel_file import load_name

OWN_FILE = "own_file"
"""Family and variant of kernels from a user's file, which nobody labelled."""

CASES = "CASES"
"""Name of a file's tuple of `KernelCase`: kernels with references and arguments."""

FOREIGN = "FOREIGN"
"""Name of a module's foreign callables, {kernel name: {label: callable}}."""


@dataclass(frozen=True, slots=True)
class BenchKernel:
    """What a workload runs.

    Attributes:
        kernel: The `helion.kernel` object.
        reference: The same in plain PyTorch; None where there is none to compare with.
        rtol: Relative tolerance of results.
        atol: Absolute tolerance of results.
        foreign: Other implementations by label, called with the same arguments.
    """

    kernel: Any
    reference: Callable[..., Any] | None = None
    rtol: float = 2e-2
    atol: float = 2e-2
    foreign: Mapping[str, Callable[..., Any]] | None = None


def select(
    words: Iterable[str],
    known: Sequence[Workload],
    *,
    per_kernel: int | None = None,
    limit: int | None = None,
) -> list[Workload]:
    """The workloads that words name, each once.

    Named workloads come in the order named. Those of kernels and families come kernel
    by kernel in waves, families in turn, so that the first N of them are broad.

    Args:
        words: See the module's text; none means all known.
        known: Every registered workload.
        per_kernel: At most so many shapes of a kernel that was not named with shapes.
        limit: At most so many in all.

    Raises:
        ArgumentSpecError: A word names nothing.
        KernelFileError: A file does not import or lists no cases.
    """
    named: list[Workload] = []
    broad: list[Workload] = []
    words = list(words)
    for word in words:
        first, *args = word.split() or [""]
        if args:
            named.append(_with_arguments(first, args, known))
            continue
        if word.endswith(".py"):
            broad += _workloads_of_file(word)
            continue
        exact = [one for one in known if one.workload_id == word]
        named += exact
        some = [one for one in known if word in (one.kernel, one.family)]
        if not exact and not some:
            raise ArgumentSpecError(
                f"expected a workload id, kernel or family, found {word!r}: list them "
                "with `costmodel bench workloads`, or give a kernel with arguments"
            )
        broad += some
    broad = list(dict.fromkeys(broad if words else known))
    if per_kernel is not None:
        broad = _first_shapes(broad, per_kernel)
    broad = order_workloads(broad, {}, wave_shapes=1)
    return list(dict.fromkeys([*named, *broad]))[:limit]


def resolve(workload: Workload, cases: Mapping[str, KernelCase]) -> BenchKernel:
    """The kernel of a workload, registered or in a file.

    Raises:
        KernelFileError: Neither.
    """
    case = cases.get(workload.kernel) or _case_of_file(workload.kernel)
    if case is None:
        return BenchKernel(load_kernel(workload.kernel))
    return BenchKernel(
        kernel=case.kernel,
        reference=case.reference,
        rtol=case.rtol,
        atol=case.atol,
        foreign=_module_foreign(case),
    )


def read_foreign(texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """`KERNEL=FILE.py:FUNCTION` options, as {kernel: {label: FILE.py:FUNCTION}}.

    Raises:
        ArgumentSpecError: Not of that form.
    """
    found: dict[str, dict[str, str]] = {}
    for text in texts:
        kernel, equals, place = text.partition("=")
        path, colon, function = place.rpartition(":")
        if not (kernel and equals and colon and function and path.endswith(".py")):
            raise ArgumentSpecError(
                f"expected KERNEL=FILE.py:FUNCTION, found {text!r}: name the kernel as "
                "the plan does, such as matmul:gemm_nn"
            )
        found.setdefault(kernel, {})[function] = place
    return found


def load_foreign(places: Mapping[str, str]) -> dict[str, Callable[..., Any]]:
    """Foreign callables by label from their `FILE.py:FUNCTION`.

    Raises:
        KernelFileError: No such file or function.
    """
    return {label: _callable(place) for label, place in places.items()}


def _callable(place: str) -> Callable[..., Any]:
    path, _, name = place.rpartition(":")
    found = load_name(Path(path), name)
    if not callable(found):
        raise KernelFileError(
            f"expected a function {name!r} in {path}, found {found!r}: name one that "
            "takes the kernel's arguments"
        )
    return found  # type: ignore[no-any-return]


def _module_foreign(case: KernelCase) -> Mapping[str, Callable[..., Any]] | None:
    by_kernel = getattr(case.kernel.fn, "__globals__", {}).get(FOREIGN, {})
    found: Mapping[str, Callable[..., Any]] | None = by_kernel.get(case.name)
    return found


def _workloads_of_file(path: str) -> list[Workload]:
    """Every case of a file with every argument list it names."""
    return [
        Workload(f"{path}:{case.name}", args, case.family, case.variant)
        for case in load_name(Path(path), CASES)
        for args in case.shapes
    ]


def _case_of_file(reference: str) -> KernelCase | None:
    """The case of a kernel in a file; None where the file lists none of it."""
    path, _, name = reference.rpartition(":")
    try:
        cases = load_name(Path(path), CASES)
    except KernelFileError:
        return None
    return next((case for case in cases if case.name == name), None)


def _with_arguments(
    reference: str, args: Sequence[str], known: Sequence[Workload]
) -> Workload:
    for text in args:
        parse_argument(text)
    like = next((one for one in known if one.kernel == reference), None)
    if like is not None:
        return Workload(reference, tuple(args), like.family, like.variant)
    if ".py" not in reference:
        raise ArgumentSpecError(
            f"expected a kernel as family:name or FILE.py:KERNEL, found {reference!r}: "
            "list ours with `costmodel bench workloads`"
        )
    return Workload(reference, tuple(args), OWN_FILE, OWN_FILE)


def _first_shapes(workloads: Sequence[Workload], n: int) -> list[Workload]:
    taken: dict[str, int] = {}
    kept = []
    for one in workloads:
        taken[one.kernel] = taken.get(one.kernel, 0) + 1
        if taken[one.kernel] <= n:
            kept.append(one)
    return kept
