"""How far two timings must lie apart to be different: a small model of the noise.

Measured on one H200 over 37 workloads (3,014 attempts, Helion's own benchmark, Nov
2026): two readings of one program in one run differ by 0.24 % in the median, but by
24 % at the 90th percentile under 30 us; kernels of a few microseconds vary by 10 to
20 % between processes; the first reading of a session reads slow, by up to 17 % on
short kernels. So: a relative part, a part that more readings average out (from their
own scatter where there are several, else from the clock's resolution), and a bias of
first readings that they do not. The tail is longer than any floor: one that covered
24 % would call every short kernel a tie.
"""

from __future__ import annotations

import math

from costmodel.datasets.record import LabelQuality
from costmodel.datasets.side_file import BACK_TO_BACK

RELATIVE_LOG = 0.01
"""ln ratio; drift of clocks and power between readings minutes apart."""
RELATIVE_INTERLEAVED_LOG = 0.0025
"""ln ratio; median difference of two readings of one program, drift cancelled."""
JITTER_US = 0.25
"""Microseconds; half of the clock's resolution (CUDA events step by 0.5 us). The ten
pairs of later readings in `corpora/h200_sample`, of 12 to 307 us, all lie within the
floor this gives; the one pair of 14 us that differs by 12 % holds a first reading."""
JITTER_CAP_LOG = 0.24
"""ln ratio; 90th percentile of the differences under 30 us."""
CERTAINTY = 2.5
"""Standard deviations of single readings per floor of their median: 1.25 for a median
instead of a mean, twice that for 95 % certainty."""
FIRST_BIAS_LOG = 0.17
"""ln ratio; how slow a session's first reading was at worst on short kernels."""
FIRST_BIAS_US = 30.0
"""Microseconds; kernels shorter than this take the whole bias."""


def noise_floor_log(
    latency_us: float,
    n_readings: int,
    quality: LabelQuality,
    regime: str = BACK_TO_BACK,
    measured_log: float | None = None,
    scatter_log: float | None = None,
) -> float:
    """Uncertainty of one label as an ln ratio, to be compared with ln(time / time).

    Args:
        latency_us: The label in microseconds.
        n_readings: How many readings it is the median of.
        quality: How they were taken.
        regime: Only readings of single launches have the fixed jitter; others time
            many launches at once.
        measured_log: The recorder's own noise floor, of its interleaved readings.
        scatter_log: Standard deviation of ln(reading), where there are several.

    Returns:
        At least 0.0025; NaN for a label without a time.
    """
    if quality is LabelQuality.NONE or not latency_us > 0:
        return math.nan
    careful = quality in (LabelQuality.INTERLEAVED, LabelQuality.REBENCHMARKED)
    relative = RELATIVE_INTERLEAVED_LOG if careful else RELATIVE_LOG
    if quality is LabelQuality.INTERLEAVED and measured_log is not None:
        return max(relative, measured_log)
    single_launches = regime == BACK_TO_BACK
    jitter = min(JITTER_CAP_LOG, JITTER_US / latency_us) if single_launches else 0.0
    spread = max(jitter, CERTAINTY * (scatter_log or 0.0))
    floor = relative + spread / math.sqrt(max(n_readings, 1))
    if quality is LabelQuality.SINGLE_FIRST:
        floor += FIRST_BIAS_LOG * min(1.0, FIRST_BIAS_US / latency_us)
    return floor


def indistinguishable(
    latency_us: float, floor_log: float, other_us: float, other_floor_log: float
) -> bool:
    """Whether two labels' difference is within the noise of both."""
    return abs(math.log(latency_us / other_us)) <= math.hypot(
        floor_log, other_floor_log
    )
