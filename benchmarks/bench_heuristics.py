"""Hold the analytic heuristic's proposals against recorded times.

Run as `python benchmarks/bench_heuristics.py CORPUS` from the root of a checkout. For
each recorded workload the decision lists propose as they would today, without looking
at times. A proposal's time is that of the recorded attempt with the same effective
knobs, or else of the nearest one by the knobs that matter: doublings of a tile's side,
of warps and of a reduction's chunk count one each, other knobs less. How many are exact
and how many are near is printed, because a neighbour is no measurement.

Half of what is printed is for development; families of the other part, drawn by a fixed
seed, are for the final account only and are never printed workload by workload.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costmodel.datasets.store import Corpus
from costmodel.datasets.workload_data import WorkloadData
from costmodel.errors import CostModelError
from costmodel.features.effective import EffectiveKeys
from costmodel.heuristics.propose import propose
from costmodel.training.label import extractor_of
from costmodel.training.label import harm_floor_log
from costmodel.training.metrics import FAILED_SPEEDUP
from costmodel.training.metrics import bootstrap_interval
from costmodel.training.metrics import geomean
from costmodel.types import Config

SEED = 20261130  # of the split into development and final families
N_DEVELOPMENT = 18
NEAR = 1.0  # one doubling of one knob
TOO_FAR = 2.5  # beyond, nothing is said of a proposal
# What a knob's difference counts beside one doubling of a tile's side, by how much
# single steps of it change times in the corpus.
_STAGE_STEP = 0.35
_SMALL_KNOB = 0.25


@dataclass(frozen=True, slots=True)
class Matched:
    """A proposal and the recorded attempt that stands for it.

    Attributes:
        row: Of the workload's arrays.
        distance: 0 where its effective knobs are the same.
        speedup: Default time / its time; 0.1 where it failed.
    """

    row: int
    distance: float
    speedup: float


@dataclass(frozen=True, slots=True)
class Held:
    """One workload's proposals against its records."""

    name: str
    family: str
    kernel_class: str
    promoted: bool
    kernel: str
    harm_floor_log: float
    best_speedup: float
    matches: tuple[Matched, ...]
    proposals: tuple[tuple[Config, str], ...]
    data: WorkloadData

    @property
    def first(self) -> Matched:
        """The heuristic's pick."""
        return self.matches[0]

    @property
    def best_of_five(self) -> float:
        """What measuring the first five would find."""
        return max(one.speedup for one in self.matches[:5])

    @property
    def best_listed(self) -> float:
        """The best of the whole list by near records; 1.0 where it has none."""
        near = [one.speedup for one in self.matches if one.distance <= NEAR]
        return max(near, default=1.0)


