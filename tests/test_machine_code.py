"""The digest sees instructions and nothing else."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from costmodel.cubin import applied_controls
from costmodel.cubin import text_digest
from costmodel.cubin import text_sections
from costmodel.datasets.machine_code import attempt_facts


def _elf(sections: dict[str, bytes]) -> bytes:
    """A minimal little-endian 64-bit ELF file with these sections."""
    names = b"\0"
    places = {}
    for name in (*sections, ".shstrtab"):
        places[name] = len(names)
        names += name.encode() + b"\0"
    contents = {**sections, ".shstrtab": names}
    body = b""
    offsets = {}
    for name, data in contents.items():
        offsets[name] = 64 + len(body)
        body += data
    headers = b"".join(
        struct.pack(
            "<IIQQQQIIQQ", places[n], 1, 0, 0, offsets[n], len(data), 0, 0, 1, 0
        )
        for n, data in contents.items()
    )
    head = b"\x7fELF\x02\x01" + b"\0" * 34
    head += struct.pack("<Q", 64 + len(body))
    head += struct.pack("<IHHHHHH", 0, 64, 0, 0, 64, len(contents), len(contents) - 1)
    assert len(head) == 64
    return head + body + headers


@given(code=st.binary(max_size=99), lines=st.binary(max_size=99))
def test_line_numbers_do_not_change_the_digest(code: bytes, lines: bytes) -> None:
    plain = _elf({".text.k": code, ".debug_line": b""})
    other = _elf({".debug_line": lines, ".text.k": code})
    assert text_sections(other) == [code]
    assert text_digest(plain) == text_digest(other)
    assert text_digest(_elf({".text.k": code + b"\1"})) != text_digest(plain)


def test_a_file_that_is_no_elf_is_digested_whole() -> None:
    assert text_digest(b"abc") != text_digest(b"abd")


def test_the_note_tells_which_control_file_reached_the_assembler(
    tmp_path: Path,
) -> None:
    path = tmp_path / "some.acf"
    path.write_bytes(b"whatever it is")
    words = f"V13.3.73\0-apply-controls {path} -v -arch sm_90a\0".encode()
    noted = _elf({".text.k": b"code", ".note.nv.tkinfo": words})
    plain = _elf({".text.k": b"code", ".note.nv.tkinfo": b"V13.3.73\0-v -arch sm_90a"})
    assert applied_controls(noted) == str(path)
    assert applied_controls(plain) is None and applied_controls(b"no ELF") is None
    assert text_digest(noted) == text_digest(plain)

    def recorded(cubin: bytes) -> str | None:
        kernel = SimpleNamespace(
            asm={"cubin": cubin},
            n_regs=8,
            n_spills=0,
            metadata=SimpleNamespace(shared=0),
        )
        return attempt_facts([kernel], ()).acf_id

    digest = hashlib.sha256(b"whatever it is").hexdigest()
    assert recorded(noted) == digest and recorded(plain) is None
    path.unlink()
    assert recorded(noted) is None


def test_several_kernels_of_a_launch_count_as_one() -> None:
    def kernel(code: bytes, regs: int, spills: int, shared: int) -> SimpleNamespace:
        return SimpleNamespace(
            asm={"cubin": _elf({".text.k": code})},
            n_regs=regs,
            n_spills=spills,
            metadata=SimpleNamespace(shared=shared),
        )

    one, two = kernel(b"a", 32, 0, 4096), kernel(b"b", 255, 10, 1024)
    facts = attempt_facts([one, two], [12.5])
    assert (facts.registers, facts.spill_bytes, facts.smem_bytes) == (255, 40, 4096)
    assert facts.readings_us == (12.5,)
    assert facts.code_digest not in {attempt_facts([one], []).code_digest}
    assert attempt_facts([], [1.0]).code_digest is None
