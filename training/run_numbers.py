"""Numbers, tags and versions of one training, flat, as an MLflow run keeps them."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from collections.abc import Sequence

from costmodel.training.eval_table import Row
from costmodel.training.fit import Curves
from costmodel.training.metrics import bootstrap_interval
from costmodel.training.metrics import geomean
from costmodel.training.train import Training

DISTRIBUTION = "helion-costmodel"


def group_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """Metrics by class, family and GPU: `class/matmul/speedup_geomean` and so on."""
    found = {}
    for kind, column in (
        ("class", "kernel_class"),
        ("family", "family"),
        ("gpu", "hardware"),
    ):
        for name in sorted({row[column] for row in rows}):
            some = [row for row in rows if row[column] == name]
            for key, value in numbers_of(some).items():
                found[f"{kind}/{_metric_name(name)}/{key}"] = value
    return found


def numbers_of(rows: Sequence[Row]) -> dict[str, float]:
    """Aggregate of some rows of an evaluation table."""
    n = max(1, len(rows))
    speedups = [row["speedup"] for row in rows]
    low, high = bootstrap_interval(speedups, [row["kernel_digest"] for row in rows])
    return {
        "n_workloads": float(len(rows)),
        "speedup_geomean": geomean(speedups),
        "speedup_low": low,
        "speedup_high": high,
        "speedup_worst": min(speedups, default=1.0),
        "best_geomean": geomean([row["best_speedup"] for row in rows]),
        "ungated_speedup_geomean": geomean([row["ungated_speedup"] for row in rows]),
        "harm_share": sum(row["is_harm"] for row in rows) / n,
        "regret_mean": sum(row["regret"] for row in rows) / n,
        "regret_at_5": sum(row["regret_at_5"] for row in rows) / n,
    }


def _metric_name(name: str) -> str:
    """MLflow allows letters, digits and few signs in names of metrics."""
    return re.sub(r"[^A-Za-z0-9_.\- ]", "_", name)


def round_metrics(curves: Curves) -> Iterator[tuple[str, int, float]]:
    """Error by boosting round, over all and by class, family and GPU.

    Yields:
        Name of the metric, round, value.
    """
    series = {
        "round_train_rmse": curves.train_rmse,
        "round_held_out_rmse": curves.held_out_rmse,
    }
    for (kind, name), curve in curves.groups.items():
        rmse = tuple(value**0.5 for value in curve.mse)
        series[f"{kind}/{_metric_name(name)}/round_held_out_rmse"] = rmse
    for name, values in series.items():
        for step, value in enumerate(values):
            yield name, step, value


def run_tags(training: Training, evaluation: str) -> dict[str, str]:
    """What a run and a model version are found by.

    Args:
        training: What was trained.
        evaluation: Digest of what it was judged on.
    """
    card = training.model.card
    return {
        "git_commit": card.git_commit,
        "schema_hash": card.schema_hash,
        "corpus_digest": card.corpus_digest,
        "evaluation_digest": evaluation,
        "protocol": training.by_family.protocol,
        "model_id": training.model.model_id,
        "hardware": ", ".join(card.hardware),
        "families": ", ".join(card.families),
        "helion_range": helion_range(),
        **{f"version.{name}": found for name, found in card.versions.items()},
    }


def gate_parameters(training: Training) -> dict[str, float]:
    """Numbers of the calibrated gate."""
    gate = training.model.card.gate
    margins = {f"gate_margin_{name}": m for name, m in gate.margin_log.items()}
    return {
        **margins,
        "gate_max_outside": gate.max_outside,
        "gate_min_valid_probability": gate.min_valid_probability,
    }


def helion_range() -> str:
    """Helion versions that this build declares to work with, such as ">=1.4,<1.6"."""
    try:
        needs = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
    for need in needs:
        found = re.match(r"helion\s*([<>=!~][^;]*)", need)
        if found:
            return found.group(1).strip()
    return "unknown"


def versions_lock() -> str:
    """Every installed distribution as `name==version`, sorted: what made the model."""
    found = {
        (one.metadata["Name"] or "").lower(): one.version
        for one in importlib.metadata.distributions()
    }
    return "".join(f"{name}=={found[name]}\n" for name in sorted(found) if name)
