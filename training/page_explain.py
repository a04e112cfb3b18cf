"""Why one left-out workload went as it did: the gate, the knobs, the features.

The question is always the same: the pick against the best config that was measured.
What did the model expect of the best, what kept it from being picked, which knobs tell
the two apart, and which features moved the prediction most.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xgboost

from costmodel.features.schema import FeatureSchema
from costmodel.gate import GUARDS
from costmodel.gate import Gate
from costmodel.training.crossfit import FoldResult
from costmodel.training.judge import JudgedWorkload
from costmodel.types import Config

# More knobs and features than these are no explanation any more.
N_KNOBS = 12
N_CONTRIBUTIONS = 5


def explained(
    one: JudgedWorkload, result: FoldResult, schema: FeatureSchema
) -> dict[str, Any]:
    """Pick and best of a workload side by side, as JSON values.

    Args:
        one: The workload, judged.
        result: The fold that held it out.
        schema: Of the features.
    """
    workload = one.workload
    pick = one.choice.index
    best = int(np.nanargmin(np.where(workload.is_ok, workload.log_ratio, np.nan)))
    said = next(
        p.said
        for p in result.predictions
        if p.workload.workload_id == workload.workload_id
    )
    gate = Gate(result.gate, schema)
    scores = gate.bounded(workload.features, said)
    order = [i for i in one.choice.order if i != workload.default_index]
    return {
        "n_ranked": len(order),
        "rank_of_best": order.index(best) + 1 if best in order else None,
        "best_predicted": float(np.exp(scores.gain_log[best])),
        "best_lower": float(np.exp(scores.lower_log[best])),
        "best_valid": float(scores.valid_probability[best]),
        "best_outside": float(gate.outside_share(workload.features[[best]])[0]),
        "pick_predicted": float(np.exp(scores.gain_log[pick])),
        "best_guards": [
            guard.words
            for guard in GUARDS
            if not guard.keeps(workload.features[[best]], schema)[0]
        ],
        "knobs": changed_knobs(workload.configs[pick], workload.configs[best]),
        "contributions": contributions(result, one, pick, best, schema),
    }


def changed_knobs(pick: Config, best: Config) -> list[dict[str, str]]:
    """Knobs whose values differ, as text, in the order of their names."""
    names = sorted(set(pick) | set(best))
    found = [
        {"knob": name, "pick": _text(pick, name), "best": _text(best, name)}
        for name in names
        if pick.get(name) != best.get(name)
    ]
    return found[:N_KNOBS]


def _text(config: Mapping[str, Any], name: str) -> str:
    if name not in config:
        return "unset"
    return json.dumps(config[name], default=str)


def contributions(
    result: FoldResult,
    one: JudgedWorkload,
    pick: int,
    best: int,
    schema: FeatureSchema,
) -> list[dict[str, Any]]:
    """Features that tell pick and best apart in the model's eyes, largest first.

    Shapley values of the ranking trees, whose sum is ln(time / default time), for the
    best less those for the pick. Positive: this feature made the best look slower.

    Source: Lundberg et al., Nature Machine Intelligence 2020 (TreeSHAP in XGBoost).
    """
    if pick == best:
        return []
    forest = result.forest
    ranking = forest.booster[: forest.n_rank_trees]
    rows = one.workload.features[[pick, best]]
    values = ranking.predict(xgboost.DMatrix(rows, nthread=1), pred_contribs=True)
    # The last column is the constant, equal for both.
    moved = np.asarray(values[1] - values[0], np.float64)[:-1]
    largest = np.argsort(-np.abs(moved), kind="stable")[:N_CONTRIBUTIONS]
    return [
        {
            "feature": schema.names[i],
            "unit": schema.units[i],
            "pick": float(rows[0, i]),
            "best": float(rows[1, i]),
            "log_slower": float(moved[i]),
        }
        for i in largest
        if abs(moved[i]) > 0.0
    ]
