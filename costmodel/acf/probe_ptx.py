"""Small programs to try a control file on; made here, from nothing but this file.

A control file of the wrong stage is ignored by ptxas without a word, so each program
leaves it something to decide: which registers to spill, how far apart to put loads and
their uses, how to feed a matrix unit. All target sm_80, so that any later GPU's code
can be made of them.
"""

from __future__ import annotations

from collections.abc import Mapping

_HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"

_LIVE_VALUES = 56
_REGISTER_LIMIT = 48  # fewer than the values alive at once: some must spill
_LOADS_PER_ROUND = 8
_TILES = 8  # accumulators of 4 registers each


def probe_programs() -> Mapping[str, str]:
    """PTX by name."""
    return {
        "stream": _stream(),
        "products": _products(),
        "pressure": _pressure(),
    }


def _kernel(name: str, declarations: str, body: list[str], limit: str = "") -> str:
    lines = "\n".join(f"    {line}" for line in body)
    return (
        f"{_HEAD}.visible .entry {name}(.param .u64 source, .param .u64 result,\n"
        f"    .param .u32 rounds)\n.maxntid 256, 1, 1{limit}\n{{\n    {declarations}\n"
        "    .reg .b64 %a<8>;\n    .reg .b32 %i<8>;\n    .reg .pred %p<2>;\n"
        "    ld.param.u64 %a1, [source];\n    ld.param.u64 %a2, [result];\n"
        "    ld.param.u32 %i1, [rounds];\n    mov.u32 %i2, %tid.x;\n"
        "    mul.wide.u32 %a3, %i2, 4;\n    add.s64 %a4, %a1, %a3;\n"
        f"    add.s64 %a5, %a2, %a3;\n{lines}\n    ret;\n}}\n"
    )


def _pressure() -> str:
    """More values alive at once than a thread may have registers."""
    n = _LIVE_VALUES
    body = [f"ld.global.f32 %f{i}, [%a4+{1024 * i}];" for i in range(n)]
    for stride in (1, 7, 31):
        body += [
            f"fma.rn.f32 %f{i}, %f{i}, %f{(i + stride) % n}, %f{(i * 5 + 1) % n};"
            for i in range(n)
        ]
    body += [f"st.global.f32 [%a5+{1024 * i}], %f{i};" for i in range(n)]
    limit = f"\n.maxnreg {_REGISTER_LIMIT}"
    return _kernel("pressure", f".reg .f32 %f<{n}>;", body, limit)


def _stream() -> str:
    """A loop of loads whose uses could be near or far."""
    body = ["mov.f32 %f0, 0f00000000;", "mov.u32 %i3, 0;", "round:"]
    for i in range(1, _LOADS_PER_ROUND + 1):
        body.append(f"ld.global.f32 %f{i}, [%a4+{1024 * i}];")
    for i in range(1, _LOADS_PER_ROUND + 1):
        body += [
            f"ex2.approx.f32 %f{i + 8}, %f{i};",
            f"fma.rn.f32 %f0, %f{i + 8}, %f{i}, %f0;",
        ]
    body += [
        f"add.s64 %a4, %a4, {1024 * _LOADS_PER_ROUND};",
        "add.u32 %i3, %i3, 1;",
        "setp.lt.u32 %p1, %i3, %i1;",
        "@%p1 bra round;",
        "st.global.f32 [%a5], %f0;",
    ]
    return _kernel("stream", ".reg .f32 %f<24>;", body)


def _products() -> str:
    """A loop of matrix products fed from memory, with several accumulators."""
    n = 4 * _TILES
    body = [f"mov.f32 %f{i}, 0f00000000;" for i in range(n)]
    body += ["mov.u32 %i3, 0;", "round:"]
    body += [f"ld.global.b32 %x{i}, [%a4+{1024 * i}];" for i in range(4 + 2 * _TILES)]
    for tile in range(_TILES):
        d = ", ".join(f"%f{4 * tile + j}" for j in range(4))
        b = f"%x{4 + 2 * tile}, %x{5 + 2 * tile}"
        body.append(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            f"{{{d}}}, {{%x0, %x1, %x2, %x3}}, {{{b}}}, {{{d}}};"
        )
    body += [
        f"add.s64 %a4, %a4, {1024 * (4 + 2 * _TILES)};",
        "add.u32 %i3, %i3, 1;",
        "setp.lt.u32 %p1, %i3, %i1;",
        "@%p1 bra round;",
    ]
    body += [f"st.global.f32 [%a5+{1024 * i}], %f{i};" for i in range(n)]
    registers = f".reg .f32 %f<{n}>;\n    .reg .b32 %x<{4 + 2 * _TILES}>;"
    return _kernel("products", registers, body)
