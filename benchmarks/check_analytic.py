"""Compile the analytic heuristic's first pick for GPUs that are not there.

Run as `python benchmarks/check_analytic.py --output RESULTS.jsonl` from the root of a
checkout. Kernels are drawn in turn from the families of `datasets/workloads`, each with
its first shapes, and bound for every GPU named. A pick is sound if it compiles, fits
and spills under 1 KB a thread. Where it is not, Helion's default and the next proposals
are compiled as well, so that a bad pick can be told from a kernel that no config suits.

Every kernel and GPU has a process of its own, as in `costmodel.compile_check`, but a
fork of one that has imported everything: hundreds of them are asked here.

One line is written for each kernel and GPU. A second start goes on where the first one
ended, and does again what would now be picked differently (`--new`: does not ask).
`--summary` only prints. `--model` compiles what the plug-in would return, the shipped
model and its gate included, and not the first proposal.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import sys
import tempfile
import time
from collections.abc import Iterator
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import triton.compiler.compiler  # noqa: F401  (imported once, before the forks)

from costmodel import compile_worker
from costmodel import compiled_facts
from costmodel import helion_hook
from costmodel import kernel_origin
from costmodel.choosing import choose_for
from costmodel.compile_check import is_sound
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus
from costmodel.datasets import workloads
from costmodel.datasets.workloads.registry import all_cases
from costmodel.datasets.workloads.workload import KernelCase
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.hardware import Hardware
from costmodel.hardware import load_hardware
from costmodel.heuristics.propose import propose
from costmodel.learned import LearnedModel
from costmodel.types import Candidate
from costmodel.types import CandidateOrigin
from costmodel.types import Config

# One GPU of each architecture: sm80, sm89, sm90, sm100, sm120, sm121.
GPUS = ("A100", "L40S", "H200", "B200", "RTX-5090", "GB10")
N_OTHERS = 4  # proposals that are tried where the first is not sound


def main() -> None:
    """Draw, pick, compile, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--kernels", type=int, default=60)
    parser.add_argument("--gpus", nargs="+", default=list(GPUS))
    parser.add_argument("--only", default="", help="part of a kernel's reference")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds a config")
    parser.add_argument("--new", action="store_true", help="ask nothing twice")
    parser.add_argument("--model", action="store_true", help="the shipped pick")
    parser.add_argument("--summary", action="store_true", help="compile nothing")
    options = parser.parse_args()
    known = read(options.output)
    if not options.summary:
        gpus = [load_hardware(name) for name in options.gpus]
        with options.output.open("a", encoding="utf-8") as file:
            for case_name, case in drawn(options.kernels, options.only):
                for gpu in gpus:
                    if options.new and (case_name, gpu.name) in known:
                        continue
                    line = check(
                        case_name, case, gpu, options.limit, known, options.model
                    )
                    if line is not None:
                        known[line["kernel"], line["gpu"]] = line
                        file.write(json.dumps(line) + "\n")
                        file.flush()
                        print(_brief(line), file=sys.stderr, flush=True)
    print(summary(list(known.values())))


