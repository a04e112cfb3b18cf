"""Print what a recording would do, on a machine without a GPU, and write its order."""

from __future__ import annotations

import argparse
import collections
import sys
import time
from collections.abc import Callable
from collections.abc import Sequence

from costmodel import helion_hook
from costmodel import target
from costmodel.arguments import parse_argument
from costmodel.datasets.offers import make_offers
from costmodel.datasets.offers import tier_of
from costmodel.datasets.plan import Tier
from costmodel.datasets.plan import order_workloads
from costmodel.datasets.plan import plan_configs
from costmodel.datasets.workloads.registry import all_cases
from costmodel.datasets.workloads.workload import Workload
from costmodel.errors import CostModelError
from costmodel.hardware import load_hardware

CONFIGS_PER_SECOND = 4.5  # planning figure for one GPU with 16 cores
ORDER_FILE = "order.txt"
_DEFAULT_HARDWARE = "NVIDIA H200"


def dry_run(
    options: argparse.Namespace, workloads_of: Callable[[], Sequence[Workload]]
) -> int:
    """Bind and plan every workload for the named GPU; 1 if any cannot be bound.

    Writes `OUT/order.txt`: workload ids, best value first, with the tier found here.
    """
    hardware = load_hardware(options.hardware or _DEFAULT_HARDWARE)
    cases = all_cases()
    workloads = workloads_of()
    tiers: dict[str, Tier] = {}
    lines: dict[str, str] = {}
    origins: collections.Counter[str] = collections.Counter()
    refused = []
    for workload in workloads:
        began = time.monotonic()
        try:
            specs = [parse_argument(text) for text in workload.args]
            bound = target.bind(cases[workload.kernel].kernel, specs, hardware)
            view = helion_hook.view(bound)
            planned = plan_configs(
                make_offers(bound, view, hardware),
                workload.workload_id,
                options.configs,
            )
        except CostModelError as error:
            refused.append(workload)
            print(f"refused {workload.kernel} {' '.join(workload.args)}: {error}")
            continue
        tier = tier_of(view)
        tiers[workload.kernel] = min(tier, tiers.get(workload.kernel, tier))
        counts = collections.Counter(str(one.origin) for one in planned)
        origins += counts
        shares = " ".join(f"{name}={n}" for name, n in sorted(counts.items()))
        lines[workload.workload_id] = (
            f"{workload.workload_id} {tier.name.lower()} {workload.family}"
            f" {workload.kernel} {workload.variant} {' '.join(workload.args)}: {shares}"
        )
        seconds = time.monotonic() - began
        print(f"{seconds:5.1f} s {lines[workload.workload_id]}", file=sys.stderr)
    ordered = order_workloads(workloads, tiers, options.wave)
    ordered = [one for one in ordered if one.workload_id in lines]
    text = "".join(lines[w.workload_id] + "\n" for w in ordered)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / ORDER_FILE).write_text(text, encoding="utf-8")
    print(text, end="")
    n_configs = sum(origins.values())
    families = {w.family for w in ordered}
    print(
        f"{len(ordered)} workloads of {len({w.kernel for w in ordered})} kernels in"
        f" {len(families)} families, {n_configs} configs"
        f" ({', '.join(f'{k} {v}' for k, v in sorted(origins.items()))}),"
        f" {len(refused)} refused; about {n_configs / CONFIGS_PER_SECOND / 60:.0f}"
        " GPU minutes"
    )
    return 1 if refused else 0
