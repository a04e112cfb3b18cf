"""What the compiler made of a config: registers, spills and a digest of the code.

About a third of the near-optimal configs of a search are duplicates of another's
machine code: knowing so gives free repeat timings. The digest covers the instructions
alone, since the rest of a cubin holds line numbers and names.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Any

from costmodel.datasets.side_file import AttemptFacts

_BYTES_PER_SPILL = 4  # Triton counts spilled 32-bit registers
_DIGEST_DIGITS = 16


def text_digest(cubin: bytes) -> str:
    """16 hex digits over the `.text` sections of a 64-bit ELF file, in file order.

    Falls back to the whole file where it is no ELF.
    """
    digest = hashlib.sha256()
    for data in text_sections(cubin) or [cubin]:
        digest.update(data)
    return digest.hexdigest()[:_DIGEST_DIGITS]


def text_sections(cubin: bytes) -> list[bytes]:
    """Contents of the sections named `.text*` of a little-endian 64-bit ELF file."""
    if cubin[:6] != b"\x7fELF\x02\x01":
        return []
    (table,) = struct.unpack_from("<Q", cubin, 40)  # e_shoff
    size, count, names_index = struct.unpack_from("<HHH", cubin, 58)
    headers = []
    for i in range(count):
        # sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size
        fields = struct.unpack_from("<IIQQQQ", cubin, table + i * size)
        headers.append((fields[0], fields[4], fields[5]))
    _, names_offset, _ = headers[names_index]
    found = []
    for name_offset, offset, length in headers:
        start = names_offset + name_offset
        name = cubin[start : cubin.index(b"\0", start)]
        if name.startswith(b".text"):
            found.append(cubin[offset : offset + length])
    return found


def attempt_facts(kernels: Iterable[Any], readings_us: Iterable[float]) -> AttemptFacts:
    """Facts of one config from its compiled Triton kernels, none if there are none.

    Several kernels of one launch count as one: the worst registers, all spills.
    """
    compiled = list(kernels)
    readings = tuple(readings_us)
    if not compiled:
        return AttemptFacts(readings_us=readings)
    digests = "".join(text_digest(kernel.asm["cubin"]) for kernel in compiled)
    if len(compiled) > 1:
        digests = hashlib.sha256(digests.encode()).hexdigest()[:_DIGEST_DIGITS]
    return AttemptFacts(
        readings_us=readings,
        code_digest=digests,
        registers=_largest(compiled, "n_regs"),
        spill_bytes=sum((k.n_spills or 0) for k in compiled) * _BYTES_PER_SPILL,
        smem_bytes=max(int(kernel.metadata.shared) for kernel in compiled),
    )


def _largest(kernels: Iterable[Any], name: str) -> int | None:
    values = [getattr(kernel, name) for kernel in kernels]
    return max((int(v) for v in values if v is not None), default=None)
