"""The command that shows what a kernel is, and what its configs make of a GPU.

A kernel file is bound for the GPU named; a folder of logs or a corpus is read. Both
end in the same analysis, because both are a `WorkloadRecord` and some configs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.analyse import Analysis
from costmodel.analyse import analyse as analyse_record
from costmodel.analyse_json import as_json
from costmodel.errors import CorruptRecordError
from costmodel.errors import CostModelError
from costmodel.features.graph import KernelGraph
from costmodel.features.traits import KernelTraits
from costmodel.features.traits import read_traits
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.hardware import load_hardware
from costmodel.hardware import match_hardware
from costmodel.types import Config
from costmodel.types import WorkloadRecord

DEFAULT_GPU = "H200"
DEFAULT_LABEL = "helion_default"
PICK_LABEL = "our_pick"
BEST_LABEL = "best_measured"


@dataclass(frozen=True, slots=True)
class Subject:
    """One workload to show, with whose configs.

    Attributes:
        record: The workload.
        hardware: The GPU.
        configs: By label.
        pick: Who decided for `our_pick` and why, by name; empty without a pick.
        measured_us: Measured microseconds of configs that have them, by label.
        source: Where it comes from, for people.
    """

    record: WorkloadRecord
    hardware: Hardware
    configs: Mapping[str, Config]
    pick: Mapping[str, str]
    measured_us: Mapping[str, float]
    source: str


def analyse(arguments: argparse.Namespace) -> int:
    """Print one workload's analysis, or a list of the workloads that logs hold."""
    options = _parser().parse_args(arguments.rest)
    if _is_kernel(options.target):
        return _show(_of_kernel(options), as_object=options.json)
    found = _of_logs(options)
    if len(found) == 1:
        return _show(found[0].load(), as_object=options.json)
    return _list(found, as_object=options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="costmodel analyse",
        description="Show what a kernel is: class, loops, tiles, memory, time.",
    )
    parser.add_argument(
        "target", metavar="FILE.py:KERNEL|LOGS", help="a kernel, or logs or a corpus"
    )
    parser.add_argument(
        "--arg",
        "--shape",
        action="append",
        default=[],
        dest="args",
        metavar="SPEC",
        help="one per argument: 'bf16[4096,5120]', 'f32[64,32]:1,64', 1e-5, true",
    )
    parser.add_argument(
        "--gpu", help=f"default: {DEFAULT_GPU}, or the GPU that was recorded on"
    )
    parser.add_argument("--model", metavar="FILE", help="default: the bundled one")
    parser.add_argument(
        "--run",
        metavar="TEXT",
        help="of several runs, those whose kernel, log or run id has this text",
    )
    parser.add_argument("--json", action="store_true")
    return parser


def _is_kernel(target: str) -> bool:
    path, _, name = target.rpartition(":")
    return target.endswith(".py") or (path.endswith(".py") and bool(name or path))


def _of_kernel(options: argparse.Namespace) -> Subject:
    """Bind a kernel as if on the GPU, and ask for Helion's default and our pick."""
    from costmodel import helion_hook
    from costmodel.arguments import parse_argument
    from costmodel.cli_kernel import _provider
    from costmodel.errors import BindError
    from costmodel.kernel_file import load_kernel
    from costmodel.target import bind
    from costmodel.target import targeting
    from costmodel.types import ReasonCode

    hardware = load_hardware(options.gpu or DEFAULT_GPU)
    specs = [parse_argument(text) for text in options.args]
    provider = _provider(options.model)
    kernel = load_kernel(options.target)
    with targeting(hardware):
        bound = bind(kernel, specs, hardware)
        answer = provider.pick(bound)
        if answer.reason is ReasonCode.INTERPRET_MODE:
            raise BindError(f"{options.target}: {answer.detail}: nothing to analyse")
        view = helion_hook.view(bound)
    return Subject(
        record=view.record,
        hardware=hardware,
        configs={DEFAULT_LABEL: view.default, PICK_LABEL: answer.config},
        pick={
            "source": answer.source.value,
            "reason": answer.reason.value,
            "detail": answer.detail,
        },
        measured_us={},
        source=options.target,
    )


