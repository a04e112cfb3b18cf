"""One training as MLflow runs: a parent for the campaign, one nested run per fold.

What a run keeps is enough to judge it later without the corpus (`costmodel compare`),
to promote it (`costmodel promote`) and to train it again (its recipe and versions). The
model that ships is never read from here (`training.publish` writes it).

A store that cannot be written raises `TrackingError` and nothing else: callers publish
the model first and print the error.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.training.champion import Standing
from costmodel.training.champion import beats
from costmodel.training.crossfit import FoldResult
from costmodel.training.eval_table import Row
from costmodel.training.eval_table import evaluation_digest
from costmodel.training.eval_table import evaluation_rows
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.mlflow_store import CHALLENGER
from costmodel.training.mlflow_store import CHAMPION
from costmodel.training.mlflow_store import Store
from costmodel.training.mlflow_store import opened
from costmodel.training.mlflow_store import version_of_alias
from costmodel.training.recipe import Recipe
from costmodel.training.run_extra import Extra
from costmodel.training.run_extra import Input
from costmodel.training.run_extra import NestedRun
from costmodel.training.run_files import contents
from costmodel.training.run_files import figures
from costmodel.training.run_numbers import gate_parameters
from costmodel.training.run_numbers import group_metrics
from costmodel.training.run_numbers import numbers_of
from costmodel.training.run_numbers import round_metrics
from costmodel.training.run_numbers import run_tags
from costmodel.training.train import Training

# MLflow's REST limit on metrics per batch.
_BATCH = 1000
# MLflow keeps 36 characters of a dataset digest.
_DIGEST_LENGTH = 36


@dataclass(frozen=True, slots=True)
class Tracked:
    """Where a training was recorded.

    Attributes:
        uri: Of the store, without credentials.
        run_id: MLflow's, of the campaign.
        model_version: Of the registered model, "" where none was registered.
        is_champion: Whether this version got the alias; only a first one does here.
        why: Where it stands against the champion, in words.
    """

    uri: str
    run_id: str
    model_version: str
    is_champion: bool
    why: str


def track(
    training: Training,
    workloads: Sequence[LabelledWorkload],
    *,
    audit_text: str,
    corpus_name: str,
    artifacts: Mapping[str, bytes] | None = None,
    root: Path | str | None = None,
    recipe: Recipe | None = None,
    labels: Mapping[str, str] | None = None,
    extra: Extra | None = None,
) -> Tracked:
    """Record one training as one run with a nested one for each fold.

    Args:
        training: What was trained.
        workloads: What it was trained on.
        audit_text: What was kept and dropped of the logs, for people.
        corpus_name: Name of the dataset.
        artifacts: The published files by name.
        root: Folder of the default store.
        recipe: What was asked for; None means what ships.
        labels: Shapes in words by workload id, for the page.
        extra: What this kind of training adds.

    Raises:
        TrackingError: The store cannot be reached or written.
    """
    recipe = recipe or Recipe(name=training.model.card.name, model=training.settings)
    lost = "the model is not lost, only the record; "
    with opened(root, lost) as store:
        corpus = Input(corpus_name, training.model.card.corpus_digest, workloads)
        rows = evaluation_rows(training.by_family, training.folds)
        files = contents(
            training, workloads, rows, recipe, audit_text, artifacts or {}, labels or {}
        )
        return _track(store, training, corpus, rows, files, recipe, extra or Extra())


def _track(
    store: Store,
    training: Training,
    corpus: Input,
    rows: Sequence[Row],
    files: Iterable[tuple[str, bytes]],
    recipe: Recipe,
    extra: Extra,
) -> Tracked:
    mlflow, card, workloads = store.mlflow, training.model.card, corpus.workloads
    tags = {
        **run_tags(training, evaluation_digest(rows)),
        "recipe_digest": recipe.digest,
        "kind": extra.kind,
        **extra.tags,
    }
    with mlflow.start_run(run_name=f"{card.name} {card.corpus_digest[:12]}") as run:
        run_id = run.info.run_id
        mlflow.set_tags(tags)
        asked = {
            f"recipe.{key}": value for key, value in recipe.as_parameters().items()
        }
        gate = gate_parameters(training)
        mlflow.log_params({**card.parameters, **gate, **asked, **extra.params})
        datasets = [_log_input(mlflow, one) for one in (extra.inputs or (corpus,))]
        _log_metrics(store, run_id, round_metrics(training.curves))
        grouped = group_metrics(rows) | dict(extra.metrics)
        _log_metrics(store, run_id, ((k, 0, v) for k, v in grouped.items()))
        importance = training.model.importance()
        mlflow.log_dict(importance, "evaluation/feature_importance.json")
        _log_files(store, [*files, *extra.files.items()])
        for path, figure in figures(training, workloads, rows, importance):
            mlflow.log_figure(figure, path)
        for path, figure in extra.figures.items():
            mlflow.log_figure(figure, path)
        for fold in training.folds:
            _log_fold(store, run_id, run.info.experiment_id, fold, rows)
        for nested in extra.nested:
            _log_nested(store, run_id, run.info.experiment_id, nested)
        info = _log_model(mlflow, training, workloads, extra.register)
        for name, value in sorted(card.metrics.items()):
            mlflow.log_metric(name, value, model_id=info.model_id, dataset=datasets[0])
        version, won, why = "", False, "not registered: what was kept was there before"
        if extra.register:
            version = str(info.registered_model_version)
            won, why = _stand(store, training, version, tags | {"run_id": run_id})
        mlflow.set_tag("champion", why)
    return Tracked(store.uri, run_id, version, won, why)


def _log_input(mlflow: Any, one: Input) -> Any:
    """Name measurements by their digest, and where their lineage is told."""
    dataset = mlflow.data.from_pandas(
        _frame(one.workloads),
        source=one.name,
        name=one.name,
        targets="log_ratio",
        # MLflow's own digest reads 10,000 rows only; ours covers the corpus.
        digest=one.digest[:_DIGEST_LENGTH],
    )
    # The audit says what of the logs became this corpus and what was dropped.
    mlflow.log_input(dataset, context=one.context, tags={"lineage": "audit.txt"})
    return dataset


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


def _log_metrics(
    store: Store, run_id: str, points: Iterable[tuple[str, int, float]]
) -> None:
    """Write metrics (name, step, value) in as few requests as MLflow takes."""
    now_ms = int(time.time() * 1000)
    metrics = [
        store.mlflow.entities.Metric(name, value, now_ms, step)
        for name, step, value in points
    ]
    for start in range(0, len(metrics), _BATCH):
        store.client.log_batch(run_id, metrics=metrics[start : start + _BATCH])


def _log_files(store: Store, files: Iterable[tuple[str, bytes]]) -> None:
    """Write all files with one call: a server is asked once for each otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files:
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        store.mlflow.log_artifacts(folder)


