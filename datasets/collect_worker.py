"""One recording process: jobs on stdin, answers on stdout, one line of JSON each.

It is expendable. A config may hang the GPU or break the device for its process; then
the parent kills this one and starts another, and the workload in flight is all that is
lost. Answers go to a descriptor of their own, because compilers print to stdout.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from costmodel.datasets import gpu_state
from costmodel.datasets.gpu_turn import COMPILE
from costmodel.datasets.gpu_turn import FileTurn
from costmodel.datasets.oracle import Limits

_BEAT_EVERY_S = 1.0
_BROKEN_DEVICE = 3  # exit code: start another process


def main(argv: list[str] | None = None) -> int:
    """Serve jobs until stdin closes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hardware", help="default: what the driver says")
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--compile-jobs", type=int, required=True)
    options = parser.parse_args(argv)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")

    # The heavy imports come after the channel is safe from whatever they print.
    from costmodel.datasets.workloads.registry import all_cases
    from costmodel.datasets.workloads.registry import all_workloads
    from costmodel.hardware import match_hardware

    cases = all_cases()
    workloads = {one.workload_id: one for one in all_workloads()}
    hardware = match_hardware(options.hardware or _device_name()).hardware
    _start_cuda()
    turn = FileTurn(options.lock, lambda phase: say(event="phase", phase=phase))
    say(event="ready")
    for line in sys.stdin:
        job = json.loads(line)
        workload = workloads[job["workload_id"]]
        say(event="phase", phase=COMPILE)
        try:
            summary = _record(
                workload,
                cases[workload.kernel],
                hardware,
                turn,
                job,
                options.compile_jobs,
                _Beat(lambda: say(event="beat")),
            )
        except Exception as error:
            traceback.print_exc()
            broken = gpu_state.device_is_broken()
            text = " ".join(f"{type(error).__name__}: {error}".split())
            say(event="failed", error=text, broken=broken)
            if broken:
                return _BROKEN_DEVICE
            continue
        say(event="done", **dataclasses.asdict(summary))
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


def _record(
    workload: Any,
    case: Any,
    hardware: Any,
    turn: FileTurn,
    job: dict[str, Any],
    compile_jobs: int,
    beat: _Beat,
) -> Any:
    from costmodel.datasets.cuda_rig import cuda_rig
    from costmodel.datasets.record_workload import record_workload

    limits = Limits(
        n_configs=job["n_configs"],
        search_s=job["search_s"],
        retime_s=job["retime_s"],
        stop_at_s=job["stop_at_s"],
    )
    rig = cuda_rig(compile_jobs, isolate=job["isolate"])
    try:
        return record_workload(
            workload,
            case,
            hardware,
            rig,
            turn,
            limits,
            Path(),
            beat,
            job.get("configs"),
        )
    finally:
        case.kernel.reset()  # its compiled configs and what they hold on to


def _start_cuda() -> None:
    """Make the context now; it takes a second that would be the GPU's later."""
    import torch

    torch.cuda.synchronize()


def _device_name() -> str:
    import torch

    return str(torch.cuda.get_device_name())


if __name__ == "__main__":  # Helion's benchmark worker imports this module again
    sys.exit(main())
