"""Bench results as runs of a corpus: what was picked, and how it turned out.

The configs of a bench are those that a model, Helion and the heuristics chose, so they
lie where logs of random search are thin: learning from one's own picks corrects what
they promised (Ross, Gordon and Bagnell, AISTATS 2011, call it DAgger). Their readings
are interleaved and so the best labels there are.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from costmodel.datasets.bench_file import BenchResult
from costmodel.datasets.bench_file import ConfigResult
from costmodel.datasets.clean import CleanRun
from costmodel.datasets.clean import clean
from costmodel.datasets.identity import digest_of
from costmodel.datasets.record import Attempt
from costmodel.datasets.record import DefaultSource
from costmodel.datasets.record import RecordedRun
from costmodel.datasets.record import Status
from costmodel.datasets.side_file import AttemptFacts
from costmodel.datasets.side_file import GpuFacts
from costmodel.datasets.side_file import SideFacts
from costmodel.datasets.store import Corpus
from costmodel.datasets.store_schema import record_of
from costmodel.datasets.workloads.workload import Workload
from costmodel.types import WorkloadRecord

_STATUS = {
    "ok": Status.OK,
    "wrong": Status.ACCURACY_ERROR,
    "timeout": Status.TIMEOUT,
    "error": Status.ERROR,
    "refused": Status.FILTERED,
}

RecordOf = Callable[[Workload], WorkloadRecord | None]
"""The record of a workload, or None where it cannot be had."""


def known_records(corpus: Corpus) -> RecordOf:
    """Records of the workloads that a corpus holds already, by kernel and arguments."""
    found: dict[tuple[str, ...], WorkloadRecord] = {}
    for run in corpus.runs.to_pylist():
        side = json.loads(run["side"] or "{}")
        if side.get("kernel") and side.get("arguments"):
            key = (str(side["kernel"]), *map(str, side["arguments"]))
            found.setdefault(key, record_of(run))
    return lambda workload: found.get((workload.kernel, *workload.args))


def bench_runs(
    results: Iterable[BenchResult], record_of_workload: RecordOf
) -> tuple[list[CleanRun], list[str]]:
    """One run for each result that can be described.

    Args:
        results: Of `costmodel bench run`.
        record_of_workload: Where records come from.

    Returns:
        Cleaned runs, and one line for each result that was left out.
    """
    runs, left_out = [], []
    for result in results:
        workload = result.planned.workload
        record = record_of_workload(workload)
        if record is None:
            left_out.append(f"{workload.kernel} {' '.join(workload.args)}: no record")
            continue
        default = result.results.get(result.default_id)
        if default is None or default.status != "ok":
            left_out.append(f"{workload.kernel}: its default was not measured")
            continue
        runs.append(clean(_recorded(result, record)))
    return runs, left_out


def _recorded(result: BenchResult, record: WorkloadRecord) -> RecordedRun:
    workload = result.planned.workload
    configs: Mapping[str, ConfigResult] = {
        name: one for name, one in result.results.items() if one.config is not None
    }
    began_s = result.started_at_s
    run_id = digest_of([workload.workload_id, began_s, "bench"], digits=32)
    attempts = tuple(
        Attempt(
            config_id=name,
            config=one.config or {},
            status=_STATUS.get(one.status, Status.ERROR),
            latency_us=one.first_us if one.status == "ok" else None,
            ordinal=ordinal,
            is_first_reading=False,
            line=ordinal + 1,
        )
        for ordinal, (name, one) in enumerate(configs.items())
    )
    side = SideFacts(
        run_id=run_id,
        started_at_s=began_s,
        kernel=workload.kernel,
        family=workload.family,
        variant=workload.variant,
        arguments=workload.args,
        helion_version=result.versions.get("helion_version"),
        torch_version=result.versions.get("torch_version"),
        triton_version=result.versions.get("triton_version"),
        ptxas_version=result.versions.get("ptxas_version"),
        driver_version=result.gpu.get("driver_version"),
        gpu=_gpu_facts(result.gpu, record.hardware),
        regime=result.regime,
        default_config_id=result.default_id,
        promoted=result.planned.promoted,
        attempts={
            name: AttemptFacts(
                code_digest=one.code_digest,
                registers=one.registers,
                spill_bytes=one.spill_bytes,
            )
            for name, one in configs.items()
        },
        interleaved_us={
            name: tuple(us for _round, _place, us in sorted(one.readings))
            for name, one in configs.items()
            if one.status == "ok" and one.readings
        },
        noise_floor_log=result.noise_floor_log,
    )
    return RecordedRun(
        log=f"{workload.workload_id}-bench-{int(began_s)}",
        run_id=run_id,
        run_ordinal=0,
        record=record,
        attempts=attempts,
        side=side,
        default_config_id=result.default_id,
        default_how=DefaultSource.SIDE_FILE,
        problem=None,
        started_at_s=began_s,
    )


def _gpu_facts(told: Mapping[str, Any], name: str) -> GpuFacts:
    known = {field.name for field in dataclasses.fields(GpuFacts)}
    return GpuFacts(
        **{"name": name} | {key: told[key] for key in known & set(told) if told[key]}
    )
