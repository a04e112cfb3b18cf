"""Which operations a program is made of, by name, as written."""

from __future__ import annotations

from collections import Counter

from costmodel.features.graph import KernelGraph
from costmodel.features.ops import SPECIAL_NAMES
from costmodel.features.ops import OpKind
from costmodel.features.ops import math_dtype
from costmodel.features.regions import RegionKind
from costmodel.frozen import dataclass


@dataclass(frozen=True, slots=True)
class OpMix:
    """Operations on tiles as written, most frequent first, then by name.

    Attributes:
        dots: (left type x right type -> result type, count).
        special: Operations of the special function unit, by name.
        conversions: (from -> to, count).
        reductions: Reductions and scans, by name.
        n_elementwise: Other arithmetic on tiles.
    """

    dots: tuple[tuple[str, int], ...]
    special: tuple[tuple[str, int], ...]
    conversions: tuple[tuple[str, int], ...]
    reductions: tuple[tuple[str, int], ...]
    n_elementwise: int


def read_opmix(graph: KernelGraph) -> OpMix:
    """Count operations of every region that is not a rolled alternative."""
    special, conversions = Counter[str](), Counter[str]()
    n_elementwise = 0
    for graph_id, region in graph.raw.regions.items():
        if graph.regions[graph_id].kind in (RegionKind.ROLLED, RegionKind.HELPER):
            continue
        for node_id in region.node_ids:
            node = graph.raw.nodes[node_id]
            if not node.shape:
                continue
            if node.kind is OpKind.CONVERT and node.inputs:
                before = graph.raw.nodes[node.inputs[0]].dtype
                conversions[f"{_short(before)} -> {_short(node.dtype)}"] += 1
            elif node.kind is OpKind.POINTWISE and node.op in SPECIAL_NAMES:
                special[node.op.strip("_")] += 1
            elif node.kind is OpKind.POINTWISE and node.op != "_mask_to":
                n_elementwise += 1
    dots = Counter(
        f"{_short(d.lhs_dtype)} x {_short(d.rhs_dtype)} -> {_short(d.out_dtype)}"
        for d in graph.dots
    )
    reductions = Counter(_reduction_name(graph, r.node_id) for r in graph.reductions)
    return OpMix(
        dots=_ordered(dots),
        special=_ordered(special),
        conversions=_ordered(conversions),
        reductions=_ordered(reductions),
        n_elementwise=n_elementwise,
    )


def dot_rate(graph: KernelGraph) -> str | None:
    """Key of `Hardware.peak_tflops` that most products use, or None without one."""
    rates = Counter(math_dtype(dot.lhs_dtype) for dot in graph.dots)
    return max(rates, key=lambda name: (rates[name], name)) if rates else None


def _reduction_name(graph: KernelGraph, node_id: str) -> str:
    op = graph.raw.nodes[node_id].op.strip("_")
    # Inductor splits a mean or a variance into parts with names of its own.
    return "reduction" if op == "inductor_lowering_extra" else op


def _short(dtype: str | None) -> str:
    return (dtype or "?").removeprefix("torch.")


def _ordered(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
