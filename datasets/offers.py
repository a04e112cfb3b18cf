"""What a bound kernel offers a plan: seeds, our candidates, its space, its limits."""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from costmodel import helion_hook
from costmodel.config_space import ConfigSpace
from costmodel.datasets.plan import Offers
from costmodel.datasets.plan import Tier
from costmodel.errors import UnreadableKernelError
from costmodel.features.classify import classify
from costmodel.features.extract import FeatureExtractor
from costmodel.features.feasible import feasible
from costmodel.features.graph import KernelGraph
from costmodel.hardware import Hardware
from costmodel.helion_hook import HelionView
from costmodel.heuristics.propose import propose
from costmodel.types import Config
from costmodel.types import KernelClass

_DOT_CLASSES = frozenset(
    {KernelClass.MATMUL, KernelClass.MATMUL_REDUCTION, KernelClass.MULTI_DOT}
)
_SEED_BITS = 32


def make_offers(bound: Any, view: HelionView, hardware: Hardware) -> Offers:
    """Offers of a kernel bound for `hardware`; without ours where it is unreadable."""
    space = helion_hook.space(bound)
    analytic, check = _analyse(view, hardware, space)

    def random_config(rng: random.Random) -> Config:
        return helion_hook.random_config(bound, rng.getrandbits(_SEED_BITS))

    def normalize(config: Config) -> Config | None:
        full = helion_hook.normalize(bound, config)
        if full is None or not helion_hook.is_legal(bound, full):
            return None
        # Helion's Config forgets a None, and a config's id is that of what it keeps.
        return {name: value for name, value in full.items() if value is not None}

    return Offers(
        default=view.default,
        seeds=view.seeds,
        analytic=analytic,
        space=space,
        random_config=random_config,
        normalize=normalize,
        feasible=check,
        has_rule=view.promoted,
    )


def tier_of(view: HelionView) -> Tier:
    """How much a better pick pays on kernels of this structure."""
    if not view.promoted:
        return Tier.NO_RULE
    try:
        kind = classify(KernelGraph.from_record(view.record))
    except UnreadableKernelError:
        return Tier.OTHER
    return Tier.DOT if kind in _DOT_CLASSES else Tier.OTHER


def _analyse(
    view: HelionView, hardware: Hardware, space: ConfigSpace
) -> tuple[list[Config], Callable[[Sequence[Config]], Sequence[bool]]]:
    """Analytic candidates and the feasibility check.

    Whatever fails in our analysis, the kernel is recorded: GPU time is dearer than a
    better plan, and a log of an unreadable kernel is what a better analyser needs.
    """
    try:
        graph = KernelGraph.from_record(view.record)
        extractor = FeatureExtractor(graph, hardware)
    except Exception:
        return [], _all_pass
    try:
        proposed = propose(graph, extractor, view.default, space)
        analytic = [candidate.config for candidate in proposed]
    except Exception:
        analytic = []

    def check(configs: Sequence[Config]) -> Sequence[bool]:
        try:
            return [bool(one) for one in feasible(extractor, configs)]
        except Exception:
            return _all_pass(configs)

    return analytic, check


def _all_pass(configs: Sequence[Config]) -> Sequence[bool]:
    return [True] * len(configs)
