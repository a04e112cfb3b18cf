"""Ways to learn a ranking that were tried beside the shipped one.

Each method turns labelled workloads into a `Ranker`: a number for each config of a
workload, in ln(default time / config time) as far as its objective has that unit. They
share features, folds, validity model and weights by workload with the shipped fit, so
that a comparison (`benchmarks/compare_methods.py`) is one of objectives alone.

Sources: label-weighted regression is TVM's default cost model objective (Chen et al.,
NeurIPS 2018); LambdaMART and its pairwise cousin are XGBoost's `rank:ndcg` and
`rank:pairwise`; quantile loss is `reg:quantileerror`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from costmodel.features.schema import FeatureSchema
from costmodel.layout import RowLayout
from costmodel.training.fit import FitSettings
from costmodel.training.fit import fit
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.objective import REGRESSION_CLIP_LOG
from costmodel.training.uninterrupted import uninterrupted

Gains = npt.NDArray[np.float64]
Ranker = Callable[[LabelledWorkload], Gains]
"""Gain of each config over the default, float64[n]."""

# Grades of a learning-to-rank label: 5 % of time each, about twice the noise of one
# reading (H200 corpus, 2026-11), so that ties within noise get one grade.
_GRADE_LOG = 0.05
_MOST_GRADES = 31  # what NDCG's 2^grade gain allows in XGBoost
_QUANTILE = 0.75  # of the time: a config is as good as its worse quarter
_HARD_WEIGHT = 3.0  # of configs that the first round took for fast and that are not
_HARD_LOG = 0.10


@dataclass(frozen=True, slots=True)
class Method:
    """One way to learn.

    Attributes:
        name: Short, unique.
        words: What it is, for a reader.
        train: Makes the ranker from workloads, with a seed.
    """

    name: str
    words: str
    train: Callable[[Sequence[LabelledWorkload], FeatureSchema, int], Ranker]


def _shipped(**changes: Any) -> Callable[..., Ranker]:
    def train(
        workloads: Sequence[LabelledWorkload], schema: FeatureSchema, seed: int
    ) -> Ranker:
        settings = replace(FitSettings(), seed=seed, n_validity_trees=1, **changes)
        forest, _ = fit(workloads, RowLayout.of(schema), settings, schema.hash)
        return lambda one: forest.predict(one.features, False).gain_log.astype(float)

    return train


def _without(pick: Callable[[str], bool]) -> Callable[..., Ranker]:
    """The shipped fit, blind to some columns."""

    def train(
        workloads: Sequence[LabelledWorkload], schema: FeatureSchema, seed: int
    ) -> Ranker:
        dropped = tuple(i for i, name in enumerate(schema.names) if pick(name))
        return _shipped(dropped_columns=dropped)(workloads, schema, seed)

    return train


def _per_group(
    workloads: Sequence[LabelledWorkload], schema: FeatureSchema, seed: int
) -> Ranker:
    """A model for kernels with dots and one for those without."""
    column = schema.index("w_n_dots")

    def is_dot(one: LabelledWorkload) -> bool:
        return bool(one.features[0, column] > 0)

    parts = {
        dots: _shipped()([w for w in workloads if is_dot(w) == dots], schema, seed)
        for dots in (True, False)
    }
    return lambda one: parts[is_dot(one)](one)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Measured configs of all workloads, one below the other.

    Attributes:
        rows: float32[n, n_features].
        ratio_log: float64[n], ln(time / default time).
        above_log: float64[n], ln(time / best time of the workload).
        weight: float64[n], equal in sum for each workload.
        group: int64[n], which workload.
        analytic_log: float64[n], ln(estimated time / the default's).
    """

    rows: npt.NDArray[np.float32]
    ratio_log: Gains
    above_log: Gains
    weight: Gains
    group: npt.NDArray[np.int64]
    analytic_log: Gains


