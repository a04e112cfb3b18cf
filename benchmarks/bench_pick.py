"""Time a whole pick and its parts over many kernels, on one core.

Run as `python benchmarks/bench_pick.py` from the root of a checkout that is installed;
`--json` prints one object. Kernels are bound with no GPU, anew for every round, since a
bound kernel keeps what was read from it. Numbers are processor milliseconds, what one
core spends whatever else the machine does: of each kernel the best of a few rounds,
then the median and 95th percentile over kernels.

"read" is what Helion says (record, default, seeds, knobs), "parse" makes the graph and
the extractor of it, "choose" is features, scoring, ranking and gate of all candidates.
"pick" is what a user waits for beyond binding, measured by itself; with Helion's check
of the answer it is a little more than the sum of its parts. "first use" is what the
first pick of a process takes more than a later one: imports and loading the model.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy starts its threads
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import TypeVar

T = TypeVar("T")

PARTS = ("bind", "read", "parse", "candidates", "features", "choose", "pick")
N_KERNELS = 45


def main() -> None:
    """Bind, time, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=N_KERNELS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--first-use", action="store_true", help="that alone")
    options = parser.parse_args()
    if options.first_use:
        print(json.dumps(first_use_ms(options.gpu)))
        return
    rows = [timed(reference, options) for reference in references(options.kernels)]
    found = {
        "gpu": options.gpu,
        "n_kernels": len(rows),
        "first_use_ms": min(_first_use(options.gpu) for _ in range(options.rounds)),
        "ms": {part: spread([row["ms"][part] for row in rows]) for part in PARTS},
        "kernels": rows,
    }
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        _print(found)


def references(n_kernels: int) -> Iterator[str]:
    """Kernels in turn over families: one of each, then the second of each, ..."""
    from costmodel.datasets.workloads.registry import all_cases

    by_family: dict[str, list[str]] = {}
    for reference, case in all_cases().items():
        by_family.setdefault(case.family, []).append(reference)
    place, n_found = 0, 0
    while n_found < n_kernels and any(place < len(k) for k in by_family.values()):
        for kernels in by_family.values():
            if place < len(kernels) and n_found < n_kernels:
                n_found += 1
                yield kernels[place]
        place += 1


def timed(reference: str, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of every part, the best of all rounds."""
    from costmodel.provider import Provider

    provider = Provider()
    provider.model()
    rounds = [
        one_round(reference, options.gpu, provider) for _ in range(options.rounds)
    ]
    ms = {part: min(one[0][part] for one in rounds) for part in PARTS}
    return {"kernel": reference, "n_candidates": rounds[0][1], "ms": ms}


def one_round(reference: str, gpu: str, provider: Any) -> tuple[dict[str, float], int]:
    """Milliseconds of every part, and how many candidates there were."""
    from costmodel import helion_hook
    from costmodel.candidates import make_candidates
    from costmodel.features.extract import FeatureExtractor
    from costmodel.features.graph import KernelGraph
    from costmodel.hardware import load_hardware
    from costmodel.hybrid import choose
    from costmodel.target import targeting

    hardware = load_hardware(gpu)
    ms: dict[str, float] = {}

    def part(name: str, call: Callable[[], T]) -> T:
        gc.collect()
        start = time.process_time()
        found = call()
        ms[name] = (time.process_time() - start) * 1e3
        return found

    # A real GPU needs no stand-in; entering it is not what is measured here.
    with targeting(hardware):
        bound = part("bind", lambda: _bound(reference, gpu))
        view, space = part(
            "read", lambda: (helion_hook.view(bound), helion_hook.space(bound))
        )
        _, extractor = part(
            "parse",
            lambda: (
                graph := KernelGraph.from_record(view.record),
                FeatureExtractor(graph, hardware),
            ),
        )
        candidates = part("candidates", lambda: make_candidates(view, space, extractor))
        configs = [one.config for one in candidates]
        part("features", lambda: extractor.matrix(configs, configs[0]))
        part(
            "choose",
            lambda: choose(
                extractor, candidates, model=provider.model(), promoted=view.promoted
            ),
        )
        fresh = _bound(reference, gpu)
        part("pick", lambda: provider.pick(fresh))
    return ms, len(candidates)


def _bound(reference: str, gpu: str) -> Any:
    from costmodel.arguments import parse_argument
    from costmodel.datasets.workloads.registry import all_cases
    from costmodel.hardware import load_hardware
    from costmodel.target import bind

    case = all_cases()[reference]
    specs = [parse_argument(text) for text in case.shapes[0]]
    return bind(case.kernel, specs, load_hardware(gpu))


def first_use_ms(gpu: str) -> float:
    """What the first pick of this process takes more than the second one."""
    import helion  # noqa: F401 (what is measured is beyond it)

    reference = next(references(1))
    first, second = _bound(reference, gpu), _bound(reference, gpu)
    start = time.process_time()
    from costmodel.provider import Provider

    provider = Provider()
    provider.pick(first)
    middle = time.process_time()
    provider.pick(second)
    return (2 * middle - start - time.process_time()) * 1e3


def _first_use(gpu: str) -> float:
    command = [sys.executable, __file__, "--first-use", "--gpu", gpu]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(ran.stdout))


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and largest."""
    ordered = sorted(values)
    place = min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))
    found = {
        "p50": statistics.median(ordered),
        "p95": ordered[place],
        "max": ordered[-1],
    }
    return {name: round(value, 2) for name, value in found.items()}


def _print(found: dict[str, Any]) -> None:
    print(f"{'kernel':44s} {'n':>4s} " + " ".join(f"{p:>10s}" for p in PARTS))
    for row in found["kernels"]:
        cells = " ".join(f"{row['ms'][part]:10.2f}" for part in PARTS)
        print(f"{row['kernel']:44s} {row['n_candidates']:4d} {cells}")
    for name in ("p50", "p95", "max"):
        cells = " ".join(f"{found['ms'][part][name]:10.2f}" for part in PARTS)
        print(f"{name:44s} {'':4s} {cells}")
    print(f"first use: {found['first_use_ms']:.0f} ms beyond Helion's import")


if __name__ == "__main__":
    main()
