"""A control file of an export, by its digest, for a line pasted above a kernel."""

from __future__ import annotations

import logging

from costmodel.acf.catalogue import AcfCatalogue
from costmodel.acf.identity import KNOB
from costmodel.acf.identity import to_helion
from costmodel.acf.toolchain import triton_ptxas

log = logging.getLogger("costmodel")


def control_file(name: str) -> str:
    """Where the control file lies on this machine; "" means none to Helion.

    Args:
        name: `sha256:DIGEST`, as `costmodel pick` and `costmodel export` print it.

    Returns:
        A path in the catalogue. "" where the catalogue lacks the file or where the
        ptxas that Triton runs is of another CUDA minor; a warning says which, and the
        kernel compiles without one.
    """
    tool = triton_ptxas()
    version = "0.0" if tool is None else tool.version
    config, why = to_helion({KNOB: name}, AcfCatalogue.open(), version)
    if why is not None:
        log.warning("costmodel: %s", why)
    return str(config.get(KNOB, ""))
