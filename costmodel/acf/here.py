"""Control files on this machine: one by its digest, and all in a line."""

from __future__ import annotations

import logging
import os

from costmodel.acf.catalogue import AcfCatalogue
from costmodel.acf.identity import KNOB
from costmodel.acf.identity import to_helion
from costmodel.acf.toolchain import VARIABLES
from costmodel.acf.toolchain import triton_ptxas
from costmodel.errors import WrongArgumentError

log = logging.getLogger("costmodel")


def control_file(name: str) -> str:
    """Where the control file lies on this machine; "" means none to Helion.

    Args:
        name: `sha256:DIGEST`, as `costmodel pick` and `costmodel export` print it.

    Returns:
        A path in the catalogue. "" where the catalogue lacks the file or where the
        ptxas that Triton runs is of another CUDA minor; a warning says which, and the
        kernel compiles without one.

    Raises:
        WrongArgumentError: It is no text.
    """
    if not isinstance(name, str):
        raise WrongArgumentError(
            f"expected a name such as 'sha256:DIGEST', found {name!r}: take the line "
            "that `costmodel pick` prints"
        )
    tool = triton_ptxas()
    version = "0.0" if tool is None else tool.version
    config, why = to_helion({KNOB: name}, AcfCatalogue.open(), version)
    if why is not None:
        log.warning("costmodel: %s", why)
    return str(config.get(KNOB, ""))


def control_files_line() -> str:
    """How many are kept, and how many of them the ptxas that Triton runs takes."""
    catalogue = AcfCatalogue.open()
    kept = catalogue.entries()
    if not kept and not catalogue.problems:
        return f"none in {catalogue.root}"
    tool = triton_ptxas()
    version = "0.0" if tool is None else tool.version
    usable = sum(one.is_for_ptxas(version) for one in kept)
    line = f"{len(kept)} in {catalogue.root}, {usable} of them for this ptxas"
    if catalogue.problems:
        line += f", {len(catalogue.problems)} damaged (`costmodel acf list`)"
    return line


def ptxas_line() -> str:
    """The ptxas that Triton runs for Hopper and later, and variables that miss it."""
    tool = triton_ptxas()
    if tool is None:
        return "none"
    line = f"{tool.version} at {tool.path}"
    for name in VARIABLES:
        path = os.environ.get(name)
        if path and path != str(tool.path):
            line += f"; {name} names another, which Triton does not run for Hopper"
    return line