def _rows(workloads: Sequence[LabelledWorkload]) -> _Rows:
    ok = [np.flatnonzero(one.is_ok) for one in workloads]
    pairs = list(zip(workloads, ok, strict=True))
    return _Rows(
        rows=np.concatenate([one.features[i] for one, i in pairs]),
        ratio_log=np.concatenate([one.log_ratio[i] for one, i in pairs]),
        above_log=np.concatenate([one.log_ratio[i] - one.best_log for one, i in pairs]),
        weight=np.concatenate([np.full(len(i), 1.0 / len(i)) for _, i in pairs]),
        group=np.repeat(np.arange(len(pairs)), [len(i) for i in ok]),
        analytic_log=np.concatenate([analytic_log(one)[i] for one, i in pairs]),
    )


def analytic_log(one: LabelledWorkload) -> Gains:
    """ln(estimated time / the default's estimated time), float64[n]."""
    ratio = one.analytic_us / one.analytic_us[one.default_index]
    return np.asarray(np.log(ratio), dtype=np.float64)


def _parameters(settings: FitSettings, seed: int, bag: int) -> dict[str, object]:
    return {
        "tree_method": "hist",
        "max_depth": settings.max_depth,
        "eta": settings.learning_rate,
        "colsample_bytree": settings.column_share,
        "max_bin": settings.max_bin,
        "min_child_weight": settings.min_child_weight,
        "nthread": 1,
        "seed": 1000 * seed + bag,
    }


def _boosted(
    label: Callable[[_Rows], Gains],
    *,
    extra: Mapping[str, object] | None = None,
    weight: Callable[[_Rows], Gains] | None = None,
    offset: Callable[[LabelledWorkload], Gains] | None = None,
    is_ranking: bool = False,
    sign: float = -1.0,
) -> Callable[..., Ranker]:
    """Bags of trees on one row a config; the sign turns the label into a gain."""

    def train(
        workloads: Sequence[LabelledWorkload], schema: FeatureSchema, seed: int
    ) -> Ranker:
        settings = FitSettings()
        data = _rows(workloads)
        bags = []
        for bag in range(settings.n_bags):
            rng = np.random.default_rng([seed, bag])
            share = rng.exponential(size=len(workloads)) + 0.25
            each = data.weight * (weight(data) if weight else 1.0)
            each = each * share[data.group]
            with uninterrupted():
                matrix = xgboost.QuantileDMatrix(
                    data.rows,
                    label=label(data),
                    weight=share if is_ranking else each / each.mean(),
                    qid=data.group if is_ranking else None,
                    base_margin=(data.analytic_log if offset else None),
                    max_bin=settings.max_bin,
                    nthread=1,
                )
            parameters = _parameters(settings, seed, bag)
            parameters |= {"objective": "reg:squarederror", "base_score": 0.0}
            parameters |= extra or {}
            if is_ranking:
                parameters["min_child_weight"] = 1.0
            bags.append(
                xgboost.train(parameters, matrix, num_boost_round=2 * settings.n_trees)
            )

        def gains(one: LabelledWorkload) -> Gains:
            margin = offset(one) if offset else None
            matrix = xgboost.DMatrix(one.features, base_margin=margin, nthread=1)
            said = np.mean([b.predict(matrix, output_margin=True) for b in bags], 0)
            return np.asarray(sign * (said - said[one.default_index]), dtype=float)

        return gains

    return train


def _grades(data: _Rows) -> Gains:
    """31 for the best of a workload, one less for every 5 % of time."""
    grades = _MOST_GRADES - np.floor(data.above_log / _GRADE_LOG)
    return np.asarray(np.clip(grades, 0.0, None), dtype=np.float64)


def _clipped(data: _Rows) -> Gains:
    return np.clip(data.above_log, 0.0, REGRESSION_CLIP_LOG)


def _monotone(
    workloads: Sequence[LabelledWorkload], schema: FeatureSchema, seed: int
) -> Ranker:
    """Time never falls with spills, padding, wasted sectors; never with less tail."""
    rising = {
        "spill_registers_log2",
        "loop_spill_registers_log2",
        "edge_waste_log2",
        "sector_waste_log2",
        "busiest_sm_ratio",
    }
    signs = [
        int(name.removeprefix("d_") in rising and not name.startswith("w_"))
        for name in schema.names
    ]
    extra = {"monotone_constraints": f"({','.join(map(str, signs))})"}
    return _boosted(_clipped, extra=extra)(workloads, schema, seed)


