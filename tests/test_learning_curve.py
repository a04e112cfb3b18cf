"""Learning curves: parts are parts, judged on the whole; other seeds: a spread."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from synthetic import SCHEMA
from synthetic import make_corpus

from costmodel.cli import main
from costmodel.training.calibrate import SHIPPED_LIMITS
from costmodel.training.fit import FitSettings
from costmodel.training.learning_curve import FAMILIES
from costmodel.training.learning_curve import MEASUREMENTS
from costmodel.training.learning_curve import _part
from costmodel.training.learning_curve import learning_curve
from costmodel.training.learning_curve import learning_figure
from costmodel.training.learning_curve import thinned
from costmodel.training.seed_runs import other_seeds
from costmodel.training.train import train

SAMPLE = Path(__file__).parent.parent / "datasets" / "corpora" / "h200_sample"
TINY = FitSettings(n_bags=1, n_trees=8, n_validity_trees=3, learning_rate=0.3)


@pytest.fixture(scope="module")
def corpus():
    # Failures follow no law here: they would make a curve of chance.
    return make_corpus(
        6, planted=True, n_families=6, n_configs=40, gain=1.0, failure_share=0.0
    )


@pytest.fixture(scope="module")
def training(corpus):
    return train(corpus, SCHEMA, "d", TINY)


def test_a_thinner_workload_is_a_part_of_it(corpus) -> None:
    one = corpus[0]
    before: set[str] = set()
    for share in (0.0, 0.25, 0.5, 1.0):
        thin = thinned(one, share, seed=0)
        at = [one.config_ids.index(name) for name in thin.config_ids]
        assert len(at) == max(4, round(share * one.n_rows))
        assert before <= set(thin.config_ids)
        before = set(thin.config_ids)
        assert thin.config_ids[thin.default_index] == one.config_ids[one.default_index]
        assert thin.log_ratio[thin.default_index] == 0.0
        assert np.array_equal(thin.features, one.features[at])
        assert np.array_equal(thin.is_ok, one.is_ok[at])
        # The analytic order is that of the whole, without what is gone.
        kept = [one.config_ids[i] for i in one.analytic_order]
        assert [thin.config_ids[i] for i in thin.analytic_order] == [
            name for name in kept if name in before
        ]


def test_folds_learn_from_parts_and_are_judged_on_the_whole(corpus, training) -> None:
    seen: dict[str, list[set[str]]] = {FAMILIES: [], MEASUREMENTS: []}
    for kind in (FAMILIES, MEASUREMENTS):
        for share in (0.25, 0.5):
            some, folds = _part(corpus, training.folds, kind, share, 0)
            for fold, whole in zip(folds, training.folds, strict=True):
                assert fold.test == whole.fold.test
                assert [some[i] for i in fold.test] == [
                    corpus[i] for i in whole.fold.test
                ]
                left_out = {some[i].family for i in fold.test}
                assert not left_out & {some[i].family for i in fold.train}
            seen[kind].append({some[i].family for i in folds[0].train})
    assert seen[FAMILIES][0] < seen[FAMILIES][1]
    assert seen[MEASUREMENTS][0] == seen[MEASUREMENTS][1]


def test_the_curve_ends_at_the_training(corpus, training) -> None:
    points = learning_curve(
        corpus, training.folds, training.by_family, SCHEMA, TINY, shares=(0.2,)
    )
    assert [(one.kind, one.share) for one in points] == [
        (FAMILIES, 0.2),
        (FAMILIES, 1.0),
        (MEASUREMENTS, 0.2),
        (MEASUREMENTS, 1.0),
    ]
    metrics = training.by_family.metrics()
    for one in (points[1], points[3]):
        assert one.regret_mean == metrics["regret_mean"]
        assert one.speedup_geomean == metrics["speedup_geomean"]
        assert one.n_families == 5.0
    assert points[0].n_families == 1.0
    assert points[2].n_configs == 5 * 8
    # A part is another model: one of them would not judge all workloads alike.
    for part, whole in ((points[0], points[1]), (points[2], points[3])):
        assert part.ungated_regret_mean != whole.ungated_regret_mean
    assert all(math.isfinite(one.regret_at_5) for one in points)
    figure = learning_figure(points)
    assert [len(part.lines) for part in figure.axes] == [2, 2]


def test_other_seeds_are_nested_runs_with_a_spread(corpus, training) -> None:
    extra = other_seeds(training, corpus, SCHEMA, TINY, SHIPPED_LIMITS, 2)
    assert [one.params["seed"] for one in extra.nested] == ["1", "2"]
    again = other_seeds(training, corpus, SCHEMA, TINY, SHIPPED_LIMITS, 1)
    assert again.nested[0] == extra.nested[0]
    values = [training.by_family.metrics()["speedup_geomean"]]
    values += [one.metrics["speedup_geomean"] for one in extra.nested]
    assert len(set(values)) > 1
    assert extra.metrics["seeds/speedup_geomean_mean"] == pytest.approx(np.mean(values))
    assert extra.metrics["seeds/speedup_geomean_std"] > 0.0


@pytest.mark.slow
def test_a_recipe_asks_for_it_and_it_lies_beside_the_model(tmp_path, capsys) -> None:
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(
        f"name = 'tiny'\n[data]\npaths = [{json.dumps(str(SAMPLE))}]\n"
        "[model]\nn_bags = 1\nn_trees = 3\nn_validity_trees = 2\n"
        "[report]\nlearning_curve = true\nextra_seeds = 1\n"
    )
    out = tmp_path / "out"
    argv = ["train", str(recipe), "--output", str(out), "--no-track", "--json"]
    assert main(argv) == 0
    facts = json.loads(capsys.readouterr().out)
    points = json.loads((out / "learning_curve.json").read_text())
    assert points[-1]["regret_mean"] == facts["metrics"]["regret_mean"]
    assert (out / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
