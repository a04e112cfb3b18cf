"""A bench's models saw nothing of the family they pick for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from synthetic import SCHEMA
from synthetic import make_corpus

from costmodel.errors import CorruptRecordError
from costmodel.errors import ModelNotFoundError
from costmodel.errors import NotEnoughDataError
from costmodel.learned import LearnedModel
from costmodel.training.crossfit import cross_fit
from costmodel.training.crossfit import family_folds
from costmodel.training.fit import FitSettings
from costmodel.training.held_out import INDEX
from costmodel.training.held_out import HeldOutModel
from costmodel.training.held_out import HeldOutModels
from costmodel.training.held_out import held_out_models
from costmodel.training.held_out import read_held_out_models


def _model(name: str, left_out: set[str], kernels: set[str], n: int) -> HeldOutModel:
    return HeldOutModel(Path(name), name, frozenset(left_out), frozenset(kernels), n)


MODELS = HeldOutModels(
    (
        _model("one", {"matmul", "scan"}, {"s1", "n1"}, 10),
        _model("two", {"norm"}, {"m1", "s1"}, 12),
    ),
    "digest",
)


def test_the_model_of_a_family_never_saw_it() -> None:
    assert MODELS.unaware_of("matmul", "m1").model_id == "one"
    assert MODELS.unaware_of("norm", "new").model_id == "two"


def test_a_new_family_is_unknown_to_all_so_the_largest_picks() -> None:
    assert MODELS.unaware_of("attention", "a1").model_id == "two"
    # Unless it saw this very kernel under another name.
    assert MODELS.unaware_of("attention", "m1").model_id == "one"


def test_a_kernel_that_training_knew_by_another_family_is_refused() -> None:
    with pytest.raises(NotEnoughDataError, match="another family"):
        MODELS.unaware_of("scan", "s1")


def test_a_missing_or_damaged_list_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="--cross-fit"):
        read_held_out_models(tmp_path)
    (tmp_path / INDEX).write_text('{"models": [{}]}')
    with pytest.raises(CorruptRecordError, match="--cross-fit"):
        read_held_out_models(tmp_path)


def test_what_is_published_is_what_the_cross_fit_judges(tmp_path: Path) -> None:
    corpus = make_corpus(3, planted=True, n_families=3, n_configs=16)
    settings = FitSettings(n_bags=2, n_trees=8, n_validity_trees=4)
    made = held_out_models(corpus, SCHEMA, "digest", tmp_path, settings)
    assert read_held_out_models(tmp_path) == made
    results = cross_fit(corpus, family_folds(corpus), SCHEMA, settings)
    for result in results:
        (test,) = (corpus[i] for i in result.fold.test)
        held_out = made.unaware_of(test.family, test.source_digest)
        model = LearnedModel.load(held_out.path, SCHEMA)
        assert model.model_id == held_out.model_id
        assert test.family not in model.card.families
        assert test.source_digest not in held_out.kernels
        assert model.card.gate == result.gate
        (prediction,) = result.predictions
        np.testing.assert_allclose(
            model.score(test.features).gain_log,
            result.forest.predict(test.features).gain_log,
            rtol=1e-5,
        )
        assert prediction.workload is test
