"""What a config makes of a kernel's symbols: tile sizes, trip counts, programs.

One pass for all configs: every quantity is float64[n] of whole numbers, or float64[1]
where the configs agree, so results never depend on which rows travel together.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from costmodel.errors import UnreadableKernelError
from costmodel.features.blocks import BlockKind
from costmodel.features.graph import KernelGraph
from costmodel.features.loops import BoundKind
from costmodel.features.loops import LoopAxisFact
from costmodel.features.regions import RegionKind
from costmodel.features.symbols import Sizes
from costmodel.features.symbols import ceil_div
from costmodel.features.symbols import evaluate
from costmodel.features.symbols import literal
from costmodel.features.symbols import next_power_of_2
from costmodel.frozen import dataclass
from costmodel.types import Config

_ONE = np.ones(1)


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tile sizes of n configs.

    Attributes:
        n: Number of configs.
        size: Tile size of each block, by block key.
        rolled: For each block with a `reduction_loops` slot, bool[n]: whether the
            reduction is a loop rather than one persistent tile.
        symbols: Tile size by symbol; dynamic host sizes padded to a power of two, as
            Helion pads a full dimension.
        axis_trips: Trips of each axis of each root and loop region, by graph id.
        runs: How often one program runs a region, by graph id.
        programs: Grid size of each root, by graph id.
        total_programs: Grid size of the launch.
    """

    n: int
    size: tuple[Sizes, ...]
    rolled: Mapping[int, npt.NDArray[np.bool_]]
    symbols: Mapping[str, Sizes]
    axis_trips: Mapping[int, tuple[Sizes, ...]]
    runs: Mapping[int, Sizes]
    programs: Mapping[int, Sizes]
    total_programs: Sizes
    _numel: dict[tuple[str, ...], Sizes] = field(default_factory=dict, repr=False)
    _dim: dict[str, Sizes] = field(default_factory=dict, repr=False)
    _descriptors: dict[int, Sizes] = field(default_factory=dict, repr=False)

    def dim(self, text: str) -> Sizes:
        """Size of one tile dimension; a literal one is padded to a power of two.

        Raises:
            UnreadableKernelError: It mentions a symbol that nothing decides.
        """
        known = self._dim.get(text)
        if known is not None:
            return known
        number = literal(text)
        if number is not None:
            self._dim[text] = np.array([float(next_power_of_2(number))])
            return self._dim[text]
        found = evaluate(text, self.symbols)
        if found is None:
            raise UnreadableKernelError(
                f"expected a tile dimension in known symbols, found {text!r}; "
                "Helion's default is used for this kernel"
            )
        self._dim[text] = np.maximum(found, 1.0)
        return self._dim[text]

    def descriptors(self, index: int, make: Callable[[], Sizes]) -> Sizes:
        """For an access, 1 where a descriptor fits; made once for these configs."""
        found = self._descriptors.get(index)
        if found is None:
            found = self._descriptors[index] = make()
        return found

    def numel(self, shape: Sequence[str]) -> Sizes:
        """Elements of a tile."""
        key = tuple(shape)
        total = self._numel.get(key)
        if total is None:
            total = _ONE
            for part in key:
                total = total * self.dim(part)
            self._numel[key] = total  # tiles of one shape are many
        return total


def is_readable(graph: KernelGraph, config: Config) -> bool:
    """Whether a config decides every tile of a kernel."""
    sizes = config.get("block_sizes") or []
    if not isinstance(sizes, (list, tuple)) or len(sizes) != len(graph.tunable_blocks):
        return False
    if any(isinstance(s, bool) or not isinstance(s, int) or s < 1 for s in sizes):
        return False
    loops = config.get("reduction_loops") or []
    if not isinstance(loops, (list, tuple)):
        return False
    if loops and len(loops) != len(graph.reduction_blocks):
        return False
    return all(
        s is None or (isinstance(s, int) and not isinstance(s, bool) and s >= 1)
        for s in loops
    )


def make_tiles(graph: KernelGraph, configs: Sequence[Config]) -> Tiles:
    """Evaluate tile sizes and trip counts.

    Raises:
        UnreadableKernelError: A config has block sizes or reduction loops of another
            number than the kernel, or a size that is no positive integer.
    """
    table = _size_table(graph, configs)
    for row, config in enumerate(configs if table is None else ()):
        if not is_readable(graph, config):
            raise UnreadableKernelError(
                f"expected {len(graph.tunable_blocks)} block_sizes and "
                f"{len(graph.reduction_blocks)} reduction_loops, config {row} has "
                f"{config.get('block_sizes')} and {config.get('reduction_loops')}; "
                "drop configs of another kernel or Helion version"
            )
    if table is None:
        raise UnreadableKernelError("expected whole block sizes in every config")
    n = len(configs)
    size, rolled = _block_sizes(graph, configs, table)
    symbols: dict[str, Sizes] = {
        name: np.array([float(next_power_of_2(hint))])
        for name, hint in graph.size_hints.items()
    }
    for symbol, key in graph.by_symbol.items():
        # A dimension of one element is indexed as such, whatever its block size.
        is_single = graph.blocks[key].extent_known and graph.blocks[key].extent == 1
        symbols[symbol] = _ONE if is_single and not graph.size_hints else size[key]
    trips = _axis_trips(graph, size)
    runs = _runs(graph, trips)
    programs = {root: _product(trips.get(root, ())) for root in graph.root_ids()}
    total = np.zeros(1)
    for value in programs.values():
        total = total + value
    return Tiles(n, size, rolled, symbols, trips, runs, programs, total)


def _product(parts: Sequence[Sizes]) -> Sizes:
    total = _ONE
    for part in parts:
        total = total * part
    return total