def main() -> None:
    """Propose, match, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--workloads", action="store_true", help="one line each")
    parser.add_argument("--class", dest="kernel_class", default="", help="only this")
    parser.add_argument("--explain", default="", help="print records of workloads")
    parser.add_argument("--final", action="store_true", help="print the final part too")
    options = parser.parse_args()
    recorded = Corpus.load(options.corpus).workloads()
    families = sorted({one.family for one in recorded})
    order = np.random.default_rng(SEED).permutation(families)
    development = {str(name) for name in order[:N_DEVELOPMENT]}
    if not options.final:
        recorded = [one for one in recorded if one.family in development]
    found = [one for one in held(recorded) if options.kernel_class in one.kernel_class]
    mine = [one for one in found if one.family in development]
    print(f"development families: {', '.join(sorted(development))}\n")
    print(report(mine))
    print(f"\nbest of each whole list, over all workloads\n\n{listed(mine)}")
    if options.workloads:
        print("\n".join(["", *map(line_of, sorted(mine, key=_loss))]))
    for one in mine:
        if options.explain and options.explain in one.name:
            print("\n" + explained(one))
    if options.final:
        rest = [one for one in found if one.family not in development]
        print(f"\nfinal families: {', '.join(sorted({o.family for o in rest}))}\n")
        print(report(rest))
        print(f"\nall families\n\n{report(found)}\n\n{report(found, 'family')}")


def held(recorded: Sequence[WorkloadData]) -> Iterator[Held]:
    """Every workload whose default was measured and that gets a proposal."""
    for data in recorded:
        default = data.default_index
        if default is None or not data.is_ok[default]:
            continue
        try:
            extractor = extractor_of(data)
            graph = extractor.graph
            template = data.configs[default]
            proposals = propose(graph, extractor, template)
        except CostModelError as error:
            print(f"{data.record.kernel_name}: {error}", file=sys.stderr)
            continue
        name = f"{data.record.kernel_name}/{data.log}"
        if not proposals:
            print(f"{name}: no proposals", file=sys.stderr)
            continue
        times = np.where(data.is_ok, data.latency_us, np.inf)
        keys = EffectiveKeys(graph, template)
        extents = [graph.blocks[key].extent for key in graph.reduction_blocks]
        yield Held(
            name=name,
            family=data.family,
            kernel_class=str(extractor.kernel_class),
            promoted=bool(data.promoted),
            kernel=data.kernel_id,
            harm_floor_log=harm_floor_log(data),
            best_speedup=data.default_us / float(times.min()),
            matches=tuple(match(data, keys, one.config, extents) for one in proposals),
            proposals=tuple((one.config, one.reason) for one in proposals),
            data=data,
        )


def match(
    data: WorkloadData, keys: EffectiveKeys, config: Config, extents: Sequence[int]
) -> Matched:
    """The recorded attempt that stands for a config."""
    known = data.is_ok | data.is_failure
    mine = keys.key(config)
    best, best_distance = -1, math.inf
    # The default is itself, not a twin of it that was timed in another hour.
    rows = sorted(np.flatnonzero(known), key=lambda row: row != data.default_index)
    for row in rows:
        other = data.configs[row]
        same = keys.key(other) == mine
        apart = 0.0 if same else max(0.05, distance(config, other, extents))
        if apart < best_distance:
            best, best_distance = int(row), apart
    ok = bool(data.is_ok[best])
    speedup = data.default_us / float(data.latency_us[best]) if ok else FAILED_SPEEDUP
    return Matched(best, best_distance, speedup)


def distance(one: Config, other: Config, extents: Sequence[int]) -> float:
    """How far two configs of a kernel are apart, in doublings of a tile's side."""
    total = 0.0
    for mine, its in zip(one["block_sizes"], other["block_sizes"], strict=False):
        total += abs(math.log2(mine / its))
    total += abs(math.log2(int(one["num_warps"]) / int(other["num_warps"])))
    apart = abs(int(one["num_stages"]) - int(other["num_stages"]))
    total += _STAGE_STEP * min(3, apart)
    loops = zip(
        one.get("reduction_loops") or (),
        other.get("reduction_loops") or (),
        extents,
        strict=False,
    )
    for mine, its, extent in loops:
        total += abs(math.log2((mine or extent) / (its or extent)))
    if str(one.get("pid_type")) != str(other.get("pid_type")):
        total += 2 * _SMALL_KNOB
    for key in ("loop_orders", "l2_groupings", "range_unroll_factors"):
        total += _SMALL_KNOB * (one.get(key) != other.get(key))
    for key in ("indexing", "load_eviction_policies", "range_num_stages"):
        mine, its = one.get(key) or (), other.get(key) or ()
        unlike = sum(a != b for a, b in zip(mine, its, strict=False))
        total += _SMALL_KNOB * unlike / max(1, len(mine))
    for key in ("range_multi_buffers", "range_flattens", "flatten_loops"):
        total += _SMALL_KNOB / 2 * (one.get(key) != other.get(key))
    return total


