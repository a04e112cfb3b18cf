"""Compile recorded configs without a GPU, in parallel, and keep what the code shows.

Two steps, so that the second can run on a larger machine that has the versions of
Helion, PyTorch and Triton which made the logs:

    python benchmarks/compile_corpus.py draw LOGS --output JOBS.jsonl
    python benchmarks/compile_corpus.py run JOBS.jsonl --output FACTS.jsonl.gz

`draw` chooses, for each recorded run, the default, configs near the best, some slow
ones and some that failed, each machine code once. `run` compiles them for the GPU they
were recorded on and writes one line a config: run, config and `CompiledFacts` with the
disassembly, beside the digest, registers and memory that the GPU's machine recorded. It
goes by the clock; what is in the output already is not compiled again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from costmodel import compiled_facts
from costmodel.compile_check import CompileChecker
from costmodel.datasets import workloads
from costmodel.datasets.helion_log import read_logs
from costmodel.datasets.record import RecordedRun
from costmodel.datasets.record import Status
from costmodel.errors import BindError

# Configs within this factor of a run's best are "near": the ones that a second look is
# about, since the first has ranked the others away.
_NEAR = 1.65


def main() -> None:
    """Draw or run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    steps = parser.add_subparsers(dest="step", required=True)
    draw = steps.add_parser("draw", help="choose configs of recorded runs")
    draw.add_argument("logs", type=Path)
    draw.add_argument("--near", type=int, default=20, help="near the best, a run")
    draw.add_argument("--slow", type=int, default=4, help="slower ones, a run")
    draw.add_argument("--failed", type=int, default=2, help="failed ones, a run")
    draw.add_argument("--seed", type=int, default=0)
    run = steps.add_parser("run", help="compile them")
    run.add_argument("jobs", type=Path)
    run.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    run.add_argument("--seconds", type=float, default=float("inf"))
    run.add_argument("--limit", type=float, default=30.0, help="seconds a config")
    run.add_argument("--gpu", default="H200")
    for step in (draw, run):
        step.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if options.step == "draw":
        draw_jobs(options)
    else:
        Compilation(options).run()


def draw_jobs(options: argparse.Namespace) -> None:
    """Write one line a run: kernel, arguments and the configs to compile."""
    runs, _audit = read_logs(sorted(options.logs.rglob("*.csv")))
    jobs = [job for run in runs if (job := job_of(run, options)) is not None]
    # In a random order, so that what the clock cuts off is no particular kind.
    random.Random(options.seed).shuffle(jobs)
    options.output.write_text("".join(json.dumps(job) + "\n" for job in jobs))
    n_configs = sum(len(job["configs"]) for job in jobs)
    print(f"{len(jobs)} runs, {n_configs} configs: {options.output}")


def job_of(run: RecordedRun, options: argparse.Namespace) -> dict[str, Any] | None:
    """A run's kernel and the configs drawn from it, or None if it is not ours."""
    side = run.side
    if side is None or side.kernel is None or side.arguments is None:
        return None
    chance = random.Random(f"{options.seed} {run.run_id}")
    best_us: dict[str, float] = {}
    failed = set()
    configs = {}
    for one in run.attempts:
        configs[one.config_id] = one.config
        if one.status is Status.OK and one.latency_us is not None:
            earlier = best_us.get(one.config_id, float("inf"))
            best_us[one.config_id] = min(earlier, one.latency_us)
        elif one.status is Status.ERROR:
            failed.add(one.config_id)
    if not best_us:
        return None
    ranked = sorted(best_us, key=lambda name: best_us[name])
    by_code: dict[str, str] = {}  # the fastest config of each machine code
    for name in ranked:
        facts = side.attempts.get(name)
        by_code.setdefault((facts and facts.code_digest) or name, name)
    distinct = list(by_code.values())
    limit_us = _NEAR * best_us[ranked[0]]
    near = [name for name in distinct if best_us[name] <= limit_us]
    slow = [name for name in distinct if best_us[name] > limit_us]
    n_first = options.near * 3 // 5
    chosen = near[:n_first]
    rest = near[n_first:]
    chosen += chance.sample(rest, min(len(rest), options.near - n_first))
    chosen += chance.sample(slow, min(len(slow), options.slow))
    failed -= set(best_us)
    chosen += chance.sample(sorted(failed), min(len(failed), options.failed))
    default = side.default_config_id
    if default in configs and default not in chosen:
        chosen.insert(0, default)
    return {
        "run_id": run.run_id,
        "kernel": side.kernel,
        "arguments": list(side.arguments),
        "configs": [
            {
                "config_id": name,
                "config": configs[name],
                "recorded": _recorded(run, name),
            }
            for name in chosen
        ],
    }


