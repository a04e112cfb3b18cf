"""A control file's name in records and exports: its content, never its path.

Helion's configs hold a path, and the same path may hold another file tomorrow or on
another machine. Records hold `sha256:DIGEST`, or `unknown:DIGEST OF THE PATH` where
nobody can tell any more what the file was: such rows are neither those of a known
control file nor those without one.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.acf.entry import is_acf_id
from costmodel.errors import UnknownAcfError
from costmodel.types import Config

if TYPE_CHECKING:
    from costmodel.acf.catalogue import AcfCatalogue

KNOB = "advanced_controls_file"
KNOWN = "sha256:"
UNKNOWN = "unknown:"

MAX_BYTES = 1 << 20
"""More than any control file holds; those seen have 1 to 44 kB."""

_UNKNOWN_DIGITS = 16
_CATALOGUE_PATH = re.compile(r"(?:^|/)ptxas-\d+\.\d+/([0-9a-f]{64})\.acf$")


def to_record(config: Config, as_of_s: float | None = None) -> Config:
    """The config with its control file named by content.

    Args:
        config: As Helion spells it; without a control file it comes back as it is.
        as_of_s: Unix time at which the config was used. A file that was written later
            says nothing about it.
    """
    path = config.get(KNOB)
    if not isinstance(path, str) or not path:
        return config
    return {**config, KNOB: record_name(path, as_of_s)}


def record_name(path: str, as_of_s: float | None = None) -> str:
    """`sha256:DIGEST` of a control file, else `unknown:...`; both stay as they are."""
    if path.startswith((KNOWN, UNKNOWN)):
        return path
    # A path of a catalogue names the content itself, on whatever machine it was.
    catalogued = _CATALOGUE_PATH.search(path)
    if catalogued is not None:
        return KNOWN + catalogued[1]
    digest = _file_digest(Path(path), as_of_s)
    if digest is not None:
        return KNOWN + digest
    return UNKNOWN + hashlib.sha256(path.encode()).hexdigest()[:_UNKNOWN_DIGITS]


def acf_id_of(config: Config) -> str | None:
    """Digest of the control file of a recorded config; None without one, or where
    nobody knows it."""
    name = config.get(KNOB)
    if not isinstance(name, str) or not name.startswith(KNOWN):
        return None
    digest = name.removeprefix(KNOWN)
    return digest if is_acf_id(digest) else None


def without_acf(config: Config) -> Config:
    """The same config with ptxas left to itself."""
    return {key: value for key, value in config.items() if key != KNOB}


def to_helion(
    config: Config, catalogue: AcfCatalogue, ptxas_version: str | None = None
) -> tuple[Config, str | None]:
    """The config as this machine's Helion can compile it.

    Args:
        config: One of a record or an export. A plain path, which is the user's own
            and of this machine, stays as it is.
        catalogue: Where control files are looked up.
        ptxas_version: Of the assembler that will run, if it is known: another CUDA
            minor than the file's would refuse it.

    Returns:
        The config, with the path of the file here or without any, and in the second
        case one line that says why.
    """
    name = config.get(KNOB)
    if not isinstance(name, str) or not name.startswith((KNOWN, UNKNOWN)):
        return config, None
    digest = acf_id_of(config)
    if digest is None:
        return without_acf(config), (
            f"the config was recorded with a control file that nobody knows ({name}): "
            "compiled without one"
        )
    try:
        entry = catalogue.entry(digest)
        path = catalogue.path(digest)
    except UnknownAcfError as error:
        return without_acf(config), f"{error}; compiled without one"
    if ptxas_version is not None and not entry.is_for_ptxas(ptxas_version):
        return without_acf(config), (
            f"control file {digest[:12]} is made for ptxas {entry.cuda}, found "
            f"{ptxas_version}: compiled without one"
        )
    return {**config, KNOB: str(path)}, None


def content_digest(content: bytes) -> str:
    """What `AcfEntry.acf_id` is: SHA-256, 64 hex digits."""
    return hashlib.sha256(content).hexdigest()


def _file_digest(path: Path, as_of_s: float | None) -> str | None:
    try:
        facts = path.stat()
        if not path.is_file() or facts.st_size > MAX_BYTES:
            return None
        if as_of_s is not None and facts.st_mtime > as_of_s:
            return None
        return content_digest(path.read_bytes())
    except (OSError, ValueError):  # ValueError: a zero byte in the path
        return None
