"""What to record: which workloads, in what order, and which configs of each.

Breadth beats depth: a quarter of the configs per workload costs a model almost
nothing, missing kernels and shapes cost it a lot. So a plan takes few configs per
workload, drawn where picks will be made (the default, Helion's seeds, analytic
candidates, joint moves around them) plus some random ones that show the cliffs, and it
walks the kernels in waves of a few shapes each.

Plans are pure: the same workload and space give the same configs in the same order.
"""

from __future__ import annotations

import enum
import json
import random
import sys
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.config_space import ConfigSpace
from costmodel.datasets.moves import joint_move
from costmodel.datasets.workloads.workload import Workload
from costmodel.types import Config

N_CONFIGS = 45
RANDOM_SHARE = 0.15
RANDOM_SHARE_WITHOUT_RULE = 0.25  # there the default is no good place to start from
REFUSED_SHARE = 0.1  # kept although they should not run, so that limits stay tested
WAVE_KERNELS = 60
WAVE_SHAPES = 3
MAX_SEEDS = 10
MAX_ANALYTIC = 5
DEFAULT_EVERY = 11  # attempts between two readings of the default
_FIRST_DEFAULT = 2  # never the first timing of a run: it reads slow
_SEED_MOVE_SHARE = 0.4  # of the moves; the others start from the default
_TRIES_PER_CONFIG = 20


class Origin(enum.StrEnum):
    """Why a config is in a plan."""

    DEFAULT = "default"
    SEED = "seed"
    ANALYTIC = "analytic"
    MOVE = "move"
    RANDOM = "random"
    LISTED = "listed"


class Tier(enum.IntEnum):
    """Value of a kernel's data, best first: where a better pick pays most."""

    NO_RULE = 0
    DOT = 1
    OTHER = 2


@dataclass(frozen=True, slots=True)
class PlannedConfig:
    """One config to time and why."""

    config: Config
    origin: Origin


@dataclass(frozen=True, slots=True)
class Offers:
    """What a bound kernel offers; configs need not be full.

    Attributes:
        default: What Helion would compile.
        seeds: Helion's other proposals, best first.
        analytic: Ours, best first.
        space: Legal values of every knob, for moves.
        random_config: A config from Helion's own generator.
        normalize: The full form Helion would compile, or None if it refuses.
        feasible: Whether each config keeps the hard limits.
        has_rule: Whether a heuristic of Helion's made the default.
    """

    default: Config
    seeds: Sequence[Config]
    analytic: Sequence[Config]
    space: ConfigSpace
    random_config: Callable[[random.Random], Config]
    normalize: Callable[[Config], Config | None]
    feasible: Callable[[Sequence[Config]], Sequence[bool]]
    has_rule: bool


def plan_configs(
    offers: Offers, workload_id: str, n_configs: int = N_CONFIGS
) -> list[PlannedConfig]:
    """Distinct full configs worth timing, the default first.

    Args:
        offers: See `Offers`.
        workload_id: Seeds the draw.
        n_configs: How many, if the space has as many.
    """
    rng = random.Random(workload_id)
    draw = _Draw(offers, max(1, round(REFUSED_SHARE * n_configs)))
    draw.add(offers.default, Origin.DEFAULT, must=True)
    for seed in offers.seeds[:MAX_SEEDS]:
        draw.add(seed, Origin.SEED, must=True)
    for config in offers.analytic[:MAX_ANALYTIC]:
        draw.add(config, Origin.ANALYTIC)
    share = RANDOM_SHARE if offers.has_rule else RANDOM_SHARE_WITHOUT_RULE
    n_random = round(share * n_configs)
    bases = [one.config for one in draw.planned[1:]] or [draw.planned[0].config]
    for _ in range(_TRIES_PER_CONFIG * n_configs):
        if len(draw.planned) >= n_configs - n_random:
            break
        base = draw.planned[0].config
        if rng.random() < _SEED_MOVE_SHARE or not offers.has_rule:
            base = rng.choice(bases)
        draw.add(joint_move(base, offers.space, rng), Origin.MOVE)
    for _ in range(_TRIES_PER_CONFIG * n_random):
        if len(draw.planned) >= n_configs:
            break
        draw.add(offers.random_config(rng), Origin.RANDOM)
    return draw.planned[: max(n_configs, 1)]


