"""Laws of the training examples: units, weights, and what a pair is."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import SCHEMA
from synthetic import make_corpus

from costmodel.layout import RowLayout
from costmodel.training.objective import PAIR_CLIP_LOG
from costmodel.training.objective import pair_examples
from costmodel.training.objective import regression_examples
from costmodel.training.objective import validity_examples

LAYOUT = RowLayout.of(SCHEMA)


@pytest.fixture(scope="module")
def corpus():
    return make_corpus(0, planted=True, n_families=4, n_configs=30)


def _pairs(corpus, n_references: int = 4, weight=None):
    weight = np.ones(len(corpus)) if weight is None else weight
    rng = np.random.default_rng(0)
    return pair_examples(corpus, LAYOUT, weight, n_references, rng)


def test_a_config_against_itself_is_zero(corpus) -> None:
    pairs = _pairs(corpus)
    is_self = LAYOUT.is_reference(pairs.rows)
    assert is_self.sum() >= 5 * len(corpus)  # each reference meets itself
    assert np.abs(pairs.target[is_self]).max() == 0.0


def test_targets_are_log_ratios_to_the_reference(corpus) -> None:
    one = corpus[0]
    pairs = _pairs([one], n_references=0)
    n_ok = int(one.is_ok.sum())
    # Only the default is a reference.
    expected = np.clip(one.log_ratio[one.is_ok], -PAIR_CLIP_LOG, PAIR_CLIP_LOG)
    assert len(pairs.target) == n_ok
    np.testing.assert_allclose(pairs.target, expected, rtol=1e-6)
    np.testing.assert_array_equal(pairs.rows, one.features[one.is_ok])


def test_failures_teach_validity_only(corpus) -> None:
    n_ok = sum(int(one.is_ok.sum()) for one in corpus)
    n_rows = sum(one.n_rows for one in corpus)
    even = np.ones(len(corpus))
    assert len(regression_examples(corpus, even).target) == n_ok
    validity = validity_examples(corpus, even)
    assert len(validity.target) == n_rows
    failed = np.concatenate([~one.is_ok for one in corpus])
    assert not validity.target[failed].any()
    assert np.isfinite(_pairs(corpus).target).all()


def test_each_workload_weighs_the_same_however_many_configs() -> None:
    corpus = [
        *make_corpus(1, planted=True, n_families=1, n_configs=20, failure_share=0.0),
        *make_corpus(2, planted=True, n_families=1, n_configs=80, failure_share=0.0),
    ]
    even = np.ones(2)
    for examples, n_first in (
        (_pairs(corpus), 20 * 5),
        (regression_examples(corpus, even), 20),
        (validity_examples(corpus, even), 20),
    ):
        first = float(examples.weight[:n_first].sum())
        second = float(examples.weight[n_first:].sum())
        assert first == pytest.approx(second, rel=1e-4)
        assert float(examples.weight.mean()) == pytest.approx(1.0, rel=1e-4)


def test_regression_is_never_below_the_best(corpus) -> None:
    target = regression_examples(corpus, np.ones(len(corpus))).target
    assert target.min() == 0.0
    assert (target == 0.0).sum() == len(corpus)


def test_layout_round_trip(corpus) -> None:
    rows = corpus[0].features
    default = rows[corpus[0].default_index]
    np.testing.assert_array_equal(LAYOUT.against(rows, default), rows)
    at_reference = LAYOUT.at_reference(rows)
    assert not at_reference[:, LAYOUT.difference].any()
    np.testing.assert_allclose(
        at_reference[:, LAYOUT.base],
        np.tile(default[LAYOUT.base], (len(rows), 1)),
        atol=2.0**-13,
    )
    # All candidates name the same default, to the bit: it is scored once.
    assert (at_reference == at_reference[0]).all()
