"""Situations of the plug-in on a real GPU, each in a process of its own.

`plug_in_h200.py` runs them; `python benchmarks/plug_in_checks.py NAME` runs one and
prints one JSON line. A check raises where the plug-in does not keep its word, and
returns what it saw in words; `Skip` says why a machine cannot show it. Where Helion
alone fails in a situation, we may fail in the same way and no other: such a check tries
Helion alone in a child first.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plug_in_rig import Device
from plug_in_rig import Skip
from plug_in_rig import case
from plug_in_rig import config_of
from plug_in_rig import has_our_pick
from plug_in_rig import kernel
from plug_in_rig import make_provider

SUBJECT = "matmul_low_precision:fp8_gemm_tensor_scale"
"""Helion has no rule for it, so that our pick is not Helion's default."""

PLAIN = "pointwise:add_broadcast"
"""Launches without a host-side wait, for capture and torch.compile."""

NO_MODEL = "COSTMODEL_PLUG_IN_NO_MODEL"
"""Variable that tells the children of `--no-model`."""

CHILD_SECONDS = 90.0
FORK_SECONDS = 40.0  # then a forked child says where it hangs and ends


def graph_after_pick(device: Any) -> str:
    """A kernel that has its pick is captured and replayed on new values."""
    import costmodel

    args = device.args(PLAIN)
    one = kernel(PLAIN, autotuner_fn=costmodel.autotuner())
    device.call(one, args)
    result, replay = device.capture(lambda: one(*args))
    args[0].mul_(2)
    replay()
    device.agree(result, PLAIN, args)
    return has_our_pick(one, PLAIN, args)


def graph_first_call(device: Any) -> str:
    """The very first call of a kernel is inside a capture, under `enable("verify")`."""
    import costmodel

    alone = in_child("graph_first_call_alone")
    args = device.args(PLAIN)
    one = kernel(PLAIN, autotune_effort="full")
    costmodel.enable("verify")
    try:
        result, replay = device.capture(lambda: one(*args))
    except Exception as error:
        if alone["ok"]:
            raise
        return f"fails as Helion alone: {error}"[:200]
    replay()
    device.agree(result, PLAIN, args)
    words = has_our_pick(one, PLAIN, args)
    return f"{words}; {costmodel.stats()}; Helion alone: {alone['detail']}"


def graph_first_call_alone(device: Any) -> str:
    """The same by Helion alone, with its default."""
    args = device.args(PLAIN)
    one = kernel(PLAIN, autotune_effort="none")
    result, replay = device.capture(lambda: one(*args))
    replay()
    device.agree(result, PLAIN, args)
    return "captured"


def graph_pick_inside(device: Any) -> str:
    """A pick is asked for while a graph is being captured."""
    import costmodel

    args = device.args(SUBJECT)
    bound = kernel(SUBJECT, autotune_effort="full").bind(args)
    warm = kernel(PLAIN, autotune_effort="none")
    plain_args = device.args(PLAIN)
    device.call(warm, plain_args)
    asked: list[Any] = []

    def work() -> Any:
        asked.append(costmodel.pick(bound))
        return warm(*plain_args)

    _result, replay = device.capture(work)
    replay()
    answer = asked[-1]
    return f"{answer.source.value} ({answer.reason.value})"


def compiled_first_call(device: Any) -> str:
    """The first call is inside `torch.compile`, under `enable()`."""
    return _as_alone("compiled_first_call_alone", lambda: _compiled(device, "full"))


def compiled_first_call_alone(device: Any) -> str:
    """The same by Helion alone, with its default."""
    return _compiled(device, "none", is_enabled=False)


def compiled_after_pick(device: Any) -> str:
    """The kernel has its pick, at effort none, before `torch.compile` meets it."""
    return _as_alone(
        "compiled_after_call_alone", lambda: _compiled(device, "none", is_warm=True)
    )


def compiled_after_call_alone(device: Any) -> str:
    """The same by Helion alone: its default ran before."""
    return _compiled(device, "none", is_warm=True, is_enabled=False)


def compiled_after_pick_full(device: Any) -> str:
    """The same at effort full, where Helion keys a kernel by more than Dynamo reads."""
    return _as_alone(
        "compiled_after_config_alone", lambda: _compiled(device, "full", is_warm=True)
    )


def compiled_after_config_alone(device: Any) -> str:
    """The same by Helion alone, at effort full, its default given instead of tuned."""
    return _compiled(device, "full", is_warm=True, is_enabled=False)


def _as_alone(alone: str, work: Callable[[], str]) -> str:
    """What work says; a failure counts unless Helion alone fails as well."""
    helions = in_child(alone)
    try:
        return work()
    except Exception as error:
        if helions["ok"]:
            raise
        words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return f"fails as Helion alone ({helions['detail'][:300]}): {words}"