def listed_configs(offers: Offers, configs: Iterable[Config]) -> list[PlannedConfig]:
    """The default and the given configs in full form, each once; those that Helion
    refuses here are left out."""
    draw = _Draw(offers, n_refused_allowed=sys.maxsize)
    draw.add(offers.default, Origin.DEFAULT, must=True)
    for config in configs:
        draw.add(config, Origin.LISTED)
    return draw.planned


class _Draw:
    """Collects distinct configs; lets only a few pass that should not run."""

    def __init__(self, offers: Offers, n_refused_allowed: int) -> None:
        self.planned: list[PlannedConfig] = []
        self._offers = offers
        self._seen: set[str] = set()
        self._allowed = n_refused_allowed

    def add(self, config: Config, origin: Origin, *, must: bool = False) -> None:
        # Helion's own are full already, and are taken even where a search would not.
        full = config if must else self._offers.normalize(config)
        if full is None:
            return
        key = json.dumps(full, sort_keys=True, default=str)
        if key in self._seen:
            return
        if not must and not self._offers.feasible([full])[0]:
            if self._allowed == 0:
                return
            self._allowed -= 1
        self._seen.add(key)
        self.planned.append(PlannedConfig(full, origin))


def timing_order(planned: Sequence[PlannedConfig], workload_id: str) -> list[Config]:
    """The order to time in: shuffled, the default (first of `planned`) put in again
    and again, and never first."""
    rng = random.Random(f"order {workload_id}")
    others = [one.config for one in planned[1:]]
    rng.shuffle(others)
    default = planned[0].config
    order: list[Config] = []
    for i, config in enumerate(others):
        if i % DEFAULT_EVERY == _FIRST_DEFAULT:
            order.append(default)
        order.append(config)
    # Even a kernel with one config is read twice: that is its noise.
    return [*order, default] if order else [default, default]


def order_workloads(
    workloads: Sequence[Workload],
    tiers: Mapping[str, Tier],
    wave_kernels: int = WAVE_KERNELS,
    wave_shapes: int = WAVE_SHAPES,
) -> list[Workload]:
    """All workloads, best value first.

    Kernels come in waves, each drawn from all families in turn. Within a wave it goes
    round by round: every kernel's first shape before any kernel's second, better tiers
    first, families in turn. A wave ends after a few shapes per kernel; what is left of
    all kernels comes last. So a run stopped at any time has broad data, and one that
    goes on has siblings too: other shapes of a kernel are what helps a model most.

    Args:
        workloads: As the registry lists them, a kernel's shapes best first.
        tiers: By kernel reference; a kernel without one counts as `Tier.OTHER`.
        wave_kernels: Kernels of one wave.
        wave_shapes: Shapes of each before the next wave begins.
    """
    firsts = {one.kernel: one for one in reversed(workloads)}
    in_turn = _families_in_turn([firsts[k] for k in dict.fromkeys(_kernels(workloads))])
    wave = {one.kernel: i // wave_kernels for i, one in enumerate(in_turn)}
    seen: dict[str, int] = {}
    groups: dict[tuple[int, int, Tier], list[Workload]] = {}
    for workload in workloads:
        number = seen.get(workload.kernel, 0)
        seen[workload.kernel] = number + 1
        tier = tiers.get(workload.kernel, Tier.OTHER)
        turn = wave[workload.kernel] if number < wave_shapes else len(wave)
        groups.setdefault((turn, number, tier), []).append(workload)
    return [w for key in sorted(groups) for w in _families_in_turn(groups[key])]


def _kernels(workloads: Sequence[Workload]) -> list[str]:
    return [workload.kernel for workload in workloads]


def shard(workloads: Sequence[Workload], index: int, count: int) -> list[Workload]:
    """Every `count`-th workload from `index`: each shard has every tier and family."""
    return list(workloads[index::count])


def in_listed_order(
    workloads: Iterable[Workload], listed_ids: Sequence[str]
) -> list[Workload]:
    """Workloads named in a list first, in its order, the others behind them."""
    place = {workload_id: i for i, workload_id in enumerate(listed_ids)}
    return sorted(workloads, key=lambda w: place.get(w.workload_id, len(place)))


def _families_in_turn(workloads: Sequence[Workload]) -> list[Workload]:
    queues: dict[str, list[Workload]] = {}
    for workload in workloads:
        queues.setdefault(workload.family, []).append(workload)
    turns: list[Workload] = []
    while queues:
        for family in list(queues):
            turns.append(queues[family].pop(0))
            if not queues[family]:
                del queues[family]
    return turns
