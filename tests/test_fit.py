"""The forest: deterministic, mergeable, and it learns a planted law."""

from __future__ import annotations

import signal

import numpy as np
import pytest
import xgboost
from synthetic import SCHEMA
from synthetic import make_corpus

from costmodel.errors import NotEnoughDataError
from costmodel.layout import RowLayout
from costmodel.training.fit import FitSettings
from costmodel.training.fit import fit
from costmodel.training.merge import merged

LAYOUT = RowLayout.of(SCHEMA)
QUICK = FitSettings(n_bags=2, n_trees=40, n_validity_trees=20, learning_rate=0.2)


@pytest.fixture(scope="module")
def corpus():
    return make_corpus(0, planted=True, n_families=6, n_configs=40)


@pytest.fixture(scope="module")
def forest(corpus):
    return fit(corpus[:5], LAYOUT, QUICK, SCHEMA.hash, held_out=corpus[5:])


def test_same_corpus_same_bytes(corpus, forest) -> None:
    again, _ = fit(corpus[:5], LAYOUT, QUICK, SCHEMA.hash)
    first = bytes(forest[0].booster.save_raw("ubj"))
    assert first == bytes(again.booster.save_raw("ubj"))


def test_another_seed_another_forest(corpus, forest) -> None:
    other = FitSettings(**{**vars_of(QUICK), "seed": 1})
    again, _ = fit(corpus[:5], LAYOUT, other, SCHEMA.hash)
    first = bytes(forest[0].booster.save_raw("ubj"))
    assert first != bytes(again.booster.save_raw("ubj"))


def vars_of(settings: FitSettings) -> dict:
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}


def test_a_held_out_workload_is_ranked(corpus, forest) -> None:
    held_out = corpus[5]
    said = forest[0].predict(held_out.features)
    gain, valid = said.gain_log, said.valid_probability
    ok = held_out.is_ok
    correlation = np.corrcoef(gain[ok], -held_out.log_ratio[ok])[0, 1]
    assert correlation > 0.9
    assert gain[held_out.default_index] == 0.0
    assert valid[held_out.default_index] == 1.0
    assert said.spread_log[held_out.default_index] == 0.0
    assert said.spread_log.max() > 0.0


def test_curves_fall(forest) -> None:
    curves = forest[1]
    assert len(curves.train_rmse) == len(curves.held_out_rmse) == QUICK.n_trees
    assert curves.train_rmse[-1] < curves.train_rmse[0]
    assert curves.held_out_rmse[-1] < curves.held_out_rmse[0]


def test_ctrl_c_waits_for_the_matrix(corpus, monkeypatch) -> None:
    """Raised inside of xgboost's callback it would abort the process."""
    made = []

    class Interrupted(xgboost.QuantileDMatrix):
        def __init__(self, *args, **kwargs) -> None:
            signal.raise_signal(signal.SIGINT)
            super().__init__(*args, **kwargs)
            made.append(self)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(xgboost, "QuantileDMatrix", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(corpus[:5], LAYOUT, QUICK, SCHEMA.hash)
    assert len(made) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_nothing_to_learn_from() -> None:
    with pytest.raises(NotEnoughDataError, match="found none"):
        fit([], LAYOUT, QUICK, SCHEMA.hash)


def test_merging_averages() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 5)).astype(np.float32)
    boosters = [
        xgboost.train(
            {"base_score": 0.0, "seed": seed, "subsample": 0.5, "nthread": 1},
            xgboost.DMatrix(rows, label=rows[:, seed]),
            num_boost_round=7 + seed,
        )
        for seed in range(3)
    ]
    parts = [(booster, 1.0 / 3.0) for booster in boosters]
    joined = merged(parts, {"schema": "abc"})
    expected = np.mean([one.inplace_predict(rows) for one in boosters], axis=0)
    np.testing.assert_allclose(joined.inplace_predict(rows), expected, atol=1e-5)
    assert joined.num_boosted_rounds() == 7 + 8 + 9
    assert joined.attr("schema") == "abc"
    reloaded = xgboost.Booster()
    reloaded.load_model(joined.save_raw("ubj"))
    np.testing.assert_array_equal(
        reloaded.inplace_predict(rows), joined.inplace_predict(rows)
    )
    # A range of trees is a sub-model.
    np.testing.assert_allclose(
        joined.inplace_predict(rows, iteration_range=(0, 7)),
        boosters[0].inplace_predict(rows) / 3.0,
        atol=1e-5,
    )
