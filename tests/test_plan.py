"""Laws of a recording plan: what is drawn, in what order, and who records what."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter

import hypothesis.strategies as st
from hypothesis import given

from costmodel.config_space import ConfigSpace
from costmodel.config_space import Knob
from costmodel.config_space import Slot
from costmodel.datasets.moves import joint_move
from costmodel.datasets.plan import DEFAULT_EVERY
from costmodel.datasets.plan import Offers
from costmodel.datasets.plan import Origin
from costmodel.datasets.plan import Tier
from costmodel.datasets.plan import in_listed_order
from costmodel.datasets.plan import order_workloads
from costmodel.datasets.plan import plan_configs
from costmodel.datasets.plan import shard
from costmodel.datasets.plan import timing_order
from costmodel.datasets.workloads.workload import Workload
from costmodel.types import Config

BLOCKS = tuple(2**i for i in range(4, 9))
ACCESSES = ("pointer", "tensor_descriptor")


def _slots(choices: tuple[object, ...], n: int) -> tuple[Slot, ...]:
    return (Slot(choices, choices[0]),) * n


SPACE = ConfigSpace(
    {
        "block_sizes": Knob("block_sizes", _slots(BLOCKS, 3), is_list=True),
        "num_warps": Knob("num_warps", _slots((1, 2, 4, 8, 16), 1), is_list=False),
        "num_stages": Knob("num_stages", _slots(tuple(range(1, 9)), 1), is_list=False),
        "indexing": Knob("indexing", _slots(ACCESSES, 3), is_list=True),
        "reduction_loops": Knob(
            "reduction_loops", _slots((64, 128, None), 1), is_list=True
        ),
        "range_flattens": Knob(
            "range_flattens", _slots((None, True, False), 2), is_list=True
        ),
        "pid_type": Knob("pid_type", _slots(("flat",), 1), is_list=False),
    }
)
DEFAULT: Config = {
    "block_sizes": [64, 64, 32],
    "num_warps": 4,
    "num_stages": 3,
    "indexing": ["pointer"] * 3,
    "reduction_loops": [None],
    "range_flattens": [None, None],
    "pid_type": "flat",
}


def _random_config(rng: random.Random) -> Config:
    def draw(knob: Knob) -> object:
        values = [rng.choice(slot.choices) for slot in knob.slots]
        return values if knob.is_list else values[0]

    return {name: draw(knob) for name, knob in SPACE.knobs.items()}


def _offers(n_seeds: int = 2, *, has_rule: bool = True, stages: int = 99) -> Offers:
    rng = random.Random(7)
    return Offers(
        default=DEFAULT,
        seeds=[_random_config(rng) for _ in range(n_seeds)],
        analytic=[_random_config(rng)],
        space=SPACE,
        random_config=_random_config,
        # Helion refuses some combinations that are legal knob by knob.
        normalize=lambda c: None if c["num_warps"] == 16 and c["num_stages"] > 6 else c,
        feasible=lambda configs: [c["num_stages"] <= stages for c in configs],
        has_rule=has_rule,
    )


def _key(config: Config) -> str:
    return json.dumps(config, sort_keys=True)


@given(st.randoms(use_true_random=False))
def test_a_move_changes_up_to_four_knobs_to_legal_values(rng: random.Random) -> None:
    before = _key(DEFAULT)
    moved = joint_move(DEFAULT, SPACE, rng)
    assert _key(DEFAULT) == before
    assert not SPACE.objections(moved)
    assert sum(moved[name] != DEFAULT[name] for name in DEFAULT) <= 4


def test_moves_reach_every_knob_and_are_mostly_joint() -> None:
    rng = random.Random(0)
    changed = [
        [n for n in DEFAULT if moved[n] != DEFAULT[n]]
        for moved in (joint_move(DEFAULT, SPACE, rng) for _ in range(400))
    ]
    touched = Counter(name for names in changed for name in names)
    assert set(touched) == set(DEFAULT) - {"pid_type"}  # one choice: never moves
    assert sum(len(names) >= 2 for names in changed) > 0.9 * len(changed)


@given(
    workload_id=st.text("0123456789abcdef", min_size=16, max_size=16),
    n_configs=st.integers(5, 60),
    has_rule=st.booleans(),
    stages=st.sampled_from([2, 5, 99]),
)
def test_plan_is_reproducible_distinct_and_mostly_feasible(
    workload_id: str, n_configs: int, has_rule: bool, stages: int
) -> None:
    offers = _offers(has_rule=has_rule, stages=stages)
    planned = plan_configs(offers, workload_id, n_configs)
    assert planned == plan_configs(offers, workload_id, n_configs)
    assert planned[0].config == DEFAULT
    assert planned[0].origin is Origin.DEFAULT
    keys = [_key(one.config) for one in planned]
    assert len(set(keys)) == len(keys) <= n_configs
    assert stages < 99 or len(keys) == n_configs
    assert all(offers.normalize(one.config) == one.config for one in planned)
    own = {Origin.DEFAULT, Origin.SEED}  # Helion's own are taken as they are
    refused = [p for p in planned if p.origin not in own]
    refused = [p for p in refused if not offers.feasible([p.config])[0]]
    assert len(refused) <= max(1, round(0.1 * n_configs))


def test_plan_has_every_origin_in_its_share() -> None:
    for has_rule, share in ((True, 0.15), (False, 0.25)):
        planned = plan_configs(_offers(has_rule=has_rule), "0" * 16, 60)
        counts = Counter(one.origin for one in planned)
        assert counts[Origin.DEFAULT] == 1
        assert counts[Origin.SEED] == 2
        assert counts[Origin.ANALYTIC] == 1
        assert counts[Origin.RANDOM] == round(share * 60)
        assert counts[Origin.MOVE] == 60 - 4 - counts[Origin.RANDOM]


def test_different_workloads_get_different_plans() -> None:
    one, two = (plan_configs(_offers(), digit * 16, 45) for digit in "01")
    assert one[:4] == two[:4]  # what Helion and the rules say comes in any case
    assert {_key(p.config) for p in one} != {_key(p.config) for p in two}


def test_plan_of_a_space_without_choice_is_the_default_alone() -> None:
    offers = Offers(
        default={"num_warps": 4},
        seeds=(),
        analytic=(),
        space=ConfigSpace({"num_warps": Knob("num_warps", (Slot((4,), 4),), False)}),
        random_config=lambda rng: {"num_warps": 4},
        normalize=lambda config: config,
        feasible=lambda configs: [True] * len(configs),
        has_rule=True,
    )
    planned = plan_configs(offers, "0" * 16, 45)
    assert [one.config for one in planned] == [{"num_warps": 4}]
    # A search needs two configs; the default twice is also its own noise floor.
    assert len(timing_order(planned, "0" * 16)) == 2


@given(n_configs=st.integers(2, 60))
def test_the_default_is_timed_often_and_never_first(n_configs: int) -> None:
    planned = plan_configs(_offers(), "a" * 16, n_configs)
    order = timing_order(planned, "a" * 16)
    assert order == timing_order(planned, "a" * 16)
    places = [i for i, config in enumerate(order) if config == DEFAULT]
    assert places[0] > 0
    assert places[-1] == len(order) - 1
    gaps = [b - a for a, b in itertools.pairwise(places)]
    assert all(gap <= DEFAULT_EVERY + 1 for gap in gaps)
    others = [_key(c) for c in order if c != DEFAULT]
    assert sorted(others) == sorted(_key(p.config) for p in planned[1:])


@st.composite
def _registries(draw: st.DrawFn) -> tuple[list[Workload], dict[str, Tier]]:
    kernels = draw(
        st.lists(
            st.tuples(
                st.integers(1, 4),
                st.sampled_from(["attention", "norm", "matmul"]),
                st.sampled_from(list(Tier)),
            ),
            max_size=12,
        )
    )
    workloads = [
        Workload(f"file:k{i}", (f"bf16[{shape}]",), family, "plain")
        for i, (n_shapes, family, _) in enumerate(kernels)
        for shape in range(n_shapes)
    ]
    return workloads, {f"file:k{i}": tier for i, (_, _, tier) in enumerate(kernels)}


@given(_registries(), st.integers(1, 4), st.integers(1, 13), st.integers(1, 4))
def test_waves_take_a_few_shapes_of_each_kernel_round_by_round(
    registry: tuple[list[Workload], dict[str, Tier]],
    n_shards: int,
    wave_kernels: int,
    wave_shapes: int,
) -> None:
    workloads, tiers = registry
    ordered = order_workloads(workloads, tiers, wave_kernels, wave_shapes)
    assert Counter(ordered) == Counter(workloads)
    total = Counter(w.kernel for w in workloads)
    seen: Counter[str] = Counter()
    rounds: list[tuple[int, Tier]] = []
    wave: list[str] = []
    for workload in ordered:
        number = seen[workload.kernel]
        if number == 0 and workload.kernel not in wave:
            if len(wave) == wave_kernels:
                # The wave before had its shapes, all of them or as many as asked.
                assert all(seen[k] == min(total[k], wave_shapes) for k in wave)
                wave, rounds = [], []
            wave.append(workload.kernel)
        if number < wave_shapes:
            rounds.append((number, tiers[workload.kernel]))
            assert rounds == sorted(rounds)
        seen[workload.kernel] += 1
    shards = [shard(ordered, i, n_shards) for i in range(n_shards)]
    assert Counter(itertools.chain(*shards)) == Counter(workloads)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@given(_registries(), st.integers(1, 12))
def test_a_wave_has_kernels_of_all_families(
    registry: tuple[list[Workload], dict[str, Tier]], wave_kernels: int
) -> None:
    workloads, tiers = registry
    ordered = order_workloads(workloads, tiers, wave_kernels, 1)
    families = {w.family for w in workloads}
    first_wave = {w.family for w in ordered[: min(wave_kernels, len(tiers))]}
    assert len(first_wave) == min(len(families), wave_kernels)


@given(_registries())
def test_families_take_turns_within_a_tier(
    registry: tuple[list[Workload], dict[str, Tier]],
) -> None:
    workloads, tiers = registry
    firsts = order_workloads(workloads, tiers)[: len(tiers)]
    for tier in Tier:
        families = [w.family for w in firsts if tiers[w.kernel] is tier]
        first_turn = families[: len(set(families))]
        assert len(set(first_turn)) == len(first_turn)


@given(_registries(), st.randoms(use_true_random=False))
def test_a_listed_order_is_followed_and_loses_nothing(
    registry: tuple[list[Workload], dict[str, Tier]], rng: random.Random
) -> None:
    workloads, _ = registry
    ids = [w.workload_id for w in workloads]
    listed = [*rng.sample(ids, len(ids) // 2), "not in the registry"]
    ordered = in_listed_order(workloads, listed)
    assert Counter(ordered) == Counter(workloads)
    assert [w.workload_id for w in ordered[: len(ids) // 2]] == listed[:-1]
