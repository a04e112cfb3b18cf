"""A predicted config that Triton or the GPU refuses: Helion's default takes over."""

from __future__ import annotations

import logging
import types
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helion
import helion.language as hl
import helion.runtime
import pytest
import torch
from helion_rig import Rig
from helion_rig import answer_with
from helion_rig import rig
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

import costmodel
from costmodel import helion_hook
from costmodel.helion_hook.first_run import guard_first_run
from costmodel.types import Config

pytestmark = pytest.mark.helion

SHAPE = (512, 1024)
OURS = 2  # warps of our pick; Helion's default has four
DEFAULT = 4


def halve(x: torch.Tensor) -> torch.Tensor:
    """Only this file launches it, so that its programs take this file's launcher."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] / 2
    return out


class Launcher:
    """Fails as told, by the number of warps; notes what it was asked to launch."""

    def __init__(self) -> None:
        self.errors: dict[int, Exception] = {}
        self.asked: list[int] = []

    def __call__(self, *_args: Any, num_warps: int, **_options: Any) -> None:
        self.asked.append(num_warps)
        if num_warps in self.errors:
            raise self.errors[num_warps]


LAUNCHER = Launcher()


def _launch(*args: Any, **options: Any) -> None:
    LAUNCHER(*args, **options)


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr("costmodel.process_provider._PROVIDER", None)
    with rig(tmp_path, monkeypatch) as made:
        monkeypatch.setattr(helion.runtime, "default_launcher", _launch)
        LAUNCHER.__init__()  # type: ignore[misc]
        answer_with(monkeypatch, _ours)
        yield made
    costmodel.disable()


def _ours(bound: Any) -> Config:
    return {**helion_hook.default_config(bound), "num_warps": OURS}


def _kernel(one: Rig, way: str) -> Any:
    if way == "autotuner":
        return one.kernel(halve, autotuner_fn=costmodel.autotuner())
    costmodel.enable()
    return one.kernel(halve, autotune_effort=way)


def _too_big() -> Exception:
    return OutOfResources(400_000, 232_448, "shared memory")


WAYS = ("autotuner", "full", "none")


@pytest.mark.parametrize("way", WAYS)
def test_the_default_runs_where_our_pick_does_not_launch(
    one: Rig, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    kernel, args = _kernel(one, way), one.args(SHAPE)
    LAUNCHER.errors[OURS] = _too_big()
    with caplog.at_level(logging.WARNING, "costmodel"):
        assert one.call(kernel, args)["num_warps"] == DEFAULT
        assert one.call(kernel, args)["num_warps"] == DEFAULT
    assert LAUNCHER.asked == [OURS, DEFAULT, DEFAULT]
    assert costmodel.stats() == {"gain_certain": 1, "launch_refused": 1}
    said = [r.getMessage() for r in caplog.records if "does not launch" in r.msg]
    assert len(said) == 1 and "out of resource" in said[0]


@pytest.mark.parametrize("way", WAYS)
def test_a_pick_that_runs_leaves_helions_own_program_behind(one: Rig, way: str) -> None:
    kernel, args = _kernel(one, way), one.args(SHAPE)
    assert one.call(kernel, args)["num_warps"] == OURS
    bound = one.bound(kernel, args)
    assert bound._run is bound.compile_config(bound._config)
    assert "set_config" not in vars(bound)
    one.call(kernel, args)
    assert LAUNCHER.asked == [OURS, OURS]
    assert costmodel.stats() == {"gain_certain": 1}


def test_a_second_failure_is_the_defaults_and_never_loops(one: Rig) -> None:
    kernel, args = _kernel(one, "autotuner"), one.args(SHAPE)
    LAUNCHER.errors[OURS] = _too_big()
    theirs = OutOfResources(300_000, 232_448, "shared memory")
    LAUNCHER.errors[DEFAULT] = theirs
    with pytest.raises(OutOfResources) as raised:
        one.call(kernel, args)
    assert raised.value is theirs
    with pytest.raises(OutOfResources):
        one.call(kernel, args)
    assert LAUNCHER.asked == [OURS, DEFAULT, DEFAULT]
    assert costmodel.stats()["launch_refused"] == 1


@pytest.mark.parametrize(
    "error",
    [
        ValueError("an argument of the wrong kind"),
        RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
    ],
    ids=["the call's", "the device's", "memory", "memory of the driver's"],
)
def test_other_failures_stay_as_they_are(one: Rig, error: Exception) -> None:
    kernel, args = _kernel(one, "autotuner"), one.args(SHAPE)
    LAUNCHER.errors[OURS] = error
    for _attempt in range(2):
        with pytest.raises(type(error)) as raised:
            one.call(kernel, args)
        assert raised.value is error
    assert LAUNCHER.asked == [OURS, OURS]
    assert "launch_refused" not in costmodel.stats()
    LAUNCHER.errors.clear()
    assert one.call(kernel, args)["num_warps"] == OURS


def test_disabling_takes_the_default_back_too(one: Rig) -> None:
    kernel, args = _kernel(one, "none"), one.args(SHAPE)
    LAUNCHER.errors[OURS] = _too_big()
    one.call(kernel, args)
    bound = one.bound(kernel, args)
    assert bound._config is not None
    costmodel.disable()
    assert bound._config is None and bound._run is None
    assert one.call(kernel, args)["num_warps"] == DEFAULT


class _Bound:
    """A kernel whose programs are Python functions."""

    def __init__(self, programs: dict[int, Callable[..., Any]]) -> None:
        self.kernel = types.SimpleNamespace(name="test")
        self.config_spec = types.SimpleNamespace(
            default_config=lambda: helion.Config(num_warps=DEFAULT)
        )
        self._programs = programs
        self._config: Any = None
        self._run: Any = None

    def set_config(self, config: Any) -> None:
        self._config, self._run = config, self._programs[config.num_warps]


def _refuse(*_args: Any) -> None:
    raise CompilationError("", None, "no such layout")


def _guarded(ours: Callable[..., Any]) -> tuple[_Bound, list[int]]:
    refused: list[int] = []

    def default(x: Any, *, _launcher: Any = None) -> str:
        return "default"

    bound = _Bound({OURS: ours, DEFAULT: default})
    guard_first_run(bound, {"num_warps": OURS}, lambda: refused.append(1))
    bound.set_config(helion.Config(num_warps=OURS))
    return bound, refused


def test_what_was_launched_is_not_launched_again() -> None:
    done: list[str] = []

    def ours(x: Any, *, _launcher: Any = lambda f: f()) -> None:
        _launcher(lambda: done.append("first"))
        _launcher(_refuse)

    bound, refused = _guarded(ours)
    with pytest.raises(CompilationError):
        bound._run(torch.ones(2))
    assert done == ["first"] and refused == [1]
    assert bound._run(torch.ones(2)) == "default"


def test_arguments_that_host_code_has_written_to_are_not_written_to_again() -> None:
    def ours(x: Any, *, _launcher: Any = lambda f: f()) -> None:
        x.add_(1)
        _launcher(_refuse)

    bound, refused = _guarded(ours)
    x = torch.ones(2)
    with pytest.raises(CompilationError):
        bound._run(x)
    assert x.tolist() == [2.0, 2.0] and refused == [1]
    assert bound._run(x) == "default"


def test_errors_of_host_code_are_nobodys_config() -> None:
    def ours(x: Any, *, _launcher: Any = lambda f: f()) -> None:
        raise CompilationError("", None, "raised by the author")

    bound, refused = _guarded(ours)
    with pytest.raises(CompilationError, match="raised by the author"):
        bound._run(torch.ones(2))
    assert not refused and bound._config.num_warps == OURS


def test_another_config_and_other_programs_are_left_alone() -> None:
    def ours(x: Any) -> str:
        return "ours"

    bound, _ = _guarded(ours)
    assert bound._run is ours  # it takes no launcher
    guard_first_run(bound, {"num_warps": OURS}, lambda: None)
    bound.set_config(helion.Config(num_warps=DEFAULT))
    assert bound._run(None) == "default" and "set_config" not in vars(bound)
    guard_first_run(object(), {"num_warps": OURS}, lambda: None)
