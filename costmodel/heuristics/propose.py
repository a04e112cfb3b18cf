"""One ranked list of candidates for any kernel: the class's list, then variants."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from costmodel.config_space import ConfigSpace
from costmodel.features.feasible import feasible
from costmodel.features.graph import KernelGraph
from costmodel.heuristics.data_dependent import propose_data_dependent
from costmodel.heuristics.drafts import Draft
from costmodel.heuristics.drafts import distinct
from costmodel.heuristics.drafts import plain_config
from costmodel.heuristics.drafts import with_blocks
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.matmul import propose_matmul
from costmodel.heuristics.multi_dot import propose_multi_dot
from costmodel.heuristics.pointwise import propose_pointwise
from costmodel.heuristics.read_facts import read_facts
from costmodel.heuristics.reduction import propose_reduction
from costmodel.heuristics.rules import has_promoted_rule
from costmodel.heuristics.standing import helion_first
from costmodel.heuristics.standing import with_fewer_warps
from costmodel.heuristics.variants import knob_variants
from costmodel.types import Candidate
from costmodel.types import CandidateOrigin
from costmodel.types import Config
from costmodel.types import KernelClass

if TYPE_CHECKING:
    from costmodel.features.extract import FeatureExtractor

MOST_PROPOSALS = 20
SPREAD = 5  # proposals in front that differ from one another in two knobs or more
_SHAPES_KEPT = 12
_SPILL_TOLERATED = 80.0  # registers a thread


def propose(
    graph: KernelGraph,
    extractor: FeatureExtractor,
    default: Config,
    space: ConfigSpace | None = None,
    facts: Facts | None = None,
) -> list[Candidate]:
    """Ranked analytic candidates, each with its reason; the first is the pick.

    Args:
        graph: The kernel.
        extractor: Resource estimates on the target.
        default: Helion's full config; gives keys and list lengths.
        space: Legal values; without it, powers of two up to each extent.
        facts: What `read_facts` gives, where the caller has it already.

    Returns:
        At most `MOST_PROPOSALS` configs that keep the target's hard limits, empty for
        a kernel of no known class.
    """
    facts = facts if facts is not None else read_facts(graph, space)
    hardware = extractor.hardware
    promoted = has_promoted_rule(graph, hardware)
    own = with_fewer_warps(facts, default) if promoted else default
    if promoted:
        # Whoever is asked about our first tiles is asked about Helion's next.
        extractor.expect([default, own])
    drafts = [
        Draft(
            {**d.config, "block_sizes": facts.bounded(d.config.get("block_sizes", ()))},
            d.reason,
        )
        for d in _by_class(facts, plain_config(default), extractor)
    ]
    drafts = [d for d in drafts if space is None or not space.objections(d.config)]
    drafts = distinct(drafts, MOST_PROPOSALS)
    if not drafts:
        return []
    # Nearly always the first draft runs, and then its variants are asked about next.
    variants = knob_variants(facts, drafts[0], hardware, space)
    extractor.expect([variant.config for variant in variants])
    kept = _runnable(extractor, drafts)[:_SHAPES_KEPT]
    if not kept:
        kept = _shrunk(extractor, facts, drafts[0])
    if kept:
        if kept[0] is not drafts[0]:
            variants = knob_variants(facts, kept[0], hardware, space)
        kept += _runnable(extractor, variants)
    if kept and promoted:
        first = helion_first(facts, kept[0], default, own, extractor)
        if first is not None and _runnable(extractor, [first]):
            kept = [first, *kept]
    kept = distinct(kept, MOST_PROPOSALS)
    front = _unlike([], kept)
    if len(front) < SPREAD:
        mixed = [
            variant
            for draft in kept[1:SPREAD]
            for variant in knob_variants(facts, draft, hardware, space)
        ]
        front = _unlike(front, _runnable(extractor, mixed))
    return [
        Candidate(draft.config, CandidateOrigin.ANALYTIC, draft.reason)
        for draft in distinct([*front, *kept], MOST_PROPOSALS)
    ]


def _unlike(front: Sequence[Draft], drafts: Sequence[Draft]) -> list[Draft]:
    """A few drafts more, unlike one another and those in front in two knobs or more.

    Whoever measures a handful should not measure one tile with five warp counts. The
    pick stays first, and the order stays where it can.
    """
    found = list(front)
    for draft in drafts:
        if len(found) < SPREAD and all(
            n_differences(draft.config, other.config) > 1 for other in found
        ):
            found.append(draft)
    return found


def n_differences(one: Config, other: Config) -> int:
    """Knobs that differ; each entry of a list is a knob."""
    total = 0
    for key in one.keys() | other.keys():
        mine, its = one.get(key), other.get(key)
        if isinstance(mine, list) and isinstance(its, list):
            total += sum(a != b for a, b in zip_longest(mine, its))
        else:
            total += mine != its
    return total


def _by_class(facts: Facts, base: Config, extractor: FeatureExtractor) -> list[Draft]:
    """The list of the kernel's class; of each grid body's, where there are several."""
    hardware = extractor.hardware
    if facts.kernel_class is KernelClass.UNKNOWN:
        return []
    if facts.parts:
        return _merged(facts, base, extractor)
    if len(facts.dots) > 1:
        return propose_multi_dot(facts, base, hardware, extractor.resources)
    if facts.dots:
        return propose_matmul(facts, base, hardware)
    if facts.kernel_class is KernelClass.DATA_DEPENDENT:
        return propose_data_dependent(facts, base, hardware)
    if facts.reduced:
        return propose_reduction(facts, base, hardware)
    return propose_pointwise(facts, base, hardware)


def _merged(facts: Facts, base: Config, extractor: FeatureExtractor) -> list[Draft]:
    """One list from the grid bodies' lists: each gives its own knobs by rank.

    Warps and stages are one for all: the body that wants the most decides.
    """
    lists = [_by_class(part, base, extractor) for part in facts.parts]
    lists = [drafts for drafts in lists if drafts]
    merged = []
    for rank in range(max(map(len, lists), default=0)):
        config = {**base, "num_warps": 1, "num_stages": 1}
        reasons = []
        for part, drafts in zip(facts.parts, lists, strict=False):
            draft = drafts[min(rank, len(drafts) - 1)]
            blocks = draft.config.get("block_sizes", [])
            sizes = {slot: blocks[slot] for slot in part.active}
            config = with_blocks(config, sizes)
            for key in ("num_warps", "num_stages"):
                config[key] = max(int(config[key]), int(draft.config[key]))
            loops = draft.config.get("reduction_loops")
            if part.reduced and loops:
                config["reduction_loops"] = loops
            reasons.append(draft.reason)
        merged.append(Draft(config, "; then ".join(reasons)))
    return merged


def _runnable(extractor: FeatureExtractor, drafts: list[Draft]) -> list[Draft]:
    """Those within the hard limits; those that surely spill come last."""
    if not drafts:
        return []
    configs = [draft.config for draft in drafts]
    fits = feasible(extractor, configs)
    spilled = np.zeros(len(drafts))
    if fits.any():
        rows = np.flatnonzero(fits)
        resources = extractor.resources([configs[i] for i in rows])
        spilled[rows] = resources.spilled_bytes / (4.0 * resources.threads)
        # Hard limits hold for the least that a config may need; a pick is used unseen,
        # so it should keep them even if it needs the most.
        over = resources.smem_bytes > extractor.hardware.smem_per_cta_bytes
        spilled[rows] = np.where(over, np.inf, spilled[rows])
    # 80 registers a thread over the limit: below that the estimate is often wrong, or
    # the spill is outside the loop (128 x 256 accumulators with an epilogue).
    order = sorted(
        np.flatnonzero(fits), key=lambda i: (spilled[i] > _SPILL_TOLERATED, i)
    )
    return [drafts[int(i)] for i in order]


def _shrunk(extractor: FeatureExtractor, facts: Facts, draft: Draft) -> list[Draft]:
    """The first draft with its largest tiles halved until it fits."""
    config = {**draft.config, "num_stages": 1}
    for _ in range(40):
        attempt = Draft(config, draft.reason + ", made smaller to fit")
        if _runnable(extractor, [attempt]):
            return [attempt]
        blocks = config.get("block_sizes", [])
        smaller = [
            (blocks[knob.slot], knob.slot)
            for knob in facts.knobs
            if blocks[knob.slot] > knob.choices[0]
        ]
        if not smaller:
            return []
        size, slot = max(smaller)
        config = with_blocks(config, {slot: facts.knobs[slot].nearest(size / 2)})
    return []
