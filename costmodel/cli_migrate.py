"""`costmodel migrate`: config files of other Helion versions, made current."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from costmodel import helion_hook
from costmodel.atomic_file import write_atomically
from costmodel.cli_export import size_of
from costmodel.errors import ConfigFileError
from costmodel.errors import ExportError
from costmodel.hardware import Hardware
from costmodel.hardware import load_hardware
from costmodel.kernel_file import load_kernel
from costmodel.migrate import ConfigReport
from costmodel.migrate import migrate_config
from costmodel.migrate_files import FoundConfig
from costmodel.migrate_files import MigratedFile
from costmodel.migrate_files import migrate_file
from costmodel.migrate_rules import FieldStatus
from costmodel.migrate_source import holds_calls
from costmodel.migrate_source import migrate_source
from costmodel.shape_list import make_cases
from costmodel.target import bind
from costmodel.target import targeting


def migrate(arguments: argparse.Namespace) -> int:
    """Read all files, report, then write: all or nothing."""
    paths = [Path(name) for name in arguments.files]
    hardware = load_hardware(arguments.gpu)
    with contextlib.ExitStack() as stack:
        judge: Callable[[FoundConfig], ConfigReport] = _unproven
        if arguments.kernel:
            stack.enter_context(targeting(hardware))
            judge = _Judge(arguments, hardware)
        elif arguments.args:
            raise ConfigFileError("expected --kernel with --arg, found --arg alone")
        files = [_migrated(path, judge) for path in paths]
    written = _write(files, Path(arguments.output)) if arguments.output else []
    if arguments.json:
        print(json.dumps(_as_json(files, written), indent=2))
        return 0
    for one in files:
        _print_file(one)
    if not arguments.kernel:
        print("\nnot proven: name the kernel (--kernel, --arg) to check every field")
    for path in written:
        print(f"wrote {path}")
    return 0


def _migrated(path: Path, judge: Callable[[FoundConfig], ConfigReport]) -> MigratedFile:
    """JSON where the file holds it, else configs written as Python."""
    if path.suffix == ".py":
        return migrate_source(path, judge)
    try:
        return migrate_file(path, judge)
    except ConfigFileError:
        if not path.is_file() or not holds_calls(path.read_bytes()):
            raise
    return migrate_source(path, judge)


def _unproven(found: FoundConfig) -> ConfigReport:
    return migrate_config(found.config, None)


class _Judge:
    """Binds the kernel once for each shape that the entries' keys name."""

    def __init__(self, arguments: argparse.Namespace, hardware: Hardware) -> None:
        self._kernel = load_kernel(arguments.kernel)
        self._templates = arguments.args
        self._sizes = {n: v[0] for n, v in map(size_of, arguments.sizes)}
        self._hardware = hardware
        self._bound: dict[str, Any] = {}

    def __call__(self, found: FoundConfig) -> ConfigReport:
        named = {n: v for n, v in found.key.items() if type(v) is int and v >= 1}
        wanted = {**self._sizes, **named}
        text = " ".join(self._templates)
        sizes = {name: [value] for name, value in wanted.items() if name in text}
        try:
            (case,) = make_cases(self._templates, sizes)
        except ExportError as error:
            raise ConfigFileError(
                f"{found.place}: {error}; name a size for entries without it, --size"
            ) from error
        if case.label not in self._bound:
            self._bound[case.label] = bind(self._kernel, case.arguments, self._hardware)
        return migrate_config(found.config, self._bound[case.label])


def _write(files: list[MigratedFile], folder: Path) -> list[Path]:
    """New files beside nothing of value: inputs stay, other contents are refused."""
    texts: dict[Path, str] = {}
    for one in files:
        target = folder / one.path.name
        if target in texts:
            raise ConfigFileError(f"two files are named {one.path.name}: migrate apart")
        if isinstance(one.content, str):
            texts[target] = one.content
        elif one.content is not None:
            texts[target] = json.dumps(one.content, indent=2) + "\n"
        if one.refused:
            aside = folder / f"{one.path.name}.refused.json"
            texts[aside] = json.dumps(one.refused, indent=2) + "\n"
    for path, text in texts.items():
        if path.exists() and path.read_bytes() != text.encode():
            raise ConfigFileError(
                f"{path}: is there and holds something else: name a new --output folder"
            )
    for path, text in texts.items():
        write_atomically(path, text)
    return list(texts)


def _print_file(one: MigratedFile) -> None:
    counts = Counter(report.status for _, report in one.reports)
    words = ", ".join(f"{counts[status]} {status.value}" for status in FieldStatus)
    print(f"{one.path}: {len(one.reports)} configs: {words}")
    for found, report in one.reports:
        why = f": {report.reason}" if report.reason else ""
        print(f"  {found.place}: {report.status.value}{why}")
        for line in report.fields:
            if line.status is not FieldStatus.KEPT:
                arrow = "" if line.status is FieldStatus.REFUSED else f" -> {line.new}"
                print(
                    f"    {line.name} {line.status.value}: {line.old}{arrow}: "
                    f"{line.reason}"
                )


def _as_json(files: list[MigratedFile], written: list[Path]) -> dict[str, Any]:
    return {
        "helion": helion_hook.installed_versions()["helion"],
        "files": [
            {
                "path": str(one.path),
                "configs": [
                    {
                        "place": found.place,
                        "status": report.status.value,
                        "reason": report.reason,
                        "config": report.new,
                        "filled": report.filled,
                        "fields": [
                            {
                                "name": line.name,
                                "status": line.status.value,
                                "old": line.old,
                                "new": line.new,
                                "reason": line.reason,
                            }
                            for line in report.fields
                        ],
                    }
                    for found, report in one.reports
                ],
            }
            for one in files
        ],
        "written": [str(path) for path in written],
    }
