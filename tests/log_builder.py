"""Write small logs as Helion writes them: csv, meta line, trace, side file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.features.canonical import config_id

HEADER = (
    "run_id",
    "timestamp_s",
    "config_id",
    "generation",
    "status",
    "perf_ms",
    "compile_time_s",
    "config",
)
RUN_ID = "ab" * 32
SOURCE = (
    "def twice(x: torch.Tensor) -> torch.Tensor:\n"
    "    out = torch.empty_like(x)\n"
    "    for t in hl.tile(x.size()):\n"
    "        out[t] = x[t] * 2\n"
    "    return out\n"
)


@dataclass(frozen=True)
class Try:
    """One attempt: a config, how it ended, and its time."""

    config: dict[str, Any]
    status: str = "ok"
    perf_ms: float | None = 0.05
    generation: int = 0
    started: bool = True


def full_config(block: int = 64, num_warps: int = 4, **others: Any) -> dict[str, Any]:
    """A full config of a kernel with two tile dimensions, one load and one store."""
    return {
        "block_sizes": [block, 128],
        "loop_orders": [[0, 1]],
        "flatten_loops": [False],
        "l2_groupings": [1],
        "range_unroll_factors": [0],
        "range_warp_specializes": [],
        "range_num_stages": [0],
        "range_multi_buffers": [None],
        "range_flattens": [None],
        "load_eviction_policies": [""],
        "num_warps": num_warps,
        "num_stages": 1,
        "indexing": ["pointer", "pointer"],
        "atomic_indexing": [],
        "pid_type": "flat",
        **others,
    }


def config_text(config: dict[str, Any]) -> str:
    """The csv's spelling of a config."""
    return f"Config({', '.join(f'{k}={v!r}' for k, v in sorted(config.items()))})"


def csv_rows(
    tries: Iterable[Try], run_id: str = RUN_ID, step_s: float = 1.0
) -> list[list[str]]:
    """Rows of one session: a started row and a result row per timed attempt."""
    rows = []
    for number, one in enumerate(tries, start=1):
        ident, text = config_id(one.config), config_text(one.config)
        clock = number * step_s
        generation = str(one.generation)
        if one.started:
            started = [run_id, f"{clock:.2f}", ident, generation, "started", "", "0.50"]
            rows.append([*started, text])
        if one.status == "started":
            continue
        perf = "" if one.perf_ms is None else f"{one.perf_ms:.6f}"
        done = f"{clock + step_s / 2:.2f}"
        rows.append([run_id, done, ident, generation, one.status, perf, "0.50", text])
    return rows


def csv_text(rows: Iterable[Sequence[str]], header: bool = True) -> str:
    """Rows as Helion's csv writer spells them, lines ending in CR LF."""
    out = io.StringIO()
    writer = csv.writer(out)
    if header:
        writer.writerow(HEADER)
    writer.writerows(rows)
    return out.getvalue()


def graph(width: int = 4096) -> dict[str, Any]:
    """A stand-in for an IR graph: enough to be told from another one."""
    return {
        "directed": True,
        "multigraph": False,
        "graph": {"num_graphs": 1, "root_ids": [0], "graphs": []},
        "nodes": [{"id": "g0:x", "source_loc": "/a/b/kernels.py:3", "shape": [width]}],
        "edges": [],
    }


def meta_line(
    tries: Iterable[Try], run_id: str = RUN_ID, width: int = 4096, **others: Any
) -> str:
    """The meta line of one finished session."""
    body = {
        "run_id": run_id,
        "kernel_name": "twice",
        "kernel_source": SOURCE,
        "input_shapes": f"[(1024, {width})]",
        "dtypes": "['torch.bfloat16']",
        "hardware": "NVIDIA H200",
        "settings": {"backend": "triton", "autotune_log": "/home/someone/logs/run"},
        "ir_graph": graph(width),
        "configs": {config_id(one.config): one.config for one in tries},
        **others,
    }
    return json.dumps(body) + "\n"


def trace_text(
    tries: Iterable[Try],
    rebenchmarks: Iterable[tuple[dict[str, Any], float]] = (),
    trace_id: str = "t0",
    started_at_s: float = 1000.0,
) -> str:
    """Trace of one search: full-precision trials, then re-timings."""
    common = {"schema_version": 1, "run_id": trace_id}
    lines = [{**common, "event": "run_start", "timestamp_s": started_at_s}]
    events = [("trial", one.config, one.status, one.perf_ms) for one in tries]
    events += [("rebenchmark", config, "ok", perf) for config, perf in rebenchmarks]
    for number, (event, config, status, perf_ms) in enumerate(events):
        lines.append(
            {
                **common,
                "event": event,
                "timestamp_s": started_at_s + number,
                "elapsed_s": float(number),
                "config_id": config_id(config),
                "config": config,
                "generation": 0,
                "status": status,
                "perf_ms": perf_ms,
                "objective_unit": "ms",
            }
        )
    return "".join(json.dumps(line) + "\n" for line in lines)


def write_log(folder: Path, tries: Sequence[Try], name: str = "run") -> Path:
    """A log with csv and meta line; returns its base path."""
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / name
    write_text(base, ".csv", csv_text(csv_rows(tries)))
    write_text(base, ".meta.jsonl", meta_line(tries))
    return base


def write_text(base: Path, suffix: str, text: str) -> Path:
    """Write one file of a log without touching its line endings."""
    path = base.with_name(base.name + suffix)
    path.write_bytes(text.encode())
    return path
