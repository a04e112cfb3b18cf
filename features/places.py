"""What an address that memory decides is: rows one by one, a block, or a start."""

from __future__ import annotations

from costmodel.features.dataflow import Dataflow
from costmodel.features.graph import KernelGraph
from costmodel.features.indices import DimKind
from costmodel.features.memory import Access


def names_rows(access: Access) -> bool:
    """Whether every lane finds its own place."""
    return any(d.kind is DimKind.GATHER and d.unit is None for d in access.dims)


def names_block(graph: KernelGraph, flow: Dataflow, access: Access) -> bool:
    """Whether neighbours follow from a loaded number times a size: page, expert."""
    return _has_run(access) and _is_scaled(graph, flow, access)


def names_start(graph: KernelGraph, flow: Dataflow, access: Access) -> bool:
    """Whether neighbours follow from a loaded start, as in a ragged row."""
    return _has_run(access) and not _is_scaled(graph, flow, access)


def _has_run(access: Access) -> bool:
    return any(d.kind is DimKind.GATHER and d.unit is not None for d in access.dims)


def _is_scaled(graph: KernelGraph, flow: Dataflow, access: Access) -> bool:
    """Whether a loaded number is multiplied on its way into the address."""
    for node_id in flow.reach(flow.address_of(access.node_id)):
        if graph.raw.nodes[node_id].op != "mul":
            continue
        behind = flow.ancestors(node_id)
        if any(flow.is_host_load(graph.raw.nodes[i]) for i in behind):
            return True
    return False
