"""Helion's own search stops at our limits and leaves nothing behind."""

from __future__ import annotations

import importlib
import json
import time
from typing import Any
from typing import ClassVar

import helion
import pytest
from bench_stub_worker import _Provider
from bench_stub_worker import stub_us
from torch._subclasses.fake_tensor import FakeTensorMode

from costmodel.arguments import parse_argument
from costmodel.hardware import load_hardware
from costmodel.helion_hook import aligned_fakes
from costmodel.helion_hook.quick_search import Searched
from costmodel.helion_hook.quick_search import quick_search
from costmodel.target import targeting

ARGS = ("bf16[64,512]", "bf16[64,512]", "7.5")
SETTINGS = {
    "autotune_log_level": 40,
    "autotune_precompile": None,
    "autotune_benchmark_subprocess": False,
    "autotune_progress_bar": False,
    "autotune_random_seed": 0,
}


class Turn:
    """Whether the GPU is ours, and how often it was given to others."""

    def __init__(self) -> None:
        self.is_ours = False
        self.given = 0

    def take(self) -> None:
        self.is_ours = True

    def give(self) -> None:
        self.given += self.is_ours
        self.is_ours = False


class Provider(_Provider):
    """Counts as Helion's own does, and notes every config."""

    tried: ClassVar[list[dict[str, Any]]] = []
    seconds_each = 0.0
    turn: ClassVar[Turn | None] = None

    def _benchmark_function(self, config: Any, fn: Any, **_: Any) -> float:
        assert self.turn is None or self.turn.is_ours
        self._autotune_metrics.num_configs_tested += 1
        self.tried.append(json.loads(json.dumps(config.config)))
        time.sleep(self.seconds_each)
        return super()._benchmark_function(config, fn)


def _search(
    max_configs: int, seconds: float, each_s: float = 0.0, turn: Turn | None = None
) -> tuple[Any, ...]:
    module = importlib.import_module("costmodel.datasets.workloads.gated_activation")
    case = next(one for one in module.CASES if one.name == "clamped_swiglu")
    provider = type(
        "P", (Provider,), {"tried": [], "seconds_each": each_s, "turn": turn}
    )
    beats: list[None] = []
    with targeting(load_hardware("H200")), aligned_fakes():
        mode = FakeTensorMode()
        args = [parse_argument(text).fake(mode) for text in ARGS]
        kernel = helion.kernel(case.kernel.fn, static_shapes=True)
        bound = kernel.bind(tuple(args))
        before = bound.settings.to_dict()
        found = quick_search(
            bound,
            args,
            SETTINGS,
            seconds=seconds,
            max_configs=max_configs,
            heartbeat=lambda: beats.append(None),
            provider_base=provider,
            turn=turn,
        )
        assert bound.settings.to_dict() == before
    assert beats
    return found, provider.tried


def test_it_stops_after_so_many_configs_and_keeps_the_best() -> None:
    found, tried = _search(max_configs=12, seconds=600.0)
    assert isinstance(found, Searched)
    assert 0 < len(tried) <= 12
    assert found.n_configs == len(tried)
    assert stub_us(found.config) == pytest.approx(min(map(stub_us, tried)))


def test_it_stops_after_so_many_seconds() -> None:
    found, tried = _search(max_configs=1000, seconds=1.0, each_s=0.2)
    assert 0 < len(tried) < 12
    assert found.seconds < 60.0


def test_it_times_in_its_turn_and_compiles_while_others_use_the_gpu() -> None:
    turn = Turn()
    found, tried = _search(max_configs=40, seconds=600.0, turn=turn)
    assert found.n_configs == len(tried) > 12
    assert turn.given >= 2  # once a batch at least
    assert not turn.is_ours
