"""Decide, without a GPU, what a bench times: one column for each way to choose.

Every workload is bound as if on the target, and each column says which configs it
chose, why, and how long that took:

- `default`: Helion's own.
- `pick`: what `costmodel.pick` answers.
- `no_gate`: the best-ranked config that is not the default, believed blindly.
- `top2`, `top5`: the default and our best two or five, the fastest of which is kept.
- `analytic`: the first proposal of our heuristics, no model involved.
- `seeds`, where asked for: the default and Helion's other proposals, likewise.

More columns come from files or functions; see `AddedColumn`. Seconds of our own
columns are processor time: what others do on the planning machine does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Any
from typing import Protocol

from costmodel import helion_hook
from costmodel.arguments import parse_argument
from costmodel.datasets.bench_file import DEFAULT
from costmodel.datasets.bench_file import Column
from costmodel.datasets.bench_file import PlannedWorkload
from costmodel.datasets.identity import kernel_digest
from costmodel.datasets.workloads.workload import Workload
from costmodel.errors import CostModelError
from costmodel.features.canonical import config_id
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.hardware import Hardware
from costmodel.helion_hook import HelionView
from costmodel.heuristics.propose import propose
from costmodel.target import bind
from costmodel.types import Config
from costmodel.types import Pick

PICK = "pick"
NO_GATE = "no_gate"
ANALYTIC = "analytic"
SEEDS = "seeds"
MEASURED = {"top2": 2, "top5": 5}
"""Columns that measure the default and so many of our best."""

Picker = Callable[[Any], Pick]
"""Picks for a bound kernel."""


class Chooser(Protocol):
    """A further way to choose, for `--column NAME=MODULE:FUNCTION`."""

    def __call__(self, bound: Any, workload: Workload, pick: Pick) -> Sequence[Config]:
        """Configs for a bound kernel, which our pick was made for already.

        One config is the answer; of several the fastest measured one is.
        """


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A further column: a function that chooses, or choices made elsewhere.

    Attributes:
        name: Of the column.
        chooser: Asked for each workload; None where `choices` says all.
        choices: Columns by workload id.
    """

    name: str
    chooser: Chooser | None = None
    choices: Mapping[str, Column] | None = None


def plan_workload(
    workload: Workload,
    kernel: Any,
    hardware: Hardware,
    picker_of: Callable[[HelionView], Picker],
    *,
    n_seeds: int = 0,
    added: Iterable[AddedColumn] = (),
) -> tuple[PlannedWorkload, HelionView]:
    """Bind one workload and let every column choose.

    Args:
        workload: What to time.
        kernel: Its `helion.kernel` object.
        hardware: The target.
        picker_of: Our way to pick for a kernel; finding it is not what picking costs.
        n_seeds: How many of Helion's other proposals the column of seeds holds; 0
            leaves it out.
        added: Further columns.

    Raises:
        CostModelError: It cannot be bound.
    """
    began_s = time.perf_counter()
    bound = bind(kernel, [parse_argument(text) for text in workload.args], hardware)
    view = helion_hook.view(bound)
    bind_s = time.perf_counter() - began_s
    with helion_hook.device_of(bound):
        # What every pick needs once for each kernel, and Helion's compile needs too.
        helion_hook.space(bound)
        pick = picker_of(view)
        began_s = time.process_time()
        picked = pick(bound)
        decide_s = time.process_time() - began_s
        columns = [
            Column(DEFAULT, (view.default,), 0.0, "helion", "Helion's own config"),
            _column(
                bound,
                PICK,
                [picked.config],
                decide_s=decide_s,
                by=picked.source.value,
                why=f"{picked.reason.value}: {picked.detail}",
                predicted_speedup=picked.predicted_speedup,
            ),
        ]
        columns += _ranked_columns(bound, view, picked, decide_s)
        columns += _analytic_column(bound, view, hardware)
        if n_seeds:
            seeds = [view.default, *view.seeds[:n_seeds]]
            columns.append(_column(bound, SEEDS, seeds, decide_s=0.0, by="helion"))
        columns += _added_columns(bound, workload, picked, added)
    planned = PlannedWorkload(
        workload=workload,
        kernel_digest=kernel_digest(view.record),
        kernel_class=picked.kernel_class.value,
        promoted=view.promoted,
        columns=tuple(columns),
        bind_s=bind_s,
        model_id=picked.model_id or "",
    )
    return planned, view


def _column(bound: Any, name: str, configs: Iterable[Config], **facts: Any) -> Column:
    """A column of distinct full configs; one that Helion refuses stays as given, and
    fails when it is measured, as it would for a user."""
    full: dict[str, Config] = {}
    for config in configs:
        normal = full_config(bound, config) or config
        full.setdefault(config_id(normal), normal)
    return Column(name, tuple(full.values()), **facts)


def full_config(bound: Any, config: Config) -> Config | None:
    """The config as Helion would compile it, spelled as ids are; None if refused."""
    normal = helion_hook.normalize(bound, config)
    if normal is None:
        return None
    # Helion's Config forgets a None, and a config's id is that of what it keeps.
    return {name: value for name, value in normal.items() if value is not None}


def _ranked_columns(
    bound: Any, view: HelionView, picked: Pick, decide_s: float
) -> list[Column]:
    """What our ranking would do without a gate, and with a few measurements."""
    default_id = config_id(view.default)
    ranked = [one for one in picked.shortlist if config_id(one) != default_id]
    if not ranked:
        return []
    said = {"decide_s": decide_s, "by": "ranking"}
    columns = [_column(bound, NO_GATE, ranked[:1], **said)]
    for name, n in MEASURED.items():
        columns.append(_column(bound, name, [view.default, *ranked[:n]], **said))
    return columns


def _analytic_column(bound: Any, view: HelionView, hardware: Hardware) -> list[Column]:
    """Our heuristics' first proposal that Helion accepts; none where they have none."""
    began_s = time.process_time()
    try:
        graph = KernelGraph.from_record(view.record)
        extractor = FeatureExtractor(graph, hardware)
        space = helion_hook.space(bound)
        proposed = propose(graph, extractor, view.default, space)
    except CostModelError:
        return []
    for one in proposed:
        if helion_hook.is_legal(bound, one.config):
            seconds = time.process_time() - began_s
            facts = {"decide_s": seconds, "by": "analytic", "why": one.reason}
            return [_column(bound, ANALYTIC, [one.config], **facts)]
    return []


def _added_columns(
    bound: Any, workload: Workload, picked: Pick, added: Iterable[AddedColumn]
) -> list[Column]:
    columns = []
    for one in added:
        given = (one.choices or {}).get(workload.workload_id)
        if given is not None:
            full = _column(bound, one.name, given.configs)
            columns.append(replace(given, name=one.name, configs=full.configs))
        elif one.chooser is not None:
            began_s = time.perf_counter()  # it may well wait for child processes
            configs = one.chooser(bound, workload, picked)
            seconds = time.perf_counter() - began_s
            if configs:
                columns.append(
                    _column(bound, one.name, configs, decide_s=seconds, by=one.name)
                )
    return columns
