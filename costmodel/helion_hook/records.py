"""What Helion's logger would write about a bound kernel."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from costmodel.errors import UnreadableKernelError
from costmodel.helion_hook.devices import cache_of
from costmodel.helion_hook.devices import device_of
from costmodel.types import WorkloadRecord


def record_of(bound: Any, args: Sequence[object] | None = None) -> WorkloadRecord:
    """What Helion's logger would write about this kernel with these arguments.

    Args:
        bound: A bound kernel.
        args: The call's arguments; None takes those it was bound with.

    Raises:
        UnreadableKernelError: Helion has no IR graph for it.
    """
    metadata = _metadata(bound, args)
    if metadata.get("ir_graph") is None:
        raise UnreadableKernelError(
            f"expected an IR graph for kernel {metadata['kernel_name']!r}, Helion made "
            "none: install networkx>=3.4 and bind outside the interpreter"
        )
    shapes = ast.literal_eval(metadata["input_shapes"])
    dtypes = ast.literal_eval(metadata["dtypes"])
    return WorkloadRecord(
        kernel_name=metadata["kernel_name"],
        kernel_source=metadata["kernel_source"],
        input_shapes=tuple(map(tuple, shapes)),
        dtypes=tuple(dtypes),
        hardware=metadata["hardware"],
        settings=metadata["settings"],
        ir_graph=metadata["ir_graph"],
    )


def run_id_of(bound: Any, args: Sequence[object] | None = None) -> str:
    """The run id that Helion's logger would write; 64 hex digits."""
    return str(_metadata(bound, args)["run_id"])


def _metadata(bound: Any, args: Sequence[object] | None) -> dict[str, Any]:
    """The logger's record without its configs, after a trip through JSON."""
    import torch
    from helion import _compat
    from helion.autotuner.base_cache import should_skip_cache
    from helion.autotuner.metrics import KernelMetadata

    values = bind_args(bound) if args is None else list(args)
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    settings = bound.settings.to_dict()
    settings["effective_cache_read_bypass"] = should_skip_cache()
    host_function = getattr(bound, "host_function", None)
    kernel = bound.kernel
    with device_of(bound):
        hardware = _compat.get_device_name(_compat.extract_device(values)) or ""
    metadata = KernelMetadata(
        kernel_name=kernel.name,
        kernel_source=_source(kernel),
        input_shapes=str([tuple(map(int, tensor.shape)) for tensor in tensors]),
        dtypes=str([str(tensor.dtype) for tensor in tensors]),
        hardware=hardware,
        settings=settings,
        _device_ir=getattr(host_function, "_device_ir", None),
    )
    cache = cache_of(bound)
    if "ir_graph" in cache:
        metadata.__dict__["ir_graph"] = cache["ir_graph"]
    facts = metadata.to_dict()
    try:
        text = json.dumps(facts, default=str, allow_nan=False)
    except ValueError:  # a non-finite number somewhere, which is rare
        text = json.dumps(_json_safe(facts), default=str, allow_nan=False)
    record: dict[str, Any] = json.loads(text)
    cache["ir_graph"] = record["ir_graph"]
    return record


def _source(kernel: Any) -> str:
    """Source text, or nothing where there is no file, as the logger does."""
    try:
        return str(kernel.kernel_source())
    except OSError:
        return ""


def bind_args(bound: Any) -> list[Any]:
    """Arguments a kernel was bound with, symbolic sizes replaced by their hints."""
    kept = getattr(bound, "_runtime_tensor_refs_by_name", {})
    names = bound.kernel.signature.parameters
    alive = {name: ref() for name, ref in kept.items()}
    return [
        fake if alive.get(name) is None else alive[name]
        for name, fake in zip(names, bound.fake_args, strict=True)
    ]


def _json_safe(value: Any) -> Any:
    """Non-finite floats as text, as Helion's log spells them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _json_safe(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_json_safe(item) for item in value]
    return value
