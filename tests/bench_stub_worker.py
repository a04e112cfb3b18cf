"""The real worker of a bench on a machine without a GPU: times are made up.

Everything but the device is real: plan, binding, Helion's batches, protocol, results.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from helion.autotuner.benchmark_provider import LocalBenchmarkProvider
from torch._subclasses.fake_tensor import FakeTensorMode

from costmodel.datasets import bench_check
from costmodel.datasets import bench_worker
from costmodel.datasets import cuda_rig
from costmodel.datasets.gpu_facts import GpuState
from costmodel.datasets.record_workload import Rig
from costmodel.features.canonical import config_id
from costmodel.hardware import load_hardware
from costmodel.helion_hook import aligned_fakes
from costmodel.target import targeting

_FAILS_ONE_IN = 11


def stub_us(config: dict[str, Any]) -> float:
    """A made-up time, equal for equal configs; one config in eleven fails."""
    digits = int(config_id(config), 16)
    return math.inf if digits % _FAILS_ONE_IN == 0 else 8.0 + digits % 8


class _Provider(LocalBenchmarkProvider):
    def _compute_baseline(self) -> Any:
        return None, [], None

    def _compute_effective_tolerances(self) -> tuple[float, float]:
        return 1e-2, 1e-2

    def _decide_num_jobs(self) -> int:
        return 1

    def setup(self) -> None:
        pass

    def cleanup(self) -> None:
        self.budget_exceeded_fn = lambda: False

    def _benchmark_function(self, config: Any, fn: Any, **_: Any) -> float:
        fn.stub_us = stub_us(json.loads(json.dumps(config.config)))
        return float(fn.stub_us / 1e3)


class _Timer:
    def __init__(self, regime: str) -> None:
        self.regime = regime
        self._n = 0

    def prepare(self, launch: Callable[..., Any], about_us: float) -> float:
        return float(getattr(launch, "stub_us", 7.0))

    def latency_us(self, prepared: float) -> float:
        self._n += 1
        return prepared * (1.0 + 1e-4 * (self._n % 7))


class _Judge:
    judged_by = "nothing"

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def fault(self, launch: Callable[..., Any]) -> None:
        return None


def _rig(compile_jobs: int, *, isolate: bool) -> Rig:
    mode = FakeTensorMode()
    return Rig(
        materialize=lambda specs, seed: [spec.fake(mode) for spec in specs],
        make_timer=lambda regime, args: _Timer(regime),
        warm_up=lambda launch, args: None,
        look=lambda: GpuState(name="NVIDIA H200", driver_version="none"),
        check=lambda: None,
        settings={
            "autotune_log_level": 40,
            "autotune_precompile": None,
            "autotune_benchmark_subprocess": False,
            "autotune_progress_bar": False,
            "autotune_random_seed": 0,
        },
        versions={"helion_version": "stub"},
        provider_base=_Provider,
    )


def main(argv: Sequence[str]) -> int:
    """Serve as the real worker does."""
    cuda_rig.cuda_rig = _rig
    bench_check.ResultJudge = _Judge  # type: ignore[misc]
    bench_worker._start_cuda = lambda: None
    bench_worker.gpu_state.device_is_broken = lambda: False
    bench_worker.gpu_state.free_memory = lambda: None
    with targeting(load_hardware("NVIDIA H200")), aligned_fakes():
        return bench_worker.main(list(argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
