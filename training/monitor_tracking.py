"""A look for drift as one MLflow run, so that its values make a line over time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.training.mlflow_store import opened

KIND = "monitor"


def track_checks(
    metrics: Mapping[str, float],
    facts: Mapping[str, Any],
    root: Path | str | None = None,
) -> str:
    """Record the values of the checks; returns MLflow's run id.

    Args:
        metrics: By name.
        facts: Everything, kept as an artifact.
        root: Folder of the default store.

    Raises:
        TrackingError: The store cannot be reached or written.
    """
    with opened(root, "only the record of this look is lost; ") as store:
        mlflow = store.mlflow
        with mlflow.start_run(run_name=f"monitor {facts['model_id']}") as run:
            mlflow.set_tags({"kind": KIND, "model_id": facts["model_id"]})
            mlflow.log_metrics(dict(metrics))
            mlflow.log_dict(dict(facts), "monitor.json")
            return str(run.info.run_id)
