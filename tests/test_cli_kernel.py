"""What `pick` prints can be pasted, and `explain` tells the change in words."""

from __future__ import annotations

import json
from pathlib import Path

import helion
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.cli import main
from costmodel.cli_kernel import changed_knobs
from costmodel.cli_kernel import decorator_line

KERNEL = """
import torch, helion
import helion.language as hl

@helion.kernel(static_shapes=True)
def twice(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size()):
        out[t] = x[t] * 2
    return out
"""

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)
CONFIGS = st.dictionaries(
    st.sampled_from(["block_sizes", "indexing", "num_warps", "pid_type"]), VALUES
)


@pytest.fixture
def kernel_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # The name lies on purpose: nothing may read it.
    (tmp_path / "matmul.py").write_text(KERNEL)
    monkeypatch.chdir(tmp_path)
    return "matmul.py:twice"


def test_the_printed_decorator_is_the_picked_config(
    kernel_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [kernel_file, "--arg", "bf16[4096,4096]", "--gpu", "H200", "--json"]
    assert main(["pick", *arguments]) == 0
    answer = json.loads(capsys.readouterr().out)
    inside = answer["decorator"].removeprefix("@helion.kernel(config=")
    config = eval(inside.removesuffix(")"), {"helion": helion})
    assert json.loads(config.to_json()) == answer["config"]
    assert answer["source"] in {"learned", "analytic", "default"}
    assert answer["detail"]


def test_explain_compares_pick_and_default(
    kernel_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", kernel_file, "--arg", "bf16[4096,4096]", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    quantities = {row["quantity"].strip() for row in answer["quantities"]}
    assert {"waves", "threads per program", "estimated time, us"} <= quantities


def test_a_gpu_of_another_architecture_gets_an_answer(
    kernel_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [kernel_file, "--arg", "bf16[4096,4096]", "--gpu", "A100", "--json"]
    assert main(["pick", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["source"] != "learned"


@given(CONFIGS)
def test_a_config_differs_from_itself_in_nothing(config: dict[str, object]) -> None:
    assert changed_knobs(config, config) == "the same config"


@given(CONFIGS, CONFIGS)
def test_every_changed_knob_is_named(
    one: dict[str, object], other: dict[str, object]
) -> None:
    words = changed_knobs(one, other)
    for key in {*one, *other}:
        assert (key in words) == (one.get(key) != other.get(key))


@given(CONFIGS)
def test_the_decorator_line_is_one_line_of_python(config: dict[str, object]) -> None:
    line = decorator_line(config)
    assert "\n" not in line
    compile(line + "\ndef kernel(): ...", "<pasted>", "exec")
