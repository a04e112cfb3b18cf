"""A labelled workload whose rows stay on disk until somebody asks for them.

Whoever works on labelled workloads works on these: they have the same attributes. What
is small (times, what failed, all that is said once of a workload) is in memory; its
feature rows and configs are one row group of a Parquet file, read when asked for.
"""

from __future__ import annotations

import functools
import json
from typing import Any
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from costmodel.datasets.locations import open_input
from costmodel.training.labelled import LabelledWorkload
from costmodel.types import Config
from costmodel.types import FloatArray

FEATURES = "features"
CONFIG = "config"
CONFIG_ID = "config_id"
LOG_RATIO = "log_ratio"
IS_OK = "is_ok"
ANALYTIC_US = "analytic_us"
ANALYTIC_ORDER = "analytic_order"

# Whoever asks asks several times in a row; a few threads ask at once.
_REMEMBERED = 8


class Place(NamedTuple):
    """Where the rows of a workload are: a file, wherever it lies, and a row group."""

    location: str
    row_group: int


class StoredWorkload(LabelledWorkload):
    """See the module; everything but the rows is as of `LabelledWorkload`."""

    __slots__ = ("place", "run_id")

    place: Place
    run_id: str

    def __init__(self, place: Place, run_id: str, facts: dict[str, Any]) -> None:
        """Take what is in memory.

        Args:
            place: Where the rows are.
            run_id: Helion's id of the run.
            facts: Attributes of `LabelledWorkload` other than those read from there.
        """
        object.__setattr__(self, "place", place)
        object.__setattr__(self, "run_id", run_id)
        object.__setattr__(self, "weight", 1.0)
        for name, value in facts.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # To another process goes where the rows are, and not the rows.
        facts = {
            name: getattr(self, name)
            for name in LabelledWorkload.__dataclass_fields__
            if name not in _READ
        }
        return StoredWorkload, (self.place, self.run_id, facts)

    @property
    def features(self) -> FloatArray:
        """float32[n, n_features], read from the file."""
        return _features(*self.place)

    @property
    def configs(self) -> tuple[Config, ...]:
        """Canonical configs, read from the file."""
        return tuple(json.loads(one) for one in _column(*self.place, CONFIG))

    @property
    def config_ids(self) -> tuple[str, ...]:
        """As the log spells them, read from the file."""
        return tuple(_column(*self.place, CONFIG_ID))

    @property
    def analytic_us(self) -> npt.NDArray[np.float64]:
        """float64[n], read from the file."""
        return np.array(_column(*self.place, ANALYTIC_US), np.float64)

    @property
    def analytic_order(self) -> tuple[int, ...]:
        """Rows by analytic merit, read from the file."""
        return tuple(_column(*self.place, ANALYTIC_ORDER))


_READ = frozenset(
    {"features", "configs", "config_ids", "analytic_us", "analytic_order"}
)


@functools.lru_cache(maxsize=_REMEMBERED)
def _features(location: str, row_group: int) -> FloatArray:
    with open_input(location) as file:
        table = pq.ParquetFile(file).read_row_group(row_group, [FEATURES])
    column = table[FEATURES].combine_chunks()
    rows: FloatArray = column.flatten().to_numpy().reshape(len(column), -1)
    rows.setflags(write=False)  # it is remembered, and others see it
    return rows


def _column(location: str, row_group: int, name: str) -> list[Any]:
    with open_input(location) as file:
        table = pq.ParquetFile(file).read_row_group(row_group, [name])
    found: list[Any] = table[name].to_pylist()
    return found
