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
from dataclasses import dataclass

from costmodel.config_space import ConfigSpace
from costmodel.heuristics.facts import Facts
from costmodel.steps import Step
from costmodel.steps import structural_steps
from costmodel.steps import tile_steps
from costmodel.types import Config


@dataclass(frozen=True, slots=True)
class Move:
    """Steps together."""

    steps: tuple[Step, ...]

    @property
    def words(self) -> str:
        """All that it changes."""
        return ", ".join(step.words for step in self.steps)


def apply_move(config: Config, move: Move) -> Config:
    """The config with all steps taken; the input stays as it is."""
    result = dict(config)
    fresh: set[str] = set()
    for step in move.steps:
        for key, index, value in step.settings:
            if index is None:
                if value is None:
                    result.pop(key, None)
                else:
                    result[key] = value
            else:
                if key not in fresh:
                    result[key] = list(result[key])
                    fresh.add(key)
                result[key][index] = value
    return result


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
        _pairs(tile),
        _mixed(tile, structure, 1),
        _triples(tile),
        _mixed(tile, structure, 2),
        (Move((step,)) for step in (*structure, *tile)),
        _pairs(structure),
        _mixed(tile, structure, 3),
    ]
    yield from _round_robin(kinds)


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


def _pairs(steps: list[Step]) -> Iterator[Move]:
    return _combined(steps, 2)


def _triples(steps: list[Step]) -> Iterator[Move]:
    return _combined(steps, 3)


def _combined(steps: list[Step], size: int) -> Iterator[Move]:
    """Combinations of steps of different knobs, near the front of the list first."""
    for indices in _near_first(len(steps), size):
        chosen = tuple(steps[i] for i in indices)
        if len({step.knob for step in chosen}) == size:
            yield Move(chosen)


@functools.lru_cache(maxsize=256)
def _near_first(n: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Index combinations by rising sum, then in order."""
    found = itertools.combinations(range(n), size)
    return tuple(sorted(found, key=lambda indices: (sum(indices), indices)))


def _mixed(tile: list[Step], structure: list[Step], n_tile: int) -> Iterator[Move]:
    """One structural step with some tile steps."""
    for move in _combined(tile, n_tile):
        for step in structure:
            if all(step.knob != other.knob for other in move.steps):
                yield Move((*move.steps, step))
