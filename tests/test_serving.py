"""An engine that switches kernels off for want of a file gets it, and keeps nothing.

The engine below is ours: it has the pattern of engines that look every kernel's config
up in a file per kernel and GPU, and none of their code.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import helion
import helion.language as hl
import pytest
import torch
from helion.autotuner.base_search import BaseAutotuner

from costmodel import serving
from costmodel.arguments import parse_argument
from costmodel.errors import ExportError
from costmodel.hardware import load_hardware
from costmodel.provider import DISABLE_VARIABLE
from costmodel.serving import fill_missing
from costmodel.serving import served
from costmodel.serving import write_missing
from costmodel.target import bind
from costmodel.target import targeting

H200 = load_hardware("H200")


def gate_up(x: torch.Tensor) -> torch.Tensor:
    tokens, double = x.size()
    width = hl.specialize(double // 2)
    out = torch.empty([tokens, width], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([tokens, width]):
        left = x[rows, columns].to(torch.float32)
        right = x[rows, columns.index + width].to(torch.float32)
        out[rows, columns] = (left * torch.sigmoid(left) * right).to(x.dtype)
    return out


def scaled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        row = x[rows, :].to(torch.float32)
        out[rows, :] = (row * torch.rsqrt((row * row).mean(-1))[:, None]).to(x.dtype)
    return out


class Preset(BaseAutotuner):
    """Answers with the config it was made with."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = helion.Config(**config)

    def autotune(self, *, skip_cache: bool = False) -> helion.Config:
        return self._config


class Engine:
    """Builds kernels around files; one without a file is switched off."""

    def __init__(self, folder: Path, gpu: str) -> None:
        self._folder = folder
        self._gpu = gpu
        self.kernels: dict[str, Any] = {}

    def add(self, name: str, fn: Callable[..., Any], key_of: Any) -> None:
        path = self._folder / name / f"{self._gpu}.json"
        if not path.exists():
            warnings.warn(f"{name} is off: no configs available", stacklevel=2)
            return
        entries = json.loads(path.read_text())

        def find(*args: Any) -> dict[str, Any]:
            wanted = key_of(*args)
            better = [
                entry
                for entry in entries
                if entry["key"]
                and entry["key"]["width"] == wanted["width"]
                and entry["key"]["tokens"] >= wanted["tokens"]
            ]
            if better:
                return min(better, key=lambda entry: entry["key"]["tokens"])
            return next(entry for entry in entries if entry["key"] == {})

        self.kernels[name] = helion.kernel(
            fn,
            autotuner_fn=lambda bound, args: Preset(find(*args)["config"]),
            key=lambda *args: json.dumps(find(*args)["key"]),
            static_shapes=False,
        )


