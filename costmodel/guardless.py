"""Methods of fake CUDA tensors that a torch built without CUDA cannot run.

Indexing, `.contiguous()`, `.copy_()`, `.to()`, `.cuda()` and `.new_tensor()` take a
CUDA device guard in C++ before they look at the tensor, and a CPU-only torch has none,
although the operators behind them work on fake tensors. Kernels use them on the host
side, so here they are said in operators. A torch built with CUDA needs none of this.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from unittest import mock


def patches() -> list[Any]:
    """Context managers to enter while fake tensors stand for CUDA tensors."""
    from torch._subclasses.fake_tensor import FakeTensor

    if _has_guard():
        return []
    methods: dict[str, Callable[..., Any]] = {
        "__getitem__": _getitem,
        "__setitem__": _setitem,
        "contiguous": _contiguous,
        "copy_": _copy,
        "cuda": _cuda,
        "new_tensor": _new_tensor,
        "to": _to,
    }
    return [
        mock.patch.object(FakeTensor, name, method, create=True)
        for name, method in methods.items()
    ]


@functools.cache
def _has_guard() -> bool:
    """Whether this torch can index a fake CUDA tensor by itself."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        try:
            torch.empty(1, device="cuda")[0]
        except RuntimeError:
            return False
    return True


def _getitem(tensor: Any, index: Any) -> Any:
    import torch

    result, positions = _basic(tensor, index)
    if not positions:
        return result
    return torch.ops.aten.index.Tensor(result, _padded(positions))


def _setitem(tensor: Any, index: Any, value: Any) -> None:
    import torch

    target = _getitem(tensor, index)
    if isinstance(value, torch.Tensor):
        _copy(target, value)


def _copy(tensor: Any, source: Any, non_blocking: bool = False) -> Any:
    """A fake tensor has no values to copy, only a shape to respect."""
    import torch

    # Raises torch's own error where the shapes do not fit.
    torch.ops.aten.expand.default(source, list(tensor.shape))
    return tensor


def _basic(tensor: Any, index: Any) -> tuple[Any, dict[int, Any]]:
    """Apply integers, slices, None and Ellipsis; keep index tensors by dimension.

    Raises:
        TypeError: Something else is among the indices.
    """
    import torch

    items = list(index) if isinstance(index, tuple) else [index]
    items = [torch.tensor(item) if isinstance(item, list) else item for item in items]
    consumed = sum(_dimensions(item) for item in items)
    result, dim = tensor, 0
    positions: dict[int, Any] = {}
    for item in items:
        if item is None:
            result = torch.ops.aten.unsqueeze.default(result, dim)
            dim += 1
        elif item is Ellipsis:
            dim += tensor.dim() - consumed
        elif isinstance(item, slice):
            result = torch.ops.aten.slice.Tensor(
                result,
                dim,
                item.start,
                item.stop,
                1 if item.step is None else item.step,
            )
            dim += 1
        elif isinstance(item, torch.Tensor):
            positions[dim] = item
            dim += _dimensions(item)
        elif isinstance(item, (int, torch.SymInt)) and not isinstance(item, bool):
            result = torch.ops.aten.select.int(result, dim, item)
        else:
            raise TypeError(f"cannot index a fake tensor with {type(item).__name__}")
    return result, positions


def _dimensions(item: Any) -> int:
    """Dimensions of the tensor that one index stands for."""
    import torch

    if item is None or item is Ellipsis:
        return 0
    if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8):
        return item.dim()
    return 1


def _padded(positions: dict[int, Any]) -> list[Any]:
    return [positions.get(dim) for dim in range(max(positions) + 1)]


def _contiguous(tensor: Any, memory_format: Any = None) -> Any:
    import torch

    wanted = memory_format or torch.contiguous_format
    if tensor.is_contiguous(memory_format=wanted):
        return tensor
    return torch.clone(tensor, memory_format=wanted)


def _cuda(tensor: Any, *_args: Any, **_kwargs: Any) -> Any:
    return _to(tensor, "cuda")


def _new_tensor(tensor: Any, data: Any, **options: Any) -> Any:
    import torch

    return torch.tensor(
        data, **{"dtype": tensor.dtype, "device": tensor.device} | options
    )


def _to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    import torch

    copy = kwargs.pop("copy", False)
    if args and isinstance(args[0], torch.Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
    device = torch.empty(0, device=device or tensor.device).device
    same = device == tensor.device and dtype in (None, tensor.dtype)
    if same and not copy:
        return tensor
    return torch.ops.aten._to_copy.default(
        tensor,
        device=device,
        dtype=dtype or tensor.dtype,
        non_blocking=non_blocking,
        memory_format=memory_format,
    )
