"""Which addressing a memory operation really gets.

A config may ask for a tensor descriptor (TMA) where Helion quietly emits pointers: the
hardware wants 16-byte strides and inner boxes, boxes no larger than the tensor, and
plain tile or slice indices. Two configs that differ only there are one program.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from costmodel.features.graph import KernelGraph
from costmodel.features.indices import DimKind
from costmodel.features.memory import Access
from costmodel.features.symbols import literal
from costmodel.features.tiles import Tiles

# TMA moves 16-byte units: strides and inner box must be multiples of it (CUDA driver
# API, cuTensorMapEncodeTiled). A box side is at most 256 elements (same source).
TMA_UNIT_BYTES = 16
TMA_MAX_BOX = 256


def may_use_descriptor(graph: KernelGraph, access: Access) -> bool:
    """Whether some config could make a descriptor access of it."""
    host = graph.host_tensors[access.tensor]
    if not 2 <= len(host.shape) <= 5:
        return False
    strides = [_known(graph, text) for text in host.stride]
    if strides.count(1) != 1:
        return False
    if any(
        s is None or (s * access.itemsize) % TMA_UNIT_BYTES for s in strides if s != 1
    ):
        return False
    for dim, stride in zip(access.dims, strides, strict=True):
        if dim.kind in (DimKind.GATHER, DimKind.AFFINE):
            return False
        if stride == 1 and dim.kind in (DimKind.SCALAR, DimKind.CONST):
            return False
    return not access.masked


def descriptor_fits(
    graph: KernelGraph, access: Access, tiles: Tiles
) -> npt.NDArray[np.bool_]:
    """For each config, whether a descriptor asked for is a descriptor got: bool[n]."""
    fits = np.full(tiles.n, may_use_descriptor(graph, access), dtype=np.bool_)
    if not fits.any():
        return fits
    strides = [_known(graph, d.stride) or 0 for d in access.dims]
    inner = max((s for s in strides if s > 1), default=0)
    for dim, stride in zip(access.dims, strides, strict=True):
        if dim.kind not in (DimKind.TILE, DimKind.SLICE):
            continue
        box = tiles.dim(dim.tile)
        extent = _known(graph, dim.size)
        fits &= box <= (TMA_MAX_BOX if extent is None else min(TMA_MAX_BOX, extent))
        is_batch = any(1 < s < stride for s in strides) and stride <= inner
        if not is_batch:
            fits &= box * access.itemsize >= TMA_UNIT_BYTES
    return fits


def _known(graph: KernelGraph, text: str) -> int | None:
    number = literal(text)
    return graph.size_hints.get(text) if number is None else number
