"""One training end to end: reproducible, and both protocols judged."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import SCHEMA
from synthetic import make_corpus

from costmodel.training.crossfit import MAX_SINGLE_FAMILIES
from costmodel.training.crossfit import N_FAMILY_BLOCKS
from costmodel.training.crossfit import family_folds
from costmodel.training.crossfit import shape_folds
from costmodel.training.fit import FitSettings
from costmodel.training.judge import GATED
from costmodel.training.judge import UNGATED
from costmodel.training.train import BLOCK_PROTOCOL
from costmodel.training.train import FAMILY_PROTOCOL
from costmodel.training.train import SHAPE_PROTOCOL
from costmodel.training.train import train

QUICK = FitSettings(n_bags=2, n_trees=25, n_validity_trees=10, learning_rate=0.25)
ROOT = Path(__file__).parent.parent

# Trains in another process and prints what it would publish.
SCRIPT = """
import hashlib
from synthetic import SCHEMA, make_corpus
from costmodel.training.fit import FitSettings
from costmodel.training.train import train
settings = FitSettings(n_bags=2, n_trees=25, n_validity_trees=10, learning_rate=0.25)
corpus = make_corpus(3, planted=True, n_families=4, n_shapes=2, n_configs=20)
made = train(corpus, SCHEMA, "digest", settings)
card = made.model.card.to_json().encode()
print(hashlib.sha256(made.trees).hexdigest(), hashlib.sha256(card).hexdigest())
"""


@pytest.fixture(scope="module")
def corpus():
    return make_corpus(3, planted=True, n_families=4, n_shapes=2, n_configs=20)


@pytest.fixture(scope="module")
def training(corpus):
    return train(corpus, SCHEMA, "digest", QUICK)


def test_a_fresh_process_makes_the_same_bytes(training) -> None:
    there = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    card = training.model.card.to_json().encode()
    here = [hashlib.sha256(one).hexdigest() for one in (training.trees, card)]
    assert there.stdout.split() == here


def test_both_protocols_judge_every_workload(training, corpus) -> None:
    ids = sorted(one.workload_id for one in corpus)
    for evaluation in (training.by_family, training.by_shape):
        assert [one.workload.workload_id for one in evaluation.judged] == ids
        assert not evaluation.not_applicable
    assert training.by_family.protocol == FAMILY_PROTOCOL
    assert training.by_shape.protocol == SHAPE_PROTOCOL


def test_siblings_of_a_shape_stay_in_training(corpus) -> None:
    folds = shape_folds(corpus)
    assert len(folds) == 2
    for fold in folds:
        held_out = {corpus[i].source_digest for i in fold.test}
        known = {corpus[i].source_digest for i in fold.train}
        assert held_out <= known
        assert not {corpus[i].shape_id for i in fold.test} & {
            corpus[i].shape_id for i in fold.train
        }


def test_a_known_kernel_in_another_shape_is_picked_well() -> None:
    # Failures in this corpus follow no law, so that they would only add chance.
    corpus = make_corpus(
        5,
        planted=True,
        n_families=4,
        n_shapes=2,
        n_configs=30,
        gain=1.0,
        failure_share=0.0,
    )
    by_shape = train(corpus, SCHEMA, "digest", QUICK).by_shape
    ungated = by_shape.summary_of(UNGATED)
    assert ungated["speedup_geomean"] > 1.25
    assert ungated["regret_at_5"] < 0.05
    assert by_shape.summary_of(GATED)["harm_share"] == 0.0


def test_one_shape_per_kernel_leaves_nothing_to_judge() -> None:
    alone = make_corpus(3, planted=True, n_families=3, n_configs=15)
    made = train(alone, SCHEMA, "digest", FitSettings(n_bags=1, n_trees=5))
    assert made.by_shape.judged == ()
    assert "one shape per kernel" in made.by_shape.not_applicable


def test_many_families_are_left_out_in_blocks() -> None:
    many = make_corpus(
        0, planted=False, n_families=MAX_SINGLE_FAMILIES + 1, n_configs=12
    )
    folds = family_folds(many)
    assert len(folds) == N_FAMILY_BLOCKS
    for fold in folds:
        left_out = {many[i].family for i in fold.test}
        assert not left_out & {many[i].family for i in fold.train}
    assert sorted(i for fold in folds for i in fold.test) == list(range(len(many)))
    tiny = FitSettings(n_bags=1, n_trees=3, n_validity_trees=3)
    assert train(many, SCHEMA, "digest", tiny).by_family.protocol == BLOCK_PROTOCOL


def test_no_workload_sets_its_own_margin(training, corpus) -> None:
    # Margins of a fold come from the predictions of the others: with times of its own
    # workloads changed after prediction, its gate must not move.
    from dataclasses import replace

    from costmodel.training.calibrate import HeldOutPrediction
    from costmodel.training.crossfit import _gated
    from costmodel.training.crossfit import cross_fit

    tiny = FitSettings(n_bags=1, n_trees=5, n_validity_trees=3)
    results = cross_fit(corpus, family_folds(corpus), SCHEMA, tiny)
    first = results[0]
    mine = {corpus[i].workload_id for i in first.fold.test}
    said = [one for result in results for one in result.predictions]
    spoiled = [
        HeldOutPrediction(
            replace(one.workload, log_ratio=one.workload.log_ratio + 5.0),
            one.said,
            one.merit,
            one.outside_share,
        )
        if one.workload.workload_id in mine
        else one
        for one in said
    ]
    again = _gated(first, corpus, spoiled, SCHEMA)
    assert again.gate == first.gate
