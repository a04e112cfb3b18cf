"""One workload as training sees it: feature rows and what was measured of each.

Times are kept as ln(time / default time): a workload has no other scale, and a
difference of logs between two rows is their log ratio whatever the default was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costmodel.types import Config
from costmodel.types import FloatArray
from costmodel.types import KernelClass

# A failed or missing reading; never compared, always masked by `is_ok`.
MISSING = float("nan")


@dataclass(frozen=True, slots=True)
class LabelledWorkload:
    """Feature rows and measurements of one run; one row per canonical config.

    Attributes:
        workload_id: Unique in a corpus.
        kernel: For people.
        family: The unit left out in evaluation.
        kernel_class: Class read from the graph; results are also given by class.
        shape_id: Digest of what differs between workloads of one kernel.
        source_digest: Digest of the kernel's source; groups shapes of one kernel.
        hardware: Device name.
        promoted: Whether Helion has a rule for this kernel.
        default_index: Row of Helion's default, which was measured.
        features: float32[n, n_features], relative to the default.
        log_ratio: float64[n], ln(time / default time); NaN where not ok.
        is_ok: bool[n], measured and correct.
        analytic_us: float64[n], first-principles estimate.
        analytic_order: Rows by analytic merit, best first: where Helion has no rule our
            proposals as listed, as far as they were measured; then by estimate.
        default_us: Measured microseconds of the default.
        noise_floor_log: Log ratios closer to 0 than this are ties.
        harm_floor_log: Slower than the default by more than this log ratio is harm. No
            wider for a default that was read once and first, and so perhaps slow: that
            can hide harm and never feign it.
        configs: Canonical configs.
        config_ids: As the log spells them.
        weight: How much it weighs in fitting, an average workload being 1.
    """

    workload_id: str
    kernel: str
    family: str
    kernel_class: KernelClass
    shape_id: str
    source_digest: str
    hardware: str
    promoted: bool
    default_index: int
    features: FloatArray
    log_ratio: npt.NDArray[np.float64]
    is_ok: npt.NDArray[np.bool_]
    analytic_us: npt.NDArray[np.float64]
    analytic_order: tuple[int, ...]
    default_us: float
    noise_floor_log: float
    harm_floor_log: float
    configs: tuple[Config, ...]
    config_ids: tuple[str, ...]
    weight: float = 1.0

    @property
    def n_rows(self) -> int:
        """Number of configs, failures included."""
        return len(self.is_ok)

    @property
    def best_log(self) -> float:
        """ln(best time / default time); 0 where the default is the best."""
        return float(np.min(self.log_ratio[self.is_ok]))

    def is_slow_or_failed(self, times_slower: float) -> npt.NDArray[np.bool_]:
        """bool[n]: failed, or slower than the default by more than the factor."""
        is_slow = np.nan_to_num(self.log_ratio) > np.log(times_slower)
        bad: npt.NDArray[np.bool_] = ~self.is_ok | is_slow
        return bad
