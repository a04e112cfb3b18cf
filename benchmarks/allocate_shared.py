"""Ask Triton how much shared memory it allocates for configs built around the limit.

Run as `python benchmarks/allocate_shared.py LOGS --output ALLOCATIONS.jsonl` from the
root of a checkout. No GPU and no assembler: Triton stops after its allocation, a second
or two a config. Built are larger tiles, more stages and other warps of recorded
configs, and configs that failed when they were recorded. Judge the result with
`python benchmarks/calibrate_resources.py LOGS --allocations ALLOCATIONS.jsonl`.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import signal
import sys
import time
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from typing import NoReturn

import numpy as np

from costmodel import fake_driver
from costmodel import helion_hook
from costmodel.arguments import parse_argument
from costmodel.datasets import workloads
from costmodel.datasets.helion_log import read_logs
from costmodel.datasets.record import RecordedRun
from costmodel.datasets.record import Status
from costmodel.errors import CostModelError
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.features.staging import make_staging_plan
from costmodel.features.upper import shared_memory_upper
from costmodel.hardware import Hardware
from costmodel.hardware import load_hardware
from costmodel.hardware import match_hardware
from costmodel.kernel_file import load_kernel
from costmodel.target import bind
from costmodel.triton_build import _stand_in as stand_in
from costmodel.types import Config
from costmodel.types import WorkloadRecord

_LARGEST_BLOCK = 512
_STAGES = (2, 3, 4, 5, 6, 8)
_WARPS = (4, 4, 8, 8, 16)
_LIMIT_S = 60  # for one config


class AllocatedError(Exception):
    """Raised to stop Triton once it has allocated; carries the bytes."""

    def __init__(self, shared_bytes: int) -> None:
        super().__init__(f"{shared_bytes} bytes")
        self.shared_bytes = shared_bytes


def main() -> None:
    """Build configs, allocate, write one line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--rounds", type=int, default=2, help="visits to each kernel")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--dots", action="store_true", help="only kernels with dots")
    options = parser.parse_args()
    hardware = load_hardware(options.gpu)
    stop_after_allocation()
    end = time.monotonic() + options.seconds
    runs, _audit = read_logs(sorted(options.logs.rglob("*.csv")))
    if options.dots:
        runs = [run for run in runs if has_dot(run)]
    with options.output.open("a", encoding="utf-8") as file:
        for run, tag, config in built(runs, options.rounds, options.seed):
            if time.monotonic() > end:
                break
            shared, words = allocate(run, config, hardware)
            line = {
                "run_id": run.run_id,
                "tag": tag,
                "config": config,
                "shared": shared,
                "status": words,
            }
            file.write(json.dumps(line, sort_keys=True) + "\n")
            file.flush()


def has_dot(run: RecordedRun) -> bool:
    """Whether a run's kernel has a matrix product."""
    return run.record is not None and bool(KernelGraph.from_record(run.record).dots)


def built(
    runs: Sequence[RecordedRun], rounds: int, seed: int
) -> Iterator[tuple[RecordedRun, str, Config]]:
    """Configs of every kernel, workload by workload: run, "recorded" or "built"."""
    chance = random.Random(seed)
    by_kernel: dict[str, list[RecordedRun]] = {}
    for run in runs:
        if run.side is not None and run.side.kernel and run.record is not None:
            by_kernel.setdefault(run.side.kernel, []).append(run)
    for visit in range(rounds):
        kernels = sorted(by_kernel)
        chance.shuffle(kernels)
        for kernel in kernels:
            run = by_kernel[kernel][visit % len(by_kernel[kernel])]
            failed = [a.config for a in run.attempts if a.status is Status.ERROR]
            ran = [a.config for a in run.attempts if a.status is Status.OK]
            for config in chance.sample(failed, min(3, len(failed))):
                yield run, "recorded", config
            for config in chance.sample(ran, min(5, len(ran))):
                yield run, "built", enlarged(config, chance)


def enlarged(config: Config, chance: random.Random) -> Config:
    """A config with larger tiles, more stages and other warps."""
    config = copy.deepcopy(config)
    sizes = config.get("block_sizes", [])
    for index, size in enumerate(sizes):
        if chance.random() < 0.5 and size < _LARGEST_BLOCK:
            sizes[index] = min(size * chance.choice((2, 4)), _LARGEST_BLOCK)
    config["num_stages"] = chance.choice(_STAGES)
    config["num_warps"] = chance.choice(_WARPS)
    return config


_bound: dict[str, Any] = {}


