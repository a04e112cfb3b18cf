"""Pick Helion kernel configs at compile time, with no benchmark.

Everything public is loaded on first use (PEP 562), so that `import costmodel` costs
milliseconds and importing a sub-package never pulls in torch or Helion.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costmodel.acf.here import control_file
    from costmodel.enabling import disable
    from costmodel.enabling import enable
    from costmodel.enabling import override
    from costmodel.modes import autotuner
    from costmodel.process_provider import pick
    from costmodel.process_provider import stats
    from costmodel.ranking import rank
    from costmodel.shapes import pick_shapes
    from costmodel.token_buckets import buckets
    from costmodel.types import Pick

__version__ = "0.1.0"

__all__ = [
    "Pick",
    "__version__",
    "autotuner",
    "buckets",
    "control_file",
    "disable",
    "enable",
    "override",
    "pick",
    "pick_shapes",
    "rank",
    "stats",
]

_HOME = {
    "Pick": "costmodel.types",
    "autotuner": "costmodel.modes",
    "buckets": "costmodel.token_buckets",
    "control_file": "costmodel.acf.here",
    "disable": "costmodel.enabling",
    "enable": "costmodel.enabling",
    "override": "costmodel.enabling",
    "pick": "costmodel.process_provider",
    "pick_shapes": "costmodel.shapes",
    "rank": "costmodel.ranking",
    "stats": "costmodel.process_provider",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'costmodel' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
