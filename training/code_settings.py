"""Numbers of the second stage, which learns from machine code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeSettings:
    """Numbers of the fit; small, since code is seen of some sixteen configs a workload.

    Attributes:
        enabled: Whether a second stage is made where configs were compiled.
        min_workloads: Fewer with compiled configs make none: it would be an anecdote.
        n_bags: Ensembles averaged, each weighing workloads differently.
        n_trees: Boosting rounds of each.
        max_depth: Of each tree.
        learning_rate: Shrinkage per round.
        column_share: Features offered to each tree.
        row_share: Rows offered to each tree.
        min_child_weight: Smallest leaf.
        spread_weight: Spreads over bags that a promise is lowered by.
        seed: Of every draw.
    """

    enabled: bool = True
    min_workloads: int = 40
    n_bags: int = 5
    n_trees: int = 80
    max_depth: int = 4
    learning_rate: float = 0.12
    column_share: float = 0.4
    row_share: float = 0.8
    min_child_weight: float = 8.0
    spread_weight: float = 1.0
    seed: int = 0
