"""Whether a change of model made some workloads worse: what no fine-tuning may do.

Two evaluations of the same workloads are compared by `compare`; here is what of their
difference is not accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.training.compare import Comparison
from costmodel.training.compare import Verdict
from costmodel.training.compare import WorkloadDifference
from costmodel.training.compare import compare
from costmodel.training.eval_table import Row
from costmodel.training.metrics import geomean

# A loss in the mean that no interval need prove: half a per cent, an eighth of the
# median noise floor of a recorded workload (4 % on the H200 corpus, 2026-11).
MAX_MEAN_LOSS = 0.005
# Share of workloads that may be newly harmed, less those that no longer are.
MAX_NEW_HARM = 0.01


@dataclass(frozen=True, slots=True)
class Part:
    """Some workloads before and after a change of model.

    Attributes:
        name: Which ones, in words.
        found: Before is `a`, after is `b`.
    """

    name: str
    found: Comparison

    @property
    def worse(self) -> str:
        """Why after is worse than before, or "" where it is not."""
        pairs, whole = self.found.workloads, self.found.overall
        n = len(pairs)
        before = sum(bool(one.a["is_harm"]) for one in pairs)
        after = sum(bool(one.b["is_harm"]) for one in pairs)
        if after - before > int(MAX_NEW_HARM * n):
            return f"{after} of {n} slower than the default, {before} before"
        if whole.ratio < 1.0 - MAX_MEAN_LOSS or whole.high < 1.0:
            return (
                f"{whole.ratio:.3f}x of the speed before "
                f"({whole.low:.3f}-{whole.high:.3f})"
            )
        return ""

    def as_json(self) -> dict[str, Any]:
        """All numbers, as JSON values; what changed from the largest loss on."""
        pairs, whole = self.found.workloads, self.found.overall
        changed = [one for one in pairs if one.verdict is not Verdict.NOISE]
        return {
            "name": self.name,
            "n": len(pairs),
            "before": geomean([one.a["speedup"] for one in pairs]),
            "after": geomean([one.b["speedup"] for one in pairs]),
            "best": geomean([one.b["best_speedup"] for one in pairs]),
            "change": whole.ratio,
            "change_low": whole.low,
            "change_high": whole.high,
            "n_better": self.found.count(Verdict.BETTER),
            "n_worse": self.found.count(Verdict.WORSE),
            "n_harmed_before": sum(bool(one.a["is_harm"]) for one in pairs),
            "n_harmed_after": sum(bool(one.b["is_harm"]) for one in pairs),
            "worse": self.worse,
            "changed": [_changed(one) for one in sorted(changed, key=_ratio)],
        }


def part(name: str, before: Sequence[Row], after: Sequence[Row]) -> Part | None:
    """Compare what both models were asked about; None where that is nothing.

    Args:
        name: What these workloads are, in words.
        before: Evaluation of the model before; may hold more.
        after: Evaluation of the model after; may hold more.
    """
    asked = {row["workload_id"] for row in before}
    asked &= {row["workload_id"] for row in after}
    if not asked:
        return None
    a, b = (
        [row for row in rows if row["workload_id"] in asked] for rows in (before, after)
    )
    return Part(name, compare(a, b))


def _ratio(one: WorkloadDifference) -> float:
    return one.ratio


def _changed(one: WorkloadDifference) -> dict[str, Any]:
    return {
        "workload": one.a["workload_id"],
        "kernel": one.a["kernel"],
        "family": one.a["family"],
        "before": one.a["speedup"],
        "after": one.b["speedup"],
        "best": one.b["best_speedup"],
        "is_better": one.verdict is Verdict.BETTER,
    }
