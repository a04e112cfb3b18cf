"""Configs that would compute something else than the kernel's author wrote.

A pick is used without a run, so nothing checks its result. The one knob-dependent loss
of accuracy known on NVIDIA is the 8-bit sum of Hopper's wgmma (see `mma`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from costmodel.hardware import Hardware
from costmodel.heuristics.facts import Axis
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.mma import EXACT_FP8_SUM
from costmodel.heuristics.mma import sums_fp8_inexactly
from costmodel.types import Config


def keeps_sums_exact(
    facts: Facts, hardware: Hardware, configs: Sequence[Config]
) -> npt.NDArray[np.bool_]:
    """Whether every 8-bit product sums in full registers: bool[n].

    Sums of at most `mma.EXACT_FP8_SUM` products count as exact.
    """
    exact = np.ones(len(configs), dtype=np.bool_)
    for dot in facts.dots:
        if not dot.is_fp8:
            continue
        for row, config in enumerate(configs):
            depth = dot.k.extent if dot.carries else _size(dot.k, config)
            if depth > EXACT_FP8_SUM and sums_fp8_inexactly(
                hardware, _size(dot.m, config), int(config.get("num_warps", 4))
            ):
                exact[row] = False
    return exact


def _size(axis: Axis, config: Config) -> int:
    if axis.knob is None:
        return axis.tile
    return int(config["block_sizes"][axis.knob])
