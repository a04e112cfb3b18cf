"""Answers that use the GPU, all by Helion's own means."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from costmodel import helion_hook
from costmodel.measured_choice import best_measured
from costmodel.measured_choice import configs_to_measure
from costmodel.measured_choice import search_share
from costmodel.provider import STRICT_VARIABLE
from costmodel.provider import default_pick
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

log = logging.getLogger("costmodel")


def measured(bound: Any, args: Sequence[object], pick: Pick) -> Pick:
    """Helion's default and our best few on the GPU; the fastest is the answer."""
    configs = configs_to_measure(pick)
    if len(configs) < 2:
        return pick
    default = configs[0]
    try:
        timed = helion_hook.measure(bound, args, configs)
    except Exception as error:
        return failed(bound, ReasonCode.MEASURE_FAILED, error)
    best = best_measured(timed, default)
    if best is None:
        detail = f"none of {len(configs)} configs ran"
        return default_pick(bound, ReasonCode.MEASURE_FAILED, detail)
    default_us = next(one.latency_us for one in timed if one.config == default)
    detail = (
        f"{best.latency_us:.1f} us, the best of {len(configs)} measured; "
        f"Helion's default took {default_us:.1f} us"
    )
    return _instead(
        pick, best.config, PickSource.MEASURED, ReasonCode.MEASURED_BEST, detail
    )


def searched(
    bound: Any,
    args: Sequence[object],
    pick: Pick,
    skip_cache: bool,
    options: Mapping[str, object],
) -> Pick:
    """What Helion's search finds from our candidates in a part of its time."""
    share = search_share(pick)
    budget = helion_hook.SearchBudget(share, (pick.config, *pick.shortlist))
    try:
        config = helion_hook.seeded_search(
            bound, args, budget, skip_cache=skip_cache, **options
        )
    except Exception as error:
        return failed(bound, ReasonCode.MEASURE_FAILED, error)
    detail = (
        f"Helion's search from {len(pick.shortlist)} candidates of ours, "
        f"with {share:.0%} of its rounds"
    )
    return _instead(pick, config, PickSource.SEARCHED, ReasonCode.SEARCHED, detail)


def _instead(
    pick: Pick, config: Config, source: PickSource, reason: ReasonCode, detail: str
) -> Pick:
    """The pick with another config, and what was predicted of that one."""
    known = dict(enumerate(pick.shortlist_speedups))
    places = [i for i, one in enumerate(pick.shortlist) if one == config]
    speedup, lower = known.get(places[0], (None, None)) if places else (None, None)
    if config == pick.default:
        speedup = lower = 1.0
    return replace(
        pick,
        config=dict(config),
        source=source,
        reason=reason,
        detail=detail,
        predicted_speedup=speedup,
        speedup_lower=lower,
    )


def with_checked_output(bound: Any, args: Sequence[object], pick: Pick) -> Pick:
    """The pick, or Helion's default where their results differ."""
    reference = helion_hook.default_config(bound)
    if pick.config == reference:
        return pick
    objection = helion_hook.output_objection(bound, args, pick.config, reference)
    if objection is None:
        return pick
    return default_pick(bound, ReasonCode.OUTPUT_DIFFERS, objection)


def failed(bound: Any, reason: ReasonCode, error: Exception) -> Pick:
    """Helion's default, with what went wrong; raises it where tests want that."""
    if os.environ.get(STRICT_VARIABLE) == "1":
        raise error
    log.debug("costmodel failed", exc_info=error)
    words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return default_pick(bound, reason, words)
