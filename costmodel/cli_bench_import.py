"""Step `import` of `costmodel bench`: what a bench measured becomes training data."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from costmodel import helion_hook
from costmodel import target
from costmodel.arguments import parse_argument
from costmodel.cli_bench import say_on_stderr
from costmodel.datasets.bench_file import read_results
from costmodel.datasets.bench_file import result_files
from costmodel.datasets.bench_import import RecordOf
from costmodel.datasets.bench_import import bench_runs
from costmodel.datasets.bench_import import known_records
from costmodel.datasets.bench_select import resolve
from costmodel.datasets.store import Corpus
from costmodel.datasets.workloads.registry import all_cases
from costmodel.datasets.workloads.workload import Workload
from costmodel.errors import CorruptRecordError
from costmodel.errors import CostModelError
from costmodel.hardware import load_hardware
from costmodel.types import WorkloadRecord


def run(options: argparse.Namespace) -> int:
    """Append each measured workload to a corpus as a run of its own.

    Raises:
        CorruptRecordError: No result can be described.
    """
    # Each place apart: a workload measured in two of them is two runs.
    results = [
        result
        for place in options.results
        for result in read_results(result_files([place]), say_on_stderr)
    ]
    corpus = Corpus.load(options.corpus, create=True)
    runs, left_out = bench_runs(results, _records(corpus, options.gpu))
    for line in left_out:
        print(f"costmodel: left out: {line}", file=sys.stderr)
    if not runs:
        raise CorruptRecordError(
            f"expected a measured workload that can be bound here, found none of "
            f"{len(results)}: give results of registered kernels, or of a kernel file "
            f"that is still there"
        )
    report = corpus.append(runs)
    if options.json:
        print(json.dumps(asdict(report) | {"n_left_out": len(left_out)}, indent=2))
        return 0
    print(
        f"{options.corpus}: {report.n_added} runs added, {report.n_known} known "
        f"already, {len(left_out)} left out; now {corpus.n_runs} runs with "
        f"{corpus.n_attempts} measurements, digest {report.digest[:12]}"
    )
    return 0


def _records(corpus: Corpus, gpu: str) -> RecordOf:
    """What the corpus knows of a workload; else what binding it here says."""
    known = known_records(corpus)
    cases = all_cases()
    hardware = load_hardware(gpu)

    def record(workload: Workload) -> WorkloadRecord | None:
        found = known(workload)
        if found is not None:
            return found
        try:
            specs = [parse_argument(text) for text in workload.args]
            bound = target.bind(resolve(workload, cases).kernel, specs, hardware)
            return helion_hook.view(bound).record
        except CostModelError as error:
            print(f"costmodel: {workload.kernel}: {error}", file=sys.stderr)
            return None

    return record
