"""Persistent grids that become one loop with the loop inside them (`range_flattens`).

Triton's FuseNestedLoops does so if the grid asks for it, has exactly one loop inside,
and that loop's bounds are the same in every program. What a program did before its loop
then hides behind a condition: its tiles stay beside the buffers, which the next program
fills already, and the compiler no longer sees that neighbouring indices of the grid's
own tiles are neighbours in memory. (`FuseNestedLoops.cpp`; checked on allocations of
compiled kernels.)
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from costmodel.features.graph import KernelGraph
from costmodel.features.loops import BoundKind
from costmodel.features.regions import RegionKind
from costmodel.features.symbols import Sizes
from costmodel.frozen import dataclass


@dataclass(frozen=True, slots=True)
class FusedPair:
    """A grid body and the only loop inside, which may become one.

    Attributes:
        grid: Graph id of the grid body.
        loop: Graph id of the loop.
        scattered: Tile dimensions as text whose index the grid decides.
    """

    grid: int
    loop: int
    scattered: frozenset[str]


def find_pairs(graph: KernelGraph) -> tuple[FusedPair, ...]:
    """Find grids with a single loop whose bounds no program changes."""
    found = []
    for root in graph.root_ids():
        inner = [
            graph_id
            for graph_id, region in graph.regions.items()
            if region.kind is RegionKind.LOOP and region.root == root
        ]
        if len(inner) != 1:
            continue
        axes = graph.loops.get(inner[0], ())
        if len(axes) != 1 or axes[0].bound is not BoundKind.FREE or axes[0].moves:
            continue
        keys = {axis.block for axis in graph.loops.get(root, ())}
        own = frozenset(s for s, key in graph.by_symbol.items() if key in keys)
        found.append(FusedPair(root, inner[0], own))
    return tuple(found)


def fuses(
    asks: Sizes,
    persistent: npt.NDArray[np.bool_],
    is_loop: npt.NDArray[np.bool_],
    copies: tuple[Sizes, Sizes],
    trips: Sizes,
    rolled: Mapping[int, npt.NDArray[np.bool_]],
) -> npt.NDArray[np.bool_]:
    """Whether a pair becomes one loop: bool[n] or bool[1].

    Args:
        asks: Whether the grid's `range_flattens` is set.
        persistent: Whether the grid is a loop at all.
        is_loop: Whether the loop inside still is one.
        copies: How often the bodies of grid and loop are repeated.
        trips: Of the loop; what unrolling leaves over would be a second loop.
        rolled: Reductions that are loops themselves.
    """
    whole = np.mod(trips, np.maximum(copies[1], 1.0)) == 0.0
    found: npt.NDArray[np.bool_] = (asks > 0.0) & persistent & is_loop & whole
    found = found & (copies[0] <= 1.0)
    for is_rolled in rolled.values():
        found = found & ~is_rolled
    return found
