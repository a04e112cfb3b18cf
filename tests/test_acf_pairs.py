"""Pairs of a config and a control file: which there are, which are worth a try."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel import helion_hook
from costmodel.acf.choice import MOST_MEASURED_PAIRS
from costmodel.acf.choice import PairBound
from costmodel.acf.choice import with_certain_pair
from costmodel.acf.choice import worth_measuring
from costmodel.acf.effects import Effect
from costmodel.acf.effects import Verdict
from costmodel.acf.effects import judged
from costmodel.acf.entry import AcfEntry
from costmodel.acf.identity import KNOB
from costmodel.acf.pairs import make_pairs
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus
from costmodel.compiled_facts import Toolchain
from costmodel.hardware import load_hardware
from costmodel.hybrid import canonical_text
from costmodel.measured_choice import TIE
from costmodel.measured_choice import best_with_controls
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

H200 = load_hardware("H200")
SHAPE = (2048, 4096)
TOOLS = Toolchain("1", "2", "3", "13.3.73")
GOOD, NOOP = "regs=-8 delta=3", "noop"


def _id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _facts(
    registers: int = 64,
    spill: int = 0,
    digest: str | None = None,
    status: CompileStatus = CompileStatus.OK,
    n_instructions: int = 400,
) -> CompiledFacts:
    made = {
        "registers": registers,
        "spill_store_bytes": spill,
        "spill_load_bytes": 0,
        "stack_bytes": spill,
        "smem_bytes": 0,
        "num_warps": 4,
        "n_instructions": n_instructions,
        "code_digest": digest or f"{registers} {spill} {n_instructions}",
    }
    return CompiledFacts(
        status, "", "sm90", TOOLS, **(made if status is CompileStatus.OK else {})
    )


# What pairs there are, and what becomes of them.


@given(st.integers(0, 6), st.integers(0, 20), st.integers(1, 5), st.integers(0, 16))
def test_none_is_always_in_it_and_the_product_is_bounded(
    n_configs: int, n_acfs: int, most_configs: int, most_acfs: int
) -> None:
    configs: list[Config] = [{"num_warps": i} for i in range(n_configs)]
    entries = [AcfEntry(_id(str(i)), "13.3") for i in range(n_acfs)]
    pairs = make_pairs([*configs, *configs], entries, most_configs, most_acfs)
    kept = min(n_configs, most_configs)
    assert len(pairs) == kept * (1 + min(n_acfs, most_acfs))
    assert len({pair.key for pair in pairs}) == len(pairs)
    for config in configs[:kept]:
        mine = [pair.acf_id for pair in pairs if pair.config == config]
        assert mine[0] is None and None not in mine[1:]


def test_what_is_no_use_is_dropped_and_says_why() -> None:
    found = {
        "same": _facts(digest="none"),
        "less": _facts(registers=56),
        "twin": _facts(registers=56),
        "crash": _facts(status=CompileStatus.CRASH),
        "hang": _facts(status=CompileStatus.TIMEOUT),
        "refused": _facts(status=CompileStatus.PTXAS),
        "spills": _facts(spill=4096),
        "registers": _facts(status=CompileStatus.REGISTERS),
    }
    effects = judged({"num_warps": 4}, _facts(digest="none"), found)
    assert [one.verdict.value for one in effects] == [
        "none",
        "same_as_none",
        "useful",
        "same_as_other",
        "crashes",
        "hangs",
        "refused",
        "spills",
        "does_not_fit",
    ]
    assert effects[3].twin == "less"


def test_fewer_heavy_spills_are_worth_a_try_and_more_are_not() -> None:
    found = {"fewer": _facts(spill=3000), "more": _facts(spill=5000)}
    effects = judged({}, _facts(spill=4000, digest="none"), found)
    verdicts = [one.verdict for one in effects[1:]]
    assert verdicts == [Verdict.USEFUL, Verdict.SPILLS]


def _effects(
    changes: Sequence[Sequence[int]], none_spill: int = 200
) -> tuple[Effect, ...]:
    """One config for each row, one control file for each of its spills."""
    made: list[Effect] = []
    for place, spills in enumerate(changes):
        none = _facts(spill=none_spill, digest="none")
        found = {
            f"acf{i}": _facts(spill=spill, digest=f"{i}")
            for i, spill in enumerate(spills)
        }
        made += judged({"num_warps": place}, none, found)
    return tuple(made)


@given(st.lists(st.lists(st.integers(0, 500), max_size=6), max_size=4))
def test_few_are_measured_each_file_once_before_any_twice(
    changes: list[list[int]],
) -> None:
    effects = _effects(changes)
    useful = [one for one in effects if one.verdict is Verdict.USEFUL]
    chosen = worth_measuring(effects, H200)
    assert len(chosen) == min(MOST_MEASURED_PAIRS, len(useful))
    assert set(one.pair.key for one in chosen) <= {one.pair.key for one in useful}
    files = {one.pair.acf_id for one in useful}
    assert len({one.pair.acf_id for one in chosen}) == min(len(files), len(chosen))


def test_without_a_model_fewest_spills_are_tried_first_with_one_its_word_counts() -> (
    None
):
    effects = _effects([[100, 0, 50]])
    assert [one.pair.acf_id for one in worth_measuring(effects, H200)] == [
        "acf1",
        "acf2",
        "acf0",
    ]
    bounds = {
        one.pair.key: PairBound(0.3 if one.pair.acf_id == "acf0" else 0.0, 0.0)
        for one in effects
    }
    first = worth_measuring(effects, H200, bounds)[0]
    assert first.pair.acf_id == "acf0"


# What is handed out without measuring.

CONFIGS: tuple[Config, ...] = tuple({"num_warps": i} for i in range(3))


def _pick(index: int = 0, **changes: Any) -> Pick:
    default: Config = {"num_warps": 9}
    facts: dict[str, Any] = {
        "config": CONFIGS[index],
        "source": PickSource.LEARNED,
        "reason": ReasonCode.GAIN_CERTAIN,
        "detail": "d",
        "default": default,
        "shortlist": CONFIGS,
        "shortlist_speedups": ((1.2, 1.1), (1.15, 1.05), (0.9, 0.8)),
    }
    return Pick(**{**facts, **changes})


PATHS = {"acf0": "/c/acf0.acf", "acf1": "/c/acf1.acf"}


def _certain(lowers: dict[tuple[int, str], float], allowed: bool = True) -> Pick:
    effects = _effects([[0, 100]] * 3)
    bounds = {
        (canonical_text(CONFIGS[place]), acf_id): PairBound(lower + 0.05, lower)
        for (place, acf_id), lower in lowers.items()
    }
    names = frozenset(map(canonical_text, CONFIGS)) if allowed else frozenset()
    return with_certain_pair(_pick(), effects, bounds, PATHS, names)


def test_only_a_certain_gain_brings_a_control_file() -> None:
    assert _certain({}) == _pick()
    assert _certain({(0, "acf0"): 0.0, (0, "acf1"): -0.1}) == _pick()
    found = _certain({(0, "acf0"): 0.02, (0, "acf1"): 0.04})
    assert found.config == {**CONFIGS[0], KNOB: PATHS["acf1"]}
    assert found.reason is ReasonCode.ACF_CERTAIN
    assert found.predicted_speedup == pytest.approx(1.2 * 2.718281828**0.09)


def test_another_config_wins_with_its_file_only_where_both_are_sure() -> None:
    # ln(1.1 / 1.05) = 0.047 is what the other config's file must add at least.
    assert _certain({(1, "acf0"): 0.04}) == _pick()
    won = _certain({(1, "acf0"): 0.2})
    assert won.config == {**CONFIGS[1], KNOB: PATHS["acf0"]}
    assert _certain({(1, "acf0"): 0.2}, allowed=False) == _pick()
    assert _certain({(2, "acf0"): 0.3}) == _pick()


@given(st.floats(10.0, 100.0), st.floats(-0.05, 0.05))
@settings(deadline=None)
def test_a_control_file_has_to_win_by_more_than_a_tie(us: float, ahead: float) -> None:
    default: Config = {"num_warps": 4}
    plain, other = {"num_warps": 8}, {"num_warps": 8, KNOB: "/a"}
    timed = [
        helion_hook.Measured(default, us * 2, "ok"),
        helion_hook.Measured(plain, us * (1 + ahead), "ok"),
        helion_hook.Measured(other, us, "ok"),
    ]
    best = best_with_controls(timed, default)
    assert best is not None
    if ahead < TIE * 0.99:
        assert best.config == plain
    if ahead > TIE * 1.01:
        assert best.config == other
        left = best_with_controls(timed, default, [other])
        assert left is not None and left.config == plain
