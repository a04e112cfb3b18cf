"""What a model makes of each run of new logs, without ever looking at its times first.

The pick is made as serving makes it; only then is it compared with what was measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.datasets.clean import CleanRun
from costmodel.datasets.workload_data import WorkloadData
from costmodel.errors import UnknownHardwareError
from costmodel.errors import UnreadableKernelError
from costmodel.features.schema import SCHEMA
from costmodel.gate import FAILURE_LOG
from costmodel.hardware import match_hardware
from costmodel.learned import LearnedModel
from costmodel.training.evaluate import choose_among
from costmodel.training.label import extractor_of
from costmodel.training.label import harm_floor_log
from costmodel.types import FloatArray
from costmodel.types import KernelClass
from costmodel.types import PickSource
from costmodel.types import ReasonCode

# Names of strange features that a person reads.
_N_OUTSIDE = 5


@dataclass(frozen=True, slots=True)
class SeenRun:
    """One run, as the model sees it and as it was measured.

    Attributes:
        log: Base name of the log.
        kernel: For people.
        kernel_id: Equal for all shapes of one kernel source.
        hardware: Device name.
        gpu_kind: What the device is to the model: exact, near, fallback; "" unknown.
        outside_share: Share of the default's features outside the training range;
            None where there are no features.
        limit: Share beyond which the gate refuses.
        outside: Names of features outside, at most a few.
        reason: Why the gate acted or not.
        predicted_log: Predicted log gain of a learned pick where Helion has a rule.
        realised_log: What was measured of it; None where the gate did not act.
        noise_floor_log: Slower than the default by more than this is harm.
        problem: Why it could not be looked at, or "".
        is_unreadable: Whether the kernel is what could not be read.
    """

    log: str
    kernel: str
    kernel_id: str
    hardware: str
    gpu_kind: str
    outside_share: float | None = None
    limit: float = 1.0
    outside: tuple[str, ...] = ()
    reason: str = ""
    predicted_log: float | None = None
    realised_log: float | None = None
    noise_floor_log: float = 0.0
    problem: str = ""
    is_unreadable: bool = False

    @property
    def is_outside(self) -> bool:
        """Stranger than the gate answers."""
        return self.outside_share is not None and self.outside_share > self.limit

    @property
    def is_harm(self) -> bool:
        """The pick was slower than the default beyond noise."""
        return self.realised_log is not None and (
            self.realised_log < -self.noise_floor_log
        )

    def as_json(self) -> dict[str, Any]:
        """All fields, with the verdicts."""
        return asdict(self) | {"is_outside": self.is_outside, "is_harm": self.is_harm}


def seen_runs(runs: Iterable[CleanRun], model: LearnedModel) -> list[SeenRun]:
    """Look at every run; one that cannot be read says why."""
    return [_seen(run, model) for run in runs]


def seen_workloads(
    workloads: Iterable[WorkloadData], model: LearnedModel
) -> list[SeenRun]:
    """The same for a stored corpus."""
    return [_looked_at(one, model) for one in workloads]


def _seen(run: CleanRun, model: LearnedModel) -> SeenRun:
    record = run.run.record
    if run.run.problem is not None or record is None:
        return SeenRun(
            log=run.run.log,
            kernel=run.run.kernel_name,
            kernel_id="",
            hardware=record.hardware if record is not None else "",
            gpu_kind="",
            problem=str(run.run.problem or "no record of the workload"),
        )
    return _looked_at(WorkloadData.from_clean_run(run), model)


def _looked_at(recorded: WorkloadData, model: LearnedModel) -> SeenRun:
    one = recorded.without_acfs()
    kind = match_hardware(one.hardware, trained=model.card.hardware).kind

    def failed(problem: str, *, is_unreadable: bool = False) -> SeenRun:
        return SeenRun(
            log=one.log,
            kernel=one.record.kernel_name,
            kernel_id=one.kernel_id,
            hardware=one.hardware,
            gpu_kind=kind,
            problem=problem,
            is_unreadable=is_unreadable,
        )

    default = one.default_index
    if default is None:
        return failed("the log does not hold Helion's default")
    try:
        extractor = extractor_of(one)
        choice = choose_among(one, model)
        # The default and the pick, which may be one and the same.
        rows = extractor.matrix(
            [one.configs[default], one.configs[choice.index]], one.configs[default]
        )
    except UnknownHardwareError as error:
        return failed(str(error))
    except UnreadableKernelError as error:
        return failed(str(error), is_unreadable=True)
    acted = choice.source is PickSource.LEARNED and (
        choice.reason is ReasonCode.GAIN_CERTAIN
    )
    predicted = realised = None
    measured = np.isfinite(one.latency_us[default]) and not one.is_failure[default]
    if acted and measured:
        predicted = float(model.score(rows).gain_log[1])
        time_us = float(one.latency_us[choice.index])
        if one.is_failure[choice.index]:
            realised = FAILURE_LOG
        elif np.isfinite(time_us):
            realised = float(np.log(one.latency_us[default] / time_us))
    return SeenRun(
        log=one.log,
        kernel=one.record.kernel_name,
        kernel_id=one.kernel_id,
        hardware=one.hardware,
        gpu_kind=kind,
        outside_share=float(model.gate.outside_share(rows[[0]])[0]),
        limit=model.card.gate.max_outside,
        outside=outside_features(rows[0], model),
        reason=choice.reason.value,
        predicted_log=predicted if realised is not None else None,
        realised_log=realised,
        noise_floor_log=harm_floor_log(one) if measured else 0.0,
        is_unreadable=extractor.kernel_class is KernelClass.UNKNOWN,
    )


def outside_features(row: FloatArray, model: LearnedModel) -> tuple[str, ...]:
    """Names of a row's features outside the training range, as the gate sees it.

    Each is put alone into a row that lies inside, so that the gate itself tells.

    Args:
        row: float32[len(SCHEMA)].
        model: Whose range it is.
    """
    inside = np.asarray(model.card.gate.range_low, np.float32)
    probes = np.tile(inside, (len(inside), 1))
    np.fill_diagonal(probes, row)
    found = np.flatnonzero(model.gate.outside_share(probes) > 0.0)
    return tuple(SCHEMA.names[i] for i in found[:_N_OUTSIDE])
