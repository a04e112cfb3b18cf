"""Build configs around each hard limit, compile them, and hold our refusals against it.

Run as `python benchmarks/check_limits.py --output LIMITS.jsonl [--seconds S]` from the
root of a checkout; no GPU needed. Most configs that a search draws fail for shared
memory alone, so here are others (`limit_configs.py`): caps on registers and many warps
under a warp-group MMA, more threads than a CTA may have, and results larger than tensor
memory. A config is compiled in a child (a second or more each); what is in the output
is not compiled again, but judged anew. The table says for each kind how the compiler
and we judged, and for the families that rules were developed on and the others.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from limit_configs import PLANS
from limit_configs import Plan
from limit_configs import configs_of
from resource_tables import development_families

from costmodel import helion_hook
from costmodel.arguments import parse_argument
from costmodel.compile_check import CompileChecker
from costmodel.compiled_facts import CompileStatus
from costmodel.datasets import workloads
from costmodel.datasets.workloads.registry import all_cases
from costmodel.datasets.workloads.workload import KernelCase
from costmodel.errors import CostModelError
from costmodel.features.extract import FeatureExtractor
from costmodel.features.feasible import reasons
from costmodel.features.graph import KernelGraph
from costmodel.hardware import load_hardware
from costmodel.kernel_file import load_kernel
from costmodel.target import bind

_RESOURCES = (
    CompileStatus.SHARED_MEMORY,
    CompileStatus.TENSOR_MEMORY,
    CompileStatus.THREADS,
    CompileStatus.REGISTERS,
)


def main() -> None:
    """Compile what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--disagreements", action="store_true", help="list them")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a config")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    options.output.touch()
    known = {
        _key(row): row
        for row in map(json.loads, options.output.read_text().splitlines())
    }
    cases = all_cases()
    development = development_families(case.family for case in cases.values())
    rows: list[dict[str, Any]] = []
    with options.output.open("a", encoding="utf-8") as file:
        for plan, kernel in ((p, k) for p in PLANS for k in p.kernels):
            case = cases[kernel]
            half = "development" if case.family in development else "check"
            for row, is_new in _judged(plan, kernel, case, known, options.limit, end):
                rows.append({**row, "half": half})
                if is_new:
                    file.write(json.dumps(row, sort_keys=True) + "\n")
                    file.flush()
    for row in rows:
        if options.disagreements and (row["status"] in _RESOURCES) != bool(row["ours"]):
            print(json.dumps(row, sort_keys=True))
    print(table(rows))


def _key(row: dict[str, Any]) -> str:
    what = [row[name] for name in ("kernel", "arguments", "gpu", "config")]
    return json.dumps(what, sort_keys=True)


def _elements(arguments: tuple[str, ...]) -> int:
    """Elements of a list of arguments."""
    parsed = (parse_argument(text) for text in arguments)
    return sum(math.prod(getattr(one, "shape", ())) for one in parsed)


def _judged(
    plan: Plan,
    kernel: str,
    case: KernelCase,
    known: Mapping[str, dict[str, Any]],
    limit_s: float,
    end: float,
) -> Iterator[tuple[dict[str, Any], bool]]:
    """Rows of a plan's kernel as far as they are compiled, and whether just now."""
    module, _, name = kernel.partition(":")
    source = Path(next(iter(workloads.__path__))) / f"{module}.py"
    arguments = max(case.shapes, key=_elements)
    reference, hardware = f"{source}:{name}", load_hardware(plan.gpu)
    specs = [parse_argument(text) for text in arguments]
    bound = bind(load_kernel(reference), specs, hardware)
    seen = helion_hook.view(bound)
    graph = KernelGraph.from_record(seen.record)
    extractor = FeatureExtractor(graph, hardware)
    configs = list(configs_of(plan, graph, seen.default))
    refused = reasons(extractor, configs)
    columns = extractor.resources(configs).tmem_columns
    what = {"kernel": kernel, "arguments": list(arguments), "gpu": plan.gpu}
    with CompileChecker(reference, arguments, plan.gpu, limit_s=limit_s) as checker:
        for config, why, ours in zip(configs, refused, columns, strict=True):
            row = {**what, "config": config}
            found = known.get(_key(row))
            if found is None and time.monotonic() < end:
                try:
                    facts = checker.check(config).facts
                except CostModelError as error:
                    print(f"{kernel}: {error}", file=sys.stderr)
                    continue
                found = {
                    **row,
                    "status": facts.status.value,
                    "detail": facts.detail,
                    "tmem_columns": facts.tmem_columns,
                }
            if found is None:
                continue
            limits = sorted(one.name.lower() for one in why)
            judged = {"ours": limits, "our_columns": float(ours), "kind": plan.limit}
            yield {**found, **judged}, _key(row) not in known


def table(rows: list[dict[str, Any]]) -> str:
    """How the compiler and we judged each kind, as Markdown."""
    lines = [
        "| built for | configs | refused by the compiler | recall | precision "
        "| how they ended |",
        "|---|---:|---:|---:|---:|---|",
    ]
    kinds = dict.fromkeys(row["kind"] for row in rows)
    for kind in [*kinds, "development", "check", "all"]:
        of_kind = [row for row in rows if kind in (row["kind"], row["half"], "all")]
        # Neither is a matter of resources, and no limit claims to foresee it.
        part = [row for row in of_kind if row["status"] not in ("mlir", "timeout")]
        positive = [row for row in part if row["status"] in _RESOURCES]
        ours = [row for row in part if row["ours"]]
        both = [row for row in positive if row["ours"]]
        ended = Counter(row["status"] for row in of_kind)
        words = ", ".join(f"{name} {n}" for name, n in sorted(ended.items()))
        lines.append(
            f"| {kind} | {len(part)} | {len(positive)} | "
            f"{len(both) / max(1, len(positive)):.1%} | "
            f"{len(both) / max(1, len(ours)):.1%} | {words} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
