"""Runs that nobody measured, shaped like a recorded corpus: for testing at scale.

Kernels, GPUs and configs are those of a corpus; shapes are perturbed, configs crossed
over, times are the analytic estimate, bent by a hidden law of a few features and read
with noise. The law is one for all kernels, so that a model can learn it, and learn it
for a family that is left out. What does not fit the GPU fails, and a few others do.

Run k depends on the seed and k alone: a run can be made anywhere and any number of
times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costmodel.datasets.identity import digest_of
from costmodel.datasets.record import Status
from costmodel.datasets.store import Corpus
from costmodel.datasets.synth_configs import varied
from costmodel.datasets.synth_shapes import resized
from costmodel.datasets.workload_data import WorkloadData
from costmodel.errors import CostModelError
from costmodel.errors import NotEnoughDataError
from costmodel.features.extract import FeatureExtractor
from costmodel.features.feasible import feasible
from costmodel.features.graph import KernelGraph
from costmodel.features.schema import BASE_FEATURES
from costmodel.features.tiles import is_readable
from costmodel.hardware import match_hardware
from costmodel.types import Config
from costmodel.types import WorkloadRecord

# Features of the hidden law. Logs of counts: an effect of a few per cent a doubling.
LAW_FEATURES = (
    "num_warps_log2",
    "num_stages",
    "occupancy_ctas_log2",
    "tail_share",
    "l2_grouping_log2",
    "elements_per_thread_log2",
    "is_persistent",
)
_LAW_SIGMA_LOG = 0.08
_LAW_CAP_LOG = 0.7
# One reading's relative noise; two readings on an H200 differ by 0.24 % in the median
# and far more in the tail (`noise.py`), which a normal law overstates and understates.
_NOISE_LOG = 0.01
# Shares of failed attempts in the bundled corpus, 2026-11, beyond what cannot fit.
_ERROR_SHARE = 0.05
_TIMEOUT_SHARE = 0.02
# Draws of kernel and shape before a run is given up; most succeed at once.
_TRIES = 20


@dataclass(frozen=True, slots=True)
class SyntheticRun:
    """One run: a workload and what came of its configs.

    Attributes:
        index: Which run of the generator; part of its log's name.
        run_id: 64 hex digits, as Helion's.
        record: The workload.
        family: Of the kernel it was made from.
        promoted: Whether Helion has a rule for it.
        configs: Helion's default first.
        status: How each ended.
        latency_us: float64[n], microseconds; NaN for failures.
    """

    index: int
    run_id: str
    record: WorkloadRecord
    family: str
    promoted: bool
    configs: tuple[Config, ...]
    status: tuple[Status, ...]
    latency_us: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.configs)


class Generator:
    """Makes runs out of a corpus."""

    def __init__(self, corpus: Corpus, seed: int, n_per_run: int) -> None:
        """Read the kernels.

        Args:
            corpus: Whose kernels, shapes and configs to vary; at least one run with an
                IR graph and its default.
            seed: Of every draw.
            n_per_run: Attempts of each run at most.

        Raises:
            NotEnoughDataError: No such run.
        """
        self._seed = seed
        self._n_per_run = n_per_run
        self._law = np.random.default_rng([seed, 10_000_000]).normal(
            0.0, _LAW_SIGMA_LOG, len(LAW_FEATURES)
        )
        names = [name for name, _ in BASE_FEATURES]
        self._columns = [names.index(name) for name in LAW_FEATURES]
        self._bases = [
            one
            for one in corpus.workloads()
            if one.default_index is not None
            and one.promoted is not None
            and one.is_ok[one.default_index]
        ]
        if not self._bases:
            raise NotEnoughDataError(
                f"{corpus.directory}: expected runs with an IR graph and a measured "
                "default to vary, found none: name a corpus such as the bundled one"
            )

    def runs(self, n_attempts: int) -> Iterator[SyntheticRun]:
        """Runs of `n_attempts` attempts in all, the last one cut to fit."""
        left, index = n_attempts, 0
        while left > 0:
            run = self.run(index, min(left, self._n_per_run))
            left -= len(run)
            index += 1
            yield run

    def run(self, index: int, n: int | None = None) -> SyntheticRun:
        """Run number `index`, of `n` attempts at most.

        Raises:
            NotEnoughDataError: No kernel of the corpus can be varied.
        """
        rng = np.random.default_rng([self._seed, index])
        for _ in range(_TRIES):
            base = self._bases[int(rng.integers(len(self._bases)))]
            made = resized(base.record, rng)
            if made is None:
                continue
            try:
                found = self._measured(made[0], base, n or self._n_per_run, rng)
            except CostModelError:
                continue  # not readable at this shape: another one
            if found is None:
                continue
            configs, status, latency_us = found
            return SyntheticRun(
                index=index,
                run_id=digest_of([self._seed, index, made[0].input_shapes], 64),
                record=made[0],
                family=base.family,
                promoted=bool(base.promoted),
                configs=configs,
                status=status,
                latency_us=latency_us,
            )
        raise NotEnoughDataError(
            f"expected a kernel whose shape can be varied, found none in {_TRIES} "
            "tries: name a corpus recorded with static shapes"
        )

    def _measured(
        self,
        record: WorkloadRecord,
        base: WorkloadData,
        n: int,
        rng: np.random.Generator,
    ) -> tuple[tuple[Config, ...], tuple[Status, ...], npt.NDArray[np.float64]] | None:
        graph = KernelGraph.from_record(record)
        extractor = FeatureExtractor(graph, match_hardware(record.hardware).hardware)
        assert base.default_index is not None  # the bases are those that have one
        default = base.configs[base.default_index]
        configs = [
            config
            for config in varied(base.configs, default, n, rng)
            if is_readable(graph, config)
        ]
        if not configs or configs[0] != default:
            return None
        extractor.know_list(default, ())  # the law does not ask for it
        extractor.remember(configs)
        fits = feasible(extractor, configs)
        if not fits[0]:
            return None
        features = extractor.base(configs)[:, self._columns].astype(np.float64)
        bent = np.clip(
            (features - features[0]) @ self._law, -_LAW_CAP_LOG, _LAW_CAP_LOG
        )
        noise = rng.normal(0.0, _NOISE_LOG, len(configs))
        latency_us = extractor.analytic_us(configs) * np.exp(bent + noise)
        status = _statuses(fits, rng)
        failed = [one is not Status.OK for one in status]
        # A csv spells times in ms to 1 ns, and logs and store are to hold the same.
        latency_us = np.maximum(np.round(latency_us / 1e3, 6), 1e-6) * 1e3
        return tuple(configs), status, np.where(failed, np.nan, latency_us)


def _statuses(
    fits: npt.NDArray[np.bool_], rng: np.random.Generator
) -> tuple[Status, ...]:
    drawn = rng.random(len(fits))
    drawn[0] = 1.0  # the default works
    return tuple(
        Status.ERROR
        if not fit or luck < _ERROR_SHARE
        else Status.TIMEOUT
        if luck < _ERROR_SHARE + _TIMEOUT_SHARE
        else Status.OK
        for fit, luck in zip(fits, drawn, strict=True)
    )
