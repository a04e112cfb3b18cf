"""Time features of 512 candidates of one attention kernel, on one core.

Run as `python benchmarks/bench_features.py` from the root of a checkout that is
installed. The graph is bound with no GPU, parsed once, and evaluated many times;
printed are wall and processor milliseconds, median and 95th percentile.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy starts its threads
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import itertools
import statistics
import time
from collections.abc import Callable

from costmodel import helion_hook
from costmodel.arguments import parse_argument
from costmodel.datasets.workloads.registry import all_cases
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.hardware import load_hardware
from costmodel.heuristics.listed import with_list
from costmodel.target import bind
from costmodel.types import Config

N_CANDIDATES = 512
N_ROUNDS = 60


def main() -> None:
    """Bind, parse, time, print."""
    hardware = load_hardware("H200")
    multi_dot = [r for r in all_cases() if r.startswith("attention:")]
    reference = multi_dot[0]
    case = all_cases()[reference]
    bound = bind(case.kernel, [parse_argument(a) for a in case.shapes[0]], hardware)
    view = helion_hook.view(bound)
    configs = candidates(view.default)
    parse_ms = _times(lambda: KernelGraph.from_record(view.record), 10)
    graph = KernelGraph.from_record(view.record)
    setup_ms = _times(lambda: FeatureExtractor(graph, hardware), 10)
    extractor = FeatureExtractor(graph, hardware)
    with_list(extractor, view.default)
    matrix_ms = _times(lambda: extractor.matrix(configs, view.default), N_ROUNDS)
    print(f"kernel        {reference} {' '.join(case.shapes[0])}")
    print(f"candidates    {len(configs)}")
    for name, times in (
        ("parse graph", parse_ms),
        ("set up", setup_ms),
        ("features", matrix_ms),
    ):
        wall, cpu = zip(*times, strict=True)
        print(
            f"{name:13s} median {statistics.median(wall):6.2f} ms, "
            f"p95 {_p95(wall):6.2f} ms; "
            f"on the processor {statistics.median(cpu):6.2f} ms"
        )


def candidates(default: Config) -> list[Config]:
    """Distinct configs around a default: blocks, warps, stages, indexing."""
    n_blocks = len(default["block_sizes"])
    tail = itertools.product((16, 32, 64, 128), (32, 64, 128, 256))
    moves = itertools.product(
        tail,
        (2, 4, 8, 16),
        (1, 2, 3, 4),
        ("pointer", "tensor_descriptor"),
    )
    found = []
    for blocks, warps, stages, indexing in moves:
        sizes = [*default["block_sizes"][: max(0, n_blocks - 2)], *blocks][-n_blocks:]
        found.append(
            {
                **default,
                "block_sizes": sizes,
                "num_warps": warps,
                "num_stages": stages,
                "indexing": [indexing] * len(default["indexing"]),
            }
        )
    return found[:N_CANDIDATES]


def _times(call: Callable[[], object], rounds: int) -> list[tuple[float, float]]:
    """Wall and processor milliseconds of each round, after one to warm up."""
    call()
    found = []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        found.append(
            (
                (time.perf_counter() - wall) * 1e3,
                (time.process_time() - cpu) * 1e3,
            )
        )
    return found


def _p95(values: tuple[float, ...]) -> float:
    return sorted(values)[max(0, round(0.95 * len(values)) - 1)]


if __name__ == "__main__":
    main()
