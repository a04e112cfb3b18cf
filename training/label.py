"""From recorded workloads to labelled feature rows, each one or a reason why not."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.datasets import noise
from costmodel.datasets.record import LabelQuality
from costmodel.datasets.workload_data import WorkloadData
from costmodel.errors import CostModelError
from costmodel.errors import UnknownHardwareError
from costmodel.errors import UnreadableKernelError
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.features.tiles import is_readable
from costmodel.hardware import match_hardware
from costmodel.heuristics.listed import with_list
from costmodel.heuristics.rules import has_promoted_rule
from costmodel.hybrid import analytic_ranking
from costmodel.hybrid import canonical_text
from costmodel.training.joined import joined
from costmodel.training.labelled import MISSING
from costmodel.training.labelled import LabelledWorkload
from costmodel.types import Candidate
from costmodel.types import CandidateOrigin
from costmodel.types import Config


@dataclass(frozen=True, slots=True)
class Labelled:
    """Workloads that can be learned from, and why the others cannot.

    Attributes:
        workloads: In the order given.
        skipped: One line each: which workload, and why.
    """

    workloads: tuple[LabelledWorkload, ...]
    skipped: tuple[str, ...]


def label_all(recorded: Iterable[WorkloadData]) -> Labelled:
    """Label what can be labelled; several sessions of one workload become one."""
    workloads = []
    skipped = []
    for spelled in recorded:
        one = spelled.without_acfs()
        name = f"{one.log} ({one.record.kernel_name}, run {one.run_id[:8]})"
        if one.default_index is None or not one.is_ok[one.default_index]:
            skipped.append(f"{name}: Helion's default was not measured")
            continue
        try:
            workloads.append(label(one))
        except CostModelError as error:
            skipped.append(f"{name}: {error}")
    return Labelled(joined(workloads), tuple(skipped))


def label(recorded: WorkloadData) -> LabelledWorkload:
    """Compute the features of one workload's configs and relate times to the default.

    Configs of which nothing is known, copies of another config's time and configs of
    another kernel are left out: a copy is no second measurement. So are those compiled
    with a control file for ptxas: see `WorkloadData.without_acfs`.

    Args:
        recorded: A workload whose default was measured.

    Raises:
        UnreadableKernelError: Its features cannot be computed.
        UnknownHardwareError: Nothing is known of its device.
    """
    recorded = recorded.without_acfs()
    extractor = extractor_of(recorded)
    fits = [is_readable(extractor.graph, config) for config in recorded.configs]
    rows = np.flatnonzero((recorded.is_ok | recorded.is_failure) & np.array(fits))
    default = recorded.default_index
    if default is None or default not in rows:
        raise UnreadableKernelError(
            "expected a default whose block sizes fit the kernel's graph, found one "
            "that does not: the log and the graph are not of one kernel"
        )
    default_index = int(np.searchsorted(rows, default))
    configs = [recorded.configs[i] for i in rows]
    is_ok = recorded.is_ok[rows]
    latency_us = recorded.latency_us[rows]
    log_ratio = np.full(len(rows), MISSING)
    log_ratio[is_ok] = np.log(latency_us[is_ok] / latency_us[default_index])
    promoted = is_promoted(recorded, extractor)
    return LabelledWorkload(
        workload_id=labelled_id(recorded),
        kernel=recorded.record.kernel_name,
        family=recorded.family,
        kernel_class=extractor.kernel_class,
        shape_id=recorded.workload_id,
        source_digest=recorded.kernel_id,
        hardware=recorded.hardware,
        promoted=promoted,
        default_index=default_index,
        features=extractor.matrix(configs, configs[default_index]),
        log_ratio=log_ratio,
        is_ok=is_ok,
        analytic_us=extractor.analytic_us(configs),
        analytic_order=ranked_by_analysis(extractor, configs),
        default_us=recorded.default_us,
        noise_floor_log=noise_floor_log(recorded),
        harm_floor_log=harm_floor_log(recorded),
        configs=tuple(configs),
        config_ids=tuple(recorded.config_ids[i] for i in rows),
    )


def labelled_id(recorded: WorkloadData) -> str:
    """Names a run of a workload once in a corpus."""
    return f"{recorded.workload_id}/{recorded.log}/{recorded.run_ordinal}"


def extractor_of(recorded: WorkloadData) -> FeatureExtractor:
    """Features of a recorded workload on the device that it was recorded on.

    Raises:
        UnreadableKernelError: The graph cannot be resolved.
        UnknownHardwareError: Nothing is known of the device.
    """
    match = match_hardware(recorded.hardware)
    # A device that is described but not one of those the shipped model knows is fine:
    # users train on logs of their own. Only one without a description is refused.
    if match.hardware.compute_capability == (0, 0):
        raise UnknownHardwareError(match.why)
    graph = KernelGraph.from_record(recorded.record)
    extractor = FeatureExtractor(graph, match.hardware)
    if recorded.default_index is not None:
        with_list(extractor, recorded.configs[recorded.default_index])
    return extractor


def is_promoted(recorded: WorkloadData, extractor: FeatureExtractor) -> bool:
    """Whether Helion has a rule here: as recorded, else as its structure tells."""
    if recorded.promoted is not None:
        return recorded.promoted
    return has_promoted_rule(extractor.graph, extractor.hardware)


def ranked_by_analysis(
    extractor: FeatureExtractor, configs: Sequence[Config]
) -> tuple[int, ...]:
    """Configs of a log by analytic merit, as serving ranks its candidates.

    Serving lists what our heuristics propose. Here those of them that the log holds
    come first.
    """
    candidates = [Candidate(config, CandidateOrigin.LOG) for config in configs]
    keys = [canonical_text(config) for config in configs]
    by_estimate = analytic_ranking(extractor, candidates, keys)
    places = extractor.proposed.places(configs)
    place_of = {i: place for i, place in enumerate(places) if place is not None}
    proposed = sorted(place_of, key=lambda i: (place_of[i], by_estimate.index(i)))
    return (*proposed, *(i for i in by_estimate if i not in place_of))


def noise_floor_log(recorded: WorkloadData) -> float:
    """Log ratio to the default below which a typical config of the run is a tie."""
    assert recorded.default_index is not None
    return _with_typical(
        recorded, float(recorded.noise_floor_log[recorded.default_index])
    )


def harm_floor_log(recorded: WorkloadData) -> float:
    """The same without the bias of a default that was read once and first.

    Such a default reads slow, so that a pick measured slower than it is slower indeed.
    """
    default = recorded.default_index
    assert default is not None
    quality = recorded.label_quality[default]
    if quality is LabelQuality.SINGLE_FIRST:
        quality = LabelQuality.SINGLE
    n_readings = int(recorded.n_readings[default])
    of_default = noise.noise_floor_log(recorded.default_us, n_readings, quality)
    return _with_typical(recorded, of_default)


def _with_typical(recorded: WorkloadData, of_default_log: float) -> float:
    typical = float(np.nanmedian(recorded.noise_floor_log[recorded.is_ok]))
    return float(np.hypot(of_default_log, typical))
