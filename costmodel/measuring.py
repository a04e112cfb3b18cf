"""Answers that use the GPU, all by Helion's own means."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from costmodel import helion_hook
from costmodel.acf.identity import KNOB
from costmodel.acf.identity import without_acf
from costmodel.measured_choice import best_with_controls
from costmodel.measured_choice import configs_to_measure
from costmodel.measured_choice import search_share
from costmodel.provider import STRICT_VARIABLE
from costmodel.provider import default_pick
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

log = logging.getLogger("costmodel")


def measured(
    bound: Any,
    args: Sequence[object],
    pick: Pick,
    pairs: Sequence[tuple[Config, Config]] = (),
) -> Pick:
    """Helion's default and our best few on the GPU; the fastest is the answer.

    Args:
        bound: What Helion passed to its `autotuner_fn`.
        args: The call's arguments, on the GPU.
        pick: Our choice without measuring, with its ranking.
        pairs: Configs and themselves with a control file; those join the measurement,
            each beside its config, and must compute what that computes.
    """
    configs = _with_pairs(configs_to_measure(pick), pairs)
    if len(configs) < 2:
        return pick
    default = configs[0]
    try:
        timed = helion_hook.measure(bound, args, configs)
    except Exception as error:
        return failed(bound, ReasonCode.MEASURE_FAILED, error)
    best = _best_that_agrees(bound, args, timed, default, pairs)
    if best is None:
        detail = f"none of {len(configs)} configs ran"
        return default_pick(bound, ReasonCode.MEASURE_FAILED, detail)
    default_us = next(one.latency_us for one in timed if one.config == default)
    with_file = ", with a control file" if best.config.get(KNOB) else ""
    detail = (
        f"{best.latency_us:.1f} us, the best of {len(configs)} measured{with_file}; "
        f"Helion's default took {default_us:.1f} us"
    )
    return _instead(
        pick, best.config, PickSource.MEASURED, ReasonCode.MEASURED_BEST, detail
    )


def _with_pairs(
    configs: Sequence[Config], pairs: Sequence[tuple[Config, Config]]
) -> tuple[Config, ...]:
    """Each once, those without a control file first."""
    found = list(configs)
    for config in (*(plain for plain, _ in pairs), *(other for _, other in pairs)):
        if config not in found:
            found.append(config)
    return tuple(found)


def _best_that_agrees(
    bound: Any,
    args: Sequence[object],
    timed: Sequence[helion_hook.Measured],
    default: Config,
    pairs: Sequence[tuple[Config, Config]],
) -> helion_hook.Measured | None:
    """The fastest; with a control file only if it computes what the same config
    computes without, besides passing Helion's own check."""
    refused: list[Config] = []
    while True:
        best = best_with_controls(timed, default, refused)
        if best is None or not best.config.get(KNOB):
            return best
        objection = controls_differ(bound, args, best.config, pairs)
        if objection is None:
            return best
        log.warning("costmodel: a control file is left out: %s", objection)
        refused.append(best.config)


def controls_differ(
    bound: Any,
    args: Sequence[object],
    config: Config,
    pairs: Sequence[tuple[Config, Config]] = (),
) -> str | None:
    """Why a config with a control file is not to be trusted; None where it is."""
    plain = next((a for a, b in pairs if b == config), without_acf(config))
    return helion_hook.output_objection(bound, args, config, plain)


def searched(
    bound: Any,
    args: Sequence[object],
    pick: Pick,
    skip_cache: bool,
    options: Mapping[str, object],
    pairs: Sequence[tuple[Config, Config]] = (),
) -> Pick:
    """What Helion's search finds from our candidates in a part of its time.

    Args:
        bound: What Helion passed to its `autotuner_fn`.
        args: The call's arguments, on the GPU.
        pick: Our choice without measuring, with its ranking.
        skip_cache: Helion's word that no cache may be read.
        options: What the user passed to `kernel.autotune`.
        pairs: As of `measured`; they are seeds, and their control files the list that
            Helion searches, none always in it.
    """
    share = search_share(pick)
    seeds = (pick.config, *pick.shortlist)
    budget = helion_hook.SearchBudget(
        share,
        (*seeds, *(config for _, config in pairs)),
        tuple(dict.fromkeys(str(config[KNOB]) for _, config in pairs)),
    )
    try:
        config = helion_hook.seeded_search(
            bound, args, budget, skip_cache=skip_cache, **options
        )
    except Exception as error:
        return failed(bound, ReasonCode.MEASURE_FAILED, error)
    if config.get(KNOB) and budget.controls:
        objection = controls_differ(bound, args, config)
        if objection is not None:
            log.warning("costmodel: a control file is left out: %s", objection)
            return _instead(
                pick,
                without_acf(config),
                PickSource.SEARCHED,
                ReasonCode.ACF_DIFFERS,
                f"Helion's search, without its control file: {objection}",
            )
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
