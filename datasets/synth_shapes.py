"""A recorded workload at another shape, without binding it again.

With static shapes, Helion's graph spells sizes only in the host tensors; tiles are
symbols. So one size of the arguments can be exchanged for another wherever it is spelt,
strides of dense tensors counted anew, and the result is what Helion would have written
(`tests/test_synth.py` compares it with real binds). A record that spells a size no
argument has, for example a quotient of one, is refused.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodel.types import WorkloadRecord

# Sizes below are mostly counts of heads, taps or groups, on which sources branch.
_SMALLEST = 64
# Real shapes are multiples of this; tensor cores and vector loads like them so.
_STEP = 16
_FACTORS = (0.25, 0.5, 0.75, 1.25, 1.5, 2.0, 3.0, 4.0)
# Elements of one tensor: more needs 64-bit indices, which changes the kernel.
_MAX_NUMEL = 2**31 - 1
_NUMBER = re.compile(r"(?<![A-Za-z_\d.])\d+(?![\w.])")
_HOST = "._host_tensor"


def resized(
    record: WorkloadRecord, rng: np.random.Generator
) -> tuple[WorkloadRecord, Mapping[int, int]] | None:
    """The workload with one of its sizes exchanged for another.

    Args:
        record: From a log, recorded with static shapes.
        rng: Draws which size, and by what factor.

    Returns:
        The new workload and which numbers stand for which; None where no size can be
        exchanged safely.
    """
    sizes = exchangeable(record)
    if not sizes:
        return None
    size = int(rng.choice(sizes))
    new = max(_STEP, round(size * float(rng.choice(_FACTORS)) / _STEP) * _STEP)
    if new == size:
        return None
    return with_sizes(record, size, new)


def exchangeable(record: WorkloadRecord) -> list[int]:
    """Sizes of the arguments that may be exchanged, rising."""
    if not record.settings.get("static_shapes", True):
        return []
    inputs = {size for shape in record.input_shapes for size in shape}
    near = inputs | {size + 1 for size in inputs} | {size - 1 for size in inputs}
    spelt = {
        size
        for node in record.ir_graph.get("nodes", ())
        if str(node.get("target", "")).endswith(_HOST)
        for size in node.get("concrete_shape") or ()
        if isinstance(size, int)
    }
    if any(size >= _STEP and size not in near for size in spelt):
        return []  # derived from the arguments in a way that is not known
    constants = {int(one) for one in _NUMBER.findall(record.kernel_source)}
    return sorted(
        size
        for size in inputs
        if size >= _SMALLEST and size % _STEP == 0 and size not in constants
    )


def with_sizes(
    record: WorkloadRecord, size: int, new: int
) -> tuple[WorkloadRecord, Mapping[int, int]] | None:
    """The workload with one size exchanged; see `resized`.

    Offsets of ragged tensors have one entry more than there are groups, so the number
    above a size goes with it.
    """
    inputs = {one for shape in record.input_shapes for one in shape}
    names = {size: new}
    if size + 1 in inputs:
        names[size + 1] = new + 1
    shapes = tuple(
        tuple(names.get(one, one) for one in shape) for shape in record.input_shapes
    )
    if new in inputs or any(
        np.prod(shape, dtype=float) > _MAX_NUMEL for shape in shapes
    ):
        return None  # two sizes that differ must not become one, and none too large
    nodes = [_renamed(node, names) for node in record.ir_graph.get("nodes", ())]
    graph = {**record.ir_graph, "nodes": nodes}
    return dataclasses.replace(record, input_shapes=shapes, ir_graph=graph), names


def _renamed(node: Mapping[str, Any], names: Mapping[int, int]) -> dict[str, Any]:
    found = dict(node)
    shape, strides = node.get("concrete_shape"), node.get("concrete_stride")
    if shape and strides and None not in (*shape, *strides):
        sizes = [names.get(one, one) for one in shape]
        steps = _strides(shape, strides, sizes, names)
        found["concrete_shape"], found["concrete_stride"] = sizes, steps
        found["shape"], found["stride"] = list(map(str, sizes)), list(map(str, steps))
    elif shape:
        found["concrete_shape"] = [names.get(one, one) for one in shape]
        found["shape"] = [_text(one, names) for one in node["shape"]]
        found["stride"] = [_text(one, names) for one in node["stride"]]
    for key in ("reduction_ranges", "pointwise_ranges"):
        if node.get(key):
            found[key] = [_text(one, names) for one in node[key]]
    if node.get("input_shapes"):
        found["input_shapes"] = [
            None if one is None else [_text(part, names) for part in one]
            for one in node["input_shapes"]
        ]
    return found


def _text(part: Any, names: Mapping[int, int]) -> Any:
    if not isinstance(part, str):
        return names.get(part, part) if isinstance(part, int) else part
    return _NUMBER.sub(lambda m: str(names.get(int(m[0]), int(m[0]))), part)


def _strides(
    shape: Sequence[int],
    strides: Sequence[int],
    sizes: Sequence[int],
    names: Mapping[int, int],
) -> list[int]:
    """Strides of the same layout at other sizes."""
    order = sorted(range(len(shape)), key=lambda axis: (strides[axis], -axis))
    expected, made = 1, 1
    found = [0] * len(shape)
    for axis in order:
        if strides[axis] != expected and shape[axis] != 1:
            return [_scaled(one, names) for one in strides]  # not dense
        found[axis] = made
        expected *= shape[axis]
        made *= sizes[axis]
    return found


def _scaled(stride: int, names: Mapping[int, int]) -> int:
    for size, new in names.items():
        if stride and stride % size == 0:
            return stride // size * new
    return stride
