"""Sort candidates by a number, equal ones by their text, which is rarely needed.

Spelling hundreds of configs takes longer than ranking them, so texts are only made
where two numbers are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from costmodel.types import Config
from costmodel.types import FloatArray


class LazyTexts(Sequence[str]):
    """Texts of configs, each spelled when it is first asked for."""

    def __init__(
        self, configs: Sequence[Config], spell: Callable[[Config], str]
    ) -> None:
        self._configs = configs
        self._spell = spell
        self._texts: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._configs)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        text = self._texts.get(index)
        if text is None:
            text = self._texts[index] = self._spell(self._configs[index])
        return text


def rising(
    values: FloatArray | npt.NDArray[np.float64],
    keys: Sequence[str],
    n_sorted: int | None = None,
) -> list[int]:
    """Indices by rising value, equal values by rising key.

    Args:
        values: float[n]; no NaN.
        keys: Of the same n.
        n_sorted: Places from the front where that is so; equal values that all stand
            behind them are left as they come. None means all.
    """
    order = np.argsort(values, kind="stable")
    found: list[int] = order.tolist()
    in_order = values[order]
    starts = np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1]))
    ends = np.append(starts[1:], len(found))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if n_sorted is not None and start >= n_sorted:
            break
        if end - start > 1:
            found[start:end] = sorted(found[start:end], key=lambda i: keys[i])
    return found
