"""Do our candidates shorten Helion's search? The experiment, on one H200.

    python benchmarks/seeds_h200.py plan --results build/bench/results \\
        --cross-fit-models build/bench/held-out --output build/seeds/plan.jsonl
    python benchmarks/seeds_h200.py run build/seeds/plan.jsonl --out build/seeds/results
    python benchmarks/seeds_h200.py report build/seeds/results --markdown page.md

`plan` needs no GPU: it chooses at most eight workloads that leave something to find,
and what mode "seed" would plant there, by models that saw nothing of the family. `run`
needs the GPU, but neither a model nor xgboost: per workload Helion's search at effort
"quick" with its own seeding, the same search with ours, then all that matters timed
again, interleaved. Each search has a process and compile caches of its own. `report`
prints the table. See `costmodel.datasets.seed_trial` for what is counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MOST_CONFIGS = 120  # of one search: about a minute with 16 cores
SEARCH_SECONDS = 60.0  # of one search; 120 configs took about that with 16 cores
START_SECONDS = 25.0  # imports, CUDA, binding, Helion's worker process
RETIME_SECONDS = 90.0  # compiling up to thirty configs and six rounds of readings
LEAST_SECONDS = 100.0  # with less time left no workload is begun
RESULTS = "seeds.jsonl"


def plan(options: argparse.Namespace) -> int:
    """Choose workloads, and let the bench's planner fill in the columns."""
    from costmodel import cli
    from costmodel.datasets.bench_file import read_results
    from costmodel.datasets.bench_file import result_files
    from costmodel.datasets.seed_trial import SEEDS
    from costmodel.datasets.seed_trial import choose_workloads

    words = list(options.workloads)
    if not words:
        results = read_results(result_files([options.results]))
        chosen = choose_workloads(results, options.limit)
        words = [" ".join((one.kernel, *one.args)) for one in chosen]
    column = f"{SEEDS}=costmodel.datasets.seed_trial:our_seeds"
    where = ["--output", str(options.output), "--column", column]
    models = ["--cross-fit-models", str(options.cross_fit_models)]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    return int(cli.main(["bench", "plan", *words, *models, *where]))


def run(options: argparse.Namespace) -> int:
    """Search and time workload after workload until the time is over."""
    from costmodel.datasets.bench_file import read_plan

    stop_s = time.monotonic() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out / RESULTS
    done = {
        (line["workload_id"], line["seed"])
        for place in (options.out, *options.skip)
        for line in read_lines(place)
        if line["what"] == "timing"
    }
    planned = read_plan(options.plan).planned
    with Children(options.child, options.out / "children.log") as children:
        for seed in range(options.repeats):
            for number, one in enumerate(planned):
                if (one.workload.workload_id, seed) in done:
                    continue
                if stop_s - time.monotonic() < LEAST_SECONDS:
                    print("out of time", file=sys.stderr)
                    return 0
                # Neither search is always the one that finds a cooler GPU.
                turned = (number + seed) % 2 == 1
                for line in trial(one, seed, children, options, stop_s, turned=turned):
                    append(out, line)
    return 0


