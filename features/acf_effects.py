"""Features of a control file's effect on one config: differences in machine code.

A pair is compared with its own config without the file, so that a file which changes
nothing has a row of zeros but for what the code is like. A schema of its own: the first
stage sees no control files, and its hash does not depend on this.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from costmodel.features.compiled import CodeFacts
from costmodel.features.compiled import occupancy_ctas
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.types import FloatArray

ACF_FEATURES: tuple[tuple[str, str], ...] = (
    ("acf_instructions_log2", "log2 ratio"),
    ("acf_registers", "count"),
    ("acf_registers_log2", "log2 ratio"),
    ("acf_spill_log2", "log2 ratio"),
    ("acf_spill_bytes", "bytes"),
    ("acf_stack_log2", "log2 ratio"),
    ("acf_occupancy_log2", "log2 ratio"),
    ("acf_ends_spills", "bool"),
    ("acf_starts_spills", "bool"),
    ("none_spill_log2", "log2 bytes"),
    ("none_registers", "count"),
    ("none_instructions_log2", "log2 count"),
    ("none_occupancy_ctas", "count"),
    ("none_spill_per_instruction", "bytes"),
)
"""Differences first, then what the code is like without the file."""

ACF_NAMES: tuple[str, ...] = tuple(name for name, _ in ACF_FEATURES)

ACF_SCHEMA_HASH = hashlib.sha256(
    "\n".join(["v1", *(f"{name}\t{unit}" for name, unit in ACF_FEATURES)]).encode()
).hexdigest()[:16]
"""Names what a model of pairs was trained on; 16 hex digits."""

N_DIFFERENCES = sum(name.startswith("acf_") for name in ACF_NAMES)
"""The first so many columns are zero for the config itself."""


@dataclass(frozen=True, slots=True)
class EffectFacts:
    """Machine code of one config, with a control file or without.

    Attributes:
        registers: 32-bit registers of a thread.
        stack_bytes: Local memory of a thread.
        spill_bytes: Bytes a thread moves because of spills.
        smem_bytes: Shared memory of a CTA.
        num_warps: Warps of a CTA.
        n_instructions: Of the whole code, padding included.
    """

    registers: int
    stack_bytes: int
    spill_bytes: int
    smem_bytes: int
    num_warps: int
    n_instructions: int


def effect_matrix(
    found: Sequence[EffectFacts], none: Sequence[EffectFacts], hardware: Hardware
) -> FloatArray:
    """Rows for a model of pairs.

    Args:
        found: Code of n pairs.
        none: Code of the same configs without a control file.
        hardware: The target.

    Returns:
        float32[n, len(ACF_NAMES)].
    """
    rows = [_row(a, b, hardware) for a, b in zip(found, none, strict=True)]
    return np.array(rows, dtype=np.float32).reshape(len(rows), len(ACF_NAMES))


def _row(found: EffectFacts, none: EffectFacts, hardware: Hardware) -> list[float]:
    occupancy = occupancy_of(found, hardware)
    before = occupancy_of(none, hardware)
    return [
        _ratio(found.n_instructions, none.n_instructions),
        float(found.registers - none.registers),
        _ratio(found.registers, none.registers),
        _ratio(1 + found.spill_bytes, 1 + none.spill_bytes),
        float(found.spill_bytes - none.spill_bytes),
        _ratio(1 + found.stack_bytes, 1 + none.stack_bytes),
        _ratio(occupancy, before),
        float(found.spill_bytes == 0 < none.spill_bytes),
        float(none.spill_bytes == 0 < found.spill_bytes),
        math.log2(1 + none.spill_bytes),
        float(none.registers),
        math.log2(max(1, none.n_instructions)),
        float(before),
        none.spill_bytes / max(1, none.n_instructions),
    ]


def occupancy_of(facts: EffectFacts, hardware: Hardware) -> int:
    """CTAs of this code that an SM holds at a time; at least 1."""
    code = CodeFacts(
        registers=facts.registers,
        stack_bytes=facts.stack_bytes,
        spill_bytes=facts.spill_bytes,
        smem_bytes=facts.smem_bytes,
        num_warps=facts.num_warps,
        n_instructions=facts.n_instructions,
        counts={},
        innermost=(),
        load_bytes=0,
        bytes_in_flight=0,
        pending_copy_groups=None,
        has_wgmma=False,
        has_tma=False,
    )
    return occupancy_ctas(code, hardware)


def _ratio(found: float, none: float) -> float:
    return math.log2(max(found, 1) / max(none, 1))