def _hard_negatives(
    workloads: Sequence[LabelledWorkload], schema: FeatureSchema, seed: int
) -> Ranker:
    """A second round that weighs what the first wrongly took for fast."""
    first = _boosted(_clipped)(workloads, schema, seed)
    heavy = []
    for one in workloads:
        said = first(one)
        ok = np.flatnonzero(one.is_ok)
        promised = said[ok] >= np.sort(said[ok])[-min(5, len(ok))]
        slow = one.log_ratio[ok] - one.best_log > _HARD_LOG
        heavy.append(np.where(promised & slow, _HARD_WEIGHT, 1.0))
    weight = np.concatenate(heavy)
    return _boosted(_clipped, weight=lambda _: weight)(workloads, schema, seed)


METHODS: tuple[Method, ...] = (
    Method("shipped", "pairs and regression averaged, four bags", _shipped()),
    Method("pairs", "pairs alone", _shipped(pair_share=1.0)),
    Method("regression", "ln above best alone", _shipped(pair_share=0.0)),
    Method("one bag", "the shipped fit without bagging", _shipped(n_bags=1)),
    Method(
        "ratio to default",
        "regression on ln(time / default time)",
        _boosted(lambda d: np.clip(d.ratio_log, -2.0, REGRESSION_CLIP_LOG)),
    ),
    Method(
        "label-weighted",
        "the same, weighted by best time / time as TVM does",
        _boosted(_clipped, weight=lambda d: np.exp(-d.above_log)),
    ),
    Method(
        "rank:pairwise",
        "LambdaRank on pairs, grades of 5 %",
        _boosted(
            _grades, extra={"objective": "rank:pairwise"}, is_ranking=True, sign=1
        ),
    ),
    Method(
        "rank:ndcg",
        "LambdaMART, grades of 5 %",
        _boosted(_grades, extra={"objective": "rank:ndcg"}, is_ranking=True, sign=1),
    ),
    Method(
        "residual",
        "what the analytic time leaves unexplained",
        _boosted(
            lambda d: np.clip(d.ratio_log, -2.0, REGRESSION_CLIP_LOG),
            offset=analytic_log,
        ),
    ),
    Method(
        "quantile 0.75",
        "the time's upper quarter: robust picks",
        _boosted(
            _clipped,
            extra={"objective": "reg:quantileerror", "quantile_alpha": _QUANTILE},
        ),
    ),
    Method("monotone", "regression, physics keeps its sign", _monotone),
    Method("hard negatives", "a second round on its own mistakes", _hard_negatives),
    Method("by class", "one model with dots, one without", _per_group),
    Method(
        "no differences",
        "blind to differences from the reference",
        _without(lambda name: name.startswith("d_")),
    ),
)

ABLATIONS: tuple[Method, ...] = tuple(
    Method(f"without {what}", f"blind to {what}", _without(test))
    for what, test in {
        "list place": lambda n: (
            n.removeprefix("d_") in ("is_proposed", "proposal_place")
        ),
        "estimated times": lambda n: (
            n.removeprefix("d_").endswith("us_log2") or "over_dram" in n
        ),
        "registers": lambda n: "reg" in n or "spill" in n or "live_bytes" in n,
        "shared memory": lambda n: "smem" in n or "stage" in n or "pipelined" in n,
        "parallelism": lambda n: any(
            word in n for word in ("waves", "tail", "occupancy", "programs", "warps")
        ),
        "traffic": lambda n: any(
            word in n for word in ("reread", "vector", "sector", "contiguous", "waste")
        ),
        "tiles": lambda n: any(word in n for word in ("block_", "tile", "dot_")),
        "indexing and eviction": lambda n: "descriptor" in n or "evict" in n,
        "workload": lambda n: n.startswith("w_"),
    }.items()
)
