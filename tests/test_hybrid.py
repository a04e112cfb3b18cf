"""Who decides, in which order, and that nothing but the facts matters."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import SCHEMA

from costmodel.card import GateCard
from costmodel.gate import Gate
from costmodel.hybrid import SHORTLIST_LENGTH
from costmodel.hybrid import _speller
from costmodel.hybrid import canonical_text
from costmodel.hybrid import choose
from costmodel.layout import RowLayout
from costmodel.ordering import LazyTexts
from costmodel.types import Candidate
from costmodel.types import CandidateOrigin
from costmodel.types import Config
from costmodel.types import KernelClass
from costmodel.types import PickSource
from costmodel.types import ReasonCode
from costmodel.types import Scores

N_FEATURES = len(SCHEMA)


@dataclasses.dataclass(frozen=True)
class FakeExtractor:
    """Features that carry a config's planned gain and estimate in two columns."""

    kernel_class: KernelClass = KernelClass.MATMUL

    def matrix(self, configs, default):
        rows = np.zeros((len(configs), N_FEATURES), dtype=np.float32)
        gains = np.array([config["gain"] for config in configs])
        rows[:, SCHEMA.index("x0")] = gains
        rows[:, SCHEMA.index("d_x0")] = gains - default["gain"]
        rows[:, SCHEMA.index("d_x1")] = [config != default for config in configs]
        rows[:, SCHEMA.index("num_warps_log2")] = 2.0
        rows[:, SCHEMA.index("w_n_dots")] = 1.0
        return rows

    def analytic_us(self, configs):
        return np.array([config["estimate_us"] for config in configs])


class FakeModel:
    """Believes the planned gain, with a margin of 0.1."""

    model_id = "fake"

    def __init__(self, range_high: float = 100.0) -> None:
        card = GateCard(
            margin_log={"dot": 0.1, "mixed": 0.1, "other": 0.1},
            range_low=(-100.0,) * N_FEATURES,
            range_high=(range_high,) * N_FEATURES,
            max_outside=0.1,
            min_valid_probability=0.7,
        )
        self.gate = Gate(card, SCHEMA)

    layout = RowLayout.of(SCHEMA)

    def score(self, features):
        gain = features[:, SCHEMA.index("d_x0")]
        ones = np.ones_like(gain)
        return Scores(gain, gain - np.float32(0.1) * (gain != 0), ones)


def _candidate(name, gain, estimate_us, origin=CandidateOrigin.MOVE) -> Candidate:
    config = {"name": name, "gain": gain, "estimate_us": estimate_us}
    return Candidate(config, origin)


DEFAULT = _candidate("default", 0.0, 10.0, CandidateOrigin.DEFAULT)
FAST = _candidate("fast", 0.5, 12.0)
GOOD = _candidate("good", 0.3, 8.0)
POOR = _candidate("poor", -0.5, 9.0)
ANALYTIC = _candidate("analytic", -0.2, 14.0, CandidateOrigin.ANALYTIC)
ALL = [DEFAULT, POOR, GOOD, FAST, ANALYTIC]


def _choose(candidates=ALL, promoted=True, model=None, **options):
    return choose(
        FakeExtractor(), candidates, model=model, promoted=promoted, **options
    )


def test_the_learned_pick_where_the_gate_passes() -> None:
    pick = _choose(model=FakeModel())
    assert pick.config == FAST.config
    assert pick.source is PickSource.LEARNED
    assert pick.reason is ReasonCode.GAIN_CERTAIN
    assert pick.predicted_speedup == pytest.approx(np.exp(0.5))
    assert pick.speedup_lower == pytest.approx(np.exp(0.4))
    assert pick.runner_up == GOOD.config
    assert pick.runner_up_speedup == pytest.approx(np.exp(0.3))
    assert pick.default == DEFAULT.config
    assert pick.model_id == "fake"
    assert pick.n_candidates == len(ALL)
    assert pick.kernel_class is KernelClass.MATMUL


def test_helions_default_where_it_does_not() -> None:
    shy = [DEFAULT, POOR, _candidate("shy", 0.05, 1.0)]
    pick = _choose(shy, model=FakeModel())
    assert pick.config == DEFAULT.config
    assert pick.source is PickSource.DEFAULT
    assert pick.reason is ReasonCode.GAIN_BELOW_MARGIN
    assert pick.predicted_speedup == 1.0
    assert pick.speedup_lower == 1.0
    assert pick.runner_up == shy[2].config


def test_the_analytic_pick_where_helion_has_no_rule() -> None:
    strange = FakeModel(range_high=-50.0)  # nothing is within its training range
    pick = _choose(promoted=False, model=strange)
    assert pick.source is PickSource.ANALYTIC
    assert pick.config == ANALYTIC.config
    assert pick.reason is ReasonCode.OUT_OF_RANGE
    assert "analytic pick" in pick.detail


def test_a_model_may_keep_the_default_where_helion_has_no_rule() -> None:
    pick = _choose([DEFAULT, POOR, ANALYTIC], promoted=False, model=FakeModel())
    assert pick.source is PickSource.DEFAULT
    assert pick.reason is ReasonCode.DEFAULT_RANKED_FIRST


