"""Record a corpus on a GPU: `python -m costmodel.datasets.collect OUT --seconds 540`.

One such process per GPU (`CUDA_VISIBLE_DEVICES`, `--shard i/n`). It runs a few workers:
each takes one workload through binding, planning and compiling on the CPU, and they
take turns in timing on the GPU, so that the GPU never waits for a compiler. What is
finished is in `OUT/recorded-<i>.tar.xz` at any moment; a second start, or another one
with `--skip`, goes on from there. `--dry-run` prints the plan on a machine without GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import costmodel
from costmodel.datasets import archive
from costmodel.datasets import locations
from costmodel.datasets.next_file import read_next
from costmodel.datasets.oracle import Limits
from costmodel.datasets.plan import N_CONFIGS
from costmodel.datasets.plan import WAVE_KERNELS
from costmodel.datasets.plan import in_listed_order
from costmodel.datasets.plan import order_workloads
from costmodel.datasets.plan import shard
from costmodel.datasets.record_workload import LOG_SUFFIXES
from costmodel.datasets.side_file import SUFFIX
from costmodel.datasets.worker_process import Outcome
from costmodel.datasets.worker_process import WorkerProcess
from costmodel.datasets.worker_process import worker_command
from costmodel.datasets.worker_process import worker_environment
from costmodel.datasets.workloads.workload import Workload
from costmodel.errors import LocationError

_DESCRIPTION = (
    "Record a corpus on one GPU: every workload's configs, timed and re-timed. What is "
    "finished is in OUT/recorded-<i>.tar.xz at any moment; a second start goes on."
)
_WORKERS = 5  # one times for a quarter of its cycle; the others bind and compile
_LAST_START_S = 25.0  # no workload starts with less time left: it could not finish
_TRACEBACK_LINES = 25
_GRACE_S = 12.0  # from the end of the time to killing: the last ones finish reading


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    with local_out(parser().parse_args(argv)) as options:
        return run(options)


@contextlib.contextmanager
def local_out(options: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """The same options with a local OUT; what is written there reaches a remote one.

    Raises:
        LocationError: It cannot be read at the start, or written at the end.
    """
    location = str(options.out)
    with locations.folder_of(location) as folder:
        options.out = Path(folder)
        options.sent_to = location if locations.is_remote(location) else None
        yield options


def run(options: argparse.Namespace) -> int:
    """Plan or record as the options of `parser` say; returns the exit code."""
    index, count = options.shard
    if options.dry_run:
        from costmodel.datasets.dry_run import dry_run

        return dry_run(options, lambda: workloads_of(options))
    stop_at_s = time.time() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    work = options.work or Path(tempfile.mkdtemp(prefix="collect-"))
    base = (options.out / f"recorded-{index}").resolve()
    campaign = Campaign(base, work, options, count, stop_at_s)
    campaign.start_workers()  # they import for seconds, as do we
    return campaign.run(workloads_of(options))


class Campaign:
    """Workloads, workers and the archive of one GPU."""

    def __init__(
        self,
        base: Path,
        work: Path,
        options: argparse.Namespace,
        n_shards: int,
        stop_at_s: float,
    ) -> None:
        """`base` is the archive without suffix, `work` a folder for raw files."""
        work.mkdir(parents=True, exist_ok=True)
        cores = os.cpu_count() or 1
        jobs = options.compile_jobs or max(2, cores // n_shards // 2)
        root = Path(costmodel.__file__).parents[1]
        self._work = work
        sent_to = getattr(options, "sent_to", None)
        self._archive = archive.Archive(base, written=lambda path: _send(path, sent_to))
        self._done_before = archived_ids(base)
        self._workers = [
            WorkerProcess(
                command=worker_command(work / "gpu.lock", jobs, options.hardware),
                folder=work,
                environment=worker_environment(root, work),
                stderr_path=work / f"worker-{slot}.stderr",
            )
            for slot in range(options.workers)
        ]
        self._options = options
        self._listed = read_next(options.plan) if options.plan else {}
        self._stop_at_s = stop_at_s
        self._jobs: queue.SimpleQueue[tuple[Workload, bool]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._failures: list[dict[str, Any]] = []
        self._progress = Progress(print_line, stop_at_s)

    def start_workers(self) -> None:
        """Start all; they are ready when they are."""
        for worker in self._workers:
            worker.start()

    def run(self, workloads: Sequence[Workload]) -> int:
        """Record until the workloads or the time are used up; the exit code."""
        wanted = [w for w in workloads if w.workload_id not in self._done_before]
        self._progress.start(len(wanted))
        for workload in wanted:
            self._jobs.put((workload, self._options.isolate))
        threads = [
            threading.Thread(target=self._serve, args=(worker,))
            for worker in self._workers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._save_failures()
        self._progress.finish()
        return 0 if self._progress.n_done or not wanted else 1

    def _serve(self, worker: WorkerProcess) -> None:
        """Give one worker job after job."""
        while self._stop_at_s - time.time() > _LAST_START_S:
            try:
                workload, isolate = self._jobs.get_nowait()
            except queue.Empty:
                break
            job = self._job(workload, isolate)
            outcome = worker.run(job, self._stop_at_s + _GRACE_S)
            with self._lock:
                self._settle(workload, isolate, outcome)
        worker.kill()

    def _job(self, workload: Workload, isolate: bool) -> dict[str, Any]:
        return {
            "workload_id": workload.workload_id,
            "isolate": isolate,
            "configs": self._listed.get(workload.workload_id),
            "n_configs": self._options.configs,
            "search_s": self._options.search_seconds,
            "retime_s": self._options.retime_seconds,
            "stop_at_s": self._stop_at_s,
        }

    def _settle(self, workload: Workload, isolate: bool, outcome: Outcome) -> None:
        if outcome.summary is not None:
            base = self._work / workload.workload_id
            paths = [base.with_name(base.name + suffix) for suffix in LOG_SUFFIXES]
            self._archive.add([path for path in paths if path.exists()])
            self._progress.done(workload, outcome.summary)
            return
        self._progress.failed(workload, outcome.error)
        self._failures.append(
            {
                "workload_id": workload.workload_id,
                "kernel": workload.kernel,
                "error": outcome.error,
                "isolated": isolate,
            }
        )
        if outcome.worth_retrying and not isolate:
            self._jobs.put((workload, True))

    def _save_failures(self) -> None:
        if self._failures:
            path = self._work / f"failures-{time.time():.0f}.jsonl"
            lines = [json.dumps(one) + "\n" for one in self._failures]
            path.write_text("".join(lines), encoding="utf-8")
            said = [worker.stderr_path for worker in self._workers]
            self._archive.add([path, *(one for one in said if one.exists())])
        if not self._progress.n_done:
            for worker in self._workers:
                print_line(worker.last_words(_TRACEBACK_LINES))


class Progress:
    """Lines for a person: what came of each workload, rate and time left."""

    def __init__(
        self,
        say: Callable[[str], None],
        stop_at_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` gives Unix seconds, as `stop_at_s` is."""
        self._say = say
        self._stop_at_s = stop_at_s
        self._clock = clock
        self._began_s = clock()
        self._wanted = 0
        self._attempts = 0
        self.n_done = 0

    def start(self, wanted: int) -> None:
        """The list is known."""
        self._wanted = wanted
        left = self._stop_at_s - self._clock()
        self._say(f"{wanted} workloads to record, {left:.0f} s")

    def done(self, workload: Workload, summary: Mapping[str, Any]) -> None:
        """One workload is safe in the archive."""
        self.n_done += 1
        self._attempts += summary["n_attempts"]
        elapsed = max(self._clock() - self._began_s, 1e-3)
        rate = self.n_done / elapsed
        needed = (self._wanted - self.n_done) / rate
        left = self._stop_at_s - self._clock()
        reach = self.n_done + rate * max(left, 0.0)
        gain = _ratio(summary["default_us"], summary["best_us"])
        self._say(
            f"{self.n_done}/{self._wanted} {workload.kernel} {' '.join(workload.args)}"
            f": {summary['n_ok']}/{summary['n_attempts']} ok,"
            f" default {summary['default_us']:.1f} us, best {gain:.2f}x,"
            f" noise {100 * summary['noise_floor_log']:.1f} %, {summary['regime']}"
            f" | {self._attempts / elapsed:.1f} configs/s,"
            f" {min(needed, left):.0f} s left, about {min(reach, self._wanted):.0f}"
            " workloads by then"
        )

    def failed(self, workload: Workload, error: str) -> None:
        """One workload has no result."""
        self._say(f"failed {workload.kernel} {' '.join(workload.args)}: {error[:300]}")

    def finish(self) -> None:
        """The last line."""
        elapsed = max(self._clock() - self._began_s, 1e-3)
        self._say(
            f"recorded {self.n_done} of {self._wanted} workloads, {self._attempts}"
            f" attempts in {elapsed:.0f} s: {self._attempts / elapsed:.2f} configs/s"
        )


