"""Kernels come from files by name, and a bad file is one clear line."""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path

import pytest

from costmodel.cli import main
from costmodel.errors import KernelFileError
from costmodel.kernel_file import load_kernel
from costmodel.kernel_file import told_if_slow

KERNELS = """
import helion
import helion.language as hl
import torch

@helion.kernel(static_shapes=False)
def twice(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out

def helper():
    return 1
"""


@pytest.fixture
def kernel_path(tmp_path: Path) -> Path:
    path = tmp_path / "my kernels.py"
    path.write_text(KERNELS)
    return path


def _message(reference: str) -> str:
    with pytest.raises(KernelFileError) as caught:
        load_kernel(reference)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_loads_by_name_and_alone(kernel_path: Path) -> None:
    kernel = load_kernel(f"{kernel_path}:twice")
    assert kernel.name == "twice"
    assert kernel.settings.static_shapes is False
    assert load_kernel(str(kernel_path)) is kernel


def test_generated_code_can_import_the_kernels_globals(kernel_path: Path) -> None:
    kernel = load_kernel(f"{kernel_path}:twice")
    assert sys.modules[kernel.fn.__module__].helper() == 1


def test_a_changed_file_is_read_again(kernel_path: Path) -> None:
    before = load_kernel(f"{kernel_path}:twice")
    kernel_path.write_text(KERNELS.replace("* 2", "* 4"))
    after = load_kernel(f"{kernel_path}:twice")
    assert after is not before
    assert "* 4" in after.kernel_source()


def test_a_file_may_import_its_neighbour_and_the_path_is_left_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "neighbour_of_kernels.py").write_text(KERNELS)
    path = tmp_path / "main.py"
    path.write_text("from neighbour_of_kernels import twice\n")
    before = list(sys.path)
    assert load_kernel(f"{path}:twice").name == "twice"
    assert sys.path == before


def test_missing_file() -> None:
    assert "there is no file nowhere.py" in _message("nowhere.py:k")


def test_folder_and_other_suffix(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    for reference in (f"{tmp_path}:k", f"{text}:k", str(text), "g.bin:mm"):
        assert "ends in .py" in _message(reference)


def test_unknown_name_lists_what_there_is(kernel_path: Path) -> None:
    message = _message(f"{kernel_path}:helper")
    assert "'helper'" in message and "found twice" in message


def test_a_file_that_hangs_is_named_and_ctrl_c_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = threading.Event()

    class Screen(io.StringIO):
        def write(self, text: str) -> int:
            count = super().write(text)
            said.set()
            return count

    screen = Screen()
    monkeypatch.setattr("costmodel.kernel_file.SLOW_IMPORT_S", 0.0)
    with monkeypatch.context() as patched:
        patched.setattr("sys.stderr", screen)
        with told_if_slow(Path("slow.py")):
            assert said.wait(30.0)
    assert "slow.py: still being imported; Ctrl-C" in screen.getvalue()
    monkeypatch.setattr("costmodel.kernel_file.SLOW_IMPORT_S", 600.0)
    stopped = tmp_path / "stopped.py"
    stopped.write_text("raise KeyboardInterrupt\n")
    assert main(["pick", f"{stopped}:k", "--arg", "bf16[8]"]) == 130
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_several_kernels_need_a_name(kernel_path: Path) -> None:
    kernel_path.write_text(KERNELS + KERNELS.replace("twice", "thrice"))
    assert "exactly one kernel" in _message(str(kernel_path))


@pytest.mark.parametrize(
    ("content", "line", "why"),
    [
        ("x = 1\nimport no_such_module_anywhere\n", 2, "ModuleNotFoundError"),
        ("def broken(:\n", 1, "SyntaxError"),
        ("\n\nraise SystemExit(3)\n", 3, "SystemExit"),
        ("def f():\n    raise ValueError('a\\nb')\nf()\n", 2, "ValueError: a b"),
    ],
)
def test_a_file_that_does_not_import(
    content: str, line: int, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(content)
    loaded = set(sys.modules)
    message = _message(f"{path}:k")
    assert f"broken.py:{line}" in message and why in message
    assert not {name for name in set(sys.modules) - loaded if "broken" in name}
