"""A whole bench without a GPU: the real parent and worker, made-up times."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest
from bench_stub_worker import stub_us

from costmodel import helion_hook
from costmodel.arguments import parse_argument
from costmodel.datasets import bench_options
from costmodel.datasets import bench_run
from costmodel.datasets.bench_file import Column
from costmodel.datasets.bench_file import Plan
from costmodel.datasets.bench_file import PlannedWorkload
from costmodel.datasets.bench_file import read_results
from costmodel.datasets.bench_file import write_plan
from costmodel.datasets.bench_score import score
from costmodel.datasets.bench_select import select
from costmodel.datasets.workloads.registry import all_cases
from costmodel.datasets.workloads.registry import all_workloads
from costmodel.features.canonical import config_id
from costmodel.hardware import load_hardware
from costmodel.target import bind

STUB = Path(__file__).with_name("bench_stub_worker.py")
WORDS = "gated_activation:clamped_swiglu bf16[64,512] bf16[64,512] 7.5"
SEVERAL_WARPS = (2, 8, 16)


@pytest.mark.slow
def test_a_plan_is_measured_end_to_end(tmp_path: Path) -> None:
    (workload,) = select([WORDS], all_workloads())
    kernel = all_cases()[workload.kernel].kernel
    specs = [parse_argument(text) for text in workload.args]
    default = helion_hook.default_config(bind(kernel, specs, load_hardware("H200")))
    others = [{**default, "num_warps": n} for n in SEVERAL_WARPS]
    columns = (
        Column("default", (default,), 0.0),
        Column("pick", (others[0],), 0.01),
        Column("top5", (default, *others), 0.01),
    )
    planned = PlannedWorkload(workload, "digest", "pointwise", True, columns)
    path = tmp_path / "plan.jsonl"
    write_plan(path, Plan({}, (planned,)))
    made = argparse.ArgumentParser()
    bench_options.add_options(made)
    foreign = tmp_path / "theirs.py"
    foreign.write_text("def other(a, b, limit):\n    return a\n")
    options = made.parse_args(
        [
            str(path),
            *("--output", str(tmp_path / "out"), "--workers", "1"),
            *("--foreign", f"{workload.kernel}={foreign}:other"),
        ]
    )
    options.output.mkdir()
    said: list[str] = []
    bench = bench_run.Bench(options, tmp_path / "work", [planned], said.append)
    for worker in bench.workers:
        module = worker.command.index("-m")
        worker.command = [
            *(sys.executable, str(STUB)),
            *worker.command[module + 2 :],
        ]
        worker.environment = {
            **worker.environment,
            "PYTHONPATH": f"{worker.environment['PYTHONPATH']}:{STUB.parent}",
        }
    assert bench.run() == 0, "\n".join(said)
    (found,) = read_results([tmp_path / "out" / "bench-0.jsonl"])
    scored = score(found)
    assert scored is not None
    assert scored.default_us == pytest.approx(stub_us(default), rel=1e-2)
    expected = {
        one: stub_us(found.results[one].config or {})
        for one in found.results
        if found.results[one].config is not None
    }
    assert set(expected) == {config_id(one) for one in (default, *others)}
    fastest = min(expected.values())
    assert scored.columns["top5"].latency_us == pytest.approx(fastest, rel=1e-2)
    assert scored.columns["other"].latency_us == pytest.approx(7.0, rel=1e-2)
    assert any("1/1" in line and "pick" in line for line in said)
