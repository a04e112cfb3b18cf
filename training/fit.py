"""Fit the forest: bags of pair and regression trees, and one validity model.

Bags differ in how much each workload weighs: a Bayesian bootstrap over workloads
(Rubin, Annals of Statistics 1981) rather than one that drops some, because with few
workloads each dropped one is a kind of kernel never seen.

Every fit uses one thread and fixed seeds: the same corpus gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import xgboost

from costmodel.errors import NotEnoughDataError
from costmodel.forest import Forest
from costmodel.layout import RowLayout
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.merge import merged
from costmodel.training.objective import Examples
from costmodel.training.objective import pair_examples
from costmodel.training.objective import regression_examples
from costmodel.training.objective import validity_examples
from costmodel.training.round_curves import GroupCurve
from costmodel.training.round_curves import WorkloadErrors
from costmodel.training.uninterrupted import uninterrupted


@dataclass(frozen=True, slots=True)
class FitSettings:
    """Numbers of the fit.

    Depth, rate and column share follow what sufficed on 37 H200 workloads (design
    notes), and nothing tried on 182 workloads of 18 families of the H200 corpus was
    better beyond noise (`docs/measurements`). Few rounds at a high rate, because 512
    candidates are to be scored in 5 ms.

    Attributes:
        n_bags: Ensembles averaged.
        n_trees: Boosting rounds of each ranking part.
        n_validity_trees: Boosting rounds of the validity model.
        max_depth: Of each tree.
        learning_rate: Shrinkage per round.
        column_share: Features offered to each tree.
        min_child_weight: Smallest leaf, in rows of average weight.
        max_bin: Histogram bins; most features are powers of two, so 64 lose nothing.
        n_references: References per workload in pair examples, besides the default;
            fewer where that makes more than `max_pair_rows`.
        max_pair_rows: Rows of pair examples that are enough, about.
        pair_share: Weight of the pair trees; the rest is the regression trees'.
        seed: Of every draw.
        dropped_columns: Feature columns that no tree may look at, for ablations.
    """

    n_bags: int = 4
    n_trees: int = 60
    n_validity_trees: int = 50
    max_depth: int = 5
    learning_rate: float = 0.2
    column_share: float = 0.4
    min_child_weight: float = 20.0
    max_bin: int = 64
    n_references: int = 8
    max_pair_rows: int = 34_000
    pair_share: float = 0.5
    seed: int = 0
    dropped_columns: tuple[int, ...] = ()

    def as_parameters(self) -> dict[str, float]:
        """Plain numbers by name, for the card and for tracking."""
        numbers = asdict(self)
        dropped = numbers.pop("dropped_columns")
        if dropped:
            numbers["n_dropped_columns"] = len(dropped)
        return {name: float(value) for name, value in numbers.items()}


@dataclass(frozen=True, slots=True)
class Curves:
    """Error by boosting round of the first bag's pair trees.

    Attributes:
        train_rmse: On the examples fitted, in log ratio.
        held_out_rmse: On examples of workloads left out; empty without any.
        groups: The same by kind and name of group, such as ("class", "matmul").
    """

    train_rmse: tuple[float, ...] = field(default=())
    held_out_rmse: tuple[float, ...] = field(default=())
    groups: Mapping[tuple[str, str], GroupCurve] = field(default_factory=dict)


def fit(
    workloads: Sequence[LabelledWorkload],
    layout: RowLayout,
    settings: FitSettings,
    schema_hash: str,
    held_out: Sequence[LabelledWorkload] = (),
) -> tuple[Forest, Curves]:
    """Fit a forest on labelled workloads.

    Args:
        workloads: What to learn from, at least one.
        layout: Column blocks of their rows.
        settings: Numbers of the fit.
        schema_hash: Stored with the trees.
        held_out: Only watched, round by round, never learned from.

    Raises:
        NotEnoughDataError: No workload to learn from.
    """
    grower = _InMemory(workloads, layout, settings, held_out)
    return grown(workloads, layout, settings, schema_hash, grower)


class Grower(Protocol):
    """Makes the examples of one fit, and grows trees on them."""

    def pairs(
        self, bag: int, weight: npt.NDArray[np.float64], rng: np.random.Generator
    ) -> tuple[xgboost.Booster, Curves]:
        """A bag's pair trees, and how their error fell; float64[n_workloads]."""

    def regression(self, bag: int, weight: npt.NDArray[np.float64]) -> xgboost.Booster:
        """A bag's regression trees."""

    def validity(self, weight: npt.NDArray[np.float64]) -> xgboost.Booster:
        """The validity trees."""


