"""A config that names a control file, made fit for this machine, or freed of it.

Tuned entries, exports and configs of other machines name control files that may be
gone, or made for another ptxas: such a compile would fail. Then the config goes without
one, with a line that says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from costmodel import helion_hook
from costmodel.acf.catalogue import AcfCatalogue
from costmodel.acf.identity import KNOB
from costmodel.acf.identity import acf_id_of
from costmodel.acf.identity import record_name
from costmodel.acf.identity import to_helion
from costmodel.acf.identity import without_acf
from costmodel.acf.toolchain import how_to_get
from costmodel.acf.toolchain import triton_ptxas
from costmodel.errors import UnknownAcfError
from costmodel.hardware import match_hardware
from costmodel.types import Config
from costmodel.types import ReasonCode


def resolved(
    bound: Any, config: Config
) -> tuple[Config, tuple[ReasonCode, str] | None]:
    """The config as Helion can compile it here.

    Args:
        bound: The kernel it is for.
        config: With a control file's path, its digest, or without any.

    Returns:
        The config, and why it lost its control file, where it did.
    """
    name = config.get(KNOB)
    if not name:
        return config, None
    objection = helion_hook.controls_objection(bound)
    if not isinstance(name, str) or objection is not None:
        words = objection or f"expected a path, found {name!r}"
        return without_acf(config), (ReasonCode.ACF_UNSUPPORTED, words)
    named = {**config, KNOB: record_name(name)}
    catalogue = AcfCatalogue.open()
    digest = acf_id_of(named)
    try:
        entry = None if digest is None else catalogue.entry(digest)
    except UnknownAcfError:
        entry = None
    if entry is None and Path(name).is_file():
        return config, None  # a path of the user's own, for them to answer for
    record = helion_hook.record_of(helion_hook.underlying(bound))
    major, minor = match_hardware(record.hardware).hardware.compute_capability
    tool = triton_ptxas(major * 10 + minor)
    if entry is not None and (tool is None or not entry.is_for_ptxas(tool.version)):
        here = "none" if tool is None else tool.version
        words = (
            f"control file {entry.acf_id[:12]} is made for ptxas {entry.cuda}, found "
            f"{here}: {how_to_get(entry.cuda)}"
        )
        return without_acf(config), (ReasonCode.ACF_TOOLCHAIN, words)
    found, why_not = to_helion(named, catalogue)
    if why_not is not None:
        return found, (ReasonCode.ACF_MISSING, why_not)
    return found, None
