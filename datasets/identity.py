"""Ids and digests that do not depend on the machine, the folder or the row order."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from costmodel.datasets.meta_file import graph_digest
from costmodel.datasets.side_file import SideFacts
from costmodel.types import WorkloadRecord

# Settings that change the generated code. Helion's own list differs by version, which
# is why its run ids cannot be compared across versions.
_CODE_SETTINGS = (
    "allow_warp_specialize",
    "debug_dtype_asserts",
    "dot_precision",
    "fast_math",
    "index_dtype",
    "persistent_reserved_sms",
    "static_shapes",
)


def digest_of(value: Any, digits: int = 16) -> str:
    """Hex digits over a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def workload_id(record: WorkloadRecord, side: SideFacts | None = None) -> str:
    """16 hex digits: equal for one kernel with the same shapes, dtypes, settings, GPU
    and IR, whoever recorded it.

    Scalar arguments count only where there is no IR graph to show what they changed.
    """
    graph = graph_digest(record.ir_graph)
    scalars = dict(side.scalars) if side is not None and not graph else {}
    return digest_of(
        [
            record.kernel_source or record.kernel_name,
            record.input_shapes,
            record.dtypes,
            record.hardware,
            {key: record.settings.get(key) for key in _CODE_SETTINGS},
            graph,
            scalars,
        ]
    )


def kernel_digest(record: WorkloadRecord) -> str:
    """16 hex digits over the source alone: equal for all shapes of one kernel."""
    return digest_of(record.kernel_source or record.kernel_name)
