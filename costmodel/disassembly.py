"""What machine code is made of: instruction classes, loops, loads and copies in flight.

Static counts alone; how often a loop runs is the features' business. The text read
here is what `nvdisasm -c -ndf` prints; Triton ships that tool.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path

from costmodel.frozen import dataclass

_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][\w.]*)\s*(?P<args>.*?)\s*;"
)
_LABEL = re.compile(r"^(\.L_x?_?\w+):")
_TARGET = re.compile(r"`\((\.L_x?_?\w+)\)")
_REGISTER = re.compile(r"\bR(\d+)\b")
# Asynchronous copy groups share scoreboard 0; a warp group's products have their own.
_COPY_WAIT = re.compile(r"^SB0, 0x([0-9a-f]+)")

# Shorter backward jumps spin on a barrier and do no work.
_MIN_LOOP_INSTRUCTIONS = 8
_TIME_LIMIT_S = 60.0

_PATTERNS = {
    "wgmma": "[HQIB]GMMA",
    "tcgen05": "UTC[A-Z]*MMA",
    "mma": "[HIQODB]MMA",
    "global_load": "LDG?",
    "global_store": "STG?",
    "async_copy": "LDGSTS",
    "shared_load": "LDSM?",
    "shared_store": "STSM?",
    "local_load": "LDL",
    "local_store": "STL",
    "atomic": "REDG?|ATOM[GS]?|UTMAREDG",
    "tma": "(?:UTMA|UBLK).*",
    "barrier": "BAR|WARPSYNC|SYNCS|WARPGROUP|DEPBAR|LDGDEPBAR|MEMBAR|FENCE",
    "special": "MUFU",
    "shuffle": "SHFL|REDUX|MATCH",
    "branch": "BRA|BRX|BSSY|BSYNC|BREAK|CALL|EXIT|JMP|RET|NANOSLEEP|YIELD",
    "padding": "NOP",
    "conversion": "F2F|F2I|I2F|F2FP|I2FP|F2IP|I2IP|FRND",
    "float": r"[FHD](?:ADD|MUL|FMA|MNMX|SEL|SETP?|CHK|SWZADD)\d?",
}
_CLASSES = {name: re.compile(pattern) for name, pattern in _PATTERNS.items()}

CLASSES = (*_CLASSES, "integer")
"""Every class; what is in no list moves or computes integers, addresses, predicates."""

_READS_FIRST_REGISTER = ("global_store", "shared_store", "local_store")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `LDG.E.128`, its class and operands, and where it jumps."""

    opcode: str
    kind: str
    operands: str
    target: int | None = None


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop in the code.

    Attributes:
        start: Index of its first instruction.
        end: Index of the jump back.
        depth: 1 for an outermost loop.
        is_innermost: Whether it holds no other loop.
        counts: Instructions by class, inner loops included.
    """

    start: int
    end: int
    depth: int
    is_innermost: bool
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CodeShape:
    """What one kernel's code shows.

    Attributes:
        n_instructions: Without padding at the end.
        counts: Instructions by class, those of `CLASSES` that occur.
        loops: In the order of their first instructions.
        load_bytes: Bytes that a thread's global loads and asynchronous copies move,
            each counted once.
        bytes_in_flight: Most bytes of global loads a thread has waiting at a time, in
            the straight order of the code or in two rounds of a loop.
        pending_copy_groups: In the main loop, groups of asynchronous copies still under
            way where it waits; 0 means it waits for all, None that there are none.
        has_wgmma: Whether warp groups multiply (Hopper).
        has_tcgen05: Whether tensor memory is multiplied into (Blackwell).
        has_tma: Whether tensors are copied by descriptor.
    """

    n_instructions: int
    counts: Mapping[str, int]
    loops: tuple[Loop, ...]
    load_bytes: int
    bytes_in_flight: int
    pending_copy_groups: int | None
    has_wgmma: bool
    has_tcgen05: bool
    has_tma: bool


def disassembler() -> Path | None:
    """Triton's `nvdisasm`, else one on the search path, else None."""
    try:
        shipped = importlib.resources.files("triton.backends.nvidia") / "bin/nvdisasm"
        if Path(str(shipped)).is_file():
            return Path(str(shipped))
    except ModuleNotFoundError:
        pass
    found = shutil.which("nvdisasm")
    return None if found is None else Path(found)


