"""One measuring process of a bench: jobs on stdin, answers on stdout, JSON lines.

It is expendable, as a recording's worker is: whatever a config does to it costs the
workload in flight and no other. It needs neither xgboost nor mlflow.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodel.datasets import gpu_state
from costmodel.datasets.gpu_turn import COMPILE
from costmodel.datasets.gpu_turn import FileTurn

_BEAT_EVERY_S = 1.0
_BROKEN_DEVICE = 3  # exit code: start another process


def main(argv: list[str] | None = None) -> int:
    """Serve jobs until stdin closes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--compile-jobs", type=int, required=True)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--foreign", default="{}", help="JSON, by kernel and label")
    options = parser.parse_args(argv)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")

    # The heavy imports come after the channel is safe from whatever they print.
    from costmodel.datasets.bench_file import read_plan
    from costmodel.datasets.workloads.registry import all_cases

    cases = all_cases()
    planned = {one.workload.workload_id: one for one in read_plan(options.plan).planned}
    foreign = json.loads(options.foreign)
    _start_cuda()
    turn = FileTurn(options.lock, lambda phase: say(event="phase", phase=phase))
    say(event="ready")
    for line in sys.stdin:
        job = json.loads(line)
        say(event="phase", phase=COMPILE)
        try:
            answer = _measure(
                planned[job["workload_id"]],
                cases,
                foreign,
                turn,
                job,
                options.compile_jobs,
                _Beat(lambda: say(event="beat")),
                lambda: say(event="phase", phase=COMPILE),
            )
        except Exception as error:
            traceback.print_exc()
            broken = gpu_state.device_is_broken()
            text = " ".join(f"{type(error).__name__}: {error}".split())
            say(event="failed", error=text, broken=broken)
            if broken:
                return _BROKEN_DEVICE
            continue
        say(event="done", result=answer)
        gpu_state.free_memory()
    return 0


class _Beat:
    """Tells the parent that we live, at most once per second."""

    def __init__(self, send: Callable[[], None]) -> None:
        self._send = send
        self._last = 0.0

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._last > _BEAT_EVERY_S:
            self._last = now
            self._send()


def _measure(
    planned: Any,
    cases: Mapping[str, Any],
    foreign: Mapping[str, Mapping[str, str]],
    turn: FileTurn,
    job: Mapping[str, Any],
    compile_jobs: int,
    beat: _Beat,
    searching: Callable[[], None],
) -> dict[str, Any]:
    import dataclasses

    from costmodel.datasets.bench_check import ResultJudge
    from costmodel.datasets.bench_file import result_to_json
    from costmodel.datasets.bench_measure import BenchLimits
    from costmodel.datasets.bench_measure import BenchRig
    from costmodel.datasets.bench_measure import measure
    from costmodel.datasets.bench_select import load_foreign
    from costmodel.datasets.bench_select import resolve
    from costmodel.datasets.cuda_rig import cuda_rig

    kernel = resolve(planned.workload, cases)
    places = foreign.get(planned.workload.kernel, {})
    if places:
        more = {**(kernel.foreign or {}), **load_foreign(places)}
        kernel = dataclasses.replace(kernel, foreign=more)
    careful = bool(job["careful"])
    search = None
    if job["autotune"] is not None:
        search = functools.partial(_search, job["autotune"], beat, searching)
    bench = BenchRig(
        rig=cuda_rig(compile_jobs, isolate=careful),
        make_judge=lambda kernel, args, default, use_reference: ResultJudge(
            kernel, args, default, use_reference=use_reference
        ),
        search=search,
    )
    limits = BenchLimits(
        first_s=job["first_s"],
        rounds_s=job["rounds_s"],
        stop_at_s=job["stop_at_s"],
        n_rounds=job["n_rounds"],
        search_s=0.0 if job["autotune"] is None else job["autotune"]["seconds"],
    )
    try:
        result = measure(planned, kernel, bench, turn, limits, beat, careful=careful)
    finally:
        kernel.kernel.reset()  # its compiled configs and what they hold on to
    return result_to_json(result)


def _search(
    limits: Mapping[str, Any],
    beat: _Beat,
    searching: Callable[[], None],
    bound: Any,
    args: Sequence[Any],
    settings: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Helion's search with the GPU and all cores it wants, as a user would run it."""
    from costmodel.helion_hook.quick_search import quick_search

    searching()  # it compiles in batches, silently, for longer than a reading takes
    found = quick_search(
        bound,
        args,
        {
            **settings,
            "autotune_precompile_jobs": os.cpu_count(),
            "autotune_log": None,
            "autotune_log_details": False,
        },
        seconds=limits["seconds"],
        max_configs=limits["max_configs"],
        heartbeat=beat,
    )
    return found.config, {"n_configs": found.n_configs, "seconds": found.seconds}


def _start_cuda() -> None:
    """Make the context now; it takes a second that would be the GPU's later."""
    import torch

    torch.cuda.synchronize()


if __name__ == "__main__":  # Helion's benchmark worker imports this module again
    sys.exit(main())
