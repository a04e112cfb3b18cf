"""Run real kernels through every way into Helion on the GPU of this machine.

Run as `python benchmarks/plug_in_h200.py --out FILE.jsonl` from the root of a checkout
(installed, or with `PYTHONPATH=.`). Each line has `what`, `kernel`, `ok`, `seconds` and
`detail`. First come the situations of `plug_in_checks.py`, each in a process of its
own, four at a time; then one line for each kernel in each way: who decided and why, the
seconds of the decision itself, whether the result agrees with plain PyTorch, and the
time of the chosen config against Helion's default, read in turns. It stops starting
anything after `--seconds`.

Where xgboost is not installed or the model is refused, or with `--no-model`, the
analytic heuristics decide in the model's place. Helion's caches of the user are left
alone: a folder of its own is used and removed.

The ways, in order: Helion's "default"; "predict" at effort full; "code"; "checked",
which is predict with `verify_output`; "enable" at effort none; "verify"; "seed" at
effort quick; and "tuned", enabled at effort none again after the seeded search left its
result in Helion's cache.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
WAYS = ("default", "predict", "code", "checked", "enable", "verify", "seed", "tuned")
SEARCH_SECONDS = 12  # Helion's budget for the seeded search of one kernel
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


class Decisions:
    """Notes what is answered and how long it took."""

    def __init__(self, make_provider: Callable[[], Any]) -> None:
        from costmodel import process_provider
        from costmodel.modes import Answerer

        process_provider._PROVIDER = make_provider()
        self.last: Any = None
        self.seconds = 0.0
        genuine = Answerer.answer

        def answer(this: Any, *args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            self.last = genuine(this, *args, **options)
            self.seconds = time.perf_counter() - began
            return self.last

        Answerer.answer = answer  # type: ignore[method-assign]

    def clear(self) -> None:
        """Before a call."""
        self.last, self.seconds = None, 0.0


def twin(kernel: Any, **changes: Any) -> Any:
    """The same function with other settings and caches of its own."""
    import helion

    settings = copy.copy(kernel.settings)
    for name, value in changes.items():
        setattr(settings, name, value)
    return helion.Kernel(
        kernel.fn,
        configs=[],
        settings=settings,
        key=getattr(kernel, "_key_fn", None),
    )


def settings_for(way: str) -> dict[str, Any]:
    """Settings of the kernel in a way."""
    import costmodel

    if way in ("default", "enable", "tuned"):
        return {"autotune_effort": "none"}
    effort = "quick" if way == "seed" else "full"
    mode = way if way in ("code", "verify", "seed") else "predict"
    function = costmodel.autotuner(mode=mode, verify_output=way == "checked")
    return {"autotune_effort": effort, "autotuner_fn": function}


def agrees(found: Any, expected: Any, case: Any) -> str:
    """Empty if the results agree within the case's tolerances, else where not."""
    import torch
    from torch.utils._pytree import tree_leaves

    pairs = zip(tree_leaves(found), tree_leaves(expected), strict=True)
    for place, (mine, theirs) in enumerate(pairs):
        if not isinstance(mine, torch.Tensor):
            continue
        try:
            torch.testing.assert_close(
                mine.to(torch.float32),
                theirs.to(torch.float32),
                rtol=case.rtol,
                atol=case.atol,
            )
        except AssertionError as error:
            return f"output {place}: {' '.join(str(error).split())[:160]}"
    return ""


def synchronize() -> None:
    """Wait for the GPU, where there is one."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def interleaved_us(launches: list[Callable[[], Any]]) -> list[float]:
    """Median microseconds of each, the lower of two readings taken in turns."""
    readings = [[reading_ms(one) for one in launches] for _round in range(2)]
    return [1e3 * min(pair) for pair in zip(*readings, strict=True)]


def reading_ms(launch: Callable[[], Any]) -> float:
    """Milliseconds of a launch; without a GPU one call, to try this script."""
    import torch
    from triton.testing import do_bench

    if torch.cuda.is_available():
        return float(do_bench(launch, warmup=20, rep=60, return_mode="median"))
    began = time.perf_counter()
    launch()
    return 1e3 * (time.perf_counter() - began)


def replays_in_a_graph(launch: Callable[[], Any]) -> bool | str | None:
    """Whether a warmed kernel can be captured and replayed; None without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return None
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        graph.replay()
        torch.cuda.synchronize()
    except Exception as error:  # host code that waits for the GPU, such as `.item()`
        return f"{type(error).__name__}: {error}"[:120]
    return True


