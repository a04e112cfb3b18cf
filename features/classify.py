"""The class of a kernel, by structure alone."""

from __future__ import annotations

from costmodel.features.graph import KernelGraph
from costmodel.features.loops import BoundKind
from costmodel.types import KernelClass


def classify(graph: KernelGraph) -> KernelClass:
    """Name what a kernel is made of.

    Loops that data in memory decides come first, since their cost is not known
    before launch; then dots, several of them before one; then reductions.
    """
    axes = [axis for region in graph.loops.values() for axis in region]
    if any(axis.bound is BoundKind.DATA for axis in axes):
        return KernelClass.DATA_DEPENDENT
    if len(graph.dots) > 1:
        return KernelClass.MULTI_DOT
    if graph.dots:
        reduces = bool(graph.reductions)
        return KernelClass.MATMUL_REDUCTION if reduces else KernelClass.MATMUL
    if graph.reductions:
        return KernelClass.REDUCTION
    if graph.accesses:
        return KernelClass.POINTWISE
    return KernelClass.UNKNOWN
