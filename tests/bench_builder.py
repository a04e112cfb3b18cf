"""Bench results from a few numbers, for tests."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from costmodel.datasets.bench_file import BenchResult
from costmodel.datasets.bench_file import Column
from costmodel.datasets.bench_file import ConfigResult
from costmodel.datasets.bench_file import PlannedWorkload
from costmodel.datasets.workloads.workload import Workload
from costmodel.features.canonical import config_id

_numbers = itertools.count()


def config(name: str) -> dict[str, Any]:
    """A config told apart by name."""
    return {"block_sizes": [len(name)], "name": name}


def planned(
    columns: Mapping[str, Sequence[str]],
    *,
    kernel: str = "matmul:gemm",
    promoted: bool = True,
    kernel_class: str = "matmul",
) -> PlannedWorkload:
    """A workload whose columns choose configs by name; every call makes another."""
    return PlannedWorkload(
        workload=Workload(kernel, (f"f32[{next(_numbers) + 1}]",), "matmul", "plain"),
        kernel_digest=kernel,
        kernel_class=kernel_class,
        promoted=promoted,
        columns=tuple(
            Column(name, tuple(map(config, names)), 0.01, "someone", "because")
            for name, names in {"default": ["d"], **columns}.items()
        ),
        bind_s=0.5,
        model_id="model",
    )


def readings(
    rounds: Sequence[Mapping[str, float]], name: str
) -> tuple[tuple[int, int, float], ...]:
    """One config's readings from each round's times by name; the default's are two."""
    found = []
    for number, times in enumerate(rounds):
        if name not in times:
            continue
        found.append((number, list(times).index(name), times[name]))
        if name == "d":
            found.append((number, len(times), times[name]))
    return tuple(found)


def result(
    columns: Mapping[str, Sequence[str]],
    rounds: Sequence[Mapping[str, float]],
    failed: Mapping[str, str] | None = None,
    **facts: Any,
) -> BenchResult:
    """A measured workload: times by config name and round, and statuses of failures."""
    plan = planned(columns, **facts)
    names = {name for times in rounds for name in times} | set(failed or {})
    names |= {name for some in columns.values() for name in some} | {"d"}
    results = {
        config_id(config(name)): ConfigResult(
            status=(failed or {}).get(name, "ok"),
            config=config(name),
            detail="it broke" if name in (failed or {}) else "",
            first_us=rounds[0].get(name),
            readings=() if name in (failed or {}) else readings(rounds, name),
            code_digest=f"code of {name}",
        )
        for name in sorted(names)
    }
    return BenchResult(
        planned=plan,
        results=results,
        members={one.name: tuple(map(config_id, one.configs)) for one in plan.columns},
        default_id=config_id(config("d")),
        regime="graph_replay",
        noise_floor_log=0.002,
        judged_by="reference",
        compile_s=4.0,
        first_s=2.0,
        gpu={"name": "NVIDIA H200", "driver_version": "580.0", "uuid_digest": "ab"},
        versions={"torch_version": "2.11.0"},
        started_at_s=1.0,
        seconds=5.0,
    )
