"""`verify="code"` through the provider: who is asked, and what stays otherwise."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import helion
import helion.language as hl
import pytest
import torch

from costmodel import modes
from costmodel import second_stage
from costmodel.arguments import parse_argument
from costmodel.code_model import code_model_path
from costmodel.hardware import load_hardware
from costmodel.helion_hook.records import bind_args
from costmodel.learned import bundled_model_path
from costmodel.modes import Answerer
from costmodel.provider import DEFAULT_TOP
from costmodel.provider import Provider
from costmodel.target import bind
from costmodel.types import Pick
from costmodel.types import PickSource


@helion.kernel(static_shapes=True)
def plus_one(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + 1
    return out


@pytest.fixture(scope="module")
def bound() -> Any:
    return bind(plus_one, [parse_argument("bf16[2048,4096]")], load_hardware("H200"))


def test_the_second_look_answers_where_helion_has_a_rule(
    bound: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Pick] = []

    def look(
        _bound: Any, _args: Any, _extractor: Any, answer: Pick, *_more: Any
    ) -> Pick:
        seen.append(answer)
        return replace(answer, config=answer.shortlist[-1], source=PickSource.LEARNED)

    monkeypatch.setattr(second_stage, "second_look_live", look)
    found = Provider().pick(bound, verify="code", top=5)
    (first,) = seen
    assert 1 < len(first.shortlist) <= 6
    assert found.config == first.shortlist[-1]


@pytest.mark.parametrize("without_second_stage", [False, True])
def test_without_a_second_look_the_compiler_is_still_asked(
    bound: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    without_second_stage: bool,
) -> None:
    monkeypatch.setattr(second_stage, "second_look_live", lambda *_args: None)
    asked: list[int] = []

    def compiled(self: Provider, one: Any, args: Any, top: int, *_more: Any) -> Pick:
        asked.append(top)
        return self._pick(one, args)

    monkeypatch.setattr(Provider, "_compiled", compiled)
    path = bundled_model_path()
    if without_second_stage:
        for suffix in (".ubj", ".json"):
            shutil.copy(path.with_suffix(suffix), tmp_path / f"alone{suffix}")
        path = tmp_path / "alone.ubj"
        assert not code_model_path(path).exists()
    provider = Provider(path)
    found = provider.pick(bound, verify="code", top=3)
    assert asked == [3]
    assert found.config == provider.pick(bound).config


def test_mode_code_looks_at_code_and_measures_nothing(
    bound: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def look(*said: Any) -> Pick:
        answer, top = said[3], said[-1]
        seen.append(top)
        return replace(answer, config=answer.shortlist[-1], source=PickSource.LEARNED)

    monkeypatch.setattr(second_stage, "second_look_live", look)
    monkeypatch.setattr(modes, "measured", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr(modes, "searched", lambda *_: pytest.fail("searched"))
    args = bind_args(bound)
    answerer = Answerer("code", Provider())
    found = answerer.answer(bound, args, skip_cache=True)
    again = answerer.answer(bound, args, skip_cache=True)
    assert seen == [DEFAULT_TOP]  # the second answer is remembered
    assert found.source is PickSource.LEARNED
    assert again.config == found.config
    plain = Answerer("predict", Provider()).answer(bound, args, skip_cache=True)
    assert seen == [DEFAULT_TOP]
    assert plain.detail


def test_another_word_is_refused(bound: Any) -> None:
    with pytest.raises(ValueError, match="'compile' or 'code'"):
        Provider().pick(bound, verify="benchmark")
