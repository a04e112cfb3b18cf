"""What each config is predicted to lose at each shape of a kernel.

For every shape the provider picks as it does for that shape alone. The picks, Helion's
defaults and the runners-up of all shapes are then compared at every shape with that
shape's own pick: an entry is the predicted log loss against it, with the calibrated
doubt added, because a config may leave the answer that was checked for a shape only if
it is surely no worse. Shapes are bound with no memory, as if on the named GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from costmodel import helion_hook
from costmodel.arguments import Argument
from costmodel.cover import Losses
from costmodel.errors import UnreadableKernelError
from costmodel.features.canonical import canonical_config
from costmodel.features.extract import FeatureExtractor
from costmodel.features.feasible import feasible
from costmodel.features.graph import KernelGraph
from costmodel.features.schema import SCHEMA
from costmodel.frozen import dataclass
from costmodel.gate import FAILURE_LOG
from costmodel.gate import GUARDS
from costmodel.gate import expected_gain_log
from costmodel.hardware import Hardware
from costmodel.heuristics.listed import with_list
from costmodel.hybrid import canonical_text
from costmodel.learned import LearnedModel
from costmodel.provider import Provider
from costmodel.target import bind
from costmodel.target import targeting
from costmodel.types import Config
from costmodel.types import Pick

# Columns of the table: every pick and default, then runners-up while there is room.
# Each costs about a millisecond at each shape.
MOST_CONFIGS = 192

# What a config loses where we cannot compare it: as much as the gate charges a failure.
_UNKNOWN_LOG = -FAILURE_LOG

# The analytic estimate alone is never believed over a rule of Helion's; a config that
# it calls equal to the default is charged a tenth.
_UNPROVEN_LOG = float(np.log(1.1))


@dataclass(frozen=True, slots=True)
class ShapeCase:
    """One shape that a kernel is called with.

    Attributes:
        arguments: One for each parameter without a default.
        weight: How much it matters, such as its share of the calls; > 0.
        key: Named sizes, for layouts that look configs up by name.
        label: For people.
    """

    arguments: tuple[Argument, ...]
    weight: float = 1.0
    key: Mapping[str, int | float | str | bool] = field(default_factory=dict)
    label: str = ""


@dataclass(frozen=True, slots=True)
class LossTable:
    """Predicted losses of configs at shapes.

    Attributes:
        cases: The rows.
        picks: What the provider answers for each row alone.
        configs: The columns; each row's pick comes before all runners-up.
        loss_log: float64[n_cases, n_configs], >= 0; 0 for a row's own pick, inf where
            the config cannot run.
        own: Column of each row's pick.
        default: Column of each row's Helion default.
        bound: Helion's bound kernel of each row.
    """

    cases: tuple[ShapeCase, ...]
    picks: tuple[Pick, ...]
    configs: tuple[Config, ...]
    loss_log: Losses
    own: tuple[int, ...]
    default: tuple[int, ...]
    bound: tuple[Any, ...]

    def generates(self, row: int, column: int) -> bool:
        """Whether Helion generates code for this config at this shape: the proof."""
        try:
            helion_hook.triton_code(self.bound[row], self.configs[column])
        except Exception:  # whatever Helion raises, the config is of no use there
            return False
        return True


def make_loss_table(
    kernel: Any,
    cases: Sequence[ShapeCase],
    hardware: Hardware,
    provider: Provider,
    *,
    extra: Sequence[Config] = (),
) -> LossTable:
    """Bind every shape, pick for it, and compare all picks at all shapes.

    Args:
        kernel: A `helion.kernel` object; it is left alone.
        cases: Shapes, at least one.
        hardware: The target GPU; it need not be present.
        provider: Who picks.
        extra: More configs to consider, such as ones in use today.

    Raises:
        BindError: Helion refuses a shape.
    """
    if not cases:
        raise ValueError("expected at least one shape")
    with targeting(hardware):
        bound = tuple(bind(kernel, case.arguments, hardware) for case in cases)
        picks = tuple(provider.pick(one) for one in bound)
        columns = _Columns()
        own = tuple(columns.add(pick.config) for pick in picks)
        default = tuple(columns.add(_default(pick)) for pick in picks)
        for config in extra:
            columns.add(config)
        longest = max(len(pick.shortlist) for pick in picks)
        for rank in range(longest):
            for pick in picks:
                if rank < len(pick.shortlist) and len(columns.kept) < MOST_CONFIGS:
                    columns.add(pick.shortlist[rank])
        configs = tuple(columns.kept)
        model = provider.model()
        loss = np.full((len(cases), len(configs)), np.inf)
        for row, (one, pick) in enumerate(zip(bound, picks, strict=True)):
            loss[row] = _losses(one, pick, configs, hardware, model)
            loss[row, own[row]] = 0.0
    return LossTable(tuple(cases), picks, configs, loss, own, default, bound)


class _Columns:
    """Configs so far, each once."""

    def __init__(self) -> None:
        self.kept: list[Config] = []
        self._places: dict[str, int] = {}

    def add(self, config: Config) -> int:
        """Its column, new or known."""
        full = canonical_config(config)
        text = canonical_text(full)
        if text not in self._places:
            self._places[text] = len(self.kept)
            self.kept.append(full)
        return self._places[text]


def _default(pick: Pick) -> Config:
    return pick.config if pick.default is None else pick.default


def _losses(
    bound: Any,
    pick: Pick,
    configs: Sequence[Config],
    hardware: Hardware,
    model: LearnedModel | None,
) -> Losses:
    """float64[n_configs]: loss against this shape's pick; inf where it cannot run."""
    loss = np.full(len(configs), np.inf)
    default = canonical_text(canonical_config(_default(pick)))
    legal = [
        column
        for column, config in enumerate(configs)
        if canonical_text(config) == default or _may_run(bound, config)
    ]
    loss[legal] = _UNKNOWN_LOG
    try:
        view = helion_hook.view(bound)
        extractor = FeatureExtractor(KernelGraph.from_record(view.record), hardware)
        with_list(extractor, view.default)
    except UnreadableKernelError:
        return loss
    # Written as Helion would compile it here, whatever the shape it comes from.
    full = [canonical_config(configs[column], view.default) for column in legal]
    if not full:
        return loss
    is_default = np.array([canonical_text(configs[c]) == default for c in legal])
    try:
        fits = feasible(extractor, full) | is_default
        values = _against(
            extractor, full, pick, model, view.promoted, is_default, view.default
        )
    except UnreadableKernelError:
        return loss
    loss[legal] = np.where(fits, values, np.inf)
    return loss


