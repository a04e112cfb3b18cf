"""How dots read their operands, and how their results leave: bytes of shared memory."""

from __future__ import annotations

import numpy as np

from costmodel.features.launch import Flags
from costmodel.features.launch import Launch
from costmodel.features.launch import dot_result
from costmodel.features.launch import dot_warps
from costmodel.features.launch import is_group
from costmodel.features.layouts import VECTOR_BYTES
from costmodel.features.layouts import Bits
from costmodel.features.layouts import bits
from costmodel.features.layouts import blocked
from costmodel.features.layouts import conversion_bytes
from costmodel.features.layouts import dot_operand
from costmodel.features.layouts import mma
from costmodel.features.layouts import mma_warps
from costmodel.features.staging import DotPlan
from costmodel.features.staging import LoopPlan
from costmodel.features.staging import Operand
from costmodel.features.symbols import Sizes


def readers(launch: Launch, loop: LoopPlan, node_id: str) -> tuple[Sizes, Flags]:
    """How dots read a load.

    Returns:
        1 where a warp-group MMA reads a buffer while the next ones fill, and whether
        some dot wants it in registers in an order that no buffer can have.
    """
    extra, unfit = np.zeros(1), np.zeros(1, dtype=np.bool_)
    for one in loop.dots:
        for side, operand in enumerate((one.left, one.right)):
            if operand.source != node_id:
                continue
            group = is_group(launch, one.dot)
            turned = operand.is_viewed and not operand.has_run_of_k
            if stays_in_place(operand, side):
                extra = np.maximum(extra, group.astype(np.float64))
                unfit = unfit | (~group & turned)
            elif turned:
                unfit = unfit | ~group | (side == 0)
    return extra, unfit


def stays_in_place(operand: Operand, side: int) -> bool:
    """Whether a warp-group MMA reads an operand where its load put it.

    The left one may come from registers, and does where its shape changes on the way.
    """
    if not (operand.is_plain and operand.fits_group):
        return False
    return side == 1 or not operand.is_reshaped


def carried_bytes(launch: Launch, loop: LoopPlan) -> tuple[Sizes, Sizes]:
    """Operands that a loop fused with its grid gets from what came before it.

    Returns:
        Bytes that stay, those of the first program beside those of the later ones,
        and the most that passes through where the dot reads registers.
    """
    inside = {launch.graph.accesses[one.index].node_id for one in loop.loads}
    stays: dict[str, Sizes] = {}
    passing = np.zeros(1)
    for one in loop.dots:
        group = is_group(launch, one.dot)
        for side, operand in enumerate((one.left, one.right)):
            source, tile = operand.source, operand.source_tile
            if source is None or tile is None or source in inside:
                continue
            size = launch.size(tile)
            placed = group & (side == 1 or stays_in_place(operand, side))
            here = np.where(placed, 2.0 * size, 0.0)
            stays[source] = np.maximum(stays.get(source, here), here)
            passing = np.maximum(passing, np.where(placed, 0.0, size))
    return sum(stays.values(), np.zeros(1)), passing


def operand_bytes(
    launch: Launch,
    one: DotPlan,
    staged: dict[str, Flags],
    inside: set[str],
    pipelined: Flags,
) -> Sizes:
    """What a dot's operands take where no buffer of the loop holds them."""
    group = is_group(launch, one.dot)
    dot = one.dot
    m, n, k = (launch.bits(part) for part in (dot.m, dot.n, dot.k))
    rows, columns = dot_warps(launch, dot)
    kept, passing = np.zeros(1), np.zeros(1)
    for side, operand in enumerate((one.left, one.right)):
        size = launch.size(operand.tile)
        source = operand.source
        in_ring = np.zeros(1, dtype=np.bool_)
        loaded = size
        if source is not None and operand.source_tile is not None:
            loaded = np.minimum(launch.size(operand.source_tile), size)
            # What is loaded outside the loop is counted as resident.
            in_ring = staged.get(source, in_ring) | (source not in inside)
        if stays_in_place(operand, side):
            for_group = np.where(in_ring, 0.0, size)
        elif side == 1:
            for_group = size
        elif operand.is_product:
            for_group = np.zeros(1)
        elif source is None:
            # It comes through registers. In a pipeline its loads are read in the
            # layout of the dot already, unless they are wider.
            for_group = size if operand.is_narrowed else np.zeros(1)
            if not operand.is_narrowed:
                change = np.where(pipelined | ~group, 0.0, size)
                passing = np.maximum(passing, change)
        else:
            for_group = np.where(in_ring, 0.0, loaded)
        if operand.is_product:
            across = columns > 0 if side == 0 else True
            kept = kept + np.where(group, for_group, np.where(across, size, 0.0))
        elif source is not None and operand.is_viewed:
            changed = _operand_change(launch, one, side, (m, n, k), (rows, columns))
            stays = pipelined & (not operand.has_run_of_k)
            kept = kept + np.where(
                group, for_group, np.where(stays & ~in_ring, loaded, 0.0)
            )
            here = np.where(in_ring | stays | group, 0.0, changed)
            passing = np.maximum(passing, here)
        elif source is None:
            # Loads of a loop are read in the layout of the dot, arithmetic follows.
            kept = kept + np.where(group, for_group, np.where(pipelined, 0.0, size))
        else:
            held = np.where(in_ring, 0.0, loaded)
            here = held if operand.is_plain else np.zeros(1)
            kept = kept + np.where(group, for_group, here)
            passing = np.maximum(passing, np.where(group, 0.0, held))
    return np.maximum(kept, passing)


def _operand_change(
    launch: Launch,
    one: DotPlan,
    side: int,
    sizes: tuple[Bits, Bits, Bits],
    warps: tuple[Bits, Bits],
) -> Sizes:
    """Change of layout from a load to an operand in registers."""
    operand = (one.left, one.right)[side]
    assert operand.source_tile is not None
    shape, itemsize = operand.source_tile
    rows, k = sizes[side], sizes[2]
    numel = launch.tiles.numel(shape)
    widest = int(np.log2(VECTOR_BYTES / itemsize))
    vector = np.minimum(widest, bits(numel / launch.threads))
    order = (1, 0) if operand.has_run_of_k else (0, 1)
    loaded = blocked((rows, k), order, vector, launch.warps)
    read = dot_operand(rows, k, launch.warps, warps[side], side == 0)
    return conversion_bytes(loaded, read, numel, float(itemsize), True)


def result_bytes(launch: Launch, index: int) -> Sizes:
    """Change of layout from a dot's result to a store by pointers."""
    graph, tiles = launch.graph, launch.tiles
    access = graph.accesses[index]
    m, n = (launch.bits(part) for part in access.shape[-2:])
    dots = [d for d in graph.dots if (d.m, d.n) == access.shape[-2:]] or graph.dots
    numel = tiles.numel(access.shape)
    order = (1, 0)
    if access.dims and access.dims[-1].stride != "1" and len(access.dims) >= 2:
        order = (0, 1) if access.dims[-2].stride == "1" else (1, 0)
    item = float(access.itemsize)
    vector = np.minimum(
        int(np.log2(16.0 / max(1.0, item))), bits(numel / launch.threads)
    )
    there = blocked((m, n), order, vector, launch.warps)
    dot = dots[-1]
    if (dot.m, dot.n) == access.shape[-2:]:
        result = dot_result(launch, dot)
    else:
        group = is_group(launch, dot)
        result = mma(m, n, mma_warps(m, n, launch.warps, group), group)
    return conversion_bytes(result, there, numel, item, True)
