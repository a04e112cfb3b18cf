"""The last step of a pick, where asked for: the compiler has to agree.

The pick is compiled for its GPU in another process; where that fails, or spills
heavily, the next choice takes its place, and so on. Helion's own default need only
compile: nothing better than it was certain. A check that itself fails changes nothing
but the words.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Any

from costmodel.compile_check import Checked
from costmodel.compile_check import is_sound
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus
from costmodel.hybrid import canonical_text
from costmodel.live_compile import LiveCompiler
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

log = logging.getLogger("costmodel")

DEFAULT_TOP = 16
"""Compiles at most; of analytic and learned first picks nearly all pass."""

Check = Callable[[Sequence[Config]], Iterator[Checked]]
"""Compiles configs and answers in their order, as `LiveCompiler.check_in_order`."""

ChooseWithout = Callable[[frozenset[str]], Pick]
"""The pick where some configs, by their canonical text, are not to be had."""


def verified_live(
    bound: Any,
    args: Sequence[object] | None,
    answer: Pick,
    choose_without: ChooseWithout,
    top: int = DEFAULT_TOP,
) -> Pick:
    """`verified` for a bound kernel, in child processes; never raises.

    Args:
        bound: What `kernel.bind(args)` returned.
        args: The call's arguments; only their types, shapes and strides are read.
        answer: The first choice.
        choose_without: As of `verified`.
        top: As of `verified`.
    """
    if not answer.shortlist:
        return answer  # Helion's default because we could say nothing
    try:
        with LiveCompiler(bound, args) as compiler:
            return verified(answer, choose_without, compiler.check_in_order, top)
    except Exception as error:  # no compiler here, or none that fits
        log.debug("a compile check could not start", exc_info=True)
        return not_verified(answer, error)


def verified(
    answer: Pick, choose_without: ChooseWithout, check: Check, top: int = DEFAULT_TOP
) -> Pick:
    """The first choice that the compiler accepts.

    Args:
        answer: The first choice.
        choose_without: Makes the choice again where some are refused; pure.
        check: The compiler.
        top: Configs to compile at most, at least 1.

    Returns:
        The answer, if it compiles; else the next choice that does, with reason
        `compile_refused`; Helion's default where none does. Where the check itself
        fails, the answer with a word about it. Never raises.
    """
    try:
        first, detail = _walked([answer], check)
        if first is not None:
            return first
        others = list(islice(_in_turn(answer, choose_without), 1, max(1, top)))
        found, _ = _walked(others, check)
        if found is None:
            words = f"{1 + len(others)} choices do not compile; Helion's default stays"
            found = replace(
                answer,
                config=answer.config if answer.default is None else answer.default,
                source=PickSource.DEFAULT,
                detail=words,
                predicted_speedup=1.0,
                speedup_lower=1.0,
            )
        words = f"{found.detail}; the first choice is refused: {detail}"
        return replace(found, reason=ReasonCode.COMPILE_REFUSED, detail=words)
    except Exception as error:  # the pick stands, whatever the check runs into
        log.debug("a compile check failed", exc_info=True)
        return not_verified(answer, error)


def not_verified(answer: Pick, error: BaseException) -> Pick:
    """The answer as it was, saying that no compiler was asked, and why."""
    words = " ".join(str(error).split())[:300] or type(error).__name__
    return replace(answer, detail=f"{answer.detail}; not compiled: {words}")


def _in_turn(answer: Pick, choose_without: ChooseWithout) -> Iterator[Pick]:
    """The answer, what would be chosen without it, and so on to the default; then what
    ranks behind the default, which only counts where the default does not compile."""
    refused: set[str] = set()
    while True:
        yield answer
        refused.add(canonical_text(answer.config))
        if answer.config == answer.default:
            break
        following = choose_without(frozenset(refused))
        if canonical_text(following.config) in refused:
            return
        answer = following
    for config in answer.shortlist:
        if canonical_text(config) not in refused:
            refused.add(canonical_text(config))
            yield replace(
                answer,
                config=config,
                source=PickSource.ANALYTIC,
                detail="Helion's default does not compile; next in the ranking",
                predicted_speedup=None,
                speedup_lower=None,
            )


def _walked(choices: Sequence[Pick], check: Check) -> tuple[Pick | None, str]:
    """The first choice that is accepted, else None and why the first is not."""
    why = ""
    with closing(_closable(check([choice.config for choice in choices]))) as results:
        for choice, checked in zip(choices, results, strict=True):
            facts = checked.facts
            only_has_to_compile = choice.config == choice.default
            compiles = facts.status is CompileStatus.OK
            if is_sound(facts) or (compiles and only_has_to_compile):
                return replace(choice, detail=f"{choice.detail}; {_words(facts)}"), ""
            why = why or _words(facts)
    return None, why


def _closable(results: Iterator[Checked]) -> Generator[Checked, None, None]:
    """A generator over any iterator, so that leaving it early reaches the pool."""
    yield from results


def _words(facts: CompiledFacts) -> str:
    """What came of compiling, for a person."""
    if facts.status is not CompileStatus.OK:
        return f"{facts.status.value}: {facts.detail}"
    spilled = facts.spill_bytes
    if facts.registers is None or spilled is None:
        return "compiles"
    spills = f"{spilled} bytes spilled" if spilled else "no spills"
    return f"compiles to {facts.registers} registers a thread, {spills}"
