"""First readings of a workload's configs, by Helion's own benchmark."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from costmodel import helion_hook
from costmodel.datasets.bench_check import Launch
from costmodel.datasets.bench_file import ConfigResult
from costmodel.datasets.bench_select import BenchKernel
from costmodel.datasets.record_workload import Rig
from costmodel.features.canonical import config_id
from costmodel.helion_hook import Benchmarked
from costmodel.helion_hook import GpuTurn
from costmodel.types import Config

OK = "ok"
WRONG = "wrong"
ERROR = "error"
_HELION_STATUS = {
    "ok": OK,
    "deduplicated": OK,
    "timeout": "timeout",
}


def first_readings(
    bound: Any,
    args: Sequence[Any],
    order: Sequence[Config],
    default: Config,
    kernel: BenchKernel,
    rig: Rig,
    turn: GpuTurn,
    before_timing: Callable[[], None],
    expired: Callable[[], bool],
) -> list[Benchmarked]:
    """Helion's benchmark of every config; writes no log.

    Its accuracy check is off: it would call a wrong result an error like any other,
    and the judge comes after it.
    """
    settings = {
        **rig.settings,
        "autotune_log": None,
        "autotune_log_details": False,
        "autotune_accuracy_check": False,
    }

    def search(extra: Mapping[str, Any]) -> list[Benchmarked]:
        return helion_hook.recording_search(
            bound,
            args,
            order,
            {**settings, **extra},
            turn,
            before_timing,
            expired,
            rig.provider_base,
        )

    try:
        return search({})
    except Exception as error:
        # Helion's own baseline is its most cautious config, run to see which
        # arguments a kernel writes to. Where that cannot run, the default stands in,
        # or the reference.
        if "baseline" not in str(error):
            raise
        turn.give()
        stand_in = _first_that_runs(bound, default, kernel)
        return search({"autotune_baseline_fn": stand_in})


def _first_that_runs(bound: Any, default: Config, kernel: BenchKernel) -> Launch:
    def stand_in(*args: Any) -> Any:
        try:
            return bound.compile_config(default, allow_print=False)(*args)
        except Exception:
            if kernel.reference is None:
                raise
            return kernel.reference(*args)

    return stand_in


def first_results(
    rows: Sequence[Benchmarked],
) -> tuple[dict[str, ConfigResult], dict[str, Launch]]:
    """What Helion's benchmark said of each config, and what can be launched."""
    results = {}
    launches = {}
    for row in rows:
        one = config_id(row.config)
        status = _HELION_STATUS.get(row.status, ERROR)
        ran = status == OK and math.isfinite(row.latency_us)
        results[one] = ConfigResult(
            status=status if ran or status != OK else ERROR,
            config=row.config,
            detail="" if ran else f"Helion's benchmark says {row.status}",
            first_us=row.latency_us if ran else None,
        )
        if ran:
            launches[one] = row.launch
    return results, launches
