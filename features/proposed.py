"""Where a config stands in our own analytic list.

The list is made from the same graph by rules (`costmodel.heuristics`), so a log record
and the live kernel have the same one. On 311 H200 workloads, families left out, the two
columns raised what the pick without a gate recovers from 59-62 % to 64-66 % of the log
headroom over two seeds, and from 70-75 % to 84-85 % where Helion has no rule (2026-11).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodel.features.effective import EffectiveKeys
from costmodel.features.graph import KernelGraph
from costmodel.features.symbols import Sizes
from costmodel.types import Candidate
from costmodel.types import Config

NOT_PROPOSED_PLACE = 16.0
"""Place of whatever is not in the list or comes later; lists are 10 to 17 long."""


class Proposed:
    """The analytic list of one workload, and who is in it.

    Attributes:
        candidates: The list, best first.
        keys: What tells programs of this kernel apart.
    """

    def __init__(
        self, graph: KernelGraph, default: Config, candidates: Sequence[Candidate]
    ) -> None:
        """Remember which programs the list means.

        Args:
            graph: The kernel.
            default: Its full default; fills what a config leaves out.
            candidates: The list, best first; may be empty.
        """
        self.candidates = tuple(candidates)
        self.keys = EffectiveKeys(graph, default)
        self._place: dict[tuple[Any, ...], int] = {}
        for place, one in enumerate(self.candidates):
            self._place.setdefault(self.keys.token_of_any(one.config), place)
        self._shapes = {_shape(one.config) for one in self.candidates}

    def places(self, configs: Sequence[Config]) -> list[int | None]:
        """Place in the list of each config that does what one of the list does."""
        # A token holds tile and warps as they are, and costs more than they do.
        return [
            self._place.get(self.keys.token_of_any(config))
            if _shape(config) in self._shapes
            else None
            for config in configs
        ]

    def columns(self, configs: Sequence[Config]) -> dict[str, Sizes]:
        """Feature columns of n configs, float64[n] each."""
        places = self.places(configs)
        capped = [
            NOT_PROPOSED_PLACE if p is None else min(float(p), NOT_PROPOSED_PLACE)
            for p in places
        ]
        return {
            "is_proposed": np.array([float(p is not None) for p in places]),
            "proposal_place": np.array(capped),
        }


def _shape(config: Config) -> tuple[object, ...]:
    """Tile and warps; Helion takes 4 warps where none are named."""
    return (*(config.get("block_sizes") or ()), config.get("num_warps", 4))
