"""Measure a plan on this GPU: `python -m costmodel.datasets.bench_run PLAN -o OUT`.

A few workers each take one workload through binding and compiling on the CPU and take
turns in timing on the GPU, as a recording does, so that the GPU does not wait for
compilers. Every workload is a line in `OUT/bench-<i>.jsonl` as soon as it is measured;
a second start goes on from there, and so does one with `--skip` on another machine.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import costmodel
from costmodel.datasets import worker_process
from costmodel.datasets.bench_file import BenchResult
from costmodel.datasets.bench_file import PlannedWorkload
from costmodel.datasets.bench_file import append_result
from costmodel.datasets.bench_file import read_plan
from costmodel.datasets.bench_file import read_results
from costmodel.datasets.bench_file import result_files
from costmodel.datasets.bench_file import result_from_json
from costmodel.datasets.bench_measure import AUTOTUNE
from costmodel.datasets.bench_options import add_options
from costmodel.datasets.bench_plan import PICK
from costmodel.datasets.bench_score import score
from costmodel.datasets.bench_select import read_foreign
from costmodel.datasets.gpu_turn import COMPILE
from costmodel.datasets.gpu_turn import MEASURE
from costmodel.datasets.gpu_turn import WAIT
from costmodel.datasets.worker_process import Outcome
from costmodel.datasets.worker_process import WorkerProcess
from costmodel.datasets.worker_process import worker_environment

_LAST_START_S = 20.0  # no workload starts with less time left: it could not finish
_LAST_SEARCH_S = 45.0  # nor one that is searched, besides the search's own seconds
_GRACE_S = 12.0  # from the end of the time to killing: the last ones finish reading
_WORKLOAD_LIMIT_S = 240.0  # of one workload, waiting for the GPU included
# Silence that means a hang. Shorter than a recording's: these are configs that somebody
# chose, and each second is taken from other workloads.
_STALL_LIMITS_S = {
    worker_process.START: 180.0,
    COMPILE: 120.0,
    MEASURE: 25.0,
    WAIT: float("inf"),
}
# In isolation Helion itself ends a config that hangs, after 30 s.
_CAREFUL_LIMITS_S = {**_STALL_LIMITS_S, MEASURE: 60.0}
_TRACEBACK_LINES = 25
# Planning figures: recording timed 50 workloads of 49 configs in 540 s on one H200 with
# 16 cores, most of it first readings; here each config is read in rounds as well.
_SECONDS_PER_CONFIG = 0.6
_STARTING_S = 30.0


@dataclass(frozen=True, slots=True)
class Job:
    """One workload to measure.

    Attributes:
        planned: Its line of the plan.
        careful: In isolation, after it broke or hung a worker.
        autotune: Whether Helion searches it too.
    """

    planned: PlannedWorkload
    careful: bool = False
    autotune: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    made = argparse.ArgumentParser(prog="bench_run", description=__doc__)
    add_options(made)
    return run(made.parse_args(argv))


def run(options: argparse.Namespace) -> int:
    """Measure as the options of `add_options` say; returns the exit code."""
    plan = read_plan(options.plan)
    index, count = options.shard
    if options.dry_run:
        return _dry_run(list(plan.planned)[: options.limit][index::count], options)
    options.output.mkdir(parents=True, exist_ok=True)
    work = options.work or Path(tempfile.mkdtemp(prefix="bench-"))
    planned = list(plan.planned)[: options.limit][index::count]
    bench = Bench(options, work, planned, say=print_line)
    bench.start_workers()  # they import for seconds
    return bench.run()


def _dry_run(planned: Sequence[PlannedWorkload], options: argparse.Namespace) -> int:
    """Say what would be measured and about how long it takes; needs no GPU."""
    n_configs = 0
    for one in planned:
        distinct = {
            json.dumps(config, sort_keys=True)
            for column in one.columns
            for config in column.configs
        }
        n_configs += len(distinct)
        print(f"{one.workload.kernel} {' '.join(one.workload.args)}: {len(distinct)}")
    searches = options.autotune_limit if options.autotune_seconds > 0 else 0
    seconds = _STARTING_S + _SECONDS_PER_CONFIG * n_configs
    seconds += min(searches, len(planned)) * options.autotune_seconds
    print(
        f"{len(planned)} workloads, {n_configs} configs, about {seconds:.0f} s of one"
        " GPU with 16 cores"
    )
    return 0


class Bench:
    """Workloads, workers and the results of one GPU."""

    def __init__(
        self,
        options: argparse.Namespace,
        work: Path,
        planned: Sequence[PlannedWorkload],
        say: Callable[[str], None],
    ) -> None:
        """`work` is a folder for caches, `planned` what this GPU is to measure."""
        work.mkdir(parents=True, exist_ok=True)
        index, count = options.shard
        self._options = options
        self._say = say
        self._began_s = time.time()
        self._stop_at_s = self._began_s + options.seconds
        self.results = options.output / f"bench-{index}.jsonl"
        self.failures = options.output / f"failures-{index}.jsonl"
        self._wanted, self._n_before = self._missing(planned)
        cores = os.cpu_count() or 1
        jobs = options.compile_jobs or max(2, cores // count // 2)
        root = Path(costmodel.__file__).parents[1]
        command = [sys.executable, "-m", "costmodel.datasets.bench_worker"]
        command += ["--lock", str(work / "gpu.lock"), "--compile-jobs", str(jobs)]
        command += ["--plan", str(options.plan.resolve())]
        command += ["--foreign", json.dumps(_absolute(read_foreign(options.foreign)))]
        self.workers = [
            WorkerProcess(
                command=command,
                folder=Path.cwd(),
                environment=worker_environment(root, work),
                stderr_path=work / f"worker-{slot}.stderr",
                stall_limits_s=_STALL_LIMITS_S,
            )
            for slot in range(max(1, min(options.workers, len(self._wanted))))
        ]
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._n_done = 0
        self._n_failed = 0

    def _missing(self, planned: Sequence[PlannedWorkload]) -> tuple[list[Job], int]:
        """What is to be measured, and how many workloads are measured already.

        Searched workloads come last, and a second time: what they take does not cost
        the others their place, and what was measured without stays if time ends.
        """
        places = list(self._options.skip)
        if any(self._options.output.glob("bench-*.jsonl")):
            places.append(self._options.output)
        done = {
            one.planned.workload.workload_id: one
            for one in read_results(result_files(places))
        }
        plain = [Job(one) for one in planned if one.workload.workload_id not in done]
        searched: list[Job] = []
        if self._options.autotune_seconds > 0:
            for one in spread(planned, self._options.autotune_limit):
                known = done.get(one.workload.workload_id)
                if known is None or not known.searched:
                    searched.append(Job(one, autotune=True))
        return [*plain, *searched], len(planned) - len(plain)

    def start_workers(self) -> None:
        """Start all; they are ready when they are."""
        if self._wanted:
            for worker in self.workers:
                worker.start()

    def run(self) -> int:
        """Measure until the workloads or the time are used up; the exit code."""
        left_s = self._stop_at_s - time.time()
        self._say(
            f"{len(self._wanted)} workloads to measure ({self._n_before} measured"
            f" before), {left_s:.0f} s"
        )
        for job in self._wanted:
            self._jobs.put(job)
        threads = [
            threading.Thread(target=self._serve, args=(worker,))
            for worker in self.workers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.time() - self._began_s
        self._say(
            f"measured {self._n_done} of {len(self._wanted)} workloads in"
            f" {seconds:.0f} s, {self._n_failed} failures; {self.results}"
        )
        if not self._n_done and self._wanted:
            for worker in self.workers:
                self._say(worker.last_words(_TRACEBACK_LINES))
            return 1
        return 0

    def _serve(self, worker: WorkerProcess) -> None:
        """Give one worker job after job."""
        try:
            while True:
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
                now_s = time.time()
                needed_s = _LAST_START_S
                limit_s = _WORKLOAD_LIMIT_S
                if job.autotune:
                    needed_s = _LAST_SEARCH_S + self._options.autotune_seconds
                    limit_s += 2 * self._options.autotune_limit * needed_s
                if self._stop_at_s - now_s < needed_s:
                    continue
                kill_at_s = min(self._stop_at_s + _GRACE_S, now_s + limit_s)
                worker.stall_limits_s = (
                    _CAREFUL_LIMITS_S if job.careful else _STALL_LIMITS_S
                )
                outcome = worker.run(self._message(job), kill_at_s)
                with self._lock:
                    self._settle(job, outcome)
        finally:
            worker.kill()

    def _message(self, job: Job) -> dict[str, Any]:
        options = self._options
        search = {
            "seconds": options.autotune_seconds,
            "max_configs": options.autotune_configs,
        }
        return {
            "workload_id": job.planned.workload.workload_id,
            "careful": job.careful,
            "autotune": search if job.autotune else None,
            "first_s": options.first_seconds,
            "rounds_s": options.round_seconds,
            "n_rounds": options.rounds,
            "stop_at_s": self._stop_at_s,
        }

    def _settle(self, job: Job, outcome: Outcome) -> None:
        name = f"{job.planned.workload.kernel} {' '.join(job.planned.workload.args)}"
        if outcome.summary is not None:
            try:
                result = result_from_json(outcome.summary["result"])
                append_result(self.results, result)
            except (ValueError, KeyError, TypeError) as error:
                # One odd answer must not end this worker's thread.
                outcome = Outcome(error=f"unreadable result: {error}")
            else:
                self._n_done += 1
                self._say(f"{self._place()} {name}: {in_words(result)}")
                return
        if "stopped by the clock" in outcome.error or outcome.error == "out of time":
            self._say(f"not finished: {name}: {outcome.error}")
            return
        self._n_failed += 1
        self._say(f"failed: {name}: {outcome.error[:300]}")
        failure = {
            "workload_id": job.planned.workload.workload_id,
            "name": name,
            "error": outcome.error,
            "careful": job.careful,
            "autotune": job.autotune,
        }
        with self.failures.open("a", encoding="utf-8") as file:
            file.write(json.dumps(failure) + "\n")
        if outcome.worth_retrying and not job.careful:
            self._jobs.put(Job(job.planned, careful=True, autotune=job.autotune))

    def _place(self) -> str:
        now_s = time.time()
        rate = self._n_done / max(now_s - self._began_s, 1e-3)
        left_s = max(0.0, self._stop_at_s - now_s)
        reach = min(self._n_done + rate * left_s, len(self._wanted))
        return (
            f"{self._n_done}/{len(self._wanted)} [{left_s:.0f} s left, about"
            f" {reach:.0f} by then]"
        )


def in_words(result: BenchResult) -> str:
    """One result for a progress line."""
    scored = score(result)
    if scored is None:
        return "the default does not run"
    words = [f"default {scored.default_us:.1f} us"]
    for name, column in scored.columns.items():
        if column.is_failure:
            words.append(f"{name} {column.status}")
        elif name in (PICK, "top5", AUTOTUNE):
            words.append(f"{name} {column.speedup:.3f}x")
    floor = result.noise_floor_log
    noise = "" if floor is None else f", noise {100 * floor:.1f} %"
    return (
        f"{', '.join(words)}, best {scored.best_speedup:.3f}x of {len(result.results)}"
        f"{noise}, {result.regime}, {result.seconds:.0f} s"
    )


def spread(planned: Sequence[PlannedWorkload], n: int) -> list[PlannedWorkload]:
    """`n` of the workloads, evenly over the list, the first among them."""
    n = max(0, min(n, len(planned)))
    return [planned[i * len(planned) // n] for i in range(n)]


def print_line(text: str) -> None:
    """One line on stderr, flushed."""
    print(text, file=sys.stderr, flush=True)


def _absolute(
    places: Mapping[str, Mapping[str, str]],
) -> dict[str, dict[str, str]]:
    """The same with whole paths: workers may run elsewhere."""
    return {
        kernel: {label: os.path.abspath(place) for label, place in by_label.items()}
        for kernel, by_label in places.items()
    }


if __name__ == "__main__":
    sys.exit(main())
