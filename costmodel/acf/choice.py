"""Which pairs are measured, and which one is handed out without: pure.

Without a model of pairs nothing is handed out unmeasured; the static effect only says
in which order to try. With one, a pair must be certain to gain, as a config must.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace

from costmodel.acf.effects import Effect
from costmodel.acf.effects import Verdict
from costmodel.acf.identity import KNOB
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus
from costmodel.features.acf_effects import EffectFacts
from costmodel.features.acf_effects import occupancy_of
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.hybrid import canonical_text
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

MOST_MEASURED_PAIRS = 4
"""Beside the default and our best seven configs: what control files may cost a choice
by measuring, however many there are."""


@dataclass(frozen=True, slots=True)
class PairBound:
    """What is predicted of a pair: ln(time without the file / time with it), and a
    calibrated lower bound of the same."""

    gain_log: float
    lower_log: float


def effect_facts(facts: CompiledFacts) -> EffectFacts | None:
    """What features need of a compiled config, or None where it did not compile."""
    spilled, n_instructions = facts.spill_bytes, facts.n_instructions
    if facts.status is not CompileStatus.OK or facts.registers is None:
        return None
    if facts.num_warps is None or spilled is None or n_instructions is None:
        return None
    return EffectFacts(
        registers=facts.registers,
        stack_bytes=facts.stack_bytes or 0,
        spill_bytes=spilled,
        smem_bytes=facts.smem_bytes or 0,
        num_warps=facts.num_warps,
        n_instructions=n_instructions,
    )


def worth_measuring(
    effects: Sequence[Effect],
    hardware: Hardware,
    bounds: Mapping[tuple[str, str], PairBound] | None = None,
    most: int = MOST_MEASURED_PAIRS,
) -> tuple[Effect, ...]:
    """The few pairs to measure, most promising first.

    Each control file once before any a second time: what one does to a kernel's configs
    is alike (rank correlation 0.6 to 0.9 of static effects within a kernel, none across
    kernels; design notes), so a second file tells more than a second config.

    Args:
        effects: Of all pairs, configs best first.
        hardware: The target.
        bounds: What a model says of pairs, by `Pair.key`; None orders them by their
            static effect: fewer spills, then more CTAs on an SM, then shorter code.
        most: At most so many.
    """
    useful = [one for one in effects if one.verdict is Verdict.USEFUL]
    ranks: dict[str, int] = {}
    for one in effects:
        ranks.setdefault(canonical_text(one.pair.config), len(ranks))

    def merit(one: Effect) -> tuple[float, ...]:
        bound = None if bounds is None else bounds.get(one.pair.key)
        promised = 0.0 if bound is None else -bound.gain_log
        place = ranks[canonical_text(one.pair.config)]
        return (promised, *_static(one, hardware), place)

    ordered = sorted(useful, key=lambda one: (merit(one), one.pair.acf_id or ""))
    seen: dict[str | None, int] = {}
    turns = []
    for one in ordered:
        turns.append(seen.get(one.pair.acf_id, 0))
        seen[one.pair.acf_id] = turns[-1] + 1
    by_turn = sorted(range(len(ordered)), key=lambda i: (turns[i], i))
    return tuple(ordered[i] for i in by_turn[:most])


def _static(one: Effect, hardware: Hardware) -> tuple[float, float, float]:
    """Smaller is more promising."""
    found, none = effect_facts(one.facts), effect_facts(one.none)
    if found is None or none is None:
        return 0.0, 0.0, 0.0
    occupancy = occupancy_of(found, hardware) / occupancy_of(none, hardware)
    return (
        math.log2((1 + found.spill_bytes) / (1 + none.spill_bytes)),
        -math.log2(occupancy),
        math.log2(max(1, found.n_instructions) / max(1, none.n_instructions)),
    )


def with_controls(config: Config, path: str) -> Config:
    """The config with a control file."""
    return {**config, KNOB: path}


def with_certain_pair(
    answer: Pick,
    effects: Sequence[Effect],
    bounds: Mapping[tuple[str, str], PairBound],
    paths: Mapping[str, str],
    allowed: frozenset[str] = frozenset(),
) -> Pick:
    """The answer with a control file, or another config with one, where that is sure.

    Args:
        answer: A pick without control files.
        effects: Of its pairs.
        bounds: What the model of pairs says, by `Pair.key`.
        paths: Of control files, by id.
        allowed: Canonical texts of configs that may take the answer's place with a
            control file; the answer's own always may.

    Returns:
        The answer as it was where no pair is certain to be faster.
    """
    own = canonical_text(answer.config)
    promised = {
        canonical_text(config): (math.log(gain), math.log(low))
        for config, (gain, low) in zip(
            answer.shortlist, answer.shortlist_speedups, strict=False
        )
        if min(gain, low) > 0
    }
    if answer.config == answer.default:
        promised[own] = (0.0, 0.0)
    gain_now, lower_now = promised.get(own, (0.0, 0.0))
    best: tuple[float, str, Effect, PairBound] | None = None
    for one in effects:
        text = canonical_text(one.pair.config)
        bound = bounds.get(one.pair.key)
        if one.verdict is not Verdict.USEFUL or one.pair.acf_id not in paths:
            continue
        if bound is None or bound.lower_log <= 0.0:
            continue
        gain = bound.gain_log + gain_now
        if text != own:
            if text not in allowed or text not in promised:
                continue
            gain = bound.gain_log + promised[text][0]
            # What is sure of the pair must beat what is sure of the answer.
            if bound.lower_log + promised[text][1] <= max(0.0, lower_now):
                continue
        ranked = (-gain, text + (one.pair.acf_id or ""), one, bound)
        if best is None or ranked[:2] < best[:2]:
            best = ranked
    if best is None:
        return answer
    _, _, chosen, bound = best
    acf_id = str(chosen.pair.acf_id)
    gain_log, lower_log = promised.get(
        canonical_text(chosen.pair.config), (math.nan, math.nan)
    )
    total, lower = gain_log + bound.gain_log, lower_log + bound.lower_log
    return replace(
        answer,
        config=with_controls(chosen.pair.config, paths[acf_id]),
        source=PickSource.LEARNED,
        reason=ReasonCode.ACF_CERTAIN,
        detail=(
            f"{answer.detail}; with control file {acf_id[:12]}, predicted "
            f"{math.exp(bound.gain_log):.2f}x over none, at least "
            f"{math.exp(bound.lower_log):.2f}x"
        ),
        predicted_speedup=None if math.isnan(total) else math.exp(total),
        speedup_lower=None if math.isnan(lower) else math.exp(lower),
    )
