"""The rig of a real recording: CUDA, Helion's own benchmark, our own timers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from typing import Any

from costmodel import helion_hook
from costmodel.arguments import Argument
from costmodel.datasets import gpu_facts
from costmodel.datasets import retime
from costmodel.datasets.record_workload import Rig
from costmodel.datasets.side_file import GRAPH_REPLAY

COMPILE_TIMEOUT_S = 10  # Helion's 60 s let one config stall a whole batch
_LOG_ERRORS_ONLY = 40  # logging.ERROR


def cuda_rig(compile_jobs: int, *, isolate: bool) -> Rig:
    """Record on this process's CUDA device.

    Args:
        compile_jobs: Configs compiled at once.
        isolate: Benchmark in Helion's killable subprocess: slower, but a config that
            hangs or breaks the device costs that config only.
    """
    return Rig(
        materialize=_materialize,
        make_timer=_make_timer,
        warm_up=retime.warm_up,
        look=gpu_facts.look,
        check=_check,
        settings={
            "autotune_log_details": True,
            "autotune_log_level": _LOG_ERRORS_ONLY,
            "autotune_progress_bar": False,
            "autotune_ignore_errors": True,
            "autotune_random_seed": 0,
            "autotune_precompile": "fork",
            "autotune_precompile_jobs": compile_jobs,
            "autotune_compile_timeout": COMPILE_TIMEOUT_S,
            "autotune_benchmark_subprocess": isolate,
            "autotune_adaptive_timeout": False,
        },
        versions=versions(),
    )


def versions() -> dict[str, str]:
    """Installed versions by the side file's field names."""
    installed = helion_hook.installed_versions()
    found = {f"{name}_version": version for name, version in installed.items()}
    ptxas = _ptxas_version()
    return {**found, "ptxas_version": ptxas} if ptxas else found


def _ptxas_version() -> str | None:
    """Version of the assembler that Triton runs, or None if it cannot be asked."""
    try:
        from triton import knobs

        path = knobs.nvidia.ptxas.path
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, check=True, timeout=10
        )
    except Exception:  # moved between Triton versions; knowing it is a nicety
        return None
    match = re.search(r"\bV(\d+(?:\.\d+)+)", answer.stdout)
    return match[1] if match else None


def _materialize(specs: Sequence[Argument], seed: int) -> list[Any]:
    import torch

    generator = torch.Generator("cuda").manual_seed(seed)
    args = [spec.materialize("cuda", generator) for spec in specs]
    torch.cuda.synchronize()
    return args


def _make_timer(regime: str, args: Sequence[Any]) -> retime.Timer:
    if regime == GRAPH_REPLAY:
        return retime.GraphTimer(args)
    return retime.EventTimer(args)


def _check() -> None:
    import torch

    torch.cuda.synchronize()
