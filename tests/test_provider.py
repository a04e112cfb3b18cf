"""The provider's promises: never break a compile, and say who decided and why."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import helion
import helion.language as hl
import pytest
import torch

import costmodel
from costmodel import helion_hook
from costmodel import process_provider
from costmodel import provider as provider_module
from costmodel.arguments import parse_argument
from costmodel.errors import WrongArgumentError
from costmodel.features.graph import KernelGraph
from costmodel.hardware import load_hardware
from costmodel.pick_cache import MISSING
from costmodel.pick_cache import PickCache
from costmodel.provider import Provider
from costmodel.target import bind
from costmodel.types import PickSource
from costmodel.types import ReasonCode

pytestmark = pytest.mark.helion


@helion.kernel(static_shapes=True)
def scale_rows(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :].to(torch.float32)
        norm = torch.rsqrt((row * row).mean(-1) + 1e-6)
        out[tile, :] = (row * norm[:, None] * w[:].to(torch.float32)).to(x.dtype)
    return out


def bound_for(gpu: str = "H200", kernel: Any = scale_rows) -> Any:
    specs = [parse_argument(text) for text in ("bf16[2048,4096]", "bf16[4096]")]
    return bind(kernel, specs, load_hardware(gpu))


@pytest.fixture(scope="module")
def bound() -> Any:
    return bound_for()


def assert_is_helions_default(answer: costmodel.Pick, bound: Any) -> None:
    assert answer.source is PickSource.DEFAULT
    assert answer.config == helion_hook.default_config(bound)


def test_a_missing_model_leaves_helions_default(bound: Any, tmp_path: Path) -> None:
    answer = Provider(tmp_path / "none.ubj").pick(bound)
    assert_is_helions_default(answer, bound)
    assert answer.reason is ReasonCode.NO_MODEL


@pytest.mark.parametrize(
    ("trees", "card"),
    [
        (b"", b""),
        (b"not a model", b"{}"),
        (b"\x00" * 4096, b"\xff\xfe"),
        (b"{}", b'{"schema_hash": 3}'),
    ],
)
def test_a_poisoned_model_leaves_helions_default(
    bound: Any, tmp_path: Path, trees: bytes, card: bytes
) -> None:
    path = tmp_path / "poisoned.ubj"
    path.write_bytes(trees)
    path.with_suffix(".json").write_bytes(card)
    answer = Provider(path).pick(bound)
    assert_is_helions_default(answer, bound)
    assert answer.reason is ReasonCode.MODEL_REFUSED
    assert str(path.stem) in answer.detail


def test_an_unreadable_kernel_leaves_helions_default(
    bound: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(view: Any, *args: Any) -> Any:
        return {"nodes": "nonsense"}

    record = helion_hook.record_of(bound)
    damaged = type(record)(
        **{
            name: getattr(record, name)
            for name in type(record).__dataclass_fields__
            if name != "ir_graph"
        },
        ir_graph={"nodes": "nonsense"},
    )
    view = helion_hook.view(bound)
    fields = {name: getattr(view, name) for name in type(view).__dataclass_fields__}
    monkeypatch.setattr(
        helion_hook, "view", lambda *a: type(view)(**(fields | {"record": damaged}))
    )
    answer = Provider().pick(bound)
    assert_is_helions_default(answer, bound)
    assert answer.reason is ReasonCode.UNKNOWN_KERNEL


def test_an_exception_of_ours_leaves_helions_default_and_is_counted(
    bound: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: Any) -> Any:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(KernelGraph, "from_record", explode)
    owner = Provider()
    answer = owner.pick(bound)
    assert_is_helions_default(answer, bound)
    assert answer.reason is ReasonCode.INTERNAL_ERROR
    assert owner.stats() == {"internal_error": 1}


def test_strict_mode_lets_our_errors_surface(
    bound: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: Any) -> Any:
        raise ZeroDivisionError("ours")

    monkeypatch.setenv("COSTMODEL_STRICT", "1")
    monkeypatch.setattr(KernelGraph, "from_record", explode)
    with pytest.raises(ZeroDivisionError):
        Provider().pick(bound)


def test_the_environment_switches_everything_off(
    bound: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSTMODEL_DISABLE", "1")
    answer = costmodel.pick(bound)
    assert_is_helions_default(answer, bound)
    assert answer.reason is ReasonCode.DISABLED


def test_without_a_rule_a_missing_model_still_means_helions_default(
    tmp_path: Path,
) -> None:
    bound = bound_for("A100")
    answer = Provider(tmp_path / "none.ubj").pick(bound)
    assert_is_helions_default(answer, bound)
    assert answer.reason is ReasonCode.NO_MODEL


def test_without_a_rule_of_helions_the_analytic_pick_decides() -> None:
    # Helion 1.5 promotes no rule on sm80, so its default there is a guess.
    bound = bound_for("A100")
    assert not helion_hook.view(bound).promoted
    answer = Provider().pick(bound)
    assert answer.source is PickSource.ANALYTIC
    assert answer.reason is ReasonCode.OUT_OF_RANGE
    assert helion_hook.is_legal(bound, answer.config)
    assert "def " in helion_hook.triton_code(bound, answer.config)


def test_interpret_mode_is_left_alone(tmp_path: Path) -> None:
    kernel = helion.kernel(
        scale_rows.fn, ref_mode=helion.RefMode.EAGER, static_shapes=True
    )
    bound = kernel.bind((torch.zeros(4, 8), torch.zeros(8)))
    refusal = helion_hook.refusal(bound)
    assert refusal is not None and refusal.code is ReasonCode.INTERPRET_MODE


def test_picks_repeat_to_the_byte(bound: Any) -> None:
    first = Provider().pick(bound)
    second = Provider().pick(bound_for())
    assert first.model_id is not None
    assert json.dumps(first.config) == json.dumps(second.config)
    assert first.shortlist == second.shortlist


def test_a_forked_child_gives_the_same_pick(bound: Any) -> None:
    owner = Provider()
    expected = json.dumps(owner.pick(bound).config)
    read, write = os.pipe()
    # As if another thread were picking at that moment.
    with owner._lock:
        child = os.fork()
        if child == 0:
            with open(write, "w") as pipe:
                pipe.write(json.dumps(owner.pick(bound).config))
            os._exit(0)
    os.close(write)
    with open(read) as pipe:
        assert pipe.read() == expected
    os.waitpid(child, 0)


def test_answers_are_remembered_for_living_kernels_only() -> None:
    class Kernel:
        pass

    cache, kernel = PickCache(), Kernel()
    one = provider_module.Pick({}, PickSource.DEFAULT, ReasonCode.NO_MODEL, "")
    for shape in range(1000):
        cache.put(kernel, shape, one)
    assert cache.get(kernel, 999) is one
    assert cache.get(kernel, 0) is MISSING
    assert sum(map(len, cache._kernels.values())) <= 64
    del kernel
    assert not cache._kernels


@pytest.mark.parametrize("wrong", [None, scale_rows, 3])
def test_what_is_no_bound_kernel_is_refused(wrong: Any) -> None:
    for ask in (costmodel.pick, lambda one: costmodel.rank(one, [])):
        with pytest.raises(WrongArgumentError, match=r"my_kernel\.bind\(args\), found"):
            ask(wrong)


def test_stats_count_every_model(bound: Any, tmp_path: Path) -> None:
    before = costmodel.stats().get("no_model", 0)
    for _ in range(2):
        process_provider.provider_for(tmp_path / "none.ubj").pick(bound)
    assert costmodel.stats()["no_model"] == before + 2


def test_the_autotuner_runs_a_kernel_without_a_benchmark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through Helion's real dispatch: `ensure_config_exists` asks us, once."""
    asked = []

    def decide(self: Provider, bound: Any, args: Any = None, **_options: Any) -> Any:
        asked.append(bound)
        return provider_module.default_pick(bound, ReasonCode.NO_MODEL, "test")

    monkeypatch.setattr(Provider, "answer", decide)
    kernel = helion.kernel(
        scale_rows.fn, autotuner_fn=costmodel.autotuner(), static_shapes=True
    )
    bound = bound_for(kernel=kernel)
    with helion_hook.device_of(bound):
        args = helion_hook.cache_of(bound)["args"]
        bound.ensure_config_exists(args)
        bound.ensure_config_exists(args)
    assert len(asked) == 1
    assert bound._config is not None
