"""Config files of serving engines, in the two layouts that have been used.

`folders`: one folder for each kernel, in it one file for each GPU, an array of
`{"key": {...}, "config": {...}}` in which an empty key is the default entry.
`kernels`: one file for each kernel, GPU -> key as text -> config, with an entry
"default".

Beside the files lies a list of the entries that we wrote (`MANIFEST`). An entry that is
not on it, or was changed since, belongs to somebody else and is never touched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.errors import ExportError
from costmodel.export_plan import KernelExport
from costmodel.features.canonical import config_id
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.types import Config

MANIFEST = ".costmodel-export.json"

_DEFAULT = "default"

Written = dict[str, dict[str, str]]
"""Per file, per key as text: the id of the config that we wrote."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A file's new content.

    Attributes:
        text: What to write.
        ours: Keys as text, with the id of the config, that are now ours.
        kept: Keys of ours that the file already answers, by somebody else.
    """

    text: str
    ours: Mapping[str, str]
    kept: tuple[str, ...]


def gpu_file_name(hardware: Hardware) -> str:
    """What engines call a GPU: `nvidia_h200`."""
    name = hardware.aliases[0] if hardware.aliases else hardware.name
    words = name.lower().replace("-", " ").split()
    return "_".join(["nvidia", *(word for word in words if word != "nvidia")])


def key_text(key: Mapping[str, Any]) -> str:
    """A key in one spelling: `width_4096_tokens_64`; "default" for the empty one."""
    return "_".join(f"{name}_{value}" for name, value in key.items()) or _DEFAULT


def answers(export: KernelExport) -> list[tuple[Mapping[str, Any], Config]]:
    """Keys with their configs, the default entry first.

    Raises:
        ExportError: A shape has no key, or two shapes share one but not their config.
    """
    found: dict[str, tuple[Mapping[str, Any], Config]] = {
        _DEFAULT: ({}, export.configs[0])
    }
    for entry in export.entries:
        key, config = entry.case.key, export.configs[entry.index]
        if not key:
            raise ExportError(
                f"{export.name}: expected a key for {entry.case.label!r}: name its "
                "sizes, as in 'bf16[tokens,4096]' with tokens=1,64"
            )
        text = key_text(key)
        if text in found and found[text][1] != config:
            raise ExportError(f"{export.name}: two shapes have the key {text}")
        found[text] = (key, config)
    return list(found.values())


def merge_folder_file(
    existing: str | None, export: KernelExport, written: Mapping[str, str]
) -> Merged:
    """One GPU's array with our entries in it.

    Args:
        existing: The file's text, or None.
        export: What we have to say.
        written: From the manifest: what is ours in this file.

    Raises:
        ExportError: The file is not such an array.
    """
    entries = [] if existing is None else _parsed(existing)
    if not isinstance(entries, list) or not all(
        isinstance(e, dict) and isinstance(e.get("key"), dict) for e in entries
    ):
        raise ExportError("expected an array of {key, config}: another layout?")
    places = {
        _place(entry["key"]): index for index, entry in reversed([*enumerate(entries)])
    }
    ours: dict[str, str] = {}
    kept = []
    for key, config in answers(export):
        text = key_text(key)
        place = places.get(_place(key))
        if place is None:
            entries.append({"key": dict(key), "config": config})
        elif _is_ours(entries[place].get("config"), config, written.get(text)):
            entries[place] = {"key": dict(key), "config": config}
        else:
            kept.append(text)
            continue
        ours[text] = config_id(config)
    return Merged(_dumped(entries), ours, tuple(kept))


def merge_kernel_file(
    existing: str | None, gpu: str, export: KernelExport, written: Mapping[str, str]
) -> Merged:
    """One kernel's file with our entries for one GPU in it.

    Raises:
        ExportError: The file is not of this layout.
    """
    found = {} if existing is None else _parsed(existing)
    if not _is_nested(found):
        raise ExportError("expected GPU -> key -> config: another layout?")
    mine = found.setdefault(gpu, {})
    ours: dict[str, str] = {}
    kept = []
    for key, config in answers(export):
        text = key_text(key)
        if text in mine and not _is_ours(mine[text], config, written.get(text)):
            kept.append(text)
            continue
        mine[text] = config
        ours[text] = config_id(config)
    return Merged(_dumped(found), ours, tuple(kept))


def read_manifest(folder: Path) -> Written:
    """What we wrote in a folder before; nothing where there is no manifest.

    Raises:
        ExportError: It is damaged; then nothing tells ours from others'.
    """
    path = folder / MANIFEST
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ExportError(f"{path}: cannot be read ({error}): remove it") from error
    if not _is_nested(found):
        raise ExportError(f"{path}: expected file -> key -> id: remove it")
    written: Written = found
    return written


def _is_nested(found: object) -> bool:
    """Whether it is an object of objects."""
    if not isinstance(found, dict):
        return False
    return all(isinstance(value, dict) for value in found.values())


def manifest_text(written: Written) -> str:
    """The manifest's content."""
    return json.dumps(written, indent=1, sort_keys=True) + "\n"


def _is_ours(found: object, config: Config, known: str | None) -> bool:
    """Whether an entry may be replaced: we wrote it, or it says the same anyway."""
    if not isinstance(found, dict):
        return False
    return found == config or config_id(found) == known


def _place(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ExportError(f"expected JSON, found {error}") from error


def _dumped(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
