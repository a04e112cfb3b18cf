"""Every way of one kernel into Helion, and what came of each.

The ways, in order: Helion's "default"; "predict" at effort full; "code"; "checked",
which is predict with `verify_output`; "enable" at effort none; "verify"; "seed" at
effort quick; and "tuned", enabled at effort none again after the seeded search left its
result in Helion's cache.
"""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable
from typing import Any

WAYS = ("default", "predict", "code", "checked", "enable", "verify", "seed", "tuned")


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
    name: str,
    noted: Decisions,
    write: Callable[[dict[str, Any]], None],
    *,
    is_timed: bool,
) -> None:
    """All ways of one kernel; without speeds where others use the GPU as well."""
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
            if is_timed:
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
