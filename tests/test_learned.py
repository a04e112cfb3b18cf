"""Scorers: one contract for all of them, and the published model as a file."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from synthetic import SCHEMA
from synthetic import make_corpus
from synthetic import make_schema

from costmodel.card import ModelCard
from costmodel.errors import CorruptRecordError
from costmodel.errors import ModelNotFoundError
from costmodel.errors import SchemaMismatchError
from costmodel.layout import RowLayout
from costmodel.learned import LearnedModel
from costmodel.scorer import AnalyticScorer
from costmodel.scorer import RandomScorer
from costmodel.scorer import Scorer
from costmodel.training.fit import FitSettings
from costmodel.training.publish import publish
from costmodel.training.train import train

QUICK = FitSettings(n_bags=2, n_trees=30, n_validity_trees=15, learning_rate=0.2)


@pytest.fixture(scope="module")
def corpus():
    return make_corpus(0, planted=True, n_families=4, n_configs=30)


@pytest.fixture(scope="module")
def training(corpus):
    return train(corpus, SCHEMA, "digest", QUICK)


@pytest.fixture
def published(training, tmp_path):
    return publish(training, tmp_path)


@pytest.fixture(scope="module", params=["random", "analytic", "learned"])
def scorer(request, training) -> Scorer:
    return {
        "random": RandomScorer(RowLayout.of(SCHEMA), seed=3),
        "analytic": AnalyticScorer.of(SCHEMA),
        "learned": training.model,
    }[request.param]


def _columns(scores) -> np.ndarray:
    return np.array([scores.gain_log, scores.lower_log, scores.valid_probability])


def test_scores_are_finite_bounded_and_float32(scorer, corpus) -> None:
    rows = corpus[0].features
    scores = scorer.score(rows)
    for column in (scores.gain_log, scores.lower_log, scores.valid_probability):
        assert column.shape == (len(rows),)
        assert column.dtype == np.float32
        assert np.isfinite(column).all()
    assert (scores.lower_log <= scores.gain_log).all()
    assert (scores.valid_probability >= 0).all()
    assert (scores.valid_probability <= 1).all()


def test_the_default_gains_nothing_over_itself(scorer, corpus) -> None:
    for workload in corpus:
        scores = scorer.score(workload.features)
        assert scores.gain_log[workload.default_index] == 0.0


@given(order=st.permutations(range(30)))
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_permuting_rows_permutes_scores(scorer, corpus, order) -> None:
    rows = corpus[1].features
    expected = _columns(scorer.score(rows))[:, order]
    np.testing.assert_array_equal(_columns(scorer.score(rows[order])), expected)


@pytest.mark.parametrize("batch", [1, 7])
def test_a_batch_scores_as_its_rows_do(scorer, corpus, batch) -> None:
    rows = corpus[2].features
    whole = _columns(scorer.score(rows))
    parts = [
        _columns(scorer.score(rows[start : start + batch]))
        for start in range(0, len(rows), batch)
    ]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


def test_no_candidates_no_scores(scorer) -> None:
    scores = scorer.score(np.zeros((0, len(SCHEMA)), dtype=np.float32))
    assert _columns(scores).shape == (3, 0)


def test_scorers_have_names(scorer) -> None:
    assert scorer.model_id


def test_scores_ignore_memory_layout(training, corpus) -> None:
    rows = corpus[0].features
    strided = np.asfortranarray(rows.astype(np.float64))
    np.testing.assert_array_equal(
        _columns(training.model.score(strided)), _columns(training.model.score(rows))
    )


def test_the_mean_alone_is_the_mean(training, corpus) -> None:
    rows = corpus[0].features
    whole, mean = training.model.predict(rows), training.model.mean(rows)
    np.testing.assert_allclose(mean.gain_log, whole.gain_log, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(mean.valid_probability, whole.valid_probability)
    assert not mean.spread_log.any()
    assert mean.gain_log[corpus[0].default_index] == 0.0


def test_random_seeds_differ(corpus) -> None:
    layout = RowLayout.of(SCHEMA)
    one = RandomScorer(layout, 0).score(corpus[0].features).gain_log
    two = RandomScorer(layout, 1).score(corpus[0].features).gain_log
    assert not np.array_equal(one, two)


def test_save_and_load_gives_equal_bits(training, published, corpus) -> None:
    loaded = LearnedModel.load(published, SCHEMA)
    assert loaded.card == training.model.card
    assert loaded.model_id == training.model.model_id
    for workload in corpus:
        np.testing.assert_array_equal(
            _columns(loaded.score(workload.features)),
            _columns(training.model.score(workload.features)),
        )


def test_a_card_round_trips(training) -> None:
    card = training.model.card
    assert ModelCard.from_json(card.to_json()) == card


def test_another_schema_is_refused_in_one_line(published) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        LearnedModel.load(published, make_schema(version=2))
    message = str(caught.value)
    assert "\n" not in message
    assert f"{len(make_schema().names)} features" in message
    assert "base, difference, workload" in message
    assert "train again" in message


def test_an_added_group_is_named(published) -> None:
    from costmodel.features.schema import Feature
    from costmodel.features.schema import FeatureSchema

    more = FeatureSchema(
        (*SCHEMA.features, Feature("c_registers", "count", "compiled"))
    )
    with pytest.raises(SchemaMismatchError, match="differs in compiled"):
        LearnedModel.load(published, more)


def test_a_missing_model_says_what_to_do(tmp_path) -> None:
    with pytest.raises(ModelNotFoundError, match="costmodel train"):
        LearnedModel.load(tmp_path / "absent.ubj", SCHEMA)


def test_a_folder_is_no_model(tmp_path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"name the \.ubj file"):
        LearnedModel.load(tmp_path, SCHEMA)


def test_a_missing_card_is_a_missing_model(published) -> None:
    published.with_suffix(".json").unlink()
    with pytest.raises(ModelNotFoundError, match=r"\.json"):
        LearnedModel.load(published, SCHEMA)


@pytest.mark.parametrize(
    "poison",
    [b"", b"not a model", b"{}", b"\x00" * 4096],
    ids=["empty", "text", "json", "zeros"],
)
def test_poisoned_trees_are_refused(published, poison) -> None:
    published.write_bytes(poison)
    with pytest.raises(CorruptRecordError, match="damaged"):
        LearnedModel.load(published, SCHEMA)


def test_truncated_trees_are_refused(published) -> None:
    published.write_bytes(published.read_bytes()[:-100])
    with pytest.raises(CorruptRecordError, match="damaged"):
        LearnedModel.load(published, SCHEMA)


@pytest.mark.parametrize(
    "poison",
    [b"", b"\xff\xfe", b"[]", b"{}", b'{"card_format": 99}', b'{"card_format": 1}'],
)
def test_poisoned_cards_are_refused(published, poison) -> None:
    card = published.with_suffix(".json")
    card.write_bytes(poison)
    with pytest.raises(CorruptRecordError) as caught:
        LearnedModel.load(published, SCHEMA)
    assert str(card) in str(caught.value)


def test_a_card_with_a_missing_field_is_refused(published) -> None:
    card = published.with_suffix(".json")
    content = json.loads(card.read_text())
    del content["gate"]["margin_log"]
    card.write_text(json.dumps(content))
    with pytest.raises(CorruptRecordError, match="margin_log"):
        LearnedModel.load(published, SCHEMA)


def test_either_file_names_the_pair(published) -> None:
    by_card = LearnedModel.load(published.with_suffix(".json"), SCHEMA)
    assert by_card.model_id == LearnedModel.load(published, SCHEMA).model_id


def test_margins_lower_the_bound_by_class(training, corpus) -> None:
    model = training.model
    margins = model.card.gate.margin_log
    for workload in corpus:
        rows = workload.features
        scores = model.score(rows)
        group = "dot" if rows[0, SCHEMA.index("w_n_dots")] else "other"
        others = np.arange(len(rows)) != workload.default_index
        taken_off = (scores.gain_log - scores.lower_log)[others]
        assert (taken_off >= margins[group] - 1e-5).all()
        assert taken_off.max() > margins[group]  # where bags disagree, more


def test_importance_is_a_distribution_led_by_the_law(training) -> None:
    importance = training.model.importance()
    assert sum(importance.values()) == pytest.approx(1.0)
    leaders = list(importance)[:4]
    assert {"x0", "d_x0"} & set(leaders)


def test_cards_are_frozen(training) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        training.model.card.name = "other"
