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
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

from costmodel.config_space import ConfigSpace
from costmodel.features.effective import EffectiveKeys
from costmodel.features.effective import Structure
from costmodel.features.effective import Tile
from costmodel.heuristics.facts import Facts
from costmodel.steps import KnownSteps
from costmodel.steps import Step
from costmodel.steps import structural_steps
from costmodel.steps import tile_steps
from costmodel.types import Config

_ABSENT = object()

Places: TypeAlias = tuple[int, ...]
"""Steps of one list, by their place in it."""

Token: TypeAlias = tuple[Any, ...]
"""Equal for configs that make one program."""

Move: TypeAlias = tuple[Places, Places]
"""Steps together, of different knobs: of the tile, and of all else."""


Tried: TypeAlias = tuple[Token, Config, Any, Any, Any, Move]
"""What a move would make of a config, a plain tuple since there are hundreds: the token
of its program, the config without the tile's changes, its block sizes (None in a kernel
without them), warps, stages, and the move."""


def made(tried: Tried) -> Config:
    """The config that a tried move makes."""
    _token, base, blocks, num_warps, num_stages, _move = tried
    config = base.copy()
    if blocks is not None:
        config["block_sizes"] = blocks
    config["num_warps"], config["num_stages"] = num_warps, num_stages
    return config


class _OfTile(NamedTuple):
    """What some tile steps make: numbers of the tile, and steps that change others."""

    blocks: Any
    tile: Tile
    num_warps: Any
    num_stages: Any
    others: Places


class Shared(NamedTuple):
    """What movers around several configs of one kernel have in common.

    Attributes:
        lists: Lists by their text.
        steps: Structural steps by the values that they depend on.
        made: What a step alone makes, by its identity.
    """

    lists: dict[str, Any]
    steps: KnownSteps
    made: dict[int, dict[str, Any]]


def nothing_shared() -> Shared:
    """For the first of some movers."""
    return Shared({}, {}, {})


class Mover:
    """Takes moves around one config, which stays as it is.

    What a move does to the tile, and what it does to the rest, is worked out once for
    all moves that share it, and the program's token is known before the config is made.
    Equal lists of all configs it makes are one object, which lets whoever compares
    configs compare identities first.

    Args:
        config: A full config.
        shared: Of all movers of one kernel, which must live while any of them does.
        tile: Steps that change the tile.
        structure: Steps that change all else.
    """

    def __init__(
        self,
        config: Config,
        shared: Shared,
        tile: Sequence[Step] = (),
        structure: Sequence[Step] = (),
    ) -> None:
        self._shared = shared
        self._config = {key: self._one(value) for key, value in config.items()}
        self._tile, self._structure = tile, structure
        self._rests: dict[tuple[Places, Places], tuple[Config, Structure]] = {}
        self._tiles: dict[Places, _OfTile] = {}
        self._words: dict[Places, list[str]] = {}  # of steps of the tile
        self._own: Structure | None = None  # of the config itself

    def know_steps(self, facts: Facts, space: ConfigSpace) -> None:
        """Find the steps that its moves may take."""
        self._tile = tile_steps(self._config, facts, space)
        self._structure = structural_steps(
            self._config, facts, space, self._shared.steps
        )

    def moves(self) -> Iterator[Move]:
        """Moves, the most promising kinds first and mixed."""
        return moves_of(self._tile, self._structure)

    def words_of(self, move: Move) -> str:
        """All that a move changes, for people."""
        of_tile, of_structure = move
        words = self._words.get(of_tile)
        if words is None:
            words = self._words[of_tile] = [self._tile[i].words for i in of_tile]
        if len(of_structure) == 1:  # nearly always
            words = [*words, self._structure[of_structure[0]].words]
        elif of_structure:
            words = [*words, *[self._structure[i].words for i in of_structure]]
        return ", ".join(words)

    def tried(self, moves: Iterator[Move], keys: EffectiveKeys) -> Iterator[Tried]:
        """What each move makes, before it is made.

        Args:
            moves: Such as `moves_of` the same steps.
            keys: Tokens of the kernel's programs.
        """
        tiles, rests = self._tiles, self._rests
        for move in moves:
            known = tiles.get(move[0]) or self._new_tile(move[0])
            blocks, tile, warps, stages, others = known
            place = others, move[1]
            base, structure = rests.get(place) or self._new_rest(place, keys)
            token = keys.token_of(structure, tile, warps, stages)
            yield token, base, blocks, warps, stages, move

    def _steps(self, of_tile: Places, of_structure: Places) -> list[Step]:
        steps = [self._tile[place] for place in of_tile]
        return steps + [self._structure[place] for place in of_structure]

    def _new_rest(
        self, place: tuple[Places, Places], keys: EffectiveKeys
    ) -> tuple[Config, Structure]:
        """The config with some steps taken that leave the tile alone."""
        steps = self._steps(*place)
        base = self.moved(steps)
        made = self._alone(steps[0]) if len(steps) == 1 else {}
        if len(made) == 1 and len(base) == len(self._config):
            (key,) = made
            if self._own is None:
                self._own = keys.structure(self._config)
            structure = keys.structure_beside(self._own, base, key)
        else:
            structure = keys.structure(base)
        self._rests[place] = (base, structure)
        return self._rests[place]

    def _new_tile(self, places: Places) -> _OfTile:
        """What some steps of the tile make."""
        blocks = self._config.get("block_sizes")
        warps, stages = self._config["num_warps"], self._config["num_stages"]
        others: Places = ()
        changed: list[Any] | None = None
        for place in places:
            settings = self._tile[place].settings
            key, index, value = settings[0]
            if len(settings) == 1 and key == "block_sizes" and index is not None:
                changed = list(blocks or ()) if changed is None else changed
                changed[index] = value
            elif len(settings) == 1 and key == "num_warps":
                warps = value
            elif len(settings) == 1 and key == "num_stages":
                stages = value
            else:
                others = (*others, place)
        if changed is not None:
            blocks = self._one(changed)
        tile = tuple(blocks) if type(blocks) is list else blocks
        self._tiles[places] = _OfTile(blocks, tile, warps, stages, others)
        return self._tiles[places]

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
        known = self._shared.made.get(id(step))
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
        self._shared.made[id(step)] = made
        return made

    def _one(self, value: Any) -> Any:
        """The one list that is equal to this one; anything else as it is."""
        if type(value) is not list:
            return value
        return self._shared.lists.setdefault(repr(value), value)


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


