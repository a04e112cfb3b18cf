"""Record a training in MLflow from the command line: never at the model's expense."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodel.acf.pair_model import pair_model_path
from costmodel.cli_measured import Measured
from costmodel.code_model import code_model_path
from costmodel.errors import TrackingError
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.page_data import shape_labels
from costmodel.training.recipe import Recipe
from costmodel.training.run_extra import Extra
from costmodel.training.tracking import track
from costmodel.training.train import Training


def recorded(
    training: Training,
    workloads: Sequence[LabelledWorkload],
    measured: Measured,
    audit: str,
    path: Path,
    recipe: Recipe,
    extra: Extra | None = None,
) -> dict[str, Any]:
    """Record a published training; where that fails, one line on stderr says so.

    Args:
        training: What was trained.
        workloads: What it was trained on.
        measured: Where they are from.
        audit: What was kept and dropped of it.
        path: Of the published model.
        recipe: What was asked for.
        extra: What this kind of training adds.

    Returns:
        Where it was recorded, for the answer; empty where it was not.
    """
    try:
        tracked = track(
            training,
            workloads,
            audit_text=audit,
            corpus_name=measured.name,
            artifacts=published_files(path),
            recipe=recipe,
            labels=shape_labels(measured.recorded),
            extra=extra,
        )
    except TrackingError as error:
        print(f"costmodel: {error}", file=sys.stderr)
        return {}
    except KeyboardInterrupt:
        # Training is deterministic, so that a second time gives the same model.
        print(
            f"costmodel: {path} is published, and not recorded in MLflow: the same "
            "command again makes the same model and records it",
            file=sys.stderr,
        )
        raise
    return {
        "mlflow_uri": tracked.uri,
        "mlflow_run": tracked.run_id,
        "model_version": tracked.model_version,
        "champion": tracked.is_champion,
        "champion_why": tracked.why,
    }


def published_files(path: Path) -> dict[str, bytes]:
    """Files of a published model: its second stage and its model of pairs, too."""
    trees = (path, code_model_path(path), pair_model_path(path))
    files = [one for tree in trees for one in (tree, tree.with_suffix(".json"))]
    return {file.name: file.read_bytes() for file in files if file.exists()}


def show_recorded(facts: Mapping[str, Any]) -> None:
    """Say where a training was recorded, if it was."""
    if "mlflow_run" not in facts:
        return
    print(f"MLflow: run {facts['mlflow_run']} in {facts['mlflow_uri']}")
    if not facts["model_version"]:
        print(facts["champion_why"])
        return
    print(
        f"registered: version {facts['model_version']}, "
        f"{'champion' if facts['champion'] else 'challenger'}: "
        f"{facts['champion_why']}"
    )