def disassemble(cubin: Path, tool: Path) -> CodeShape | None:
    """Read a cubin; None where the tool cannot."""
    try:
        done = subprocess.run(
            [str(tool), "-c", "-ndf", str(cubin)],
            capture_output=True,
            text=True,
            timeout=_TIME_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return code_shape(parse(done.stdout)) if done.returncode == 0 else None


@functools.cache
def class_of(opcode: str) -> str:
    """The class of an opcode such as `LDG.E.128`; one of `CLASSES`."""
    base = opcode.partition(".")[0]
    matching = (name for name, known in _CLASSES.items() if known.fullmatch(base))
    return next(matching, "integer")


def parse(text: str) -> list[Instruction]:
    """Instructions of a disassembly in their order, padding at the end left out."""
    read: list[tuple[str, str]] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        found = _INSTRUCTION.match(line)
        if found is not None:
            read.append((found["opcode"], found["args"]))
        elif (label := _LABEL.match(line)) is not None:
            labels[label[1]] = len(read)
    while read and read[-1][0] == "NOP":
        read.pop()
    instructions = []
    for opcode, operands in read:
        target = _TARGET.search(operands) if opcode.startswith("BRA") else None
        instructions.append(
            Instruction(
                opcode,
                class_of(opcode),
                operands,
                None if target is None else labels.get(target[1]),
            )
        )
    return instructions


def code_shape(code: Sequence[Instruction]) -> CodeShape:
    """Count, find loops and what is in flight."""
    counts = Counter(one.kind for one in code)
    loops = _loops(code)
    inner = [code[loop.start : loop.end + 1] for loop in loops if loop.is_innermost]
    main = max(inner, key=_work, default=())
    flights = [_bytes_in_flight(code), *(_bytes_in_flight([*c, *c]) for c in inner)]
    return CodeShape(
        n_instructions=len(code),
        counts=dict(sorted(counts.items())),
        loops=loops,
        load_bytes=_load_bytes(code),
        bytes_in_flight=max(flights),
        pending_copy_groups=_pending_copy_groups(main),
        has_wgmma=counts["wgmma"] > 0,
        has_tcgen05=counts["tcgen05"] > 0,
        has_tma=counts["tma"] > 0,
    )


def _loops(code: Sequence[Instruction]) -> tuple[Loop, ...]:
    """Backward jumps; those to one place are one loop."""
    ends: dict[int, int] = {}
    for index, one in enumerate(code):
        if one.target is not None and one.target <= index:
            ends[one.target] = max(ends.get(one.target, 0), index)
    spans = [
        (start, end)
        for start, end in sorted(ends.items())
        if end - start + 1 >= _MIN_LOOP_INSTRUCTIONS
    ]
    return tuple(
        Loop(
            start,
            end,
            depth=sum(s <= start and end <= e for s, e in spans),
            is_innermost=not any(
                start <= s and e <= end and (s, e) != (start, end) for s, e in spans
            ),
            counts=dict(
                sorted(Counter(one.kind for one in code[start : end + 1]).items())
            ),
        )
        for start, end in spans
    )


def _work(code: Sequence[Instruction]) -> tuple[int, int, int]:
    """What makes a loop the main one: products, then loads, then length."""
    counts = Counter(one.kind for one in code)
    products = counts["wgmma"] + counts["tcgen05"] + counts["mma"]
    return products, _load_bytes(code), len(code)


def _load_bytes(code: Sequence[Instruction]) -> int:
    return sum(
        _width_bytes(one.opcode)
        for one in code
        if one.kind in ("global_load", "async_copy")
    )


def _width_bytes(opcode: str) -> int:
    """Bytes a thread moves with one access; 4 where the opcode names no width."""
    parts = opcode.split(".")
    for part in parts[1:]:
        if part in ("128", "64"):
            return int(part) // 8
        if part in ("U16", "S16", "16"):
            return 2
        if part in ("U8", "S8"):
            return 1
    return 4


def _bytes_in_flight(code: Sequence[Instruction]) -> int:
    """Most bytes of loads issued before the first use of one of them."""
    waiting: dict[int, float] = {}
    most = 0.0
    for one in code:
        registers = [int(name) for name in _REGISTER.findall(one.operands)]
        reads = registers if one.kind in _READS_FIRST_REGISTER else registers[1:]
        if any(register in waiting for register in reads):
            # A use waits for its own load; those before it have mostly come as well.
            waiting.clear()
        if one.kind == "global_load" and registers:
            width = _width_bytes(one.opcode)
            n_registers = max(1, width // 4)
            for place in range(n_registers):
                waiting[registers[0] + place] = width / n_registers
            most = max(most, sum(waiting.values()))
    return round(most)


def _pending_copy_groups(main: Sequence[Instruction]) -> int | None:
    waits = [
        int(found[1], 16)
        for one in main
        if one.opcode.startswith("DEPBAR")
        and (found := _COPY_WAIT.match(one.operands)) is not None
    ]
    has_copies = any(one.kind == "async_copy" for one in main)
    return max(waits) if waits and has_copies else None
