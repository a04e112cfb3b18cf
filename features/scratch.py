"""Shared memory for changes of layout and reductions where no dot is involved.

Elements that threads of one warp hand to another pass through shared memory: partial
results of a reduction, a vector that meets a tile, a tile that is loaded one way and
stored another. Each comes and goes, so the largest counts.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from costmodel.features.graph import KernelGraph
from costmodel.features.indices import DimKind
from costmodel.features.knobs import active_weight
from costmodel.features.layouts import VECTOR_BYTES
from costmodel.features.layouts import Bits
from costmodel.features.layouts import Layout
from costmodel.features.layouts import bits
from costmodel.features.layouts import blocked
from costmodel.features.layouts import conversion_bytes
from costmodel.features.memory import Access
from costmodel.features.ops import OpKind
from costmodel.features.symbols import Sizes
from costmodel.features.tiles import Tiles
from costmodel.frozen import dataclass

_PARTIAL_BYTES = 4.0  # reductions run in 32 bits
_POINTER_BYTES = 8.0


@dataclass(frozen=True, slots=True)
class _Walk:
    """How an access walks its tile.

    Attributes:
        place: Dimension of the tile that is contiguous in memory, or None.
        is_scattered: Whether memory decides the index along it.
    """

    place: int | None
    is_scattered: bool


def walk_of(access: Access) -> _Walk:
    """Which dimension of an access's tile is contiguous."""
    kept = [d for d in access.dims if d.kind not in (DimKind.SCALAR, DimKind.CONST)]
    if len(kept) != len(access.shape):
        loose = [d for d in kept if d.kind is DimKind.GATHER and d.unit is None]
        scattered = any(dim.stride == "1" for dim in loose)
        return _Walk(len(access.shape) - 1, scattered)
    for place, dim in enumerate(kept):
        if dim.stride == "1":
            return _Walk(place, dim.kind is DimKind.GATHER)
    return _Walk(None, False)


def tile_order(rank: int, walk: _Walk) -> tuple[int, ...]:
    """Dimensions of a tile, the one whose elements a thread takes together first."""
    if walk.place is None or walk.is_scattered:
        return tuple(range(rank))
    rest = [d for d in reversed(range(rank)) if d != walk.place]
    return (walk.place, *rest)


