"""One job of the seeding experiment: a JSON line on stdin, a JSON line on stdout.

A search, or the re-timing of all that matters. Several children share the GPU: all
compile, one at a time launches (`costmodel.datasets.gpu_turn`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

NICENESS = 10  # imports and compilers yield to the process that is timing


def main() -> int:
    """Serve one job."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    if os.geteuid() == 0:  # nobody else could lower it again for timing
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    # The heavy imports come before the job, while another process is at work.
    import helion  # noqa: F401

    from costmodel.datasets import bench_measure  # noqa: F401
    from costmodel.datasets import cuda_rig
    from costmodel.datasets.workloads.registry import all_cases

    cases = all_cases()
    text = sys.stdin.readline()
    if not text.strip():
        return 0
    job = json.loads(text)
    turn = Turn(Path(job["lock"]))
    try:
        serve = {"search": search_once, "timing": time_again}[job["what"]]
        rig = cuda_rig.cuda_rig(job["jobs"], isolate=job["isolate"])
        answer = serve(job, cases, rig, turn)
    except Exception as error:  # whatever it is, the next workload goes on
        words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        answer = {"error": words}
    turn.give()
    answers.write(json.dumps({**answer, "waited_s": turn.waited_s}) + "\n")
    return 0


class Turn:
    """The GPU's queue, and how long we stood in it."""

    def __init__(self, lock: Path) -> None:
        from costmodel.datasets.gpu_turn import MEASURE
        from costmodel.datasets.gpu_turn import WAIT
        from costmodel.datasets.gpu_turn import FileTurn

        self.waited_s = 0.0
        since = 0.0

        def hear(phase: str) -> None:
            nonlocal since
            if phase == WAIT:
                since = time.monotonic()
            elif phase == MEASURE:
                self.waited_s += time.monotonic() - since

        self._turn = FileTurn(lock, hear)

    def take(self) -> None:
        """Wait until the GPU is ours."""
        self._turn.take()

    def give(self) -> None:
        """Let others have it."""
        self._turn.give()


def search_once(
    job: dict[str, Any], cases: Any, rig: Any, turn: Turn
) -> dict[str, Any]:
    """Helion's search of one workload, as a user would run it."""
    from costmodel import helion_hook
    from costmodel.arguments import parse_argument
    from costmodel.datasets.bench_file import plan_from_json
    from costmodel.datasets.bench_measure import config_here
    from costmodel.datasets.bench_select import resolve
    from costmodel.helion_hook.quick_search import quick_search

    workload = plan_from_json(job["planned"]).workload
    kernel = resolve(workload, cases).kernel
    specs = [parse_argument(text) for text in workload.args]
    turn.take()
    args = rig.materialize(specs, int(workload.workload_id[:8], 16))
    turn.give()
    bound = kernel.bind(tuple(args))
    default = helion_hook.default_config(bound)
    here = [config_here(bound, one, default) for one in job["seeds"]]
    waited_s = turn.waited_s
    found = quick_search(
        bound,
        args,
        {
            **rig.settings,
            "autotune_log": job["log"],
            "autotune_log_details": True,
            "autotune_random_seed": job["random_seed"],
        },
        seconds=job["seconds"],
        max_configs=job["max_configs"],
        heartbeat=lambda: None,
        provider_base=rig.provider_base,
        seeds=[one for one in here if one is not None],
        turn=turn,
    )
    return {
        "config": found.config,
        "seconds": found.seconds,
        "waited_in_search_s": turn.waited_s - waited_s,
        "n_tested": found.n_configs,
        "n_seeds": sum(one is not None for one in here),
    }


def time_again(job: dict[str, Any], cases: Any, rig: Any, turn: Turn) -> dict[str, Any]:
    """Compile, check and time every column of the plan, interleaved."""
    from costmodel.datasets import bench_check
    from costmodel.datasets.bench_file import plan_from_json
    from costmodel.datasets.bench_file import result_to_json
    from costmodel.datasets.bench_measure import BenchLimits
    from costmodel.datasets.bench_measure import BenchRig
    from costmodel.datasets.bench_measure import measure
    from costmodel.datasets.bench_select import resolve

    planned = plan_from_json(job["planned"])
    bench = BenchRig(
        rig=rig,
        make_judge=lambda kernel, args, default, use_reference: bench_check.ResultJudge(
            kernel, args, default, use_reference=use_reference
        ),
    )
    kernel = resolve(planned.workload, cases)
    limits = BenchLimits(first_s=40.0, rounds_s=20.0)
    result = measure(planned, kernel, bench, turn, limits, lambda: None)
    return {"result": result_to_json(result)}


if __name__ == "__main__":
    sys.exit(main())
