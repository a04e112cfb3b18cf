"""The second look: compile the best few for the target, read their code, choose again.

Still no benchmark and no GPU. What fails, or spills heavily, falls out; of equal
machine code the first counts; the rest are ranked by the mean of what estimates and
code promise, and the best replaces Helion's default only where the bound that was
calibrated for this mean is above zero. Only where Helion has a rule: elsewhere the
first stage's ranking was the better one (44 H200 workloads, families left out).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from costmodel.code_model import CodeModel
from costmodel.compile_check import Checked
from costmodel.compile_check import is_sound
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus
from costmodel.features.compiled import CodeFacts
from costmodel.features.compiled import LoopCode
from costmodel.features.compiled import code_matrix
from costmodel.features.schema import SCHEMA
from costmodel.gate import class_group
from costmodel.hybrid import canonical_text
from costmodel.learned import LearnedModel
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource

if TYPE_CHECKING:
    from costmodel.features.extract import FeatureExtractor

log = logging.getLogger("costmodel")


def code_facts(facts: CompiledFacts) -> CodeFacts | None:
    """What features need of a config that compiled and was disassembled, else None."""
    code = facts.code
    if facts.status is not CompileStatus.OK or code is None:
        return None
    if facts.registers is None or facts.smem_bytes is None or facts.num_warps is None:
        return None
    return CodeFacts(
        registers=facts.registers,
        stack_bytes=facts.stack_bytes or 0,
        spill_bytes=facts.spill_bytes or 0,
        smem_bytes=facts.smem_bytes,
        num_warps=facts.num_warps,
        n_instructions=code.n_instructions,
        counts=code.counts,
        innermost=tuple(
            LoopCode(loop.end - loop.start + 1, loop.counts)
            for loop in code.loops
            if loop.is_innermost
        ),
        load_bytes=code.load_bytes,
        bytes_in_flight=code.bytes_in_flight,
        pending_copy_groups=code.pending_copy_groups,
        has_wgmma=code.has_wgmma,
        has_tma=code.has_tma,
    )


def second_look_live(
    bound: Any,
    args: Sequence[object] | None,
    extractor: FeatureExtractor,
    answer: Pick,
    model: LearnedModel,
    code_model: CodeModel,
    top: int = 16,
) -> Pick | None:
    """`second_look` for a bound kernel, compiled in child processes; never raises.

    Args:
        bound: What `kernel.bind(args)` returned.
        args: The call's arguments; only their types, shapes and strides are read.
        extractor: As of `second_look`.
        answer: As of `second_look`.
        model: As of `second_look`.
        code_model: As of `second_look`.
        top: Configs to compile besides the default.

    Returns:
        None where nothing could be compiled, or not the default.
    """
    from costmodel.live_compile import LiveCompiler

    try:
        with LiveCompiler(bound, args, disassemble=True) as compiler:
            checked = list(compiler.check_in_order(to_compile(answer, top)))
        if not checked or code_facts(checked[0].facts) is None:
            return None
        return second_look(extractor, answer, checked, model, code_model)
    except Exception:  # no compiler here, or none that fits: the first look stands
        log.debug("a second look failed", exc_info=True)
        return None


def to_compile(answer: Pick, top: int = 16) -> list[Config]:
    """Helion's default and the best of a first look, each once, the default first."""
    assert answer.default is not None
    others = [config for config in answer.shortlist if config != answer.default]
    return [answer.default, *others[:top]]


def second_look(
    extractor: FeatureExtractor,
    answer: Pick,
    checked: Sequence[Checked],
    model: LearnedModel,
    code_model: CodeModel,
) -> Pick:
    """Choose again among configs whose code is known; pure.

    Args:
        extractor: Features of the workload.
        answer: The first look, of a kernel that Helion has a rule for.
        checked: What the compiler said of `to_compile(answer)`, in that order.
        model: The first stage.
        code_model: The second.

    Returns:
        The new answer, its shortlist by both stages and each machine code once. Where
        the default's own code cannot be had, the first answer as it was.
    """
    assert answer.default is not None
    codes = [code_facts(one.facts) for one in checked]
    default_code = codes[0] if codes else None
    if default_code is None:
        why = checked[0].facts.detail if checked else "nothing was compiled"
        return replace(answer, detail=f"{answer.detail}; no second look: {why}")
    seen: set[str | None] = set()
    kept: list[int] = []
    for place, one in enumerate(checked):
        digest = one.facts.code_digest
        sound = place == 0 or is_sound(one.facts)
        if codes[place] is None or not sound or digest in seen:
            continue
        seen.add(digest)
        kept.append(place)
    configs = [checked[place].config for place in kept]
    kept_codes = [code for place in kept if (code := codes[place]) is not None]
    features = extractor.matrix(configs, answer.default)
    first = model.predict(features)
    rows = code_matrix(
        kept_codes, default_code, features, features[0], extractor.hardware
    )
    both = code_model.forest.opinion(rows, rows[0]).blended(
        first.gain_log, first.spread_log
    )
    card = code_model.card
    group = class_group(SCHEMA)(features[:1])[0]
    lower = both.lower_log(card.spread_weight, card.margin_log[group])
    decision = model.gate.decide_compiled(
        features,
        first.valid_probability,
        both.gain_log,
        lower,
        default_index=0,
        keys=[canonical_text(config) for config in configs],
    )
    index = 0 if decision.index is None else decision.index
    order = [index, *(i for i in (*decision.order, 0) if i != index)]
    gains, lowers = np.exp(both.gain_log), np.exp(lower)
    speedups = [(1.0, 1.0) if i == 0 else (gains[i], lowers[i]) for i in order]
    n_out = len(checked) - len(kept)
    words = f"{len(checked)} compiled, {n_out} of them unfit or the same code"
    detail = decision.detail if index else f"{decision.detail}; Helion's default stays"
    return replace(
        answer,
        config=configs[index],
        source=PickSource.LEARNED if index else PickSource.DEFAULT,
        reason=decision.reason,
        detail=f"{detail} ({words})",
        predicted_speedup=float(speedups[0][0]),
        speedup_lower=float(speedups[0][1]),
        runner_up=configs[order[1]] if len(order) > 1 else None,
        runner_up_speedup=float(speedups[1][0]) if len(order) > 1 else None,
        shortlist=tuple(configs[i] for i in order),
        shortlist_speedups=tuple((float(a), float(b)) for a, b in speedups),
    )
