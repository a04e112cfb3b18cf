"""An analysis as one JSON object; keys are part of the command line's contract."""

from __future__ import annotations

import dataclasses
from typing import Any

from costmodel.analyse import Analysis
from costmodel.analyse import block_name
from costmodel.analyse import shape_text
from costmodel.analyse_config import ConfigFacts
from costmodel.features.nest import AxisFact
from costmodel.features.nest import NestLevel
from costmodel.features.reuse import AccessFact


def as_json(found: Analysis) -> dict[str, Any]:
    """The whole analysis; numbers have their unit in their name."""
    graph, record = found.graph, found.graph.record
    return {
        "kernel": record.kernel_name,
        "input_shapes": [list(shape) for shape in record.input_shapes],
        "dtypes": [dtype.removeprefix("torch.") for dtype in record.dtypes],
        "gpu": found.hardware.name,
        "class": found.traits.kind.value,
        "parts": [part.value for part in found.traits.parts],
        "traits": [trait.value for trait in found.traits.traits],
        "nest": [_level(found, level) for level in found.nest],
        "knobs": [
            {
                "knob": knob.knob,
                "name": block_name(graph, knob.block),
                "extent": knob.extent,
                "extent_is_known": knob.is_known,
                "place": knob.place,
                "walks": [f"{tensor}[{dim}]" for tensor, dim in knob.walks],
                "sides": [f"dot{dot}.{side}" for dot, side in knob.sides],
            }
            for knob in found.knobs
        ],
        "accesses": [_access(found, fact) for fact in found.accesses],
        "dots": [
            {
                "tile": shape_text(graph, (*dot.batch, dot.m, dot.n, dot.k)),
                "lhs_dtype": dot.lhs_dtype.removeprefix("torch."),
                "rhs_dtype": dot.rhs_dtype.removeprefix("torch."),
                "out_dtype": dot.out_dtype.removeprefix("torch."),
                "is_carried": dot.carried,
            }
            for dot in graph.dots
        ],
        "ops": {
            "dots": dict(found.ops.dots),
            "special": dict(found.ops.special),
            "conversions": dict(found.ops.conversions),
            "reductions": dict(found.ops.reductions),
            "n_elementwise": found.ops.n_elementwise,
        },
        "problem": found.problem,
        "configs": {facts.label: _config(found, facts) for facts in found.configs},
    }


def _level(found: Analysis, level: NestLevel) -> dict[str, Any]:
    return {
        "kind": level.kind,
        "depth": level.depth,
        "axes": [_axis(found, axis) for axis in level.axes],
        "carries": [
            {
                "tile": shape_text(found.graph, carry.shape),
                "dtype": carry.dtype.removeprefix("torch."),
                "update": carry.kind.value,
            }
            for carry in level.carries
        ],
    }


def _axis(found: Analysis, axis: AxisFact) -> dict[str, Any]:
    outer = axis.outer
    return {
        "name": block_name(found.graph, axis.block),
        "driver": axis.driver,
        "extent": axis.extent,
        "trips": axis.trips.value,
        "bound": axis.bound.value,
        "inside": None if outer is None else block_name(found.graph, outer),
    }


def _access(found: Analysis, fact: AccessFact) -> dict[str, Any]:
    access, graph = fact.access, found.graph
    return {
        "tensor": access.tensor,
        "kind": access.kind.value,
        "dtype": access.dtype.removeprefix("torch."),
        "tile": shape_text(graph, access.shape),
        "index": [dim.kind.value for dim in access.dims],
        "strides": [dim.stride for dim in access.dims],
        "slot": access.slot,
        "eviction_slot": access.load_slot,
        "contiguous_along": [shape_text(graph, (p,))[1:-1] for p in fact.lanes],
        "aligned_bytes": fact.aligned_bytes,
        "may_use_descriptor": fact.may_use_descriptor,
        "is_masked": access.masked,
        "shared_by_programs_along": [block_name(graph, k) for k in fact.shared_by],
        "repeated_by_loops_over": [block_name(graph, k) for k in fact.repeated_by],
    }


def _config(found: Analysis, facts: ConfigFacts) -> dict[str, Any]:
    roofline = facts.roofline
    return {
        "config": facts.config,
        "tiles": {knob.knob: facts.blocks[knob.block] for knob in found.knobs},
        "programs": facts.programs,
        "trips": [list(trips) for trips in facts.trips],
        "resources": dict(facts.resources),
        "times_us": dict(facts.times_us),
        "launch": dict(facts.launch),
        "traffic": dict(facts.traffic),
        "accesses": [dataclasses.asdict(moved) for moved in facts.moved],
        "live_tiles": [
            {
                "tile": shape_text(found.graph, tile.shape),
                "sizes": list(tile.sizes),
                "itemsize": tile.itemsize,
                "count": tile.count,
                "total_bytes": tile.total_bytes,
            }
            for tile in facts.live
        ],
        "roofline": {**dataclasses.asdict(roofline), "side": roofline.side},
    }
