"""Hard limits of a GPU: what certainly does not run, and why, in words."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from costmodel.features.tiles import is_readable
from costmodel.types import Config

if TYPE_CHECKING:
    from costmodel.features.extract import FeatureExtractor

# Triton refuses a tensor of more elements (TRITON_MAX_TENSOR_NUMEL, triton.language).
MAX_TILE_NUMEL = 2**20
# Estimated need over what a thread may have. Up to 9 times it all ran on an H200
# (streaming kernels reuse registers long before the estimate says so), at 16 times one
# ran 17 times slower than the default; beyond that compiling alone times out.
_GROSS_NEED = 16.0


class Limit(enum.StrEnum):
    """Why a config cannot run."""

    UNREADABLE = "block sizes do not fit this kernel"
    THREADS = "more threads than a CTA may have"
    TILE = "a tile of more than 2^20 elements"
    SHARED_MEMORY = "more shared memory than a CTA may have"
    TENSOR_MEMORY = "more tensor memory than an SM has"
    INSTRUCTION = "an instruction that needs more registers than a thread may have"
    REGISTERS = "tiles several times larger than the register file"


def reasons(
    extractor: FeatureExtractor, configs: Sequence[Config]
) -> list[tuple[Limit, ...]]:
    """Limits that each config breaks; empty for one that may run."""
    found: list[tuple[Limit, ...]] = [(Limit.UNREADABLE,)] * len(configs)
    rows, broken = _broken(extractor, configs)
    for place, row in enumerate(rows):
        found[row] = tuple(limit for limit, bad in broken.items() if bad[place])
    return found


def _broken(
    extractor: FeatureExtractor, configs: Sequence[Config]
) -> tuple[Sequence[int], dict[Limit, npt.NDArray[np.bool_]]]:
    """Rows of readable configs, and for each limit, which of these rows break it."""
    rows: Sequence[int] = range(len(configs))
    # What was evaluated before was readable.
    resources = extractor.known_resources(configs)
    if resources is None:
        rows = [i for i, c in enumerate(configs) if is_readable(extractor.graph, c)]
        if not rows:
            return rows, {}
        resources = extractor.resources([configs[i] for i in rows])
    hardware = extractor.hardware
    capacity = np.minimum(
        float(hardware.max_regs_per_thread), hardware.regs_per_sm / resources.threads
    )
    # Shared memory is refused by the best estimate and not by `upper.py`'s bound: of
    # the configs that ran on an H200 it refuses 1 in 1000, the bound a quarter.
    return rows, {
        Limit.THREADS: resources.threads > hardware.max_threads_per_cta,
        Limit.TILE: resources.max_tile_numel > MAX_TILE_NUMEL,
        Limit.SHARED_MEMORY: resources.smem_bytes > hardware.smem_per_cta_bytes,
        Limit.TENSOR_MEMORY: resources.tmem_columns > hardware.tmem_columns,
        Limit.INSTRUCTION: resources.instruction_registers > resources.register_cap,
        Limit.REGISTERS: resources.regs_per_thread > _GROSS_NEED * capacity,
    }


def feasible(
    extractor: FeatureExtractor, configs: Sequence[Config]
) -> npt.NDArray[np.bool_]:
    """Whether each config keeps all hard limits: bool[n]."""
    rows, broken = _broken(extractor, configs)
    fits = np.zeros(len(configs), dtype=np.bool_)
    if len(rows):
        fits[np.asarray(rows)] = ~np.any(list(broken.values()), axis=0)
    return fits
