"""Write planned configs in a layout: whole files, merged into what is there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodel.atomic_file import write_atomically
from costmodel.errors import ExportError
from costmodel.export_aot import aot_file_name
from costmodel.export_aot import aot_section
from costmodel.export_aot import merge_aot
from costmodel.export_json import MANIFEST
from costmodel.export_json import gpu_file_name
from costmodel.export_json import manifest_text
from costmodel.export_json import merge_folder_file
from costmodel.export_json import merge_kernel_file
from costmodel.export_json import read_manifest
from costmodel.export_plan import KernelExport
from costmodel.frozen import dataclass

LAYOUTS = ("aot", "folders", "kernels")


@dataclass(frozen=True, slots=True)
class FileChange:
    """What an export did to one file.

    Attributes:
        path: The file.
        changed: Whether its content is new.
        kept: What of ours it already answers by somebody else's hand; left alone.
    """

    path: Path
    changed: bool
    kept: tuple[str, ...] = ()


def write_export(
    exports: Sequence[tuple[Any, KernelExport]],
    folder: Path,
    layout: str,
    *,
    gpu_file: str | None = None,
    dry_run: bool = False,
) -> list[FileChange]:
    """Write all kernels' configs for one GPU.

    Files are prepared first and written last, so that nothing is written where one of
    them cannot be merged.

    Args:
        exports: Each kernel object with its plan.
        folder: Where; made if it is missing.
        layout: One of `LAYOUTS`.
        gpu_file: What the layout calls the GPU; None means as engines do.
        dry_run: Say what would change, write nothing.

    Raises:
        ExportError: A file that is there cannot be read as this layout.
    """
    if layout == "aot":
        texts = _aot_texts(exports, folder)
    elif layout in LAYOUTS:
        texts = _json_texts(exports, folder, layout, gpu_file)
    else:
        raise ExportError(f"expected a layout of {LAYOUTS}, found {layout!r}")
    changes = []
    for path, (text, kept) in texts.items():
        changed = _read(path) != text if dry_run else write_atomically(path, text)
        if path.name != MANIFEST:
            changes.append(FileChange(path, changed, tuple(kept)))
    return changes


_Texts = dict[Path, tuple[str, Sequence[str]]]


def _aot_texts(exports: Sequence[tuple[Any, KernelExport]], folder: Path) -> _Texts:
    sections: dict[Path, dict[str, str]] = {}
    for kernel, export in exports:
        source = kernel.fn.__code__.co_filename
        path = folder / aot_file_name(source, export.hardware.arch)
        mine = sections.setdefault(path, {})
        if kernel.name in mine:
            raise ExportError(f"{path.name}: two kernels are named {kernel.name}")
        mine[str(kernel.name)] = aot_section(kernel, export)
    texts: _Texts = {}
    for path, by_kernel in sections.items():
        try:
            texts[path] = merge_aot(_read(path), by_kernel)
        except ExportError as error:
            raise ExportError(f"{path}: {error}") from error
    return texts


def _json_texts(
    exports: Sequence[tuple[Any, KernelExport]],
    folder: Path,
    layout: str,
    gpu_file: str | None,
) -> _Texts:
    written = read_manifest(folder)
    texts: _Texts = {}
    for _kernel, export in exports:
        gpu = gpu_file or gpu_file_name(export.hardware)
        name = f"{export.name}/{gpu}" if layout == "folders" else export.name
        path = folder / f"{name}.json"
        if path in texts:
            raise ExportError(f"{path}: two kernels are named {export.name}")
        place = path.relative_to(folder).as_posix()
        mine = place if layout == "folders" else f"{place}:{gpu}"
        before = written.get(mine, {})
        try:
            merged = (
                merge_folder_file(_read(path), export, before)
                if layout == "folders"
                else merge_kernel_file(_read(path), gpu, export, before)
            )
        except ExportError as error:
            raise ExportError(f"{path}: {error}") from error
        texts[path] = (merged.text, merged.kept)
        written[mine] = {**before, **merged.ours}
        for key in merged.kept:
            # Someone else's now, whatever we wrote there once.
            written[mine].pop(key, None)
    texts[folder / MANIFEST] = (manifest_text(written), ())
    return texts


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ExportError(f"{path}: expected text, found {error.reason}") from error
    except OSError as error:
        raise ExportError(f"{path}: {os.strerror(error.errno or 0)}") from error
