"""Kernels that are somebody else's: answered for within a block, then as they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helion
import pytest
from helion.autotuner.base_search import BaseAutotuner
from helion.runtime.kernel import BoundKernel
from helion_rig import Rig
from helion_rig import answer_with
from helion_rig import rig

import costmodel
from costmodel import helion_hook
from costmodel.errors import KernelFileError
from costmodel.errors import WrongArgumentError
from costmodel.types import Config

pytestmark = pytest.mark.helion

METHOD = "ensure_config_exists"
SHAPE = (512, 1024)
OURS, THEIRS, DEFAULT = 2, 16, 4  # warps


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr("costmodel.process_provider._PROVIDER", None)
    before = vars(BoundKernel)[METHOD]
    with rig(tmp_path, monkeypatch) as made:
        answer_with(monkeypatch, _ours)
        yield made
    costmodel.disable()
    assert vars(BoundKernel)[METHOD] is before


def _ours(bound: Any) -> Config:
    return {**helion_hook.default_config(bound), "num_warps": OURS}


def _engine_kernel(one: Rig, **settings: Any) -> Any:
    """As engines build them: a look-up of their own, which takes no options."""

    class Preset(BaseAutotuner):
        def __init__(self, args: Any) -> None:
            self.args = args

        def autotune(self, *, skip_cache: bool = False) -> Any:
            return helion.Config(block_sizes=[1, 1024], num_warps=THEIRS)

    made = {"static_shapes": False, "autotuner_fn": lambda _, args: Preset(args)}
    return one.kernel(**{**made, **settings})


def test_within_the_block_we_answer_and_after_it_the_owner_does(one: Rig) -> None:
    kernel, args = _engine_kernel(one), one.args(SHAPE)
    settings = kernel.settings.to_dict()
    with costmodel.override(kernel):
        assert one.call(kernel, args)["num_warps"] == OURS
        assert kernel.settings.to_dict() == settings
    assert one.call(kernel, args)["num_warps"] == THEIRS
    assert costmodel.stats() == {"gain_certain": 1}


def test_a_config_that_was_there_comes_back_as_it_was(one: Rig) -> None:
    kernel, args = _engine_kernel(one), one.args(SHAPE)
    assert one.call(kernel, args)["num_warps"] == THEIRS
    bound = one.bound(kernel, args)
    before = (bound._config, bound._run)
    with costmodel.override(kernel):
        assert one.call(kernel, args)["num_warps"] == OURS
    assert bound._config is before[0] and bound._run is before[1]


def test_other_kernels_are_not_touched(one: Rig) -> None:
    kernel, other = _engine_kernel(one), _engine_kernel(one)
    args = one.args(SHAPE)
    with costmodel.override(kernel):
        assert one.call(other, args)["num_warps"] == THEIRS
    assert "stepped_aside" not in costmodel.stats()


def test_overrides_nest_and_come_before_enable(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, own = _engine_kernel(one), one.kernel(autotune_effort="none")
    args = one.args(SHAPE)
    costmodel.enable()
    assert one.call(kernel, args)["num_warps"] == THEIRS
    assert one.call(own, args)["num_warps"] == OURS
    with costmodel.override(kernel, own):
        assert one.call(kernel, args)["num_warps"] == OURS
        answer_with(
            monkeypatch,
            lambda bound: {**helion_hook.default_config(bound), "num_stages": 3},
        )
        with costmodel.override(kernel, mode="verify"):
            one.call(kernel, args)
        assert one.call(kernel, args)["num_warps"] == OURS
        costmodel.disable()
        assert one.call(kernel, args)["num_warps"] == OURS
    assert one.call(kernel, args)["num_warps"] == THEIRS


def test_what_enable_answered_twice_goes_when_disabled(one: Rig) -> None:
    kernel, args = one.kernel(autotune_effort="none"), one.args(SHAPE)
    costmodel.enable()
    assert one.call(kernel, args)["num_warps"] == OURS
    costmodel.enable("verify")
    costmodel.disable()
    assert one.call(kernel, args)["num_warps"] == DEFAULT


def test_an_error_inside_restores_all_the_same(one: Rig) -> None:
    kernel, args = _engine_kernel(one), one.args(SHAPE)
    with pytest.raises(ZeroDivisionError), costmodel.override(kernel):
        raise ZeroDivisionError
    assert one.call(kernel, args)["num_warps"] == THEIRS


def test_a_config_of_the_authors_stays(one: Rig) -> None:
    config = helion.Config(block_sizes=[1, 1024], num_warps=8)
    kernel = _engine_kernel(one, config=config)
    with costmodel.override(kernel):
        assert one.call(kernel, one.args(SHAPE))["num_warps"] == 8


def test_no_kernel_at_all_is_a_mistake() -> None:
    with (
        pytest.raises(WrongArgumentError, match="found none"),
        costmodel.override(),
    ):
        pass


def test_only_kernels_can_be_named() -> None:
    with (
        pytest.raises(KernelFileError, match="found object"),
        costmodel.override(object()),
    ):
        pass
    with (
        pytest.raises(ValueError, match="expected a mode"),
        costmodel.override(mode=""),
    ):
        pass
