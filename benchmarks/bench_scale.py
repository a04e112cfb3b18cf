"""Measure how fast logs are made, imported and made features of, and in what memory.

Run as `python benchmarks/bench_scale.py --attempts 1000000 --work build/scale` from the
root of a checkout that is installed. Each stage is a process of its own, so that peaks
of memory are its own; printed are rows per second of wall and of processor time and the
largest resident set. A stage that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy starts its threads
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

SOURCE = Path(__file__).parents[1] / "datasets" / "corpora" / "h200"
STAGES = ("synth", "import", "features", "fit")
ROUNDS = 10  # of boosting, in the last stage


def main() -> int:
    """Run the stages one by one, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attempts", type=int, default=1_000_000)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--only", choices=STAGES, help="in this process, as JSON")
    options = parser.parse_args()
    if options.only:
        print(json.dumps(_measured(options.only, options.attempts, options.work)))
        return 0
    options.work.mkdir(parents=True, exist_ok=True)
    print(
        f"{'stage':9s} {'rows':>9s} {'rows/s':>8s} {'rows/CPU s':>11s} {'peak MiB':>9s}"
    )
    for stage in options.stages:
        command = [sys.executable, __file__, "--only", stage]
        command += ["--attempts", str(options.attempts), "--work", str(options.work)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        print(
            f"{stage:9s} {found['rows']:9d} {found['rows'] / found['wall_s']:8.0f} "
            f"{found['rows'] / found['cpu_s']:11.0f} {found['peak_mib']:9.0f}",
            flush=True,
        )
    return 0


def _measured(stage: str, attempts: int, work: Path) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    rows = {"synth": _synth, "import": _import, "features": _features, "fit": _fit}[
        stage
    ](attempts, work)
    return {
        "rows": rows,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _command(*words: str) -> None:
    from costmodel.cli import main as costmodel

    stdout, sys.stdout = sys.stdout, sys.stderr  # the measurement is the only output
    try:
        code = costmodel(words)
    finally:
        sys.stdout = stdout
    if code:
        raise SystemExit(code)


def _synth(attempts: int, work: Path) -> int:
    words = ("corpus", "synth", str(work / "logs"), "--attempts", str(attempts))
    _command(*words, "--from", str(SOURCE))
    return attempts


def _import(attempts: int, work: Path) -> int:
    del attempts
    _command("import", str(work / "logs"), "--corpus", str(work / "corpus"), "--stream")
    from costmodel.datasets.stream_store import PartedCorpus

    return PartedCorpus(work / "corpus").n_attempts


def _features(attempts: int, work: Path) -> int:
    del attempts
    _command("corpus", "features", str(work / "corpus"), "--out", str(work / "shards"))
    from costmodel.training.shards import load_shards

    return sum(one.n_rows for one in load_shards(str(work / "shards")))


def _fit(attempts: int, work: Path) -> int:
    """Rounds of one bag from disk; counted are the example rows, not the attempts."""
    del attempts
    from costmodel.features.schema import SCHEMA
    from costmodel.layout import RowLayout
    from costmodel.training.external import ExternalMemory
    from costmodel.training.fit import FitSettings
    from costmodel.training.fit_engine import ByEngine
    from costmodel.training.shards import load_shards

    workloads = load_shards(str(work / "shards"))
    settings = FitSettings(n_bags=1, n_trees=ROUNDS, n_validity_trees=ROUNDS)
    engine = ExternalMemory()
    ByEngine(engine)(workloads, RowLayout.of(SCHEMA), settings, SCHEMA.hash)
    return engine.n_examples


if __name__ == "__main__":
    sys.exit(main())
