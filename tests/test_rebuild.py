"""Defaults recomputed from logs: right where they can be, None everywhere else."""

from __future__ import annotations

import ast
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import helion
import helion.language as hl
import pytest
import torch
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel import helion_hook
from costmodel.arguments import parse_argument
from costmodel.hardware import load_hardware
from costmodel.kernel_source import defined
from costmodel.kernel_source import parse_kernel
from costmodel.rebuild import rebuild
from costmodel.rebuild import rebuild_default
from costmodel.target import bind
from costmodel.types import WorkloadRecord

STATIC: dict[str, Any] = {"static_shapes": True}


@helion.kernel(**STATIC)
def norm(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        value = x[rows, :].to(torch.float32)
        scale = torch.rsqrt((value * value).mean(-1) + eps)
        out[rows, :] = (value * scale[:, None] * w[:].to(torch.float32)).to(x.dtype)
    return out


@helion.kernel(**STATIC)
def group_peak(x: torch.Tensor, group: hl.constexpr) -> torch.Tensor:
    n, d = x.size()
    parts = d // group
    out = torch.empty([n, parts], dtype=torch.float32, device=x.device)
    grouped = x.view(n, parts, group)
    for rows, part in hl.tile([n, parts]):
        out[rows, part] = grouped[rows, part, :].to(torch.float32).abs().amax(-1)
    return out


@helion.kernel(static_shapes=False)
def linear(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    m, k = x.size()
    n = w.size(0)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([m, n]):
        acc = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            acc = torch.addmm(acc, x[rows, inner], w[columns, inner].T)
        out[rows, columns] = acc.to(x.dtype)
    return out


BUNDLED = Path(__file__).resolve().parents[1] / "datasets" / "corpora" / "h200_sample"

CASES = {
    "norm": (norm, ("bf16[2048,5120]", "bf16[5120]", "1e-6")),
    "group_peak": (group_peak, ("bf16[1024,4096]", "128")),
    "transposed": (linear, ("bf16[512,1024]:1,512", "bf16[2048,1024]")),
}


def _recorded(name: str, gpu: str = "H200") -> tuple[WorkloadRecord, dict[str, Any]]:
    kernel, specs = CASES[name]
    bound = bind(kernel, [parse_argument(s) for s in specs], load_hardware(gpu))
    return helion_hook.record_of(bound), helion_hook.default_config(bound)


@pytest.mark.parametrize("gpu", ["H200", "B200", "A100"])
@pytest.mark.parametrize("name", ["norm", "group_peak"])
def test_rebuilt_default_is_the_live_default(name: str, gpu: str) -> None:
    record, default = _recorded(name, gpu)
    assert rebuild_default(record, {"group": 128, "eps": 1e-6}) == default


def test_missing_scalars_are_found_where_the_graph_tells() -> None:
    for name in ("norm", "group_peak"):
        record, default = _recorded(name)
        assert rebuild_default(record) == default


def test_a_wrong_graph_makes_no_guess() -> None:
    record, _default = _recorded("group_peak")
    other, _default = _recorded("norm")
    assert rebuild_default(dataclasses.replace(record, ir_graph=other.ir_graph)) is None


def test_settings_come_from_the_log() -> None:
    record, default = _recorded("norm")
    off = {**record.settings, "disable_autotuner_heuristics": True}
    plain = rebuild_default(dataclasses.replace(record, settings=off))
    assert plain is not None and plain != default


def test_logged_strides_are_kept() -> None:
    record, _default = _recorded("transposed")
    plain = record.kernel_source.replace("bias: torch.Tensor | None = None", "b=None")
    bound = rebuild(dataclasses.replace(record, kernel_source=plain), {})

    def strides(graph: Any) -> list[Any]:
        nodes = [n for n in graph["nodes"] if n["target"].endswith("._host_tensor")]
        return [node["concrete_stride"] for node in nodes]

    found = strides(helion_hook.record_of(bound).ir_graph)
    assert [1, 512] in found and found == strides(record.ir_graph)


def test_free_constants_in_the_decorator_do_not_matter() -> None:
    record, default = _recorded("norm")
    assert "**STATIC" in record.kernel_source
    nonsense = record.kernel_source.replace("**STATIC", "**NO_SUCH_NAME(1/0)")
    assert (
        rebuild_default(dataclasses.replace(record, kernel_source=nonsense)) == default
    )
    nested = "\n".join("        " + line for line in record.kernel_source.splitlines())
    assert rebuild_default(dataclasses.replace(record, kernel_source=nested)) == default


def test_nothing_stays_behind() -> None:
    before = set(sys.modules)
    record, _default = _recorded("norm")
    rebuild_default(record)
    assert not {name for name in set(sys.modules) - before if "rebuilt" in name}


@pytest.mark.parametrize(
    "change",
    [
        {"hardware": "AMD Instinct MI300X"},
        {"hardware": ""},
        {"settings": {"backend": "cute"}},
        {"settings": {"ref_mode": "RefMode.EAGER"}},
        {"settings": {"index_dtype": "torch.load"}},
        {"kernel_source": ""},
        {"kernel_source": "def f(:"},
        {"kernel_source": "x = 1"},
        {"kernel_source": "def f(x):\n    return helper(x)\n"},
        {"input_shapes": ()},
        {"input_shapes": ((4,),), "dtypes": ("torch.complex64",)},
        {"dtypes": ("torch.bfloat16",)},
        {"ir_graph": {"nodes": None}},
    ],
)
def test_what_cannot_be_rebuilt_is_none(change: dict[str, Any]) -> None:
    record, _default = _recorded("norm")
    assert rebuild_default(dataclasses.replace(record, **change)) is None


HOSTILE = [
    "import os\n    os.system('true')",
    "torch.load('x')",
    "torch.hub.load('x', 'y')",
    "torch.ops.load_library('x')",
    "torch.utils.cpp_extension.load('x', [])",
    "torch.from_file('x')",
    "torch._C._jit_init()",
    "hl.loops.sys.exit()",
    "helion.runtime.kernel",
    "math.__loader__",
    "x.__class__.__mro__",
    "(lambda: 0).__globals__",
    "f = torch\n    f.load('x')",
    "open('x')",
    "eval('1')",
    "getattr(x, 'y')",
    "__import__('os')",
    "'{0.__class__}'.format(x)",
    "(y for y in x)",
    "x.tofile('x')",
    "global torch",
    "with open('x') as f:\n        pass",
    "try:\n        pass\n    except Exception:\n        pass",
    "class C:\n        pass",
    "torch.nn.Linear(2, 2)",
    "torch.matmul.__self__",
    "torch.matmul.x",
    "torch.float32.__class__.x",
    "torch.float32.x",
    "yield x",
    "torch = x",
    "F.importlib",
]


@pytest.mark.parametrize("statement", HOSTILE)
def test_hostile_source_is_refused(statement: str) -> None:
    assert parse_kernel(f"def f(x):\n    {statement}\n    return x\n") is None


def test_hostile_decorators_defaults_and_annotations_do_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    evil = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    for source in (
        f"@helion.kernel({evil})\ndef f(x):\n    return x\n",
        f"def f(x: {evil}):\n    return x\n",
        f"def f(x) -> {evil}:\n    return x\n",
        f"def f(x, y={evil}):\n    return x\n",
        f"def f(x):\n    y: {evil} = x\n    return y\n",
        "def f(x, y=torch.empty(10)):\n    return x\n",
    ):
        function = parse_kernel(source)
        if function is not None:
            with defined(function) as fn:
                assert callable(fn)
        assert not mark.exists()
    assert parse_kernel("def f(x, y=torch.empty(10)):\n    return x\n") is None


NAMES = st.sampled_from(["x", "torch", "hl", "os", "open", "__import__", "F", "math"])
ATTRIBUTES = st.sampled_from(
    ["load", "__class__", "system", "float32", "exp", "tile", "nn", "functional", "sum"]
)


@given(NAMES, st.lists(ATTRIBUTES, max_size=3))
@settings(deadline=None, max_examples=300)
def test_whatever_passes_reaches_no_dangerous_name(name: str, path: list[str]) -> None:
    chain = ".".join([name, *path])
    function = parse_kernel(f"def f(x):\n    return {chain}\n")
    if function is None:
        return
    names = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    assert not names & {"os", "open", "__import__"}
    assert not any(part.startswith("_") for part in path)
    # Helion's own load is a memory operation, torch's opens files.
    assert name in ("x", "hl") or "load" not in path


@pytest.mark.parametrize(
    "path", sorted(BUNDLED.glob("*.meta.jsonl")), ids=lambda p: p.name
)
def test_recorded_defaults_of_the_bundled_logs_come_back(path: Path) -> None:
    """All eight logs start with Helion's default on a real H200."""
    logged = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    record = WorkloadRecord(
        kernel_name=logged["kernel_name"],
        kernel_source=logged["kernel_source"],
        input_shapes=tuple(map(tuple, ast.literal_eval(logged["input_shapes"]))),
        dtypes=tuple(ast.literal_eval(logged["dtypes"])),
        hardware=logged["hardware"],
        settings=logged["settings"],
        ir_graph=logged["ir_graph"],
    )
    rows = path.with_name(path.name.replace(".meta.jsonl", ".csv"))
    first = rows.read_text(encoding="utf-8").splitlines()[1].split(",")[2]
    # Knobs that only one of the two Helion and Triton versions has are left out.
    recorded = logged["configs"][first]
    rebuilt = rebuild_default(record)
    assert rebuilt is not None
    assert {k: rebuilt[k] for k in rebuilt if k in recorded} == {
        k: recorded[k] for k in rebuilt if k in recorded
    }
    assert {"block_sizes", "num_warps", "num_stages"} <= set(rebuilt) & set(recorded)


def test_few_of_our_own_kernels_are_refused() -> None:
    """Every eighth, to stay quick."""
    from costmodel.datasets.workloads.registry import all_cases

    cases = list(all_cases().values())[::8]
    refused = [c.name for c in cases if parse_kernel(c.kernel.kernel_source()) is None]
    assert len(refused) <= len(cases) // 10, refused
