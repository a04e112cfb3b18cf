"""What a training keeps that costs fits of its own: learning curve, other seeds."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from costmodel.atomic_file import write_atomically
from costmodel.features.schema import SCHEMA
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.learning_curve import learning_curve
from costmodel.training.learning_curve import learning_figure
from costmodel.training.recipe import Recipe
from costmodel.training.run_extra import Extra
from costmodel.training.seed_runs import other_seeds
from costmodel.training.train import Training


def extra_of(
    training: Training,
    workloads: Sequence[LabelledWorkload],
    recipe: Recipe,
    folder: Path,
) -> Extra:
    """What the recipe's [report] asks for; the curve also lies beside the model."""
    extra = Extra()
    if recipe.report.extra_seeds:
        extra = other_seeds(
            training,
            workloads,
            SCHEMA,
            recipe.model,
            recipe.gate,
            recipe.report.extra_seeds,
            _say,
        )
        for name, value in extra.metrics.items():
            _say(f"{name}: {value:.4f}")
    if recipe.report.learning_curve:
        points = learning_curve(
            workloads,
            training.folds,
            training.by_family,
            SCHEMA,
            recipe.model,
            recipe.gate,
            say=_say,
        )
        figure = learning_figure(points)
        figure.savefig(folder / "learning_curve.png")
        content = json.dumps([dataclasses.asdict(one) for one in points], indent=1)
        write_atomically(folder / "learning_curve.json", content + "\n")
        extra = dataclasses.replace(
            extra,
            files={"evaluation/learning_curve.json": content.encode()},
            figures={"plots/learning_curve.png": figure},
        )
    return extra


def _say(line: str) -> None:
    print(line, file=sys.stderr)