class Scratch:
    """Layouts of a kernel's tiles in n configs, and what changing them takes."""

    def __init__(
        self, graph: KernelGraph, tiles: Tiles, warps: Bits, threads: Sizes
    ) -> None:
        self.graph, self.tiles = graph, tiles
        self.warps, self.threads = warps, threads
        self._bits: dict[str, Bits] = {}
        self._main: dict[tuple[str, ...], Layout] = {}
        self._own: dict[tuple[tuple[str, ...], _Walk, int], Bits] = {}
        # By the identity of vectors, which live as long.
        self._layouts: dict[tuple[tuple[str, ...], _Walk, int], Layout] = {}
        self._kept: list[Bits] = []
        self._walks = {i: walk_of(a) for i, a in enumerate(graph.accesses)}
        self._vectors = self._find_vectors()
        self.shapes = tuple(
            dict.fromkeys(
                [a.shape for a in graph.accesses]
                + [one.shape for one in graph.reductions]
                + [one.shape for one in graph.elementwise]
            )
        )
        self.rank = max((len(shape) for shape in self.shapes), default=0)

    def largest(self) -> Sizes:
        """The most that any change of layout or reduction takes."""
        most = np.zeros(1)
        for one in self.graph.reductions:
            most = np.maximum(most, self._reduction(one.shape, one.over, one.is_scan))
        alike: dict[object, tuple[int, Sizes]] = {}
        for index, access in enumerate(self.graph.accesses):
            active = active_weight(self.graph, self.tiles, index)
            if not active.any():
                continue
            is_load = access.kind is OpKind.LOAD
            key = (access.shape, self._walks[index], is_load, access.itemsize)
            first, known = alike.get(key, (index, np.zeros(1)))
            alike[key] = (first, np.maximum(known, active))
        for index, active in alike.values():
            access = self.graph.accesses[index]
            most = np.maximum(most, active * self._access(index, access))
        return most

    def _dim(self, text: str) -> Bits:
        found = self._bits.get(text)
        if found is None:
            found = self._bits[text] = bits(self.tiles.dim(text))
        return found

    def _vector(self, index: int, access: Access) -> Sizes:
        """A vector that meets a larger tile, whose layout has it spread otherwise."""
        shape = access.shape
        numel, item = self.tiles.numel(shape), float(access.itemsize)
        own = self._layout(shape, self._walks[index], self._own_vector(index, access))
        for tile in self.shapes:
            places = places_in(shape, tile)
            if len(tile) <= len(shape) or places is None:
                continue
            main = self.main_layout(tile)
            part = Layout(
                tuple(main.registers[p] for p in places),
                tuple(main.warps[p] for p in places),
            )
            return conversion_bytes(own, part, numel, item)
        return np.zeros(1)

    def _find_vectors(self) -> Mapping[tuple[tuple[str, ...], int | None], Bits]:
        """Widest vector, log2 of elements, by tile and contiguous dimension."""
        found: dict[tuple[tuple[str, ...], int | None], Bits] = {}
        narrowest: dict[tuple[tuple[str, ...], int | None], tuple[int, int]] = {}
        for index, access in enumerate(self.graph.accesses):
            key = (access.shape, self._walks[index].place)
            known = narrowest.get(key, (access.itemsize, index))
            if not self._walks[index].is_scattered:
                narrowest[key] = min(known, (access.itemsize, index))
        for key, (_, index) in narrowest.items():
            found[key] = self._own_vector(index, self.graph.accesses[index])
        return found

    def _own_vector(self, index: int, access: Access) -> Bits:
        key = (access.shape, self._walks[index], access.itemsize)
        found = self._own.get(key)
        if found is None:
            found = self._own[key] = self._find_own_vector(access, self._walks[index])
        return found

    def _find_own_vector(self, access: Access, walk: _Walk) -> Bits:
        if walk.place is None or walk.is_scattered or not access.shape:
            return np.zeros(1, dtype=np.int64)
        widest = int(np.log2(VECTOR_BYTES / min(VECTOR_BYTES, access.itemsize)))
        run = self._dim(access.shape[walk.place])
        each = bits(self.tiles.numel(access.shape) / self.threads)
        return np.minimum(np.minimum(run, widest), each)

    def _layout(self, shape: tuple[str, ...], walk: _Walk, vector: Bits) -> Layout:
        key = (shape, walk, id(vector))
        found = self._layouts.get(key)
        if found is None:
            dims = [self._dim(part) for part in shape]
            found = blocked(dims, tile_order(len(shape), walk), vector, self.warps)
            self._layouts[key] = found
            self._kept.append(vector)
        return found

    def main_layout(self, shape: tuple[str, ...]) -> Layout:
        """Layout in which a tile is computed: that of its first load."""
        found = self._main.get(shape)
        if found is None:
            found = self._main[shape] = self._find_main(shape)
        return found

    def _find_main(self, shape: tuple[str, ...]) -> Layout:
        for index, access in enumerate(self.graph.accesses):
            walk = self._walks[index]
            if access.shape == shape and not walk.is_scattered:
                return self._layout(shape, walk, self._vectors[shape, walk.place])
        walk = _Walk(len(shape) - 1, False)
        each = bits(self.tiles.numel(shape) / self.threads)
        return self._layout(shape, walk, np.minimum(each, 2))

    def _reduction(
        self, shape: tuple[str, ...], over: tuple[str, ...], is_scan: bool
    ) -> Sizes:
        if not shape:
            return np.zeros(1)
        axis = len(shape) - 1
        for place, part in enumerate(shape):
            if part in over:
                axis = place
        layout = self.main_layout(shape)
        across = np.bitwise_count(layout.warps[axis]).astype(np.float64)
        others = self.tiles.numel(shape) / self.tiles.dim(shape[axis])
        found: Sizes = np.where(
            across > 0, others * np.exp2(across) * _PARTIAL_BYTES, 0.0
        )
        return found

    def _access(self, index: int, access: Access) -> Sizes:
        shape, walk = access.shape, self._walks[index]
        if not shape:
            return np.zeros(1)
        numel = self.tiles.numel(shape)
        item = float(access.itemsize)
        if len(shape) < self.rank:
            return self._vector(index, access)
        main = self.main_layout(shape)
        if access.kind is OpKind.LOAD and not walk.is_scattered:
            own = self._layout(shape, walk, self._vectors[shape, walk.place])
            return conversion_bytes(main, own, numel, item)
        own = self._layout(shape, walk, self._own_vector(index, access))
        if walk.is_scattered:
            return conversion_bytes(main, own, numel, _POINTER_BYTES)
        return conversion_bytes(main, own, numel, item)


def places_in(shape: tuple[str, ...], tile: tuple[str, ...]) -> tuple[int, ...] | None:
    """Dimensions of a tile that a vector of this shape runs along."""
    places: list[int] = []
    for part in shape:
        start = places[-1] + 1 if places else 0
        if part not in tile[start:]:
            return None
        places.append(tile.index(part, start))
    return tuple(places)