def print_line(text: str) -> None:
    """One line on stderr, flushed."""
    print(text, file=sys.stderr, flush=True)


def _send(path: Path, location: str | None) -> None:
    """Put a part where it belongs, if that is elsewhere; a failure costs a line, since
    everything is sent once more at the end."""
    if location is None:
        return
    try:
        locations.send(path, locations.join(location, path.name))
    except LocationError as error:
        print_line(f"not sent yet: {error}")


def archived_ids(base: Path) -> set[str]:
    """Ids of the workloads that the archive with this base holds in full."""
    found: set[str] = set()
    part = 1
    while archive.part_path(base, part).exists():
        names = archive.member_names(archive.part_path(base, part))
        found |= {name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)}
        part += 1
    return found


def listed_ids(path: Path) -> list[str]:
    """Workload ids from an archive, or the first word of each line of a text file."""
    if path.name.endswith(archive.SUFFIX):
        names = archive.member_names(path)
        return [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split()[0] for line in lines if line.strip()]


def workloads_of(options: argparse.Namespace) -> list[Workload]:
    """This shard's workloads, best value first, without those to skip."""
    index, count = options.shard
    from costmodel.datasets.workloads.registry import all_workloads

    ordered = order_workloads(all_workloads(), {}, options.wave)
    if options.order is not None:
        ordered = in_listed_order(ordered, listed_ids(options.order))
    skip = {one for path in options.skip for one in listed_ids(path)}
    kept = [w for w in ordered if w.workload_id not in skip]
    if options.plan is not None:
        planned = read_next(options.plan)
        kept = [w for w in kept if w.workload_id in planned]
        kept = in_listed_order(kept, list(planned))
    return shard(kept[: options.limit], index, count)


