"""Which attempt of a run is Helion's own default: what "1.0" means.

In this order: what the recorder wrote down; what the recording Helion version says
today, if the log holds it; else the first config the run started, since Helion's
searches begin with the default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from costmodel.datasets.record import DefaultSource
from costmodel.datasets.record import Phase
from costmodel.datasets.record import RecordedRun
from costmodel.features.canonical import canonical_id
from costmodel.features.canonical import make_template
from costmodel.types import Config

Baseline = Literal["auto", "first", "helion"]

Recompute = Callable[[RecordedRun], Config | None]
"""Makes the default from the run's source, as the recording Helion version would."""


def resolve_default(
    run: RecordedRun,
    baseline: Baseline = "auto",
    recompute: Recompute | None = None,
) -> RecordedRun:
    """Find the run's default.

    Args:
        run: Any run.
        baseline: "auto" tries all ways; "first" takes the first started config;
            "helion" takes the side file's or the recomputed one and nothing else.
        recompute: See `Recompute`; it is asked only when needed.

    Returns:
        The run with `default_config_id` as the log spells it and `default_how`; with
        None and UNKNOWN where the log does not hold the default.
    """
    found: tuple[str | None, DefaultSource] = (None, DefaultSource.UNKNOWN)
    if baseline != "first":
        found = _from_side_file(run)
        if found[0] is None and recompute is not None:
            config = recompute(run)
            twin = None if config is None else spelling_in(run, config)
            if twin is not None:
                found = (twin, DefaultSource.RECOMPUTED)
    if found[0] is None and baseline != "helion":
        first = first_started(run)
        if first is not None:
            found = (first, DefaultSource.FIRST_STARTED)
    return dataclasses.replace(run, default_config_id=found[0], default_how=found[1])


def first_started(run: RecordedRun) -> str | None:
    """Id of the config that the run's first session started first.

    It may be one whose result is lost: then the default was not measured, and the next
    config must not pass for it.
    """
    tried = [
        (_start_order(one.session, one.started_at_s), one.ordinal, one.config_id)
        for one in run.attempts
        if one.phase is Phase.TRIAL and not one.status.says_nothing
    ]
    first = min(tried, default=None)
    lost = min(
        (
            (_start_order(one.session, one.started_at_s), one.line, one.config_id)
            for one in run.lost
            if one.started_at_s is not None
        ),
        default=None,
    )
    if lost is not None and (first is None or lost[0] < first[0]):
        return spelling_in(run, _tried_configs(run)[lost[2]])
    return None if first is None else first[2]


def spelling_in(run: RecordedRun, config: Config) -> str | None:
    """Id under which the run's log spells a config, in full or in part; of several
    one with a result, then the fullest, and None if there is none."""
    configs = _tried_configs(run)
    template = make_template([*configs.values(), config])
    wanted = canonical_id(config, template)
    twins = [
        config_id
        for config_id, spelled in configs.items()
        if canonical_id(spelled, template) == wanted
    ]
    measured = run.configs
    return min(
        twins,
        key=lambda one: (one not in measured, -len(configs[one]), one),
        default=None,
    )


def _from_side_file(run: RecordedRun) -> tuple[str | None, DefaultSource]:
    side = run.side
    if side is None or side.default_config_id is None:
        return None, DefaultSource.UNKNOWN
    if side.default_config_id in _tried_configs(run):
        return side.default_config_id, DefaultSource.SIDE_FILE
    if side.default_config is not None:
        twin = spelling_in(run, side.default_config)
        if twin is not None:
            return twin, DefaultSource.SIDE_FILE
    return None, DefaultSource.UNKNOWN


def _tried_configs(run: RecordedRun) -> dict[str, Config]:
    """By id: those with an attempt, and those whose result is lost."""
    return {one.config_id: one.config for one in run.lost} | run.configs


def _start_order(session: int, began: float | None) -> tuple[int, bool, float]:
    """Sessions in order; in one, what was never timed comes last."""
    return (session, began is None, began or 0.0)
