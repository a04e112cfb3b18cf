"""The files of one run: tables, plots, recipe, versions, golden rows and the model."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from matplotlib.figure import Figure

from costmodel.training import plots
from costmodel.training import run_plots
from costmodel.training.eval_table import Row
from costmodel.training.eval_table import to_html
from costmodel.training.eval_table import to_parquet
from costmodel.training.eval_table import worst
from costmodel.training.golden_rows import golden_rows
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.mlflow_store import Store
from costmodel.training.page import page
from costmodel.training.page_data import Json
from costmodel.training.page_data import page_data
from costmodel.training.recipe import Recipe
from costmodel.training.recipe_text import as_toml
from costmodel.training.run_numbers import versions_lock
from costmodel.training.table import as_text
from costmodel.training.train import Training

TABLE = "evaluation/leave_one_family_out.parquet"
RECIPE = "recipe/recipe.toml"
GOLDEN = "golden/rows.parquet"
PUBLISHED = "published"
PAGE = "evaluation/report.html"


def contents(
    training: Training,
    workloads: Sequence[LabelledWorkload],
    rows: Sequence[Row],
    recipe: Recipe,
    audit_text: str,
    published: Mapping[str, bytes],
    labels: Mapping[str, str],
) -> Iterator[tuple[str, bytes]]:
    """Every file but the plots: path in the run and content."""
    by_family, by_shape = training.by_family, training.by_shape
    yield "audit.txt", audit_text.encode()
    yield "model_card.json", training.model.card.to_json().encode()
    yield RECIPE, as_toml(recipe).encode()
    if recipe.text:
        yield "recipe/as_given.toml", recipe.text.encode()
    yield "recipe/versions.txt", versions_lock().encode()
    yield "evaluation/leave_one_family_out.txt", as_text(by_family).encode()
    yield "evaluation/leave_one_shape_out.txt", as_text(by_shape).encode()
    yield TABLE, to_parquet(rows)
    yield TABLE.replace(".parquet", ".html"), to_html(rows, by_family.protocol).encode()
    bad = to_html(worst(rows), f"Worst picks, {by_family.protocol}")
    yield "evaluation/worst_picks.html", bad.encode()
    yield PAGE, page(_page_numbers(training, labels)).encode()
    yield GOLDEN, golden_rows(training.model, workloads)
    for name, content in published.items():
        yield f"{PUBLISHED}/{name}", content


def _page_numbers(training: Training, labels: Mapping[str, str]) -> Json:
    """What `costmodel report` would show of the same folds."""
    card = training.model.card
    return page_data(
        training.by_family,
        training.folds,
        training.model.schema,
        corpus_digest=card.corpus_digest,
        labels=labels,
        facts={"commit": card.git_commit, "model": training.model.model_id},
    )


def figures(
    training: Training,
    workloads: Sequence[LabelledWorkload],
    rows: Sequence[Row],
    importance: Mapping[str, float],
) -> Iterator[tuple[str, Figure]]:
    """Every plot: path in the run and figure."""
    by_family = training.by_family
    yield "plots/speedup.png", plots.speedup_figure(by_family)
    yield "plots/regret.png", plots.regret_figure(by_family)
    yield "plots/regret_cdf.png", run_plots.regret_cdf_figure(rows)
    yield "plots/importance.png", plots.importance_figure(importance)
    predictions = [one for fold in training.folds for one in fold.predictions]
    if predictions:
        gains = run_plots.gain_calibration(predictions)
        figure = run_plots.calibration_figure(gains, "gain", "log ratio")
        yield "plots/gain_calibration.png", figure
        runs = run_plots.validity_calibration(predictions)
        figure = run_plots.calibration_figure(runs, "validity", "share")
        yield "plots/validity_calibration.png", figure
    dependence = run_plots.dependence_figure(training.model, workloads)
    yield "plots/partial_dependence.png", dependence


def artifact(store: Store, run_id: str, path: str) -> bytes:
    """One file of a run.

    Raises:
        MlflowException: The run has none.
    """
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        found = store.mlflow.artifacts.download_artifacts(
            run_id=run_id, artifact_path=path, dst_path=folder
        )
        return Path(found).read_bytes()
