"""Workloads from a log's `.meta.jsonl` (or the one-object `.meta.json` before it).

Helion's run id is a hash of source, settings, tensor shapes, dtypes and GPU. It does
not cover scalar arguments or strides, so two programs can share one id; what tells
them apart is the IR graph.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.datasets.audit import Finding
from costmodel.datasets.audit import Outcome
from costmodel.datasets.audit import Stage
from costmodel.types import Config
from costmodel.types import WorkloadRecord

NO_GRAPH = ":"
"""Begins the `program_digest` of a workload without an IR graph."""


@dataclass(frozen=True, slots=True)
class MetaLine:
    """One finished session of tuning, as Helion described it.

    Attributes:
        line: Line in the file, from 1.
        run_id: Helion's id; the kernel id of the old layout.
        record: The workload.
        configs: Every config of the session by its id.
        program: Differs where the programs do; see `program_digest`.
        problem: Why timings under this line are not those of one Triton workload.
    """

    line: int
    run_id: str
    record: WorkloadRecord
    configs: Mapping[str, Config]
    program: str
    problem: str | None


def read_meta_file(path: Path, label: str) -> tuple[list[MetaLine], list[Finding]]:
    """Read every line that can be read, in file order; never raises on content.

    Args:
        path: A `.meta.jsonl` or `.meta.json`.
        label: Name of the file in findings.
    """
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    if path.suffix == ".json":
        numbered = [(1, text)]
    else:
        numbered = list(enumerate(text.split("\n"), start=1))
    lines, findings = [], []
    for number, raw in numbered:
        if not raw.strip():
            continue
        parsed = _parse_line(raw, number)
        if isinstance(parsed, MetaLine):
            lines.append(parsed)
            continue
        findings.append(
            Finding(
                Stage.READ,
                Outcome.PROBLEM,
                parsed,
                file=label,
                line=number,
                detail="its run has no workload; the rows of other runs are fine",
            )
        )
    return lines, findings


def parse_shapes(value: Any) -> tuple[tuple[int, ...], ...] | None:
    """Shapes of a single-shape run.

    Args:
        value: `input_shapes` as logged: Python source, or lists.

    Returns:
        One tuple per tensor; None for an aggregate over several argument sets, whose
        shapes are nested one level deeper.

    Raises:
        ValueError: Neither of the two.
    """
    shapes = _literal(value)
    if not isinstance(shapes, list | tuple):
        raise ValueError("input_shapes is not a list")
    if any(isinstance(dim, list | tuple) for shape in shapes for dim in shape):
        return None
    return tuple(tuple(int(dim) for dim in shape) for shape in shapes)


def program_digest(graph: Mapping[str, Any], configs: Mapping[str, Config]) -> str:
    """What tells two programs under one run id apart; see the module docstring.

    Returns:
        The digest of the IR graph. Without one, a colon and how many tiles the configs
        size, where they tell: configs of one program all size the same.
    """
    if graph:
        return graph_digest(graph)
    n_blocks = max(
        (_n_entries(one.get("block_sizes")) for one in configs.values()), default=0
    )
    return f"{NO_GRAPH}{n_blocks or ''}"


def graph_digest(graph: Mapping[str, Any]) -> str:
    """16 hex digits over an IR graph; "" for none.

    Source locations are left out: they name files of the recording machine.
    """
    if not graph:
        return ""
    listed = graph.get("nodes")
    nodes = [
        {k: v for k, v in node.items() if k != "source_loc"}
        if isinstance(node, dict)
        else node
        for node in (listed if isinstance(listed, list) else [listed])
    ]
    text = json.dumps({**graph, "nodes": nodes}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _parse_line(raw: str, number: int) -> MetaLine | str:
    """The line, or why not."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return "not JSON: cut off, or not a meta file"
    if not isinstance(body, dict):
        return "expected one JSON object per line"
    run_id = body.get("run_id", body.get("kernel_id"))
    if not isinstance(run_id, str) or "input_shapes" not in body:
        return "expected a Helion meta object with run_id and input_shapes"
    problem = None
    try:
        shapes = parse_shapes(body["input_shapes"])
        if shapes is None:
            shapes = ()
            problem = (
                "aggregate over several shapes: its times are no single workload's"
            )
        dtypes = _literal(body.get("dtypes", []))
        dtypes = tuple(str(one) for one in dtypes) if problem is None else ()
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return "input_shapes or dtypes cannot be read"
    settings = _mapping(body.get("settings"))
    backend = settings.get("backend", "triton")
    if backend != "triton":
        problem = f"recorded on backend {backend!r}: only Triton is modelled"
    graph = _mapping(body.get("ir_graph"))
    configs = {
        str(config_id): dict(config)
        for config_id, config in _mapping(body.get("configs")).items()
        if isinstance(config, dict)
    }
    record = WorkloadRecord(
        kernel_name=str(body.get("kernel_name", "")),
        kernel_source=str(body.get("kernel_source", "")),
        input_shapes=shapes,
        dtypes=dtypes,
        hardware=str(body.get("hardware", "")),
        settings=settings,
        ir_graph=graph,
    )
    program = program_digest(graph, configs)
    return MetaLine(number, run_id, record, configs, program, problem)


def _n_entries(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _literal(value: Any) -> Any:
    return ast.literal_eval(value) if isinstance(value, str) else value
