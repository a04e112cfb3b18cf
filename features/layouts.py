"""Where Triton keeps the elements of a tile: in registers, across lanes, across warps.

A layout of power-of-two tiles is a set of bits: each bit of an index along a dimension
is decided by the register, by the lane or by the warp. A change of layout that moves
elements between warps goes through shared memory. Bits that both layouts keep in
registers beyond one vector are done one after another and share the buffer; the others
must all be there at once. (Triton 3.6 and 3.9, `optimalSwizzling`; checked on the
allocations of compiled kernels.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costmodel.features.symbols import Sizes

Bits = npt.NDArray[np.int64]

VECTOR_BYTES = 16.0  # widest access of a thread
_LANE_BITS = 5
_ONE_BIT = np.ones(1, dtype=np.int64)  # an array: NumPy takes long over its scalars
_ALL_LANES = np.full(1, _LANE_BITS, dtype=np.int64)
_NO_BITS = np.zeros(1, dtype=np.int64)


class Layout(NamedTuple):
    """Bits of each dimension that registers and warps decide, as masks: int64[n]."""

    registers: tuple[Bits, ...]
    warps: tuple[Bits, ...]


def bits(sizes: Sizes) -> Bits:
    """log2 of whole sizes, rounded up."""
    found: Bits = np.ceil(np.log2(np.maximum(sizes, 1.0))).astype(np.int64)
    return found


def _ones(low: Bits, high: Bits) -> Bits:
    """Mask of the bits low <= b < high."""
    high = np.maximum(high, low)
    found: Bits = np.left_shift(_ONE_BIT, high) - np.left_shift(_ONE_BIT, low)
    return found


def _lowest(count: Bits) -> Bits:
    """Mask of the bits b < count, which is not negative."""
    found: Bits = np.left_shift(_ONE_BIT, count) - _ONE_BIT
    return found


def blocked(
    dims: Sequence[Bits], order: Sequence[int], vector: Bits, warps: Bits
) -> Layout:
    """Layout of a load or store: vectors along `order[0]`, then lanes, then warps.

    Args:
        dims: log2 of each dimension.
        order: Dimensions, the contiguous one first.
        vector: log2 of the elements that a thread takes at a time.
        warps: log2 of the number of warps.
    """
    lanes_left, warps_left = _ALL_LANES, warps
    registers: list[Bits] = [warps] * len(dims)
    of_warps: list[Bits] = [warps] * len(dims)
    for place, dim in enumerate(order):
        first = np.minimum(vector, dims[dim]) if place == 0 else _NO_BITS
        room = np.maximum(dims[dim] - first, 0)
        if place == len(order) - 1:
            lanes, across = lanes_left, warps_left
        else:
            lanes = np.minimum(room, lanes_left)
            across = np.minimum(room - lanes, warps_left)
        lanes_left, warps_left = lanes_left - lanes, warps_left - across
        low = first + lanes
        end = np.minimum(low + across, dims[dim])
        of_warps[dim] = _ones(np.minimum(low, dims[dim]), end)
        spread = _ones(end, dims[dim])
        registers[dim] = _lowest(first) | spread if place == 0 else spread
    return Layout(tuple(registers), tuple(of_warps))


def mma_warps(
    m: Bits, n: Bits, warps: Bits, is_group: npt.NDArray[np.bool_]
) -> tuple[Bits, Bits]:
    """log2 of the warps along rows and along columns of an MMA result.

    Warp groups go along rows as far as there are 16 for each warp; older MMA splits
    the side with more instructions (16 by 8 each) left.
    """
    of_rows, of_columns = np.maximum(m - 4, 0), np.maximum(n - 3, 0)
    ahead = of_rows - of_columns  # rows take a warp where they are not behind
    even = np.minimum(warps, of_rows + of_columns)
    first = np.minimum(even, np.abs(ahead) + (ahead >= 0))
    rest = even - first
    rows = np.where(ahead >= 0, first + rest // 2, (rest + 1) // 2)
    rows = rows + warps - even
    rows = np.where(is_group, np.minimum(np.clip(m - 4, 2, warps), warps), rows)
    return rows, warps - rows


def mma(
    m: Bits, n: Bits, warps: tuple[Bits, Bits], is_group: npt.NDArray[np.bool_]
) -> Layout:
    """Layout of the result of a matrix product, by its `mma_warps`."""
    rows, columns = warps
    # Rows: lanes 1, 2, 4; register 8; then warps; then registers.
    end = np.minimum(4 + rows, m)
    row_warps = _ones(np.minimum(rows * 0 + 4, m), end)
    row_registers = _ones(rows * 0 + 3, np.minimum(rows * 0 + 4, m)) | _ones(end, m)
    # Columns: register 1; lanes 2, 4; registers of a wide instruction; then warps.
    wide = np.where(is_group, np.clip(n - columns, 3, 8), 3)
    low = np.minimum(wide, n)
    end = np.minimum(low + columns, n)
    column_warps = _ones(low, end)
    column_registers = (
        _lowest(np.minimum(low, 1)) | _ones(np.minimum(low, 3), low)
    ) | _ones(end, n)
    return Layout((row_registers, column_registers), (row_warps, column_warps))


def dot_operand(
    rows: Bits, k: Bits, warps: Bits, warps_of_rows: Bits, is_left: bool
) -> Layout:
    """Layout in which MMA reads an operand: rows (or columns) first, then k.

    Args:
        rows: log2 of its size along the result.
        k: log2 of the contracted size.
        warps: log2 of the number of warps; where they share rows they repeat them.
        warps_of_rows: log2 of the warps along its side of the result.
        is_left: A left operand has 16 rows an instruction, a right one 8.
    """
    low = np.minimum(np.full(1, 4 if is_left else 3, dtype=np.int64), rows)
    end = np.minimum(low + warps_of_rows, rows)
    three = np.minimum(np.full(1, 3, dtype=np.int64), rows)
    of_rows = _ones(three, low) | _ones(end, rows)
    of_k = _lowest(np.minimum(k, 1)) | _ones(np.minimum(k, 3), k)
    none = warps * 0
    return Layout((of_rows, of_k), (_ones(low, end), none))


def conversion_bytes(
    one: Layout,
    other: Layout,
    numel: Sizes,
    itemsize: float,
    by_matrices: bool = False,
) -> Sizes:
    """Shared memory of a change of layout; 0 where each warp keeps its elements.

    Args:
        one: From.
        other: To.
        numel: Elements of the tile.
        itemsize: Bytes of each.
        by_matrices: Whether a side is an MMA's, so that 16-bit elements move by
            `ldmatrix` and `stmatrix`, whose vectors lie across lanes.
    """
    common = np.zeros(1, dtype=np.int64)
    same = np.ones(1, dtype=np.bool_)
    for left, right in zip(one.registers, other.registers, strict=True):
        common = common + np.bitwise_count(left & right)
    for left, right in zip(one.warps, other.warps, strict=True):
        same = same & (left == right)
    widest = int(np.log2(max(1.0, VECTOR_BYTES / itemsize)))
    if by_matrices and itemsize <= 2.0:
        widest = int(np.log2(4.0 / itemsize))
    vector = np.minimum(common, widest)
    found: Sizes = np.where(
        same, 0.0, numel * itemsize / np.exp2((common - vector).astype(np.float64))
    )
    return found
