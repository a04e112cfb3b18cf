"""Ranges of token counts that share a config, so that a server compiles few programs.

The stream's counts are compared by prediction alone; nothing is measured, and no GPU is
needed.
"""

from __future__ import annotations

import bisect
import math
import os
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodel.bucket_split import split_rows
from costmodel.errors import ArgumentSpecError
from costmodel.errors import NoCommonConfigError
from costmodel.frozen import dataclass
from costmodel.provider import Provider
from costmodel.shape_losses import LossTable
from costmodel.shape_losses import ShapeCase
from costmodel.shape_losses import make_loss_table
from costmodel.shapes import spec_of
from costmodel.shapes import target_of
from costmodel.types import Config

# Distinct sizes of a stream that are looked at; each costs a bind and a pick, about a
# second. The others are served by the next larger one that was.
MOST_PROBES = 24

# What one more program must save in mean predicted time to be worth its compilation
# and its memory: half a per cent, below which timings on one GPU do not agree anyway
# (noise floor of the bundled H200 corpus, 2026-11).
COMPILE_COST_LOG = 0.005


@dataclass(frozen=True, slots=True)
class Bucket:
    """A range of token counts with one config.

    Attributes:
        low: Smallest count, included.
        high: Largest count, included; counts above the last bucket's belong to it too.
        config: What to compile.
        mean_loss_log: Weighted mean predicted loss inside, doubt added.
    """

    low: int
    high: int
    config: Config
    mean_loss_log: float


@dataclass(frozen=True, slots=True)
class Buckets:
    """Ranges without gaps from 1 up; every count is in exactly one.

    Attributes:
        buckets: Rising.
        mean_loss_log: Weighted mean predicted loss over the stream, against a pick for
            every count of its own.
        n_picks: Distinct configs that such picks would compile.
    """

    buckets: tuple[Bucket, ...]
    mean_loss_log: float
    n_picks: int

    def of(self, token_count: int) -> Bucket:
        """The bucket of a count; counts above the largest seen use the last one."""
        edges = [bucket.high for bucket in self.buckets]
        place = bisect.bisect_left(edges, token_count)
        return self.buckets[min(place, len(edges) - 1)]


def buckets(
    token_counts: Sequence[int] | Mapping[int, float],
    max_buckets: int,
    *,
    kernel: Any,
    arguments: Callable[[int], Sequence[object]],
    gpu: str | None = None,
    model_path: str | os.PathLike[str] | None = None,
    compile_cost_log: float = COMPILE_COST_LOG,
) -> Buckets:
    """Cut a stream of token counts into few ranges with one config each.

    Minimises the mean predicted log loss plus `compile_cost_log` for every bucket after
    the first, over all ways to cut; fewer buckets than allowed are made where more
    would not pay.

    Example:
        >>> ranges = costmodel.buckets(
        ...     seen_counts, 4, kernel=my_kernel, gpu="H200",
        ...     arguments=lambda tokens: (f"bf16[{tokens},4096]", 1e-5))
        >>> ranges.of(37).config

    Args:
        token_counts: As they came, repeats included; or counts with their weights.
        max_buckets: Most programs to compile, >= 1.
        kernel: A `helion.kernel` object; it is left alone.
        arguments: From a token count to the call's arguments, as in `pick_shapes`.
        gpu: The target's name; None means the GPU of this machine.
        model_path: A published model; None means the provider's usual one.
        compile_cost_log: Mean log loss that one more bucket must save.

    Raises:
        NoCommonConfigError: So few buckets cannot serve all counts.
        ArgumentSpecError: No counts, a count below 1, or an unreadable argument.
        BindError: Helion refuses a shape.
    """
    weights = _weights(token_counts)
    if max_buckets < 1:
        raise ArgumentSpecError(f"expected at least 1 bucket, found {max_buckets}")
    probes = probe_counts(sorted(weights), MOST_PROBES)
    shares = dict.fromkeys(probes, 0.0)
    for count, weight in weights.items():
        shares[probes[bisect.bisect_left(probes, count)]] += weight
    cases = [
        ShapeCase(tuple(spec_of(arg) for arg in arguments(count)), shares[count])
        for count in probes
    ]
    table = make_loss_table(kernel, cases, target_of(gpu), Provider(model_path))
    return _cut(table, probes, max_buckets, compile_cost_log)


def _cut(
    table: LossTable, probes: Sequence[int], limit: int, cost_log: float
) -> Buckets:
    loss = table.loss_log.copy()
    weights = np.array([case.weight for case in table.cases])
    while True:
        split = split_rows(loss, list(weights), limit, cost_log=cost_log)
        if not split.can_serve:
            raise NoCommonConfigError(
                f"expected configs for {len(probes)} token counts in {limit} buckets, "
                "found counts that share none: allow more buckets"
            )
        failing = [
            (row, segment.column)
            for segment in split.segments
            for row in range(segment.first, segment.last + 1)
            if not table.generates(row, segment.column)
        ]
        if not failing:
            break
        for row, column in failing:
            loss[row, column] = np.inf
    made = []
    for segment in split.segments:
        rows = slice(segment.first, segment.last + 1)
        share = weights[rows] / weights[rows].sum()
        made.append(
            Bucket(
                low=probes[segment.first - 1] + 1 if segment.first else 1,
                high=probes[segment.last],
                config=table.configs[segment.column],
                mean_loss_log=float(share @ loss[rows, segment.column]),
            )
        )
    return Buckets(tuple(made), split.mean_log, len(set(table.own)))


def _weights(token_counts: Sequence[int] | Mapping[int, float]) -> dict[int, float]:
    weights: dict[int, float] = {}
    if isinstance(token_counts, Mapping):
        weights = {int(n): float(w) for n, w in token_counts.items() if w > 0}
    else:
        for count in token_counts:
            weights[int(count)] = weights.get(int(count), 0.0) + 1.0
    if not weights or min(weights) < 1:
        raise ArgumentSpecError(
            "expected token counts of at least 1 with weights above 0, found "
            f"{min(weights) if weights else 'none'}"
        )
    return weights


def probe_counts(counts: Sequence[int], limit: int) -> list[int]:
    """At most `limit` of rising counts: the largest, and evenly spread by ratio.

    Every count then has a probe that is at least as large.
    """
    if len(counts) <= limit:
        return list(counts)
    low, high = math.log(counts[0]), math.log(counts[-1])
    marks = [low + (high - low) * step / (limit - 1) for step in range(limit)]
    logs = [math.log(count) for count in counts]
    places = {bisect.bisect_left(logs, mark - 1e-9) for mark in marks}
    places.add(len(counts) - 1)
    return [counts[place] for place in sorted(p for p in places if p < len(counts))]
