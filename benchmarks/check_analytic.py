"""Compile the analytic heuristic's first pick for GPUs that are not there.

Run as `python benchmarks/check_analytic.py --output RESULTS.jsonl` from the root of a
checkout. Kernels are drawn in turn from the families of `datasets/workloads`, each with
its first shapes, and bound for every GPU named. A pick is sound if it compiles, fits
and spills under 1 KB a thread. Where it is not, Helion's default and the next proposals
are compiled as well, so that a bad pick can be told from a kernel that no config suits.

One line is written for each kernel and GPU. A second start goes on where the first one
ended, and does again what would now be picked differently. `--summary` only prints.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodel import compiled_facts
from costmodel import helion_hook
from costmodel.arguments import parse_argument
from costmodel.compile_check import Checked
from costmodel.compile_check import CompileChecker
from costmodel.compile_check import is_sound
from costmodel.datasets import workloads
from costmodel.datasets.workloads.registry import all_cases
from costmodel.datasets.workloads.workload import KernelCase
from costmodel.errors import BindError
from costmodel.errors import CostModelError
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.hardware import Hardware
from costmodel.hardware import load_hardware
from costmodel.heuristics.propose import propose
from costmodel.target import bind
from costmodel.types import Candidate

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
    parser.add_argument("--summary", action="store_true", help="compile nothing")
    options = parser.parse_args()
    known = read(options.output)
    if not options.summary:
        gpus = [load_hardware(name) for name in options.gpus]
        with options.output.open("a", encoding="utf-8") as file:
            for case_name, case in drawn(options.kernels, options.only):
                for gpu in gpus:
                    line = check(case_name, case, gpu, options.limit, known)
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
) -> dict[str, Any] | None:
    """What came of one kernel on one GPU; None where that is known already."""
    arguments = list(case.shapes[0])
    line: dict[str, Any] = {
        "kernel": name,
        "family": case.family,
        "arguments": arguments,
        "gpu": gpu.name,
        "arch": gpu.arch,
    }
    try:
        bound = bind(case.kernel, [parse_argument(text) for text in arguments], gpu)
        view, space = helion_hook.view(bound), helion_hook.space(bound)
        graph = KernelGraph.from_record(view.record)
        extractor = FeatureExtractor(graph, gpu)
        proposals = propose(graph, extractor, view.default, space)
    except CostModelError as error:
        return {**line, "class": "-", "outcome": "no pick", "detail": str(error)}
    line["class"] = str(extractor.kernel_class)
    if not proposals:
        return {**line, "outcome": "no pick", "detail": "no proposals"}
    line["pick"] = proposals[0].config
    line["reason"] = proposals[0].reason
    before = known.get((name, gpu.name))
    if before is not None and before.get("pick") == proposals[0].config:
        return None
    module = name.split(":")[0]
    file = Path(next(iter(workloads.__path__))) / f"{module}.py"
    reference = f"{file}:{case.name}"
    with CompileChecker(reference, arguments, gpu.name, limit_s) as checker:
        try:
            return {**line, **_checked(checker, proposals)}
        except BindError as error:
            return {**line, "outcome": "no pick", "detail": str(error)}


def _checked(checker: CompileChecker, proposals: Sequence[Candidate]) -> dict[str, Any]:
    first = checker.check(proposals[0].config)
    found: dict[str, Any] = {
        "facts": compiled_facts.to_json(first.facts),
        "outcome": _outcome(first),
        "detail": first.facts.detail,
    }
    if is_sound(first.facts):
        return found
    default = checker.check(None)
    others = [checker.check(one.config) for one in proposals[1 : 1 + N_OTHERS]]
    found["default"] = _outcome(default)
    found["others"] = [_outcome(one) for one in others]
    return found


def _outcome(checked: Checked) -> str:
    """ "sound", "spills 2340" or how compiling failed."""
    facts = checked.facts
    if is_sound(facts):
        return "sound"
    if facts.spill_bytes is not None and facts.status == "ok":
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