def trial(
    planned: Any,
    seed: int,
    children: Children,
    options: argparse.Namespace,
    stop_s: float,
    *,
    turned: bool,
) -> Iterator[dict[str, Any]]:
    """Both searches of one workload and the re-timing, as lines to write."""
    from costmodel.datasets.bench_file import plan_to_json
    from costmodel.datasets.seed_trial import OURS
    from costmodel.datasets.seed_trial import SEEDS
    from costmodel.datasets.seed_trial import WAYS
    from costmodel.datasets.seed_trial import incumbents
    from costmodel.datasets.seed_trial import steps_of
    from costmodel.datasets.seed_trial import with_searches

    workload = planned.workload
    facts = {
        "workload_id": workload.workload_id,
        "kernel": workload.kernel,
        "seed": seed,
    }
    seeds = next(one.configs for one in planned.columns if one.name == SEEDS)
    answers: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for way in reversed(WAYS) if turned else WAYS:
        log = children.folder() / "search"
        job = {
            "what": "search",
            "planned": plan_to_json(planned),
            "seeds": list(seeds) if way == OURS else [],
            "random_seed": seed,
            "log": str(log),
            "seconds": options.search_seconds,
            "max_configs": options.max_configs,
        }
        answer = children.ask(
            job, min(options.search_seconds + 2 * START_SECONDS, stop_s_left(stop_s))
        )
        csv = log.with_suffix(".csv")
        steps = steps_of(csv.read_text(encoding="utf-8")) if csv.exists() else []
        best = incumbents(steps)
        # A search that was killed has logged what it had found.
        answers[way] = answer.get("config") or (best[-1].config if best else None)
        found[way] = best
        yield {
            "what": "search",
            **facts,
            "way": way,
            "n_configs": len(steps),
            "seconds": answer.get("seconds") or (steps[-1].seconds if steps else 0.0),
            "error": answer.get("error"),
            "failed": sum(math.isinf(one.latency_us) for one in steps),
            "readings": [
                [one.n, round(one.seconds, 2), one.status, finite(one.latency_us)]
                for one in steps
            ],
            "incumbents": [
                [one.n, one.seconds, finite(one.latency_us)] for one in best
            ],
            "config": answers[way],
        }
    timing = with_searches(planned, answers, found)
    job = {"what": "timing", "planned": plan_to_json(timing)}
    answer = children.ask(job, min(RETIME_SECONDS, stop_s_left(stop_s)))
    result = answer.get("result")
    what = "failed" if result is None else "timing"
    yield {"what": what, **facts, "result": result, "error": answer.get("error")}


def stop_s_left(stop_s: float) -> float:
    """Seconds until the end, with a little grace for what is nearly done."""
    return max(1.0, stop_s + 15.0 - time.monotonic())


def finite(value: float) -> float | None:
    """A number as JSON has it."""
    return round(value, 3) if math.isfinite(value) else None


