"""Host dimensions, index operands and tile dimensions, aligned from the left.

The graph keeps an access's index operands in order but drops constants, so a slice or
an integer leaves a gap that must be found. Of several alignments the one that explains
most with the fewest dropped integers wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from costmodel.features.indices import AccessDim
from costmodel.features.indices import DimKind
from costmodel.features.indices import IndexFacts
from costmodel.features.indices import IndexTracer
from costmodel.features.nodes import Node
from costmodel.features.nodes import RawGraph
from costmodel.features.ops import OpKind
from costmodel.features.symbols import literal
from costmodel.features.symbols import names_in
from costmodel.frozen import dataclass

Alignment: TypeAlias = tuple[tuple[AccessDim, ...], tuple[str, ...], bool, bool]
"""Dims, tile shape, whether masked, whether every operand was explained."""


def align_access(
    raw: RawGraph,
    tracer: IndexTracer,
    node: Node,
    host: Node,
    tiles: frozenset[str],
    extents: Mapping[str, int],
) -> Alignment:
    """Dims, tile shape, whether masked, whether every operand was explained."""
    sizes = host.shape or ()
    strides = host.stride or tuple("1" for _ in sizes)
    operands = [raw.nodes[source] for source in node.inputs[1:]]
    best: tuple[int, list[_Step], tuple[str, ...], bool] | None = None
    for count, out, masked in _readings(node, operands):
        entries = [_Entry.of(raw, tracer, operand, tiles) for operand in operands]
        found = _Aligner(sizes, entries[:count], out, tiles, extents).best()
        if found is not None and (best is None or found[0] < best[0]):
            best = (found[0], found[1], out, masked)
    if best is None:
        shape = node.shape or _value_shape(operands)
        dims = tuple(
            AccessDim(size, stride, DimKind.GATHER, frozenset(), "1", None)
            for size, stride in zip(sizes, strides, strict=True)
        )
        return dims, shape, False, False
    _, steps, out, masked = best
    dims = tuple(
        AccessDim(size, stride, step.kind, step.symbols, step.tile, step.unit)
        for size, stride, step in zip(sizes, strides, steps, strict=True)
    )
    return dims, out, masked, True


def _value_shape(operands: list[Node]) -> tuple[str, ...]:
    shapes = [o.shape for o in operands if o.shape]
    return shapes[-1] if shapes else ()


def _is_mask(node: Node) -> bool:
    return node.dtype == "torch.bool" and node.shape is not None


def _readings(
    node: Node, operands: list[Node]
) -> list[tuple[int, tuple[str, ...], bool]]:
    """Ways to split operands into indices, value and mask: (n indices, shape, mask)."""
    n = len(operands)
    masked = n > 0 and _is_mask(operands[-1])
    last = n - 1 if masked else n
    if node.kind is OpKind.LOAD:
        return [(last, node.shape or (), masked)]
    readings = []
    if last > 0:
        readings.append((last - 1, operands[last - 1].shape or (), masked))
    if node.kind is OpKind.ATOMIC and last > 1:
        readings.append((last - 2, operands[last - 2].shape or (), masked))
    if masked:
        readings.append((n - 1, operands[n - 1].shape or (), False))
    indices = operands[:last]
    drawn = tuple(o.value or "1" for o in indices if o.shape is None)
    readings.append((last, drawn, masked))
    return readings


@dataclass(frozen=True, slots=True)
class _Entry:
    """One index operand."""

    tile: str | None
    shape: tuple[str, ...] | None
    facts: IndexFacts

    @classmethod
    def of(
        cls, raw: RawGraph, tracer: IndexTracer, node: Node, tiles: frozenset[str]
    ) -> _Entry:
        source = raw.source(node.id)
        is_symbol = node.kind is OpKind.SYMBOL or source.kind is OpKind.SYMBOL
        tile = node.value if is_symbol and node.value in tiles else None
        shape = node.shape if node.shape else None
        return cls(tile, shape, tracer.facts(node.id))


@dataclass(frozen=True, slots=True)
class _Step:
    kind: DimKind
    symbols: frozenset[str]
    tile: str
    unit: str | None


# Prices of an alignment: a dropped integer must be rarer than a slice, and a size
# that contradicts a known extent rarer still. Units are arbitrary; order decides. Of
# two dimensions an integer picks the smaller (bits of its size are added), then the
# outer one: `x[t, 0, :]` of a [n, 2, 64] tensor.
_PRICE_UNIT = 64
_PRICE_CONST = 2 * _PRICE_UNIT
_PRICE_MISMATCH = 3 * _PRICE_UNIT
_PRICE_BROADCAST = 4 * _PRICE_UNIT


class _Aligner:
    """Cheapest way to explain host dimensions by operands and tile dimensions."""

    def __init__(
        self,
        sizes: tuple[str, ...],
        entries: list[_Entry],
        out: tuple[str, ...],
        tiles: frozenset[str],
        extents: Mapping[str, int],
    ) -> None:
        self.sizes = sizes
        self.entries = entries
        self.out = out
        self.tiles = tiles
        self.extents = extents
        self.seen: dict[tuple[int, int, int], tuple[int, list[_Step]] | None] = {}

    def best(self) -> tuple[int, list[_Step]] | None:
        return self._from(0, 0, 0)

    def _from(self, i: int, j: int, k: int) -> tuple[int, list[_Step]] | None:
        state = (i, j, k)
        if state not in self.seen:
            self.seen[state] = self._search(i, j, k)
        return self.seen[state]

    def _search(self, i: int, j: int, k: int) -> tuple[int, list[_Step]] | None:
        n_out = len(self.out)
        if i == len(self.sizes):
            rest = self.out[k:]
            done = j == len(self.entries) and all(part == "1" for part in rest)
            return (0, []) if done else None
        picked = _PRICE_CONST + self._known(self.sizes[i], 1).bit_length()
        options: list[tuple[int, _Step, tuple[int, int, int]]] = [
            (picked, _CONST, (i + 1, j, k))
        ]
        if j < len(self.entries):
            options.extend(self._take_entry(i, j, k))
        if k < n_out and self.out[k] not in self.tiles:
            price = self._mismatch(self.out[k], self.sizes[i])
            step = _Step(DimKind.SLICE, names_in(self.out[k]), self.out[k], self.out[k])
            options.append((price, step, (i + 1, j, k + 1)))
        best: tuple[int, list[_Step]] | None = None
        for price, step, state in options:
            after = self._from(*state)
            if after is not None and (best is None or price + after[0] < best[0]):
                best = (price + after[0], [step, *after[1]])
        if k < n_out and self.out[k] == "1":
            skipped = self._from(i, j, k + 1)
            if skipped is not None and (best is None or skipped[0] < best[0]):
                best = skipped
        return best

    def _take_entry(
        self, i: int, j: int, k: int
    ) -> list[tuple[int, _Step, tuple[int, int, int]]]:
        entry = self.entries[j]
        if entry.tile is not None:
            step = _Step(DimKind.TILE, frozenset((entry.tile,)), entry.tile, entry.tile)
            price = self._mismatch(entry.tile, self.sizes[i])
            if k < len(self.out) and self.out[k] == entry.tile:
                return [(price, step, (i + 1, j + 1, k + 1))]
            # A stored value may be broadcast along a tile.
            return [(price + _PRICE_BROADCAST, step, (i + 1, j + 1, k))]
        facts = entry.facts
        symbols = facts.unit | facts.other
        if entry.shape is None:
            return [(0, _Step(DimKind.SCALAR, symbols, "1", None), (i + 1, j + 1, k))]
        kind = DimKind.GATHER if facts.loaded else DimKind.AFFINE
        for part in entry.shape:
            symbols |= names_in(part)
        unit = next((p for p in reversed(entry.shape) if p in facts.unit), None)
        tile = unit if unit is not None else entry.shape[-1]
        step = _Step(kind, symbols, tile, unit)
        width = len(entry.shape)
        options = []
        for taken in range(min(width, len(self.out) - k), -1, -1):
            price = _PRICE_BROADCAST if taken < width else 0
            same = self.out[k : k + taken] == entry.shape[width - taken :]
            price += 0 if same else _PRICE_UNIT
            options.append((price, step, (i + 1, j + 1, k + taken)))
        return options

    def _mismatch(self, part: str, size: str) -> int:
        """Price of walking a host dimension of another size than is known."""
        known, host = self._known(part, 0), self._known(size, 0)
        if known == host or not (known and host):
            return 0
        return _PRICE_MISMATCH if known > host else _PRICE_UNIT

    def _known(self, text: str, unknown: int) -> int:
        number = literal(text)
        return self.extents.get(text, unknown) if number is None else number


_CONST = _Step(DimKind.CONST, frozenset(), "1", None)
