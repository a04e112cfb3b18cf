"""First step of `bench`: choose what to time, without a GPU."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodel import helion_hook
from costmodel.cli_measured import compiled_runs
from costmodel.cli_measured import labelled
from costmodel.cli_measured import read_measured
from costmodel.datasets.bench_file import Column
from costmodel.datasets.bench_file import Plan
from costmodel.datasets.bench_file import PlannedWorkload
from costmodel.datasets.bench_file import write_plan
from costmodel.datasets.bench_plan import PICK
from costmodel.datasets.bench_plan import AddedColumn
from costmodel.datasets.bench_plan import Picker
from costmodel.datasets.bench_plan import plan_workload
from costmodel.datasets.bench_select import resolve
from costmodel.datasets.bench_select import select
from costmodel.datasets.identity import kernel_digest
from costmodel.datasets.workloads.registry import all_cases
from costmodel.datasets.workloads.registry import all_workloads
from costmodel.errors import ArgumentSpecError
from costmodel.errors import CorruptRecordError
from costmodel.errors import CostModelError
from costmodel.errors import ModelNotFoundError
from costmodel.features.schema import SCHEMA
from costmodel.hardware import load_hardware
from costmodel.helion_hook import HelionView
from costmodel.provider import Provider
from costmodel.training.held_out import HeldOutModels
from costmodel.training.held_out import held_out_models
from costmodel.training.held_out import read_held_out_models


def write(options: argparse.Namespace, path: Path, models: Path) -> None:
    """Plan the workloads that the options name, and write the plan.

    Args:
        options: Of `costmodel bench plan`.
        path: Where the plan goes.
        models: Folder for models that are trained for it.

    Raises:
        CostModelError: A word names nothing, no model, or nothing binds.
    """
    hardware = load_hardware(options.gpu)
    workloads = select(
        options.words,
        all_workloads(),
        per_kernel=options.per_kernel,
        limit=options.max_workloads,
    )
    cases = all_cases()
    added = [_added(text) for text in options.column]
    pickers = _Pickers(options, models)
    planned: list[PlannedWorkload] = []
    refused = []
    reasons: dict[str, int] = {}
    for number, workload in enumerate(workloads, start=1):
        name = f"{workload.kernel} {' '.join(workload.args)}"
        try:
            kernel = resolve(workload, cases).kernel
            pick = pickers.of(workload.family)
            if not planned:
                # Libraries load on the first pick; users pay that once, not each time.
                plan_workload(workload, kernel, hardware, pick)
            one, _ = plan_workload(
                workload,
                kernel,
                hardware,
                pick,
                n_seeds=options.seeds,
                added=added,
            )
        except CostModelError as error:
            refused.append({"workload": name, "why": str(error)})
            print(f"refused {name}: {error}", file=sys.stderr)
            continue
        planned.append(one)
        chosen = next(c for c in one.columns if c.name == PICK)
        reason = chosen.why.partition(":")[0]
        reasons[reason] = reasons.get(reason, 0) + 1
        n_configs = len({json.dumps(c) for col in one.columns for c in col.configs})
        print(
            f"{number}/{len(workloads)} {name}: {chosen.by} ({reason}),"
            f" {1e3 * (chosen.decide_s or 0.0):.0f} ms, {n_configs} configs",
            file=sys.stderr,
        )
    facts = {
        "made": time.strftime("%Y-%m-%d"),
        "command": options.command_line,
        "gpu": hardware.name,
        "versions": helion_hook.installed_versions(),
        "reasons": reasons,
        "refused": refused,
        **pickers.facts(),
    }
    if not planned:
        raise CorruptRecordError(
            f"expected at least one workload that binds, found {len(refused)} refused: "
            "see the lines above"
        )
    write_plan(path, Plan(facts, tuple(planned)))
    print(
        f"{path}: {len(planned)} workloads, {len(refused)} refused; picks by reason:"
        f" {reasons}",
        file=sys.stderr,
    )


class _Pickers:
    """Who picks for which family: one model, or one that never saw the family."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._model_path: str | None = options.model
        self._providers: dict[Path | None, Provider] = {}
        self._held_out: HeldOutModels | None = None
        if options.cross_fit_models is not None:
            self._held_out = read_held_out_models(options.cross_fit_models)
        elif options.cross_fit:
            self._held_out = _cross_fit(options.cross_fit, folder)

    def of(self, family: str) -> Callable[[HelionView], Picker]:
        """The way to pick for a kernel of a family."""
        return lambda view: self._provider(family, view).pick

    def _provider(self, family: str, view: HelionView) -> Provider:
        path: Path | None = None if self._model_path is None else Path(self._model_path)
        if self._held_out is not None:
            digest = kernel_digest(view.record)
            path = self._held_out.unaware_of(family, digest).path
        if path not in self._providers:
            provider = Provider(path)
            if provider.model() is None:
                problem = provider.model_problem()
                raise ModelNotFoundError(problem[1] if problem else f"{path}: no model")
            self._providers[path] = provider
        return self._providers[path]

    def facts(self) -> dict[str, Any]:
        """Which models there are, and what they have not seen."""
        if self._held_out is None:
            return {"protocol": "one model"}
        return {
            "protocol": "cross-fitted by family",
            "corpus_digest": self._held_out.corpus_digest,
            "models": {
                one.model_id: sorted(one.left_out) for one in self._held_out.models
            },
        }


def _cross_fit(corpora: Sequence[str], folder: Path) -> HeldOutModels:
    """Train the held-out models of these corpora, and say which families are out."""
    measured = read_measured(corpora)
    print(f"labelling {len(measured.recorded)} runs ...", file=sys.stderr)
    workloads, _ = labelled(measured)
    print(f"cross-fitting {len(workloads)} workloads ...", file=sys.stderr)
    found = held_out_models(
        workloads,
        SCHEMA,
        measured.digest,
        folder,
        compiled=compiled_runs(measured),
    )
    for one in found.models:
        left_out = ", ".join(sorted(one.left_out))
        print(f"{one.path}: without {left_out}", file=sys.stderr)
    return found


def _added(text: str) -> AddedColumn:
    """A column of the command line.

    Raises:
        ArgumentSpecError: Not NAME=FILE.jsonl or NAME=MODULE:FUNCTION.
    """
    name, _, what = text.partition("=")
    if name and what.endswith(".jsonl"):
        return AddedColumn(name, choices=_read_choices(Path(what), name))
    module, colon, function = what.partition(":")
    if name and module and colon and function:
        try:
            found = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as error:
            raise ArgumentSpecError(f"--column {text}: {error}") from None
        return AddedColumn(name, chooser=found)
    raise ArgumentSpecError(
        f"expected --column NAME=FILE.jsonl or NAME=MODULE:FUNCTION, found {text!r}"
    )


def _read_choices(path: Path, name: str) -> dict[str, Column]:
    """Columns by workload id from a file of choices made elsewhere."""
    choices = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            body = json.loads(line)
            choices[str(body["workload_id"])] = Column(
                name,
                tuple(map(dict, body["configs"])),
                body.get("decide_s"),
                str(body.get("by", name)),
                str(body.get("why", "")),
                body.get("predicted_speedup"),
            )
        except (ValueError, KeyError, TypeError):
            raise CorruptRecordError(
                f"{path}:{number}: expected an object with workload_id and configs, "
                f"found {line[:60]!r}"
            ) from None
    return choices
