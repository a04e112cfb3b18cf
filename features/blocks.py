"""Block ids: which symbol, which knob, which loop, and how many elements.

`config["block_sizes"]` lists the tunable blocks in ascending id. The symbol of a block
is written in the name of a node, `block_size_<id>`; how its size is decided stands in
the source. Loops are matched to the source by line, the rest by order of allocation.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import replace

from costmodel.features.matching import match_loops
from costmodel.features.nodes import RawGraph
from costmodel.features.ops import OpKind
from costmodel.features.regions import Region
from costmodel.features.regions import RegionKind
from costmodel.features.source import AxisKey
from costmodel.features.source import AxisKind
from costmodel.features.source import KernelSource
from costmodel.features.source import LoopAxis
from costmodel.features.source import SourceLoop
from costmodel.frozen import dataclass

_BLOCK_NODE = re.compile(r"^block_size_(\d+)(?:_\d+)?$")
_GRID_NODE = re.compile(r"^(u\d+)(?:_\d+)?$")


class BlockKind(enum.StrEnum):
    """Who decides the size of a block."""

    TUNABLE = "tunable"
    FIXED = "fixed"
    GRID = "grid"
    REDUCTION = "reduction"


@dataclass(frozen=True, slots=True)
class Block:
    """One block id.

    Attributes:
        key: Position among the kernel's blocks; what other facts refer to.
        block_id: Helion's id, or None where the dump does not tell.
        symbol: `u<k>` that sizes are written in, or None where it shows nowhere.
        kind: Who decides its size.
        slot: Index in `block_sizes` of a tunable one, in `reduction_loops` of a
            reduction that Helion can roll, else None.
        fixed_size: Size in elements of a fixed one whose size shapes decide.
        axis: Where the source declares it, to evaluate a size that tunables decide.
        extent: Elements it walks; a stand-in where `extent_known` is False.
        extent_known: Whether shapes decide the extent.
        in_grid: Whether the launch grid walks it.
    """

    key: int
    block_id: int | None
    symbol: str | None
    kind: BlockKind
    slot: int | None = None
    fixed_size: int | None = None
    axis: AxisKey | None = None
    extent: int = 0
    extent_known: bool = False
    in_grid: bool = False


@dataclass(frozen=True, slots=True)
class DeclaredAxis:
    """One axis of one region's loop: which block walks it, and the source's bounds."""

    block: int
    axis: LoopAxis | None


@dataclass(frozen=True, slots=True)
class BlockMap:
    """Blocks of a kernel and the loops they walk.

    Attributes:
        blocks: By key, ascending block id, then those without one.
        axes: Axes of each loop region and root, by graph id.
        by_symbol: Key of the block that a symbol sizes or that a grid index counts.
        matched: Whether the source's loops could be tied to the graph's.
    """

    blocks: tuple[Block, ...]
    axes: Mapping[int, tuple[DeclaredAxis, ...]]
    by_symbol: Mapping[str, int]
    matched: bool


def block_symbols(raw: RawGraph) -> dict[int, str]:
    """Symbol of each block id that the graph names."""
    found: dict[int, str] = {}
    for node in raw.nodes.values():
        match = _BLOCK_NODE.match(node.name) if node.kind is OpKind.SYMBOL else None
        if match and node.op == "_get_symnode" and node.value is not None:
            found.setdefault(int(match.group(1)), node.value)
    return dict(sorted(found.items()))


def scalar_aliases(raw: RawGraph) -> dict[str, str]:
    """Symbols of a tile's begin, end or id, and the symbol that sizes the tile."""
    return {
        node.value: value
        for node in raw.nodes.values()
        if node.kind is OpKind.TILE_SCALAR and node.value is not None and node.inputs
        if (value := raw.source(node.inputs[0]).value) is not None
    }


def grid_symbols(raw: RawGraph) -> tuple[str, ...]:
    """Symbols of `hl.grid` indices, in order of their numbers."""
    aliases = scalar_aliases(raw)
    found = {
        node.value
        for node in raw.nodes.values()
        if node.op == "_get_symnode"
        and node.value is not None
        and (match := _GRID_NODE.match(node.name))
        and match.group(1) == node.value
        and node.value not in aliases
    }
    return tuple(sorted(found, key=lambda symbol: int(symbol[1:])))


def map_blocks(
    raw: RawGraph, regions: Mapping[int, Region], source: KernelSource | None
) -> BlockMap:
    """Tie block ids to symbols, knobs and loops."""
    symbols = block_symbols(raw)
    loops = match_loops(raw, regions, source)
    builder = _Builder(raw, regions, source, symbols, loops)
    return builder.build()