def _ratio(above: float, below: float) -> float:
    return above / below if below else math.nan


def parser() -> argparse.ArgumentParser:
    """All options of a recording; importing it needs no GPU."""
    limits = Limits()
    made = argparse.ArgumentParser(prog="costmodel collect", description=_DESCRIPTION)
    add = made.add_argument
    add(
        "out",
        type=_out,
        help="folder for the archive, local or such as s3://bucket/x; in a dry run, "
        "for order.txt",
    )
    add("--seconds", type=float, default=540.0, help="stop by the clock after this")
    add(
        "--shard",
        type=_shard,
        default=(0, 1),
        metavar="I/N",
        help="every N-th workload from I",
    )
    add("--order", type=Path, help="workload ids, best first: order.txt of a dry run")
    add("--plan", type=Path, help="record only this: next.jsonl of --next")
    add("--skip", type=Path, action="append", default=[], help="ids or an archive")
    add("--wave", type=int, default=WAVE_KERNELS, help="kernels before the next ones")
    add("--limit", type=int, help="only the first of all workloads")
    add("--configs", type=int, default=N_CONFIGS, help="per workload")
    add("--search-seconds", type=float, default=limits.search_s)
    add("--retime-seconds", type=float, default=limits.retime_s)
    add("--workers", type=int, default=_WORKERS, help="per GPU")
    add("--compile-jobs", type=int, help="at once per worker; default: by cores")
    add("--isolate", action="store_true", help="slower: a hang costs one config only")
    add("--hardware", help="default: what the driver says; a dry run needs a name")
    add("--work", type=Path, help="folder for raw files; default: a temporary one")
    add("--dry-run", action="store_true", help="print the plan; needs no GPU")
    return made


def _out(text: str) -> Path | str:
    """A local path as one; a URL as it is, since a path would lose a slash."""
    return text if locations.is_remote(text) else Path(text)


def _shard(text: str) -> tuple[int, int]:
    """`I/N` as two numbers; argparse says what was wrong with anything else."""
    index, count = (int(part) for part in text.split("/"))
    if not 0 <= index < count:
        raise ValueError
    return index, count


_shard.__name__ = "I/N"  # argparse names the type in its message


if __name__ == "__main__":  # workers must never run the campaign again
    sys.exit(main())
