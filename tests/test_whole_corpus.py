"""The shipped recipe, cross-fitted by family on the whole corpus, against its bounds.

This is the slowest test of the model and the only one that judges anew: eight models
are fitted, each without an eighth of the families, and asked about those. A change of
features, of the fit or of the corpus that costs regret or does harm fails here before
anyone reads a table. The bounds lie a little outside of what the shipped model does,
and are moved only with a reason, in the commit that gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from costmodel.cli_measured import read_measured
from costmodel.features.schema import SCHEMA
from costmodel.learned import LearnedModel
from costmodel.learned import bundled_model_path
from costmodel.training.crossfit import cross_fit
from costmodel.training.crossfit import family_folds
from costmodel.training.judge import judge
from costmodel.training.label import label_all
from costmodel.training.recipe import load_recipe

ROOT = Path(__file__).resolve().parents[1]
CORPORA = ("h200", "h200_bench", "h200_sample")
RECIPE = ROOT / "training" / "recipes" / "shipped.toml"


@dataclass(frozen=True, slots=True)
class Bound:
    """What a number of the evaluation may be at worst."""

    name: str
    at_least: float = float("-inf")
    at_most: float = float("inf")

    def is_kept(self, metrics: Mapping[str, float]) -> bool:
        return self.at_least <= metrics[self.name] <= self.at_most


# Beside what the must of harm asks for (3 %), these follow the shipped model: seeds of
# the fit move the share of the headroom by 0.03 and regret by 0.02 (H200, 2026-11).
BOUNDS = (
    Bound("with_rule_headroom_share", at_least=0.45),
    Bound("with_rule_harm_share", at_most=0.02),
    Bound("with_rule_failed_share", at_most=0.0),
    Bound("with_rule_speedup_worst", at_least=0.70),
    Bound("with_rule_regret_at_2", at_most=0.10),
    Bound("with_rule_regret_at_5", at_most=0.03),
    Bound("without_rule_speedup_geomean", at_least=2.5),
    Bound("without_rule_harm_share", at_most=0.12),
    Bound("without_rule_regret_at_5", at_most=0.10),
)


@pytest.fixture(scope="module")
def metrics() -> dict[str, float]:
    recipe = load_recipe(RECIPE)
    corpora = [str(ROOT / "datasets" / "corpora" / name) for name in CORPORA]
    workloads = label_all(read_measured(corpora).recorded).workloads
    folds = family_folds(workloads)
    results = cross_fit(workloads, folds, SCHEMA, recipe.model, limits=recipe.gate)
    return judge("families left out", results, SCHEMA).metrics()


@pytest.mark.slow
@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.name)
def test_families_left_out_stay_within_bounds(
    metrics: Mapping[str, float], bound: Bound
) -> None:
    assert bound.is_kept(metrics), f"{bound} broken: {metrics[bound.name]:.4f}"


@pytest.mark.slow
def test_the_card_says_what_its_recipe_and_corpus_give(
    metrics: Mapping[str, float],
) -> None:
    """Equal on the machine that trained it; another processor may round otherwise."""
    stated = LearnedModel.load(bundled_model_path()).card.metrics
    assert metrics["n_workloads"] == stated["n_workloads"]
    for name in (bound.name for bound in BOUNDS if "worst" not in bound.name):
        near = pytest.approx(stated[name], rel=0.1, abs=0.03)
        assert metrics[name] == near, name
