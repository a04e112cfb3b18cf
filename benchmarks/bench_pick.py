"""Time a whole pick and its parts over many kernels, on one core.

Run as `python benchmarks/bench_pick.py` from the root of a checkout that is installed;
`--json` prints one object. Kernels are bound with no GPU, anew for every round, since a
bound kernel keeps what was read from it. Numbers are processor milliseconds, what one
core spends whatever else the machine does: of each kernel the best of a few rounds,
then the median and 95th percentile over kernels.

"pick" is what a user waits for beyond binding; the parts before it are taken from that
same pick and never counted twice. "record", "helion" and "space" are what Helion says
(the log's record; default and seeds; legal values), "parse" makes the graph and the
extractor of it, "propose" is the analytic list, "moves" are moves and their programs,
"pool" the rest of making candidates, "features" their estimates and features, "model"
is scoring, "gate" deciding, "legal" is Helion's check of the answer, "rest" is what is
left. "analyse" sums what needs neither Helion nor a model: parse to features.

"first use" is measured in fresh processes, after torch, Helion and the kernel are
there: what the first pick takes, and of that what a later one does not take again
(imports and loading the model).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy starts its threads
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import gc
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import TypeVar

T = TypeVar("T")

PARTS = (
    "record",
    "helion",
    "space",
    "parse",
    "propose",
    "moves",
    "pool",
    "features",
    "model",
    "gate",
    "legal",
    "rest",
)
"""Of one pick, by what they do; they sum to it."""

ANALYSE = ("parse", "propose", "moves", "pool", "features")
SHOWN = ("bind", *PARTS, "analyse", "pick")

# Where each part begins and ends: module, class in it or "", function.
PLACES: tuple[tuple[str, str, str, str], ...] = (
    ("record", "costmodel.helion_hook.views", "", "record_of"),
    ("helion", "costmodel.helion_hook.views", "", "default_config"),
    ("helion", "costmodel.helion_hook.views", "", "seed_configs"),
    ("space", "costmodel.helion_hook", "", "space"),
    ("parse", "costmodel.features.graph", "", "_read"),
    ("parse", "costmodel.features.extract", "FeatureExtractor", "__init__"),
    ("pool", "costmodel.choosing", "", "make_candidates"),
    ("propose", "costmodel.candidates", "", "with_list"),
    ("moves", "costmodel.candidates", "_Pool", "new_ones"),
    ("features", "costmodel.features.extract", "FeatureExtractor", "remember"),
    ("features", "costmodel.features.extract", "FeatureExtractor", "matrix"),
    ("model", "costmodel.learned", "LearnedModel", "score"),
    ("model", "costmodel.learned", "LearnedModel", "mean"),
    ("gate", "costmodel.gate", "Gate", "decide"),
    ("legal", "costmodel.helion_hook", "", "is_legal"),
)
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
        "first_use_ms": _first_use(options),
        "ms": {part: spread([row["ms"][part] for row in rows]) for part in SHOWN},
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
    ms = {part: min(one[part] for one in rounds) for part in SHOWN}
    return {"kernel": reference, "ms": ms}


class Stopwatch:
    """Processor time of parts, each without the parts inside it.

    Attributes:
        ms: Milliseconds by part.
    """

    def __init__(self) -> None:
        self.ms: Counter[str] = Counter()
        self._open: list[str] = []
        self._since = 0.0

    def _mark(self) -> None:
        now = time.process_time()
        if self._open:
            self.ms[self._open[-1]] += (now - self._since) * 1e3
        self._since = now

    def timed(self, part: str, call: Callable[..., T]) -> Callable[..., T]:
        """The same function, timed."""

        def timed_call(*args: Any, **options: Any) -> T:
            self._mark()
            self._open.append(part)
            try:
                return call(*args, **options)
            finally:
                self._mark()
                self._open.pop()

        return timed_call

    def watch(self) -> Callable[[], None]:
        """Time all parts from now on, until what is returned is called."""
        genuine = []
        for part, module, owner, name in PLACES:
            holder: Any = importlib.import_module(module)
            holder = getattr(holder, owner) if owner else holder
            genuine.append((holder, name, getattr(holder, name)))
            setattr(holder, name, self.timed(part, getattr(holder, name)))

        def restore() -> None:
            for holder, name, function in genuine:
                setattr(holder, name, function)

        return restore


def one_round(reference: str, gpu: str, provider: Any) -> dict[str, float]:
    """Milliseconds of binding, of every part of a pick, and of the whole."""
    from costmodel.hardware import load_hardware
    from costmodel.target import targeting

    # A real GPU needs no stand-in; entering it is not what is measured here.
    with targeting(load_hardware(gpu)):
        gc.collect()
        start = time.process_time()
        bound = _bound(reference, gpu)
        bind_ms = (time.process_time() - start) * 1e3
        watch = Stopwatch()
        restore = watch.watch()
        try:
            gc.collect()
            answer = watch.timed("rest", provider.pick)(bound)
        finally:
            restore()
    assert answer.n_candidates, f"{reference}: {answer.reason}: {answer.detail}"
    ms = {part: watch.ms[part] for part in PARTS}
    analyse_ms = sum(ms[part] for part in ANALYSE)
    return {"bind": bind_ms, **ms, "analyse": analyse_ms, "pick": sum(ms.values())}


def _bound(reference: str, gpu: str) -> Any:
    from costmodel.arguments import parse_argument
    from costmodel.datasets.workloads.registry import all_cases
    from costmodel.hardware import load_hardware
    from costmodel.target import bind

    case = all_cases()[reference]
    specs = [parse_argument(text) for text in case.shapes[0]]
    return bind(case.kernel, specs, load_hardware(gpu))


def first_use_ms(gpu: str) -> dict[str, float]:
    """What the first pick of this process takes, and how much more than a second."""
    import helion  # noqa: F401 (what is measured is beyond it)

    reference = next(references(1))
    first, second = _bound(reference, gpu), _bound(reference, gpu)
    start = time.process_time()
    from costmodel.provider import Provider

    provider = Provider()
    provider.pick(first)
    middle = time.process_time()
    provider.pick(second)
    again = time.process_time() - middle
    return {"pick": (middle - start) * 1e3, "more": (middle - start - again) * 1e3}


def _first_use(options: argparse.Namespace) -> dict[str, float]:
    """The best of a few fresh processes."""
    command = [sys.executable, __file__, "--first-use", "--gpu", options.gpu]
    found = []
    for _round in range(options.rounds):
        ran = subprocess.run(command, check=True, capture_output=True, text=True)
        found.append(json.loads(ran.stdout))
    return {name: min(one[name] for one in found) for name in ("pick", "more")}


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
    print(f"{'kernel':40s} " + " ".join(f"{p:>8s}" for p in SHOWN))
    for row in found["kernels"]:
        cells = " ".join(f"{row['ms'][part]:8.2f}" for part in SHOWN)
        print(f"{row['kernel']:40s} {cells}")
    for name in ("p50", "p95", "max"):
        cells = " ".join(f"{found['ms'][part][name]:8.2f}" for part in SHOWN)
        print(f"{name:40s} {cells}")
    first = found["first_use_ms"]
    print(
        f"first use: {first['pick']:.0f} ms beyond Helion's import, of which a second "
        f"pick does not take {first['more']:.0f} ms again"
    )


if __name__ == "__main__":
    main()
