"""Moves: steps taken together do what they do one after another, and share lists."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from costmodel.config_space import Slot
from costmodel.moves import Mover
from costmodel.moves import made
from costmodel.moves import moves_of
from costmodel.moves import nothing_shared
from costmodel.steps import Setting
from costmodel.steps import Step
from costmodel.types import Config

CENTRE: Config = {
    "block_sizes": [64, 64, 32],
    "indexing": ["pointer", "pointer"],
    "loop_orders": [[0, 1]],
    "num_warps": 4,
    "range_flattens": [None, None],
}
SETTINGS = st.one_of(
    st.tuples(st.just("block_sizes"), st.integers(0, 2), st.sampled_from([16, 128])),
    st.tuples(st.just("indexing"), st.integers(0, 1), st.just("tensor_descriptor")),
    st.tuples(st.just("loop_orders"), st.just(0), st.just([1, 0])),
    st.tuples(st.just("range_flattens"), st.integers(0, 1), st.sampled_from([True])),
    st.tuples(st.just("num_warps"), st.none(), st.sampled_from([2, 8])),
    st.tuples(st.just("maxnreg"), st.none(), st.sampled_from([None, 64])),
    st.tuples(st.just("block_sizes"), st.none(), st.just([8, 8, 8])),
)
STEPS = st.lists(SETTINGS, min_size=1, max_size=3).map(
    lambda settings: Step(tuple(settings), "words", "knob", True)
)
MOVES = st.lists(STEPS, min_size=1, max_size=4).map(tuple)


def plainly(config: Config, settings: list[Setting]) -> Config:
    """What settings do, one after another, on a copy."""
    result = copy.deepcopy(config)
    for key, index, value in settings:
        if index is not None:
            result[key][index] = value
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = copy.deepcopy(value)
    return result


@given(st.lists(MOVES, min_size=1, max_size=6))
def test_a_move_is_its_steps_in_turn(moves: list[tuple[Step, ...]]) -> None:
    before = copy.deepcopy(CENTRE)
    mover = Mover(CENTRE, nothing_shared())
    found = [mover.moved(move) for move in moves]
    for move, config in zip(moves, found, strict=True):
        settings = [setting for step in move for setting in step.settings]
        assert config == plainly(CENTRE, settings)
    assert before == CENTRE  # and no move has changed what an earlier one made


class _Keys:
    """What a mover asks of `EffectiveKeys`: here a program is its config."""

    def structure(self, full: Config) -> Config:
        return full

    def structure_beside(self, known: Config, full: Config, key: str) -> Config:
        assert list(known) == list(full)
        differ = {name for name in full if known[name] != full[name]}
        assert differ <= {key}
        return full

    def token_of(self, structure: Config, tile: Any, warps: Any, stages: Any) -> Any:
        return str(sorted(structure.items())), tile, warps, stages


ONE_KNOB = SETTINGS.filter(lambda s: s[:2] != ("block_sizes", None)).map(
    lambda setting: Step((setting,), "words", f"{setting[0]}{setting[1]}", True)
)
OF_TILE = st.lists(ONE_KNOB, max_size=5)
OF_REST = st.lists(
    ONE_KNOB.filter(lambda step: step.knob not in ("block_sizes0", "num_warpsNone")),
    max_size=4,
)


@given(OF_TILE, OF_REST)
def test_a_tried_move_makes_what_its_steps_make(
    tile: list[Step], structure: list[Step]
) -> None:
    structure = [s for s in structure if not s.knob.startswith(("block", "num_"))]
    centre = {**CENTRE, "num_stages": 2}
    mover, keys = Mover(centre, nothing_shared(), tile, structure), _Keys()
    plain = Mover(centre, nothing_shared())
    moves = list(moves_of(tile, structure))
    tried = list(mover.tried(iter(moves), keys))  # type: ignore[arg-type]
    again = list(mover.tried(iter(moves), keys))  # type: ignore[arg-type]
    assert tried == again
    for (of_tile, of_structure), one in zip(moves, tried, strict=True):
        steps = [*(tile[i] for i in of_tile), *(structure[i] for i in of_structure)]
        assert len({step.knob for step in steps}) == len(steps)  # each of its own knob
        assert made(one) == plain.moved(steps)
        assert list(made(one)) == list(plain.moved(steps))
        assert one[5] == (of_tile, of_structure)
        assert mover.words_of(one[5]).count("words") == len(steps)


@given(st.integers(0, 6), st.integers(0, 6))
def test_every_small_move_comes_once(n_tile: int, n_structure: int) -> None:
    tile = [Step((), "", f"tile {i // 2}", True) for i in range(n_tile)]
    structure = [Step((), "", f"rest {i // 2}", False) for i in range(n_structure)]
    moves = list(moves_of(tile, structure))
    assert len(set(moves)) == len(moves)
    singles = [move for move in moves if sum(map(len, move)) == 1]
    assert len(singles) == n_tile + n_structure
    pairs = {m for m in moves if sum(map(len, m)) == 2}
    both = [*tile, *structure]
    wanted = sum(
        both[i].knob != both[j].knob for j in range(len(both)) for i in range(j)
    )
    assert len(pairs) == wanted


def test_equal_lists_are_one_object() -> None:
    shared = nothing_shared()
    other = {**CENTRE, "indexing": list(CENTRE["indexing"]), "num_warps": 8}
    step = Step((("block_sizes", 0, 16),), "", "block_sizes0", True)
    one = Mover(CENTRE, shared).moved((step,))
    two = Mover(other, shared).moved((step,))
    assert one["indexing"] is two["indexing"]
    assert one["block_sizes"] is two["block_sizes"]
    assert CENTRE["block_sizes"] == [64, 64, 32]


def test_one_is_not_true() -> None:
    slot = Slot((1, 2, "a"), 1, extra=(None,))
    assert slot.allows(1) and slot.allows("a") and slot.allows(None)
    assert not slot.allows(True) and not slot.allows(1.0) and not slot.allows(3)