def report(found: Sequence[Held], by: str = "kernel_class") -> str:
    """One row per class or family with and without a rule, as Markdown."""
    rows = [
        f"| {by.replace('kernel_', '')} | rule | n | known | exact | near | "
        "first pick | 95 % | exact only | best of 5 | best recorded | harm | failed | "
        "worst |",
        "|---|---|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for promoted in (True, False):
        part = [one for one in found if one.promoted is promoted]
        for name in sorted({str(getattr(one, by)) for one in part}):
            mine = [one for one in part if getattr(one, by) == name]
            rows.append(_row(name, promoted, mine))
        if part:
            rows.append(_row("**all**", promoted, part))
    return "\n".join(rows)


def _row(name: str, promoted: bool, found: Sequence[Held]) -> str:
    known = [one for one in found if one.first.distance <= TOO_FAR]
    exact = [one for one in known if one.first.distance == 0.0]
    near = [one for one in known if one.first.distance <= NEAR]
    speedups = [one.first.speedup for one in known]
    low, high = bootstrap_interval(speedups, [one.kernel for one in known])
    harmed = [one for one in known if is_harm(one)]
    n_failed = sum(not one.data.is_ok[one.first.row] for one in known)
    cells = (
        name,
        "yes" if promoted else "no",
        len(found),
        len(known),
        len(exact),
        len(near),
        f"{geomean(speedups):.3f}",
        f"{low:.2f}-{high:.2f}",
        f"{geomean([one.first.speedup for one in exact]):.3f}",
        f"{geomean([one.best_of_five for one in known]):.3f}",
        f"{geomean([one.best_speedup for one in known]):.3f}",
        f"{len(harmed) / max(1, len(known)):.0%}",
        n_failed,
        f"{min(speedups, default=1.0):.2f}",
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def listed(found: Sequence[Held]) -> str:
    """What the lists hold beside their first proposal, as Markdown."""
    rows = ["| class | rule | n | list | recorded |", "|---|---|---:|---:|---:|"]
    for promoted, name in sorted({(one.promoted, one.kernel_class) for one in found}):
        mine = [o for o in found if (o.promoted, o.kernel_class) == (promoted, name)]
        best = geomean([one.best_listed for one in mine])
        recorded = geomean([one.best_speedup for one in mine])
        rule = "yes" if promoted else "no"
        rows.append(f"| {name} | {rule} | {len(mine)} | {best:.3f} | {recorded:.3f} |")
    return "\n".join(rows)


def is_harm(one: Held) -> bool:
    """Whether the pick is slower than the default beyond noise."""
    return math.log(one.first.speedup) < -one.harm_floor_log


def _loss(one: Held) -> float:
    return math.log(one.first.speedup)


def line_of(one: Held) -> str:
    """One workload in one line."""
    default = one.data.configs[one.data.default_index or 0]
    best = int(np.argmin(np.where(one.data.is_ok, one.data.latency_us, np.inf)))
    return (
        f"{one.first.speedup:6.2f} of {one.best_speedup:6.2f}"
        f" d={one.first.distance:4.2f} 5:{one.best_of_five:6.2f} {one.kernel_class:16s}"
        f" {'rule' if one.promoted else '-   '} {one.name[:44]:44s}"
        f" {one.data.default_us:9.1f} us  pick {brief(one.proposals[0][0])}"
        f"  default {brief(default)}  best {brief(one.data.configs[best])}"
    )


def brief(config: Config) -> str:
    """The knobs that matter most."""
    words = f"{config['block_sizes']}w{config['num_warps']}s{config['num_stages']}"
    if config.get("reduction_loops"):
        words += f"r{config['reduction_loops']}"
    if str(config.get("pid_type")) != "flat":
        words += f" {config['pid_type']}x{config.get('num_sm_multiplier', 1)}"
    grouping = config.get("l2_groupings") or [1]
    words += f" l2={grouping[0]}" * (grouping[0] != 1)
    tma = sum(one == "tensor_descriptor" for one in config.get("indexing") or ())
    words += f" td{tma}" * bool(tma)
    return words


def explained(one: Held) -> str:
    """The proposals, and the recorded attempts by time."""
    lines = [line_of(one), "proposals:"]
    lines += [
        f"  {m.speedup:6.2f} d={m.distance:4.2f} {brief(c)}: {why}"
        for m, (c, why) in zip(one.matches, one.proposals, strict=True)
    ]
    times = np.where(one.data.is_ok, one.data.latency_us, np.inf)
    lines.append("recorded:")

    def describe(row: int) -> str:
        config = one.data.configs[row]
        policies = [x[:1] for x in config.get("load_eviction_policies") or ()]
        mark = " <- default" if row == one.data.default_index else ""
        how = "" if one.data.is_ok[row] else f" {one.data.status[row]}"
        return (
            f"  {one.data.default_us / times[row]:6.2f} {brief(config)} {policies}"
            f"{mark}{how}"
        )

    lines += [describe(int(row)) for row in np.argsort(times, kind="stable")]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
