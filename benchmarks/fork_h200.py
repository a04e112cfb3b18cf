"""What a child forked after our imports can do on the GPU, and where it hangs.

Run as `python benchmarks/fork_h200.py --out FILE.jsonl` from the root of a checkout.
Each situation has a parent process of its own, all at once; the parent never touches
CUDA. One JSON line a situation: what the parent had loaded when it forked (threads,
whether the driver's library was mapped), the child's steps with their seconds, and,
where the child did not end, the Python stacks of child and parent and what the kernel
says each of the child's threads waits for.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

SUBJECT = "matmul_low_precision:fp8_gemm_tensor_scale"
"""Helion has no rule for it, so that our pick is not Helion's default."""

STACKS_AFTER_S = 12.0  # a healthy child takes three to eight seconds
END_AFTER_S = 22.0
LIMIT_S = 70.0  # of all situations, their imports included
MAX_CHARACTERS = 4000  # of a stack in a line


def nothing() -> None:
    """The parent has torch and triton, which `main` imports for all."""


def openmp() -> None:
    """Torch's own threads have worked in the parent."""
    import torch

    torch.set_num_threads(max(4, torch.get_num_threads()))
    (torch.rand(1024, 1024) @ torch.rand(1024, 1024)).exp().sum()


def helion() -> None:
    """Helion is imported as well."""
    import helion  # noqa: F401


def xgboost_threads() -> None:
    """Somebody loads trees with all threads of XGBoost, and the child does again."""
    import xgboost

    helion()
    booster = xgboost.Booster()
    booster.load_model(bytearray(_trees()))


def model() -> None:
    """Our models are loaded, first and second stage; nothing is enabled."""
    from costmodel import process_provider
    from costmodel.provider import Provider

    helion()
    provider = Provider()
    problem = provider.model_problem()
    assert problem is None, problem
    _load_second_stage()
    process_provider._PROVIDER = provider


def enabled() -> None:
    """The same, and `enable()`."""
    import costmodel

    model()
    costmodel.enable()


def picked() -> None:
    """The same, and one pick for a described H200 was made."""
    import costmodel
    from costmodel.arguments import parse_argument
    from costmodel.hardware import load_hardware
    from costmodel.target import bind
    from costmodel.target import targeting

    enabled()
    case = _case()
    hardware = load_hardware("H200")
    specs = [parse_argument(text) for text in case.shapes[0]]
    with targeting(hardware):
        costmodel.pick(bind(case.kernel, specs, hardware))


def _watch_cuda(cuda: Any) -> list[str]:
    """Who first starts CUDA in this process: frames, the innermost last."""
    found: list[str] = []
    genuine = cuda._lazy_init

    def lazy_init() -> None:
        if not found and not cuda.is_initialized():
            stack = traceback.extract_stack()[:-1]
            found.extend(f"{one.filename}:{one.lineno} {one.name}" for one in stack)
        genuine()

    cuda._lazy_init = lazy_init
    return found


def _is_fixed() -> bool:
    """Whether this checkout reads trees by one thread."""
    return importlib.util.find_spec("costmodel.booster_bytes") is not None


def _load_second_stage() -> None:
    from costmodel.code_model import CodeModel
    from costmodel.learned import LearnedModel
    from costmodel.learned import bundled_model_path

    first = bundled_model_path()
    CodeModel.load(first, LearnedModel.load(first).model_id)


def _trees() -> bytes:
    from costmodel.learned import bundled_model_path

    return bundled_model_path().read_bytes()


def _case() -> Any:
    from costmodel.datasets.workloads.registry import all_cases

    return all_cases()[SUBJECT]


SITUATIONS: dict[str, tuple[Callable[[], None], str]] = {
    "torch and triton": (nothing, "op"),
    "torch's threads used": (openmp, "op"),
    "helion": (helion, "default"),
    "xgboost's threads used": (xgboost_threads, "trees"),
    "xgboost's threads used, our pick": (xgboost_threads, "ours"),
    "our models": (model, "default"),
    "our models, enable()": (enabled, "ours"),
    "our models, enable(), a pick": (picked, "ours"),
}


