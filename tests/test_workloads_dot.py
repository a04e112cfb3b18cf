"""Workloads whose kernels hold dot products: right on tiny sizes, bindable for H200.

Numbers come from Triton's interpreter on the CPU, which runs the code Helion generates
(Helion's own eager mode cannot multiply 16-bit matrices into fp32 there). Both need a
process of their own: the interpreter is chosen when triton is imported. So this file is
also the program that those processes run.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FAMILIES = (
    "attention",
    "attention_backward",
    "attention_decode",
    "batched",
    "convolution",
    "gated_mlp",
    "grouped",
    "linear_attention",
    "matmul",
    "matmul_epilogue",
    "matmul_low_precision",
    "matmul_reduction",
    "paged_attention",
    "state_space",
)
# A kernel of each way of tiling, few enough for every run; the rest are marked slow.
QUICK = (
    "batched:per_head_projection_full",
    "grouped:padded_block_gemm",
    "linear_attention:chunk_states",
    "matmul:gemm_split_k_atomic",
    "matmul_low_precision:fp8_gemm_row_col_scale",
    "matmul_reduction:router_softmax",
)
# Memory one call may take, in bytes: two workloads must fit a shared 80 GB GPU easily.
LIMIT_BYTES = 4 * 2**30


def _module(family: str) -> Any:
    return importlib.import_module(f"costmodel.datasets.workloads.{family}")


def _cases(choice: str) -> list[Any]:
    """Cases of `family`, or the one that `family:kernel` names."""
    family, _, kernel = choice.partition(":")
    return [case for case in _module(family).CASES if kernel in ("", case.name)]


def _run(job: str, *choices: str) -> dict[str, str]:
    """Faults by kernel, from a fresh process; {} when all is well."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("HELION_")}
    if job == "interpret":
        env["TRITON_INTERPRET"] = "1"
    done = subprocess.run(
        [sys.executable, __file__, job, *choices],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["ran"] == sum(len(_cases(choice)) for choice in choices) > 0
    faults = answer["faults"]
    assert isinstance(faults, dict)
    return faults


def test_some_kernels_match_their_references() -> None:
    assert _run("interpret", *QUICK) == {}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_kernel_matches_its_reference(family: str) -> None:
    assert _run("interpret", family) == {}


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("family", FAMILIES)
def test_every_kernel_binds_for_h200_and_generates_code(family: str) -> None:
    assert _run("bind", family) == {}


def test_some_kernels_bind_for_h200_and_generate_code() -> None:
    assert _run("bind", *QUICK) == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_shapes_are_many_distinct_readable_and_small_enough(family: str) -> None:
    from costmodel.arguments import TensorArgument
    from costmodel.arguments import format_argument
    from costmodel.arguments import parse_argument

    for case in _cases(family):
        assert len(case.shapes) >= 8, case.name
        assert len(set(case.shapes)) == len(case.shapes), case.name
        for args in (case.tiny, *case.shapes):
            parsed = [parse_argument(text) for text in args]
            assert [format_argument(one) for one in parsed] == list(args), case.name
            tensors = [one for one in parsed if isinstance(one, TensorArgument)]
            assert sum(map(_bytes, tensors)) < LIMIT_BYTES, (case.name, args)


def test_kernel_names_are_unique() -> None:
    names = [case.name for family in FAMILIES for case in _cases(family)]
    assert len(set(names)) == len(names)
    assert len(names) >= 32


def _bytes(tensor: Any) -> int:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return int(tensor.fake(FakeTensorMode(), "cpu").nbytes)


def _flat(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [tensor for part in result for tensor in _flat(part)]
    return [result]


def _patch_interpreter() -> None:
    """Give Triton's interpreter what it lacks: libdevice, and right fp8 rounding.

    Its fp32 to fp8 cast drops the carry of a mantissa that rounds up to two.
    """
    import numpy as np
    import torch
    import triton.language as tl
    from triton.language.extra import libdevice
    from triton.runtime import interpreter

    libdevice.exp = lambda x: tl.exp(x)
    libdevice.exp2 = lambda x: tl.exp2(x)
    libdevice.log = lambda x: tl.log(x)
    libdevice.rsqrt = lambda x: tl.rsqrt(x)
    libdevice.erf = lambda x: tl.erf(x)
    libdevice.tanh = lambda x: 2.0 * tl.sigmoid(2.0 * x) - 1.0
    convert = interpreter._convert_float

    def convert_float(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        if source == tl.float32 and target == tl.float8e4nv:
            values = torch.from_numpy(np.array(data, order="C").view(np.float32))
            return values.to(torch.float8_e4m3fn).view(torch.uint8).numpy()
        return convert(data, source, target, rounding)

    interpreter._convert_float = convert_float


def _interpret(case: Any) -> str | None:
    """Run one kernel and its reference on the CPU; None when they agree."""
    import torch

    from costmodel.arguments import parse_argument

    generator = torch.Generator().manual_seed(0)
    args = [parse_argument(text).materialize("cpu", generator) for text in case.tiny]
    copies = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
    got = _flat(case.kernel(*args))
    want = _flat(case.reference(*copies))
    if [(t.shape, t.dtype) for t in got] != [(t.shape, t.dtype) for t in want]:
        return f"shapes or dtypes differ: {got} and {want}"
    for mine, right in zip(got, want, strict=True):
        if not torch.isfinite(right.float()).all():
            return "the reference is not finite"
        try:
            torch.testing.assert_close(
                mine.float(), right.float(), rtol=case.rtol, atol=case.atol
            )
        except AssertionError as error:
            return str(error)
    return None


def _bind(case: Any) -> str | None:
    """Bind one kernel to its first shape for H200 and generate its default's code."""
    from costmodel.arguments import parse_argument
    from costmodel.hardware import load_hardware
    from costmodel.target import bind
    from costmodel.target import targeting

    hardware = load_hardware("NVIDIA H200")
    bound = bind(case.kernel, [parse_argument(a) for a in case.shapes[0]], hardware)
    with targeting(hardware):
        code = bound.to_triton_code(bound.config_spec.default_config())
    return None if "tl.dot(" in code else "no dot in the generated code"


def _main(job: str, *choices: str) -> None:
    if job == "interpret":
        _patch_interpreter()
    check = {"interpret": _interpret, "bind": _bind}[job]
    cases = [case for choice in choices for case in _cases(choice)]
    faults = {}
    for case in cases:
        try:
            fault = check(case)
        except Exception as error:  # one kernel's fault must not hide the next one's
            fault = f"{type(error).__name__}: {error}"
        if fault is not None:
            faults[case.name] = fault
    print(json.dumps({"ran": len(cases), "faults": faults}))


if __name__ == "__main__":
    # Keep this folder, whose modules are tests, off the import path.
    sys.path = [p for p in sys.path if Path(p).resolve() != Path(__file__).parent]
    _main(*sys.argv[1:])
