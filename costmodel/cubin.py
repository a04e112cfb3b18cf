"""Machine code inside a cubin, and a digest of it.

A cubin is a little-endian 64-bit ELF file. Its `.text` sections hold instructions and
nothing else; the rest holds line numbers, names and the assembler's command line, which
differ between two compilations of one program.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable

_DIGEST_DIGITS = 16
_BYTES_PER_INSTRUCTION = 16  # Volta and later
_NOTE = b".note.nv.tkinfo"
_CONTROLS = re.compile(rb"-apply-controls[ =]([^ \0]+)")


def text_digest(cubin: bytes) -> str:
    """16 hex digits over the `.text` sections of a 64-bit ELF file, in file order.

    Falls back to the whole file where it is no ELF.
    """
    digest = hashlib.sha256()
    for data in text_sections(cubin) or [cubin]:
        digest.update(data)
    return digest.hexdigest()[:_DIGEST_DIGITS]


def launch_digest(cubins: Iterable[bytes]) -> str:
    """One digest for all kernels of one call, in the order they are defined."""
    digests = [text_digest(cubin) for cubin in cubins]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:_DIGEST_DIGITS]


def n_instructions(cubin: bytes) -> int:
    """Instructions of all `.text` sections, padding included."""
    return sum(map(len, text_sections(cubin))) // _BYTES_PER_INSTRUCTION


def text_sections(cubin: bytes) -> list[bytes]:
    """Contents of the sections named `.text*` of a little-endian 64-bit ELF file."""
    return [data for name, data in _sections(cubin) if name.startswith(b".text")]


def applied_controls(cubin: bytes) -> str | None:
    """Path of the control file that the assembler was given, by the cubin's own note.

    The note repeats the assembler's command line. None means that no control file
    reached it, whatever the caller believes.
    """
    for name, data in _sections(cubin):
        found = _CONTROLS.search(data) if name == _NOTE else None
        if found is not None:
            return found[1].decode(errors="replace")
    return None


def _sections(cubin: bytes) -> list[tuple[bytes, bytes]]:
    """Names and contents, in file order; none of what is no ELF file of our kind."""
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
        found.append((name, cubin[offset : offset + length]))
    return found
