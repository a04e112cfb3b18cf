"""Reduction dimensions, and which of them a config may turn into loops."""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.features.blocks import Block
from costmodel.features.blocks import BlockKind
from costmodel.features.indices import DimKind
from costmodel.features.memory import Access
from costmodel.features.nodes import RawGraph
from costmodel.features.ops import OpKind
from costmodel.features.symbols import literal
from costmodel.features.symbols import names_in


def add_reductions(
    raw: RawGraph,
    blocks: tuple[Block, ...],
    by_symbol: dict[str, int],
    accesses: tuple[Access, ...],
    hints: Mapping[str, int],
) -> tuple[tuple[Block, ...], tuple[int, ...]]:
    """Blocks of reduction dimensions: symbols in shapes that no tile owns."""
    extents: dict[str, int] = {}
    for access in accesses:
        for dim in access.dims:
            host = literal(dim.size)
            host = hints.get(dim.size) if host is None else host
            if (
                dim.kind is DimKind.SLICE
                and host is not None
                and dim.tile in names_in(dim.tile)
            ):
                # A slice may be shorter than its dimension, never longer.
                extents[dim.tile] = min(extents.get(dim.tile, host), host)
    slots = _reduction_slots(raw)
    symbols = _reduction_symbols(raw, by_symbol, hints)
    block_of = _rolled_symbols(raw, by_symbol)
    result = list(blocks)
    keys: dict[int, int] = {}
    for symbol in symbols:
        block_id = block_of.get(symbol)
        key = len(result)
        result.append(
            Block(
                key=key,
                block_id=block_id,
                symbol=symbol,
                kind=BlockKind.REDUCTION,
                slot=slots.index(block_id) if block_id in slots else None,
                extent=extents.get(symbol, 0),
                extent_known=symbol in extents,
            )
        )
        by_symbol[symbol] = key
        if block_id is not None:
            keys[block_id] = key
    # What is reduced may have no symbol: an accumulator over a whole dimension whose
    # length is no power of two is written at its padded length, a number.
    for block_id, extent in _rolled_numbers(raw).items():
        if block_id in slots and block_id not in keys:
            keys[block_id] = len(result)
            result.append(
                Block(
                    key=len(result),
                    block_id=block_id,
                    symbol=None,
                    kind=BlockKind.REDUCTION,
                    slot=slots.index(block_id),
                    extent=extent,
                    extent_known=True,
                )
            )
    return tuple(result), tuple(keys[b] for b in slots if b in keys)


def _reduction_symbols(
    raw: RawGraph, by_symbol: Mapping[str, int], hints: Mapping[str, int]
) -> tuple[str, ...]:
    """Symbols `u<k>` in tensor shapes that are neither tiles nor host sizes."""
    found: set[str] = set()
    for node in raw.nodes.values():
        if node.kind is OpKind.HOST_TENSOR:
            continue
        for part in (*(node.shape or ()), *node.reduction_ranges):
            found |= {
                name
                for name in names_in(part)
                if name not in by_symbol and name not in hints and name[:1] == "u"
            }
    return tuple(sorted(found, key=lambda s: (len(s), s)))


def _rolled_symbols(raw: RawGraph, by_symbol: Mapping[str, int]) -> dict[str, int]:
    """Block id of each reduction symbol that Helion tried to roll.

    A rolled loop reduces over its own symbol; where it only walks it, ids and symbols
    were handed out in the same order.
    """
    found: dict[str, int] = {}
    seen: dict[int, set[str]] = {}
    for region in raw.regions.values():
        if region.kind != "ReductionLoopGraphInfo" or len(region.block_ids) != 1:
            continue
        names = seen.setdefault(region.block_ids[0], set())
        for node_id in region.node_ids:
            node = raw.nodes[node_id]
            for part in node.reduction_ranges[:1]:
                if part not in by_symbol and part in names_in(part):
                    found.setdefault(part, region.block_ids[0])
            names |= {p for p in node.shape or () if p in names_in(p)}
    for block_id in sorted(set(seen) - set(found.values())):
        free = seen[block_id] - set(by_symbol) - set(found)
        if free:
            found[min(free, key=lambda s: (len(s), s))] = block_id
    return found


def _rolled_numbers(raw: RawGraph) -> dict[int, int]:
    """Elements by block id of each rolled reduction whose range is a number."""
    found: dict[int, int] = {}
    for region in raw.regions.values():
        if region.kind != "ReductionLoopGraphInfo" or len(region.block_ids) != 1:
            continue
        for node_id in region.node_ids:
            for part in raw.nodes[node_id].reduction_ranges[:1]:
                extent = literal(part)
                if extent is not None:
                    found.setdefault(region.block_ids[0], extent)
    return found


def _reduction_slots(raw: RawGraph) -> list[int]:
    """Block ids that have a slot in `reduction_loops`.

    Helion gives a reduction dimension a slot if every graph could be rolled for it,
    some graph uses it, and no such graph is already rolled for another.
    """
    n_originals = sum(
        region.kind != "ReductionLoopGraphInfo" for region in raw.regions.values()
    )
    records: dict[int, list[tuple[int, bool]]] = {}
    for rolled in raw.rolled:
        if rolled.block_ids:
            entry = (rolled.original_graph_id, rolled.used)
            records.setdefault(rolled.block_ids[0], []).append(entry)
    slots: list[int] = []
    taken: set[int] = set()
    for block_id, entries in records.items():
        used = {graph_id for graph_id, is_used in entries if is_used}
        if len(entries) == n_originals and used and not used & taken:
            taken |= used
            slots.append(block_id)
    return slots