def grown(
    workloads: Sequence[LabelledWorkload],
    layout: RowLayout,
    settings: FitSettings,
    schema_hash: str,
    grower: Grower,
) -> tuple[Forest, Curves]:
    """Bags of pair and regression trees in turn, then validity's, as one forest.

    Args:
        workloads: As of `fit`.
        layout: As of `fit`.
        settings: As of `fit`.
        schema_hash: As of `fit`.
        grower: Who grows the trees.

    Raises:
        NotEnoughDataError: No workload to learn from.
    """
    if not workloads:
        raise NotEnoughDataError(
            "expected at least one workload with a measured default, found none: "
            "import logs first"
        )
    parts: list[tuple[xgboost.Booster, float]] = []
    curves = Curves()
    own_weight = np.array([one.weight for one in workloads])
    for bag in range(settings.n_bags):
        rng = np.random.default_rng([settings.seed, bag])
        weight = (rng.exponential(size=len(workloads)) + 0.25) * own_weight
        pair_booster, bag_curves = grower.pairs(bag, weight, rng)
        curves = bag_curves if bag == 0 else curves
        plain_booster = grower.regression(bag, weight)
        parts.append((pair_booster, settings.pair_share / settings.n_bags))
        parts.append((plain_booster, (1.0 - settings.pair_share) / settings.n_bags))
    parts.append((grower.validity(own_weight), 1.0))
    n_rank_trees = 2 * settings.n_bags * settings.n_trees
    booster = merged(parts, {"schema": schema_hash, "n_rank_trees": str(n_rank_trees)})
    n_trees = n_rank_trees + settings.n_validity_trees
    forest = Forest(booster, layout, settings.n_bags, n_rank_trees, n_trees)
    return forest, curves


class _InMemory:
    """A `Grower` that holds all examples of a bag at once."""

    def __init__(
        self,
        workloads: Sequence[LabelledWorkload],
        layout: RowLayout,
        settings: FitSettings,
        held_out: Sequence[LabelledWorkload],
    ) -> None:
        self._workloads = workloads
        self._layout = layout
        self._settings = settings
        self._held_out = held_out

    def pairs(
        self, bag: int, weight: npt.NDArray[np.float64], rng: np.random.Generator
    ) -> tuple[xgboost.Booster, Curves]:
        n_references = n_references_of(self._workloads, self._settings)
        pairs = pair_examples(self._workloads, self._layout, weight, n_references, rng)
        if bag:
            return _boost(pairs, self._settings, bag)
        watched = _watched(self._held_out, self._layout, self._settings)
        return _boost(pairs, self._settings, bag, watched, self._held_out)

    def regression(self, bag: int, weight: npt.NDArray[np.float64]) -> xgboost.Booster:
        plain = regression_examples(self._workloads, weight)
        return _boost(plain, self._settings, bag)[0]

    def validity(self, weight: npt.NDArray[np.float64]) -> xgboost.Booster:
        return _boost_validity(self._workloads, weight, self._settings)


def n_references_of(
    workloads: Sequence[LabelledWorkload], settings: FitSettings
) -> int:
    """References per workload, so that time grows no faster than the corpus."""
    n_measured = sum(int(one.is_ok.sum()) for one in workloads)
    affordable = settings.max_pair_rows // max(1, n_measured) - 1
    return int(np.clip(affordable, 2, settings.n_references))


