"""Tensor memory of one program, on GPUs whose MMA keeps its results there (sm100).

A result of up to 128 rows takes as many columns as it has (32-bit elements); more rows
take as many again. Results that a loop adds to stay while it runs, beside each other;
others take turns. So does an attention's result over a batch, whose change of shape
takes it to registers between two trips. Loops that follow each other use the same
columns. Allocations are powers of two of at least 32 columns (PTX ISA, tcgen05.alloc).
Checked on kernels compiled for sm100 (`benchmarks/check_limits.py`).
"""

from __future__ import annotations

import numpy as np

from costmodel.features.graph import KernelGraph
from costmodel.features.launch import Launch
from costmodel.features.launch import is_group
from costmodel.features.symbols import Sizes

_ROWS = 128.0
_LEAST_COLUMNS = 32.0


def tensor_memory_columns(graph: KernelGraph, launch: Launch) -> Sizes:
    """Columns that one program allocates: float64[n] or float64[1]; 0 without MMA."""
    most = np.zeros(1)
    if not launch.hardware.has_tcgen05:
        return most
    stays: dict[int, Sizes] = {}
    for dot in graph.dots:
        rows = np.ceil(launch.tiles.dim(dot.m) / _ROWS)
        columns = np.where(is_group(launch, dot), launch.tiles.dim(dot.n) * rows, 0.0)
        if dot.carried and not (dot.rescaled and dot.batch):
            stays[dot.graph_id] = stays.get(dot.graph_id, np.zeros(1)) + columns
        else:
            most = np.maximum(most, columns)
    kept = np.zeros(1)
    for columns in stays.values():
        kept = np.maximum(kept, columns)
    return allocated(kept + most)


def allocated(columns: Sizes) -> Sizes:
    """Columns that an allocation of so many takes."""
    power = np.exp2(np.ceil(np.log2(np.maximum(columns, _LEAST_COLUMNS))))
    found: Sizes = np.where(columns > 0.0, power, 0.0)
    return found


def programs_by_columns(available: int, columns: Sizes) -> Sizes:
    """Programs of so many allocated columns that fit one SM; infinite for none."""
    found: Sizes = np.where(
        columns > 0.0, np.floor(available / np.maximum(columns, 1.0)), np.inf
    )
    return found
