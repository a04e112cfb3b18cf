"""Two evaluations, workload by workload: which picks changed and what that was worth.

Both were judged on the same measurements, so that equal picks differ by nothing, and
different picks by no more than the noise of the log they are from. Groups are believed
to differ where a bootstrap over kernels and the noise of the readings both say so.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.errors import NotEnoughDataError
from costmodel.training.eval_table import Row
from costmodel.training.eval_table import evaluation_digest
from costmodel.training.metrics import bootstrap_interval
from costmodel.training.metrics import geomean


class Verdict(enum.StrEnum):
    """What a difference shows."""

    BETTER = "better"
    WORSE = "worse"
    NOISE = "within noise"


@dataclass(frozen=True, slots=True)
class WorkloadDifference:
    """One workload under both models; `a` is the reference.

    Attributes:
        a: Its row in the first evaluation.
        b: Its row in the second.
    """

    a: Row
    b: Row

    @property
    def ratio(self) -> float:
        """Speed-up of b / speed-up of a; above 1 b is faster."""
        return float(self.b["speedup"] / self.a["speedup"])

    @property
    def same_pick(self) -> bool:
        """Whether both picked the same config."""
        return bool(self.a["pick_config_id"] == self.b["pick_config_id"])

    @property
    def verdict(self) -> Verdict:
        """Beyond the noise of this workload's readings."""
        change = float(np.log(self.ratio))
        if self.same_pick or abs(change) <= self.a["noise_floor_log"]:
            return Verdict.NOISE
        return Verdict.BETTER if change > 0 else Verdict.WORSE


@dataclass(frozen=True, slots=True)
class GroupDifference:
    """Some workloads together: all, a class, a family or a GPU.

    Attributes:
        kind: "all", "class", "family" or "gpu".
        name: Of the group.
        n_workloads: In it.
        n_kernels: Independent ones in it.
        ratio: Geometric mean of the workloads' ratios.
        low: Lower end of its 95 % interval over kernels.
        high: Upper end.
        noise_log: What noise of readings alone may do to the mean log ratio.
        harm_a: Share of workloads slower than the default beyond noise, first model.
        harm_b: The same, second model.
    """

    kind: str
    name: str
    n_workloads: int
    n_kernels: int
    ratio: float
    low: float
    high: float
    noise_log: float
    harm_a: float
    harm_b: float

    @property
    def verdict(self) -> Verdict:
        """Beyond the interval over kernels and beyond the noise of readings."""
        change = float(np.log(self.ratio))
        if abs(change) <= self.noise_log or self.low <= 1.0 <= self.high:
            return Verdict.NOISE
        return Verdict.BETTER if change > 0 else Verdict.WORSE


@dataclass(frozen=True, slots=True)
class Comparison:
    """All differences of two evaluations.

    Attributes:
        workloads: Those that both judged, largest change first.
        groups: All, then classes, families and GPUs.
        only_a: Workload ids that only the first judged.
        only_b: The same of the second.
        same_evaluation: Whether protocol, folds and measurements are the same.
    """

    workloads: tuple[WorkloadDifference, ...]
    groups: tuple[GroupDifference, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    same_evaluation: bool

    @property
    def overall(self) -> GroupDifference:
        """The difference over all common workloads."""
        return self.groups[0]

    def of(self, kind: str) -> tuple[GroupDifference, ...]:
        """Differences of one kind of group."""
        return tuple(one for one in self.groups if one.kind == kind)

    def count(self, verdict: Verdict) -> int:
        """Workloads with this verdict."""
        return sum(one.verdict is verdict for one in self.workloads)


def compare(a: Sequence[Row], b: Sequence[Row]) -> Comparison:
    """Compare two evaluation tables; `a` is the reference.

    Raises:
        NotEnoughDataError: They have no workload in common.
    """
    by_a = {row["workload_id"]: row for row in a}
    by_b = {row["workload_id"]: row for row in b}
    common = sorted(by_a.keys() & by_b.keys())
    if not common:
        raise NotEnoughDataError(
            f"expected workloads that both runs judged, found none among {len(by_a)} "
            f"and {len(by_b)}: evaluate both on the same corpus"
        )
    pairs = [WorkloadDifference(by_a[name], by_b[name]) for name in common]
    groups = [_group("all", "all", pairs)]
    for kind, column in (
        ("class", "kernel_class"),
        ("family", "family"),
        ("gpu", "hardware"),
    ):
        names = sorted({str(one.a[column]) for one in pairs})
        groups += [
            _group(kind, name, [one for one in pairs if one.a[column] == name])
            for name in names
        ]
    pairs.sort(key=lambda one: (-abs(np.log(one.ratio)), one.a["workload_id"]))
    return Comparison(
        workloads=tuple(pairs),
        groups=tuple(groups),
        only_a=tuple(sorted(by_a.keys() - by_b.keys())),
        only_b=tuple(sorted(by_b.keys() - by_a.keys())),
        same_evaluation=evaluation_digest(a) == evaluation_digest(b),
    )


def _group(
    kind: str, name: str, pairs: Sequence[WorkloadDifference]
) -> GroupDifference:
    ratios = [one.ratio for one in pairs]
    kernels = [str(one.a["kernel_digest"]) for one in pairs]
    # One kernel drawn again is the same kernel: its shapes are all there is to draw.
    drawn = kernels
    if len(set(kernels)) == 1:
        drawn = [str(one.a["workload_id"]) for one in pairs]
    low, high = bootstrap_interval(ratios, drawn)
    floors = [0.0 if one.same_pick else one.a["noise_floor_log"] for one in pairs]
    n = len(pairs)
    return GroupDifference(
        kind=kind,
        name=name,
        n_workloads=n,
        n_kernels=len(set(kernels)),
        ratio=geomean(ratios),
        low=low,
        high=high,
        noise_log=float(np.sqrt(np.sum(np.square(floors)))) / n,
        harm_a=sum(bool(one.a["is_harm"]) for one in pairs) / n,
        harm_b=sum(bool(one.b["is_harm"]) for one in pairs) / n,
    )
