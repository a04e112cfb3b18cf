"""The analytic list of a workload, made once and known to its features."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.features.canonical import canonical_config
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.propose import propose
from costmodel.types import Candidate
from costmodel.types import Config

if TYPE_CHECKING:
    from costmodel.features.extract import FeatureExtractor


def with_list(
    extractor: FeatureExtractor, default: Config, facts: Facts | None = None
) -> tuple[Candidate, ...]:
    """Make the analytic list and tell the extractor, which features need.

    Made without Helion's space of legal values, which no log holds: a record and the
    live kernel must have one list. What the space refuses is left out by whoever
    serves.

    Args:
        extractor: The kernel and the GPU.
        default: Helion's default.
        facts: What `read_facts` gives of the graph, where the caller has it already.

    Returns:
        The list, best first; empty for a kernel of no known class.

    Raises:
        UnreadableKernelError: The kernel does not resolve.
    """
    full = canonical_config(default)
    found = propose(extractor.graph, extractor, full, facts=facts)
    extractor.know_list(full, found)
    return extractor.proposed.candidates
