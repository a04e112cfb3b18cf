"""Joint moves of two to four knobs around a config, in one fixed order.

On H200 logs the winners were joint moves around Helion's default or one of its seeds;
one knob alone hardly ever won and random configs almost never (37
workloads, 2026-11). So single *steps* are only building blocks here: tile steps trade
blocks, warps and stages against each other, structural steps switch what Helion's own
heuristics never set, and a move is a few of them together.
"""

from __future__ import annotations

import enum
import functools
import itertools
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

from costmodel.config_space import ConfigSpace
from costmodel.features.effective import EffectiveKeys
from costmodel.features.effective import Structure
from costmodel.features.effective import Tile
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


class Tried(NamedTuple):
    """What a move would make of a config.

    Attributes:
        token: Of its program.
        base: The config without the tile's changes.
        blocks: Its block sizes, or None in a kernel without them.
        num_warps: Its warps.
        num_stages: Its stages.
    """

    token: tuple[Any, ...]
    base: Config
    blocks: Any
    num_warps: Any
    num_stages: Any

    def config(self) -> Config:
        """Make it."""
        made = self.base.copy()
        if self.blocks is not None:
            made["block_sizes"] = self.blocks
        made["num_warps"], made["num_stages"] = self.num_warps, self.num_stages
        return made


class Mover:
    """Takes moves around one config, which stays as it is.

    What a move does to the tile, and what it does to the rest, is worked out once for
    all moves that share it, and the program's token is known before the config is made.
    Equal lists of all configs it makes are one object, which lets whoever compares
    configs compare identities first.

    Args:
        config: A full config.
        shared: Lists by their text; movers around several configs may share them.
    """

    def __init__(self, config: Config, shared: dict[str, Any]) -> None:
        self._shared = shared
        self._config = {key: self._one(value) for key, value in config.items()}
        self._made: dict[int, dict[str, Any]] = {}
        # By identity of steps, which these keep alive.
        self._effects: dict[int, tuple[_Part, Any, Step]] = {}
        self._rests: dict[tuple[int, ...], tuple[Config, Structure]] = {}
        self._tiles: dict[tuple[tuple[int, int], ...], tuple[Any, Tile]] = {}

    def tried(self, move: Move, keys: EffectiveKeys) -> Tried:
        """What the move makes, before it is made.

        Args:
            move: Steps of different knobs.
            keys: Tokens of the kernel's programs; the same at each call.
        """
        warps, stages = self._config["num_warps"], self._config["num_stages"]
        slots: tuple[tuple[int, int], ...] = ()
        rest: tuple[int, ...] = ()
        effects = self._effects
        for step in move:
            place = id(step)
            effect = effects.get(place)
            if effect is None:
                effect = effects[place] = (*_effect_of(step), step)
            part = effect[0]
            if part is _Part.BLOCK:
                slots = (*slots, effect[1])
            elif part is _Part.WARPS:
                warps = effect[1]
            elif part is _Part.STAGES:
                stages = effect[1]
            else:
                rest = (*rest, place)
        base, structure = self._rests.get(rest) or self._new_rest(rest, keys)
        blocks, tile = self._tiles.get(slots) or self._new_tile(slots)
        token = keys.token_of(structure, tile, warps, stages)
        return Tried(token, base, blocks, warps, stages)

    def _new_rest(
        self, rest: tuple[int, ...], keys: EffectiveKeys
    ) -> tuple[Config, Structure]:
        """The config with some steps taken that leave the tile alone."""
        base = self.moved([self._effects[place][2] for place in rest])
        self._rests[rest] = (base, keys.structure(base))
        return self._rests[rest]

    def _new_tile(self, slots: tuple[tuple[int, int], ...]) -> tuple[Any, Tile]:
        """Block sizes with some of them changed, as a list and as a tuple."""
        blocks = self._config.get("block_sizes")
        if slots:
            changed = list(blocks or ())
            for slot, size in slots:
                changed[slot] = size
            blocks = self._one(changed)
        tile = tuple(blocks) if type(blocks) is list else blocks
        self._tiles[slots] = (blocks, tile)
        return self._tiles[slots]

    def moved(self, move: Sequence[Step]) -> Config:
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
            return known
        made: dict[str, Any] = {}
        for key, index, value in step.settings:
            if index is None:
                made[key] = _ABSENT if value is None else value
            else:
                made[key] = list(made.get(key, self._config[key]))
                made[key][index] = value
        made = {key: self._one(value) for key, value in made.items()}
        self._made[id(step)] = made
        return made

    def _one(self, value: Any) -> Any:
        """The one list that is equal to this one; anything else as it is."""
        if type(value) is not list:
            return value
        return self._shared.setdefault(repr(value), value)


class _Part(enum.Enum):
    """What of a config a step changes."""

    BLOCK = enum.auto()
    WARPS = enum.auto()
    STAGES = enum.auto()
    REST = enum.auto()


def _effect_of(step: Step) -> tuple[_Part, Any]:
    """What a step changes, and to what where that is one number of the tile."""
    if len(step.settings) == 1:
        key, index, value = step.settings[0]
        if key == "block_sizes" and index is not None:
            return _Part.BLOCK, (index, value)
        if key == "num_warps":
            return _Part.WARPS, value
        if key == "num_stages":
            return _Part.STAGES, value
    return _Part.REST, None


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
        if size == 2:  # most of all
            one, other = indices
            if knobs[one] != knobs[other]:
                yield steps[one], steps[other]
        elif len({knobs[i] for i in indices}) == size:
            yield tuple([steps[i] for i in indices])


@functools.lru_cache(maxsize=256)
def _near_first(n: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Index combinations by rising sum, then in order."""
    found = itertools.combinations(range(n), size)
    return tuple(sorted(found, key=lambda indices: (sum(indices), indices)))


def _mixed(tile: list[Step], structure: list[Step], n_tile: int) -> Iterator[Move]:
    """One structural step with some tile steps."""
    for move in _combined(tile, n_tile):
        taken = [step.knob for step in move]
        for step in structure:
            if step.knob not in taken:
                yield (*move, step)
