"""What the compiler made of a config: registers, spills and a digest of the code.

About a third of the near-optimal configs of a search are duplicates of another's
machine code: knowing so gives free repeat timings. The digest covers the instructions
alone, since the rest of a cubin holds line numbers and names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from costmodel.acf.identity import KNOB
from costmodel.acf.identity import acf_id_of
from costmodel.acf.identity import record_name
from costmodel.cubin import applied_controls
from costmodel.cubin import launch_digest
from costmodel.datasets.side_file import AttemptFacts

_BYTES_PER_SPILL = 4  # Triton counts spilled 32-bit registers


def attempt_facts(kernels: Iterable[Any], readings_us: Iterable[float]) -> AttemptFacts:
    """Facts of one config from its compiled Triton kernels, none if there are none.

    Several kernels of one launch count as one: the worst registers, all spills.
    """
    compiled = list(kernels)
    readings = tuple(readings_us)
    if not compiled:
        return AttemptFacts(readings_us=readings)
    return AttemptFacts(
        readings_us=readings,
        code_digest=launch_digest(kernel.asm["cubin"] for kernel in compiled),
        registers=_largest(compiled, "n_regs"),
        spill_bytes=sum((k.n_spills or 0) for k in compiled) * _BYTES_PER_SPILL,
        smem_bytes=max(int(kernel.metadata.shared) for kernel in compiled),
        acf_id=_acf_id(kernel.asm["cubin"] for kernel in compiled),
    )


def _acf_id(cubins: Iterable[bytes]) -> str | None:
    """Digest of the control file that reached the assembler, while it is there."""
    for path in map(applied_controls, cubins):
        if path is not None:
            return acf_id_of({KNOB: record_name(path)})
    return None


def _largest(kernels: Iterable[Any], name: str) -> int | None:
    values = [getattr(kernel, name) for kernel in kernels]
    return max((int(v) for v in values if v is not None), default=None)
