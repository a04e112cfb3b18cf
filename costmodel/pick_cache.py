"""Answers that were given already, so that a repeated question costs microseconds.

Keyed by the identity of the bound kernel, which a dead kernel takes along, and by
shapes and dtypes of the arguments; each kernel keeps its most recent answers only.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable
from collections.abc import Sequence
from typing import Any

from costmodel.types import Pick

# Shapes kept for one kernel with dynamic shapes; an answer is about 10 kB.
_MOST_PER_KERNEL = 64


class Missing:
    """Nothing was remembered; a remembered answer may be None."""


MISSING = Missing()


class PickCache:
    """Recent answers for each living bound kernel; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kernels: weakref.WeakKeyDictionary[
            Any, OrderedDict[Hashable, Pick | None]
        ] = weakref.WeakKeyDictionary()

    def get(self, bound: Any, key: Hashable) -> Pick | Missing | None:
        """What was answered before, or `MISSING`."""
        with self._lock:
            answers = self._kernels.get(bound)
            if answers is None or key not in answers:
                return MISSING
            answers.move_to_end(key)
            return answers[key]

    def put(self, bound: Any, key: Hashable, answer: Pick | None) -> None:
        """Keep an answer, and let go of the kernel's oldest if there are too many."""
        with self._lock:
            answers = self._kernels.setdefault(bound, OrderedDict())
            answers[key] = answer
            while len(answers) > _MOST_PER_KERNEL:
                answers.popitem(last=False)


def arguments_key(args: Sequence[object] | None) -> Hashable:
    """What of a call's arguments an answer may depend on: shapes, strides, dtypes."""
    if args is None:
        return None
    return tuple(_argument_key(value) for value in args)


def _argument_key(value: Any) -> Hashable:
    try:
        return value.shape, value.dtype, value.stride()
    except AttributeError:
        return type(value).__qualname__