class _Builder:
    """Assigns ids to what the source allocates, then makes blocks."""

    def __init__(
        self,
        raw: RawGraph,
        regions: Mapping[int, Region],
        source: KernelSource | None,
        symbols: Mapping[int, str],
        loops: Mapping[int, SourceLoop],
    ) -> None:
        self.raw = raw
        self.regions = regions
        self.source = source
        self.symbols = symbols
        self.loops = loops
        self.ids: dict[str | AxisKey, int] = {}
        self.axis_facts: dict[AxisKey, LoopAxis] = {}
        self.blocks: list[Block] = []
        self.by_symbol: dict[str, int] = {}
        self.grid_keys: dict[AxisKey, int] = {}

    def build(self) -> BlockMap:
        self._anchor_device_loops()
        self._assign_rest()
        self._make_blocks()
        axes = {
            g: self._region_axes(region)
            for g, region in self.regions.items()
            if region.kind in (RegionKind.LOOP, RegionKind.ROOT)
        }
        walked = {a.block for g, r in axes.items() if self._is_root(g) for a in r}
        blocks = tuple(replace(b, in_grid=b.key in walked) for b in self.blocks)
        return BlockMap(blocks, axes, dict(self.by_symbol), bool(self.loops))

    def _is_root(self, graph_id: int) -> bool:
        return self.regions[graph_id].kind is RegionKind.ROOT

    def _key(self, loop: SourceLoop, index: int) -> str | AxisKey:
        axis = loop.axes[index]
        if axis.kind is AxisKind.REGISTERED and axis.registered is not None:
            return self._registered_key(axis.registered)
        return (loop.line, index)

    def _registered_key(self, name: str) -> str | AxisKey:
        """The allocation behind a name: a registered size, or another loop's tile."""
        if self.source is None or name in self.source.allocations:
            return name
        for loop in self.source.loops():
            if name in loop.targets:
                index = loop.targets.index(name)
                if index < len(loop.axes):
                    return self._key(loop, index)
        return name

    def _anchor_device_loops(self) -> None:
        if self.source is not None:
            for loop in self.source.loops():
                for index, axis in enumerate(loop.axes):
                    if axis.kind is not AxisKind.REGISTERED:
                        self.axis_facts[(loop.line, index)] = axis
        for graph_id, loop in self.loops.items():
            ids = self.regions[graph_id].block_ids
            if len(ids) == len(loop.axes):
                for index, block_id in enumerate(ids):
                    self.ids.setdefault(self._key(loop, index), block_id)

    def _assign_rest(self) -> None:
        """Give what is left its id: in order, between the neighbours' ids."""
        if self.source is None:
            return
        self._fill_gaps(self.source.allocations)
        taken = set(self.ids.values())
        free = [b for b in self.symbols if b not in taken]
        pending = [a for a in self.source.allocations if a not in self.ids]
        tiles = [a for a in pending if not self._is_grid_axis(a)]
        if len(free) == len(tiles):
            self.ids.update(zip(tiles, free, strict=True))
            return
        previous = -1
        for allocation in self.source.allocations:
            known = self.ids.get(allocation)
            if known is None and not self._is_grid_axis(allocation):
                later = [b for b in free if b > previous]
                if later:
                    self.ids[allocation] = later[0]
                    free.remove(later[0])
            previous = max(previous, self.ids.get(allocation, previous))

    def _fill_gaps(self, allocations: tuple[str | AxisKey, ...]) -> None:
        """Ids grow in the order of allocation: as many ids as places fit one way."""
        before, waiting = -1, []
        for allocation in allocations:
            known = self.ids.get(allocation)
            if known is None:
                waiting.append(allocation)
                continue
            if known - before - 1 == len(waiting):
                self.ids.update(
                    (place, before + 1 + index) for index, place in enumerate(waiting)
                )
            before, waiting = known, []

    def _is_grid_axis(self, allocation: str | AxisKey) -> bool:
        if isinstance(allocation, str):
            return False
        return self.axis_facts[allocation].kind is AxisKind.GRID

    def _make_blocks(self) -> None:
        owner = {block_id: key for key, block_id in self.ids.items()}
        loop_ids = {
            b
            for r in self.regions.values()
            if r.kind is RegionKind.LOOP
            for b in r.block_ids
        }
        slot = 0
        for block_id in sorted({*self.symbols, *loop_ids, *self.ids.values()}):
            allocation = owner.get(block_id)
            axis = None
            if isinstance(allocation, tuple):
                axis = self.axis_facts.get(allocation)
            kind, size = self._decided(block_id, axis)
            block = Block(
                key=len(self.blocks),
                block_id=block_id,
                symbol=self.symbols.get(block_id),
                kind=kind,
                slot=slot if kind is BlockKind.TUNABLE else None,
                fixed_size=size,
                axis=allocation if isinstance(allocation, tuple) else None,
            )
            slot += kind is BlockKind.TUNABLE
            self._add(block)
        self._make_grid_blocks()

    def _decided(
        self, block_id: int, axis: LoopAxis | None
    ) -> tuple[BlockKind, int | None]:
        if axis is not None and axis.kind is AxisKind.FIXED:
            return BlockKind.FIXED, axis.size
        if axis is not None and axis.kind is AxisKind.GRID:
            return BlockKind.GRID, 1
        if axis is None and block_id not in self.symbols:
            return BlockKind.GRID, 1
        return BlockKind.TUNABLE, None

    def _add(self, block: Block) -> int:
        self.blocks.append(block)
        if block.symbol is not None:
            self.by_symbol.setdefault(block.symbol, block.key)
        return block.key

    def _make_grid_blocks(self) -> None:
        """Blocks of `hl.grid` axes, tied to their index symbols by order."""
        axes: list[AxisKey] = []
        if self.source is not None:
            axes = [
                a
                for a in self.source.allocations
                if not isinstance(a, str) and self._is_grid_axis(a)
            ]
        symbols = list(grid_symbols(self.raw))
        for index, symbol in enumerate(symbols):
            axis = axes[index] if len(axes) == len(symbols) else None
            if axis is None and self.source is not None and not axes:
                continue  # a scalar argument, no loop counts it
            known = None if axis is None else self.ids.get(axis)
            existing = [b for b in self.blocks if known == b.block_id]
            if known is not None and existing:
                key = existing[0].key
                self.by_symbol.setdefault(symbol, key)
                if existing[0].symbol is None:
                    self.blocks[key] = replace(existing[0], symbol=symbol)
                continue
            key = self._add(
                Block(
                    key=len(self.blocks),
                    block_id=None,
                    symbol=symbol,
                    kind=BlockKind.GRID,
                    fixed_size=1,
                    axis=axis,
                )
            )
            if axis is not None:
                self.grid_keys[axis] = key

    def _region_axes(self, region: Region) -> tuple[DeclaredAxis, ...]:
        loop = self.loops.get(region.graph_id)
        by_id = {b.block_id: b.key for b in self.blocks if b.block_id is not None}
        if region.kind is RegionKind.LOOP:
            axes = () if loop is None else loop.axes
            fits = len(axes) == len(region.block_ids)
            return tuple(
                DeclaredAxis(by_id[block_id], axes[i] if fits else None)
                for i, block_id in enumerate(region.block_ids)
            )
        return self._root_axes(region, loop, by_id)

    def _root_axes(
        self, region: Region, loop: SourceLoop | None, by_id: Mapping[int, int]
    ) -> tuple[DeclaredAxis, ...]:
        """A grid body's axes; without a source loop, every block no loop walks."""
        unplaced = {*self.symbols} - {*self.ids.values()}
        if loop is not None and not (unplaced and len(self.raw.root_ids) == 1):
            found = []
            for index, axis in enumerate(loop.axes):
                key = self._key(loop, index)
                block = by_id.get(self.ids.get(key, -1))
                if block is None and isinstance(key, tuple):
                    block = self.grid_keys.get(key)
                if block is None:
                    block = self._invisible(axis, key)
                found.append(DeclaredAxis(block, axis))
            return tuple(found)
        walked = {
            b
            for r in self.regions.values()
            if r.kind is RegionKind.LOOP
            for b in r.block_ids
        }
        return tuple(
            DeclaredAxis(b.key, None) for b in self.blocks if b.block_id not in walked
        )

    def _invisible(self, axis: LoopAxis, key: str | AxisKey) -> int:
        """A loop axis that no node mentions, such as a grid index never used."""
        is_grid = axis.kind is AxisKind.GRID
        return self._add(
            Block(
                key=len(self.blocks),
                block_id=None,
                symbol=None,
                kind=BlockKind.GRID if is_grid else BlockKind.FIXED,
                fixed_size=1 if axis.size is None else axis.size,
                axis=key if isinstance(key, tuple) else None,
            )
        )
