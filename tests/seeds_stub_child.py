"""The real child of the seeding experiment on a machine without a GPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import bench_stub_worker as stubs

from costmodel.datasets import bench_check
from costmodel.datasets import cuda_rig
from costmodel.hardware import load_hardware
from costmodel.helion_hook import aligned_fakes
from costmodel.target import targeting

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "seeds_child.py"


class Provider(stubs._Provider):
    """Counts as Helion's own does."""

    def _benchmark_function(self, config: object, fn: object, **_: object) -> float:
        self._autotune_metrics.num_configs_tested += 1
        return float(super()._benchmark_function(config, fn))


def main() -> int:
    """Serve one job."""
    import dataclasses

    def rig(compile_jobs: int, *, isolate: bool) -> object:
        made = stubs._rig(compile_jobs, isolate=isolate)
        return dataclasses.replace(made, provider_base=Provider)

    cuda_rig.cuda_rig = rig  # type: ignore[assignment]
    bench_check.ResultJudge = stubs._Judge  # type: ignore[misc,assignment]
    spec = importlib.util.spec_from_file_location("seeds_child", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with targeting(load_hardware("NVIDIA H200")), aligned_fakes():
        return int(module.main())


if __name__ == "__main__":
    sys.exit(main())
