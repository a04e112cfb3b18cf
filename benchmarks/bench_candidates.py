"""Time the making of candidates, one kernel of each family, on one core.

Run as `python benchmarks/bench_candidates.py` from the root of a checkout that is
installed. Kernels are bound with no GPU; printed are processor milliseconds (what one
core spends, whatever else the machine does) of the best of a few rounds for each
kernel, then their median and 95th percentile.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy starts its threads
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import statistics
import time

from costmodel import helion_hook
from costmodel.arguments import parse_argument
from costmodel.candidates import make_candidates
from costmodel.datasets.workloads.registry import all_cases
from costmodel.errors import CostModelError
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.hardware import load_hardware
from costmodel.target import bind

N_ROUNDS = 5


def main() -> None:
    """Bind one kernel of each family, time, print."""
    hardware = load_hardware("H200")
    first = {}
    for reference, case in all_cases().items():
        first.setdefault(case.family, (reference, case))
    times = []
    for reference, case in first.values():
        try:
            arguments = [parse_argument(text) for text in case.shapes[0]]
            bound = bind(case.kernel, arguments, hardware)
            view, space = helion_hook.view(bound), helion_hook.space(bound)
            graph = KernelGraph.from_record(view.record)
            extractor = FeatureExtractor(graph, hardware)
            best_ms, n_candidates = float("inf"), 0
            for _ in range(N_ROUNDS):
                start = time.process_time()
                n_candidates = len(make_candidates(view, space, extractor))
                best_ms = min(best_ms, (time.process_time() - start) * 1e3)
        except CostModelError as error:
            print(f"{reference:48s} {error}")
            continue
        times.append(best_ms)
        print(f"{reference:48s} {n_candidates:4d} candidates {best_ms:6.2f} ms")
    ordered = sorted(times)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    print(f"median {statistics.median(ordered):.2f} ms, p95 {p95:.2f} ms")


if __name__ == "__main__":
    main()