def one_way(
    way: str, case: Any, args: tuple[Any, ...], expected: Any, noted: Decisions
) -> tuple[dict[str, Any], Any]:
    """Run one kernel in one way: the line to write, and the kernel."""
    import costmodel

    kernel = twin(case.kernel, **settings_for(way))
    if way in ("enable", "tuned"):
        costmodel.enable()
    noted.clear()
    began = time.perf_counter()
    bound = kernel.bind(args)
    bound_at = time.perf_counter()
    output = kernel(*args)
    synchronize()
    ended = time.perf_counter()
    config = dict(bound._config.config) if bound._config is not None else None
    answer = noted.last
    wrong = agrees(output, expected, case)
    line = {
        "way": way,
        "ok": not wrong,
        "seconds": round(ended - began, 3),
        "source": "helion" if answer is None else answer.source.value,
        "reason": "" if answer is None else answer.reason.value,
        "detail": "" if answer is None else answer.detail,
        "predicted_speedup": None if answer is None else answer.predicted_speedup,
        "model_id": None if answer is None else answer.model_id,
        "bind_s": round(bound_at - began, 4),
        "decide_s": round(noted.seconds, 4),
        "first_call_s": round(ended - bound_at, 4),
        "wrong": wrong,
        "config": config,
    }
    return line, kernel


def run_kernel(
    name: str, noted: Decisions, write: Callable[[dict[str, Any]], None]
) -> None:
    """All ways of one kernel."""
    import torch

    import costmodel
    from costmodel.arguments import parse_argument
    from costmodel.datasets.workloads.registry import all_cases

    case = all_cases()[name]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shapes = case.shapes[0] if device == "cuda" else case.tiny
    generator = torch.Generator(device=device).manual_seed(0)
    specs = [parse_argument(text) for text in shapes]
    args = tuple(spec.materialize(device, generator) for spec in specs)
    expected = case.reference(*args)
    launches: list[Callable[[], Any]] = []
    for way in WAYS:
        line: dict[str, Any] = {"what": "way", "kernel": name, "args": list(shapes)}
        try:
            found, kernel = one_way(way, case, args, expected, noted)
            line |= found
            launches.append(functools.partial(kernel, *args))
            line["graph"] = replays_in_a_graph(launches[-1])
            default_us, latency_us = interleaved_us([launches[0], launches[-1]])
            line["default_us"] = round(default_us, 2)
            line["latency_us"] = round(latency_us, 2)
            line["speedup"] = round(default_us / latency_us, 3)
        except Exception as error:  # one kernel's trouble is a line, not the end
            words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            line |= {"way": way, "ok": False, "detail": words}
        finally:
            costmodel.disable()
        write(line)


def run_checks(
    names: Sequence[str], stop_s: float, write: Callable[[dict[str, Any]], None]
) -> None:
    """The situations, a few at a time, in the order given."""
    import plug_in_checks

    def one(name: str) -> dict[str, Any]:
        if time.perf_counter() > stop_s:
            return {"what": name, "ok": None, "detail": "out of time"}
        began = time.perf_counter()
        child = plug_in_checks.start_child(name)
        line = plug_in_checks.finish_child(child, CHECK_SECONDS)
        wall = round(time.perf_counter() - began, 2)
        return {"what": name, "kernel": "", "seconds": wall, **line, "wall_s": wall}

    with ThreadPoolExecutor(CHECKS_AT_ONCE) as pool:
        for line in pool.map(one, names):
            write(line)


def main() -> int:
    """Write the lines, and each in short to stderr."""
    import plug_in_checks

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("plug_in.jsonl"))
    parser.add_argument("--seconds", type=float, default=420.0)
    parser.add_argument("--no-model", action="store_true")
    parser.add_argument("--kernels", nargs="*", default=KERNELS)
    parser.add_argument("--checks", nargs="*", default=tuple(plug_in_checks.CHECKS))
    arguments = parser.parse_args()
    os.environ.update(QUIET)
    root = str(Path(__file__).resolve().parents[1])
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = root if not known else f"{root}{os.pathsep}{known}"
    stop_s = time.perf_counter() + arguments.seconds
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        arguments.out.open("w", encoding="utf-8") as out,
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

        run_checks(arguments.checks, stop_s, write)
        make, decider = plug_in_checks.make_provider(arguments.no_model)
        noted = Decisions(make)
        for name in arguments.kernels:
            if time.perf_counter() > stop_s:
                write({"what": "way", "kernel": name, "ok": None, "detail": "no time"})
                continue
            run_kernel(name, noted, lambda line: write({**line, "decider": decider}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
