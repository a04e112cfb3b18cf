"""Named barriers of a program, and how many programs of them an SM holds.

What Triton makes without warp specialisation waits at barrier 0 alone; a program of one
warp waits at none. The others that Triton uses, `mbarrier` objects of descriptor loads
and of tensor memory, are words of shared memory and counted there.
"""

from __future__ import annotations

import numpy as np

from costmodel.features.symbols import Sizes
from costmodel.hardware import Hardware

# Named barriers that one CTA may use (PTX ISA, `barrier`: operand a is 0 to 15).
NAMED_BARRIERS_PER_CTA = 16.0
# Barriers of an SM for each CTA that it may hold (cuda_occupancy.h of CUDA 12,
# `cudaOccMaxBlocksPerSMBlockBarrierLimit`).
_BARRIERS_PER_SLOT = 2.0


def named_barriers(threads: Sizes, hardware: Hardware) -> Sizes:
    """Named barriers of programs without warp specialisation: float64[n]."""
    found: Sizes = np.where(threads > float(hardware.warp_size), 1.0, 0.0)
    return found


def programs_by_barriers(barriers: Sizes, hardware: Hardware) -> Sizes:
    """Programs of so many barriers that fit one SM; infinite for none."""
    available = _BARRIERS_PER_SLOT * float(hardware.max_ctas_per_sm)
    found: Sizes = np.where(
        barriers > 0.0, np.floor(available / np.maximum(barriers, 1.0)), np.inf
    )
    return found
