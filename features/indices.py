"""What an index is made of: tiles, offsets, or values from memory."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from costmodel.features.nodes import Node
from costmodel.features.nodes import RawGraph
from costmodel.features.ops import OpKind
from costmodel.features.symbols import names_in
from costmodel.frozen import dataclass


class DimKind(enum.StrEnum):
    """How one dimension of a host tensor is indexed."""

    TILE = "tile"
    SLICE = "slice"
    SCALAR = "scalar"
    AFFINE = "affine"
    GATHER = "gather"
    CONST = "const"


@dataclass(frozen=True, slots=True)
class AccessDim:
    """One dimension of the accessed tensor.

    Attributes:
        size: Host size as text.
        stride: Host stride as text, in elements.
        kind: How it is indexed.
        symbols: Symbols that decide the index.
        tile: Size of the tile along it as text; "1" where one element is taken.
        unit: Symbol along which neighbouring lanes take neighbouring elements.
    """

    size: str
    stride: str
    kind: DimKind
    symbols: frozenset[str]
    tile: str
    unit: str | None


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """What an index value is made of.

    Attributes:
        unit: Symbols whose lanes step it by one.
        other: Symbols that it depends on otherwise.
        loaded: Whether memory decides it.
    """

    unit: frozenset[str] = frozenset()
    other: frozenset[str] = frozenset()
    loaded: bool = False

    def merged(self, that: IndexFacts) -> IndexFacts:
        """Facts of a sum."""
        return IndexFacts(
            self.unit | that.unit, self.other | that.other, self.loaded or that.loaded
        )

    def scaled(self) -> IndexFacts:
        """Facts of a value that no longer steps by one."""
        return IndexFacts(frozenset(), self.unit | self.other, self.loaded)


class IndexTracer:
    """Follows index values back to tiles and loads; remembers what it saw."""

    def __init__(
        self, raw: RawGraph, symbols: frozenset[str], aliases: Mapping[str, str]
    ) -> None:
        """Trace through a graph.

        Args:
            raw: The graph.
            symbols: Symbols that size a tile or count a grid.
            aliases: Symbols of a tile's begin or id, and the tile's own.
        """
        self._raw = raw
        self._tiles = symbols
        self._aliases = aliases
        self._seen: dict[str, IndexFacts] = {}

    def facts(self, node_id: str) -> IndexFacts:
        """What the value of a node is made of."""
        if node_id not in self._seen:
            self._seen[node_id] = IndexFacts()  # cuts cycles through loop carries
            self._seen[node_id] = self._trace(self._raw.nodes[node_id])
        return self._seen[node_id]

    def _trace(self, node: Node) -> IndexFacts:
        if node.kind is OpKind.PLACEHOLDER:
            return IndexFacts() if node.outer is None else self.facts(node.outer)
        if node.kind is OpKind.SYMBOL:
            names = {self._aliases.get(n, n) for n in names_in(node.value or "")}
            return IndexFacts(other=frozenset(names & self._tiles))
        if node.kind is OpKind.HOST_TENSOR:
            return IndexFacts()
        inputs = [self.facts(source) for source in node.inputs]
        total = IndexFacts()
        for facts in inputs:
            total = total.merged(facts)
        if node.kind is OpKind.TILE_INDEX:
            return IndexFacts(unit=frozenset((node.shape or ())[:1]))
        if node.op in ("iota", "arange"):
            spelled = frozenset((node.shape or ())[:1])
            return IndexFacts(unit=spelled, other=total.other | total.unit)
        if node.kind is OpKind.LOAD and self._is_host(node):
            return IndexFacts(other=total.other | total.unit, loaded=True)
        keeps = node.kind in (OpKind.VIEW, OpKind.ALIAS, OpKind.CONVERT, OpKind.LOAD)
        if keeps or node.op == "add":
            return total
        if node.op == "sub" and inputs:
            rest = IndexFacts()
            for facts in inputs[1:]:
                rest = rest.merged(facts)
            return inputs[0].merged(rest.scaled())
        return total.scaled()

    def _is_host(self, node: Node) -> bool:
        if not node.inputs:
            return False
        return self._raw.source(node.inputs[0]).kind is OpKind.HOST_TENSOR
