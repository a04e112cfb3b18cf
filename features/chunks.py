"""Fixed tile sizes that only the shapes of other tensors tell.

A tile size may be an argument of the kernel, and no log has the values of scalar
arguments. Where the tile's number indexes a dimension, as in `states[h, tile.id]`, that
dimension has one element for each tile, so its size and the loop's extent give the
tile's size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from costmodel.features.blocks import Block
from costmodel.features.blocks import BlockKind
from costmodel.features.indices import DimKind
from costmodel.features.memory import Access
from costmodel.features.nodes import RawGraph
from costmodel.features.ops import OpKind
from costmodel.features.symbols import literal


def size_chunks(
    raw: RawGraph, blocks: tuple[Block, ...], accesses: tuple[Access, ...]
) -> tuple[Block, ...]:
    """Blocks with the fixed sizes that shapes of indexed tensors decide.

    Args:
        raw: The graph.
        blocks: Blocks with extents; those whose tile size nothing decided are filled
            in where all accesses agree, all others are returned as they are.
        accesses: Memory operations, aligned.
    """
    counts = _tile_counts(raw, accesses)
    return tuple(_sized(block, counts) for block in blocks)


def _sized(block: Block, counts: Mapping[str, set[int]]) -> Block:
    is_open = block.kind is BlockKind.FIXED and block.fixed_size is None
    found = counts.get(block.symbol or "", set())
    if not is_open or not block.extent_known or len(found) != 1:
        return block
    size, rest = divmod(block.extent, next(iter(found)))
    return replace(block, fixed_size=size) if size >= 1 and rest == 0 else block


def _tile_counts(raw: RawGraph, accesses: tuple[Access, ...]) -> dict[str, set[int]]:
    """Sizes of the dimensions that each block's tile number indexes, by symbol."""
    found: dict[str, set[int]] = {}
    for access in accesses:
        for node_id in raw.nodes[access.node_id].inputs[1:]:
            node = raw.source(node_id)
            if node.kind is not OpKind.TILE_SCALAR or node.op != "tile_id":
                continue
            symbol = raw.source(node.inputs[0]).value if node.inputs else None
            sizes = {
                size
                for dim in access.dims
                if dim.kind is DimKind.SCALAR
                and dim.symbols == frozenset((symbol,))
                and (size := literal(dim.size)) is not None
                and size >= 1
            }
            if symbol is not None and len(sizes) == 1:
                found.setdefault(symbol, set()).update(sizes)
    return found
