"""`costmodel export` from the command line to what Helion and an engine read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import helion
import pytest
import torch
from helion.autotuner.aot_cache import AOTAutotuneCache
from helion.autotuner.aot_kernel import HeuristicKeyFunction

from costmodel import export_plan
from costmodel.arguments import parse_argument
from costmodel.cli import main
from costmodel.errors import NoCommonConfigError
from costmodel.export_plan import plan_export
from costmodel.export_plan import portable
from costmodel.hardware import load_hardware
from costmodel.kernel_file import load_kernel
from costmodel.provider import Provider
from costmodel.shape_list import make_cases
from costmodel.shape_losses import LossTable
from costmodel.target import bind
from costmodel.target import targeting

H200 = load_hardware("H200")

OPS = """
import torch, helion
import helion.language as hl

@helion.aot_kernel()
def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    m, k = a.size()
    _, n = b.size()
    out = torch.empty([m, n], dtype=a.dtype, device=a.device)
    for tm, tn in hl.tile([m, n]):
        acc = hl.zeros([tm, tn], dtype=torch.float32)
        for tk in hl.tile(k):
            acc = torch.addmm(acc, a[tm, tk], b[tk, tn])
        out[tm, tn] = acc.to(a.dtype)
    return out
"""
SHAPE = ["--shape", "bf16[tokens,1024]", "bf16[1024,2048]", "--size", "tokens=16,4096"]


@pytest.fixture
def ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "ops.py").write_text(OPS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HELION_AOT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("HELION_HEURISTIC_DIR", raising=False)
    forget()
    return "ops.py:product"


def forget() -> None:
    """Helion remembers for the whole process where it found no file."""
    AOTAutotuneCache.clear_caches()
    HeuristicKeyFunction.clear_cache()


def run(capsys: pytest.CaptureFixture[str], *command: str) -> dict[str, Any]:
    assert main([*command, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_helion_compiles_what_the_command_wrote(
    ops: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["export", ops, *SHAPE, "--output", ".", "--gpu", "H200"]
    answer = run(capsys, *command, "--max-configs", "2")
    (plan,) = answer["kernels"]
    (file,) = answer["files"]
    assert file["changed"]
    assert Path(file["path"]).name == "_helion_aot_ops_cuda_sm90.py"
    assert len(plan["configs"]) <= 2
    forget()
    kernel = load_kernel(ops)
    for shape in plan["shapes"]:
        specs = [parse_argument(text) for text in shape["arguments"].split()]
        example = [
            torch.empty(s.shape, dtype=torch.bfloat16, device="meta")  # type: ignore[union-attr]
            for s in specs
        ]
        with targeting(H200), pytest.MonkeyPatch.context() as patch:
            bound = bind(kernel, specs, H200)
            patch.setattr(bound.kernel, "specialization_key", lambda _args: ())
            config = bound.settings.autotuner_fn(bound, tuple(example)).autotune()
            assert dict(config) == plan["configs"][shape["config"]]
            assert "triton.jit" in bound.to_triton_code(config)
    before = Path(file["path"]).read_bytes()
    again = run(capsys, *command, "--max-configs", "2")
    assert not again["files"][0]["changed"]
    assert Path(file["path"]).read_bytes() == before


def test_a_list_of_kernels_becomes_an_engines_folder(
    ops: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("list.toml").write_text(
        '[[kernel]]\nkernel = "ops.py:product"\nname = "mm"\nmax_configs = 1\n'
        'args = ["bf16[tokens,1024]", "bf16[1024,2048]"]\n'
        "sizes = {tokens = [16, 4096]}\n"
    )
    command = ["export", "--list", "list.toml", "--layout", "folders"]
    answer = run(capsys, *command, "--output", "out", "--gpu-file", "nvidia_h200_x")
    content = json.loads(Path("out/mm/nvidia_h200_x.json").read_text())
    keys = [entry["key"] for entry in content]
    assert keys == [{}, {"tokens": 16}, {"tokens": 4096}]
    assert all(entry["config"] == content[0]["config"] for entry in content)
    assert answer["kernels"][0]["configs"] == [content[0]["config"]]
    # Helion reads it on a machine that knows nothing of us.
    assert json.loads(helion.Config(**content[0]["config"]).to_json())


def test_configs_of_another_file_can_be_chosen(
    ops: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = {"block_sizes": [64, 128, 32], "num_warps": 4, "num_stages": 2}
    broken = {"block_sizes": [64], "num_warps": "many"}
    entries = [{"key": {}, "config": foreign}, {"key": {"m": 1}, "config": broken}]
    Path("h100.json").write_text(json.dumps(entries))
    seen: list[LossTable] = []
    plain = export_plan.make_loss_table

    def watched(*args: Any, **options: Any) -> LossTable:
        seen.append(plain(*args, **options))
        return seen[0]

    monkeypatch.setattr(export_plan, "make_loss_table", watched)
    shape = ["--shape", "bf16[64,1024]", "bf16[1024,2048]"]
    command = ["export", ops, *shape, "--output", "out", "--dry-run"]
    run(capsys, *command, "--candidates", "h100.json")
    (table,) = seen
    blocks = [config.get("block_sizes") for config in table.configs]
    place = blocks.index([64, 128, 32])
    assert table.loss_log[0, place] < float("inf")
    # What cannot run here is never chosen, whatever it says.
    assert table.loss_log[0, blocks.index([64])] == float("inf")
    assert not Path("out").exists()


def test_a_decorator_line_holds_one_config_for_all_shapes(
    ops: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", ops, *SHAPE, "--layout", "decorator"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [one for one in lines if one.startswith("@helion.kernel(config=")]
    inside = line.removeprefix("@helion.kernel(config=").removesuffix(")")
    config = eval(inside, {"helion": helion})
    assert isinstance(config, helion.Config)
    assert not list(Path().rglob("_helion_aot_*"))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["export", "ops.py:product", *SHAPE], "--output"),
        (["export", "--output", "out"], "--list"),
        (["export", "ops.py:product", "--list", "x", "--output", "out"], "one of"),
        (["export", "ops.py:product", "--output", "out"], "--shape"),
        (["export", "--list", "absent.toml", "--output", "out"], "absent.toml"),
        (
            ["export", "ops.py:product", *SHAPE, "--size", "x", "--output", "o"],
            "--size",
        ),
        (["export", "ops.py:other", *SHAPE, "--output", "out"], "other"),
        (
            ["export", "ops.py:product", "--shape", "bf16[2]", "--output", "out"],
            "product",
        ),
    ],
)
def test_wrong_use_ends_with_one_line_and_writes_nothing(
    ops: str, command: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("costmodel: ")
    assert words in error
    assert not Path("out").exists()


def test_a_config_without_code_is_passed_over_and_too_few_is_an_error(
    ops: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = load_kernel(ops)
    sizes = {"tokens": [16, 4096]}
    cases = make_cases(["bf16[tokens,1024]", "bf16[1024,2048]"], sizes)
    made: list[LossTable] = []
    plain = export_plan.make_loss_table

    def once(*args: Any, **options: Any) -> LossTable:
        if not made:
            made.append(plain(*args, **options))
        return made[0]

    monkeypatch.setattr(export_plan, "make_loss_table", once)
    plan = plan_export(kernel, cases, H200, Provider(), max_configs=2)
    own = made[0].own
    monkeypatch.setattr(
        LossTable, "generates", lambda _s, row, column: column != own[row]
    )
    other = plan_export(kernel, cases, H200, Provider(), max_configs=2)
    for row, entry in enumerate(other.entries):
        chosen = other.configs[entry.index]
        assert chosen != portable(made[0].configs[own[row]])
    assert other.mean_loss_log >= plan.mean_loss_log == 0.0
    # Helion 1.4 refuses a knob that the best config needs.
    monkeypatch.setattr(LossTable, "generates", lambda *_args: True)
    for column in set(own):
        made[0].configs[column]["host_tensor_descriptors"] = True
    older = plan_export(kernel, cases, H200, Provider(), max_configs=2, for_older=True)
    assert all("host_tensor_descriptors" not in config for config in older.configs)
    newer = plan_export(kernel, cases, H200, Provider(), max_configs=2)
    assert all("host_tensor_descriptors" in config for config in newer.configs)
    monkeypatch.setattr(LossTable, "generates", lambda *_args: False)
    with pytest.raises(NoCommonConfigError, match="allow more"):
        plan_export(kernel, cases, H200, Provider(), max_configs=1)


def test_idle_knobs_of_newer_helions_are_left_out() -> None:
    idle = {"host_tensor_descriptors": False, "cross_loop_pipeline": "barrier"}
    assert portable({"num_warps": 4, **idle}) == {"num_warps": 4}
    active = {"host_tensor_descriptors": True, "num_stages": 0}
    assert portable(active) == active
