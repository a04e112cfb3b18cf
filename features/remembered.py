"""Evaluated configs, found again by identity.

One decision asks about the same configs several times: whether they fit, how they
rank, what their features are. The objects live as long as their rows do, so that no
other config can be mistaken for one of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
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
    """Resources of one batch of configs, and their times if anybody asks.

    Args:
        configs: The configs.
        resources: Theirs.
        estimate: Gives their microseconds, float64[n] or float64[1].
    """

    def __init__(
        self,
        configs: Sequence[Config],
        resources: Resources,
        estimate: Callable[[], Sizes],
    ) -> None:
        self._configs = list(configs)
        self._row_of = {id(config): row for row, config in enumerate(self._configs)}
        self._resources = resources
        self._estimate = estimate
        self._total_us: Sizes | None = None

    def row(self, config: Config) -> int | None:
        """Where a config is, or None."""
        return self._row_of.get(id(config))

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

    def total_us(self, rows: Rows) -> Sizes:
        """Estimated microseconds of some rows: float64[n]."""
        if self._total_us is None:
            made = self._estimate()
            self._total_us = np.broadcast_to(made, (len(self._configs),))
        return self._total_us[rows]


class RememberedFeatures(RememberedResources):
    """The same with features."""

    def __init__(
        self,
        configs: Sequence[Config],
        resources: Resources,
        base: FloatArray,
        total_us: Sizes,
    ) -> None:
        super().__init__(configs, resources, lambda: total_us)
        self._base = base

    def base(self, rows: Rows) -> FloatArray:
        """Features of some rows: float32[n, n_base]."""
        return np.ascontiguousarray(self._base[rows])


def joined(parts: Sequence[Resources]) -> Resources:
    """Resources of some configs after those of others."""
    taken: dict[str, Any] = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in dataclasses.fields(Resources)
    }
    return Resources(**taken)


def _taken(values: Any, rows: Rows) -> Any:
    """Rows of an array; one value that stands for all does so still."""
    return values if len(values) == 1 else values[rows]
