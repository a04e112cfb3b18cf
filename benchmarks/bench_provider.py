"""Time what a user waits for: the first answer of a process, a repeat, a look-up.

Run as `python benchmarks/bench_provider.py` from the root of a checkout that is
installed; `--json` prints one object. Everything runs with no GPU. Numbers are
processor time of one core, so that a busy machine does not show, and the median of a
few fresh processes where a first time is measured.

"first pick" is the import of costmodel with its model and the first answer, after torch
and Helion are imported and the kernel is bound; "first more" is what of that a second
kernel does not pay again. "repeat" is `costmodel.pick(bound, args)` for a kernel known
already. "tuned look-up" asks Helion's local cache for an exact entry among N others,
and "neighbours" reads them for the same kernel at other shapes, once for each kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

N_PROCESSES = 5
N_REPEATS = 2_000
N_ENTRIES = (0, 200, 1_000)

_FIRST = """
import json, time
import torch, helion
from costmodel.arguments import parse_argument
from costmodel.hardware import load_hardware
from costmodel.kernel_file import load_kernel
from costmodel.target import bind
kernel = load_kernel("datasets/workloads/attention.py:attention_full")
def bound(rows):
    shape = f"bf16[32,{rows},64]"
    specs = [parse_argument(text) for text in (shape, shape, shape, "0.125")]
    return bind(kernel, specs, load_hardware("H200"))
one, two = bound(1024), bound(2048)
times = []
for each in (one, two):
    began = time.process_time()
    import costmodel
    answer = costmodel.pick(each)
    times.append(time.process_time() - began)
print(json.dumps([times, answer.reason.value]))
"""


def first_use() -> dict[str, float]:
    """Milliseconds of the first and second answer of a process."""
    firsts, seconds = [], []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        environment["HELION_CACHE_DIR"] = folder
        # As an installed package is: compiled to bytecode, by the first process here.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        for process in range(1 + N_PROCESSES):
            done = subprocess.run(
                [sys.executable, "-c", _FIRST],
                capture_output=True,
                text=True,
                check=True,
                env=environment,
            )
            (first, second), _reason = json.loads(done.stdout.splitlines()[-1])
            if process > 0:
                firsts.append(1e3 * first)
                seconds.append(1e3 * second)
    first_ms, second_ms = statistics.median(firsts), statistics.median(seconds)
    return {
        "first pick, ms": first_ms,
        "second kernel, ms": second_ms,
        "first more, ms": first_ms - second_ms,
    }


def _kernel() -> Any:
    from costmodel.arguments import parse_argument
    from costmodel.hardware import load_hardware
    from costmodel.kernel_file import load_kernel
    from costmodel.target import bind

    kernel = load_kernel("datasets/workloads/losses.py:kl_div_rows")
    specs = [parse_argument("f32[4096,8192]")] * 2
    return bind(kernel, specs, load_hardware("H200"))


def _timed(ask: Callable[[], object], repeats: int) -> float:
    """Mean seconds of processor time; the best of five rounds."""
    rounds = []
    for _round in range(5):
        began = time.process_time()
        for _repeat in range(repeats):
            ask()
        rounds.append((time.process_time() - began) / repeats)
    return min(rounds)


def repeats() -> dict[str, float]:
    """Microseconds of a repeated question, and milliseconds of look-ups."""
    import costmodel
    from costmodel import helion_hook

    found: dict[str, float] = {}
    for n_entries in N_ENTRIES:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["HELION_CACHE_DIR"] = folder
            bound = _kernel()
            args = helion_hook.cache_of(bound)["args"]
            _fill(Path(folder), n_entries)
            costmodel.pick(bound, args)
            repeat_s = _timed(lambda b=bound, a=args: costmodel.pick(b, a), N_REPEATS)
            found[f"repeat with {n_entries} entries, us"] = 1e6 * repeat_s
            with helion_hook.device_of(bound):
                look_up_s = _timed(
                    lambda b=bound, a=args: helion_hook.tuned_config(b, a), 20
                )
            found[f"tuned look-up among {n_entries}, ms"] = 1e3 * look_up_s
            fresh = _kernel()
            began = time.process_time()
            helion_hook.neighbour_configs(fresh)
            found[f"neighbours among {n_entries}, ms"] = 1e3 * (
                time.process_time() - began
            )
    return found


def _fill(folder: Path, n_entries: int) -> None:
    """Entries as Helion writes them, of another kernel."""
    fields = {"kernel_source_hash": "0" * 64, "hardware": "NVIDIA H200"}
    config = json.dumps({"block_sizes": [1], "num_warps": 4})
    text = json.dumps({"config": config, "key": {"fields": fields}}, indent=2)
    for index in range(n_entries):
        (folder / f"{index:064d}.best_config").write_text(text)


def main() -> int:
    """Print all numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one object")
    arguments = parser.parse_args()
    found = {**first_use(), **repeats()}
    if arguments.json:
        print(json.dumps({key: round(value, 3) for key, value in found.items()}))
        return 0
    for key, value in found.items():
        print(f"{key:<36}{value:>10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