def _compiled(
    device: Any, effort: str, *, is_warm: bool = False, is_enabled: bool = True
) -> str:
    import costmodel

    args = device.args(PLAIN)
    one = kernel(PLAIN, autotune_effort=effort)
    if is_enabled:
        costmodel.enable()
    elif effort != "none":
        bound = one.bind(args)
        bound.set_config(bound.config_spec.default_config())
    if is_warm:
        device.call(one, args)

    def function(*values: Any) -> Any:
        return one(*values) * 1.0

    found = device.call(device.compile(function), args)
    device.agree(found, PLAIN, args)
    if not is_enabled:
        return "compiled"
    if is_warm:
        has_our_pick(one, PLAIN, args)
    stats = costmodel.stats()
    assert stats, "nobody asked us"
    return str(stats)


def compiled_and_fused(device: Any) -> str:
    """Inductor fuses around the kernel, and tunes the fused one on its own."""
    import costmodel

    try:
        from helion._compat import supports_torch_compile_fusion
    except ImportError:
        raise Skip("this Helion has no fusion path") from None
    if device.is_real and not supports_torch_compile_fusion():
        raise Skip("this torch has no entry points for Helion's fusion")
    args = device.args(PLAIN)
    one = kernel(
        PLAIN,
        autotuner_fn=costmodel.autotuner(),
        torch_compile_fusion=True,
        autotune_with_torch_compile_fusion=True,
    )

    def function(*values: Any) -> Any:
        return device.torch.relu(one(*values))

    found = device.call(device.compile(function), args)
    if device.is_real:
        expected = device.torch.relu(case(PLAIN).reference(*args))
        device.torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
    stats = costmodel.stats()
    assert stats, "nobody asked us"
    return str(stats)


def dynamic_shapes(device: Any) -> str:
    """`static_shapes=False`: whether Helion binds anew decides whether we are asked."""
    import costmodel

    settings = {"static_shapes": False, "autotune_effort": "full"}
    words = []
    for name, others in (
        (SUBJECT, ("f8e4m3[192,4096]", "f8e4m3[4096,4096]", "f32[1]")),
        (PLAIN, ("bf16[4096,4096]", "bf16[4096]")),
    ):
        one = kernel(name, autotuner_fn=auto(), **settings)
        first, second = device.args(name), device.args(name, others)
        for args in (first, second):
            device.agree(device.call(one, args), name, args)
        if one.bind(first) is one.bind(second):
            assert config_of(one, first) == config_of(one, second)
            words.append(f"{name}: one program")
        else:
            words.append(f"{name}: Helion binds each shape")
    return f"{'; '.join(words)}; {costmodel.stats()}"


def auto() -> Any:
    """Our autotuner in its default mode."""
    import costmodel

    return costmodel.autotuner()


def forced(device: Any) -> str:
    """`HELION_FORCE_AUTOTUNE=1`: Helion's search under `enable()`, ours if asked."""
    import costmodel

    os.environ["HELION_FORCE_AUTOTUNE"] = "1"
    args = device.args(PLAIN)
    costmodel.enable()
    one = kernel(PLAIN, autotune_effort="quick", autotune_budget_seconds=10)
    device.agree(device.call(one, args), PLAIN, args)
    stats = costmodel.stats()
    assert set(stats) == {"stepped_aside"}, stats
    costmodel.disable()
    two = kernel(PLAIN, autotune_effort="quick", autotuner_fn=auto())
    device.agree(device.call(two, args), PLAIN, args)
    del os.environ["HELION_FORCE_AUTOTUNE"]
    return f"{stats}, then {has_our_pick(two, PLAIN, args)}"


def disallowed(device: Any) -> str:
    """`HELION_DISALLOW_AUTOTUNING=1`: our pick, unmeasured, where Helion raises."""
    import costmodel

    os.environ["HELION_DISALLOW_AUTOTUNING"] = "1"
    args = device.args(SUBJECT)
    alone = kernel(SUBJECT, autotune_effort="full")
    try:
        device.call(alone, args)
    except Exception as error:
        words = type(error).__name__
    else:
        raise AssertionError("Helion alone does not raise")
    costmodel.enable("verify")
    one = kernel(SUBJECT, autotune_effort="full")
    device.agree(device.call(one, args), SUBJECT, args)
    stats = costmodel.stats()
    assert "measured_best" not in stats, stats
    return f"Helion alone: {words}; {has_our_pick(one, SUBJECT, args)}; {stats}"


def two_ranks(device: Any) -> str:
    """Two processes of one group pick the same, and their results agree."""
    del device
    answers = _group(2)
    picks = {json.dumps(one["config"], sort_keys=True) for one in answers}
    assert len(picks) == 1, f"two picks: {picks}"
    return f"{answers[0]['backend']}: {len(answers)} ranks, one pick"


