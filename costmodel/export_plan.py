"""At most n configs for the shapes of one kernel, and which shape gets which."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodel.cover import Cover
from costmodel.cover import choose_cover
from costmodel.errors import NoCommonConfigError
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.provider import Provider
from costmodel.shape_losses import LossTable
from costmodel.shape_losses import ShapeCase
from costmodel.shape_losses import make_loss_table
from costmodel.types import Config

# Knobs that Helion 1.4 does not know and refuses, with the value that does nothing; a
# file without them is read by both (`autotuner/config_spec.py` of 1.4.0 and 1.5.1).
_IDLE_IF: Mapping[str, Any] = {
    "cross_loop_pipeline": "barrier",
    "host_tensor_descriptors": False,
    "reduction_fusion": False,
}


@dataclass(frozen=True, slots=True)
class ExportEntry:
    """What one shape gets.

    Attributes:
        case: The shape.
        index: Its config.
        loss_log: Predicted log loss against the shape's own pick, doubt added.
        source: Who decided for the shape alone: learned, analytic or default.
    """

    case: ShapeCase
    index: int
    loss_log: float
    source: str


@dataclass(frozen=True, slots=True)
class KernelExport:
    """The configs of one kernel on one GPU.

    Attributes:
        name: What layouts call the kernel.
        hardware: The target.
        configs: Distinct configs, the one for unlisted shapes first.
        entries: One for each shape, in the order given.
        mean_loss_log: Weighted mean of the entries' losses.
        worst_loss_log: The largest.
        default_fails_at: Labels of shapes at which the first config cannot run.
        is_exact: Whether all sets of configs were compared.
        model_id: Digest of the model that scored, or None.
    """

    name: str
    hardware: Hardware
    configs: tuple[Config, ...]
    entries: tuple[ExportEntry, ...]
    mean_loss_log: float
    worst_loss_log: float
    default_fails_at: tuple[str, ...]
    is_exact: bool
    model_id: str | None


def plan_export(
    kernel: Any,
    cases: Sequence[ShapeCase],
    hardware: Hardware,
    provider: Provider,
    *,
    max_configs: int,
    name: str = "",
    extra: Sequence[Config] = (),
    for_older: bool = False,
) -> KernelExport:
    """Choose configs for all shapes: least mean and worst predicted loss.

    Every chosen config is shown to generate code at every shape it serves.

    Args:
        kernel: A `helion.kernel` object.
        cases: Its shapes.
        hardware: The target GPU.
        provider: Who picks for each shape.
        max_configs: Most distinct configs, >= 1.
        name: What layouts call the kernel; "" means its own name.
        extra: More configs to choose from, such as those of another GPU's file.
        for_older: Choose only configs that Helion 1.4 reads as well.

    Raises:
        NoCommonConfigError: So few configs cannot serve all shapes.
        BindError: Helion refuses a shape.
    """
    table = make_loss_table(kernel, cases, hardware, provider, extra=extra)
    loss, cover = _proven_cover(table, max_configs, for_older)
    weights = [case.weight for case in cases]
    first = choose_cover(loss[:, list(cover.columns)], weights, 1)
    default_column = cover.columns[first.columns[0]]
    order = [default_column, *(c for c in cover.columns if c != default_column)]
    entries = tuple(
        ExportEntry(
            case=case,
            index=order.index(column),
            loss_log=float(loss[row, column]),
            source=table.picks[row].source.value,
        )
        for row, (case, column) in enumerate(zip(cases, cover.serves, strict=True))
    )
    return KernelExport(
        name=name or str(kernel.name),
        hardware=hardware,
        configs=tuple(portable(table.configs[column]) for column in order),
        entries=entries,
        mean_loss_log=cover.mean_log,
        worst_loss_log=cover.worst_log,
        default_fails_at=tuple(
            cases[row].label
            for row in range(len(cases))
            if not np.isfinite(loss[row, default_column])
        ),
        is_exact=cover.is_exact,
        model_id=next((p.model_id for p in table.picks if p.model_id), None),
    )


def portable(config: Config) -> Config:
    """The config without idle knobs that older Helions do not know."""
    return {
        key: value
        for key, value in config.items()
        if not (key in _IDLE_IF and value == _IDLE_IF[key])
    }


def _proven_cover(
    table: LossTable, limit: int, for_older: bool
) -> tuple[np.ndarray[Any, Any], Cover]:
    """A cover of which each config generates code where it serves."""
    loss = table.loss_log.copy()
    if for_older:
        young = [not _IDLE_IF.keys().isdisjoint(portable(c)) for c in table.configs]
        loss[:, young] = np.inf
    weights = [case.weight for case in table.cases]
    while True:
        cover = choose_cover(loss, weights, limit)
        if cover.unserved:
            labels = [table.cases[row].label for row in cover.unserved]
            raise NoCommonConfigError(
                f"expected {limit} configs to serve {len(weights)} shapes, found none "
                f"left for {labels[0]!r}: allow more configs"
            )
        failing = [
            (row, column)
            for row, column in enumerate(cover.serves)
            if not table.generates(row, column)
        ]
        if not failing:
            return loss, cover
        for row, column in failing:
            loss[row, column] = np.inf