def _against(
    extractor: FeatureExtractor,
    configs: Sequence[Config],
    pick: Pick,
    model: LearnedModel | None,
    promoted: bool,
    is_default: np.ndarray[Any, np.dtype[np.bool_]],
    default: Config,
) -> Losses:
    """float64[n]: predicted log loss against the pick, the doubt added."""
    reference = canonical_config(pick.config, default)
    if model is None or pick.model_id is None:
        times_us = extractor.analytic_us([*configs, reference])
        loss = np.maximum(0.0, np.log(times_us[:-1] / times_us[-1]))
        if promoted:
            loss = np.where(is_default, loss, np.maximum(loss, _UNPROVEN_LOG))
        return np.asarray(loss, dtype=np.float64)
    rows = extractor.matrix(configs, reference)
    scores = model.score(rows)
    expected = expected_gain_log(scores).astype(np.float64)
    # Helion's default needs no proof.
    doubt = np.where(is_default, 0.0, scores.gain_log - scores.lower_log)
    loss = np.maximum(0.0, doubt - expected)
    loss[model.layout.is_reference(rows)] = 0.0
    if promoted:
        beside = extractor.matrix(configs, default)
        for guard in GUARDS:
            breaks = ~guard.keeps(beside, SCHEMA) & ~is_default
            loss = np.where(breaks, np.maximum(loss, _UNKNOWN_LOG), loss)
    return loss


def _may_run(bound: Any, config: Config) -> bool:
    """Whether Helion would take this config here.

    A block over the extent only wastes lanes, so it is judged by the largest block
    that Helion's search would write; everything else must be what Helion would write.
    """
    if helion_hook.normalize(bound, config) is None:
        return False
    knob = helion_hook.space(bound).knobs.get("block_sizes")
    blocks = config.get("block_sizes")
    if knob is None or not isinstance(blocks, list) or len(blocks) != len(knob.slots):
        return helion_hook.is_legal(bound, config)
    smaller = [
        min(size, max(slot.choices)) if isinstance(size, int) else size
        for size, slot in zip(blocks, knob.slots, strict=True)
    ]
    return helion_hook.is_legal(bound, {**config, "block_sizes": smaller})
