"""Each access as a kernel author reads it: lanes, alignment, and who reads it again."""

from __future__ import annotations

import math

from costmodel.features.coverage import host_stride
from costmodel.features.coverage import lane_axes
from costmodel.features.coverage import live_accesses
from costmodel.features.coverage import moving_blocks
from costmodel.features.graph import KernelGraph
from costmodel.features.indexing import may_use_descriptor
from costmodel.features.indices import DimKind
from costmodel.features.loops import BoundKind
from costmodel.features.memory import Access
from costmodel.features.regions import RegionKind
from costmodel.frozen import dataclass

# Widest access of a thread, and what a tensor descriptor needs of a stride, in bytes;
# torch allocates on multiples of 512.
ALIGNED_BYTES = 16


@dataclass(frozen=True, slots=True)
class AccessFact:
    """One load, store or atomic, config-independent.

    Attributes:
        access: The operation.
        lanes: Tile sizes along which it is contiguous, innermost first; empty where
            lanes leave gaps or memory names them.
        aligned_bytes: Largest power of two up to 16 that every row starts on a multiple
            of, if the tensor itself does.
        may_use_descriptor: Whether some config can make a tensor descriptor of it.
        shared_by: Keys of grid blocks that do not move its address: programs along
            them touch the same elements, through L2.
        repeated_by: Keys of loop blocks that do not move it: one program touches the
            same elements again in every trip.
    """

    access: Access
    lanes: tuple[str, ...]
    aligned_bytes: int
    may_use_descriptor: bool
    shared_by: tuple[int, ...]
    repeated_by: tuple[int, ...]


def read_access_facts(graph: KernelGraph) -> tuple[AccessFact, ...]:
    """Every access of the program as written, in the order of its knobs' slots."""
    ordered = sorted(live_accesses(graph), key=lambda a: (a.slot, a.kind.value))
    return tuple(_fact(graph, access) for access in ordered)


def _fact(graph: KernelGraph, access: Access) -> AccessFact:
    moving = _moving(graph, access)
    shared: list[int] = []
    repeated: list[int] = []
    for graph_id in reversed(graph.enclosing(access.graph_id)):
        is_grid = graph.regions[graph_id].kind is RegionKind.ROOT
        for axis in graph.loops.get(graph_id, ()):
            if axis.block not in moving:
                (shared if is_grid else repeated).append(axis.block)
    return AccessFact(
        access=access,
        lanes=lane_axes(access),
        aligned_bytes=_aligned_bytes(graph, access),
        may_use_descriptor=may_use_descriptor(graph, access),
        shared_by=tuple(dict.fromkeys(shared)),
        repeated_by=tuple(dict.fromkeys(repeated)),
    )


def _moving(graph: KernelGraph, access: Access) -> frozenset[int]:
    """Blocks that move an address, and outer tiles that those are walked inside."""
    keys = set(moving_blocks(graph, access))
    for axes in graph.loops.values():
        for axis in axes:
            if axis.block in keys and axis.bound is BoundKind.INSIDE:
                keys |= set() if axis.outer is None else {axis.outer}
    return frozenset(keys)


def _aligned_bytes(graph: KernelGraph, access: Access) -> int:
    steps = [ALIGNED_BYTES]
    for dim in access.dims:
        stride = host_stride(graph, dim.stride)
        if stride is None:
            return access.itemsize
        if stride == 1 and dim.kind in (DimKind.AFFINE, DimKind.GATHER):
            steps.append(access.itemsize)  # shifted by an offset that does not show
        elif stride > 1:
            steps.append(stride * access.itemsize)
    return math.gcd(*steps)
