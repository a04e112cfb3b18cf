"""Hold the resource estimates against what compilers made of recorded configs.

Run as `python benchmarks/calibrate_resources.py LOGS` from the root of a checkout. Logs
are those that `costmodel collect` writes: their side files hold registers, local memory
and shared memory of every config that compiled. Nothing is compiled here, so thousands
of configs take a minute. Printed are shared memory, registers, spills and the limits,
as Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from costmodel.datasets.helion_log import read_logs
from costmodel.datasets.record import RecordedRun
from costmodel.errors import UnreadableKernelError
from costmodel.features.classify import classify
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.hardware import match_hardware
from costmodel.types import KernelClass

Floats = npt.NDArray[np.float64]

_DOTS = {KernelClass.MATMUL, KernelClass.MATMUL_REDUCTION, KernelClass.MULTI_DOT}
_CLOSE_BYTES = 2048  # a difference that no occupancy notices
_CLOSE_SHARE = 0.1
_MIN_CONFIGS = 8  # for a rank correlation within a kernel


@dataclass(frozen=True, slots=True)
class Estimated:
    """Configs of one workload: estimated and recorded, float64[n] each."""

    kernel: str
    kernel_class: KernelClass
    smem_estimate: Floats
    smem: Floats
    registers_estimate: Floats
    registers: Floats
    local_bytes: Floats
    spill_estimate: Floats


def main() -> None:
    """Read, estimate, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=Path, help="folder of logs and side files")
    options = parser.parse_args()
    runs, _audit = read_logs(sorted(options.logs.rglob("*.csv")))
    print(report(list(estimates(runs))))


def estimates(runs: Sequence[RecordedRun]) -> Iterator[Estimated]:
    """Estimates of every recorded config that compiled."""
    for run in runs:
        if run.record is None or run.side is None:
            continue
        configs = {a.config_id: a.config for a in run.attempts}
        facts = {
            config_id: one
            for config_id, one in run.side.attempts.items()
            if config_id in configs
            and None not in (one.registers, one.smem_bytes, one.spill_bytes)
        }
        if not facts:
            continue
        try:
            graph = KernelGraph.from_record(run.record)
            extractor = FeatureExtractor(
                graph, match_hardware(run.record.hardware).hardware
            )
            found = extractor.resources([configs[i] for i in facts])
        except UnreadableKernelError as error:
            print(f"{run.record.kernel_name}: {error}", file=sys.stderr)
            continue
        yield Estimated(
            kernel=run.side.kernel or run.record.kernel_name,
            kernel_class=classify(graph),
            smem_estimate=found.smem_bytes,
            smem=np.array([f.smem_bytes for f in facts.values()], float),
            registers_estimate=found.regs_per_thread,
            registers=np.array([f.registers for f in facts.values()], float),
            local_bytes=np.array([f.spill_bytes for f in facts.values()], float),
            spill_estimate=found.regs_per_thread + found.spill_registers,
        )


def report(found: Sequence[Estimated]) -> str:
    """All findings as Markdown."""
    n_configs = sum(len(one.smem) for one in found)
    n_kernels = len({one.kernel for one in found})
    lines = [
        f"{n_configs} configs of {len(found)} workloads, {n_kernels} kernels.",
        "",
        "| class | configs | under | under by > 2 KiB | within 10 % or 2 KiB | "
        "median estimate / recorded |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for kernel_class in sorted({one.kernel_class for one in found}):
        lines.append(_smem_row(kernel_class, [kernel_class], found))
    lines.append(_smem_row("all with dots", _DOTS, found))
    others = {one.kernel_class for one in found} - _DOTS
    lines += [_smem_row("all others", others, found), "", *_registers(found)]
    return "\n".join(lines)


def _smem_row(name: str, classes: object, found: Sequence[Estimated]) -> str:
    of_class = [one for one in found if one.kernel_class in classes]  # type: ignore[operator]
    if not of_class:
        return f"| {name} | 0 | - | - | - | - |"
    estimate = np.concatenate([one.smem_estimate for one in of_class])
    recorded = np.concatenate([one.smem for one in of_class])
    allowed = np.maximum(_CLOSE_BYTES, _CLOSE_SHARE * recorded)
    close = np.abs(estimate - recorded) <= allowed
    some = recorded > 0
    ratio = np.median(estimate[some] / recorded[some]) if some.any() else np.nan
    cells = (
        f"{np.mean(estimate < recorded):.1%}",
        f"{np.mean(estimate < recorded - _CLOSE_BYTES):.1%}",
        f"{np.mean(close):.1%}",
        f"{ratio:.2f}",
    )
    return f"| {name} | {len(recorded)} | " + " | ".join(cells) + " |"


def _registers(found: Sequence[Estimated]) -> list[str]:
    within = [
        rank_correlation(one.registers_estimate, one.registers)
        for one in found
        if len(one.registers) >= _MIN_CONFIGS and np.ptp(one.registers) > 0
    ]
    estimate = np.concatenate([one.registers_estimate for one in found])
    recorded = np.concatenate([one.registers for one in found])
    need = np.concatenate([one.spill_estimate for one in found])
    spills = np.concatenate([one.local_bytes for one in found]) > 0
    capped = recorded < 255  # a thread that needs more reads 255 and spills
    return [
        f"- Registers, rank correlation within a workload: median "
        f"{np.median(within):.2f}, lowest tenth {np.quantile(within, 0.1):.2f} "
        f"({len(within)} workloads); pooled "
        f"{rank_correlation(estimate, recorded):.2f}.",
        f"- Registers, estimate minus recorded where there is no cap: median "
        f"{np.median((estimate - recorded)[capped & ~spills]):+.0f}.",
        f"- Local memory used or not ({np.mean(spills):.1%} use it): area under the "
        f"curve {area_under_curve(need, spills):.3f}.",
    ]


def rank_correlation(one: Floats, other: Floats) -> float:
    """Spearman's, ties by their mean rank; 0 where one side is constant."""
    ranks = [_ranks(one), _ranks(other)]
    if min(np.ptp(rank) for rank in ranks) == 0:
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def area_under_curve(score: Floats, positive: npt.NDArray[np.bool_]) -> float:
    """Chance that a positive scores above a negative; NaN where one kind lacks."""
    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    if not n_positive or not n_negative:
        return float("nan")
    wins = _ranks(score)[positive].sum() - n_positive * (n_positive - 1) / 2
    return float(wins / (n_positive * n_negative))


def _ranks(values: Floats) -> Floats:
    """Ranks from 0; equal values share their mean rank."""
    _unique, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: Floats = (last - counts + last - 1) / 2
    return means[place]


if __name__ == "__main__":
    main()
