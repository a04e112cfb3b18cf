"""One workload's measurements as arrays: what training and evaluation work on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costmodel.acf.identity import KNOB
from costmodel.datasets.clean import CleanRun
from costmodel.datasets.identity import kernel_digest
from costmodel.datasets.record import DefaultSource
from costmodel.datasets.record import LabelQuality
from costmodel.datasets.record import RecordedRun
from costmodel.datasets.record import Status
from costmodel.errors import CorruptRecordError
from costmodel.types import Config
from costmodel.types import WorkloadRecord


@dataclass(frozen=True, slots=True)
class WorkloadData:
    """One run, one row per program, sorted by canonical id.

    Several runs may be of one workload (`workload_id`): their timings are of different
    sessions and are compared within a run only.

    Attributes:
        workload_id: Equal for equal workloads, whoever recorded them.
        kernel_id: Equal for all shapes of one kernel source.
        record: The workload itself; its graph may be empty (no features then).
        family: Label, else class, else "unknown".
        log: Base name of the log.
        run_id: Helion's id.
        run_ordinal: Tells apart workloads under one run id.
        configs: Full configs.
        config_ids: The same as the log spells them.
        canonical_ids: Ids of the full configs.
        status: How each ended.
        latency_us: float64[n], microseconds; NaN where there is no time.
        noise_floor_log: float64[n], uncertainty as ln ratio; NaN where there is none.
        label_quality: How each time was taken.
        n_readings: int64[n], how many readings each time is the median of.
        default_index: Row of Helion's own pick, or None if the log does not hold it.
        default_how: How that was found.
        n_attempts: Result rows in the log, before merging.
        promoted: Whether Helion's default came from a heuristic; None if unknown.
        regime: How the timings were taken.
        hardware: Device name as the driver prints it.
        helion_version: Version that recorded the run, if known.
    """

    workload_id: str
    kernel_id: str
    record: WorkloadRecord
    family: str
    log: str
    run_id: str
    run_ordinal: int
    configs: tuple[Config, ...]
    config_ids: tuple[str, ...]
    canonical_ids: tuple[str, ...]
    status: tuple[Status, ...]
    latency_us: npt.NDArray[np.float64]
    noise_floor_log: npt.NDArray[np.float64]
    label_quality: tuple[LabelQuality, ...]
    n_readings: npt.NDArray[np.int64]
    default_index: int | None
    default_how: DefaultSource
    n_attempts: int
    promoted: bool | None
    regime: str
    hardware: str
    helion_version: str | None

    def __len__(self) -> int:
        return len(self.configs)

    @property
    def is_default(self) -> npt.NDArray[np.bool_]:
        """bool[n]: true in the default's row only."""
        mask = np.zeros(len(self), dtype=np.bool_)
        if self.default_index is not None:
            mask[self.default_index] = True
        return mask

    @property
    def is_ok(self) -> npt.NDArray[np.bool_]:
        """bool[n]: measured and correct; copies of another config's time are not."""
        return np.array([one is Status.OK for one in self.status], dtype=np.bool_)

    @property
    def is_failure(self) -> npt.NDArray[np.bool_]:
        """bool[n]: the config is to blame for having no time."""
        return np.array([one.is_failure for one in self.status], dtype=np.bool_)

    @property
    def default_us(self) -> float:
        """Microseconds of the default; NaN where it was not measured."""
        if self.default_index is None:
            return math.nan
        return float(self.latency_us[self.default_index])

    @property
    def has_graph(self) -> bool:
        """Whether features can be computed."""
        return bool(self.record.ir_graph)

    @property
    def has_acf(self) -> npt.NDArray[np.bool_]:
        """bool[n]: compiled with a control file for ptxas, known or not."""
        return np.array([bool(one.get(KNOB)) for one in self.configs], dtype=np.bool_)

    def without_acfs(self) -> WorkloadData:
        """The same without rows that had a control file for ptxas.

        Features of a config do not see one, so that two rows of equal features would
        have two times.
        """
        keep = np.flatnonzero(~self.has_acf)
        if len(keep) == len(self):
            return self
        default = self.default_index
        if default is not None:
            default = int(np.searchsorted(keep, default)) if default in keep else None
        return dataclasses.replace(
            self,
            configs=tuple(self.configs[i] for i in keep),
            config_ids=tuple(self.config_ids[i] for i in keep),
            canonical_ids=tuple(self.canonical_ids[i] for i in keep),
            status=tuple(self.status[i] for i in keep),
            latency_us=self.latency_us[keep],
            noise_floor_log=self.noise_floor_log[keep],
            label_quality=tuple(self.label_quality[i] for i in keep),
            n_readings=self.n_readings[keep],
            default_index=default,
        )

    @classmethod
    def from_clean_run(cls, clean_run: CleanRun) -> WorkloadData:
        """Arrays of a cleaned run, for work on logs without a store.

        Raises:
            CorruptRecordError: The run must not be used; the message says why.
        """
        run = clean_run.run
        if run.problem is not None or run.record is None:
            raise CorruptRecordError(f"{name_of(run)}: {run.problem}")
        rows = clean_run.measurements
        side = run.side
        return cls(
            workload_id=clean_run.workload_id,
            kernel_id=kernel_digest(run.record),
            record=run.record,
            family=clean_run.family,
            log=run.log,
            run_id=run.run_id,
            run_ordinal=run.run_ordinal,
            configs=tuple(one.canonical for one in rows),
            config_ids=tuple(one.config_id for one in rows),
            canonical_ids=tuple(one.canonical_id for one in rows),
            status=tuple(one.status for one in rows),
            latency_us=floats(one.latency_us for one in rows),
            noise_floor_log=floats(one.noise_floor_log for one in rows),
            label_quality=tuple(one.label_quality for one in rows),
            n_readings=np.array([len(one.readings_us) for one in rows], np.int64),
            default_index=clean_run.default_index,
            default_how=run.default_how,
            n_attempts=run.n_attempts,
            promoted=side.promoted if side is not None else None,
            regime=clean_run.regime,
            hardware=run.record.hardware,
            helion_version=side.helion_version if side is not None else None,
        )


def name_of(run: RecordedRun) -> str:
    """A run for messages: log, kernel and the beginning of its id."""
    return f"{run.log} ({run.kernel_name or 'unknown kernel'}, run {run.run_id[:8]})"


def floats(values: Iterable[float | None]) -> npt.NDArray[np.float64]:
    """float64 array with NaN for None."""
    return np.array([math.nan if one is None else one for one in values], np.float64)
