"""Hold the resource estimates against what compilers made of recorded configs.

Run as `python benchmarks/calibrate_resources.py SOURCE [--output DIR]` from the root of
a checkout. SOURCE is a folder of logs that `costmodel collect` wrote, whose side files
hold registers, local memory and shared memory of every config that compiled, or a
stored corpus such as `datasets/corpora/h200`, which keeps the same facts. Nothing is
compiled here, so thousands of configs take a minute.

Printed, and written to DIR as `resources.md`, `resources.json` and three plots: shared
memory, registers, spills and refusals, for the families that the rules were developed
on and for those they were checked on. `--allocations` adds what Triton allocated for
configs built around the limit (`benchmarks/allocate_shared.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from resource_tables import GIVEN_UP
from resource_tables import Estimated
from resource_tables import as_markdown
from resource_tables import development_families
from resource_tables import summary

from costmodel.datasets.compiled_table import COMPILED_FILE
from costmodel.datasets.compiled_table import has_compiled
from costmodel.datasets.helion_log import read_logs
from costmodel.datasets.store import Corpus
from costmodel.datasets.store import is_corpus
from costmodel.errors import UnreadableKernelError
from costmodel.features.classify import classify
from costmodel.features.extract import FeatureExtractor
from costmodel.features.feasible import reasons
from costmodel.features.graph import KernelGraph
from costmodel.features.staging import make_staging_plan
from costmodel.features.upper import shared_memory_upper
from costmodel.hardware import match_hardware
from costmodel.types import Config
from costmodel.types import WorkloadRecord

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Compiled:
    """Configs of one workload and what the compiler said: float64[n] each."""

    run_id: str
    kernel: str
    family: str
    record: WorkloadRecord
    configs: tuple[Config, ...]
    smem: Floats
    registers: Floats
    local_bytes: Floats


def main() -> None:
    """Read, estimate, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="folder of logs, or a corpus")
    parser.add_argument("--output", type=Path, help="folder for tables and plots")
    parser.add_argument("--without", type=Path, help="leave out its kernels")
    parser.add_argument("--allocations", type=Path, help="JSONL of allocate_shared.py")
    options = parser.parse_args()
    compiled = list(compiled_of(options.source))
    development = development_families(one.family for one in compiled)
    if options.without is not None:
        known = {one.record.kernel_name for one in compiled_of(options.without)}
        compiled = [one for one in compiled if one.record.kernel_name not in known]
    found = list(estimates(compiled))
    if not found:
        sys.exit(
            f"{options.source}: expected compiled facts (registers, shared memory), "
            "found none: record logs with `costmodel collect`"
        )
    tables = summary(found, development)
    if options.allocations is not None:
        from allocate_shared import judged  # beside this file

        tables["allocations"] = judged(
            options.allocations, {one.run_id: one.record for one in compiled}
        )
    if has_compiled(options.source):
        tables["refusals"] = refusals(options.source)
    text = as_markdown(tables)
    print(text)
    if options.output is not None:
        from resource_plots import write_plots

        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "resources.md").write_text(text + "\n", encoding="utf-8")
        body = json.dumps(tables, indent=1, sort_keys=True)
        (options.output / "resources.json").write_text(body + "\n", encoding="utf-8")
        write_plots(found, options.output)


def compiled_of(source: Path) -> Iterator[Compiled]:
    """Compiled facts of a folder of logs, or of a stored corpus."""
    if is_corpus(source):
        yield from _of_corpus(Corpus.load(source))
        return
    runs, _audit = read_logs(sorted(source.rglob("*.csv")))
    for run in runs:
        if run.record is None or run.side is None:
            continue
        configs = {a.config_id: a.config for a in run.attempts}
        rows = [
            (configs[i], one.smem_bytes, one.registers, one.spill_bytes)
            for i, one in run.side.attempts.items()
            if i in configs
        ]
        kernel = run.side.kernel or run.record.kernel_name
        family = run.side.family or ""
        yield from _with_facts(run.run_id, kernel, family, run.record, rows)


