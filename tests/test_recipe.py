"""Recipes: what is written is what is trained, and what means nothing is refused."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from synthetic import SCHEMA
from synthetic import make_corpus

from costmodel.cli import main
from costmodel.errors import RecipeError
from costmodel.features.schema import SCHEMA as REAL_SCHEMA
from costmodel.training.calibrate import GateLimits
from costmodel.training.code_settings import CodeSettings
from costmodel.training.fit import FitSettings
from costmodel.training.plan import fixed_folds
from costmodel.training.plan import selected
from costmodel.training.recipe import Bounds
from costmodel.training.recipe import Recipe
from costmodel.training.recipe import Report
from costmodel.training.recipe import load_recipe
from costmodel.training.recipe import parse_recipe
from costmodel.training.recipe_features import columns_of
from costmodel.training.recipe_space import Choices
from costmodel.training.recipe_space import Range
from costmodel.training.recipe_space import tunable
from costmodel.training.recipe_text import as_toml
from costmodel.training.train import FIXED_PROTOCOL
from costmodel.training.train import train

ROOT = Path(__file__).parent.parent
SHIPPED = ROOT / "training" / "recipes" / "shipped.toml"
SAMPLE = ROOT / "datasets" / "corpora" / "h200_sample"
TINY = FitSettings(n_bags=1, n_trees=6, n_validity_trees=4)


@pytest.fixture(scope="module")
def corpus():
    return make_corpus(0, planted=True, n_families=4, n_configs=20)


def test_the_shipped_recipe_is_what_make_model_trains() -> None:
    recipe = load_recipe(SHIPPED)
    assert recipe.model == FitSettings()
    assert recipe.gate == GateLimits()
    assert recipe.second_stage == CodeSettings()
    assert recipe.bounds == Bounds()
    assert recipe.report == Report()
    assert recipe.digest == Recipe().digest
    makefile = (ROOT / "Makefile").read_text()
    words = dict(re.findall(r"^(SAMPLE|TRAINED_ON) = (.*)$", makefile, re.MULTILINE))
    trained_on = words["TRAINED_ON"].replace("$(SAMPLE)", words["SAMPLE"]).split()
    found = [Path(one).resolve() for one in recipe.data.paths]
    assert found == [(ROOT / one).resolve() for one in trained_on]


@pytest.mark.parametrize(
    ("text", "unknown", "nearest"),
    [
        ("[modle]", "modle", "model"),
        ("[model]\nn_tree = 3", "model.n_tree", "n_trees"),
        ("[data]\npath = []", "data.path", "paths"),
        ("[gate]\nmax_harm = 0.1", "gate.max_harm", "max_harm_share"),
        ("[bounds.classes]\nmatmull = 0.1", "bounds.classes.matmull", "matmul"),
        ("[second_stage]\nn_tree = 3", "second_stage.n_tree", "n_trees"),
        ("[report]\nlearning = true", "report.learning", "learning_curve"),
        ("[tune]\nmodell.n_trees = [1, 2]", "tune.modell", "model"),
        ("[tune]\nmodel.n_tree = [1, 2]", "tune.model.n_tree", "n_trees"),
        (
            "[tune]\nmodel.n_trees = {lo = 1, high = 99}",
            "tune.model.n_trees.lo",
            "low",
        ),
        # Columns are said in names; the field of the fit is not a key.
        ("[model]\ndropped_columns = [1]", "model.dropped_columns", "column_share"),
    ],
)
def test_an_unknown_key_is_refused_by_name(text, unknown, nearest) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(text, "mine.toml")
    assert f"unknown key '{unknown}'" in str(caught.value)
    assert f"nearest known one is '{nearest}'" in str(caught.value)
    assert str(caught.value).startswith("mine.toml: ")


@pytest.mark.parametrize(
    "text",
    [
        "[model]\nn_trees = 2.5",
        "[model]\nn_trees = true",
        "[model]\nn_trees = -1",
        "[model]\nn_bags = 0",
        "[model]\nseed = 1000000000000000000000000000000",
        "[model]\nlearning_rate = nan",
        "[gate]\nmax_harm_share = inf",
        "[gate]\nmax_harm_share = 3.0",
        "[bounds.classes]\nmatmul = 2.0",
        '[model]\nlearning_rate = "0.1"',
        '[data]\npaths = "corpus"',
        "[data]\npaths = [1]",
        "model = 3",
        "name = 3",
        "[split]\nfolds = []",
        "[split.folds]\na = 'matmul'",
        "[features]\ndrop = ['no_such_feature']",
        "[features]\ndrop = ['group:nothing']",
        "[features]\ndrop = ['*']",
        "[second_stage]\nenabled = 1",
        "[second_stage]\nn_trees = 0",
        "[report]\nlearning_curve = 'yes'",
        "tune = 3",
        "[tune]\nmodel = 3",
        "[tune]\nmodel.n_trees = 60",
        "[tune]\nmodel.n_trees = [60]",
        "[tune]\nmodel.n_trees = [60, 60]",
        "[tune]\nmodel.n_trees = [60, 0]",
        "[tune]\nmodel.n_trees = { low = 10 }",
        "[tune]\nmodel.n_trees = { low = 90, high = 10 }",
        "[tune]\nmodel.n_trees = { low = 10, high = 90.5 }",
        "[tune]\nmodel.pair_share = { low = 0.0, high = 1.0, log = true }",
        # The search starts at the recipe's own value, 60.
        "[tune]\nmodel.n_trees = { low = 70, high = 90 }",
        "[tune]\nmodel.n_trees = [61, 62]",
        # A demand on the gate, and chance, are not searched.
        "[tune]\ngate.max_harm_share = { low = 0.01, high = 0.1 }",
        "[tune]\nmodel.seed = [0, 1]",
        "[tune]\nfeatures.drop = [[], ['no_such_feature']]",
        "[tune]\nfeatures.drop = { low = 1, high = 2 }",
        "not toml",
    ],
)
def test_a_value_that_means_nothing_is_refused_in_one_line(text) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(text)
    assert "\n" not in str(caught.value)


@settings(deadline=None)  # the first example pays for a busy machine
@given(
    name=st.text(min_size=1, max_size=20),
    families=st.lists(st.text(max_size=8), max_size=3),
    trees=st.integers(1, 500),
    rate=st.floats(0.001, 1.0),
    harm=st.dictionaries(
        st.sampled_from(["matmul", "reduction"]), st.floats(0.0, 1.0), max_size=2
    ),
    folds=st.dictionaries(
        st.text(max_size=8), st.lists(st.text(max_size=8), max_size=2), max_size=2
    ),
)
def test_a_recipe_written_out_reads_back_as_itself(
    name, families, trees, rate, harm, folds
) -> None:
    recipe = Recipe(
        name=name,
        data=dataclasses.replace(Recipe().data, leave_out_families=tuple(families)),
        split=type(Recipe().split)({k: tuple(v) for k, v in folds.items()}),
        model=FitSettings(n_trees=trees, learning_rate=rate),
        bounds=Bounds(classes=harm),
    )
    again = parse_recipe(as_toml(recipe))
    assert dataclasses.replace(again, text="") == recipe
    assert again.digest == recipe.digest


def test_a_space_written_out_reads_back_and_is_no_part_of_the_digest() -> None:
    recipe = parse_recipe(
        "[second_stage]\nenabled = false\n[tune]\nmodel.max_depth = [4, 5, 7]\n"
        "model.learning_rate = { low = 0.1, high = 0.3, log = true }\n"
        "features.drop = [[], ['range_*', 'maxnreg']]"
    )
    assert recipe.tune == {
        "model.max_depth": Choices((4, 5, 7)),
        "model.learning_rate": Range(0.1, 0.3, log=True),
        "features.drop": Choices(((), ("range_*", "maxnreg"))),
    }
    assert set(recipe.tune) <= set(tunable())
    again = parse_recipe(as_toml(recipe))
    assert dataclasses.replace(again, text="") == dataclasses.replace(recipe, text="")
    untuned = dataclasses.replace(recipe, tune={})
    assert recipe.digest == untuned.digest
    assert recipe.digest != Recipe().digest  # no second stage is another model


def test_values_of_a_space_make_the_recipe_that_says_them() -> None:
    found = Recipe().with_values(
        {"model.max_depth": 7, "gate.prior_dot_log": 0.2, "features.drop": ("maxnreg",)}
    )
    said = parse_recipe(
        "[model]\nmax_depth = 7\n[gate]\nprior_dot_log = 0.2\n"
        "[features]\ndrop = ['maxnreg']"
    )
    assert found == dataclasses.replace(said, text="")
    assert found.model.dropped_columns


def test_patterns_name_columns_of_the_real_schema() -> None:
    names = list(REAL_SCHEMA.names)
    dropped = parse_recipe("[features]\ndrop = ['d_range_*', 'maxnreg']").model
    found = {names[i] for i in dropped.dropped_columns}
    assert "maxnreg" in found
    assert all(one == "maxnreg" or one.startswith("d_range_") for one in found)
    assert len(found) > 3
    block = REAL_SCHEMA.columns("workload")
    assert columns_of(["group:workload"], REAL_SCHEMA) == tuple(
        range(len(names))[block]
    )


def test_trees_never_look_at_a_dropped_feature(corpus) -> None:
    columns = columns_of(["x0", "d_x0", "group:workload"], SCHEMA)
    settings = dataclasses.replace(TINY, n_trees=20, dropped_columns=columns)
    used = train(corpus, SCHEMA, "d", settings).model.importance()
    dropped = {SCHEMA.names[i] for i in columns}
    assert not dropped & {name for name, share in used.items() if share > 0}
    # They are what the planted law is made of, so that without a recipe they are used.
    plain = train(corpus, SCHEMA, "d", dataclasses.replace(TINY, n_trees=20))
    assert plain.model.importance()["d_x0"] > 0


def test_fixed_folds_leave_out_what_they_say(corpus) -> None:
    recipe = parse_recipe(
        "[split.folds]\na = ['family0', 'family3']\nb = ['family1', 'family2']"
    )
    folds = fixed_folds(recipe, corpus)
    assert [fold.name for fold in folds] == ["a", "b"]
    for fold in folds:
        left_out = {corpus[i].family for i in fold.test}
        assert left_out == set(recipe.split.folds[fold.name])
        assert not left_out & {corpus[i].family for i in fold.train}
    made = train(corpus, SCHEMA, "d", TINY, folds=folds)
    assert made.by_family.protocol == FIXED_PROTOCOL
    assert len(made.by_family.judged) == len(corpus)


@pytest.mark.parametrize(
    ("folds", "words"),
    [
        ("a = ['family0']\nb = ['family1', 'family2']", "'family3' is in no fold"),
        ("a = ['family0']\nb = ['family0']", "in two folds"),
        ("a = ['family0', 'family1', 'family2', 'family3']", "outside of it"),
    ],
)
def test_folds_that_are_none_are_refused(corpus, folds, words) -> None:
    with pytest.raises(RecipeError, match=words):
        fixed_folds(parse_recipe(f"[split.folds]\n{folds}"), corpus)


def test_what_is_left_out_is_gone_and_must_have_been_there(corpus) -> None:
    recipe = parse_recipe("[data]\nleave_out_families = ['family1']")
    kept = selected(recipe, corpus)
    assert {one.family for one in kept} == {"family0", "family2", "family3"}
    misspelt = parse_recipe("[data]\nleave_out_families = ['famly1']")
    with pytest.raises(RecipeError, match="'famly1' is not in the data"):
        selected(misspelt, corpus)


def test_a_gate_keeps_to_the_limits_of_its_recipe(corpus) -> None:
    recipe = parse_recipe(
        "[gate]\nprior_dot_log = 0.9\nmin_valid_probability = 0.95\n"
        "prior_workloads = 100.0"
    )
    usual = train(corpus, SCHEMA, "d", TINY).model.card.gate
    strict = train(corpus, SCHEMA, "d", TINY, limits=recipe.gate).model.card.gate
    assert strict.min_valid_probability == 0.95
    assert strict.margin_log["dot"] > usual.margin_log["dot"]


def test_two_recipes_or_none_are_one_clear_line(tmp_path, capsys) -> None:
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    for argv in ([str(empty), str(empty)], [str(empty)], []):
        assert main(["train", *argv]) == 1
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_the_same_recipe_makes_the_same_bytes(tmp_path, capsys) -> None:
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(
        f"name = 'tiny'\n[data]\npaths = [{json.dumps(str(SAMPLE))}]\n"
        "[features]\ndrop = ['range_*']\n"
        "[model]\nn_bags = 1\nn_trees = 4\nn_validity_trees = 3\n"
    )
    made = []
    for run, options in enumerate(([], [], ["--seed", "1"])):
        folder = tmp_path / str(run)
        argv = ["train", str(recipe), "--output", str(folder), "--no-track", "--json"]
        assert main([*argv, *options]) == 0
        files = [folder / "tiny.ubj", folder / "tiny.json"]
        made.append([one.read_bytes() for one in files])
    capsys.readouterr()
    assert made[0] == made[1]
    assert made[0][0] != made[2][0]
