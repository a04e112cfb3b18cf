"""Run real kernels through every way into Helion on the GPU of this machine.

Run as `python benchmarks/plug_in_h200.py --out FILE.jsonl` from the root of a checkout
(installed, or with `PYTHONPATH=.`). Each line has `what`, `kernel`, `ok`, `seconds` and
`detail`. First come the situations of `plug_in_checks.py`, each in a process of its
own, four at a time; then one line for each kernel in each way: who decided and why, the
seconds of the decision itself, whether the result agrees with plain PyTorch, and the
time of the chosen config against Helion's default, read in turns. It stops starting
anything after `--seconds`.

`--at-once N` runs so many kernels at a time, each in a process of its own: no speeds
then, and the seconds of decisions are those of a loaded machine. Kernels whose lines
are all in the output file already are left out.

Where xgboost is not installed or the model is refused, or with `--no-model`, the
analytic heuristics decide in the model's place. Helion's caches of the user are left
alone: a folder of its own is used and removed.

The ways are those of `plug_in_ways.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

KERNELS = (
    "norm_forward:layer_norm",
    "softmax:softmax2",
    "matmul:gemm_nn",
    "grouped:packed_expert_gemm",
    "attention:attention_full",
    "matmul_low_precision:fp8_gemm_tensor_scale",
    "jagged:ragged_mean",
    "matmul_epilogue:mm_bias_gelu",
)
SEARCH_SECONDS = 12  # Helion's budget for the seeded search of one kernel
LOADED = {
    "HELION_AUTOTUNE_BUDGET_SECONDS": "8",
    "HELION_AUTOTUNE_PRECOMPILE_JOBS": "4",
    "LOCAL_WORLD_SIZE": "4",  # our compilers take a quarter of the cores
    # Its worker process imports for as long as a search takes here.
    "HELION_AUTOTUNE_BENCHMARK_SUBPROCESS": "0",
}
CHECKS_AT_ONCE = 4  # they time nothing; each compiles a kernel or two
CHECK_SECONDS = 150.0  # of one check with its children, importing included
QUIET = {
    "HELION_AUTOTUNE_COMPILE_TIMEOUT": "10",
    "HELION_AUTOTUNE_PROGRESS_BAR": "0",
    "HELION_AUTOTUNE_LOG_LEVEL": "ERROR",
    "HELION_AUTOTUNE_IGNORE_ERRORS": "1",
    "HELION_AUTOTUNE_BUDGET_SECONDS": str(SEARCH_SECONDS),
    "HELION_AUTOTUNE_RANDOM_SEED": "0",
}


def run_checks(
    names: Sequence[str],
    stop_s: float,
    at_once: int,
    write: Callable[[dict[str, Any]], None],
) -> None:
    """The situations, a few at a time, each written when it is known."""
    import plug_in_checks

    def one(name: str) -> dict[str, Any]:
        if time.perf_counter() > stop_s:
            return {"what": name, "ok": None, "detail": "out of time"}
        began = time.perf_counter()
        child = plug_in_checks.start_child(name)
        left_s = min(CHECK_SECONDS, max(1.0, stop_s - began))
        line = plug_in_checks.finish_child(child, left_s)
        wall = round(time.perf_counter() - began, 2)
        return {"what": name, "kernel": "", "seconds": wall, **line, "wall_s": wall}

    with ThreadPoolExecutor(at_once) as pool:
        for done in as_completed([pool.submit(one, name) for name in names]):
            write(done.result())


def finished(path: Path) -> set[str]:
    """Kernels with a line for every way."""
    import plug_in_ways

    ways: dict[str, set[str]] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for text in lines:
        with contextlib.suppress(ValueError):  # cut by the end of the time
            line = json.loads(text)
            if line["what"] == "way" and "way" in line:
                ways.setdefault(line["kernel"], set()).add(line["way"])
    return {one for one, known in ways.items() if known >= set(plug_in_ways.WAYS)}


def run_at_once(arguments: argparse.Namespace, stop_s: float) -> None:
    """Each kernel in a process of its own, which appends its lines to the file."""
    done = finished(arguments.out)

    def one(name: str) -> None:
        left_s = stop_s - time.perf_counter()
        if name in done or left_s <= 0:
            return
        command = [sys.executable, str(Path(__file__)), "--append", "--loaded"]
        command += ["--out", str(arguments.out), "--kernels", name, "--checks"]
        command += ["--no-model"] if arguments.no_model else []
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, timeout=left_s, check=False)

    with ThreadPoolExecutor(arguments.at_once) as pool:
        list(pool.map(one, arguments.kernels))


def main() -> int:
    """Write the lines, and each in short to stderr."""
    import plug_in_checks

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--out", type=Path, default=Path("plug_in.jsonl"))
    add("--seconds", type=float, default=420.0)
    add("--no-model", action="store_true")
    add("--kernels", nargs="*", default=KERNELS)
    add("--checks", nargs="*", default=tuple(plug_in_checks.CHECKS))
    add("--checks-at-once", type=int, default=CHECKS_AT_ONCE)
    add("--at-once", type=int, default=1, help="kernels; above 1 without speeds")
    add("--loaded", action="store_true", help=argparse.SUPPRESS)
    add("--append", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.update(QUIET)
    if arguments.loaded:
        os.environ.update(LOADED)
    root = str(Path(__file__).resolve().parents[1])
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = root if not known else f"{root}{os.pathsep}{known}"
    stop_s = time.perf_counter() + arguments.seconds
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    goes_on = arguments.append or arguments.at_once > 1
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        arguments.out.open("a" if goes_on else "w", encoding="utf-8") as out,
    ):
        os.environ["HELION_CACHE_DIR"] = folder
        if arguments.no_model:
            os.environ[plug_in_checks.NO_MODEL] = "1"

        def write(line: dict[str, Any]) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()
            shown = ("what", "kernel", "way", "ok", "source", "decide_s", "speedup")
            text = "  ".join(str(line[key]) for key in shown if key in line)
            print(text, line.get("detail", ""), file=sys.stderr, flush=True)

        run_checks(arguments.checks, stop_s, arguments.checks_at_once, write)
        if arguments.at_once > 1:
            run_at_once(arguments, stop_s)
        else:
            run_here(arguments, stop_s, write)
    return 0


def run_here(
    arguments: argparse.Namespace,
    stop_s: float,
    write: Callable[[dict[str, Any]], None],
) -> None:
    """Kernel after kernel in this process."""
    import plug_in_checks
    import plug_in_ways

    if not arguments.kernels:
        return
    make, decider = plug_in_checks.make_provider(arguments.no_model)
    noted = plug_in_ways.Decisions(make)
    for name in arguments.kernels:
        if time.perf_counter() > stop_s:
            write({"what": "way", "kernel": name, "ok": None, "detail": "no time"})
            continue
        plug_in_ways.run_kernel(
            name,
            noted,
            lambda line: write({**line, "decider": decider}),
            is_timed=not arguments.loaded,
        )


if __name__ == "__main__":
    sys.exit(main())
