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
from collections.abc import Callable
from collections.abc import Iterable
from pathlib import Path

from costmodel.datasets import bench_options
from costmodel.datasets import bench_run
from costmodel.datasets.bench_file import read_results
from costmodel.datasets.bench_file import result_files
from costmodel.errors import CorruptRecordError
from costmodel.errors import CostModelError

PLAN_FILE = "plan.jsonl"
MODELS_FOLDER = "held-out"


def say_on_stderr(line: str) -> None:
    """What a reader of results leaves out, for a person."""
    print(f"costmodel: {line}", file=sys.stderr)


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
    bench_options.add_options(run)
    run.set_defaults(step=_run)

    report = steps.add_parser(
        "report", help="table, plot and page of what was measured"
    )
    report.add_argument("results", nargs="+", type=Path, help="files or folders of run")
    _report_options(report)
    report.set_defaults(step=_report)

    taken = steps.add_parser("import", help="append what was measured to a corpus")
    taken.add_argument("results", nargs="+", type=Path, help="files or folders of run")
    taken.add_argument("--corpus", type=Path, required=True, metavar="DIR")
    taken.add_argument("--gpu", default="H200", help="where it ran; default: H200")
    taken.add_argument("--json", action="store_true")
    taken.set_defaults(step=_import)

    everything = steps.add_parser("all", help="plan, run and report on one machine")
    _planning_options(everything)
    everything.add_argument("--output", type=Path, required=True, metavar="DIR")
    bench_options.add_measuring_options(everything)
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
        help="ids, kernels, families, 'KERNEL ARG ...', 'FILE.py:KERNEL ARG ...', or a "
        "FILE.py that lists CASES; none means every registered one",
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
    if options.output.is_dir():
        # Before minutes of picking, not after.
        raise CostModelError(
            f"--output: expected a file, found the folder {options.output}: name a "
            f"file such as {options.output / PLAN_FILE}"
        )
    _write_plan(options, options.output)
    return 0


def _run(options: argparse.Namespace) -> int:
    if not options.dry_run:
        _require_gpu()
    return bench_run.run(options)


def _import(options: argparse.Namespace) -> int:
    from costmodel import cli_bench_import

    return cli_bench_import.run(options)


def _all(options: argparse.Namespace) -> int:
    _require_gpu()
    plan = options.output / PLAN_FILE
    if plan.exists():
        print(f"going on with {plan}", file=sys.stderr)
    else:
        _write_plan(options, plan)
    made = argparse.ArgumentParser()
    bench_options.add_options(made)
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


def _write_plan(options: argparse.Namespace, path: Path) -> None:
    from costmodel import cli_bench_plan

    cli_bench_plan.write(options, path, path.parent / MODELS_FOLDER)


def _report(options: argparse.Namespace) -> int:
    from rich.console import Console

    from costmodel.training.bench_plot import save_plot
    from costmodel.training.bench_report import as_json
    from costmodel.training.bench_report import make_report
    from costmodel.training.bench_show import markdown
    from costmodel.training.bench_show import show

    report = make_report(read_results(result_files(options.results), say_on_stderr))
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