def child(work: str, step: Callable[[str], None]) -> None:
    """What the forked child does, step by step."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    step(f"asked for CUDA: {device}")
    ones = torch.ones(1 << 10, device=device) + 1
    assert float(ones.sum()) == 2 << 10
    step("one op")
    if work == "op":
        _cpu_op(step)
        return
    if work == "trees":
        import xgboost

        xgboost.Booster().load_model(bytearray(_trees()))
        step("loaded trees with all threads")
        return
    import helion

    import costmodel
    from costmodel.arguments import parse_argument

    case = _case()
    step("cases")
    generator = torch.Generator(device=device).manual_seed(0)
    specs = [parse_argument(text) for text in case.shapes[0]]
    args = tuple(one.materialize(device, generator) for one in specs)
    step("arguments")
    if work == "ours":
        costmodel.enable()
    if work != "default":
        _load_second_stage()
        step("second stage loaded")
    effort = "full" if work == "ours" else "none"
    kernel = helion.kernel(case.kernel.fn, autotune_effort=effort)
    if device == "cuda":
        found = kernel(*args)
        torch.cuda.synchronize()
        step("launched")
        torch.testing.assert_close(
            found.float(), case.reference(*args).float(), rtol=case.rtol, atol=case.atol
        )
        step(f"right; {costmodel.stats()}")
    _cpu_op(step)


def _cpu_op(step: Callable[[str], None]) -> None:
    import torch

    (torch.rand(512, 512) @ torch.rand(512, 512)).exp().sum()
    step("CPU op with threads")


def waits(pid: int) -> list[str]:
    """What each thread of a process waits for, as the kernel says."""
    found = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        words = []
        for name in ("comm", "wchan", "syscall"):
            try:
                words.append((task / name).read_text().strip()[:60])
            except OSError as error:
                words.append(type(error).__name__)
        found.append(" | ".join(words))
    return found


def situation(name: str) -> dict[str, Any]:
    """Prepare, fork, and see what becomes of the child."""
    prepare, work = SITUATIONS[name]
    # Torch then asks the driver's library, not CUDA, whether there is a GPU.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    import torch
    import triton  # noqa: F401

    began_s = time.perf_counter()
    started_by = _watch_cuda(torch.cuda)
    prepare()
    maps = Path("/proc/self/maps").read_text()
    line: dict[str, Any] = {
        "what": "fork",
        "situation": name,
        "prepared_s": round(time.perf_counter() - began_s, 1),
        "parent_threads": [one.split(" | ")[0] for one in waits(os.getpid())],
        "parent_has_driver": "libcuda.so" in maps,
        "parent_cuda": bool(torch.cuda.is_initialized()),
        "torch": torch.__version__,
        "cuda_started_by": started_by,
        "ours_reads_without_threads": _is_fixed(),
    }
    with tempfile.TemporaryDirectory() as folder:
        stack, steps = Path(folder) / "stack", Path(folder) / "steps"
        began_s = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            _as_child(work, stack, steps, began_s)
        status = None
        while status is None and time.perf_counter() - began_s < END_AFTER_S:
            ended, found = os.waitpid(pid, os.WNOHANG)
            status = found if ended else None
            time.sleep(0.1)
        if status is None:
            line["child_waits"] = waits(pid)
            faulthandler.dump_traceback(sys.stderr, all_threads=True)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        line["seconds"] = round(time.perf_counter() - began_s, 1)
        line["ok"] = status == 0
        line["ended"] = "hung" if status is None else status
        line["steps"] = steps.read_text().splitlines() if steps.exists() else []
        said = stack.read_text() if stack.exists() else ""
        if said:
            line["child_stacks"] = said[-MAX_CHARACTERS:]
    return line


def _as_child(work: str, stack: Path, steps: Path, began_s: float) -> None:
    code = 1
    try:
        with stack.open("w") as file, steps.open("w", buffering=1) as said:

            def step(words: str) -> None:
                said.write(f"{time.perf_counter() - began_s:.1f} s {words}\n")

            faulthandler.dump_traceback_later(STACKS_AFTER_S, repeat=False, file=file)
            try:
                child(work, step)
                code = 0
            except Exception as error:
                words = " ".join(f"{type(error).__name__}: {error}".split())
                step(words[:400])
            faulthandler.cancel_dump_traceback_later()
    finally:
        os._exit(code)


def main() -> int:
    """All situations at once, or one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", default=list(SITUATIONS))
    parser.add_argument("--one", choices=list(SITUATIONS), help="in this process")
    parser.add_argument("--seconds", type=float, default=LIMIT_S)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(situation(options.one)), flush=True)
        return 0
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    script = str(Path(__file__).resolve())
    running = [
        subprocess.Popen(
            [sys.executable, script, "--one", name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        for name in options.only
    ]
    stop_s = time.monotonic() + options.seconds
    lines = []
    for name, process in zip(options.only, running, strict=True):
        try:
            said, complained = process.communicate(
                timeout=max(1.0, stop_s - time.monotonic())
            )
        except subprocess.TimeoutExpired:
            process.kill()
            said, complained = process.communicate()
        ended = said.strip().splitlines()
        line = json.loads(ended[-1]) if ended else {"situation": name, "ok": None}
        if not line["ok"]:
            line["parent_said"] = complained[-MAX_CHARACTERS:]
        lines.append(json.dumps(line))
        shown = (
            line.get("ended"),
            line.get("seconds"),
            (line.get("steps") or [""])[-1],
        )
        print(name, *shown, file=sys.stderr, flush=True)
    text = "".join(f"{line}\n" for line in lines)
    if options.out is None:
        print(text, end="")
    else:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
