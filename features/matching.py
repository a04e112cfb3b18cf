"""Which loop of the source each region of the graph is: by line, else by order."""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.features.nodes import RawGraph
from costmodel.features.regions import Region
from costmodel.features.regions import RegionKind
from costmodel.features.source import KernelSource
from costmodel.features.source import SourceLoop


def match_loops(
    raw: RawGraph, regions: Mapping[int, Region], source: KernelSource | None
) -> dict[int, SourceLoop]:
    """Source loop of each loop region and root, by line, else by order."""
    if source is None:
        return {}
    roots = [g for g in raw.root_ids if g in regions]
    matched: dict[int, SourceLoop] = {}
    if len(roots) == len(source.roots):
        matched.update(zip(roots, source.roots, strict=True))
    offsets = {
        line - loop.line
        for g, loop in matched.items()
        if (line := regions[g].line) is not None
    }
    by_line = {loop.line: loop for loop in source.loops()}
    device = [r for r in regions.values() if r.kind is RegionKind.LOOP]
    if len(offsets) == 1:
        offset = offsets.pop()
        for region in device:
            loop = by_line.get((region.line or 0) - offset)
            if loop is not None and _fits(loop, region):
                matched[region.graph_id] = loop
    for parent, loop in list(matched.items()):
        _match_inner(parent, loop, regions, matched)
    return matched


def _match_inner(
    parent: int,
    loop: SourceLoop,
    regions: Mapping[int, Region],
    matched: dict[int, SourceLoop],
) -> None:
    """Where lines tell nothing, match children in order if their number agrees."""
    children = [
        r
        for r in regions.values()
        if r.kind is RegionKind.LOOP and _loop_parent(r, regions) == parent
    ]
    if len(children) != len(loop.inner):
        return
    for region, inner in zip(children, loop.inner, strict=True):
        if region.graph_id not in matched and _fits(inner, region):
            matched[region.graph_id] = inner
            _match_inner(region.graph_id, inner, regions, matched)


def _loop_parent(region: Region, regions: Mapping[int, Region]) -> int | None:
    parent = region.parent
    while parent is not None and regions[parent].kind not in (
        RegionKind.LOOP,
        RegionKind.ROOT,
    ):
        parent = regions[parent].parent
    return parent


def _fits(loop: SourceLoop, region: Region) -> bool:
    return len(loop.axes) == len(region.block_ids) or len(loop.axes) == 1
