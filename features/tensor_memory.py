"""Tensor memory of one program, on GPUs whose MMA keeps its results there (sm100).

A result of up to 128 rows takes as many columns as it has (32-bit elements); more rows
take as many again. Results that a loop adds to stay while it runs, beside each other;
others take turns. So does an attention's result over a batch, whose change of shape
takes it to registers between two trips. Loops that follow each other use the same
columns, and a product that is added to another value is made there. A left operand that
is computed from loads has columns of its own. Allocations are powers of two of at least
32 columns (PTX ISA, tcgen05.alloc). Checked on kernels compiled for sm100
(`benchmarks/check_limits.py`).
"""

from __future__ import annotations

import numpy as np

from costmodel.features.launch import Launch
from costmodel.features.launch import is_group
from costmodel.features.staging import DotPlan
from costmodel.features.staging import StagingPlan
from costmodel.features.symbols import Sizes

_ROWS = 128.0
_LEAST_COLUMNS = 32.0
_COLUMN_BYTES = 4.0  # of one row


def tensor_memory_columns(plan: StagingPlan, launch: Launch) -> Sizes:
    """Columns that one program allocates: float64[n] or float64[1]; 0 without MMA."""
    most = np.zeros(1)
    if not launch.hardware.has_tcgen05:
        return most
    stays: dict[int, Sizes] = {}
    for one in {d.dot.node_id: d for loop in plan.loops for d in loop.dots}.values():
        dot = one.dot
        kept = _left_columns(launch, one)
        columns = _columns(launch, one, launch.tiles.dim(dot.n))
        if dot.carried and not (dot.rescaled and dot.batch):
            kept = kept + columns
        elif dot.node_id not in launch.chains.added:
            most = np.maximum(most, columns)
        stays[dot.graph_id] = stays.get(dot.graph_id, np.zeros(1)) + kept
    kept = np.zeros(1)
    for columns in stays.values():
        kept = np.maximum(kept, columns)
    return allocated(kept + most)


def _left_columns(launch: Launch, one: DotPlan) -> Sizes:
    """Columns of a left operand that arithmetic makes from loads."""
    left = one.left
    if left.is_plain or left.is_product or one.dot.lhs_loaded:
        return np.zeros(1)
    words = launch.tiles.dim(one.dot.k) * left.tile[1] / _COLUMN_BYTES
    return _columns(launch, one, words)


def _columns(launch: Launch, one: DotPlan, columns: Sizes) -> Sizes:
    """Columns that a tile of a dot's rows takes, where the dot is done there."""
    rows = np.ceil(launch.tiles.dim(one.dot.m) / _ROWS)
    found: Sizes = np.where(is_group(launch, one.dot), columns * rows, 0.0)
    return found


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
