"""`costmodel collect --next`: ask a model what it wants to know, and list it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from collections.abc import Sequence

import numpy as np

from costmodel import helion_hook
from costmodel import target
from costmodel.arguments import parse_argument
from costmodel.datasets.collect import workloads_of
from costmodel.datasets.next_choice import Pool
from costmodel.datasets.next_choice import choose_next as choose_rows
from costmodel.datasets.next_file import NEXT_FILE
from costmodel.datasets.next_file import write_next
from costmodel.datasets.offers import make_offers
from costmodel.datasets.plan import plan_configs
from costmodel.datasets.store import Corpus
from costmodel.datasets.workload_data import WorkloadData
from costmodel.datasets.workloads.registry import all_cases
from costmodel.datasets.workloads.workload import Workload
from costmodel.errors import CostModelError
from costmodel.errors import NotEnoughDataError
from costmodel.features.canonical import canonical_config
from costmodel.features.canonical import config_id
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.hardware import load_hardware
from costmodel.hardware import match_hardware
from costmodel.heuristics.listed import with_list
from costmodel.learned import LearnedModel
from costmodel.types import Config
from costmodel.types import FloatArray

_DEFAULT_HARDWARE = "NVIDIA H200"
_DEFAULT_LIMIT = 60  # workloads considered: binding each takes about a second


@dataclass(frozen=True, slots=True)
class _Considered:
    """Configs of one workload and their features; without a workload, known ones."""

    workload: Workload | None
    configs: tuple[Config, ...]
    features: FloatArray
    is_known: bool


def choose_next(options: argparse.Namespace) -> int:
    """Write and print the N measurements worth most to a model."""
    model = LearnedModel.load(options.model)
    hardware = load_hardware(options.hardware or _DEFAULT_HARDWARE)
    options.limit = options.limit or _DEFAULT_LIMIT
    recorded = Corpus.load(options.corpus).workloads() if options.corpus else []
    known: set[tuple[object, ...]] = {
        (one.record.kernel_source, one.record.input_shapes, one.record.dtypes, config)
        for one in recorded
        for config in one.canonical_ids
    }
    considered = list(_considered(workloads_of(options), hardware, options, known))
    if not considered:
        raise NotEnoughDataError(
            "expected a workload to choose from, found none: check --skip and --limit"
        )
    known_rows = list(_recorded(recorded))
    pool = _pool(model, [*considered, *known_rows])
    rows = choose_rows(pool, options.next)
    chosen: dict[Workload, list[Config]] = {}
    starts = np.cumsum([0, *(len(one.configs) for one in considered)])
    for row in rows:
        index = int(pool.workload[row])
        one = considered[index]
        assert one.workload is not None
        chosen.setdefault(one.workload, []).append(one.configs[row - starts[index]])
    write_next(options.out / NEXT_FILE, chosen)
    for workload, configs in chosen.items():
        print(f"{len(configs):4d} {workload.kernel} {' '.join(workload.args)}")
    print(
        f"{len(rows)} measurements of {len(chosen)} workloads, chosen from "
        f"{int((~pool.is_known).sum())} configs of {len(considered)}; record them with "
        f"`costmodel collect {options.out} --plan {options.out / NEXT_FILE}`"
    )
    return 0


def _considered(
    workloads: Sequence[Workload],
    hardware: Hardware,
    options: argparse.Namespace,
    known: set[tuple[object, ...]],
) -> Iterable[_Considered]:
    """What could be measured, without what is known of it."""
    cases = all_cases()
    for number, workload in enumerate(workloads, start=1):
        try:
            specs = [parse_argument(text) for text in workload.args]
            bound = target.bind(cases[workload.kernel].kernel, specs, hardware)
            view = helion_hook.view(bound)
            planned = plan_configs(
                make_offers(bound, view, hardware),
                workload.workload_id,
                options.configs,
            )
            record = view.record
            default = canonical_config(view.default)
            configs = [canonical_config(one.config, default) for one in planned]
            same = (record.kernel_source, record.input_shapes, record.dtypes)
            new = tuple(c for c in configs if (*same, config_id(c)) not in known)
            extractor = FeatureExtractor(KernelGraph.from_record(record), hardware)
            with_list(extractor, default)
            features = extractor.matrix(new, default)
        except CostModelError as error:
            print(f"costmodel: left out: {workload.kernel}: {error}", file=sys.stderr)
            continue
        print(
            f"{number}/{len(workloads)} {workload.kernel}: {len(new)} configs",
            file=sys.stderr,
        )
        if new:
            yield _Considered(workload, new, features, is_known=False)


def _recorded(recorded: Iterable[WorkloadData]) -> Iterable[_Considered]:
    """Measured configs of a corpus, as far as their features can be computed."""
    for one in recorded:
        match = match_hardware(one.hardware)
        if one.default_index is None or match.kind == "fallback":
            continue
        try:
            graph = KernelGraph.from_record(one.record)
            extractor = FeatureExtractor(graph, match.hardware)
            with_list(extractor, one.configs[one.default_index])
            features = extractor.matrix(one.configs, one.configs[one.default_index])
        except CostModelError:
            continue
        yield _Considered(None, one.configs, features, is_known=True)


def _pool(model: LearnedModel, parts: Sequence[_Considered]) -> Pool:
    features = np.concatenate([one.features for one in parts])
    counts = [len(one.configs) for one in parts]
    said = model.predict(features)
    return Pool(
        workload=np.repeat(np.arange(len(parts)), counts),
        features=features,
        gain_log=said.gain_log,
        spread_log=said.spread_log,
        valid_probability=said.valid_probability,
        is_known=np.repeat([one.is_known for one in parts], counts),
    )
