"""`costmodel export`: configs for a fleet, in files that others read."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from costmodel.acf.identity import KNOB
from costmodel.cli_kernel import decorator_line
from costmodel.errors import ExportError
from costmodel.export_controls import ControlNames
from costmodel.export_files import FileChange
from costmodel.export_files import write_export
from costmodel.export_plan import KernelExport
from costmodel.export_plan import plan_export
from costmodel.hardware import load_hardware
from costmodel.kernel_file import load_kernel
from costmodel.migrate_files import read_config_file
from costmodel.provider import Provider
from costmodel.shape_list import DEFAULT_CONFIGS
from costmodel.shape_list import KernelJob
from costmodel.shape_list import make_cases
from costmodel.shape_list import read_list
from costmodel.types import Config


def export(arguments: argparse.Namespace) -> int:
    """Plan, write, say what was done."""
    jobs = _jobs(arguments)
    if arguments.layout != "decorator" and not arguments.output:
        raise ExportError("expected --output DIR for files: name a folder")
    hardware = load_hardware(arguments.gpu)
    provider = Provider(arguments.model)
    controls = ControlNames(
        found.config
        for name in arguments.candidates
        for found in read_config_file(Path(name))[1]
    )
    pairs = []
    for place, job in enumerate(jobs, start=1):
        kernel = load_kernel(job.reference)
        words = f"[{place}/{len(jobs)}] {kernel.name}: {len(job.cases)} shapes"
        print(words, file=sys.stderr)
        limit = 1 if arguments.layout == "decorator" else job.max_configs
        plan = plan_export(
            kernel,
            job.cases,
            hardware,
            provider,
            max_configs=limit,
            name=job.name,
            extra=controls.configs,
            for_older=arguments.for_helion == "1.4",
        )
        pairs.append((kernel, plan))
    changes: list[FileChange] = []
    if arguments.layout != "decorator":
        changes = write_export(
            pairs,
            Path(arguments.output),
            arguments.layout,
            gpu_file=arguments.gpu_file,
            dry_run=arguments.dry_run,
        )
    plans = [plan for _, plan in pairs]
    if arguments.json:
        print(json.dumps(_as_json(plans, changes, arguments, controls), indent=2))
        return 0
    for plan in plans:
        _print_plan(plan, controls, with_decorator=arguments.layout == "decorator")
    for change in changes:
        _print_change(change, arguments.dry_run)
    if arguments.layout == "aot" and not arguments.dry_run:
        folder = Path(arguments.output).resolve()
        print(
            f"\nAll {hardware.arch} GPUs read it: "
            f"from beside the source, or with\n"
            f"  HELION_HEURISTIC_DIR={folder}\n"
            f"in kernels made with helion.aot_kernel, or in all with\n"
            f"  HELION_AUTOTUNE_CACHE=AOTAutotuneCache"
        )
    return 0


def _jobs(arguments: argparse.Namespace) -> tuple[KernelJob, ...]:
    if bool(arguments.kernel) == bool(arguments.list):
        raise ExportError("expected FILE.py:KERNEL or --list FILE, one of the two")
    limit = arguments.max_configs
    if limit is not None and limit < 1:
        raise ExportError(f"expected --max-configs of at least 1, found {limit}")
    if arguments.list:
        if arguments.shapes or arguments.sizes:
            raise ExportError("expected shapes in the list, found --shape or --size")
        jobs = read_list(Path(arguments.list))
        if limit is None:
            return jobs
        return tuple(KernelJob(j.reference, j.name, j.cases, limit) for j in jobs)
    sizes = dict(size_of(text) for text in arguments.sizes)
    if not arguments.shapes:
        raise ExportError("expected --shape SPEC ..., once for each set of arguments")
    cases = [case for specs in arguments.shapes for case in make_cases(specs, sizes)]
    return (KernelJob(arguments.kernel, "", tuple(cases), limit or DEFAULT_CONFIGS),)


def size_of(text: str) -> tuple[str, list[int]]:
    """A `NAME=1,64` option."""
    name, equals, values = text.partition("=")
    try:
        if not equals or not name.isidentifier():
            raise ValueError
        return name, [int(value) for value in values.split(",")]
    except ValueError:
        raise ExportError(f"expected --size NAME=1,64,4096, found {text!r}") from None


def _print_plan(
    plan: KernelExport, controls: ControlNames, *, with_decorator: bool
) -> None:
    gpu = f"{plan.hardware.name} ({plan.hardware.arch})"
    print(f"\n{plan.name}, {gpu}, model {plan.model_id or 'none'}")
    how = "all sets compared" if plan.is_exact else "by additions and swaps"
    print(
        f"  {len(plan.configs)} configs for {len(plan.entries)} shapes ({how}); time "
        f"over a config of its own for each shape, predicted, doubt added: "
        f"mean {_percent(plan.mean_loss_log)}, worst {_percent(plan.worst_loss_log)}"
    )
    for entry in plan.entries:
        print(
            f"  {entry.case.label}: config {entry.index}, "
            f"{_percent(entry.loss_log)} ({entry.source})"
        )
    if plan.default_fails_at and not with_decorator:
        count = len(plan.default_fails_at)
        print(f"  config 0, the default entry, cannot run at {count} of the shapes")
    if with_decorator:
        print(decorator_line(_named(plan.configs[0], controls)))
        return
    for index, config in enumerate(plan.configs):
        name = controls.name_of(config)
        if name is not None:
            print(
                f"  config {index} is written without its control file {name}: who "
                "reads these files cannot look it up"
            )


def _named(config: Config, controls: ControlNames) -> Config:
    """The config with the control file that it came with, by digest."""
    name = controls.name_of(config)
    return config if name is None else {**config, KNOB: name}


def _percent(loss_log: float) -> str:
    return f"{math.expm1(loss_log):+.1%}" if loss_log > 0 else "the same"


def _print_change(change: FileChange, dry_run: bool) -> None:
    verb = "would write" if dry_run else "wrote"
    print(f"{verb if change.changed else 'unchanged'} {change.path}")
    for name in change.kept:
        print(f"  kept as it is, not ours: {name}")


def _as_json(
    plans: list[KernelExport],
    changes: list[FileChange],
    arguments: argparse.Namespace,
    controls: ControlNames,
) -> dict[str, Any]:
    return {
        "gpu": plans[0].hardware.name,
        "layout": arguments.layout,
        "kernels": [
            {
                "name": plan.name,
                "configs": [_named(config, controls) for config in plan.configs],
                "shapes": [
                    {
                        "arguments": entry.case.label,
                        "key": dict(entry.case.key),
                        "weight": entry.case.weight,
                        "config": entry.index,
                        "loss_log": entry.loss_log,
                        "source": entry.source,
                    }
                    for entry in plan.entries
                ],
                "mean_loss_log": plan.mean_loss_log,
                "worst_loss_log": plan.worst_loss_log,
                "default_fails_at": list(plan.default_fails_at),
                "exact": plan.is_exact,
                "model": plan.model_id,
                "decorator": decorator_line(_named(plan.configs[0], controls)),
            }
            for plan in plans
        ],
        "files": [
            {
                "path": str(change.path),
                "changed": change.changed,
                "kept": list(change.kept),
            }
            for change in changes
        ],
    }
