"""Where an estimate stands under the roofline: bandwidth here, rate there.

Source: Williams, Waterman and Patterson, "Roofline", CACM 2009.
"""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.features.analytic import peak_flops_per_us
from costmodel.features.extract import Evaluation
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware


@dataclass(frozen=True, slots=True)
class Roofline:
    """One config of one workload under the roofline of one GPU.

    Attributes:
        rate: Key of `Hardware.peak_tflops` that most operations use.
        operations: Operations of the launch, padding included: of products if there
            are any, else arithmetic one element at a time.
        dram_bytes: Bytes that DRAM has to move at least.
        intensity: Operations a byte.
        ridge: Intensity from which the rate is the limit, operations a byte.
        floor_us: No launch is faster: the slower of rate and bandwidth at their peaks.
        bandwidth_share: Share of peak bandwidth that the estimated time implies.
        compute_share: Share of the peak rate that it implies.
        slowest: Term that decides the estimate.
    """

    rate: str
    operations: float
    dram_bytes: float
    intensity: float
    ridge: float
    floor_us: float
    bandwidth_share: float
    compute_share: float
    slowest: str

    @property
    def side(self) -> str:
        """Which roof is over it: "bandwidth" or "compute"."""
        return "compute" if self.intensity >= self.ridge else "bandwidth"


def place(found: Evaluation, row: int, hardware: Hardware) -> Roofline:
    """Place one evaluated config.

    Args:
        found: Evaluated configs.
        row: Which of them.
        hardware: The GPU they were evaluated for.
    """
    work, time = found.work, found.estimate
    rate, operations, peak_us = _compute(
        {name: float(flops[row]) for name, flops in work.flops.items()},
        float(work.arithmetic[row] + work.special[row]),
        hardware,
    )
    dram_bytes = float(work.unique_bytes[row])
    memory_us = float(time.dram_us[row])
    total_us = float(time.total_us[row])
    intensity = operations / dram_bytes
    bytes_per_us = dram_bytes / memory_us
    operations_per_us = operations / peak_us if peak_us > 0.0 else _lanes(hardware)
    return Roofline(
        rate=rate,
        operations=operations,
        dram_bytes=dram_bytes,
        intensity=intensity,
        ridge=operations_per_us / bytes_per_us,
        floor_us=max(peak_us, memory_us),
        bandwidth_share=memory_us / total_us,
        compute_share=peak_us / total_us,
        slowest=slowest_term(found, row),
    )


def slowest_term(found: Evaluation, row: int) -> str:
    """What decides the estimate, in words: DRAM, L2, tensor cores, ..."""
    time = found.estimate
    terms = {
        "DRAM": float(time.memory_us[row]),
        "latency": float(time.latency_us[row]),
    }
    engines = {
        "L2": float(time.l2_us[row]),
        "tensor cores": float(time.tensor_us[row]),
        "arithmetic": float(time.issue_us[row]),
    }
    busiest = max(engines, key=lambda name: engines[name])
    terms[busiest] = float(time.compute_us[row])
    return max(terms, key=lambda name: terms[name])


def _compute(
    flops: Mapping[str, float], arithmetic: float, hardware: Hardware
) -> tuple[str, float, float]:
    """Rate, operations, and microseconds that they take at their peak."""
    products = sum(flops.values())
    if products <= 0.0:
        return "fp32", arithmetic, arithmetic / _lanes(hardware)
    rate = max(flops, key=lambda name: (flops[name], name))
    peak_us = sum(n / peak_flops_per_us(hardware, name) for name, n in flops.items())
    return rate, products, peak_us


def _lanes(hardware: Hardware) -> float:
    """Operations a microsecond outside tensor cores: a peak counts an FMA as two."""
    return peak_flops_per_us(hardware, "fp32") / 2.0
