"""Many boosters into one: concatenate their trees, scaled.

XGBoost sums trees, so an average of boosters is one booster with all their trees and
each leaf scaled. XGBoost offers slicing but no joining; its JSON model format is
documented and stable, so joining is done there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import xgboost


def merged(
    parts: Sequence[tuple[xgboost.Booster, float]], attributes: dict[str, str]
) -> xgboost.Booster:
    """Join boosters into one whose margin is the weighted sum of theirs.

    Args:
        parts: Boosters of equal width and base score 0, each with its weight.
        attributes: String attributes to store with the trees.

    Returns:
        A booster with the trees of all parts, in order.
    """
    models = [
        json.loads(bytes(booster.save_raw("json")))["learner"] for booster, _ in parts
    ]
    trees: list[dict[str, Any]] = []
    for model, (_, weight) in zip(models, parts, strict=True):
        for tree in model["gradient_booster"]["model"]["trees"]:
            _scale_leaves(tree, weight)
            tree["id"] = len(trees)
            trees.append(tree)
    whole = json.loads(bytes(parts[0][0].save_raw("json")))
    forest = whole["learner"]["gradient_booster"]["model"]
    forest["trees"] = trees
    forest["tree_info"] = [0] * len(trees)
    forest["iteration_indptr"] = list(range(len(trees) + 1))
    forest["gbtree_model_param"]["num_trees"] = str(len(trees))
    joined = xgboost.Booster()
    joined.load_model(bytearray(json.dumps(whole).encode()))
    joined.set_attr(**attributes)
    return joined


def _scale_leaves(tree: dict[str, Any], weight: float) -> None:
    """Scale a tree's leaf values, which XGBoost keeps in `split_conditions`."""
    for node, left_child in enumerate(tree["left_children"]):
        if left_child == -1:
            tree["split_conditions"][node] *= weight
            tree["base_weights"][node] *= weight
