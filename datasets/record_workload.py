"""Record one workload: plan, time with Helion's own machinery, re-time, write.

What differs between a GPU and a test without one is a `Rig`; everything else here is
the same in both.
"""

from __future__ import annotations

import csv
import inspect
import math
import statistics
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel import helion_hook
from costmodel.arguments import Argument
from costmodel.arguments import ScalarArgument
from costmodel.arguments import parse_argument
from costmodel.datasets import gpu_facts
from costmodel.datasets import oracle
from costmodel.datasets import retime
from costmodel.datasets import side_file
from costmodel.datasets.offers import make_offers
from costmodel.datasets.oracle import Limits
from costmodel.datasets.plan import listed_configs
from costmodel.datasets.plan import plan_configs
from costmodel.datasets.plan import timing_order
from costmodel.datasets.workloads.workload import KernelCase
from costmodel.datasets.workloads.workload import Workload
from costmodel.features.canonical import config_id
from costmodel.hardware import Hardware
from costmodel.helion_hook import Benchmarked
from costmodel.helion_hook import GpuTurn
from costmodel.types import Config

LOG_SUFFIXES = (".csv", ".meta.jsonl", ".trace.jsonl", side_file.SUFFIX)
"""Files of one workload; the base name is its id. Helion's `.log` is text for people
and says nothing more."""

_HELION_TOLERANCE = 1e-2  # Helion's own default for the accuracy check


@dataclass(frozen=True, slots=True)
class Rig:
    """What a recording runs on.

    Attributes:
        materialize: Arguments with values, from their description and a seed.
        make_timer: A timer of our own for a regime and arguments.
        warm_up: Runs a launch untimed until the clocks are up, on copies of the
            arguments, since a kernel may write into them.
        look: The device's state now.
        check: Raises if the device no longer works in this process.
        settings: Helion settings that hold for every workload.
        versions: Versions by side-file field, such as "ptxas_version".
        provider_base: Helion benchmark provider to build on; None is Helion's own.
    """

    materialize: Callable[[Sequence[Argument], int], list[Any]]
    make_timer: Callable[[str, Sequence[Any]], retime.Timer]
    warm_up: Callable[[Callable[..., Any], Sequence[Any]], None]
    look: Callable[[], gpu_facts.GpuState]
    check: Callable[[], None]
    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    provider_base: type | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """What came of one workload, for the progress line; latencies in microseconds."""

    workload_id: str
    n_attempts: int
    n_ok: int
    n_retimed: int
    default_us: float
    best_us: float
    regime: str
    noise_floor_log: float