def _group(n: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        environments = [
            {"RANK": str(rank), "WORLD_SIZE": str(n), "GROUP_FILE": f"{folder}/group"}
            for rank in range(n)
        ]
        children = [start_child("rank", one) for one in environments]
        answers = [finish_child(one) for one in children]
    for one in answers:
        assert one["ok"], one["detail"]
    return [json.loads(one["detail"]) for one in answers]


def rank(device: Any) -> str:
    """One process of `two_ranks`."""
    from torch import distributed

    import costmodel

    number, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    has_two = device.is_real and device.torch.cuda.device_count() >= n
    backend = "nccl" if has_two else "gloo"  # NCCL refuses two ranks on one GPU
    if has_two:
        device.torch.cuda.set_device(number)
    place = f"file://{os.environ['GROUP_FILE']}"
    distributed.init_process_group(backend, place, rank=number, world_size=n)
    costmodel.enable()
    args = device.args(SUBJECT)
    one = kernel(SUBJECT, autotune_effort="full")
    device.agree(device.call(one, args), SUBJECT, args)
    config = config_of(one, args)
    told: list[Any] = [None] * n
    distributed.all_gather_object(told, config)
    distributed.destroy_process_group()
    assert all(other == config for other in told), told
    return json.dumps({"config": config, "backend": backend})


def forked(_device: Any) -> str:
    """`enable()` in the parent; the forked child imports Helion and runs the kernel."""
    import costmodel

    costmodel.enable()
    return _in_fork(is_enabled=True)


def forked_with_helion(_device: Any) -> str:
    """The same, but the parent has imported Helion and our model, though not CUDA."""
    return _as_alone(
        "forked_with_helion_alone", lambda: _fork_after_import(is_enabled=True)
    )


def forked_with_helion_alone(_device: Any) -> str:
    """The same by Helion alone, with its default."""
    return _fork_after_import(is_enabled=False)


def _fork_after_import(*, is_enabled: bool) -> str:
    # Torch then asks the driver's library, not CUDA, whether there is a GPU.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    import helion  # noqa: F401

    import costmodel

    if is_enabled:
        costmodel.enable()
    return _in_fork(is_enabled=is_enabled)


def _in_fork(*, is_enabled: bool) -> str:
    """Run the kernel in a forked child; where a child hangs its stack is the answer."""
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        stack = Path(folder) / "stack.txt"
        work = (answers, stack, is_enabled)
        child = context.Process(target=_forked_child, args=work)
        child.start()
        child.join(CHILD_SECONDS)
        if child.is_alive():
            child.kill()
            raise AssertionError("the forked child hangs and says nothing")
        if child.exitcode:
            said = stack.read_text() if stack.exists() else ""
            where = " < ".join(line.strip() for line in said.splitlines()[:8])
            raise AssertionError(
                f"the forked child ended with {child.exitcode}: {where}"
            )
        return str(answers.get())


def _forked_child(answers: Any, stack: Path, is_enabled: bool) -> None:
    with stack.open("w") as file:
        faulthandler.dump_traceback_later(FORK_SECONDS, file=file, exit=True)
        device = DEVICE()
        args = device.args(SUBJECT)
        one = kernel(SUBJECT, autotune_effort="full" if is_enabled else "none")
        device.agree(device.call(one, args), SUBJECT, args)
        words = has_our_pick(one, SUBJECT, args) if is_enabled else "ran"
        faulthandler.cancel_dump_traceback_later()
    answers.put(words)


def spawned(device: Any) -> str:
    """The parent has used the GPU; a fresh child enables again and picks the same."""
    import costmodel

    args = device.args(SUBJECT)
    costmodel.enable()
    one = kernel(SUBJECT, autotune_effort="full")
    device.call(one, args)
    mine = has_our_pick(one, SUBJECT, args)
    theirs = in_child("spawned_child")
    assert theirs["ok"], theirs["detail"]
    assert theirs["detail"] == mine, (theirs["detail"], mine)
    return mine


def spawned_child(device: Any) -> str:
    """The child of `spawned`."""
    import costmodel

    costmodel.enable()
    args = device.args(SUBJECT)
    one = kernel(SUBJECT, autotune_effort="full")
    device.call(one, args)
    return has_our_pick(one, SUBJECT, args)


def threads(device: Any) -> str:
    """Eight threads call a kernel for the first time at once."""
    import costmodel

    costmodel.enable()
    args = device.args(SUBJECT)
    one = kernel(SUBJECT, autotune_effort="full")
    found: list[Any] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        found.append(device.call(one, args))

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 8, f"{8 - len(found)} threads failed"
    for result in found:
        device.agree(result, SUBJECT, args)
    return has_our_pick(one, SUBJECT, args)


def disabled_again(device: Any) -> str:
    """`disable()` leaves Helion's own default behind."""
    import costmodel
    from costmodel import helion_hook

    args = device.args(SUBJECT)
    one = kernel(SUBJECT, autotune_effort="none")
    costmodel.enable()
    device.call(one, args)
    with_us = config_of(one, args)
    costmodel.disable()
    device.agree(device.call(one, args), SUBJECT, args)
    default = helion_hook.default_config(one.bind(tuple(args)))
    without = config_of(one, args)
    assert without == helion_hook.normalize(one.bind(tuple(args)), default)
    return "ours was another" if with_us != without else "ours was the default"


def unlaunchable_pick(device: Any) -> str:
    """A pick that the GPU cannot launch: Helion's default runs in its place."""
    import costmodel
    from costmodel import choosing
    from costmodel import helion_hook
    from costmodel import provider

    args = device.args(SUBJECT)
    genuine = choosing.choose_for

    def choose_for(bound: Any, *rest: Any, **options: Any) -> Any:
        from dataclasses import replace

        pick = genuine(bound, *rest, **options)
        # Operands of eight stages of 256 x 256 bytes each way: 1 MiB of shared memory.
        sizes = [256 for _ in pick.config["block_sizes"]]
        huge = {**pick.config, "block_sizes": sizes, "num_stages": 8, "num_warps": 8}
        return replace(
            pick,
            config=huge,
            source=costmodel.types.PickSource.LEARNED,
            reason=costmodel.types.ReasonCode.GAIN_CERTAIN,
        )

    provider.choose_for = choose_for
    costmodel.enable()
    one = kernel(SUBJECT, autotune_effort="full")
    device.agree(device.call(one, args), SUBJECT, args)
    default = helion_hook.default_config(one.bind(tuple(args)))
    found = config_of(one, args)
    assert found == helion_hook.normalize(one.bind(tuple(args)), default), found
    device.agree(device.call(one, args), SUBJECT, args)
    return str(costmodel.stats())


CHECKS: dict[str, Callable[[Any], str]] = {
    one.__name__: one
    for one in (
        graph_after_pick,
        graph_first_call,
        graph_pick_inside,
        compiled_first_call,
        compiled_after_pick,
        compiled_after_pick_full,
        compiled_and_fused,
        dynamic_shapes,
        forced,
        disallowed,
        two_ranks,
        forked,
        forked_with_helion,
        spawned,
        threads,
        disabled_again,
        unlaunchable_pick,
    )
}
PARTS = {
    one.__name__: one
    for one in (
        graph_first_call_alone,
        compiled_first_call_alone,
        compiled_after_call_alone,
        compiled_after_config_alone,
        forked_with_helion_alone,
        rank,
        spawned_child,
    )
}
NO_CUDA_IN_PARENT = (
    "forked",
    "forked_with_helion",
    "forked_with_helion_alone",
    "two_ranks",
)
DEVICE: Callable[[], Any] = Device
SCRIPT = Path(__file__)


def start_child(name: str, environment: dict[str, str] | None = None) -> Any:
    """A process that runs one check."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(environment or {})},
    )


def finish_child(child: Any, seconds: float = CHILD_SECONDS) -> dict[str, Any]:
    """What a child said; that it hung or died is an answer too."""
    try:
        said, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        said, _ = child.communicate()
        return {"ok": False, "detail": f"killed after {seconds:.0f} s: {said[-300:]}"}
    for line in reversed(said.splitlines()):
        if line.startswith('{"what"'):
            found: dict[str, Any] = json.loads(line)
            return found
    return {"ok": False, "detail": f"ended with {child.returncode}: {said[-300:]}"}


def in_child(name: str) -> dict[str, Any]:
    """Run one check in a process of its own."""
    return finish_child(start_child(name))


def run_one(name: str) -> dict[str, Any]:
    """Run one check here: its line."""
    began = time.perf_counter()
    line: dict[str, Any] = {"what": name, "kernel": "", "ok": True}
    decider = ""
    try:
        if not name.endswith("_alone"):  # else nothing of ours may be loaded
            from costmodel import process_provider

            make, decider = make_provider(os.environ.get(NO_MODEL) == "1")
            process_provider._PROVIDER = make()
        device = None if name in NO_CUDA_IN_PARENT else DEVICE()
        line["detail"] = (CHECKS | PARTS)[name](device)
    except Skip as why:
        line |= {"ok": None, "detail": f"skipped: {why}"}
    except Exception as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        line |= {"ok": False, "detail": words[:600]}
    line["decider"] = decider
    line["seconds"] = round(time.perf_counter() - began, 2)
    return line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one check and print its line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(CHECKS | PARTS))
    line = run_one(parser.parse_args(arguments).name)
    print(json.dumps(line), flush=True)
    return 0 if line["ok"] is not False else 1


if __name__ == "__main__":
    sys.exit(main())