def moves_of(tile: Sequence[Step], structure: Sequence[Step]) -> Iterator[Move]:
    """Moves of some steps, the most promising kinds first and mixed.

    Args:
        tile: What may change the tile.
        structure: What may change all else.
    """
    numbers: dict[str, int] = {}
    knobs = [numbers.setdefault(s.knob, len(numbers)) for s in (*tile, *structure)]
    of_tile, of_structure = tuple(knobs[: len(tile)]), tuple(knobs[len(tile) :])
    taken = 0
    for n_moves in _PORTIONS:
        found = _first_moves(of_tile, of_structure, n_moves)
        yield from found[taken:]
        taken = n_moves
        if len(found) < n_moves:
            return
    yield from itertools.islice(_all_moves(of_tile, of_structure), taken, None)


# A centre has 50 to 100 moves taken; one that is left when others ran out has more.
_PORTIONS = (64, 256)


@functools.lru_cache(maxsize=256)
def _first_moves(of_tile: Places, of_structure: Places, n: int) -> tuple[Move, ...]:
    """The first few, for centres whose steps are about knobs in the same order."""
    return tuple(itertools.islice(_all_moves(of_tile, of_structure), n))


def _all_moves(of_tile: Places, of_structure: Places) -> Iterator[Move]:
    """All moves.

    Args:
        of_tile: Number of the knob of each tile step.
        of_structure: The same of each structural step.
    """
    kinds = [
        ((places, ()) for places in _combined(of_tile, 2)),
        _mixed(of_tile, of_structure, 1),
        ((places, ()) for places in _combined(of_tile, 3)),
        _mixed(of_tile, of_structure, 2),
        itertools.chain(
            (((), (place,)) for place in range(len(of_structure))),
            (((place,), ()) for place in range(len(of_tile))),
        ),
        (((), places) for places in _combined(of_structure, 2)),
        _mixed(of_tile, of_structure, 3),
    ]
    return _round_robin(kinds)


def _round_robin(kinds: Sequence[Iterator[Move]]) -> Iterator[Move]:
    waiting = list(kinds)
    while waiting:
        still = []
        for kind in waiting:
            move = next(kind, None)
            if move is not None:
                yield move
                still.append(kind)
        waiting = still


def _combined(knobs: Places, size: int) -> Iterator[Places]:
    """Combinations of steps of different knobs, near the front of the list first."""
    for places in _near_first(len(knobs), size):
        if len({knobs[place] for place in places}) == size:
            yield places


@functools.lru_cache(maxsize=256)
def _near_first(n: int, size: int) -> tuple[Places, ...]:
    """Index combinations by rising sum, then in order."""
    found = itertools.combinations(range(n), size)
    return tuple(sorted(found, key=lambda indices: (sum(indices), indices)))


def _mixed(of_tile: Places, of_structure: Places, n_tile: int) -> Iterator[Move]:
    """One structural step with some tile steps."""
    for places in _combined(of_tile, n_tile):
        taken = [of_tile[place] for place in places]
        for place, knob in enumerate(of_structure):
            if knob not in taken:
                yield places, (place,)
