"""Find the files of each log: given files, base paths or folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from costmodel.datasets.side_file import SUFFIX as SIDE_SUFFIX

# Longest first: ".sources.csv" also ends in ".csv".
_SUFFIXES = {
    "sources": ".sources.csv",
    "csv": ".csv",
    "meta": ".meta.jsonl",
    "old_meta": ".meta.json",
    "trace": ".trace.jsonl",
    "side": SIDE_SUFFIX,
}


@dataclass(frozen=True, slots=True)
class LogFiles:
    """One log: a base path and those of its files that exist.

    Attributes:
        name: Base name without folders; with the folders below the one that was
            given where two logs would have the same name.
        csv: Attempts.
        meta: Workloads, one a line; `old_meta` is the one object of the old layout.
        trace: Events with full precision.
        side: Our own facts.
        sources: Digests of generated code.
    """

    name: str
    csv: Path | None = None
    meta: Path | None = None
    old_meta: Path | None = None
    trace: Path | None = None
    side: Path | None = None
    sources: Path | None = None

    def label(self, path: Path) -> str:
        """Name of one of its files for people: like the log's, with the suffix."""
        base = self.name.rpartition("/")[2]
        return self.name + path.name[len(base) :]


def find_logs(paths: Iterable[Path | str]) -> tuple[list[LogFiles], list[str]]:
    """Find every log under the given paths, in sorted order.

    Args:
        paths: A file of a log, its base path as given to HELION_AUTOTUNE_LOG, or a
            folder, which is searched with its sub-folders.

    Returns:
        The logs, and one message per path that leads to none.
    """
    found: dict[Path, str] = {}
    missing = []
    for path in map(Path, paths):
        bases = _bases_under(path)
        if not bases:
            missing.append(_why_nothing(path))
        found.update((base, name) for base, name in bases.items() if base not in found)
    short = Counter(base.name for base in found)
    logs = [
        LogFiles(name=base.name if short[base.name] == 1 else name, **_files_of(base))
        for base, name in sorted(found.items(), key=lambda item: str(item[0]))
    ]
    return logs, missing


def _bases_under(path: Path) -> dict[Path, str]:
    """Base paths by resolved path, each with its name relative to what was given."""
    if path.is_dir():
        root = path.resolve()
        bases = {_base_of(file) for file in root.rglob("*") if file.is_file()}
        return {
            base: f"{root.name}/{base.relative_to(root).as_posix()}"
            for base in bases
            if base is not None
        }
    base = _base_of(path) if path.is_file() else path
    # Helion replaces the last suffix: base path "run.v1" writes "run.csv".
    for candidate in (base, path.with_suffix("")) if base is not None else ():
        resolved = candidate.resolve()
        if _files_of(resolved):
            return {resolved: f"{resolved.parent.name}/{resolved.name}"}
    return {}


def _base_of(file: Path) -> Path | None:
    for suffix in _SUFFIXES.values():
        if file.name.endswith(suffix) and len(file.name) > len(suffix):
            return file.with_name(file.name[: -len(suffix)])
    return None


def _files_of(base: Path) -> dict[str, Path]:
    files = {
        kind: base.with_name(base.name + suffix) for kind, suffix in _SUFFIXES.items()
    }
    return {kind: file for kind, file in files.items() if file.is_file()}


def _why_nothing(path: Path) -> str:
    from costmodel.datasets.store import is_corpus  # PyArrow takes a while to import

    if is_corpus(path):
        return (
            f"{path}: expected Helion autotune logs, found a corpus: this is a corpus "
            "already, which `costmodel train` takes as it is"
        )
    if path.is_dir():
        return (
            f"{path}: expected Helion autotune logs (*.csv with *.meta.jsonl), found "
            "none: record with HELION_AUTOTUNE_LOG and HELION_AUTOTUNE_LOG_DETAILS=1"
        )
    if path.is_file():
        return f"{path}: expected a .csv or .meta.jsonl of a Helion log"
    return (
        f"{path}: no such file or folder: name a log (.csv), the base path of one, "
        "or a folder of logs"
    )
