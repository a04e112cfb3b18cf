"""Joint moves: change two to four knobs of a config at once, within what is legal.

Measured on H200: the winners of a search were joint moves of two to four knobs around
the default or a seed, hardly ever one-knob moves (block sizes alone: 0 of 57) and
hardly ever random configs.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

from costmodel.config_space import ConfigSpace
from costmodel.config_space import Knob
from costmodel.types import Config

# How often a knob takes part in a move. About 70 % of the headroom seen was in the
# first five, set differently from Helion's rules; the rest in knobs no rule sets.
_WEIGHTS = {
    "block_sizes": 5.0,
    "num_warps": 3.0,
    "num_stages": 3.0,
    "reduction_loops": 2.0,
    "l2_groupings": 1.5,
    "indexing": 2.0,
    "load_eviction_policies": 1.5,
    "pid_type": 1.5,
    "loop_orders": 1.0,
    "range_num_stages": 1.0,
    "range_unroll_factors": 0.7,
    "range_multi_buffers": 0.7,
    "range_flattens": 0.7,
    "num_sm_multiplier": 0.5,
    "maxnreg": 0.5,
}
_OTHER_WEIGHT = 0.3
_KNOBS_PER_MOVE = (2, 3, 4)
_FAR_STEP_SHARE = 0.25  # steps of two notches instead of one
_TWO_SLOTS_SHARE = 0.35  # block sizes: trade one tile side against another
_ALL_SLOTS_SHARE = 0.6  # accesses: one way for all loads and stores
_UNIFORM_KNOBS = frozenset({"indexing", "load_eviction_policies"})


def joint_move(config: Config, space: ConfigSpace, rng: random.Random) -> Config:
    """A copy of `config` with two to four knobs changed; legal per knob, not jointly.

    Fewer change where fewer have a choice. Whoever calls asks Helion whether the
    combination stands.
    """
    moved = copy.deepcopy(config)
    knobs = [k for k in space.knobs.values() if k.name in moved and _free_slots(k)]
    for _ in range(min(rng.choice(_KNOBS_PER_MOVE), len(knobs))):
        weights = [_WEIGHTS.get(knob.name, _OTHER_WEIGHT) for knob in knobs]
        knob = rng.choices(knobs, weights)[0]
        knobs.remove(knob)
        _move_knob(moved, knob, rng)
    return moved


def _move_knob(config: Config, knob: Knob, rng: random.Random) -> None:
    choices = [slot.choices for slot in knob.slots]
    if not knob.is_list:
        config[knob.name] = _other_value(config[knob.name], choices[0], rng)
        return
    values = list(config[knob.name])
    free = [slot for slot in _free_slots(knob) if slot < len(values)]
    if not free:
        return
    if knob.name in _UNIFORM_KNOBS and rng.random() < _ALL_SLOTS_SHARE:
        wanted = _other_value(values[free[0]], choices[free[0]], rng)
        for slot in free:
            if wanted in choices[slot]:
                values[slot] = wanted
    else:
        two = knob.name == "block_sizes" and rng.random() < _TWO_SLOTS_SHARE
        for slot in rng.sample(free, min(2 if two else 1, len(free))):
            values[slot] = _other_value(values[slot], choices[slot], rng)
    config[knob.name] = values


def _free_slots(knob: Knob) -> list[int]:
    return [i for i, slot in enumerate(knob.slots) if len(slot.choices) > 1]


def _other_value(current: Any, values: Sequence[Any], rng: random.Random) -> Any:
    """A near other value among numbers, any other value among the rest."""
    numbers = [v for v in values if _is_number(v)]
    if _is_number(current) and len(numbers) > 1 and rng.random() < 0.9:
        below = [v for v in numbers if v < current]
        above = [v for v in numbers if v > current]
        notch = 1 + (rng.random() < _FAR_STEP_SHARE)
        near = [below[-min(notch, len(below))]] if below else []
        near += [above[min(notch, len(above)) - 1]] if above else []
        return rng.choice(near)
    others = [v for v in values if v != current or type(v) is not type(current)]
    return rng.choice(others) if others else current


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
