"""Two models on the same held-out workloads, workload by workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.training.judge import JudgedWorkload
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.metrics import Outcome
from costmodel.training.metrics import bootstrap_interval
from costmodel.training.metrics import geomean

# A loss in the mean that no interval need prove: half a per cent, an eighth of the
# median noise floor of a recorded workload (4 % on the H200 corpus, 2026-11).
MAX_MEAN_LOSS = 0.005
# Share of workloads that may be newly harmed, less those that no longer are.
MAX_NEW_HARM = 0.01


@dataclass(frozen=True, slots=True)
class Pair:
    """One workload, picked for by two models."""

    workload: LabelledWorkload
    before: Outcome
    after: Outcome

    @property
    def change_log(self) -> float:
        """ln(pick time before / pick time after): above 0 is better."""
        return float(np.log(self.after.speedup / self.before.speedup))

    @property
    def is_better(self) -> bool:
        """Faster beyond the workload's noise."""
        return self.change_log > self.workload.noise_floor_log

    @property
    def is_worse(self) -> bool:
        """Slower beyond the workload's noise."""
        return -self.change_log > self.workload.noise_floor_log


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a change of model did to some workloads.

    Attributes:
        name: Which ones, in words.
        pairs: Each of them, the largest loss first.
    """

    name: str
    pairs: tuple[Pair, ...]

    @property
    def change(self) -> float:
        """Geometric mean of time before / time after."""
        return float(np.exp(np.mean([one.change_log for one in self.pairs])))

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the change, over kernels."""
        return bootstrap_interval(
            [float(np.exp(one.change_log)) for one in self.pairs],
            [one.workload.source_digest for one in self.pairs],
        )

    @property
    def worse(self) -> str:
        """Why the second is worse than the first, or "" where it is not."""
        n = len(self.pairs)
        harmed_before = sum(one.before.is_harm for one in self.pairs)
        harmed_after = sum(one.after.is_harm for one in self.pairs)
        if harmed_after - harmed_before > int(MAX_NEW_HARM * n):
            return (
                f"{harmed_after} of {n} slower than the default, {harmed_before} before"
            )
        low, high = self.interval
        if self.change < 1.0 - MAX_MEAN_LOSS or high < 1.0:
            return f"{self.change:.3f}x of the speed before ({low:.3f}-{high:.3f})"
        return ""

    def as_json(self) -> dict[str, Any]:
        """All numbers, as JSON values."""
        low, high = self.interval
        return {
            "name": self.name,
            "n": len(self.pairs),
            "before": geomean([one.before.speedup for one in self.pairs]),
            "after": geomean([one.after.speedup for one in self.pairs]),
            "best": geomean([one.after.best_speedup for one in self.pairs]),
            "change": self.change,
            "change_low": low,
            "change_high": high,
            "n_better": sum(one.is_better for one in self.pairs),
            "n_worse": sum(one.is_worse for one in self.pairs),
            "n_harmed_before": sum(one.before.is_harm for one in self.pairs),
            "n_harmed_after": sum(one.after.is_harm for one in self.pairs),
            "worse": self.worse,
            "changed": [
                {
                    "workload": one.workload.workload_id,
                    "kernel": one.workload.kernel,
                    "family": one.workload.family,
                    "before": one.before.speedup,
                    "after": one.after.speedup,
                    "best": one.after.best_speedup,
                    "is_better": one.is_better,
                }
                for one in self.pairs
                if one.is_better or one.is_worse
            ],
        }


def compared(
    name: str,
    before: Mapping[str, JudgedWorkload],
    after: Mapping[str, JudgedWorkload],
) -> Comparison:
    """Pair what two models did, for the workloads that both were asked about.

    Args:
        name: What these workloads are, in words.
        before: By workload id.
        after: By workload id.
    """
    pairs = [
        Pair(after[key].workload, before[key].gated, after[key].gated)
        for key in sorted(after)
        if key in before
    ]
    return Comparison(name, tuple(sorted(pairs, key=lambda one: one.change_log)))
