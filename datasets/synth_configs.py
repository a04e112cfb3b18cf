"""New configs of a kernel from those that were recorded: crossed over and stepped.

Every value but a block size stands in some recorded config of the same kernel, at the
same place, so that no config is of another structure than the kernel's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodel.features.canonical import config_id
from costmodel.types import Config

_BLOCKS = "block_sizes"
# Helion's search floor and ceiling of most tiles; the GPU's limits refuse the rest.
_SMALLEST_BLOCK = 8
_LARGEST_BLOCK = 2048
# A drawn config that is known already is drawn again, this often on average.
_TRIES = 4


def varied(
    recorded: Sequence[Config], first: Config, n: int, rng: np.random.Generator
) -> list[Config]:
    """Distinct configs of one kernel, `first` the first of them.

    Args:
        recorded: Full configs of the kernel, at least one.
        first: Helion's default.
        n: How many at most; fewer where the recorded ones do not give that many.
        rng: Draws parents, keys and steps.
    """
    same = [one for one in recorded if one.keys() == first.keys()] or [first]
    keys = sorted(first)
    n_tries = _TRIES * n
    parents = rng.integers(len(same), size=(n_tries, 2))
    takes = rng.random((n_tries, len(keys))) < 0.3  # about a third from the second
    n_blocks = len(first.get(_BLOCKS, ()))
    steps = rng.choice((-1, 0, 0, 1), size=(n_tries, max(1, n_blocks)))
    found: dict[str, Config] = {config_id(first): first}
    for (one, other), taken, step in zip(parents, takes, steps, strict=True):
        if len(found) >= n:
            break
        config = dict(same[one])
        for key, take in zip(keys, taken, strict=True):
            if take and _alike(config[key], same[other][key]):
                config[key] = same[other][key]
        if n_blocks and len(config[_BLOCKS]) == n_blocks:
            config[_BLOCKS] = [
                _stepped(size, int(by))
                for size, by in zip(config[_BLOCKS], step, strict=True)
            ]
        found.setdefault(config_id(config), config)
    return list(found.values())


def _alike(one: object, other: object) -> bool:
    """Whether one value may stand in place of another: lists of one length."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other)
    return isinstance(one, list) == isinstance(other, list)


def _stepped(size: object, by: int) -> object:
    if not isinstance(size, int) or size < _SMALLEST_BLOCK:
        return size
    return int(np.clip(size * 2.0**by, _SMALLEST_BLOCK, _LARGEST_BLOCK))
