"""Build configs around each hard limit, compile them, and hold our refusals against it.

Run as `python benchmarks/check_limits.py --output LIMITS.jsonl [--seconds S]` from the
root of a checkout; no GPU needed. Most configs that a search draws fail for shared
memory alone, so here are others: caps on registers under a warp-group MMA (H200), more
threads than a CTA may have (H200), and results larger than tensor memory (B200). A
config is compiled in a child (a second or more each); what is in the output is not
compiled again. The table says for each kind how the compiler and we judged.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from costmodel import helion_hook
from costmodel.arguments import parse_argument
from costmodel.compile_check import CompileChecker
from costmodel.compiled_facts import CompileStatus
from costmodel.datasets import workloads
from costmodel.errors import CostModelError
from costmodel.features.extract import FeatureExtractor
from costmodel.features.feasible import reasons
from costmodel.features.graph import KernelGraph
from costmodel.hardware import load_hardware
from costmodel.kernel_file import load_kernel
from costmodel.target import bind
from costmodel.types import Config

_SQUARE = ("bf16[2048,2048]", "bf16[2048,2048]")
# Kernel and arguments; blocks are rows, columns and depth.
_PRODUCTS = (
    ("matmul:gemm_nn", _SQUARE),
    ("matmul:gemm_nt", _SQUARE),
    ("matmul_epilogue:mm_bias_gelu", (*_SQUARE, "bf16[2048]")),
)
_RESOURCES = (
    CompileStatus.SHARED_MEMORY,
    CompileStatus.TENSOR_MEMORY,
    CompileStatus.THREADS,
    CompileStatus.REGISTERS,
)


def built() -> Iterator[tuple[str, str, tuple[str, ...], str, Config]]:
    """Kind, kernel, arguments, GPU and config."""
    for (kernel, arguments), rows, columns, cap, warps in itertools.product(
        _PRODUCTS, (64, 128, 256), (64, 128, 256), (32, 64, 128), (4, 8)
    ):
        config = _product(rows, columns, 32, num_warps=warps, num_stages=2)
        # Helion takes a cap for persistent programs only.
        config |= {"maxnreg": cap, "pid_type": "persistent_interleaved"}
        yield "registers", kernel, arguments, "H200", config
    for (kernel, arguments), rows, columns, depth, warps in itertools.product(
        _PRODUCTS, (128, 256), (128, 256, 512), (32, 64), (4, 8)
    ):
        config = _product(rows, columns, depth, num_warps=warps, num_stages=1)
        yield "tensor memory", kernel, arguments, "B200", config
    for (kernel, arguments), size, warps in itertools.product(
        _PRODUCTS, (64, 128), (16, 32, 64)
    ):
        config = _product(size, size, 32, num_warps=warps, num_stages=2)
        yield "threads", kernel, arguments, "H200", config


def _product(rows: int, columns: int, depth: int, **knobs: int) -> Config:
    return {"block_sizes": [rows, columns, depth], **knobs}


def main() -> None:
    """Compile what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a config")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    options.output.touch()
    rows = [json.loads(line) for line in options.output.read_text().splitlines()]
    known = {_key(row) for row in rows}
    groups: dict[tuple[str, tuple[str, ...], str], list[dict[str, Any]]] = {}
    for kind, kernel, arguments, gpu, config in built():
        row = {"kind": kind, "kernel": kernel, "gpu": gpu, "config": config}
        if _key(row) not in known:
            groups.setdefault((kernel, arguments, gpu), []).append(row)
    with options.output.open("a", encoding="utf-8") as file:
        for (kernel, arguments, gpu), wanted in groups.items():
            for row in _judged(kernel, arguments, gpu, wanted, options.limit, end):
                rows.append(row)
                file.write(json.dumps(row, sort_keys=True) + "\n")
                file.flush()
    print(table(rows))


def _key(row: dict[str, Any]) -> str:
    what = [row[name] for name in ("kind", "kernel", "gpu", "config")]
    return json.dumps(what, sort_keys=True)


def _judged(
    kernel: str,
    arguments: tuple[str, ...],
    gpu: str,
    wanted: list[dict[str, Any]],
    limit_s: float,
    end: float,
) -> Iterator[dict[str, Any]]:
    module, _, name = kernel.partition(":")
    source = Path(next(iter(workloads.__path__))) / f"{module}.py"
    reference, hardware = f"{source}:{name}", load_hardware(gpu)
    specs = [parse_argument(text) for text in arguments]
    bound = bind(load_kernel(reference), specs, hardware)
    record = helion_hook.record_of(bound)
    extractor = FeatureExtractor(KernelGraph.from_record(record), hardware)
    refused = reasons(extractor, [row["config"] for row in wanted])
    with CompileChecker(reference, arguments, gpu, limit_s=limit_s) as checker:
        for row, why in zip(wanted, refused, strict=True):
            if time.monotonic() > end:
                return
            try:
                facts = checker.check(row["config"]).facts
            except CostModelError as error:
                print(f"{kernel}: {error}", file=sys.stderr)
                continue
            yield {
                **row,
                "status": facts.status.value,
                "detail": facts.detail,
                "tmem_columns": facts.tmem_columns,
                "ours": sorted(one.name.lower() for one in why),
            }


def table(rows: list[dict[str, Any]]) -> str:
    """How the compiler and we judged each kind, as Markdown."""
    lines = [
        "| built for | configs | refused by the compiler | recall | precision "
        "| how they ended |",
        "|---|---:|---:|---:|---:|---|",
    ]
    kinds = [*dict.fromkeys(row["kind"] for row in rows), "all"]
    for kind in kinds:
        part = [row for row in rows if kind in (row["kind"], "all")]
        # Neither is a matter of resources, and no limit claims to foresee it.
        part = [row for row in part if row["status"] not in ("mlir", "timeout")]
        positive = [row for row in part if row["status"] in _RESOURCES]
        ours = [row for row in part if row["ours"]]
        both = [row for row in positive if row["ours"]]
        ended = Counter(row["status"] for row in rows if kind in (row["kind"], "all"))
        words = ", ".join(f"{name} {n}" for name, n in sorted(ended.items()))
        lines.append(
            f"| {kind} | {len(part)} | {len(positive)} | "
            f"{len(both) / max(1, len(positive)):.1%} | "
            f"{len(both) / max(1, len(ours)):.1%} | {words} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
