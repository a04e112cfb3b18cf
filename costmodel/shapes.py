"""One config for many shapes: the one that is predicted to lose least over all.

Predictions are compared, nothing is measured, and no GPU is needed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodel.arguments import DTYPES
from costmodel.arguments import Argument
from costmodel.arguments import DtypeArgument
from costmodel.arguments import ScalarArgument
from costmodel.arguments import SequenceArgument
from costmodel.arguments import TensorArgument
from costmodel.arguments import parse_argument
from costmodel.cover import choose_cover
from costmodel.errors import ArgumentSpecError
from costmodel.errors import NoCommonConfigError
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.hardware import load_hardware
from costmodel.hardware import match_hardware
from costmodel.provider import Provider
from costmodel.shape_losses import LossTable
from costmodel.shape_losses import ShapeCase
from costmodel.shape_losses import make_loss_table
from costmodel.types import Config
from costmodel.types import Pick


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
