"""Do our candidates shorten Helion's search? The experiment, on one H200.

    python benchmarks/seeds_h200.py plan --results build/bench/results \\
        --cross-fit-models build/bench/held-out --output build/seeds/plan.jsonl
    python benchmarks/seeds_h200.py run build/seeds/plan.jsonl --out build/seeds/results
    python benchmarks/seeds_h200.py report build/seeds/results --markdown page.md

`plan` needs no GPU: it chooses at most eight workloads that leave something to find,
and what mode "seed" would plant there, by models that saw nothing of the family. `run`
needs the GPU, but neither a model nor xgboost: per workload Helion's search at effort
"quick" with its own seeding, the same search with ours, then all that matters timed
again, interleaved. Each search has a process and compile caches of its own. A few
workloads are at work at once; one launches while the others compile. `report` prints
the table. See `costmodel.datasets.seed_trial` for what is counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from seeds_children import Children

MOST_CONFIGS = 120  # of one search: about a minute with 16 cores
SEARCH_SECONDS = 60.0  # of one search; 120 configs took about that with 16 cores
START_SECONDS = 60.0  # CUDA, binding, a last batch, waiting for the GPU
RETIME_SECONDS = 120.0  # compiling up to thirty configs, twelve rounds, waiting
LEAST_SECONDS = 100.0  # with less time left no workload is begun
AT_ONCE = 4  # comparisons; one launches while the others compile
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
    """Search and time workloads, a few at once, until the time is over."""
    from costmodel.datasets.bench_file import read_plan

    stop_s = time.monotonic() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    done = {
        (line["workload_id"], line["seed"])
        for place in (options.out, *options.skip)
        for line in read_lines(place)
        if line["what"] == "timing"
    }
    planned = read_plan(options.plan).planned
    # All workloads with one random seed come before any with the next.
    due: queue.SimpleQueue[tuple[int, int, Any]] = queue.SimpleQueue()
    for seed in range(options.repeats):
        for number, one in enumerate(planned):
            if (one.workload.workload_id, seed) not in done:
                due.put((seed, number, one))
    writing = threading.Lock()

    def write(line: dict[str, Any]) -> None:
        with writing:
            append(options.out / RESULTS, line)

    with ThreadPoolExecutor(options.at_once) as pool:
        work = [
            pool.submit(serve, due, options, stop_s, write)
            for _ in range(options.at_once)
        ]
        for one in work:
            one.result()
    left = due.qsize()
    if left:
        print(f"out of time: {left} comparisons are left", file=sys.stderr)
    return 0


def serve(
    due: queue.SimpleQueue[tuple[int, int, Any]],
    options: argparse.Namespace,
    stop_s: float,
    write: Callable[[dict[str, Any]], None],
) -> None:
    """Take comparison after comparison, with children of our own."""
    with Children(options.child, options.out / "children.log") as children:
        while stop_s - time.monotonic() > LEAST_SECONDS:
            try:
                seed, number, one = due.get_nowait()
            except queue.Empty:
                return
            # Neither search is always the one that finds a cooler GPU.
            turned = (number + seed) % 2 == 1
            for line in trial(one, seed, children, options, stop_s, turned=turned):
                write(line)


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
    shared = {
        "lock": str(options.out.resolve() / "gpu.lock"),
        "jobs": options.jobs,
        "isolate": options.isolate,
    }
    seeds = next(one.configs for one in planned.columns if one.name == SEEDS)
    answers: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for way in reversed(WAYS) if turned else WAYS:
        log = children.folder() / "search"
        job = {
            **shared,
            "what": "search",
            "planned": plan_to_json(planned),
            "seeds": list(seeds) if way == OURS else [],
            "random_seed": seed,
            "log": str(log),
            "seconds": options.search_seconds,
            "max_configs": options.max_configs,
        }
        answer = children.ask(
            job, min(options.search_seconds + START_SECONDS, stop_s_left(stop_s))
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
            "waited_s": answer.get("waited_in_search_s", 0.0),
            "at_once": options.at_once,
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
    job = {**shared, "what": "timing", "planned": plan_to_json(timing)}
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
    return int(seeds_report.show(lines, options.json, options.markdown, options.bench))


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
    one.add_argument("--at-once", type=int, default=AT_ONCE, help="workloads")
    one.add_argument("--jobs", type=int, help="compilers of each; default: 2 a core")
    one.add_argument(
        "--isolate", action="store_true", help="time in Helion's killable worker"
    )
    own_child = Path(__file__).with_name("seeds_child.py")
    one.add_argument("--child", type=Path, default=own_child, help="for tests")
    one.set_defaults(function=run)
    one = commands.add_parser("report", help="print what came out; no GPU")
    one.add_argument("results", type=Path, nargs="+")
    one.add_argument("--json", action="store_true")
    one.add_argument("--markdown", type=Path)
    one.add_argument("--bench", type=Path, help="also as results of costmodel bench")
    one.set_defaults(function=report)
    options = parser.parse_args(arguments)
    if getattr(options, "jobs", 1) is None:
        options.jobs = max(1, 2 * (os.cpu_count() or 1) // options.at_once)
    return int(options.function(options))


if __name__ == "__main__":  # Helion's benchmark worker imports this module again
    sys.exit(main())
