"""Tables of the resource estimates against the compiler: data, measures, Markdown."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

CLOSE_BYTES = 2048  # a difference that no occupancy notices
CLOSE_SHARE = 0.1
MIN_CONFIGS = 8  # for a rank correlation within a kernel
GIVEN_UP = 32  # registers of programs that ptxas 12.8 could not allocate otherwise
_SPLIT_SEED = 20261130  # families: the first 18 of a permutation for development
_N_DEVELOPMENT = 18


@dataclass(frozen=True, slots=True)
class Estimated:
    """The same with estimates beside.

    Attributes:
        kernel: Reference.
        family: Label that the split uses.
        kernel_class: Class read from the graph.
        has_dot: Whether it has a matrix product.
        smem: Recorded shared memory in bytes, as all recorded values float64[n].
        smem_estimate: Best estimate.
        smem_upper: Bound that should not be exceeded.
        smem_limit: Bytes that the GPU gives a CTA.
        registers: Recorded registers a thread.
        registers_estimate: Estimated need, cut off at the cap.
        spilled: bool[n], whether local memory is used.
        spill_score: Estimated need over the cap.
        gave_up: bool[n], whether ptxas kept to 32 registers though a thread may have
            many more, and put nearly everything into local memory.
        refused: bool[n], whether a hard limit refuses the config.
    """

    kernel: str
    family: str
    kernel_class: str
    has_dot: bool
    smem: Floats
    smem_estimate: Floats
    smem_upper: Floats
    smem_limit: float
    registers: Floats
    registers_estimate: Floats
    spilled: npt.NDArray[np.bool_]
    spill_score: Floats
    gave_up: npt.NDArray[np.bool_]
    refused: npt.NDArray[np.bool_]


def development_families(families: Iterable[str]) -> set[str]:
    """The families that rules may be developed on."""
    drawn = np.random.default_rng(_SPLIT_SEED).permutation(sorted(set(families)))
    return {str(name) for name in drawn[:_N_DEVELOPMENT]}


def summary(found: Sequence[Estimated], development: Collection[str]) -> dict[str, Any]:
    """All tables as plain data, for all families, those of development, the others."""
    halves = {
        "all": list(found),
        "development": [one for one in found if one.family in development],
        "check": [one for one in found if one.family not in development],
    }
    classes = sorted({one.kernel_class for one in found})
    shared: dict[str, Any] = {}
    registers: dict[str, Any] = {}
    for half, members in halves.items():
        kinds = {
            "with dots": [one for one in members if one.has_dot],
            "without dots": [one for one in members if not one.has_dot],
        }
        if half == "all":
            for name in classes:
                kinds[name] = [one for one in members if one.kernel_class == name]
        for kind, part in kinds.items():
            if part:
                shared[f"{half}, {kind}"] = shared_row(part)
        for kind, part in {"": members, **kinds}.items():
            if part:
                registers[f"{half}, {kind}".rstrip(", ")] = register_row(part)
    return {
        "n_configs": sum(len(one.smem) for one in found),
        "n_workloads": len(found),
        "n_kernels": len({one.kernel for one in found}),
        "n_families": len({one.family for one in found}),
        "n_refused_that_ran": int(sum(one.refused.sum() for one in found)),
        "shared_memory": shared,
        "registers": registers,
    }


def _joined(found: Sequence[Estimated], name: str) -> npt.NDArray[Any]:
    return np.concatenate([getattr(one, name) for one in found])


def shared_row(found: Sequence[Estimated]) -> dict[str, float]:
    """How shared memory was met, as shares of configs."""
    estimate, recorded = _joined(found, "smem_estimate"), _joined(found, "smem")
    upper = _joined(found, "smem_upper")
    close = np.abs(estimate - recorded) <= np.maximum(
        CLOSE_BYTES, CLOSE_SHARE * recorded
    )
    some = recorded > CLOSE_BYTES
    return {
        "configs": len(recorded),
        "close": float(close.mean()),
        "under": float((estimate < recorded).mean()),
        "under_by_2_kib": float((estimate < recorded - CLOSE_BYTES).mean()),
        "over_bound": int((upper < recorded).sum()),
        "bound_over_recorded": float(np.median(upper[some] / recorded[some]))
        if some.any()
        else 1.0,
    }


def register_row(found: Sequence[Estimated]) -> dict[str, float]:
    """How registers and spills were met."""
    within = _ranks_within(found, with_given_up=True)
    regular = _ranks_within(found, with_given_up=False)
    estimate, recorded = (
        _joined(found, "registers_estimate"),
        _joined(found, "registers"),
    )
    spilled = _joined(found, "spilled")
    return {
        "workloads": len(within),
        "rank_median": float(np.median(within)),
        "rank_median_regular": float(np.median(regular)),
        "gave_up": int(_joined(found, "gave_up").sum()),
        "rank_lowest_tenth": float(np.quantile(within, 0.1)),
        "rank_pooled": rank_correlation(estimate, recorded),
        "spill_share": float(spilled.mean()),
        "spill_auc": area_under_curve(_joined(found, "spill_score"), spilled),
    }


def _ranks_within(found: Sequence[Estimated], with_given_up: bool) -> list[float]:
    """Rank correlation of registers within each workload."""
    ranks = []
    for one in found:
        keep = ~one.gave_up | with_given_up
        registers = one.registers[keep]
        if len(registers) >= MIN_CONFIGS and np.ptp(registers) > 0:
            ranks.append(rank_correlation(one.registers_estimate[keep], registers))
    return ranks


def as_markdown(tables: Mapping[str, Any]) -> str:
    """The tables for people."""
    lines = [
        f"{tables['n_configs']} configs of {tables['n_workloads']} workloads, "
        f"{tables['n_kernels']} kernels, {tables['n_families']} families. Of these, "
        f"which all ran, the limits refuse {tables['n_refused_that_ran']}.",
        "",
        "| shared memory | configs | within 10 % or 2 KiB | under | under by > 2 KiB "
        "| above the bound | bound / recorded |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in tables["shared_memory"].items():
        lines.append(
            f"| {name} | {row['configs']} | {row['close']:.1%} | {row['under']:.1%} | "
            f"{row['under_by_2_kib']:.1%} | {row['over_bound']} | "
            f"{row['bound_over_recorded']:.1f} |"
        )
    lines += [
        "",
        "| registers | workloads | rank correlation within one, median | without "
        "the given up | lowest tenth | pooled | use local memory | area under the "
        "curve |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in tables["registers"].items():
        lines.append(
            f"| {name} | {row['workloads']} | {row['rank_median']:.3f} | "
            f"{row['rank_median_regular']:.3f} ({row['gave_up']}) | "
            f"{row['rank_lowest_tenth']:.2f} | {row['rank_pooled']:.2f} | "
            f"{row['spill_share']:.1%} | {row['spill_auc']:.3f} |"
        )
    if "allocations" in tables:
        lines += ["", *_allocation_lines(tables["allocations"])]
    if "refusals" in tables:
        lines += [
            "",
            "| compiled anew | limits that were predicted: configs |",
            "|---|---|",
        ]
        for status, found in tables["refusals"].items():
            words = ", ".join(f"{name}: {n}" for name, n in sorted(found.items()))
            lines.append(f"| {status} | {words} |")
    return "\n".join(lines)


def _allocation_lines(rows: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    yield (
        "| built around the limit | configs | too large | recall | precision | within "
        "10 % or 2 KiB | under the bound |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for name, row in rows.items():
        yield (
            f"| {name} | {row['configs']} | {row['positives']} | {row['recall']:.1%} | "
            f"{row['precision']:.1%} | {row['close']:.1%} | {row['bounded']:.1%} |"
        )


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
