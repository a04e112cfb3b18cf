"""Enabling for a whole process, and that disabling leaves nothing behind."""

from __future__ import annotations

import logging
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helion.runtime.kernel import BoundKernel
from helion_rig import Rig
from helion_rig import StubProvider
from helion_rig import answer_with
from helion_rig import product
from helion_rig import rig

import costmodel
from costmodel import autoload
from costmodel import helion_hook
from costmodel.enabling import Action
from costmodel.enabling import plan_for
from costmodel.helion_hook import support
from costmodel.provider import Provider
from costmodel.types import Config

pytestmark = pytest.mark.helion

METHOD = "ensure_config_exists"
SHAPE = (2048, 4096)


def _ours(bound: Any) -> Config:
    return {**helion_hook.default_config(bound), "num_warps": 2}


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr("costmodel.process_provider._PROVIDER", None)
    with rig(tmp_path, monkeypatch) as made:
        yield made
    costmodel.disable()


def test_disable_restores_the_very_function() -> None:
    before = vars(BoundKernel)[METHOD]
    finders = list(sys.meta_path)
    costmodel.enable()
    costmodel.enable("verify", user_lists=True)
    assert vars(BoundKernel)[METHOD] is not before
    assert helion_hook.is_installed()
    costmodel.disable()
    assert vars(BoundKernel)[METHOD] is before
    assert sys.meta_path == finders
    assert not helion_hook.is_installed()
    costmodel.disable()
    assert vars(BoundKernel)[METHOD] is before


