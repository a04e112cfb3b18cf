"""Would Helion 1.5 make one of its own rules the default for this kernel?

Restated from Helion 1.5.1's registry for Triton, by what each rule asks of a kernel.
A rule that only offers seeds does not count. Needed where Helion itself cannot be
asked: for kernels known from their logs alone.
"""

from __future__ import annotations

from costmodel.features.blocks import Block
from costmodel.features.blocks import BlockKind
from costmodel.features.compute import Dot
from costmodel.features.graph import KernelGraph
from costmodel.features.loops import BoundKind
from costmodel.features.ops import OpKind
from costmodel.features.ops import is_float8
from costmodel.features.regions import RegionKind
from costmodel.features.symbols import literal
from costmodel.features.symbols import names_in
from costmodel.hardware import Hardware

# Architectures whose rules Helion 1.5 promotes; it compares the name, so that sm103
# and sm120 are not among them.
_PROMOTED = ("sm90", "sm100")

_NOT_POINTWISE = frozenset(
    {"_associative_scan", "_reduce", "inline_triton", "triton_kernel"}
)
_NOT_POINTWISE_PREFIX = ("inline_asm", "atomic_")


def has_promoted_rule(graph: KernelGraph, hardware: Hardware) -> bool:
    """Whether Helion's default for this kernel comes from a rule, not a guess.

    1. Products: some product whose sides are all known, and none of two 8-bit floats.
       With any product in the kernel, no other rule applies.
    2. Reductions: some reduced axis that one program walks whole, of known extent.
    3. Everything else: only maps, and no loop takes a tensor from around it.
    """
    if hardware.arch not in _PROMOTED:
        return False
    if graph.dots:
        if any(_is_fp8(dot) for dot in graph.dots):
            return False
        return any(_is_sized(graph, dot) for dot in graph.dots)
    if any(_is_whole(graph, text) for text in _reduced(graph)):
        return True
    return _is_map(graph)


def _is_fp8(dot: Dot) -> bool:
    return is_float8(dot.lhs_dtype) and is_float8(dot.rhs_dtype)


def _is_sized(graph: KernelGraph, dot: Dot) -> bool:
    return all(_is_known(graph, text) for text in (dot.m, dot.n, dot.k))


def _is_known(graph: KernelGraph, text: str) -> bool:
    """Whether a side of a product has an extent that shapes decide."""
    if literal(text) is not None:
        return True
    block = _block(graph, text)
    if block is None:
        return text in graph.size_hints
    if block.kind is BlockKind.FIXED:
        return True  # by a literal, or by an argument that Helion has and a log has not
    return not _ends_by_data(graph, block)


def _reduced(graph: KernelGraph) -> list[str]:
    return [
        text
        for reduction in graph.reductions
        if not reduction.is_scan
        for text in reduction.over
    ]


def _is_whole(graph: KernelGraph, text: str) -> bool:
    """Whether one program reduces the whole axis, and shapes decide how long it is."""
    if literal(text) is not None:
        return True
    block = _block(graph, text)
    if block is None:
        # A multiple of a tile, or a size of a dynamic shape.
        names = names_in(text)
        known = (n in graph.size_hints or _is_whole(graph, n) for n in names)
        return text in graph.size_hints or (names != {text} and all(known))
    if block.kind is BlockKind.REDUCTION:
        return True
    if _ends_by_data(graph, block):
        return False
    if not block.in_grid:
        return True
    # On the grid only an axis tiled at its full extent is one program's alone.
    return block.kind is BlockKind.FIXED and block.fixed_size == block.extent


def _is_map(graph: KernelGraph) -> bool:
    if not graph.tunable_blocks or not graph.accesses:
        return False
    if _feeds_tensor_to_loop(graph):
        return False
    for node in graph.raw.nodes.values():
        if node.kind is OpKind.ATOMIC or node.op in _NOT_POINTWISE:
            return False
        if node.op.startswith(_NOT_POINTWISE_PREFIX):
            return False
    return True


def _feeds_tensor_to_loop(graph: KernelGraph) -> bool:
    """Whether some loop takes a tensor from around it.

    Helion takes every such tensor for an accumulator, and looks at the rolled
    alternatives of reductions too.
    """
    loops = {
        g
        for g, region in graph.regions.items()
        if region.kind in (RegionKind.LOOP, RegionKind.ROLLED)
    }
    return any(
        node.kind is OpKind.PLACEHOLDER
        and node.graph_id in loops
        and node.shape is not None
        for node in graph.raw.nodes.values()
    )


def _block(graph: KernelGraph, text: str) -> Block | None:
    key = graph.by_symbol.get(text)
    return None if key is None else graph.blocks[key]


def _ends_by_data(graph: KernelGraph, block: Block) -> bool:
    return any(
        axis.block == block.key and axis.bound is BoundKind.DATA
        for axes in graph.loops.values()
        for axis in axes
    )
