"""One config for many shapes, and ranges of sizes that share one.

A server with a stream of shapes wants few programs: `pick_shapes` finds the one config
that loses least over a set of shapes, `buckets` cuts a range of token counts so that
few configs serve all of it. Both compare predictions only; nothing is measured, and no
GPU is needed.
"""

from __future__ import annotations

import bisect
import math
import os
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.arguments import DTYPES
from costmodel.arguments import Argument
from costmodel.arguments import DtypeArgument
from costmodel.arguments import ScalarArgument
from costmodel.arguments import SequenceArgument
from costmodel.arguments import TensorArgument
from costmodel.arguments import parse_argument
from costmodel.bucket_split import split_rows
from costmodel.cover import choose_cover
from costmodel.errors import ArgumentSpecError
from costmodel.errors import NoCommonConfigError
from costmodel.hardware import Hardware
from costmodel.hardware import load_hardware
from costmodel.hardware import match_hardware
from costmodel.provider import Provider
from costmodel.shape_losses import LossTable
from costmodel.shape_losses import ShapeCase
from costmodel.shape_losses import make_loss_table
from costmodel.types import Config
from costmodel.types import Pick

# Distinct sizes of a stream that are looked at; each costs a bind and a pick, about a
# second. The others are served by the next larger one that was.
MOST_PROBES = 24

# What one more program must save in mean predicted time to be worth its compilation
# and its memory: half a per cent, below which timings on one GPU do not agree anyway
# (noise floor of the bundled H200 corpus, 2026-11).
COMPILE_COST_LOG = 0.005


@dataclass(frozen=True, slots=True)
class ShapeShare:
    """How a joint config serves one shape.

    Attributes:
        case: The shape.
        own: What would be picked for this shape alone.
        loss_log: Predicted ln(time / time of the own pick), doubt added; 0 is best.
    """

    case: ShapeCase
    own: Pick
    loss_log: float


@dataclass(frozen=True, slots=True)
class ShapesPick:
    """One config for several shapes.

    Attributes:
        config: What to compile for all of them.
        shares: How it serves each shape, in the order given.
        mean_loss_log: Weighted mean of the losses.
        worst_loss_log: Largest loss.
        keeps_bound: Whether the worst loss is within the bound that was asked for.
        n_candidates: Configs compared, every shape's default and pick among them.
    """

    config: Config
    shares: tuple[ShapeShare, ...]
    mean_loss_log: float
    worst_loss_log: float
    keeps_bound: bool
    n_candidates: int


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


def pick_shapes(
    kernel: Any,
    shapes: Sequence[tuple[Sequence[object], float]],
    *,
    gpu: str | None = None,
    model_path: str | os.PathLike[str] | None = None,
    worst_loss: float = math.inf,
) -> ShapesPick:
    """Pick the one config that loses least over several shapes of a kernel.

    Minimises the weighted mean of the predicted log losses among the configs whose
    worst loss keeps the bound; where none keeps it, the bound is missed by as little
    as possible. Helion's default for every shape is always among the candidates.

    Example:
        >>> shapes = [(("bf16[64,4096]",), 3.0), (("bf16[4096,4096]",), 1.0)]
        >>> costmodel.pick_shapes(my_kernel, shapes, gpu="H200").config

    Args:
        kernel: A `helion.kernel` object; it is left alone.
        shapes: Arguments and weight of each shape. An argument is a tensor, a number,
            or text of the argument grammar, such as `"bf16[64,4096]"`; only shapes,
            strides and dtypes are read.
        gpu: The target's name; None means the GPU of this machine.
        model_path: A published model; None means the provider's usual one.
        worst_loss: Largest accepted predicted loss at any shape, as a share of time:
            0.1 allows 10 % more than that shape's own pick, doubt included.

    Raises:
        NoCommonConfigError: No config runs at all shapes.
        ArgumentSpecError: An argument cannot be read, or no GPU is named or present.
        BindError: Helion refuses a shape.
    """
    cases = [
        ShapeCase(tuple(spec_of(arg) for arg in args), weight)
        for args, weight in shapes
    ]
    table = make_loss_table(kernel, cases, target_of(gpu), Provider(model_path))
    bound_log = math.log1p(worst_loss)
    column = one_config(table, worst_bound_log=bound_log)
    loss = table.loss_log[:, column]
    weights = np.array([case.weight for case in cases])
    return ShapesPick(
        config=table.configs[column],
        shares=tuple(
            ShapeShare(case, pick, float(value))
            for case, pick, value in zip(cases, table.picks, loss, strict=True)
        ),
        mean_loss_log=float(weights @ loss / weights.sum()),
        worst_loss_log=float(loss.max()),
        keeps_bound=bool(loss.max() <= bound_log),
        n_candidates=len(table.configs),
    )


def one_config(
    table: LossTable,
    *,
    rows: Sequence[int] | None = None,
    worst_bound_log: float = math.inf,
) -> int:
    """Column of the one config that serves these rows best.

    Raises:
        NoCommonConfigError: None runs at all of them.
    """
    chosen_rows = list(range(len(table.cases)) if rows is None else rows)
    loss = table.loss_log[chosen_rows].copy()
    weights = [table.cases[row].weight for row in chosen_rows]
    while True:
        cover = choose_cover(
            loss, weights, 1, worst_share=0.0, worst_bound_log=worst_bound_log
        )
        if cover.unserved:
            raise NoCommonConfigError(
                f"expected a config that runs at all {len(chosen_rows)} shapes, found "
                f"none: fewer shapes, or more configs"
            )
        column = cover.columns[0]
        failing = [row for row in chosen_rows if not table.generates(row, column)]
        if not failing:
            return column
        loss[:, column] = np.inf


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


def spec_of(value: object) -> Argument:
    """A call's argument in the argument grammar: a tensor, a scalar or text of it.

    Raises:
        ArgumentSpecError: None of these.
    """
    if isinstance(
        value, TensorArgument | ScalarArgument | DtypeArgument | SequenceArgument
    ):
        return value
    if isinstance(value, list | tuple):
        items = tuple(spec_of(item) for item in value)
        return SequenceArgument(items, is_tuple=isinstance(value, tuple))
    if isinstance(value, str):
        return parse_argument(value)
    if value is None or isinstance(value, bool | int | float):
        return ScalarArgument(value)
    shorts = {name: ours for ours, name in DTYPES.items()}
    itself = str(value).removeprefix("torch.")
    if type(value).__name__ == "dtype" and itself in shorts:
        return DtypeArgument(shorts[itself])
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    short = shorts.get(dtype)
    if short is None:
        raise ArgumentSpecError(
            "expected a tensor, a number, None or text such as 'bf16[64,4096]', found "
            f"{type(value).__name__} {dtype}"
        )
    tensor: Any = value
    shape = tuple(int(size) for size in tensor.shape)
    return TensorArgument(short, shape, tuple(int(s) for s in tensor.stride()))


def target_of(gpu: str | None) -> Hardware:
    """The named GPU, or this machine's.

    Raises:
        ArgumentSpecError: None is named and none is there.
        UnknownHardwareError: No such GPU is described.
    """
    if gpu is not None:
        return load_hardware(gpu)
    import torch

    if not torch.cuda.is_available():
        raise ArgumentSpecError("expected a GPU, found none here: name one, gpu='H200'")
    return match_hardware(torch.cuda.get_device_name()).hardware