def key_of_gate_up(x: torch.Tensor) -> dict[str, int]:
    return {"width": x.size(1) // 2, "tokens": x.size(0)}


def key_of_scaled(x: torch.Tensor) -> dict[str, int]:
    return {"width": x.size(1), "tokens": x.size(0)}


TUNED = [{"key": {}, "config": {"block_sizes": [2], "num_warps": 4}}]
SIZES = {"tokens": [8, 2048], "width": [1024]}
KERNELS = (
    served("gate_up", gate_up, ["bf16[tokens,2*width]"], SIZES, max_configs=2),
    served("scaled", scaled, ["bf16[tokens,width]"], SIZES, max_configs=1),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An engine's configs: one kernel tuned for another GPU, one for ours."""
    for name, gpu in (("gate_up", "nvidia_h100"), ("scaled", "nvidia_h200")):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{gpu}.json").write_text(json.dumps(TUNED))
    return tmp_path


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def start(folder: Path) -> Engine:
    engine = Engine(folder, "nvidia_h200")
    engine.add("gate_up", gate_up, key_of_gate_up)
    engine.add("scaled", scaled, key_of_scaled)
    return engine


def test_a_switched_off_kernel_runs_with_a_predicted_config(folder: Path) -> None:
    before = tree(folder)
    with pytest.warns(UserWarning, match="gate_up is off"):
        assert set(start(folder).kernels) == {"scaled"}
    with fill_missing(folder, KERNELS, gpu="H200") as written:
        assert written == (folder / "gate_up" / "nvidia_h200.json",)
        engine = start(folder)
        entries = json.loads(written[0].read_text())
    assert tree(folder) == before
    # The engine lives on after the block, with what it has read.
    assert [entry["key"] for entry in entries] == [
        {},
        {"tokens": 8, "width": 1024},
        {"tokens": 2048, "width": 1024},
    ]
    kernel = engine.kernels["gate_up"]
    for tokens, entry in ((5, entries[1]), (8, entries[1]), (1000, entries[2])):
        with targeting(H200):
            bound = bind(kernel, [parse_argument(f"bf16[{tokens},2048]")], H200)
            example = (torch.empty(tokens, 2048, device="meta"),)
            config = bound.settings.autotuner_fn(bound, example).autotune()
            assert dict(config) == entry["config"]
            assert "triton.jit" in bound.to_triton_code(config)
    assert len({json.dumps(entry["config"]) for entry in entries}) <= 2


def test_the_folder_is_restored_even_if_the_engine_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast(monkeypatch)
    unknown = served("new", scaled, ["bf16[tokens,width]"], SIZES)
    before = tree(folder)
    with (
        pytest.raises(ZeroDivisionError),
        fill_missing(folder, [*KERNELS, unknown], gpu="H200") as written,
    ):
        assert {path.parent.name for path in written} == {"gate_up", "new"}
        raise ZeroDivisionError
    assert tree(folder) == before


def test_what_somebody_tuned_meanwhile_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast(monkeypatch)
    with fill_missing(folder, KERNELS, gpu="H200") as (path,):
        path.write_text(json.dumps(TUNED))
    assert json.loads(path.read_text()) == TUNED


def test_a_file_that_appears_meanwhile_wins(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "gate_up" / "nvidia_h200.json"
    fast(monkeypatch, lambda: path.write_text(json.dumps(TUNED)))
    with fill_missing(folder, KERNELS, gpu="H200") as written:
        assert written == ()
    assert json.loads(path.read_text()) == TUNED
    assert not list(folder.rglob("*.part"))


def test_nothing_happens_where_nothing_is_missing_or_we_are_off(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_args: object, **_options: object) -> None:
        raise AssertionError("nothing was to be planned")

    monkeypatch.setattr(serving, "plan_export", never)
    before = tree(folder)
    assert write_missing(folder, KERNELS[1:], gpu="H200") == ()
    monkeypatch.setenv(DISABLE_VARIABLE, "1")
    assert write_missing(folder, KERNELS, gpu="H200") == ()
    assert tree(folder) == before


def test_a_kernel_that_cannot_be_planned_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[None] = []

    def fail_second() -> None:
        calls.append(None)
        if len(calls) == 2:
            raise ExportError("no such shape")

    fast(monkeypatch, fail_second)
    unknown = served("new", scaled, ["bf16[tokens,width]"], SIZES)
    before = tree(folder)
    with pytest.raises(ExportError):
        write_missing(folder, [*KERNELS, unknown], gpu="H200")
    assert tree(folder) == before
    with pytest.raises(ExportError, match="config folder"):
        write_missing(folder / "absent", KERNELS, gpu="H200")


def fast(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[], object] = lambda: None
) -> None:
    """Plan without binding anything: only files matter here."""
    from costmodel.export_plan import ExportEntry
    from costmodel.export_plan import KernelExport

    def plan(
        _kernel: Any, cases: Any, hardware: Any, _provider: Any, **options: Any
    ) -> KernelExport:
        before()
        entries = tuple(ExportEntry(case, 0, 0.0, "default") for case in cases)
        config = {"block_sizes": [1]}
        name = options["name"]
        return KernelExport(name, hardware, (config,), entries, 0, 0, (), True, None)

    monkeypatch.setattr(serving, "plan_export", plan)
