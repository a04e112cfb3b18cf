"""Whether a config computes what another computes, on the user's own arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

from costmodel.helion_hook.plain import helion_config
from costmodel.helion_hook.tuned import underlying
from costmodel.types import Config

# Helion's own tolerance where a kernel does not set one; with fp8 alone it demands
# equal bits (its accuracy check, 1.4 to 1.5).
_TOLERANCE = 1e-2


def output_objection(
    bound: Any, args: Sequence[object], config: Config, reference: Config
) -> str | None:
    """Run two configs once each on copies of the arguments and compare the results.

    Tolerances are those of Helion's own accuracy check, and the kernel's settings for
    it are respected. Arguments are compared too, since a kernel may write to them.

    Args:
        bound: A bound kernel.
        args: The call's arguments; left as they are.
        config: What is under suspicion.
        reference: What is taken for right.

    Returns:
        None where they agree, or where nothing can be compared because the reference
        does not run or memory does not suffice; else why not, in one line.
    """
    import torch

    kernel = underlying(bound)
    try:
        expected = _run(kernel, args, reference)
    except Exception:  # nothing to compare with, and not the fault of the config
        return None
    if _has_fakes(expected):
        return None
    try:
        found = _run(kernel, args, config)
        _assert_agree(kernel.settings, found, expected)
    except torch.cuda.OutOfMemoryError:
        return None
    except AssertionError as error:
        return f"its output differs: {_one_line(error)}"
    except Exception as error:
        return f"it does not run: {type(error).__name__}: {_one_line(error)}"
    return None


def _run(kernel: Any, args: Sequence[object], config: Config) -> tuple[object, Any]:
    """Output of one launch, and the arguments as it left them."""
    import torch
    from helion.autotuner.benchmark_provider import _clone_args

    copies = _clone_args(args, kernel.env.process_group_name)
    launch = kernel.compile_config(helion_config(config), allow_print=False)
    output = launch(*copies)
    if kernel.env.device.type == "cuda" and not _has_fakes(output):
        torch.cuda.synchronize()
    return output, list(copies)


def _has_fakes(values: object) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._pytree import tree_leaves

    return any(isinstance(leaf, FakeTensor) for leaf in tree_leaves(values))


def _assert_agree(settings: Any, found: Any, expected: Any) -> None:
    custom = getattr(settings, "autotune_baseline_accuracy_check_fn", None)
    if custom is not None:
        custom(found[0], expected[0])
        return
    atol, rtol = _tolerances(settings, expected)
    compare = _comparison(settings.autotune_baseline_atol is None)
    for mine, theirs in zip(found, expected, strict=True):
        compare(mine, theirs, atol=atol, rtol=rtol)


def _tolerances(settings: Any, expected: Any) -> tuple[float, float]:
    import torch
    from helion.autotuner.accuracy import is_fp8_dtype
    from torch.utils._pytree import tree_leaves

    atol, rtol = settings.autotune_baseline_atol, settings.autotune_baseline_rtol
    outputs = [x for x in tree_leaves(expected[0]) if isinstance(x, torch.Tensor)]
    only_fp8 = bool(outputs) and all(is_fp8_dtype(x.dtype) for x in outputs)
    if only_fp8 and atol is None and rtol is None:
        return 0.0, 0.0
    return (
        _TOLERANCE if atol is None else atol,
        _TOLERANCE if rtol is None else rtol,
    )


def _comparison(may_scale: bool) -> Any:
    """Helion's comparison; later ones widen the tolerance with the output's size."""
    from helion.autotuner.accuracy import assert_close

    scales = "scale_atol_by_expected_rms"
    if may_scale and scales in inspect.signature(assert_close).parameters:
        return functools.partial(assert_close, **{scales: True})
    return assert_close


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
