"""The one interface for whatever scores candidates, and the null scorers.

A scorer sees feature rows only: `[base | difference to the default | workload]`, one
row per candidate of one workload. A row tells everything about its candidate and its
default, so a scorer must be row-wise: permuting rows permutes scores, a batch scores as
its rows do, and a row whose differences are all zero (the default itself) gains 0.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from typing import Protocol

import numpy as np

from costmodel.frozen import dataclass
from costmodel.layout import RowLayout
from costmodel.types import FloatArray
from costmodel.types import Scores

if TYPE_CHECKING:
    from costmodel.features.schema import FeatureSchema

# ln 10: an uncalibrated scorer promises nothing better than ten times slower, which is
# the speed-up of 0.1 that a failed pick is charged in evaluation.
_UNCALIBRATED_LOG = float(np.log(10.0))


class Scorer(Protocol):
    """Predicts the gain of candidates over their workload's default."""

    @property
    def model_id(self) -> str:
        """Names the scorer in a pick; a digest where it was trained."""
        ...

    def score(self, features: FloatArray) -> Scores:
        """Score n candidates of one workload; features: float32[n, len(SCHEMA)]."""
        ...


@dataclass(frozen=True, slots=True)
class RandomScorer:
    """Draws a gain from the bytes of each row: a seeded null that any model must beat.

    Attributes:
        layout: Column blocks of the rows.
        seed: Another seed, another ranking.
    """

    layout: RowLayout
    seed: int = 0

    @property
    def model_id(self) -> str:
        return f"random-{self.seed}"

    def score(self, features: FloatArray) -> Scores:
        """Draw uniformly from [-1, 1] (log gain), 0 for the default's own row."""
        rows = np.ascontiguousarray(features, dtype=np.float32)
        gain = np.array([self._draw(row.tobytes()) for row in rows], dtype=np.float32)
        gain[self.layout.is_reference(rows)] = 0.0
        return _uncalibrated(gain)

    def _draw(self, row: bytes) -> float:
        key = self.seed.to_bytes(8, "little", signed=True)
        digest = hashlib.blake2b(row, digest_size=4, key=key).digest()
        return int.from_bytes(digest, "little") / 2**31 - 1.0


@dataclass(frozen=True, slots=True)
class AnalyticScorer:
    """Trusts the first-principles time estimate alone.

    Attributes:
        column: Column of log2(estimated time) minus that of the default.
    """

    column: int

    @property
    def model_id(self) -> str:
        return "analytic"

    @classmethod
    def of(cls, schema: FeatureSchema) -> AnalyticScorer:
        """The scorer for a schema's rows."""
        return cls(schema.index("d_analytic_us_log2"))

    def score(self, features: FloatArray) -> Scores:
        """Turn the estimate's difference in octaves into a natural-log gain."""
        gain = -np.asarray(features, np.float32)[:, self.column] * np.float32(np.log(2))
        return _uncalibrated(gain + np.float32(0.0))


def _uncalibrated(gain_log: FloatArray) -> Scores:
    return Scores(
        gain_log=gain_log,
        lower_log=gain_log - np.float32(_UNCALIBRATED_LOG),
        valid_probability=np.ones_like(gain_log),
    )
