"""Everything MLflow, in one place: one run per training, and who is champion.

The store is `sqlite:///mlruns/mlflow.db` under the current folder, with artifacts under
`mlruns/` beside it; `MLFLOW_TRACKING_URI` wins, so that a team's server needs no change
of code. MLflow keeps absolute artifact paths in its database, so a moved store is a new
store, and the model that ships is never read from here (`training.publish` writes it).

A store that cannot be written raises `TrackingError` and nothing else: callers publish
the model first and print the error.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from costmodel.errors import TrackingError
from costmodel.training import plots
from costmodel.training.champion import Standing
from costmodel.training.champion import beats
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.table import as_text
from costmodel.training.train import Training

if TYPE_CHECKING:
    import mlflow

# Telemetry is on by default in MLflow 3; a build tool must not phone home.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")
# By default MLflow asks a dead server for minutes before it gives up.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")

EXPERIMENT = "helion-costmodel"
URI_VARIABLE = "MLFLOW_TRACKING_URI"
DEFAULT_STORE = "mlruns/mlflow.db"
CHAMPION = "champion"

# MLflow's REST limit on metrics per batch.
_BATCH = 1000
# MLflow keeps 36 characters of a dataset digest.
_DIGEST_LENGTH = 36


@dataclass(frozen=True, slots=True)
class Tracked:
    """Where a training was recorded.

    Attributes:
        uri: Of the store.
        run_id: MLflow's.
        model_version: Of the registered model.
        is_champion: Whether this version got the alias.
        why: The reason, in words.
    """

    uri: str
    run_id: str
    model_version: str
    is_champion: bool
    why: str


def tracking_uri(root: Path | str | None = None) -> str:
    """The store: `MLFLOW_TRACKING_URI`, else a database under `root` (None: here)."""
    chosen = os.environ.get(URI_VARIABLE)
    if chosen:
        return chosen
    folder = Path(root) if root is not None else Path()
    return f"sqlite:///{(folder / DEFAULT_STORE).as_posix()}"


def ui_command(root: Path | str | None = None) -> str:
    """A command line that opens the store in a browser."""
    return f"mlflow ui --backend-store-uri {tracking_uri(root)}"


def track(
    training: Training,
    workloads: Sequence[LabelledWorkload],
    *,
    audit_text: str,
    corpus_name: str,
    artifacts: Mapping[str, bytes] | None = None,
    root: Path | str | None = None,
) -> Tracked:
    """Record one training as one run.

    Args:
        training: What was trained.
        workloads: What it was trained on.
        audit_text: What was kept and dropped of the logs, for people.
        corpus_name: Name of the dataset.
        artifacts: Further files by name, such as the published pair.
        root: Folder of the default store.

    Raises:
        TrackingError: The store cannot be reached or written.
    """
    uri = tracking_uri(root)
    artifact_folder = None
    if URI_VARIABLE not in os.environ:
        folder = Path(root) if root is not None else Path()
        artifact_folder = (folder / DEFAULT_STORE).parent.absolute()
    given = os.environ.get(URI_VARIABLE)
    try:
        with _quiet():
            return _track(
                training,
                workloads,
                audit_text,
                corpus_name,
                artifacts or {},
                uri,
                artifact_folder,
            )
    except Exception as error:
        # MLflow, SQLAlchemy, alembic and the network raise dozens of types here; none
        # of them may cost the user a trained model.
        raise TrackingError(
            f"expected an MLflow store at {uri}, found {type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}: the model is not lost, only the "
            f"record; set {URI_VARIABLE} to a store that can be written"
        ) from error
    finally:
        # MLflow writes the URI into the environment, where the next call would take it
        # for the user's wish.
        if given is None:
            os.environ.pop(URI_VARIABLE, None)


def _track(
    training: Training,
    workloads: Sequence[LabelledWorkload],
    audit_text: str,
    corpus_name: str,
    artifacts: Mapping[str, bytes],
    uri: str,
    artifact_folder: Path | None,
) -> Tracked:
    mlflow = _mlflow()
    if artifact_folder is not None:
        artifact_folder.mkdir(parents=True, exist_ok=True)
    mlflow.set_tracking_uri(uri)
    if artifact_folder and mlflow.get_experiment_by_name(EXPERIMENT) is None:
        # Named, because MLflow would put them under the current folder's `mlruns`.
        location = (artifact_folder / "artifacts").as_uri()
        mlflow.create_experiment(EXPERIMENT, artifact_location=location)
    mlflow.set_experiment(EXPERIMENT)
    card = training.model.card
    with mlflow.start_run(run_name=f"{card.name} {card.corpus_digest[:12]}") as run:
        mlflow.set_tags(_tags(training))
        mlflow.log_params({**card.parameters, **_gate_parameters(training)})
        dataset = mlflow.data.from_pandas(
            _frame(workloads),
            source=corpus_name,
            name=corpus_name,
            targets="log_ratio",
            # MLflow's own digest reads 10,000 rows only; ours covers the corpus.
            digest=card.corpus_digest[:_DIGEST_LENGTH],
        )
        mlflow.log_input(dataset, context="training")
        _log_curves(mlflow, run.info.run_id, training)
        _log_files(mlflow, training, audit_text, artifacts)
        info = _log_model(mlflow, training, workloads)
        for name, value in sorted(card.metrics.items()):
            mlflow.log_metric(name, value, model_id=info.model_id, dataset=dataset)
        version = str(info.registered_model_version)
        won, why = _crown(mlflow, training, version)
        mlflow.set_tag("champion", why)
    return Tracked(uri, run.info.run_id, version, won, why)


def _mlflow() -> Any:
    """MLflow, imported late because it costs seconds, and told to be quiet."""
    import mlflow
    import mlflow.xgboost

    # After the import, which sets them.
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return mlflow


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep MLflow's chatter on stderr and its warnings from hiding our one line."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _tags(training: Training) -> dict[str, str]:
    card = training.model.card
    return {
        "git_commit": card.git_commit,
        "schema_hash": card.schema_hash,
        "corpus_digest": card.corpus_digest,
        "protocol": training.by_family.protocol,
        "model_id": training.model.model_id,
        "hardware": ", ".join(card.hardware),
        "families": ", ".join(card.families),
        **{f"version.{name}": found for name, found in card.versions.items()},
    }


def _gate_parameters(training: Training) -> dict[str, float]:
    gate = training.model.card.gate
    margins = {f"gate_margin_{name}": m for name, m in gate.margin_log.items()}
    return {
        **margins,
        "gate_max_outside": gate.max_outside,
        "gate_min_valid_probability": gate.min_valid_probability,
    }


def _frame(workloads: Sequence[LabelledWorkload]) -> Any:
    """The labels as a table; features stay out, they follow from the schema hash."""
    import pandas

    columns: dict[str, list[object]] = {
        name: []
        for name in (
            "workload_id",
            "kernel",
            "family",
            "config_id",
            "is_ok",
            "log_ratio",
        )
    }
    for one in workloads:
        columns["workload_id"] += [one.workload_id] * one.n_rows
        columns["kernel"] += [one.kernel] * one.n_rows
        columns["family"] += [one.family] * one.n_rows
        columns["config_id"] += one.config_ids
        columns["is_ok"] += one.is_ok.tolist()
        columns["log_ratio"] += one.log_ratio.tolist()
    return pandas.DataFrame(columns)


def _log_curves(mlflow: Any, run_id: str, training: Training) -> None:
    now_ms = int(time.time() * 1000)
    curves = {
        "round_train_rmse": training.curves.train_rmse,
        "round_held_out_rmse": training.curves.held_out_rmse,
    }
    metrics = [
        mlflow.entities.Metric(name, value, now_ms, step)
        for name, curve in curves.items()
        for step, value in enumerate(curve)
    ]
    client = mlflow.MlflowClient()
    for start in range(0, len(metrics), _BATCH):
        client.log_batch(run_id, metrics=metrics[start : start + _BATCH])


def _log_files(
    mlflow: Any, training: Training, audit_text: str, artifacts: Mapping[str, bytes]
) -> None:
    mlflow.log_text(audit_text, "audit.txt")
    mlflow.log_text(as_text(training.by_family), "evaluation/leave_one_family_out.txt")
    mlflow.log_text(as_text(training.by_shape), "evaluation/leave_one_shape_out.txt")
    importance = training.model.importance()
    mlflow.log_dict(importance, "evaluation/feature_importance.json")
    by_family = training.by_family
    mlflow.log_figure(plots.speedup_figure(by_family), "plots/speedup.png")
    mlflow.log_figure(plots.regret_figure(by_family), "plots/regret.png")
    mlflow.log_figure(plots.importance_figure(importance), "plots/importance.png")
    mlflow.log_text(training.model.card.to_json(), "model_card.json")
    with tempfile.TemporaryDirectory() as folder:
        for name, content in artifacts.items():
            path = Path(folder) / name
            path.write_bytes(content)
            mlflow.log_artifact(str(path), "published")


def _log_model(
    mlflow: Any, training: Training, workloads: Sequence[LabelledWorkload]
) -> Any:
    """Log the ranking trees alone: their sum is ln(time / default time)."""
    import pandas

    names = list(training.model.card.feature_names)
    ranker = training.model.ranker()
    ranker.feature_names = names
    example = pandas.DataFrame(workloads[0].features[:3], columns=names)
    output = ranker.inplace_predict(example.to_numpy(), validate_features=False)
    versions = training.model.card.versions
    return mlflow.xgboost.log_model(
        ranker,
        name="ranker",
        signature=mlflow.models.infer_signature(example, output),
        # Given, because inferring them starts a fresh interpreter: 3 s instead of 0.7.
        pip_requirements=[
            f"{name}=={versions[name]}" for name in ("xgboost", "numpy", "scikit-learn")
        ],
        registered_model_name=training.model.card.name,
    )


def _crown(mlflow: Any, training: Training, version: str) -> tuple[bool, str]:
    """Give the alias if this version beats the one that has it."""
    client = mlflow.MlflowClient()
    name = training.model.card.name
    mine = Standing.of(training)
    for key, value in mine.as_tags().items():
        client.set_model_version_tag(name, version, key, value)
    holder = _holder(mlflow, client, name)
    theirs = Standing.from_tags(holder.tags) if holder is not None else None
    won, why = beats(mine, theirs, holder.version if holder is not None else "")
    if won:
        client.set_registered_model_alias(name, CHAMPION, version)
    return won, why


def _holder(mlflow: Any, client: mlflow.MlflowClient, name: str) -> Any:
    """The version with the alias, or None."""
    aliases = client.get_registered_model(name).aliases
    if CHAMPION not in aliases:
        return None
    return client.get_model_version(name, str(aliases[CHAMPION]))
