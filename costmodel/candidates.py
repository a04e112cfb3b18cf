"""Which configs are considered for one kernel on one GPU.

Helion's default always, Helion's seeds, the analytic lists' proposals, and joint moves
around all of them: within hard limits, legal, and each program once. The same kernel
always gives the same candidates; nothing here is random or timed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import Protocol
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from costmodel.config_space import ConfigSpace
from costmodel.errors import UnreadableKernelError
from costmodel.features.canonical import canonical_config
from costmodel.features.effective import EffectiveKeys
from costmodel.features.feasible import feasible
from costmodel.features.knobs import Alike
from costmodel.heuristics.accuracy import keeps_sums_exact
from costmodel.heuristics.facts import Facts
from costmodel.heuristics.listed import with_list
from costmodel.heuristics.read_facts import read_facts
from costmodel.heuristics.read_facts import within
from costmodel.moves import Mover
from costmodel.moves import Tried
from costmodel.moves import made
from costmodel.moves import nothing_shared
from costmodel.types import Candidate
from costmodel.types import CandidateOrigin
from costmodel.types import Config

if TYPE_CHECKING:
    from costmodel.features.extract import FeatureExtractor

MOST_CANDIDATES = 512
_MOVES_PER_CANDIDATE = 1.4  # made for each one kept: some do not fit or are twins
_ANALYTIC_CENTRES = 6
_SEED_CENTRES = 8
_MOST_ALIKE = 8  # moves of one tile and warp count, before others had their turn


class HelionFacts(Protocol):
    """What `helion_hook.view` says, as far as it is needed here."""

    @property
    def default(self) -> Config:
        """Helion's own config, in full form."""
        ...

    @property
    def seeds(self) -> tuple[Config, ...]:
        """Configs of Helion's heuristics, in full form."""
        ...


def make_candidates(
    view: HelionFacts,
    space: ConfigSpace,
    extractor: FeatureExtractor,
    limit: int = MOST_CANDIDATES,
) -> list[Candidate]:
    """All candidates for one kernel, Helion's default first.

    Args:
        view: Helion's default and seeds.
        space: Legal values of every knob.
        extractor: The kernel and the GPU.
        limit: Most candidates to return, at least 1.

    Returns:
        The default, whatever its resources; analytic proposals in their order; seeds;
        moves. All but the default keep the GPU's hard limits, and all do different
        things as far as structure tells.
    """
    graph = extractor.graph
    default = canonical_config(view.default)
    seeds = [canonical_config(seed, default) for seed in view.seeds]
    extractor.expect(seeds)
    facts = read_facts(graph)
    listed = with_list(extractor, default, facts)
    analytic = [one for one in listed if not space.objections(one.config)]
    keys = extractor.proposed.keys
    facts = within(facts, graph, space)
    pool = _Pool(keys, limit)
    pool.add(Candidate(default, CandidateOrigin.DEFAULT, "Helion's default"))
    for candidate in analytic:
        pool.add(candidate)
    legal = _usable(extractor, facts, seeds)
    for rank, (seed, fits) in enumerate(zip(seeds, legal, strict=True), start=1):
        if fits:
            words = f"seed {rank} of Helion's heuristics"
            pool.add(Candidate(seed, CandidateOrigin.SEED, words))
    centres = _centres(
        default, analytic, [s for s, f in zip(seeds, legal, strict=True) if f]
    )
    wanted = int(_MOVES_PER_CANDIDATE * max(0, limit - len(pool.kept)))
    moved = pool.new_ones(_moved(centres, facts, space, keys, wanted))
    keys.know_tokens([(one[3][0], one[0]) for one in moved])
    # Whoever asked for candidates asks for their features next.
    with contextlib.suppress(UnreadableKernelError):
        kept = [one.config for one in pool.kept]
        asked = [*kept, *(one[0] for one in moved)]
        extractor.remember(asked, _alike([*kept, *(one[3][1] for one in moved)]))
    fits = _usable(extractor, facts, [one[0] for one in moved])
    pool.add_diverse([one for one, ok in zip(moved, fits, strict=True) if ok])
    return pool.kept


_Moved: TypeAlias = tuple[Config, str, Mover, Tried]
"""A move that was made, and around what; only if it is kept are its words asked for."""


def _alike(bases: Sequence[Config]) -> Alike:
    """Which of the different objects each one is."""
    ids = list(map(id, bases))
    different = dict(zip(ids, bases, strict=True))
    row_of = {one: row for row, one in enumerate(different)}
    return list(different.values()), np.array([row_of[one] for one in ids])


