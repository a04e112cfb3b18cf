"""Several sessions of one workload as one, each related to its own default.

Times of two sessions are not compared (clocks and temperature differ), their ratios to
a default that was timed with them are: of 179 H200 workloads timed twice on one day the
default itself agreed within 1 % for half and within 6 % for nine in ten (2026-11).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from costmodel.features.schema import SCHEMA
from costmodel.hybrid import canonical_text
from costmodel.training.labelled import LabelledWorkload
from costmodel.types import FloatArray


def joined(workloads: Iterable[LabelledWorkload]) -> tuple[LabelledWorkload, ...]:
    """One labelled workload for each kernel, shapes and device.

    The session with the most configs gives identity, noise and default; the others add
    their configs, and a second opinion of those that both have: the mean of two ratios,
    or the one there is where a config ran in one session only.

    Args:
        workloads: In any order.

    Returns:
        In the order in which each first came.
    """
    sessions: dict[tuple[str, str], list[LabelledWorkload]] = {}
    for one in workloads:
        sessions.setdefault((one.shape_id, one.hardware), []).append(one)
    return tuple(_joined(of_one) for of_one in sessions.values())


def _joined(sessions: list[LabelledWorkload]) -> LabelledWorkload:
    # The first of the largest, so that the order of equals decides nothing else.
    base = max(sessions, key=lambda one: one.n_rows)
    for other in sessions:
        if other is not base and _same_default(base, other):
            base = _with(base, other)
    return base


def _same_default(base: LabelledWorkload, other: LabelledWorkload) -> bool:
    """Whether both mean the same config by Helion's default; versions may differ."""
    mine = base.configs[base.default_index]
    return canonical_text(mine) == canonical_text(other.configs[other.default_index])


def _with(base: LabelledWorkload, other: LabelledWorkload) -> LabelledWorkload:
    place = {canonical_text(config): i for i, config in enumerate(base.configs)}
    log_ratio, is_ok = base.log_ratio.copy(), base.is_ok.copy()
    new = []
    for row, config in enumerate(other.configs):
        known = place.get(canonical_text(config))
        if known is None:
            new.append(row)
        elif row != other.default_index and other.is_ok[row]:
            both = (log_ratio[known] + other.log_ratio[row]) / 2.0
            log_ratio[known] = both if is_ok[known] else other.log_ratio[row]
            is_ok[known] = True
    features = np.concatenate([base.features, other.features[new]])
    analytic_us = np.concatenate([base.analytic_us, other.analytic_us[new]])
    return replace(
        base,
        features=features,
        log_ratio=np.concatenate([log_ratio, other.log_ratio[new]]),
        is_ok=np.concatenate([is_ok, other.is_ok[new]]),
        analytic_us=analytic_us,
        analytic_order=_analytic_order(features, analytic_us),
        configs=(*base.configs, *(other.configs[i] for i in new)),
        config_ids=(*base.config_ids, *(other.config_ids[i] for i in new)),
    )


def _analytic_order(
    features: FloatArray, analytic_us: npt.NDArray[np.float64]
) -> tuple[int, ...]:
    """Our proposals as listed, then the rest by estimated time."""
    place = features[:, SCHEMA.index("proposal_place")]
    is_other = features[:, SCHEMA.index("is_proposed")] == 0.0
    order = np.lexsort((analytic_us, np.where(is_other, 0.0, place), is_other))
    return tuple(map(int, order))
