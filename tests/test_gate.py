"""The gate: opens on a planted gain, stays shut on noise, and keeps its guards."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import given
from hypothesis import strategies as st
from synthetic import SCHEMA
from synthetic import make_corpus

from costmodel.card import GateCard
from costmodel.forest import Predictions
from costmodel.gate import CLASS_GROUPS
from costmodel.gate import GUARDS
from costmodel.gate import Gate
from costmodel.gate import class_group
from costmodel.gate import expected_gain_log
from costmodel.gate import ranked
from costmodel.training.calibrate import PRIOR_MARGIN_LOG
from costmodel.training.calibrate import SHIPPED_LIMITS
from costmodel.training.calibrate import CalibrationPoint
from costmodel.training.calibrate import GateLimits
from costmodel.training.calibrate import broken_promise_bound
from costmodel.training.calibrate import disaster_scale
from costmodel.training.calibrate import margin_of
from costmodel.training.calibrate import smallest_safe_margin
from costmodel.training.fit import FitSettings
from costmodel.training.judge import GATED
from costmodel.training.train import train
from costmodel.types import PickSource
from costmodel.types import ReasonCode

QUICK = FitSettings(n_bags=3, n_trees=40, n_validity_trees=20, learning_rate=0.15)
N_FEATURES = len(SCHEMA)


def _card(**changes) -> GateCard:
    card = GateCard(
        margin_log={"dot": 0.08, "mixed": 1.0, "other": 0.14},
        range_low=(-100.0,) * N_FEATURES,
        range_high=(100.0,) * N_FEATURES,
        max_outside=0.1,
        min_valid_probability=0.7,
    )
    return dataclasses.replace(card, **changes)


def _rows(n: int, n_dots: float = 1.0) -> np.ndarray:
    """Rows that differ from the default (row 0) in one harmless feature."""
    rows = np.zeros((n, N_FEATURES), dtype=np.float32)
    rows[:, SCHEMA.index("num_warps_log2")] = 2.0
    rows[:, SCHEMA.index("x2")] = np.arange(n)
    rows[:, SCHEMA.index("d_x2")] = np.arange(n)
    rows[:, SCHEMA.index("w_n_dots")] = n_dots
    rows[:, SCHEMA.index("w_n_loops")] = 1.0
    return rows


def _decide(gains, rows=None, valid=None, promoted=True, card=None, n_dots=1.0):
    gains = np.array(gains, dtype=np.float32)
    rows = _rows(len(gains), n_dots) if rows is None else rows
    valid = np.ones_like(gains) if valid is None else np.array(valid, np.float32)
    gate = Gate(card or _card(), SCHEMA)
    scores = gate.bounded(rows, Predictions(gains, np.zeros_like(gains), valid))
    return gate.decide(
        rows,
        scores,
        expected_gain_log(scores),
        default_index=0,
        favourites=(),
        promoted=promoted,
        keys=[f"{i:03d}" for i in range(len(gains))],
    )


def test_a_certain_gain_opens() -> None:
    decision = _decide([0.0, 0.3, 0.1])
    assert decision.index == 1
    assert decision.reason is ReasonCode.GAIN_CERTAIN
    assert "1.35x" in decision.detail
    assert decision.order == (1, 2)


def test_a_gain_below_the_margin_does_not() -> None:
    decision = _decide([0.0, 0.05])
    assert decision.index is None
    assert decision.reason is ReasonCode.GAIN_BELOW_MARGIN


def test_the_margin_depends_on_the_class() -> None:
    assert _decide([0.0, 0.1], n_dots=1.0).index == 1
    assert _decide([0.0, 0.1], n_dots=0.0).index is None


def test_no_predicted_gain_keeps_the_default() -> None:
    decision = _decide([0.0, -0.1, -0.2])
    assert decision.index is None
    assert decision.reason is ReasonCode.DEFAULT_RANKED_FIRST


def test_the_default_alone() -> None:
    decision = _decide([0.0])
    assert decision.index is None
    assert decision.order == ()


def test_an_unlikely_candidate_is_passed_over() -> None:
    decision = _decide([0.0, 0.9, 0.3], valid=[1.0, 0.4, 0.9])
    assert decision.index == 2
    refused = _decide([0.0, 0.9], valid=[1.0, 0.4])
    assert refused.index is None
    assert "40% likely" in refused.detail


@pytest.mark.parametrize(
    ("name", "value", "difference", "n_dots", "words"),
    [
        ("num_warps_log2", 5.0, 3.0, 0.0, "within 4x"),
        ("num_warps_log2", 1.0, -1.0, 1.0, "4 or 8 warps"),
        ("is_persistent", 1.0, 1.0, 0.0, "persistence"),
        ("smem_share", 1.2, 1.1, 1.0, "shared memory"),
    ],
)
def test_each_guard_refuses(name, value, difference, n_dots, words) -> None:
    rows = _rows(2, n_dots)
    rows[1, SCHEMA.index(name)] = value
    rows[1, SCHEMA.index(f"d_{name}")] = difference
    decision = _decide([0.0, 0.9], rows=rows)
    assert decision.index is None
    assert words in decision.detail


def test_guards_have_words() -> None:
    assert len({guard.words for guard in GUARDS}) == len(GUARDS)


def test_a_strange_workload_is_refused_with_a_name() -> None:
    rows = _rows(2)
    for name in ("w_0", "w_1", "x0"):
        rows[:, SCHEMA.index(name)] = 1e6
    decision = _decide([0.0, 0.9], rows=rows)
    assert decision.reason is ReasonCode.OUT_OF_RANGE
    assert "x0=1e+06" in decision.detail


def test_without_a_rule_the_best_ranked_is_taken() -> None:
    decision = _decide([0.0, 0.05], promoted=False)
    assert decision.index == 1
    assert decision.reason is ReasonCode.NO_HELION_RULE


def test_without_a_rule_failures_are_counted() -> None:
    # 60 % of ln 3 and 40 % of ln 0.1 is a loss; the surer, smaller gain wins.
    decision = _decide([0.0, 1.1, 0.8], valid=[1.0, 0.6, 0.99], promoted=False)
    assert decision.index == 2
    # Nothing above the default: then that is the pick, rule or no rule.
    loss = _decide([0.0, 0.3], valid=[1.0, 0.7], promoted=False)
    assert loss.index == 0
    assert loss.reason is ReasonCode.DEFAULT_RANKED_FIRST


@given(st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=10), st.booleans())
def test_what_passes_beats_its_margin(gains, promoted) -> None:
    decision = _decide([0.0, *gains], promoted=promoted)
    if decision.index in (None, 0):
        return
    margin = 0.08 if promoted else 0.0
    assert [0.0, *gains][decision.index] > margin
    assert sorted(decision.order) == list(range(1, len(gains) + 1))


def test_ties_go_to_the_smaller_text() -> None:
    values = np.array([0.0, 1.0, 1.0], dtype=np.float32)
    assert ranked(values, ["z", "b", "a"], default_index=0) == (2, 1)
    assert ranked(values, ["z", "a", "b"], default_index=0) == (1, 2)


def _point(promised: float, kept: float) -> CalibrationPoint:
    return CalibrationPoint("dot", promised, kept, noise_floor_log=0.02)


def test_margin_is_zero_where_every_promise_is_kept() -> None:
    assert smallest_safe_margin([_point(0.1, 0.1), _point(0.3, 0.2)], 2) == 0.0


def test_margin_rises_above_the_worst_broken_promise() -> None:
    points = [_point(0.1, -0.2), _point(0.2, -0.04), _point(0.4, 0.3)]
    # The third would pass a margin of 0.2; the first two are harm among three.
    assert smallest_safe_margin(points, 3) == pytest.approx(0.2)


def test_a_rare_small_harm_is_allowed_a_disaster_is_not() -> None:
    kept = [_point(0.1, 0.1)] * 39
    assert smallest_safe_margin([*kept, _point(0.2, -0.04)], 40) == 0.0
    assert smallest_safe_margin([*kept, _point(0.2, -0.3)], 40) == pytest.approx(0.2)


def test_few_workloads_leave_the_prior() -> None:
    prior = PRIOR_MARGIN_LOG["dot"]
    assert margin_of([], 0, prior) == prior
    few = margin_of([_point(0.1, 0.1)] * 4, 4, prior)
    many = margin_of([_point(0.1, 0.1)] * 200, 200, prior)
    assert prior > few > many > 0.0


def test_a_model_of_few_workloads_is_trusted_less() -> None:
    prior = SHIPPED_LIMITS.prior_margin
    few, many = prior("dot", 8), prior("dot", 37)
    assert few > 2 * many
    assert many == prior("dot", 1000) == PRIOR_MARGIN_LOG["dot"]


def test_broken_promises_raise_the_margin_at_once() -> None:
    prior = PRIOR_MARGIN_LOG["dot"]
    assert margin_of([_point(0.5, -0.5)], 1, prior) > 0.5
    # Promises that are kept or exceeded say nothing against the model.
    exceeded = [_point(0.1, 0.6), _point(0.2, 0.2)]
    assert broken_promise_bound(exceeded) == 0.0
    assert broken_promise_bound([*exceeded, _point(0.3, 0.1)]) > 0.0


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(-1.0, 1.0)), max_size=30),
    st.integers(0, 50),
)
def test_a_margin_keeps_its_promise(pairs, more) -> None:
    points = [_point(*pair) for pair in pairs]
    n = len(points) + more
    margin = smallest_safe_margin(points, n)
    passed = [point for point in points if point.promised_log > margin]
    assert not any(point.is_disaster for point in passed)
    assert sum(point.is_harm for point in passed) <= 0.03 * n
    assert margin_of(points, n, 0.08) >= margin


def test_a_margin_lies_beyond_the_worst_by_the_scale_of_disasters() -> None:
    kept = [_point(0.3, 0.3)] * 60
    bad = [_point(0.05, -0.5), _point(0.15, -0.2)]
    assert disaster_scale(kept) == 0.0
    assert disaster_scale([*kept, *bad]) == pytest.approx(0.1)
    # Harm that is no disaster has no scale: a share of it is allowed.
    assert disaster_scale([*kept, _point(0.2, -0.04)]) == 0.0

    def margin(points, tail_scales: float) -> float:
        return margin_of(points, 62, 0.08, GateLimits(tail_scales=tail_scales))

    for points in (kept, [*kept, *bad]):
        added = margin(points, 2.0) - margin(points, 0.0)
        assert added == pytest.approx(2.0 * disaster_scale(points))


@pytest.fixture(scope="module")
def planted():
    corpus = make_corpus(5, planted=True, gain=1.0, n_configs=30, failure_share=0.0)
    return train(corpus, SCHEMA, "digest", QUICK)


@pytest.fixture(scope="module")
def noise():
    corpus = make_corpus(9, planted=False, n_configs=30, failure_share=0.0)
    return train(corpus, SCHEMA, "digest", QUICK)


def test_a_planted_gain_opens_the_gate(planted) -> None:
    judged = planted.by_family.judged
    learned = [one for one in judged if one.choice.source is PickSource.LEARNED]
    assert len(learned) >= 6
    numbers = planted.by_family.summary_of(GATED)
    assert numbers["speedup_geomean"] > 1.25
    assert numbers["harm_share"] == 0.0


def test_noise_keeps_the_gate_shut(noise) -> None:
    for one in noise.by_family.judged:
        assert one.choice.source is PickSource.DEFAULT
        assert one.gated.speedup == 1.0
    assert noise.by_family.summary_of(GATED)["harm_share"] == 0.0
    # Blind trust in the same model would have lost.
    assert noise.by_family.summary_of("costmodel, no gate")["harm_share"] > 0.0


def test_a_twin_of_the_default_does_not_hide_a_gain() -> None:
    rows = _rows(3)
    rows[1] = rows[0]  # differs in dead knobs only
    decision = _decide([0.0, 0.0, 0.05], rows=rows)
    assert decision.reason is ReasonCode.GAIN_BELOW_MARGIN
    assert "1.05x" in decision.detail
    assert _decide([0.0, 0.0, 0.3], rows=rows).index == 2


def test_without_a_rule_only_a_favourite_is_taken() -> None:
    gains = np.array([0.0, 0.9, 0.5, 0.7], dtype=np.float32)
    rows = _rows(4)
    gate = Gate(_card(), SCHEMA)
    scores = gate.bounded(rows, Predictions(gains, gains * 0, gains * 0 + 1))
    keys = ["0", "1", "2", "3"]

    def pick(favourites):
        decision = gate.decide(
            rows,
            scores,
            expected_gain_log(scores),
            default_index=0,
            favourites=favourites,
            promoted=False,
            keys=keys,
        )
        assert decision.order == (1, 3, 2)
        return decision.index

    assert pick((2, 3)) == 3
    assert pick((2,)) == 2
    assert pick(()) == 1


@pytest.mark.parametrize(("gain", "taken"), [(-0.2, True), (-0.3, False)])
def test_without_a_rule_nothing_is_taken_that_is_foretold_slower(gain, taken) -> None:
    gains = np.array([0.0, gain], dtype=np.float32)
    rows = _rows(2)
    gate = Gate(_card(), SCHEMA)
    decision = gate.decide(
        rows,
        gate.bounded(rows, Predictions(gains, gains * 0, gains * 0 + 1)),
        np.array([-1.0, 0.0], dtype=np.float32),
        default_index=0,
        favourites=(1,),
        promoted=False,
        keys=["0", "1"],
    )
    assert decision.index == (1 if taken else 0)


@given(st.floats(0.0, 0.5), st.floats(0.0, 0.5))
def test_without_a_rule_our_first_favourite_wins_near_ties(first, other) -> None:
    merit = np.array([-1.0, first, other], dtype=np.float32)
    rows = _rows(3)
    gate = Gate(_card(), SCHEMA)
    scores = gate.bounded(rows, Predictions(merit, merit * 0, merit * 0 + 1))
    decision = gate.decide(
        rows,
        scores,
        merit,
        default_index=0,
        favourites=(1, 2),
        promoted=False,
        keys=["0", "1", "2"],
    )
    assume(abs(merit[2] - merit[1] - 0.05) > 1e-4)
    assert decision.index == (2 if merit[2] - merit[1] > 0.05 else 1)


@pytest.mark.parametrize(
    ("n_dots", "narrowest", "multiplied", "n_loops", "group"),
    [
        (0, 1, 0, 1, "other"),
        (0, 1, 0, 0, "other"),
        (1, 2, 2, 1, "dot"),
        (2, 1, 2, 1, "mixed"),
        (1, 1, 1, 2, "dot"),
        (1, 2, 2, 0, "mixed"),
    ],
)
def test_class_groups(n_dots, narrowest, multiplied, n_loops, group) -> None:
    rows = _rows(1, n_dots)
    rows[:, SCHEMA.index("w_n_loops")] = n_loops
    rows[:, SCHEMA.index("w_itemsize_min")] = narrowest
    rows[:, SCHEMA.index("w_dot_itemsize")] = multiplied
    assert class_group(SCHEMA)(rows) == [group]
    assert group in CLASS_GROUPS
