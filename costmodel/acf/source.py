"""Read what a user points at: a file, a folder of files, a folder with a list.

Lists are `acf.toml`, ours, or `manifest.json`, whose fields go by several names since
packs differ. A list says what each file is for; without one, all are for anything.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodel.acf.entry import PTXAS_STAGE
from costmodel.acf.entry import is_acf_id
from costmodel.acf.identity import KNOWN
from costmodel.acf.identity import MAX_BYTES
from costmodel.errors import AcfSourceError
from costmodel.frozen import dataclass

TOML_NAME = "acf.toml"
JSON_NAME = "manifest.json"
SUFFIX = ".acf"

_FIELDS = {
    "file": ("file", "path", "filename", "acf", "acf_file"),
    "sha256": ("sha256", "digest", "hash", "checksum"),
    "cuda": ("cuda", "cuda_version", "ctk", "ctk_version", "ptxas", "ptxas_version"),
    "stage": ("stage", "compiler", "tool"),
    "kernels": ("kernels", "kernel", "kernel_names", "kernel_name"),
    "gpus": ("gpus", "gpu", "archs", "arch", "devices", "device"),
    "name": ("name", "title", "id"),
    "notice": ("notice", "license", "provenance", "source", "description"),
}
"""What a field may be called, ours first."""

_NAMES = frozenset(name for names in _FIELDS.values() for name in names)

_LISTS = ("acf", "acfs", "files", "entries", "controls", "packs")


@dataclass(frozen=True, slots=True)
class Offer:
    """A file that somebody offers to the catalogue, and what a list says of it.

    Attributes:
        path: Of the file.
        label: How to name it to the user.
        sha256: Digest that the list gives; None if it gives none.
        cuda: CUDA minor; None if nobody says.
        stage: Part of the compiler it is for.
        kernels: Patterns of kernels it is for; () for any.
        gpus: GPUs it is for; () for any.
        name: For people.
        notice: Provenance.
    """

    path: Path
    label: str
    sha256: str | None = None
    cuda: str | None = None
    stage: str = PTXAS_STAGE
    kernels: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    name: str = ""
    notice: str = ""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A file that is not taken, and why, in one line."""

    label: str
    why: str


@dataclass(frozen=True, slots=True)
class Source:
    """What a folder offers; what its list leaves out or spells wrongly is rejected."""

    offers: tuple[Offer, ...]
    rejected: tuple[Rejection, ...] = ()


def read_source(source: Path) -> Source:
    """List what a file or a folder offers, in the order of names.

    Raises:
        AcfSourceError: It is not there, holds nothing, or its list cannot be read.
    """
    if source.is_file() and source.name not in (TOML_NAME, JSON_NAME):
        return Source((Offer(source, source.name, name=source.stem),))
    folder = source.parent if source.is_file() else source
    if not folder.is_dir():
        raise AcfSourceError(
            f"expected a control file or a folder of them, found nothing at {source}"
        )
    for name in (TOML_NAME, JSON_NAME) if source.is_dir() else (source.name,):
        if (folder / name).is_file():
            return _listed(folder, name)
    files = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    if not files:
        raise AcfSourceError(
            f"expected *{SUFFIX}, {TOML_NAME} or {JSON_NAME} in {folder}, found none"
        )
    return Source(tuple(Offer(path, path.name, name=path.stem) for path in files))


def read_content(path: Path) -> bytes:
    """Bytes of a control file.

    Raises:
        ValueError: It cannot be read, is empty or far too large; one line.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ValueError(f"expected at most {MAX_BYTES} bytes, found {size}")
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    if not content:
        raise ValueError("is empty")
    return content


def _listed(folder: Path, name: str) -> Source:
    body = _parsed(folder / name)
    common, items = _split(body, folder / name)
    offers, rejected = [], []
    for number, item in enumerate(items, start=1):
        fields = {"file": item} if isinstance(item, str) else item
        label = f"{name} entry {number}"
        try:
            if not isinstance(fields, Mapping):
                raise ValueError(f"expected a table, found {item!r}")
            if name == TOML_NAME:
                _refuse_unknown(fields)
            offers.append(_offer(folder, {**common, **_known(fields)}))
        except ValueError as error:
            rejected.append(Rejection(label, str(error)))
    listed = {offer.path.resolve() for offer in offers}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        if path.resolve() not in listed:
            rejected.append(Rejection(path.name, f"is not listed in {name}"))
    return Source(tuple(offers), tuple(rejected))


def _parsed(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise AcfSourceError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        words = " ".join(str(error).split())
        raise AcfSourceError(f"{path}: expected a list, found: {words}") from None


def _split(body: Any, path: Path) -> tuple[dict[str, Any], Sequence[Any]]:
    """What holds for all, and the entries."""
    if isinstance(body, list):
        return {}, body
    if isinstance(body, Mapping):
        for key in _LISTS:
            items = body.get(key)
            if isinstance(items, Mapping):
                # By file name, as in {"files": {"a.acf": {...}}}.
                items = [
                    {"file": name, **(more if isinstance(more, Mapping) else {})}
                    for name, more in items.items()
                ]
            if isinstance(items, list):
                others = {k: v for k, v in body.items() if k != key}
                if path.name == TOML_NAME:
                    try:
                        _refuse_unknown(others)
                    except ValueError as error:
                        raise AcfSourceError(f"{path}: {error}") from None
                common = _known(others)
                common.pop("file", None)
                common.pop("sha256", None)
                return common, items
    raise AcfSourceError(
        f"{path}: expected one of the lists {', '.join(_LISTS)} with an entry for each "
        "control file, found none"
    )


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields under our names; what we do not know is left out."""
    found = {}
    for ours, names in _FIELDS.items():
        for name in names:
            if fields.get(name) is not None:
                found[ours] = fields[name]
                break
    return found


def _refuse_unknown(fields: Mapping[str, Any]) -> None:
    """In our own list an unknown key is a slip; packs of others hold what they like.

    Raises:
        ValueError: There is one; one line.
    """
    unknown = sorted(name for name in fields if name not in _NAMES)
    if unknown:
        raise ValueError(
            f"expected keys such as {', '.join(_FIELDS)}, found {', '.join(unknown)}: "
            "mend or remove it"
        )


def _offer(folder: Path, fields: Mapping[str, Any]) -> Offer:
    """An entry of a list, checked.

    Raises:
        ValueError: It cannot be used; one line.
    """
    file = _text(fields, "file")
    if file is None:
        raise ValueError("names no file")
    path = folder / file
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{file} lies outside the folder of the list")
    digest = _text(fields, "sha256")
    if digest is not None:
        digest = digest.lower().removeprefix(KNOWN)
        if not is_acf_id(digest):
            raise ValueError(f"{file}: expected 64 hex digits, found {digest!r}")
    cuda = _text(fields, "cuda")
    if cuda is not None:
        found = re.search(r"(\d+)\.(\d+)", cuda)
        if found is None:
            raise ValueError(
                f'{file}: expected a CUDA minor such as "13.3", found {cuda!r}'
            )
        cuda = f"{found[1]}.{found[2]}"
    return Offer(
        path,
        file,
        digest,
        cuda,
        (_text(fields, "stage") or PTXAS_STAGE).lower(),
        _texts(fields, "kernels"),
        _texts(fields, "gpus"),
        _text(fields, "name") or path.stem,
        _text(fields, "notice") or "",
    )


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value or None
    raise ValueError(f"expected text for {name}, found {value!r}")


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = fields.get(name, [])
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise ValueError(f"expected texts for {name}, found {value!r}")
    return tuple(values)