class _Pool:
    """Candidates so far, each program once."""

    def __init__(self, keys: EffectiveKeys, limit: int) -> None:
        self.kept: list[Candidate] = []
        self._keys = keys
        self._seen: set[tuple[Any, ...]] = set()
        self._limit = max(1, limit)

    def add(self, candidate: Candidate) -> None:
        """Keep it unless its program is known or there is no room."""
        token = self._keys.token(candidate.config)
        if token in self._seen or len(self.kept) >= self._limit:
            return
        self._seen.add(token)
        self.kept.append(candidate)

    def new_ones(self, tried: Iterable[tuple[Tried, str, Mover]]) -> list[_Moved]:
        """Make those whose program is none of the kept, each program once."""
        found: dict[tuple[Any, ...], _Moved] = {}
        seen = self._seen
        for one, centre, mover in tried:
            token = one[0]
            if token not in seen and token not in found:
                found[token] = (made(one), centre, mover, one)
        return list(found.values())

    def add_diverse(self, moved: Sequence[_Moved]) -> None:
        """Keep as many as there is room for, no tile crowding out the others.

        Args:
            moved: What `new_ones` gave, or some of it.
        """
        counts: dict[tuple[int, Any], int] = {}
        early: list[_Moved] = []
        late: list[_Moved] = []
        for one in moved:
            _token, _base, blocks, num_warps, _stages, _move = one[3]
            # Movers share equal lists, so that a list's identity stands for its tile.
            tile = (id(blocks), num_warps)
            count = counts.get(tile, 0)
            if count >= _MOST_ALIKE:
                late.append(one)
            else:
                early.append(one)
                counts[tile] = count + 1
        room = max(0, self._limit - len(self.kept))
        for config, centre, mover, tried in [*early, *late][:room]:
            words = f"around {centre}: {mover.words_of(tried[5])}"
            self.kept.append(Candidate(config, CandidateOrigin.MOVE, words))


def _centres(
    default: Config, analytic: Sequence[Candidate], seeds: Sequence[Config]
) -> list[tuple[Config, str]]:
    """Configs to move around, with their names; seeds in an order of their own, so
    that the order in which they come changes nothing."""
    centres = [(default, "the default")]
    best = [c.config for c in analytic[:_ANALYTIC_CENTRES]]
    ordered = sorted(seeds, key=_text)
    others = [(seed, "a seed") for seed in ordered[:_SEED_CENTRES]]
    mine = [(config, "an analytic pick") for config in best]
    for pair in range(max(len(others), len(mine))):
        centres.extend(mine[pair : pair + 1])
        centres.extend(others[pair : pair + 1])
    unique: dict[str, tuple[Config, str]] = {}
    for config, name in centres:
        unique.setdefault(_text(config), (config, name))
    return list(unique.values())


def _text(config: Config) -> str:
    return json.dumps(config, sort_keys=True)


def _moved(
    centres: Sequence[tuple[Config, str]],
    facts: Facts,
    space: ConfigSpace,
    keys: EffectiveKeys,
    wanted: int,
) -> Iterator[tuple[Tried, str, Mover]]:
    """Moves around all centres in turn; the default's come twice as often."""
    shared = nothing_shared()
    streams = []
    for config, name in centres:
        mover = Mover(config, shared)
        mover.know_steps(facts, space)
        streams.append((mover.tried(mover.moves(), keys), name, mover))
    turns = [streams[0], *streams] if streams else []
    n_tried = 0
    while turns and n_tried < wanted:
        for stream in list(turns):
            tries, name, mover = stream
            one = next(tries, None)
            if one is None:
                turns = [other for other in turns if other is not stream]
                continue
            yield one, name, mover
            n_tried += 1
            if n_tried >= wanted:
                return


def _usable(
    extractor: FeatureExtractor, facts: Facts, configs: Sequence[Config]
) -> npt.NDArray[np.bool_]:
    """Within hard limits, and exact in its sums: bool[n]."""
    if not configs:
        return np.zeros(0, dtype=np.bool_)
    fits = feasible(extractor, configs)
    if any(knob.inside is not None for knob in facts.knobs):
        # Helion would compile another config than the one that was looked at.
        for row, config in enumerate(configs):
            blocks = config["block_sizes"]
            fits[row] &= facts.bounded(blocks) == blocks
    return fits & keeps_sums_exact(facts, extractor.hardware, configs)