def _log_fold(
    store: Store,
    parent: str,
    experiment_id: str,
    result: FoldResult,
    rows: Sequence[Row],
) -> None:
    """One nested run: who was left out, errors by round, and what became of them."""
    entities = store.mlflow.entities
    mine = [row for row in rows if row["fold"] == result.fold.name]
    run = store.client.create_run(
        experiment_id,
        run_name=f"fold {result.fold.name}".replace("fold fold", "fold"),
        tags={
            "mlflow.parentRunId": parent,
            "kind": "fold",
            "left_out": ", ".join(sorted({row["family"] for row in mine})),
        },
    )
    run_id = run.info.run_id
    margins = [
        entities.Param(f"gate_margin_{group}", str(margin))
        for group, margin in sorted(result.gate.margin_log.items())
    ]
    n_train = entities.Param("n_train_workloads", str(len(result.fold.train)))
    store.client.log_batch(run_id, params=[n_train, *margins])
    numbers = [(name, 0, value) for name, value in numbers_of(mine).items()]
    _log_metrics(store, run_id, [*round_metrics(result.curves), *numbers])
    store.client.set_terminated(run_id)


def _log_nested(store: Store, parent: str, experiment_id: str, one: NestedRun) -> None:
    tags = {"mlflow.parentRunId": parent, **one.tags}
    run = store.client.create_run(experiment_id, run_name=one.name, tags=tags)
    run_id = run.info.run_id
    params = [store.mlflow.entities.Param(k, v) for k, v in one.params.items()]
    store.client.log_batch(run_id, params=params)
    _log_metrics(store, run_id, ((k, 0, v) for k, v in one.metrics.items()))
    store.client.set_terminated(run_id)


def _log_model(
    mlflow: Any,
    training: Training,
    workloads: Sequence[LabelledWorkload],
    register: bool,
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
        input_example=example,
        # Given, because inferring them starts a fresh interpreter: 3 s instead of 0.7.
        pip_requirements=[
            f"{name}=={versions[name]}" for name in ("xgboost", "numpy", "scikit-learn")
        ],
        registered_model_name=training.model.card.name if register else None,
    )


def _stand(
    store: Store, training: Training, version: str, tags: Mapping[str, str]
) -> tuple[bool, str]:
    """Make this version the challenger; the champion only where there is none.

    Everything later is decided by `costmodel promote`.
    """
    client, name = store.client, training.model.card.name
    mine = Standing.of(training)
    for key, value in {**tags, **mine.as_tags()}.items():
        client.set_model_version_tag(name, version, key, value)
    holder = version_of_alias(store, name, CHAMPION)
    theirs = Standing.from_tags(holder.tags) if holder is not None else None
    won, why = beats(mine, theirs, str(holder.version) if holder is not None else "")
    if holder is None:
        client.set_registered_model_alias(name, CHAMPION, version)
        return True, why
    client.set_registered_model_alias(name, CHALLENGER, version)
    words = why if won else why.replace("not better than", "by totals alone not above")
    return False, f"{words}; `costmodel promote` judges by workload and decides"
