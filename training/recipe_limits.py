"""Numbers that a recipe may hold: what the fit and the gate can work with at all."""

from __future__ import annotations

import math

from costmodel.errors import RecipeError

# XGBoost takes seeds below 2^31, and ours is multiplied by 1000 with a bag added.
_MAX_SEED = 2_000_000
_MANY = 100_000
_SHARE = (0.0, 1.0)

# Smallest and largest value by key; any other number is at least 0.
_LIMITS: dict[str, tuple[float, float]] = {
    "model.n_bags": (1, 1000),
    "model.n_trees": (1, _MANY),
    "model.n_validity_trees": (1, _MANY),
    "model.max_depth": (1, 30),
    "model.learning_rate": (1e-6, 1.0),
    "model.column_share": (1e-6, 1.0),
    "model.max_bin": (2, 65_536),
    "model.n_references": (2, _MANY),
    "model.pair_share": _SHARE,
    "model.seed": (0, _MAX_SEED),
    "second_stage.n_bags": (1, 1000),
    "second_stage.n_trees": (1, _MANY),
    "second_stage.max_depth": (1, 30),
    "second_stage.learning_rate": (1e-6, 1.0),
    "second_stage.column_share": (1e-6, 1.0),
    "second_stage.row_share": (1e-6, 1.0),
    "second_stage.min_workloads": (2, math.inf),
    "second_stage.seed": (0, _MAX_SEED),
    "report.extra_seeds": (0, 1000),
    "gate.max_harm_share": _SHARE,
    "gate.worst_speedup": _SHARE,
    "gate.min_valid_probability": _SHARE,
    "gate.min_outside_limit": _SHARE,
    "gate.max_outside_limit": _SHARE,
    "gate.tail_scales": (0.0, 100.0),
    "gate.prior_workloads": (1e-6, math.inf),
    "bounds.max_harm_share": _SHARE,
    "bounds.max_class_harm_share": _SHARE,
    "scale.batch_rows": (1000, math.inf),
}


def check_number(name: str, value: float, where: str) -> None:
    """Refuse what nothing can be trained with.

    Args:
        name: Such as "model.n_trees".
        value: What the recipe says.
        where: Where it is from, for errors.

    Raises:
        RecipeError: Not a finite number, or out of its limits.
    """
    low, high = _LIMITS.get(name, (0.0, math.inf))
    if name.startswith("bounds.classes."):
        low, high = _SHARE
    if math.isfinite(value) and low <= value <= high:
        return
    wanted = f"at least {low:g}" if high == math.inf else f"{low:g} to {high:g}"
    raise RecipeError(f"{where}: expected {name} to be {wanted}, found {value}")
