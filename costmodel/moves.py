"""Joint moves of two to four knobs around a config, in one fixed order.

On H200 logs the winners were joint moves around Helion's default or one of its seeds;
one knob alone hardly ever won and random configs almost never (37
workloads, 2026-11). So single *steps* are only building blocks here: tile steps trade
blocks, warps and stages against each other, structural steps switch what Helion's own
heuristics never set, and a move is a few of them together.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any
from typing import TypeAlias

from costmodel.config_space import ConfigSpace
from costmodel.heuristics.facts import Facts
from costmodel.steps import Step
from costmodel.steps import structural_steps
from costmodel.steps import tile_steps
from costmodel.types import Config

_ABSENT = object()


Move: TypeAlias = tuple[Step, ...]
"""Steps together, of different knobs."""


def words_of(move: Move) -> str:
    """All that a move changes, for people."""
    return ", ".join([step.words for step in move])


class Mover:
    """Takes moves around one config, which stays as it is.

    Equal lists of all configs it makes are one object, which saves making them and
    lets whoever compares configs compare identities first.

    Args:
        config: A full config.
        shared: Lists by their text; movers around several configs may share them.
    """

    def __init__(self, config: Config, shared: dict[str, Any]) -> None:
        self._shared = shared
        self._config = {key: self._one(value) for key, value in config.items()}
        self._made: dict[int, tuple[Step, dict[str, Any]]] = {}

    def moved(self, move: Move) -> Config:
        """The config with all steps taken."""
        result = self._config.copy()
        for step in move:
            for key, value in self._alone(step).items():
                if value is _ABSENT:
                    result.pop(key, None)
                elif key in result and result[key] is not self._config.get(key):
                    result[key] = _merged(result[key], key, step)
                else:
                    result[key] = value
        return result

    def _alone(self, step: Step) -> dict[str, Any]:
        """What the step alone makes of the keys it touches."""
        known = self._made.get(id(step))
        if known is not None:
            return known[1]
        made: dict[str, Any] = {}
        for key, index, value in step.settings:
            if index is None:
                made[key] = _ABSENT if value is None else value
            else:
                made[key] = list(made.get(key, self._config[key]))
                made[key][index] = value
        made = {key: self._one(value) for key, value in made.items()}
        self._made[id(step)] = (step, made)
        return made

    def _one(self, value: Any) -> Any:
        """The one list that is equal to this one; anything else as it is."""
        if type(value) is not list:
            return value
        return self._shared.setdefault(repr(value), value)


def _merged(current: Any, key: str, step: Step) -> Any:
    """A key that an earlier step of the move has changed, changed by another."""
    for name, index, value in step.settings:
        if name != key:
            continue
        if index is None:
            current = value
        else:
            current = list(current)
            current[index] = value
    return current


def moves_around(config: Config, facts: Facts, space: ConfigSpace) -> Iterator[Move]:
    """Moves around one config, the most promising kinds first and mixed.

    Args:
        config: A full config of the kernel.
        facts: The kernel.
        space: Legal values; every step stays within them.
    """
    tile = tile_steps(config, facts, space)
    structure = structural_steps(config, facts, space)
    kinds = [
        _combined(tile, 2),
        _mixed(tile, structure, 1),
        _combined(tile, 3),
        _mixed(tile, structure, 2),
        ((step,) for step in (*structure, *tile)),
        _combined(structure, 2),
        _mixed(tile, structure, 3),
    ]
    return _round_robin(kinds)


def _round_robin(kinds: list[Iterator[Move]]) -> Iterator[Move]:
    waiting = list(kinds)
    while waiting:
        still = []
        for kind in waiting:
            move = next(kind, None)
            if move is not None:
                yield move
                still.append(kind)
        waiting = still


def _combined(steps: list[Step], size: int) -> Iterator[Move]:
    """Combinations of steps of different knobs, near the front of the list first."""
    knobs = [step.knob for step in steps]
    for indices in _near_first(len(steps), size):
        if size == 1 or len({knobs[i] for i in indices}) == size:
            yield tuple([steps[i] for i in indices])


@functools.lru_cache(maxsize=256)
def _near_first(n: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Index combinations by rising sum, then in order."""
    found = itertools.combinations(range(n), size)
    return tuple(sorted(found, key=lambda indices: (sum(indices), indices)))


def _mixed(tile: list[Step], structure: list[Step], n_tile: int) -> Iterator[Move]:
    """One structural step with some tile steps."""
    for move in _combined(tile, n_tile):
        taken = {step.knob for step in move}
        for step in structure:
            if step.knob not in taken:
                yield (*move, step)
