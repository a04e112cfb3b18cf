"""Kernels without dots: right on tiny sizes, bindable for a GPU that is not here.

Run as a script under HELION_INTERPRET=1, this file runs every kernel against its
reference and prints one JSON object: Helion reads that variable when a kernel is
decorated, so the interpreter needs a process of its own.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import math
import os
import subprocess
import sys

import pytest

from costmodel.arguments import TensorArgument
from costmodel.arguments import parse_argument
from costmodel.datasets.workloads.workload import KernelCase

FAMILIES = (
    "convolution_depthwise",
    "gated_activation",
    "gather",
    "jagged",
    "kv_cache",
    "losses",
    "norm_backward",
    "norm_forward",
    "pointwise",
    "quantiser",
    "reduction",
    "rotary",
    "scan",
    "softmax",
    "state_update",
    "top_k",
)
# Argument tensors of one workload; the GPU also holds results and a baseline's.
ARGUMENT_BYTES_LIMIT = 4 * 2**30
ELEMENT_BYTES = {"f8e4m3": 1, "i8": 1, "u8": 1, "bf16": 2, "f16": 2, "i64": 8}


def _cases() -> dict[str, KernelCase]:
    cases = {}
    for family in FAMILIES:
        module = importlib.import_module(f"costmodel.datasets.workloads.{family}")
        cases.update({f"{family}:{case.name}": case for case in module.CASES})
    return cases


CASES = _cases()


def _arguments(case: KernelCase, seed: int) -> list[object]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    return [parse_argument(text).materialize("cpu", generator) for text in case.tiny]


def _results(value: object) -> list[object]:
    return list(value) if isinstance(value, tuple) else [value]


def _difference(case: KernelCase, seed: int) -> str:
    """Why the kernel's results differ from its reference's; empty if they agree."""
    import torch

    # Made twice: some kernels write to an argument.
    expected = _results(case.reference(*_arguments(case, seed)))
    found = _results(case.kernel(*_arguments(case, seed)))
    if len(expected) != len(found):
        return f"expected {len(expected)} results, found {len(found)}"
    for want, have in zip(expected, found, strict=True):
        if (want.dtype, want.shape) != (have.dtype, have.shape):
            return (
                f"expected {want.dtype} {want.shape}, found {have.dtype} {have.shape}"
            )
        if not torch.isfinite(want.double()).all():
            return "the reference is not finite: choose other tiny arguments"
        try:
            torch.testing.assert_close(
                have.double(), want.double(), rtol=case.rtol, atol=case.atol
            )
        except AssertionError as error:
            return str(error)
    return ""


def _interpret_all() -> dict[str, str]:
    differences = {}
    for name, case in CASES.items():
        try:
            differences[name] = _difference(case, seed=1)
        except Exception as error:
            differences[name] = f"{type(error).__name__}: {error}"
    return differences


@functools.cache
def _interpreted() -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "HELION_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_kernel_agrees_with_reference_in_the_interpreter(name: str) -> None:
    assert _interpreted()[name] == ""


def test_a_wrong_kernel_is_found() -> None:
    """The comparison itself can fail: one case's kernel, another's reference."""
    import torch

    right = CASES["reduction:row_sum"]

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return 2.0 * right.reference(x)

    wrong = KernelCase(
        kernel=doubled,
        reference=right.reference,
        family=right.family,
        variant=right.variant,
        tiny=right.tiny,
        shapes=right.shapes,
    )
    assert "not close" in _difference(wrong, seed=1)


@pytest.mark.parametrize("name", CASES)
def test_argument_lists_fit_the_kernel_and_the_gpu(name: str) -> None:
    case = CASES[name]
    required = len(inspect.signature(case.kernel.fn).parameters)
    assert len(set(case.shapes)) == len(case.shapes) >= 4
    for args in (case.tiny, *case.shapes):
        parsed = [parse_argument(text) for text in args]
        assert len(parsed) == required, args
        tensors = [arg for arg in parsed if isinstance(arg, TensorArgument)]
        size = sum(
            math.prod(arg.shape) * ELEMENT_BYTES.get(arg.dtype, 4) for arg in tensors
        )
        assert size <= ARGUMENT_BYTES_LIMIT, (args, size)
        # Helion indexes with 32 bits; none of ours is meant to need more.
        assert all(math.prod(arg.shape) < 2**31 for arg in tensors), args


def test_breadth() -> None:
    assert len(CASES) >= 36
    assert len({case.family for case in CASES.values()}) == len(FAMILIES)
    assert all(case.family == name.split(":")[0] for name, case in CASES.items())
    assert len({case.name for case in CASES.values()}) == len(CASES)


def _generate(name: str, shape: int) -> str:
    from costmodel import helion_hook
    from costmodel.hardware import load_hardware
    from costmodel.target import bind

    case = CASES[name]
    specs = [parse_argument(text) for text in case.shapes[shape]]
    bound = bind(case.kernel, specs, load_hardware("H200"))
    return helion_hook.triton_code(bound, helion_hook.view(bound).default)


FIRST_OF_FAMILY = [
    next(name for name in CASES if name.startswith(f"{family}:")) for family in FAMILIES
]


@pytest.mark.parametrize("name", FIRST_OF_FAMILY)
def test_first_kernel_of_each_family_compiles_for_h200(name: str) -> None:
    assert "@triton.jit" in _generate(name, 0)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [n for n in CASES if n not in FIRST_OF_FAMILY])
def test_every_other_kernel_compiles_for_h200(name: str) -> None:
    assert "@triton.jit" in _generate(name, 0)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CASES)
def test_every_shape_binds_for_h200(name: str) -> None:
    from costmodel import helion_hook
    from costmodel.hardware import load_hardware
    from costmodel.target import bind

    case = CASES[name]
    for args in case.shapes:
        specs = [parse_argument(text) for text in args]
        bound = bind(case.kernel, specs, load_hardware("H200"))
        assert helion_hook.is_legal(bound, helion_hook.default_config(bound)), args


if __name__ == "__main__":
    print(json.dumps(_interpret_all()))