def _of_corpus(corpus: Corpus) -> Iterator[Compiled]:
    names = ("smem_bytes", "registers", "spill_bytes")
    columns = ("run_id", "run_ordinal", "config_id", *names)
    facts: dict[tuple[str, int, str], tuple[Any, ...]] = {}
    for row in corpus.attempts.select(columns).to_pylist():
        key = (row["run_id"], row["run_ordinal"], row["config_id"])
        facts[key] = tuple(row[name] for name in names)
    for one in corpus.workloads():
        rows = [
            (config, *facts[one.run_id, one.run_ordinal, config_id])
            for config, config_id in zip(one.configs, one.config_ids, strict=True)
        ]
        name = one.record.kernel_name
        yield from _with_facts(one.run_id, name, one.family, one.record, rows)


def _with_facts(
    run_id: str,
    kernel: str,
    family: str,
    record: WorkloadRecord,
    rows: Sequence[tuple[Any, ...]],
) -> Iterator[Compiled]:
    known = [row for row in rows if None not in row]
    if known:
        configs, *facts = zip(*known, strict=True)
        smem, registers, local = (np.array(column, float) for column in facts)
        yield Compiled(run_id, kernel, family, record, configs, smem, registers, local)


def estimates(compiled: Iterable[Compiled]) -> Iterator[Estimated]:
    """Estimates beside compiled facts; kernels that cannot be read are named."""
    for one in compiled:
        hardware = match_hardware(one.record.hardware).hardware
        try:
            graph = KernelGraph.from_record(one.record)
            found = FeatureExtractor(graph, hardware).resources(one.configs)
            plan = make_staging_plan(graph)
            upper = shared_memory_upper(graph, plan, one.configs, hardware)
        except UnreadableKernelError as error:
            print(f"{one.kernel}: {error}", file=sys.stderr)
            continue
        yield Estimated(
            kernel=one.kernel,
            family=one.family,
            kernel_class=str(classify(graph)),
            has_dot=bool(graph.dots),
            smem=one.smem,
            smem_estimate=found.smem_bytes,
            smem_upper=upper,
            smem_limit=float(hardware.smem_per_cta_bytes),
            registers=one.registers,
            registers_estimate=found.registers_held,
            spilled=one.local_bytes > 0,
            spill_score=found.regs_per_thread / found.register_cap,
            gave_up=(one.registers == GIVEN_UP)
            & (one.local_bytes > 0)
            & (found.register_cap > 2 * GIVEN_UP),
            refused=found.smem_bytes > hardware.smem_per_cta_bytes,
        )


def refusals(corpus: Path) -> dict[str, dict[str, int]]:
    """Limits predicted for configs that were compiled anew, by how that ended."""
    stored = Corpus.load(corpus)
    ended = {
        (row["run_id"], row["config_id"]): row["status"]
        for row in pq.read_table(corpus / COMPILED_FILE).to_pylist()
    }
    counts: dict[str, Counter[str]] = {}
    for one in stored.workloads():
        rows = [
            (config, ended[one.run_id, name])
            for config, name in zip(one.configs, one.config_ids, strict=True)
            if (one.run_id, name) in ended
        ]
        if not rows:
            continue
        hardware = match_hardware(one.record.hardware).hardware
        try:
            graph = KernelGraph.from_record(one.record)
            found = reasons(
                FeatureExtractor(graph, hardware), [config for config, _ in rows]
            )
        except UnreadableKernelError:
            continue
        for (_, status), limits in zip(rows, found, strict=True):
            named = " + ".join(limit.name.lower() for limit in limits) or "none"
            counts.setdefault(status, Counter())[named] += 1
    return {status: dict(found) for status, found in sorted(counts.items())}


if __name__ == "__main__":
    main()