def _size_table(
    graph: KernelGraph, configs: Sequence[Config]
) -> npt.NDArray[np.float64] | None:
    """All block sizes as float64[n, n_slots], or None where some config is odd."""
    n_slots, n_loops = len(graph.tunable_blocks), len(graph.reduction_blocks)
    # Hundreds of candidates share few lists.
    rows, row_of = _distinct([c.get("block_sizes") for c in configs])
    loops, _ = _distinct([c.get("reduction_loops") for c in configs])
    flat = [value for row in rows for value in row]
    if any(len(row) != n_slots for row in rows) or set(map(type, flat)) - {int}:
        return None
    chunks = [value for row in loops for value in row if value is not None]
    if any(row and len(row) != n_loops for row in loops):
        return None
    if set(map(type, chunks)) - {int} or min([1, *flat, *chunks]) < 1:
        return None
    return np.array(flat, dtype=np.float64).reshape(len(rows), n_slots)[row_of]


def _distinct(values: Sequence[Any]) -> tuple[list[Any], npt.NDArray[np.int64]]:
    """The different objects among some, nothing as an empty list; and which is each."""
    ids = list(map(id, values))
    objects = dict(zip(ids, values, strict=True))
    place = {one: index for index, one in enumerate(objects)}
    rows = np.array([place[one] for one in ids], dtype=np.int64)
    return [one or [] for one in objects.values()], rows


def _block_sizes(
    graph: KernelGraph,
    configs: Sequence[Config],
    table: npt.NDArray[np.float64],
) -> tuple[tuple[Sizes, ...], dict[int, npt.NDArray[np.bool_]]]:
    fixed = _tunable_sizes(graph, configs)
    sizes: list[Sizes] = []
    rolled: dict[int, npt.NDArray[np.bool_]] = {}
    for block in graph.blocks:
        if block.kind is BlockKind.TUNABLE and block.slot is not None:
            sizes.append(np.ascontiguousarray(table[:, block.slot]))
        elif block.kind is BlockKind.REDUCTION:
            full = float(next_power_of_2(block.extent))
            if block.slot is None:
                sizes.append(np.array([full]))
                continue
            lists, row_of = _distinct([c.get("reduction_loops") for c in configs])
            chunks = [_chunk(one, block.slot) for one in lists]
            is_rolled = np.array([c is not None for c in chunks], dtype=np.bool_)
            found = np.array([full if c is None else float(c) for c in chunks])
            sizes.append(found[row_of])
            rolled[block.key] = is_rolled[row_of]
        elif block.key in fixed:
            sizes.append(fixed[block.key])
        else:
            sizes.append(np.array([float(block.fixed_size or 1)]))
    return tuple(sizes), rolled


def _chunk(loops: object, slot: int) -> int | None:
    if not isinstance(loops, (list, tuple)) or slot >= len(loops):
        return None
    value = loops[slot]
    return value if isinstance(value, int) else None


def _tunable_sizes(graph: KernelGraph, configs: Sequence[Config]) -> dict[int, Sizes]:
    """Sizes of fixed blocks that the kernel's own tunables decide (split-K)."""
    open_blocks = [
        b for b in graph.blocks if b.kind is BlockKind.FIXED and b.fixed_size is None
    ]
    if not open_blocks:
        return {}
    names = tuple(graph.tunables)
    rows = [
        tuple(int(c.get(name, graph.tunables[name])) for name in names) for c in configs
    ]
    by_row: dict[tuple[int, ...], dict[int, float]] = {}
    for row in rows:
        if row not in by_row:
            source = graph.source_at(dict(zip(names, row, strict=True)))
            axes = {}
            for loop in () if source is None else source.loops():
                for index, axis in enumerate(loop.axes):
                    axes[(loop.line, index)] = axis.size
            found: dict[int, float] = {}
            for block in open_blocks:
                size = None if block.axis is None else axes.get(block.axis)
                if size is None or size < 1:
                    raise UnreadableKernelError(
                        "expected a fixed tile size that shapes or tunables decide, "
                        "found one that neither does, such as a scalar argument, "
                        "which logs do not record: take it from a tensor's size; "
                        "Helion's default is used for this kernel"
                    )
                found[block.key] = float(size)
            by_row[row] = found
    return {
        block.key: np.array([by_row[row][block.key] for row in rows])
        for block in open_blocks
    }


def _axis_trips(
    graph: KernelGraph, size: tuple[Sizes, ...]
) -> dict[int, tuple[Sizes, ...]]:
    return {
        graph_id: tuple(axis_trips(axis, size) for axis in axes)
        for graph_id, axes in graph.loops.items()
    }


def axis_trips(axis: LoopAxisFact, size: tuple[Sizes, ...]) -> Sizes:
    """Trips of one loop axis, for a prefix the mean over the outer loop's tiles."""
    return ceil_div(axis_length(axis, size), size[axis.block])


def axis_length(axis: LoopAxisFact, size: tuple[Sizes, ...]) -> Sizes:
    """Elements that one run of a loop axis walks."""
    extent = np.array([float(axis.extent)])
    if axis.outer is None:
        return extent
    outer: Sizes = np.minimum(size[axis.outer], extent)
    if axis.bound is BoundKind.INSIDE:
        return outer
    n_outer = ceil_div(extent, outer)
    mean: Sizes = np.minimum(extent, np.ceil((n_outer + 1.0) * outer / 2.0))
    return mean


def _runs(
    graph: KernelGraph, trips: Mapping[int, tuple[Sizes, ...]]
) -> dict[int, Sizes]:
    runs: dict[int, Sizes] = {}
    for graph_id in graph.regions:
        total = _ONE
        for inner in graph.enclosing(graph_id):
            if graph.regions[inner].kind is RegionKind.LOOP:
                total = total * _product(trips.get(inner, ()))
        runs[graph_id] = total
    return runs