def _watched(
    held_out: Sequence[LabelledWorkload], layout: RowLayout, settings: FitSettings
) -> Examples | None:
    if not held_out:
        return None
    rng = np.random.default_rng([settings.seed, 10_000])
    even = np.ones(len(held_out))
    return pair_examples(held_out, layout, even, settings.n_references, rng)


def _boost(
    examples: Examples,
    settings: FitSettings,
    bag: int,
    watched: Examples | None = None,
    held_out: Sequence[LabelledWorkload] = (),
) -> tuple[xgboost.Booster, Curves]:
    data = _matrix(examples, settings)
    evals = []
    errors = None
    if watched is not None:
        apart = _matrix(watched, settings, ref=data)
        evals = [(data, "train"), (apart, "held_out")]
        errors = WorkloadErrors(watched, apart)
    history: dict[str, dict[str, list[float]]] = {}
    booster = xgboost.train(
        rank_parameters(settings, bag, len(examples.target)),
        data,
        num_boost_round=settings.n_trees,
        evals=evals,
        evals_result=history,
        verbose_eval=False,
        callbacks=None if errors is None else [errors],
    )
    curves = Curves(
        train_rmse=tuple(history.get("train", {}).get("rmse", ())),
        held_out_rmse=tuple(history.get("held_out", {}).get("rmse", ())),
        groups={} if errors is None else errors.by_group(held_out),
    )
    return booster, curves


def _boost_validity(
    workloads: Sequence[LabelledWorkload],
    workload_weight: npt.NDArray[np.float64],
    settings: FitSettings,
) -> xgboost.Booster:
    examples = validity_examples(workloads, workload_weight)
    return xgboost.train(
        validity_parameters(settings),
        _matrix(examples, settings),
        num_boost_round=settings.n_validity_trees,
        verbose_eval=False,
    )


def rank_parameters(
    settings: FitSettings, bag: int, n_examples: int
) -> dict[str, float | int | str]:
    """XGBoost's parameters of a bag's pair trees, and of its regression trees."""
    return {
        **_common(settings, bag),
        "objective": "reg:squarederror",
        "min_child_weight": _leaf_weight(settings, n_examples),
        "base_score": 0.0,
    }


def validity_parameters(settings: FitSettings) -> dict[str, float | int | str]:
    """XGBoost's parameters of the validity trees."""
    return {
        **_common(settings, bag=0),
        "objective": "binary:logistic",
        # Probability 0.5 is margin 0, so that the trees alone make the margin.
        "base_score": 0.5,
        "min_child_weight": 1.0,
        "max_depth": max(2, settings.max_depth - 1),
    }


def _leaf_weight(settings: FitSettings, n_examples: int) -> float:
    """The smallest leaf, eased where there are too few rows to fill leaves at all."""
    return min(settings.min_child_weight, max(1.0, n_examples / 50))


def _common(settings: FitSettings, bag: int) -> dict[str, float | int | str]:
    return {
        "tree_method": "hist",
        "max_depth": settings.max_depth,
        "eta": settings.learning_rate,
        "colsample_bytree": settings.column_share,
        "max_bin": settings.max_bin,
        "nthread": 1,
        "seed": settings.seed * 1000 + bag,
    }


def _matrix(
    examples: Examples, settings: FitSettings, ref: xgboost.DMatrix | None = None
) -> xgboost.QuantileDMatrix:
    with uninterrupted():
        data = xgboost.QuantileDMatrix(
            examples.rows,
            label=examples.target,
            weight=examples.weight,
            max_bin=settings.max_bin,
            nthread=1,
            ref=ref,
        )
    if settings.dropped_columns:
        # A weight of 0 keeps a column from ever being offered to a tree.
        weights = np.ones(examples.rows.shape[1], dtype=np.float32)
        weights[list(settings.dropped_columns)] = 0.0
        data.set_info(feature_weights=weights)
    return data
