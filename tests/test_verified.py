"""A pick that the compiler must accept: which choice is answered, and what never fails.

The compiler is a table here; `test_compile_pool.py` has the real one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.compile_check import HEAVY_SPILL_BYTES
from costmodel.compile_check import Checked
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus
from costmodel.compiled_facts import Toolchain
from costmodel.errors import BindError
from costmodel.hybrid import canonical_text
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode
from costmodel.verified import verified

TOOLS = Toolchain("1", "2", "3", "4")
SOUND = CompiledFacts(
    CompileStatus.OK,
    "",
    "sm90",
    TOOLS,
    registers=98,
    spill_store_bytes=0,
    spill_load_bytes=8,
)
SPILLS = dataclasses.replace(SOUND, spill_load_bytes=HEAVY_SPILL_BYTES + 1)
FAILS = CompiledFacts(CompileStatus.SHARED_MEMORY, "too much", "sm90", TOOLS)

DEFAULT: Config = {"n": -1}
N_CONFIGS = 8


class Chooser:
    """Chooses the smallest number left, up to a bound, then Helion's default."""

    def __init__(self, n_believed: int) -> None:
        self.n_believed = n_believed

    def without(self, refused: frozenset[str]) -> Pick:
        left = [{"n": n} for n in range(N_CONFIGS)]
        left = [c for c in left if canonical_text(c) not in refused]
        believed = [c for c in left if c["n"] < self.n_believed]
        config = believed[0] if believed else DEFAULT
        return Pick(
            config=config,
            source=PickSource.LEARNED if believed else PickSource.DEFAULT,
            reason=ReasonCode.GAIN_CERTAIN,
            detail=f"chose {config['n']}",
            default=DEFAULT,
            shortlist=(config, *(c for c in (*left, DEFAULT) if c != config)),
        )


class Compiler:
    """Says of each number what a table says, and notes what it was asked."""

    def __init__(self, facts: dict[int, CompiledFacts], otherwise: CompiledFacts):
        self.facts, self.otherwise = facts, otherwise
        self.heard: list[int] = []

    def check(self, configs: Sequence[Config]) -> Iterator[Checked]:
        for config in configs:
            self.heard.append(config["n"])
            yield Checked(config, self.facts.get(config["n"], self.otherwise), False)


def answered(
    n_believed: int,
    facts: dict[int, CompiledFacts],
    otherwise: CompiledFacts = SOUND,
    top: int = 16,
) -> tuple[Pick, Compiler]:
    chooser, compiler = Chooser(n_believed), Compiler(facts, otherwise)
    first = chooser.without(frozenset())
    return verified(first, chooser.without, compiler.check, top), compiler


def test_a_sound_pick_stays_and_nothing_else_is_compiled() -> None:
    answer, compiler = answered(3, {})
    assert answer.config == {"n": 0} and compiler.heard == [0]
    assert answer.reason is ReasonCode.GAIN_CERTAIN
    assert "98 registers" in answer.detail and "8 bytes" in answer.detail


@pytest.mark.parametrize("refused", [SPILLS, FAILS])
def test_the_next_choice_takes_its_place(refused: CompiledFacts) -> None:
    answer, compiler = answered(3, {0: refused})
    assert answer.config == {"n": 1}
    assert answer.source is PickSource.LEARNED
    assert answer.reason is ReasonCode.COMPILE_REFUSED
    assert compiler.heard == [0, 1]  # the third is never asked


def test_what_the_gate_does_not_believe_stays_behind_the_default() -> None:
    answer, compiler = answered(2, {0: FAILS, 1: SPILLS})
    assert answer.config == DEFAULT and answer.source is PickSource.DEFAULT
    assert answer.reason is ReasonCode.COMPILE_REFUSED
    assert "too much" in answer.detail
    assert compiler.heard == [0, 1, -1]


def test_the_default_need_only_compile() -> None:
    answer, _ = answered(1, {0: FAILS, -1: SPILLS})
    assert answer.config == DEFAULT
    answer, compiler = answered(0, {-1: SPILLS})
    assert answer.config == DEFAULT and compiler.heard == [-1]
    assert answer.reason is ReasonCode.GAIN_CERTAIN


def test_where_even_the_default_does_not_compile_the_ranking_goes_on() -> None:
    answer, compiler = answered(1, {2: SOUND}, otherwise=FAILS)
    assert answer.config == {"n": 2}
    assert compiler.heard == [0, -1, 1, 2]
    assert answer.predicted_speedup is None


@given(
    st.integers(0, N_CONFIGS),
    st.dictionaries(
        st.integers(-1, N_CONFIGS - 1), st.sampled_from([SOUND, SPILLS, FAILS])
    ),
    st.integers(1, 12),
)
def test_laws_of_the_walk(
    n_believed: int, facts: dict[int, CompiledFacts], top: int
) -> None:
    answer, compiler = answered(n_believed, facts, top=top)
    first = Chooser(n_believed).without(frozenset())
    assert len(compiler.heard) == len(set(compiler.heard)) <= top
    accepted = [
        n
        for n in compiler.heard
        if facts.get(n, SOUND) is SOUND or (n == -1 and facts[n] is SPILLS)
    ]
    if accepted:
        assert compiler.heard[-1] == accepted[0] == answer.config["n"]
    else:
        assert answer.config == DEFAULT  # the last resort
    assert (answer.reason is ReasonCode.COMPILE_REFUSED) == (
        accepted != [first.config["n"]]
    )
    again, _ = answered(n_believed, facts, top=top)
    assert again == answer


def test_none_left_is_helions_default() -> None:
    answer, compiler = answered(2, {}, otherwise=FAILS, top=3)
    assert answer.config == DEFAULT and answer.source is PickSource.DEFAULT
    assert len(compiler.heard) == 3
    assert "3 choices do not compile" in answer.detail


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("error", [BindError("no kernel"), RuntimeError(), OSError(5)])
def test_a_failing_check_changes_only_the_words(after: int, error: Exception) -> None:
    def check(configs: Sequence[Config]) -> Iterator[Checked]:
        for config in configs:
            if config["n"] >= after:
                raise error
            yield Checked(config, FAILS, False)

    chooser = Chooser(3)
    first = chooser.without(frozenset())
    answer = verified(first, chooser.without, check)
    assert dataclasses.replace(answer, detail=first.detail) == first
    assert answer.detail.startswith(f"{first.detail}; not compiled: ")
    assert answer.detail.strip().count("\n") == 0


def test_a_failing_choice_changes_only_the_words() -> None:
    def broken(_refused: frozenset[str]) -> Pick:
        raise ValueError("no choice")

    first = Chooser(3).without(frozenset())
    answer = verified(first, broken, Compiler({0: FAILS}, SOUND).check)
    assert answer.config == first.config and "no choice" in answer.detail


def test_leaving_early_reaches_the_pool() -> None:
    closed = []

    def check(configs: Sequence[Config]) -> Iterator[Any]:
        try:
            for config in configs:
                yield Checked(config, FAILS if config["n"] == 0 else SOUND, False)
        finally:
            closed.append(len(configs))

    chooser = Chooser(5)
    verified(chooser.without(frozenset()), chooser.without, check)
    # The first alone, then the others, of which only one was needed.
    assert closed[0] == 1 and closed[1] > 1