def allocate(
    run: RecordedRun, config: Config, hardware: Hardware
) -> tuple[int | None, str]:
    """Bytes that Triton allocates for a config, or why there are none."""
    side = run.side
    assert side is not None and side.kernel is not None
    if run.run_id not in _bound:
        _bound.clear()  # one at a time; runs come in groups
        module, _, name = side.kernel.partition(":")
        source = Path(next(iter(workloads.__path__))) / f"{module}.py"
        specs = [parse_argument(text) for text in side.arguments]
        try:
            kernel = load_kernel(f"{source}:{name}")
            _bound[run.run_id] = bind(kernel, specs, hardware)
        except CostModelError as error:
            return None, str(error)
        fake_driver.install(hardware)
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(_LIMIT_S)
    try:
        return allocated_bytes(_bound[run.run_id], config), "ok"
    except Exception as error:  # Helion and Triton raise what they like
        last = (str(error).strip().splitlines() or [""])[-1]
        return None, f"{type(error).__name__}: {last[:150]}"
    finally:
        signal.alarm(0)


def _too_long(_signal: int, _frame: Any) -> NoReturn:
    raise TimeoutError


def allocated_bytes(bound: Any, config: Config) -> int:
    """The most that one of a config's launches allocates.

    Needs `stop_after_allocation` and an installed fake driver.
    """
    most = 0
    with helion_hook.device_of(bound):
        for launch in helion_hook.capture_launches(bound, config):
            args = [stand_in(value) for value in launch.args]
            launch.kernel.device_caches.clear()
            try:
                launch.kernel.run(
                    *args, grid=launch.grid, warmup=True, **launch.options
                )
            except AllocatedError as found:
                most = max(most, found.shared_bytes)
    return most


def stop_after_allocation() -> None:
    """Make Triton's CUDA compiler raise `AllocatedError` instead of going on."""
    from triton._C.libtriton import ir
    from triton._C.libtriton import nvidia
    from triton._C.libtriton import passes
    from triton.backends.nvidia import compiler

    def make_llir(
        self: Any, mod: Any, _metadata: Any, options: Any, capability: int
    ) -> NoReturn:
        ptx = compiler.get_ptx_version_from_options(options, self.target.arch)
        manager = ir.pass_manager(mod.context)
        passes.ttgpuir.add_combine_tensor_select_and_if(manager)
        try:
            passes.ttgpuir.add_allocate_warp_groups(manager, False)
        except TypeError:  # before Triton 3.7
            passes.ttgpuir.add_allocate_warp_groups(manager)
        passes.convert.add_scf_to_cf(manager)
        passes.gluon.add_inliner(manager)
        nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(manager, capability, ptx)
        manager.run(mod, "allocate")
        raise AllocatedError(mod.get_int_attr("ttg.shared"))

    compiler.CUDABackend.make_llir = make_llir


def judged(
    allocations: Path, records: Mapping[str, WorkloadRecord]
) -> dict[str, dict[str, float]]:
    """How the limits judge what was allocated.

    Args:
        allocations: JSONL that `main` wrote.
        records: Workloads by run id.

    Returns:
        By kind of config, and all: how many, positives (more than a CTA may have),
        recall, precision, share within 10 % or 2 KiB, share at most the bound.
    """
    by_run: dict[str, list[dict[str, Any]]] = {}
    for line in allocations.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["shared"] is not None and row["run_id"] in records:
            by_run.setdefault(row["run_id"], []).append(row)
    columns: list[tuple[str, float, float, float]] = []
    for run_id, rows in by_run.items():
        record = records[run_id]
        hardware = match_hardware(record.hardware).hardware
        graph = KernelGraph.from_record(record)
        configs = [row["config"] for row in rows]
        found = FeatureExtractor(graph, hardware).resources(configs)
        plan = make_staging_plan(graph)
        upper = shared_memory_upper(graph, plan, configs, hardware)
        limit = hardware.smem_per_cta_bytes
        for i, row in enumerate(rows):
            kind = f"{row['tag']}, {'with' if graph.dots else 'without'} dots"
            columns.append(
                (
                    kind,
                    row["shared"] / limit,
                    found.smem_bytes[i] / limit,
                    upper[i] / limit,
                )
            )
    table = {}
    for kind in [*sorted({row[0] for row in columns}), "all"]:
        part = [row[1:] for row in columns if kind in (row[0], "all")]
        shared, estimate, upper = np.array(part).T
        too_large, refused = shared > 1.0, estimate > 1.0
        close = np.abs(estimate - shared) <= np.maximum(2048 / 232448, 0.1 * shared)
        table[kind] = {
            "configs": len(part),
            "positives": int(too_large.sum()),
            "recall": _share(refused[too_large]),
            "precision": _share(too_large[refused]),
            "close": _share(close),
            "bounded": _share(upper >= shared),
        }
    return table


def _share(flags: Any) -> float:
    return float(np.mean(flags)) if len(flags) else float("nan")


if __name__ == "__main__":
    sys.exit(main())