def test_a_learned_pick_where_helion_has_no_rule_needs_no_margin() -> None:
    shy = _candidate("shy", 0.05, 1.0)
    pick = _choose([DEFAULT, shy, ANALYTIC], promoted=False, model=FakeModel())
    assert pick.source is PickSource.LEARNED
    assert pick.config == shy.config


@pytest.mark.parametrize("promoted", [True, False])
def test_without_a_model_the_reason_is_kept(promoted) -> None:
    problem = (ReasonCode.MODEL_REFUSED, "schema differs")
    pick = _choose(promoted=promoted, model_problem=problem)
    assert pick.reason is ReasonCode.MODEL_REFUSED
    assert "schema differs" in pick.detail
    assert pick.predicted_speedup == (1.0 if promoted else None)
    expected = DEFAULT if promoted else ANALYTIC
    assert pick.config == expected.config
    assert pick.model_id is None


def test_without_proposals_the_estimate_decides() -> None:
    pick = _choose([DEFAULT, POOR, GOOD, FAST], promoted=False)
    assert pick.config == GOOD.config  # 8 us, the smallest estimate


def test_an_order_that_is_given_is_used() -> None:
    pick = _choose(promoted=False, analytic_order=(0, 3, 2))
    assert pick.config == FAST.config


@pytest.mark.parametrize("promoted", [True, False])
def test_the_default_alone_is_the_answer(promoted) -> None:
    for model in (None, FakeModel()):
        pick = _choose([DEFAULT], promoted=promoted, model=model)
        assert pick.config == DEFAULT.config
        assert pick.source is PickSource.DEFAULT
        assert pick.runner_up is None
        assert pick.shortlist == (DEFAULT.config,)


@pytest.mark.parametrize("promoted", [True, False])
@pytest.mark.parametrize("with_model", [True, False])
def test_the_order_of_candidates_does_not_matter(promoted, with_model) -> None:
    model = FakeModel() if with_model else None
    twins = [_candidate(name, 0.5, 8.0) for name in ("b", "a", "c")]
    candidates = [*ALL, *twins]
    # Analytic proposals are ranked by their place, so one only.
    expected = _choose(candidates, promoted=promoted, model=model)
    for seed in range(10):
        shuffled = list(candidates)
        random.Random(seed).shuffle(shuffled)
        pick = _choose(
            shuffled,
            promoted=promoted,
            model=model,
            default_index=shuffled.index(DEFAULT),
        )
        assert pick == expected


def test_equal_gains_go_to_the_smaller_text() -> None:
    twins = [_candidate(name, 0.5, 8.0) for name in ("b", "a", "c")]
    pick = _choose([DEFAULT, *twins], model=FakeModel())
    assert pick.config["name"] == "a"
    assert pick.runner_up["name"] == "b"


def test_the_shortlist_starts_with_the_pick_and_has_no_repeats() -> None:
    many = [DEFAULT, *(_candidate(f"c{i:02d}", i / 40, 5.0 + i) for i in range(20))]
    for model in (None, FakeModel()):
        for promoted in (True, False):
            pick = _choose(many, promoted=promoted, model=model)
            texts = [canonical_text(config) for config in pick.shortlist]
            assert pick.shortlist[0] == pick.config
            assert len(set(texts)) == len(texts) == SHORTLIST_LENGTH


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.floats()
)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["block_sizes", "indexing", "num_warps", "zeta", "alpha"]),
            _VALUES | st.lists(_VALUES, max_size=3),
        ),
        max_size=4,
    )
)
def test_texts_of_many_are_the_texts_of_each(configs: list[Config]) -> None:
    texts = LazyTexts(configs, _speller())
    assert list(texts) == [canonical_text(config) for config in configs]


def test_whoever_measures_two_measures_the_second_opinion() -> None:
    pick = _choose(model=FakeModel())
    first, second, *_ = pick.shortlist
    assert first == FAST.config
    assert second == ANALYTIC.config
    refused = _choose(
        [DEFAULT, POOR, _candidate("shy", 0.05, 1.0), ANALYTIC], model=FakeModel()
    )
    assert [one["name"] for one in refused.shortlist][:3] == [
        "default",
        "shy",
        "analytic",
    ]
    assert len({one["name"] for one in refused.shortlist}) == len(refused.shortlist)


def test_an_analytic_pick_that_our_own_estimate_finds_absurd_is_passed_over() -> None:
    absurd = _candidate("absurd", 0.0, 15.1, CandidateOrigin.ANALYTIC)
    alone = _choose([DEFAULT, absurd], promoted=False)
    assert (alone.source, alone.config) == (PickSource.DEFAULT, DEFAULT.config)
    assert "far above" in alone.detail
    second = _choose([DEFAULT, absurd, ANALYTIC], promoted=False)
    assert (second.source, second.config) == (PickSource.ANALYTIC, ANALYTIC.config)