def read(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The last line of each kernel and GPU."""
    if not path.exists():
        return {}
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {(line["kernel"], line["gpu"]): line for line in lines}


def drawn(n_kernels: int, only: str = "") -> list[tuple[str, KernelCase]]:
    """Cases, one of each family in turn, so that any number spreads over all."""
    queues: dict[str, list[tuple[str, KernelCase]]] = {}
    for name, case in all_cases().items():
        if only in name:
            queues.setdefault(case.family, []).append((name, case))
    rounds = max(map(len, queues.values()), default=0)
    order = [q[i] for i in range(rounds) for q in queues.values() if i < len(q)]
    return order[:n_kernels]


def check(
    name: str,
    case: KernelCase,
    gpu: Hardware,
    limit_s: float,
    known: dict[tuple[str, str], dict[str, Any]],
    by_model: bool = False,
) -> dict[str, Any] | None:
    """What came of one kernel on one GPU; None where that is known already."""
    module = name.split(":")[0]
    file = Path(next(iter(workloads.__path__))) / f"{module}.py"
    origin = kernel_origin.KernelFile(f"{file}:{case.name}")
    line: dict[str, Any] = {
        "kernel": name,
        "family": case.family,
        "arguments": list(case.shapes[0]),
        "gpu": gpu.name,
        "arch": gpu.arch,
        "class": "-",
    }
    opening = {
        "kernel": kernel_origin.to_json(origin),
        "arguments": line["arguments"],
        "gpu": gpu.name,
        "by_model": by_model,
    }
    before = known.get((name, gpu.name), {}).get("pick")
    forks = multiprocessing.get_context("fork")
    hears, says = forks.Pipe(duplex=False)
    child = forks.Process(target=_in_child, args=(says, opening, before))
    child.start()
    says.close()
    said: dict[str, Any] = {}
    try:
        while not said.get("done"):
            if not hears.poll(limit_s):
                child.kill()
                raise queue.Empty
            said |= hears.recv()
    except queue.Empty:
        said |= {"outcome": said.get("outcome", "timeout"), "detail": "no answer"}
    except EOFError:
        child.join()
        words = f"the process ended with {child.exitcode}"
        said |= {"outcome": said.get("outcome", "aborted"), "detail": words}
    child.join()
    if said.pop("same", False):
        return None
    said.pop("done", None)
    return {**line, **said}


def _in_child(says: Connection, opening: dict[str, Any], before: Config | None) -> None:
    """Pick and compile in this process; what is known is said at once."""
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="check-analytic-")
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)  # MLIR prints whole modules when it aborts
    try:
        compiler = compile_worker.Compiler(opening)
        bound = compiler.bound
        view, space = helion_hook.view(bound), helion_hook.space(bound)
        graph = KernelGraph.from_record(view.record)
        extractor = FeatureExtractor(graph, compiler.hardware)
        proposals = propose(graph, extractor, view.default, space)
        if opening["by_model"]:
            answer = choose_for(bound, None, LearnedModel.load())
            words = f"{answer.source.value}: {answer.reason.value}"
            proposals = [
                Candidate(config, CandidateOrigin.ANALYTIC, words)
                for config in answer.shortlist
            ]
    except Exception as error:  # whatever it is, there is no pick
        words = " ".join(f"{type(error).__name__}: {error}".split())
        says.send({"outcome": "no pick", "detail": words[:300], "done": True})
        return
    says.send({"class": str(extractor.kernel_class), "outcome": "no pick"})
    if not proposals:
        says.send({"detail": "no proposals", "done": True})
        return
    pick = proposals[0]
    if pick.config == before:
        says.send({"same": True, "done": True})
        return
    says.send({"pick": pick.config, "reason": pick.reason, "outcome": "aborted"})
    facts = _compiled(compiler, pick.config)
    says.send({"facts": compiled_facts.to_json(facts), "detail": facts.detail})
    says.send({"outcome": _outcome(facts)})
    if not is_sound(facts):
        says.send({"default": "aborted", "others": []})
        says.send({"default": _outcome(_compiled(compiler, view.default))})
        others: list[str] = []
        for one in proposals[1 : 1 + N_OTHERS]:
            others.append(_outcome(_compiled(compiler, one.config)))
            says.send({"others": others})
    says.send({"done": True})


def _compiled(compiler: compile_worker.Compiler, config: Config) -> CompiledFacts:
    started_s = time.monotonic()
    try:
        compiler.program(config)
    except Exception as error:  # Helion raises what it likes
        return compiler.facts(CompileStatus.REFUSED, str(error)[:300])
    return compiler.compile(config, False, started_s)


def _outcome(facts: CompiledFacts) -> str:
    """ "sound", "spills 2340" or how compiling failed."""
    if is_sound(facts):
        return "sound"
    if facts.spill_bytes is not None and facts.status is CompileStatus.OK:
        return f"spills {facts.spill_bytes}"
    return str(facts.status)


def _brief(line: dict[str, Any]) -> str:
    more = "" if line["outcome"] == "sound" else f"  {line['detail'][:120]}"
    rest = ""
    if "default" in line:
        rest = f", default {line['default']}, then {', '.join(line['others'])}"
    return f"{line['arch']:6s} {line['kernel']:48s} {line['outcome']}{rest}{more}"


def summary(lines: Sequence[dict[str, Any]]) -> str:
    """All findings as Markdown."""
    kernels = {line["kernel"] for line in lines}
    tools = {
        f"helion {t['helion']}, triton {t['triton']}, ptxas {t['ptxas']}"
        for line in lines
        if "facts" in line and (t := line["facts"]["toolchain"])
    }
    rows = [
        f"{len(lines)} picks of {len(kernels)} kernels in "
        f"{len({line['family'] for line in lines})} families; "
        + "; ".join(sorted(tools)),
        "",
        "| target | kernels | sound | share | largest spill | most registers |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for arch in sorted({line["arch"] for line in lines}, key=lambda a: int(a[2:])):
        rows.append(_row(arch, [line for line in lines if line["arch"] == arch]))
    rows += [_row("all", lines), "", "| class | kernels | picks | sound |"]
    rows.append("|---|---:|---:|---:|")
    for kernel_class in sorted({line["class"] for line in lines}):
        mine = [line for line in lines if line["class"] == kernel_class]
        n_sound = sum(line["outcome"] == "sound" for line in mine)
        n_kernels = len({line["kernel"] for line in mine})
        rows.append(f"| {kernel_class} | {n_kernels} | {len(mine)} | {n_sound} |")
    return "\n".join([*rows, "", *_failures(lines)])


def _row(name: str, lines: Sequence[dict[str, Any]]) -> str:
    n_sound = sum(line["outcome"] == "sound" for line in lines)
    facts = [line["facts"] for line in lines if "facts" in line]
    spills = max(
        (
            (f["spill_store_bytes"] or 0) + (f["spill_load_bytes"] or 0)
            for f in facts
            if f["status"] == "ok"
        ),
        default=0,
    )
    registers = max((f["registers"] or 0 for f in facts), default=0)
    share = n_sound / max(1, len(lines))
    n_kernels = len({line["kernel"] for line in lines})
    return (
        f"| {name} | {n_kernels} | {n_sound} | {share:.1%} | {spills} | {registers} |"
    )


def _failures(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    for line in lines:
        if line["outcome"] != "sound":
            yield f"- {_brief(line).strip()}"


if __name__ == "__main__":
    main()
