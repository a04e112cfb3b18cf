"""The three blocks of a feature row, and how rows are related to their reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from costmodel.frozen import dataclass
from costmodel.types import FloatArray

if TYPE_CHECKING:
    from costmodel.features.schema import FeatureSchema


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Where the three blocks of a feature row are, by column.

    Attributes:
        base: Columns of the candidate's own features.
        difference: Columns of candidate minus reference, in the same order as `base`.
        workload: Columns that are equal for all candidates of one workload.
    """

    base: slice
    difference: slice
    workload: slice

    @classmethod
    def of(cls, schema: FeatureSchema) -> RowLayout:
        """The blocks of a schema."""
        return cls(
            base=schema.columns("base"),
            difference=schema.columns("difference"),
            workload=schema.columns("workload"),
        )

    def against(self, features: FloatArray, reference_row: FloatArray) -> FloatArray:
        """The same candidates compared with another reference.

        Args:
            features: float32[n, n_features], compared with whatever reference.
            reference_row: float32[n_features], the row of the new reference.

        Returns:
            float32[n, n_features] as `FeatureExtractor.differences` makes them.
        """
        moved = features.copy()
        moved[:, self.difference] = features[:, self.base] - reference_row[self.base]
        return moved

    def at_reference(self, features: FloatArray) -> FloatArray:
        """Each row's reference, as a row compared with itself.

        Args:
            features: float32[n, n_features].

        Returns:
            float32[n, n_features]: the reference's base features, no differences, the
            same workload. Subtraction rounds, so the base features are kept to 2^-12,
            in which all candidates of one workload agree but for rare borderline cases.
        """
        moved = features.copy()
        base = features[:, self.base] - features[:, self.difference]
        moved[:, self.base] = _rounded(base)
        moved[:, self.difference] = 0.0
        return moved

    def is_reference(self, features: FloatArray) -> npt.NDArray[np.bool_]:
        """bool[n]: rows that do not differ from their reference in any feature."""
        same: npt.NDArray[np.bool_] = (features[:, self.difference] == 0).all(axis=1)
        return same


def _rounded(values: FloatArray) -> FloatArray:
    """To the nearest multiple of 2^-12: finer than any split between feature values."""
    scale = np.float32(4096.0)
    return (np.round(values * scale) / scale).astype(np.float32)