class Children:
    """Processes for one job each; the next one imports while one is at work."""

    def __init__(self, script: Path, log: Path) -> None:
        self._script = script
        self._log_path = log
        self._spare: subprocess.Popen[str] | None = None
        self._work: Any = None
        self._number = 0

    def __enter__(self) -> Children:
        self._work = tempfile.TemporaryDirectory(prefix="seeds-")
        self._log = self._log_path.open("a", encoding="utf-8")
        self._spare = self._start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._spare is not None:
            kill(self._spare)
        self._log.close()
        with contextlib.suppress(OSError):
            self._work.cleanup()

    def folder(self) -> Path:
        """A fresh folder for a job's files."""
        self._number += 1
        made = Path(self._work.name) / f"job-{self._number}"
        made.mkdir()
        return made

    def _start(self) -> subprocess.Popen[str]:
        caches = self.folder()
        root = str(Path(__file__).resolve().parents[1])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "TRITON_CACHE_DIR": str(caches / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
            "HELION_CACHE_DIR": str(caches / "helion"),
            "HELION_SKIP_CACHE": "1",
            "HELION_AUTOTUNE_PROGRESS_BAR": "0",
        }
        return subprocess.Popen(
            [sys.executable, str(self._script), "child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def ask(self, job: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a job, or {"error": why there is none}."""
        child = self._spare or self._start()
        self._spare = self._start()
        try:
            said, _ = child.communicate(json.dumps(job) + "\n", timeout=seconds)
        except subprocess.TimeoutExpired:
            kill(child)
            return {"error": f"killed after {seconds:.0f} s"}
        kill(child)
        lines = said.splitlines()
        if not lines:
            return {"error": f"the process ended with {child.returncode}: see the log"}
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer


def kill(child: subprocess.Popen[str]) -> None:
    """End a child with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        child.communicate()


def child(_options: argparse.Namespace) -> int:
    """Serve one job: a JSON line on stdin, a JSON line on stdout."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
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
    try:
        serve = {"search": search_once, "timing": time_again}[job["what"]]
        jobs = os.cpu_count() or 1
        isolate = job["what"] == "search"  # as a user runs it: a hang costs one config
        answer = serve(job, cases, cuda_rig.cuda_rig(jobs, isolate=isolate))
    except Exception as error:  # whatever it is, the next workload goes on
        words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        answer = {"error": words}
    answers.write(json.dumps(answer) + "\n")
    return 0


def search_once(job: dict[str, Any], cases: Any, rig: Any) -> dict[str, Any]:
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
    args = rig.materialize(specs, int(workload.workload_id[:8], 16))
    bound = kernel.bind(tuple(args))
    default = helion_hook.default_config(bound)
    here = [config_here(bound, one, default) for one in job["seeds"]]
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
    )
    return {
        "config": found.config,
        "seconds": found.seconds,
        "n_tested": found.n_configs,
        "n_seeds": sum(one is not None for one in here),
    }


def time_again(job: dict[str, Any], cases: Any, rig: Any) -> dict[str, Any]:
    """Compile, check and time every column of the plan, interleaved."""
    from costmodel.datasets import bench_check
    from costmodel.datasets.bench_file import plan_from_json
    from costmodel.datasets.bench_file import result_to_json
    from costmodel.datasets.bench_measure import BenchLimits
    from costmodel.datasets.bench_measure import BenchRig
    from costmodel.datasets.bench_measure import measure
    from costmodel.datasets.bench_select import resolve

    class Turn:
        """Nobody else uses the GPU."""

        def take(self) -> None:
            """It is ours."""

        def give(self) -> None:
            """It stays ours."""

    planned = plan_from_json(job["planned"])
    bench = BenchRig(
        rig=rig,
        make_judge=lambda kernel, args, default, use_reference: bench_check.ResultJudge(
            kernel, args, default, use_reference=use_reference
        ),
    )
    kernel = resolve(planned.workload, cases)
    limits = BenchLimits(first_s=40.0, rounds_s=20.0)
    result = measure(planned, kernel, bench, Turn(), limits, lambda: None)
    return {"result": result_to_json(result)}


def append(path: Path, line: dict[str, Any]) -> None:
    """Write a line at once, and say it on stderr in short."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    shown = ("what", "kernel", "way", "seed", "n_configs", "seconds", "error")
    words = (str(line[key]) for key in shown if line.get(key) is not None)
    print("  ".join(words), file=sys.stderr, flush=True)


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """All whole lines of a folder's results; none where there are no results."""
    path = folder / RESULTS if folder.is_dir() else folder
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):  # cut by the end of the time
            lines.append(json.loads(text))
    return lines


def report(options: argparse.Namespace) -> int:
    """Print what came out."""
    import seeds_report

    lines = [line for place in options.results for line in read_lines(place)]
    return int(seeds_report.show(lines, options.json, options.markdown))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("plan", help="choose workloads and seeds; no GPU")
    one.add_argument("workloads", nargs="*", help="in place of a choice from --results")
    one.add_argument("--results", type=Path, help="results of a live bench")
    one.add_argument("--cross-fit-models", type=Path, required=True)
    one.add_argument("--limit", type=int, default=8)
    one.add_argument("--output", type=Path, required=True)
    one.set_defaults(function=plan)
    one = commands.add_parser("run", help="search and time; on the GPU")
    one.add_argument("plan", type=Path)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--skip", type=Path, nargs="*", default=[], help="earlier results")
    one.add_argument("--seconds", type=float, default=540.0)
    one.add_argument("--search-seconds", type=float, default=SEARCH_SECONDS)
    one.add_argument("--max-configs", type=int, default=MOST_CONFIGS)
    one.add_argument("--repeats", type=int, default=1, help="random seeds 0, 1, ...")
    one.add_argument("--child", type=Path, default=Path(__file__), help="for tests")
    one.set_defaults(function=run)
    one = commands.add_parser("child")
    one.set_defaults(function=child)
    one = commands.add_parser("report", help="print what came out; no GPU")
    one.add_argument("results", type=Path, nargs="+")
    one.add_argument("--json", action="store_true")
    one.add_argument("--markdown", type=Path)
    one.set_defaults(function=report)
    options = parser.parse_args(arguments)
    return int(options.function(options))


if __name__ == "__main__":  # Helion's benchmark worker imports this module again
    sys.exit(main())
