"""Dots, reductions and elementwise arithmetic, with the tiles they work on."""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.features.nodes import Node
from costmodel.features.nodes import RawGraph
from costmodel.features.ops import SPECIAL_NAMES
from costmodel.features.ops import OpKind
from costmodel.features.regions import Region
from costmodel.features.regions import RegionKind
from costmodel.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Dot:
    """One matrix product, sizes as text.

    Attributes:
        node_id: Node that does it.
        graph_id: Region that holds it.
        batch: Sizes of batch dimensions.
        m: Rows of the result.
        n: Columns of the result.
        k: Contracted size.
        lhs_dtype: Dtype of the left operand as torch prints it.
        rhs_dtype: Dtype of the right operand.
        out_dtype: Dtype of the result.
        lhs_loaded: Whether the left operand comes straight from memory.
        rhs_loaded: Whether the right one does.
        carried: Whether it adds to a value carried around its loop.
        rescaled: Whether that value is multiplied before it is added to.
    """

    node_id: str
    graph_id: int
    batch: tuple[str, ...]
    m: str
    n: str
    k: str
    lhs_dtype: str
    rhs_dtype: str
    out_dtype: str
    lhs_loaded: bool
    rhs_loaded: bool
    carried: bool
    rescaled: bool


@dataclass(frozen=True, slots=True)
class Reduction:
    """One reduction or scan.

    Attributes:
        node_id: Node that does it.
        graph_id: Region that holds it.
        over: Sizes reduced over, as text.
        shape: Tile that goes in.
        is_scan: Whether it is a scan.
    """

    node_id: str
    graph_id: int
    over: tuple[str, ...]
    shape: tuple[str, ...]
    is_scan: bool


@dataclass(frozen=True, slots=True)
class Elementwise:
    """One arithmetic operation on a tile.

    Attributes:
        graph_id: Region that holds it.
        shape: Tile it makes.
        special: Whether it needs the special function unit.
        is_convert: Whether it only changes the dtype.
    """

    graph_id: int
    shape: tuple[str, ...]
    special: bool
    is_convert: bool


def read_compute(
    raw: RawGraph, regions: Mapping[int, Region]
) -> tuple[tuple[Dot, ...], tuple[Reduction, ...], tuple[Elementwise, ...]]:
    """Read arithmetic of every region that is not a rolled alternative."""
    dots: list[Dot] = []
    reductions: list[Reduction] = []
    elementwise: list[Elementwise] = []
    for graph_id, raw_region in raw.regions.items():
        if regions[graph_id].kind in (RegionKind.ROLLED, RegionKind.HELPER):
            continue
        for node_id in raw_region.node_ids:
            node = raw.nodes[node_id]
            if node.op == "_mask_to":
                # Zeroing of padding, no arithmetic of the kernel: versions of Helion
                # and PyTorch put it in different places (16 of 216 recorded H200
                # workloads read differently from the same kernel bound today).
                continue
            if node.kind is OpKind.DOT:
                dots.extend(_dot(raw, node))
            elif node.kind in (OpKind.REDUCTION, OpKind.SCAN):
                reductions.append(_reduction(raw, node))
            elif node.kind in (OpKind.POINTWISE, OpKind.CONVERT) and node.shape:
                elementwise.append(
                    Elementwise(
                        graph_id=graph_id,
                        shape=node.shape,
                        special=node.op in SPECIAL_NAMES,
                        is_convert=node.kind is OpKind.CONVERT,
                    )
                )
    return tuple(dots), tuple(reductions), tuple(elementwise)


def _dot(raw: RawGraph, node: Node) -> list[Dot]:
    operands = [raw.nodes[i] for i in node.inputs if raw.nodes[i].shape]
    accumulator: Node | None = None
    if node.op in ("addmm", "baddbmm") and len(operands) >= 3:
        accumulator, lhs, rhs = operands[0], operands[1], operands[2]
    elif len(operands) >= 2:
        is_scaled = node.op in ("dot_scaled", "_scaled_mm") and len(operands) >= 3
        lhs, rhs = operands[0], operands[2 if is_scaled else 1]
        accumulator = operands[2] if node.op == "dot" and len(operands) > 2 else None
    elif len(operands) == 1:
        lhs = rhs = operands[0]
    else:
        return []
    shape = node.shape or ()
    left = lhs.shape or ()
    if not shape or not left:
        return []
    return [
        Dot(
            node_id=node.id,
            graph_id=node.graph_id,
            batch=shape[:-2],
            m=shape[-2] if len(shape) > 1 else "1",
            n=shape[-1],
            k=left[-1],
            lhs_dtype=lhs.dtype or "",
            rhs_dtype=rhs.dtype or "",
            out_dtype=node.dtype or "",
            lhs_loaded=_from_memory(raw, lhs),
            rhs_loaded=_from_memory(raw, rhs),
            carried=accumulator is not None and _is_carried(raw, accumulator),
            rescaled=accumulator is not None
            and accumulator.kind is OpKind.POINTWISE
            and _is_carried(raw, accumulator),
        )
    ]


def _from_memory(raw: RawGraph, node: Node) -> bool:
    """Whether a dot operand is a load, or a view of one."""
    current = raw.source(node.id)
    while current.kind is OpKind.VIEW and current.inputs:
        current = raw.source(current.inputs[0])
    return current.kind is OpKind.LOAD


def _is_carried(raw: RawGraph, node: Node) -> bool:
    """Whether a value comes from a placeholder of the same region."""
    stack, seen = [node.id], set[str]()
    while stack and len(seen) < 16:
        current = raw.nodes[stack.pop()]
        if current.id in seen:
            continue
        seen.add(current.id)
        if current.kind is OpKind.PLACEHOLDER:
            return True
        if current.kind in (OpKind.POINTWISE, OpKind.VIEW, OpKind.ALIAS):
            stack.extend(current.inputs[:1])
    return False


def _reduction(raw: RawGraph, node: Node) -> Reduction:
    shapes = [raw.nodes[i].shape or () for i in node.inputs]
    given = node.input_shapes[0] if node.input_shapes else ()
    shape = max([given, *shapes], key=len)
    return Reduction(
        node_id=node.id,
        graph_id=node.graph_id,
        over=node.reduction_ranges,
        shape=shape or (node.shape or ()),
        is_scan=node.kind is OpKind.SCAN,
    )