def _recorded(run: RecordedRun, name: str) -> dict[str, Any] | None:
    assert run.side is not None
    facts = run.side.attempts.get(name)
    if facts is None or facts.code_digest is None:
        return None
    return {
        "code_digest": facts.code_digest,
        "registers": facts.registers,
        "stack_bytes": facts.spill_bytes,  # the driver reports local memory as this
        "smem_bytes": facts.smem_bytes,
    }


class Compilation:
    """Owns the output file and the clock; threads drive one child process each."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._deadline = time.monotonic() + options.seconds
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._done = set(_done(options.output))

    def run(self) -> None:
        """Compile until all is done or the time is up."""
        options = self._options
        lines = options.jobs.read_text().splitlines()
        jobs = [json.loads(line) for line in lines]
        options.output.parent.mkdir(parents=True, exist_ok=True)
        with (
            gzip.open(options.output, "at", encoding="utf-8") as self._file,
            ThreadPoolExecutor(options.processes) as pool,
        ):
            for _ in pool.map(self._job, jobs):
                pass
        print(json.dumps(dict(sorted(self._counts.items()))))

    def _job(self, job: dict[str, Any]) -> None:
        todo = [
            one
            for one in job["configs"]
            if (job["run_id"], one["config_id"]) not in self._done
        ]
        if not todo or time.monotonic() > self._deadline:
            self._counts["left"] += len(todo)
            return
        module, _, name = job["kernel"].partition(":")
        source = Path(next(iter(workloads.__path__))) / f"{module}.py"
        with CompileChecker(
            f"{source}:{name}",
            job["arguments"],
            self._options.gpu,
            limit_s=self._options.limit,
            disassemble=True,
        ) as checker:
            for place, one in enumerate(todo):
                if time.monotonic() > self._deadline:
                    self._counts["left"] += len(todo) - place
                    return
                try:
                    facts = checker.check(one["config"]).facts
                except BindError as error:
                    print(f"{job['kernel']}: {error}", file=sys.stderr)
                    self._counts["unbound"] += len(todo) - place
                    return
                self._write(job, one, compiled_facts.to_json(facts))

    def _write(
        self, job: dict[str, Any], one: dict[str, Any], facts: dict[str, Any]
    ) -> None:
        line = {
            "run_id": job["run_id"],
            "kernel": job["kernel"],
            "config_id": one["config_id"],
            "recorded": one["recorded"],
            "facts": facts,
        }
        recorded = one["recorded"]
        with self._lock:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
            self._counts[facts["status"]] += 1
            if recorded is not None and facts["status"] == "ok":
                same = recorded["code_digest"] == facts["code_digest"]
                self._counts["same code" if same else "other code"] += 1
            n_done = sum(self._counts[key] for key in ("ok", "shared_memory"))
            if n_done % 100 == 0:
                print(dict(self._counts), file=sys.stderr, flush=True)


def _done(output: Path) -> Iterator[tuple[str, str]]:
    """What an earlier run wrote; a line cut off by its end is left out."""
    if not output.exists():
        return
    try:
        with gzip.open(output, "rt", encoding="utf-8") as file:
            for line in file:
                one = json.loads(line)
                yield one["run_id"], one["config_id"]
    except (EOFError, ValueError):
        return


def read_facts(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Lines of one or more outputs, the whole ones of a file that was cut off too."""
    for path in paths:
        try:
            with gzip.open(path, "rt", encoding="utf-8") as file:
                for line in file:
                    yield json.loads(line)
        except (EOFError, ValueError):
            continue


if __name__ == "__main__":
    main()