class _LoggedRun:
    """One run of a log or corpus; its configs are judged only when it is shown."""

    def __init__(self, recorded: Any, options: argparse.Namespace) -> None:
        self.recorded = recorded
        self.options = options

    @property
    def record(self) -> WorkloadRecord:
        record: WorkloadRecord = self.recorded.record
        return record

    @property
    def name(self) -> str:
        return f"{self.recorded.log} {self.recorded.run_id[:8]}"

    def has(self, text: str) -> bool:
        run = self.recorded
        texts = (run.record.kernel_name, run.log, run.run_id, run.workload_id)
        return any(text in one for one in texts)

    def load(self) -> Subject:
        """The run's default, our pick among its attempts, and the best measured."""
        run = self.recorded
        gpu = self.options.gpu
        hardware = (
            match_hardware(run.hardware).hardware if gpu is None else load_hardware(gpu)
        )
        rows: dict[str, int] = {}
        pick: dict[str, str] = {}
        if run.default_index is not None:
            rows[DEFAULT_LABEL] = run.default_index
            rows[PICK_LABEL], pick = self._pick()
        if np.isfinite(run.latency_us).any():
            rows[BEST_LABEL] = int(np.nanargmin(run.latency_us))
        return Subject(
            record=run.record,
            hardware=hardware,
            configs={label: run.configs[row] for label, row in rows.items()},
            pick=pick,
            measured_us={
                label: float(run.latency_us[row])
                for label, row in rows.items()
                if np.isfinite(run.latency_us[row])
            },
            source=self.name,
        )

    def _pick(self) -> tuple[int, dict[str, str]]:
        from costmodel.learned import LearnedModel
        from costmodel.training.evaluate import choose_among

        default: int = self.recorded.default_index
        try:
            model = LearnedModel.load(self.options.model)
            choice = choose_among(self.recorded, model)
        except CostModelError as error:
            if self.options.model is not None:
                raise  # asked for by name
            words = {"source": "default", "reason": "no_model", "detail": str(error)}
            return default, words
        return choice.index, {
            "source": choice.source.value,
            "reason": choice.reason.value,
            "detail": choice.detail,
        }


def _of_logs(options: argparse.Namespace) -> list[_LoggedRun]:
    """Runs under a path that hold a graph and match `--run`.

    Raises:
        CorruptRecordError: There is none.
    """
    from costmodel.cli_data import load
    from costmodel.datasets.store import Corpus
    from costmodel.datasets.store import is_corpus
    from costmodel.datasets.workload_data import WorkloadData

    if options.args:
        raise CorruptRecordError(
            f"expected FILE.py:KERNEL with --arg, found {options.target!r}: logs say "
            "themselves which shapes they are of"
        )
    if is_corpus(Path(options.target)):
        recorded = list(Corpus.load(options.target).workloads())
    else:
        recorded = [
            WorkloadData.from_clean_run(run) for run in load([options.target]).usable
        ]
    runs = [_LoggedRun(one, options) for one in recorded if one.record.ir_graph]
    if options.run is not None:
        runs = [run for run in runs if run.has(options.run)]
    if not runs:
        wanted = "" if options.run is None else f" that has {options.run!r}"
        raise CorruptRecordError(
            f"{options.target}: expected a run{wanted} with an IR graph, found none: "
            "record with HELION_AUTOTUNE_LOG_DETAILS=1, or see `costmodel audit`"
        )
    return runs


def _show(subject: Subject, *, as_object: bool) -> int:
    found = analyse_record(subject.record, subject.hardware, subject.configs)
    if as_object:
        print(json.dumps(_object(found, subject), indent=2))
        return 0
    from costmodel.cli_analyse_tables import show

    show(found, subject.pick, subject.measured_us, subject.source)
    return 0


def _object(found: Analysis, subject: Subject) -> dict[str, Any]:
    return {
        "source": subject.source,
        **as_json(found),
        "pick": dict(subject.pick) or None,
        "measured_us": dict(subject.measured_us),
    }


def _list(runs: list[_LoggedRun], *, as_object: bool) -> int:
    """One line a run, with its class; what cannot be read says so on stderr."""
    rows = [(run, traits) for run, traits in _traits_of(runs)]
    if as_object:
        body = [
            {
                "run": run.name,
                "kernel": run.record.kernel_name,
                "input_shapes": [list(shape) for shape in run.record.input_shapes],
                "class": traits.kind.value,
                "parts": [part.value for part in traits.parts],
                "traits": [trait.value for trait in traits.traits],
            }
            for run, traits in rows
        ]
        print(json.dumps({"runs": body}, indent=2))
        return 0
    from costmodel.cli_analyse_tables import show_list

    show_list([(run.name, run.record, traits) for run, traits in rows])
    print("name one with --run TEXT to see all of it", file=sys.stderr)
    return 0


def _traits_of(
    runs: Iterable[_LoggedRun],
) -> Iterable[tuple[_LoggedRun, KernelTraits]]:
    for run in runs:
        try:
            yield run, read_traits(KernelGraph.from_record(run.record))
        except CostModelError as error:
            print(f"costmodel: {run.name}: {error}", file=sys.stderr)