def test_a_kernel_returns_to_helions_choice_when_disabled(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(monkeypatch, _ours)
    kernel, args = one.kernel(autotune_effort="none"), one.args(SHAPE)
    own, others = one.kernel(autotune_effort="none"), one.args((64, 64))
    helions = one.call(own, others)
    costmodel.enable()
    assert one.call(kernel, args)["num_warps"] == 2
    assert one.call(own, others) == helions  # it had a config before
    costmodel.disable()
    assert one.call(kernel, args)["num_warps"] == 4


def test_a_wrapper_around_ours_is_not_torn_off(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(monkeypatch, _ours)
    before = vars(BoundKernel)[METHOD]
    costmodel.enable()
    ours = vars(BoundKernel)[METHOD]

    def theirs(self: Any, args: Any) -> None:
        ours(self, args)

    try:
        setattr(BoundKernel, METHOD, theirs)
        costmodel.disable()
        assert vars(BoundKernel)[METHOD] is theirs
        kernel = one.kernel(autotune_effort="none")
        assert one.call(kernel, one.args(SHAPE))["num_warps"] == 4
        # Enabled again, only the new wrapper asks.
        costmodel.enable()
        again = one.kernel(autotune_effort="none")
        assert one.call(again, one.args(SHAPE))["num_warps"] == 2
        assert costmodel.stats() == {"gain_certain": 1}
        costmodel.disable()
        assert vars(BoundKernel)[METHOD] is theirs
    finally:
        setattr(BoundKernel, METHOD, before)


def test_predictions_leave_no_trace_in_helions_cache(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(monkeypatch, _ours)
    costmodel.enable()
    for effort in ("none", "quick", "full"):
        one.call(one.kernel(autotune_effort=effort), one.args(SHAPE))
    costmodel.enable("verify")
    one.call(one.kernel(), one.args(SHAPE))
    assert StubProvider.measured
    assert not list(one.folder.rglob("*.best_config"))


@pytest.mark.parametrize("effort", ["none", "quick", "full"])
def test_a_tuned_entry_wins_where_its_key_needs_descriptor_guards(
    one: Rig, monkeypatch: pytest.MonkeyPatch, effort: str
) -> None:
    # At effort none Helion keys this kernel by its default's accesses alone.
    answer_with(monkeypatch, _ours)
    args = one.args((512, 1024), (1024, 2048))
    tuned = helion_hook.default_config(one.bound(one.kernel(product), args))
    n_accesses = len(tuned["indexing"])
    tuned |= {"num_warps": 16, "indexing": ["tensor_descriptor"] * n_accesses}
    one.tune(one.kernel(product), args, tuned)
    costmodel.enable()
    kernel = one.kernel(product, autotune_effort=effort)
    assert one.call(kernel, args)["num_warps"] == 16
    assert costmodel.stats() == {"tuned_entry": 1}
    # Descriptors demand alignment, so other arguments must not meet this program,
    # where Helion itself tells them apart (since 1.5).
    shifted = one.args((512, 1024), (1024, 2048), offset=1)
    usual = one.kernel(product)
    with one.mode:
        apart = usual.bind(shifted) is not usual.bind(args)
        assert (kernel.bind(shifted) is not kernel.bind(args)) == apart
        assert kernel.bind(args) is kernel.bind(args)


def test_one_line_for_a_kernel_and_silence_afterwards(
    one: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer_with(monkeypatch, _ours)
    costmodel.enable()
    kernel = one.kernel()
    with caplog.at_level(logging.INFO, logger="costmodel"):
        for rows in (64, 128, 256):
            one.call(kernel, one.args((rows, 4096)))
        costmodel.pick(one.bound(kernel, one.args((64, 4096))))
    lines = [r.getMessage() for r in caplog.records if r.name == "costmodel"]
    assert len(lines) == 1
    assert lines[0].startswith("costmodel: twice: learned (gain_certain, 1.50x")
    assert costmodel.stats() == {"gain_certain": 4}


def test_an_unknown_helion_goes_on_alone_and_is_named_once(
    one: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    versions = {**helion_hook.installed_versions(), "helion": "9.9.9"}
    monkeypatch.setattr(support, "installed_versions", lambda: versions)
    costmodel.enable()
    with caplog.at_level(logging.INFO, logger="costmodel"):
        for rows in (64, 128):
            kernel = one.kernel(autotune_effort="none")
            assert one.call(kernel, one.args((rows, 4096)))["num_warps"] == 4
    (line,) = [r.getMessage() for r in caplog.records if r.name == "costmodel"]
    assert "9.9.9" in line
    assert costmodel.stats() == {"stepped_aside": 2}


def test_threads_get_the_same_answer_and_ask_once_for_a_kernel(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def noted(bound: Any) -> Config:
        asked.append(bound)
        return _ours(bound)

    answer_with(monkeypatch, noted)
    bound = one.bound(one.kernel(), one.args(SHAPE))
    owner = Provider()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: owner.pick(bound), range(64)))
    assert len({id(answer.config) for answer in answers}) <= len(asked) <= 8
    assert all(answer == answers[0] for answer in answers)
    assert owner.stats() == {"gain_certain": 64}


def test_the_plan_keeps_out_of_what_is_not_ours() -> None:
    usual = {
        "effort": "full",
        "n_user_configs": 0,
        "is_default_autotuner": True,
        "is_forced": False,
        "is_disallowed": False,
        "asserts_cache_hit": False,
        "hands_off": False,
        "aot_mode": None,
        "is_reference": False,
        "backend": "triton",
    }

    def action(**changes: Any) -> Action:
        situation = helion_hook.Situation(**{**usual, **changes})
        return plan_for(situation, user_lists=False).action

    assert action() is Action.ANSWER
    assert action(backend="cute") is Action.LEAVE
    assert action(hands_off=True) is Action.LEAVE
    assert action(aot_mode="measure") is Action.LEAVE
    assert action(aot_mode="evaluate") is Action.ANSWER
    # At effort none Helion asks no autotuner, so its owner does not matter.
    assert action(effort="none", is_default_autotuner=False) is Action.ANSWER


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("predict", ("predict", {})),
        ("1", ("predict", {})),
        ("Verify, user_lists", ("verify", {"user_lists": True})),
        (
            "seed,verify_output,user_lists",
            ("seed", {"verify_output": True, "user_lists": True}),
        ),
    ],
)
def test_the_variable_names_a_mode_and_options(value: str, expected: Any) -> None:
    assert autoload.parse(value) == expected


@pytest.mark.parametrize("value", ["fast", "predict,quickly", "predict verify"])
def test_a_wrong_variable_is_said_and_ignored(
    value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(autoload.ENABLE_VARIABLE, value)
    autoload.activate()
    assert not helion_hook.is_installed()
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_variable_enables_a_kernel_that_does_not_know_us(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(monkeypatch, _ours)
    monkeypatch.setenv(autoload.ENABLE_VARIABLE, "predict")
    autoload.activate()
    assert one.call(one.kernel(), one.args(SHAPE))["num_warps"] == 2


def test_torch_is_told_where_to_start_us() -> None:
    pyproject = Path(__file__).resolve().parents[1] / "pyproject.toml"
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["torch.backends"] == {
        "costmodel": "costmodel.autoload:activate"
    }


_BEFORE_HELION = """
import os, sys
os.environ["COSTMODEL_ENABLE"] = "predict"
from costmodel import autoload
autoload.activate()
assert not {"helion", "torch", "xgboost"} & set(sys.modules), "something heavy"
import helion
from helion.runtime.kernel import BoundKernel
method = vars(BoundKernel)["ensure_config_exists"]
assert hasattr(method, "__wrapped__"), "not wrapped"
import costmodel
costmodel.disable()
assert vars(BoundKernel)["ensure_config_exists"] is method.__wrapped__
print("as promised")
"""


def test_enabling_before_helion_is_imported_waits_for_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BEFORE_HELION], capture_output=True, text=True
    )
    assert done.stdout == "as promised\n", done.stderr
