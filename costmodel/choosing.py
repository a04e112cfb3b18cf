"""From a bound kernel to a pick: candidates, the author's rules, legality, choice.

Pure but for Helion, which is asked what is legal. The order of answers is decided in
`costmodel.hybrid`; here it is made sure that what is answered may be answered.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from costmodel import helion_hook
from costmodel.acf.identity import without_acf
from costmodel.candidates import make_candidates
from costmodel.errors import UnknownHardwareError
from costmodel.errors import UnreadableKernelError
from costmodel.features.canonical import canonical_config
from costmodel.features.extract import FeatureExtractor
from costmodel.features.feasible import feasible
from costmodel.features.graph import KernelGraph
from costmodel.hardware import match_hardware
from costmodel.hybrid import SHORTLIST_LENGTH
from costmodel.hybrid import canonical_text
from costmodel.hybrid import choose
from costmodel.learned import LearnedModel
from costmodel.types import Candidate
from costmodel.types import CandidateOrigin
from costmodel.types import Config
from costmodel.types import KernelClass
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

LookAgain = Callable[[FeatureExtractor, Pick], Pick]
"""A second look at an answer whose shortlist is legal."""

# Rounds of dropping illegal candidates before all are asked; one is usual.
_MOST_ROUNDS = 4


def choose_for(
    bound: Any,
    args: Sequence[object] | None,
    model: LearnedModel,
    neighbours: Sequence[Config] = (),
    *,
    with_descriptors: bool = True,
    n_shortlist: int = SHORTLIST_LENGTH,
    look_again: LookAgain | None = None,
    without: frozenset[str] = frozenset(),
) -> Pick:
    """Choose a config for one bound kernel.

    Args:
        bound: What `kernel.bind(args)` returned.
        args: The call's arguments; only shapes and dtypes are read.
        model: What scores.
        neighbours: Configs tuned for other shapes, to be candidates if legal here.
        with_descriptors: Whether configs with tensor descriptors may be chosen.
        n_shortlist: Configs that the pick carries.
        look_again: Turns the answer into another one, of its shortlist; asked only
            where a model scored and Helion has a rule.
        without: Canonical texts of configs that are not to be chosen; the default is
            left even so.

    Raises:
        UnreadableKernelError: The kernel's graph or a candidate cannot be resolved, or
            the kernel is of no class.
        UnknownHardwareError: No hardware file describes this GPU.
    """
    view = helion_hook.view(bound, args)
    match = match_hardware(view.record.hardware, trained=model.card.hardware)
    if match.hardware.compute_capability == (0, 0):
        raise UnknownHardwareError(match.why)
    scorer: LearnedModel | None = model
    problem: tuple[ReasonCode, str] | None = None
    if match.kind == "fallback":
        # Timings do not carry over to another architecture; its limits do.
        scorer, problem = None, (ReasonCode.OUT_OF_RANGE, match.why)
    graph = KernelGraph.from_record(view.record)
    extractor = FeatureExtractor(graph, match.hardware)
    if extractor.kernel_class is KernelClass.UNKNOWN:
        raise UnreadableKernelError(
            "expected loads or stores of device memory, found none: a kernel of no "
            "class gets Helion's default"
        )
    candidates = make_candidates(view, helion_hook.space(bound), extractor)
    candidates += _given(bound, extractor, candidates, neighbours)
    if not with_descriptors:
        candidates = [
            one
            for place, one in enumerate(candidates)
            if place == 0 or not helion_hook.uses_descriptors(one.config)
        ]
    if helion_hook.has_user_rules(bound):
        candidates = _ruled(bound, candidates)
    if without:
        candidates = [
            one
            for place, one in enumerate(candidates)
            if place == 0 or canonical_text(one.config) not in without
        ]
    answer = _choose_legal(
        bound,
        candidates,
        lambda legal: choose(
            extractor,
            legal,
            model=scorer,
            model_problem=problem,
            promoted=view.promoted,
            n_shortlist=n_shortlist,
        ),
    )
    if look_again is None or scorer is None or not view.promoted:
        return answer
    return look_again(extractor, answer)


def _given(
    bound: Any,
    extractor: FeatureExtractor,
    candidates: Sequence[Candidate],
    neighbours: Sequence[Config],
) -> list[Candidate]:
    """Configs that the kernel's author or an earlier tuning names, where they run."""
    named = [
        *((CandidateOrigin.USER, one) for one in helion_hook.user_seeds(bound)),
        *((CandidateOrigin.TUNED, one) for one in neighbours),
    ]
    if not named:
        return []
    default = candidates[0].config
    known = {canonical_text(one.config) for one in candidates}
    found = []
    for origin, given in named:
        # Nothing here can tell a control file's worth; those that can add it later.
        config = without_acf(given)
        if not helion_hook.is_legal(bound, config):
            continue
        full = canonical_config(config, default)
        text = canonical_text(full)
        if text in known or not bool(feasible(extractor, [full])[0]):
            continue
        known.add(text)
        words = (
            "a seed of the kernel's author"
            if origin is CandidateOrigin.USER
            else "tuned for another shape of this kernel"
        )
        found.append(Candidate(full, origin, words))
    return found


def _ruled(bound: Any, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Candidates under the author's overrides and filter, the default still first.

    A default that the filter refuses stays as what others are compared with; it is not
    answered where anything else is left.
    """
    default, *others = candidates
    ruled_default = helion_hook.under_user_rules(bound, default.config)
    kept = [
        default if ruled_default is None else replace(default, config=ruled_default)
    ]
    known = {canonical_text(kept[0].config)}
    for one in others:
        config = helion_hook.under_user_rules(bound, one.config)
        if config is None or canonical_text(config) in known:
            continue
        known.add(canonical_text(config))
        kept.append(replace(one, config=config))
    return kept


def _choose_legal(
    bound: Any,
    candidates: Sequence[Candidate],
    choose_among: Callable[[Sequence[Candidate]], Pick],
) -> Pick:
    """Choose, asking Helion only about what would be answered.

    Helion takes half a millisecond for each config, and candidates are made inside its
    search space: what it refuses is rare, and chosen around.
    """

    def is_legal(config: Config) -> bool:
        return config == candidates[0].config or helion_hook.is_legal(bound, config)

    legal = list(candidates)
    for _round in range(_MOST_ROUNDS):
        answer = choose_among(legal)
        named = [answer.config, *answer.shortlist]
        illegal = [config for config in named if not is_legal(config)]
        if not illegal:
            return _without_refused_default(bound, answer)
        legal = [one for one in legal if one.config not in illegal]
    legal = [one for one in legal if is_legal(one.config)]
    return _without_refused_default(bound, choose_among(legal))


def _without_refused_default(bound: Any, answer: Pick) -> Pick:
    """The next best where the author's filter refuses the default that was chosen."""
    if answer.config != answer.default or not helion_hook.has_user_rules(bound):
        return answer
    ruled = helion_hook.under_user_rules(bound, answer.config)
    if ruled == answer.config:
        return answer
    for place, config in enumerate(answer.shortlist):
        if config == answer.default:
            continue
        speedups = answer.shortlist_speedups
        return replace(
            answer,
            config=config,
            source=PickSource.ANALYTIC if not speedups else PickSource.LEARNED,
            reason=ReasonCode.USER_RULES,
            detail="the kernel's config filter refuses Helion's default: next best",
            predicted_speedup=speedups[place][0] if speedups else None,
            speedup_lower=speedups[place][1] if speedups else None,
            shortlist=answer.shortlist[place:],
            shortlist_speedups=speedups[place:],
        )
    return answer
