"""Evaluated configs, found again by identity.

One decision asks about the same configs several times: whether they fit, how they
rank, what their features are. The objects live as long as their rows do, so that no
other config can be mistaken for one of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from costmodel.features.resources import Resources
from costmodel.features.symbols import Sizes
from costmodel.types import Config
from costmodel.types import FloatArray

Rows = npt.NDArray[np.intp]


class RememberedResources:
    """Resources of one batch of configs."""

    def __init__(self, configs: Sequence[Config], resources: Resources) -> None:
        self._configs = list(configs)
        self._row_of = {id(config): row for row, config in enumerate(self._configs)}
        self._resources = resources

    def rows(self, configs: Sequence[Config]) -> Rows | None:
        """Where the configs are, or None where one is not here."""
        found = [self._row_of.get(id(config), -1) for config in configs]
        return None if -1 in found else np.array(found, dtype=np.intp)

    def resources(self, rows: Rows) -> Resources:
        """Resources of some rows."""
        taken: dict[str, Any] = {
            field.name: _taken(getattr(self._resources, field.name), rows)
            for field in dataclasses.fields(Resources)
        }
        return Resources(**taken)


class RememberedFeatures(RememberedResources):
    """The same with features and estimated times."""

    def __init__(
        self,
        configs: Sequence[Config],
        resources: Resources,
        base: FloatArray,
        total_us: Sizes,
    ) -> None:
        super().__init__(configs, resources)
        self._base = base
        self._total_us = np.broadcast_to(total_us, (len(self._configs),))

    def base(self, rows: Rows) -> FloatArray:
        """Features of some rows: float32[n, n_base]."""
        return np.ascontiguousarray(self._base[rows])

    def total_us(self, rows: Rows) -> Sizes:
        """Estimated microseconds of some rows: float64[n]."""
        return self._total_us[rows]


def _taken(values: Any, rows: Rows) -> Any:
    """Rows of an array; one value that stands for all does so still."""
    return values if len(values) == 1 else values[rows]