def record_workload(
    workload: Workload,
    case: KernelCase,
    hardware: Hardware,
    rig: Rig,
    turn: GpuTurn,
    limits: Limits,
    folder: Path,
    heartbeat: Callable[[], None],
    configs: Sequence[Config] | None = None,
) -> Summary:
    """Record one workload into `folder/<workload id>.*`; earlier files are replaced.

    Args:
        workload: What to record.
        case: Its kernel.
        hardware: Limits of the GPU, for leaving out what cannot run.
        rig: What to record on.
        turn: The GPU's queue; given back on return, whatever happens.
        limits: Amounts and times.
        folder: Exists; should be the working folder, since Helion logs the path.
        heartbeat: Called between configs.
        configs: What to time besides the default; None means a plan of our own.
    """
    base = folder / workload.workload_id
    started_at_s = time.time()
    specs = [parse_argument(text) for text in workload.args]
    try:
        turn.take()
        args = rig.materialize(specs, int(workload.workload_id[:8], 16))
        turn.give()
        bound = case.kernel.bind(tuple(args))
        view = helion_hook.view(bound, args)
        offers = make_offers(bound, view, hardware)
        planned = (
            plan_configs(offers, workload.workload_id, limits.n_configs)
            if configs is None
            else listed_configs(offers, configs)
        )
        order = timing_order(planned, workload.workload_id)
        default = planned[0].config
        looks: list[gpu_facts.GpuState] = []

        def before_timing() -> None:
            limits.start_search()
            try:
                rig.warm_up(bound.compile_config(default, allow_print=False), args)
            except Exception:  # a default that cannot run gets its row in the log
                heartbeat()
            looks.append(rig.look())

        def expired() -> bool:
            heartbeat()
            return limits.search_over()

        def search(extra: Mapping[str, Any]) -> list[Benchmarked]:
            _remove(base)
            settings = {**rig.settings, **_run_settings(base, case), **extra}
            return helion_hook.recording_search(
                bound,
                args,
                order,
                settings,
                turn,
                before_timing,
                expired,
                rig.provider_base,
            )

        try:
            rows = search({})
        except Exception as error:
            # Helion's own baseline is its most cautious config. Where even that
            # cannot run, the reference stands in.
            if "baseline" not in str(error):
                raise
            turn.give()
            rows = search({"autotune_baseline_fn": case.reference})
        rig.check()
        if limits.stopped() and _logged_attempts(base) < len(order) / 2:
            raise TimeoutError("stopped by the clock with most configs untimed")
        timed = oracle.read_again(
            rows, default, args, rig.make_timer, limits, heartbeat
        )
        looks.append(rig.look())
    finally:
        turn.give()
    facts = side_file.SideFacts(
        run_id=_logged_run_id(base),
        started_at_s=started_at_s,
        kernel=workload.kernel,
        family=workload.family,
        variant=workload.variant,
        arguments=workload.args,
        scalars=_scalars(case, specs),
        strides=tuple(tuple(a.stride()) for a in args if hasattr(a, "stride")),
        **rig.versions,
        driver_version=looks[0].driver_version,
        gpu=gpu_facts.merge(looks[0], looks[-1]),
        regime=timed.regime,
        default_config_id=config_id(default),
        default_config=default,
        promoted=view.promoted,
        seed_config_ids=tuple(config_id(seed) for seed in view.seeds),
        attempts=timed.attempts,
        interleaved_us=timed.interleaved_us,
        noise_floor_log=_finite_or_none(timed.noise_floor_log),
    )
    side_file.append_side_facts(side_file.side_path(base), [facts])
    return _summary(workload, _logged_attempts(base), rows, default, timed)


def _run_settings(base: Path, case: KernelCase) -> dict[str, Any]:
    """Helion settings of this run; the log path is bare, since Helion logs it too."""
    return {
        "autotune_log": base.name,
        "autotune_baseline_atol": max(case.atol, _HELION_TOLERANCE),
        "autotune_baseline_rtol": max(case.rtol, _HELION_TOLERANCE),
    }


def _summary(
    workload: Workload,
    n_attempts: int,
    rows: Sequence[Benchmarked],
    default: Config,
    timed: oracle.ReadAgain,
) -> Summary:
    medians = {k: statistics.median(v) for k, v in timed.interleaved_us.items()}
    return Summary(
        workload_id=workload.workload_id,
        n_attempts=n_attempts,
        n_ok=sum(row.latency_us < math.inf for row in rows),
        n_retimed=len(medians),
        default_us=medians.get(config_id(default), math.nan),
        best_us=min(medians.values(), default=math.nan),
        regime=timed.regime,
        noise_floor_log=timed.noise_floor_log,
    )


def _scalars(case: KernelCase, specs: Sequence[Argument]) -> dict[str, Any]:
    names = inspect.signature(case.reference).parameters
    return {
        name: spec.value
        for name, spec in zip(names, specs, strict=False)
        if isinstance(spec, ScalarArgument)
    }


def _logged_run_id(base: Path) -> str:
    """The id Helion wrote: the join key of all files of a run."""
    with base.with_name(base.name + ".csv").open(encoding="utf-8") as file:
        return next(csv.DictReader(file))["run_id"]


def _logged_attempts(base: Path) -> int:
    """Rows with an outcome in Helion's csv; configs left out of time have none."""
    with base.with_name(base.name + ".csv").open(encoding="utf-8") as file:
        return sum(row["status"] != "started" for row in csv.DictReader(file))


def _remove(base: Path) -> None:
    for suffix in (*LOG_SUFFIXES, ".log"):
        base.with_name(base.name + suffix).unlink(missing_ok=True)


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
