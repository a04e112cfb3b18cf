"""Command `bench`: plan without a GPU, measure on one, report anywhere.

Measuring needs neither the model nor the libraries that train it, so everything else
is imported when its step runs.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import shlex
import sys
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodel.datasets import bench_run
from costmodel.datasets.bench_file import Column
from costmodel.datasets.bench_file import Plan
from costmodel.datasets.bench_file import PlannedWorkload
from costmodel.datasets.bench_file import read_results
from costmodel.datasets.bench_file import result_files
from costmodel.datasets.bench_file import write_plan
from costmodel.datasets.bench_plan import PICK
from costmodel.datasets.bench_plan import AddedColumn
from costmodel.datasets.bench_plan import plan_workload
from costmodel.errors import ArgumentSpecError
from costmodel.errors import CorruptRecordError
from costmodel.errors import CostModelError
from costmodel.errors import ModelNotFoundError

PLAN_FILE = "plan.jsonl"
MODELS_FOLDER = "held-out"


def bench(arguments: argparse.Namespace) -> int:
    """Run one step, or all."""
    options = _parser().parse_args(arguments.rest)
    options.command_line = shlex.join(["costmodel", "bench", *arguments.rest])
    step: Callable[[argparse.Namespace], int] = options.step
    return step(options)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="costmodel bench",
        description="Time Helion's default, our picks and others, interleaved.",
    )
    steps = made.add_subparsers(required=True, metavar="STEP")

    plan = steps.add_parser("plan", help="choose what to time; needs no GPU")
    _planning_options(plan)
    plan.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help=f"{PLAN_FILE}"
    )
    plan.set_defaults(step=_plan)

    run = steps.add_parser("run", help="measure a plan on this machine's GPU")
    bench_run.add_options(run)
    run.set_defaults(step=_run)

    report = steps.add_parser(
        "report", help="table, plot and page of what was measured"
    )
    report.add_argument("results", nargs="+", type=Path, help="files or folders of run")
    _report_options(report)
    report.set_defaults(step=_report)

    everything = steps.add_parser("all", help="plan, run and report on one machine")
    _planning_options(everything)
    everything.add_argument("--output", type=Path, required=True, metavar="DIR")
    bench_run.add_measuring_options(everything)
    _report_options(everything)
    everything.set_defaults(step=_all)

    listing = steps.add_parser("workloads", help="list the registered workloads")
    listing.add_argument("words", nargs="*", help="ids, kernels or families; none: all")
    listing.set_defaults(step=_workloads)
    return made


def _planning_options(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add(
        "words",
        nargs="*",
        metavar="WORKLOAD",
        help="ids, kernels, families, 'KERNEL ARG ...' or 'FILE.py:KERNEL ARG ...'; "
        "none means every registered one",
    )
    add("--gpu", default="H200", help="default: %(default)s")
    add("--per-kernel", type=int, metavar="N", help="shapes of a kernel at most")
    add("--max-workloads", type=int, metavar="N", help="only the first N")
    add("--model", metavar="FILE", help="the model that picks; default: the bundled")
    add(
        "--cross-fit",
        action="append",
        default=[],
        metavar="CORPUS",
        help="train on this instead: one model for each block of families left out",
    )
    add(
        "--cross-fit-models",
        type=Path,
        metavar="DIR",
        help="models of an earlier --cross-fit, instead of training them again",
    )
    add(
        "--seeds",
        type=int,
        default=0,
        metavar="N",
        help="also measure Helion's other N proposals (default: none)",
    )
    add(
        "--column",
        action="append",
        default=[],
        metavar="NAME=WHAT",
        help="a further column: MODULE:FUNCTION(bound, workload, pick), which returns "
        "configs, or FILE.jsonl with workload_id and configs",
    )


def _report_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--json", action="store_true")
    made.add_argument("--plot", type=Path, metavar="FILE.png")
    made.add_argument("--markdown", type=Path, metavar="FILE.md")


def _workloads(options: argparse.Namespace) -> int:
    from costmodel.datasets.bench_select import select
    from costmodel.datasets.workloads.registry import all_workloads

    for one in select(options.words, all_workloads()):
        print(f"{one.workload_id} {one.family} {one.kernel} {' '.join(one.args)}")
    return 0


def _plan(options: argparse.Namespace) -> int:
    _write_plan(options, options.output, options.output.parent / MODELS_FOLDER)
    return 0


def _run(options: argparse.Namespace) -> int:
    if not options.dry_run:
        _require_gpu()
    return bench_run.run(options)


def _all(options: argparse.Namespace) -> int:
    _require_gpu()
    plan = options.output / PLAN_FILE
    if plan.exists():
        print(f"going on with {plan}", file=sys.stderr)
    else:
        _write_plan(options, plan, options.output / MODELS_FOLDER)
    made = argparse.ArgumentParser()
    bench_run.add_options(made)
    defaults = made.parse_args([str(plan), "--output", str(options.output)])
    asked = {
        name: value for name, value in vars(options).items() if hasattr(defaults, name)
    }
    code = bench_run.run(
        argparse.Namespace(**{**vars(defaults), **asked, "plan": plan})
    )
    if code:
        return code
    options.results = [options.output]
    return _report(options)


def _write_plan(options: argparse.Namespace, path: Path, models: Path) -> None:
    from costmodel import helion_hook
    from costmodel.datasets.bench_select import resolve
    from costmodel.datasets.bench_select import select
    from costmodel.datasets.workloads.registry import all_cases
    from costmodel.datasets.workloads.registry import all_workloads
    from costmodel.hardware import load_hardware

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
        self._providers: dict[Path | None, Any] = {}
        self._held_out: Any = None
        if options.cross_fit_models is not None:
            from costmodel.training.held_out import read_held_out_models

            self._held_out = read_held_out_models(options.cross_fit_models)
        elif options.cross_fit:
            self._held_out = _cross_fit(options.cross_fit, folder)

    def of(self, family: str) -> Callable[[Any], Any]:
        """The way to pick for kernels of a family."""
        return lambda bound: self._provider(family, bound).pick(bound)

    def _provider(self, family: str, bound: Any) -> Any:
        from costmodel import helion_hook
        from costmodel.datasets.identity import kernel_digest
        from costmodel.provider import Provider

        path: Path | None = None if self._model_path is None else Path(self._model_path)
        if self._held_out is not None:
            digest = kernel_digest(helion_hook.record_of(bound))
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


def _cross_fit(corpora: Sequence[str], folder: Path) -> Any:
    """Train the held-out models of these corpora, and say which families are out."""
    from costmodel.datasets.identity import digest_of
    from costmodel.datasets.store import Corpus
    from costmodel.features.schema import SCHEMA
    from costmodel.training.held_out import held_out_models
    from costmodel.training.label import label_all

    workloads = []
    keys: list[str] = []
    for place in corpora:
        corpus = Corpus.load(place)
        workloads += corpus.workloads()
        keys += corpus.runs["run_key"].to_pylist()
    print(f"labelling {len(workloads)} workloads ...", file=sys.stderr)
    labelled = label_all(workloads)
    for reason in labelled.skipped:
        print(f"costmodel: left out: {reason}", file=sys.stderr)
    print(f"cross-fitting {len(labelled.workloads)} workloads ...", file=sys.stderr)
    found = held_out_models(
        labelled.workloads, SCHEMA, digest_of(sorted(set(keys)), 64), folder
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


def _report(options: argparse.Namespace) -> int:
    from rich.console import Console

    from costmodel.training.bench_plot import save_plot
    from costmodel.training.bench_report import as_json
    from costmodel.training.bench_report import make_report
    from costmodel.training.bench_show import markdown
    from costmodel.training.bench_show import show

    report = make_report(read_results(result_files(options.results)))
    if not report.scores:
        raise CorruptRecordError(
            f"{', '.join(map(str, options.results))}: expected a workload whose "
            "default ran, found none: measure with `costmodel bench run`"
        )
    if options.plot is not None:
        save_plot(report, options.plot)
    if options.markdown is not None:
        facts = [("report", f"`{options.command_line}`"), *_plan_facts(options.results)]
        plot = None if options.plot is None else options.plot.name
        options.markdown.write_text(markdown(report, facts, plot), encoding="utf-8")
    if options.json:
        print(json.dumps(as_json(report), indent=2))
    else:
        show(report, Console(width=180))
    return 0


def _plan_facts(places: Iterable[Path]) -> list[tuple[str, str]]:
    """How the plan was made, where it lies beside the results."""
    from costmodel.datasets.bench_file import read_plan

    for place in places:
        path = (place if place.is_dir() else place.parent) / PLAN_FILE
        if path.is_file():
            facts = read_plan(path).facts
            lines = [("plan", f"`{facts.get('command', '')}`, {facts.get('made', '')}")]
            models = facts.get("models") or {}
            corpus = str(facts.get("corpus_digest", ""))[:16]
            words = f", {len(models)} models, corpus {corpus}" if models else ""
            lines.append(("picks", f"{facts.get('protocol', '')}{words}"))
            refused = facts.get("refused") or ()
            if refused:
                lines.append(("not planned", f"{len(refused)} that do not bind"))
            return lines
    return []


def _require_gpu() -> None:
    """Say so at once where nothing can be measured.

    Raises:
        CostModelError: No CUDA device.
    """
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            return
    raise CostModelError(
        "expected a CUDA GPU to measure on, found none: `costmodel bench plan` and "
        "`report` need none; run `costmodel bench run` on the GPU's machine"
    )
