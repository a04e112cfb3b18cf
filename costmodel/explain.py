"""A pick beside Helion's default: which resource and traffic terms change, in words.

All quantities are the analyser's estimates for the named GPU; nothing is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from costmodel.features.extract import Evaluation
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.helion_hook import HelionView
from costmodel.types import Config
from costmodel.types import Pick

# Below this relative difference two estimates read as equal: the analyser is not
# finer than a per cent anywhere.
SAME_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class ExplainedQuantity:
    """One estimated quantity of the default and of the pick.

    Attributes:
        quantity: Name with its unit.
        default: Value for Helion's default.
        pick: Value for our pick.
        change: The change in words: "same", "2.00x", "+24".
    """

    quantity: str
    default: str
    pick: str
    change: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why the pick differs from the default, quantity by quantity."""

    pick: Pick
    rows: tuple[ExplainedQuantity, ...]

    def as_json(self) -> dict[str, Any]:
        """The explanation as JSON values."""
        return {
            "source": self.pick.source.value,
            "reason": self.pick.reason.value,
            "detail": self.pick.detail,
            "kernel_class": self.pick.kernel_class.value,
            "predicted_speedup": self.pick.predicted_speedup,
            "speedup_lower": self.pick.speedup_lower,
            "config": self.pick.config,
            "default": self.pick.default,
            "quantities": [
                {
                    "quantity": row.quantity,
                    "default": row.default,
                    "pick": row.pick,
                    "change": row.change,
                }
                for row in self.rows
            ],
        }


def explain_pick(view: HelionView, hardware: Hardware, pick: Pick) -> Explanation:
    """Evaluate default and pick, and put their estimates side by side.

    Raises:
        UnreadableKernelError: The kernel's graph cannot be resolved.
    """
    extractor = FeatureExtractor(KernelGraph.from_record(view.record), hardware)
    default: Config = pick.default if pick.default is not None else view.default
    found = extractor.evaluate([default, pick.config])
    rows = tuple(
        ExplainedQuantity(name, *_cells(values(found), whole=whole))
        for name, whole, values in _QUANTITIES
    )
    return Explanation(pick, rows)


_Values = Callable[[Evaluation], Any]

_QUANTITIES: tuple[tuple[str, bool, _Values], ...] = (
    ("estimated time, us", False, lambda e: e.estimate.total_us),
    ("  DRAM at full bandwidth, us", False, lambda e: e.estimate.dram_us),
    ("  L2 at full bandwidth, us", False, lambda e: e.estimate.l2_us),
    ("  tensor cores, us", False, lambda e: e.estimate.tensor_us),
    ("  arithmetic, us", False, lambda e: e.estimate.issue_us),
    ("waves", False, lambda e: e.estimate.waves),
    ("useful share of the last wave", False, lambda e: e.estimate.tail),
    ("threads per program", True, lambda e: e.resources.threads),
    ("programs resident per SM", True, lambda e: e.resources.occupancy_ctas),
    ("registers per thread, needed", True, lambda e: e.resources.regs_per_thread),
    ("  of them spilled", True, lambda e: e.resources.spill_registers),
    ("shared memory per program, bytes", True, lambda e: e.resources.smem_bytes),
    ("bytes in flight per SM", True, lambda e: e.estimate.in_flight_bytes),
    ("bytes loaded by all programs", True, lambda e: e.work.load_bytes),
    ("bytes per thread and access", True, lambda e: e.work.vector_bytes),
    ("padded over useful work", False, lambda e: e.work.waste),
    ("loop trips per program", True, lambda e: e.work.trips),
)


def _cells(values: Any, *, whole: bool) -> tuple[str, str, str]:
    default, pick = (float(v) for v in np.broadcast_to(values, (2,)))
    digits = 0 if whole else 2
    return f"{default:,.{digits}f}", f"{pick:,.{digits}f}", _change(default, pick)


def _change(default: float, pick: float) -> str:
    if abs(pick - default) <= SAME_SHARE * max(abs(default), abs(pick)):
        return "same"
    if default <= 0.0 or pick <= 0.0:
        return f"{pick - default:+,.0f}"
    return f"{pick / default:.2f}x"
