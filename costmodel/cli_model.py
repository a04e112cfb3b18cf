"""Commands about models: train, evaluate, ui."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from costmodel.cli_data import TABLE_WIDTH_COLUMNS
from costmodel.cli_data import load
from costmodel.cli_data import show_audit
from costmodel.cli_engine import fitter_of
from costmodel.cli_engine import given
from costmodel.cli_extra import extra_of
from costmodel.cli_measured import audit_text
from costmodel.cli_measured import git_commit
from costmodel.cli_pairs import publish_pair_model
from costmodel.cli_recipe import recipe_of
from costmodel.cli_record import recorded
from costmodel.cli_record import show_recorded
from costmodel.datasets.record import RecordedRun
from costmodel.datasets.store import is_corpus
from costmodel.errors import RecipeError
from costmodel.features.schema import SCHEMA
from costmodel.learned import LearnedModel
from costmodel.rebuild import rebuild_default
from costmodel.training.evaluate import evaluate_logs
from costmodel.training.mlflow_store import ui_command
from costmodel.training.plan import fixed_folds
from costmodel.training.plan import selected
from costmodel.training.publish import publish
from costmodel.training.recipe import is_recipe
from costmodel.training.table import show
from costmodel.training.train import Training
from costmodel.training.train import train as train_model
from costmodel.types import Config

# Runs between two lines of progress: about ten seconds of binding.
PROGRESS_STEP = 20


def train(arguments: argparse.Namespace) -> int:
    """Train, judge on families left out, publish, and record in MLflow."""
    if arguments.base or arguments.logs:
        return _fine_tune(arguments)
    recipe = recipe_of(arguments)
    found = given(arguments, recipe)
    measured, skipped = found.measured, found.skipped
    if not arguments.json and not all(is_corpus(Path(one)) for one in measured.paths):
        # What a corpus was made from was shown when it was imported.
        show_audit(measured.audit)
    workloads = selected(recipe, found.workloads)
    print(
        f"training on {len(workloads)} workloads "
        f"({sum(one.n_rows for one in workloads)} configs) ...",
        file=sys.stderr,
    )
    with fitter_of(arguments, recipe) as fitter:
        training = train_model(
            workloads,
            SCHEMA,
            measured.digest,
            settings=recipe.model,
            name=recipe.name,
            git_commit=git_commit(),
            compiled=found.compiled,
            folds=fixed_folds(recipe, workloads),
            limits=recipe.gate,
            code_settings=recipe.second_stage,
            fitter=fitter,
        )
    # Published before it is tracked: a dead tracking server must not cost the model.
    path = publish(training, arguments.output)
    extra = extra_of(training, workloads, recipe, path.parent)
    facts = _facts(training, path, measured.digest)
    facts |= publish_pair_model(measured.recorded, path)
    if not arguments.no_track:
        audit = audit_text(measured.audit, skipped)
        facts |= recorded(training, workloads, measured, audit, path, recipe, extra)
    if arguments.json:
        print(json.dumps(facts, indent=2))
        return 0
    _show_training(training, facts)
    return 0


def _fine_tune(arguments: argparse.Namespace) -> int:
    """`train --base bundled --logs mine/`: the same as `fine-tune mine/`."""
    from costmodel.cli_fine_tune import BUNDLED
    from costmodel.cli_fine_tune import run_fine_tune
    from costmodel.cli_fine_tune import tuned_recipe
    from costmodel.training.fine_tune import WEIGHTS

    named = [one for one in arguments.data if is_recipe(one)]
    if arguments.recipe is not None:
        named.append(arguments.recipe)
    if not arguments.logs or len(named) > 1 or len(named) < len(arguments.data):
        raise RecipeError(
            "expected --logs with your own measurements, --base with what to start "
            "from, and at most one recipe: costmodel train --base bundled --logs mine/"
        )
    return run_fine_tune(
        arguments.logs,
        arguments.base or [BUNDLED],
        tuned_recipe(named[0] if named else None, arguments.name, arguments.seed),
        Path(arguments.output),
        weights=WEIGHTS,
        is_tracked=not arguments.no_track,
        as_json=arguments.json,
    )


def _facts(training: Training, path: Path, corpus_digest: str) -> dict[str, Any]:
    return {
        "model": str(path),
        "model_id": training.model.model_id,
        "corpus_digest": corpus_digest,
        "n_workloads": training.model.card.n_workloads,
        "families": list(training.model.card.families),
        "metrics": training.by_family.metrics(),
    }


def _show_training(training: Training, facts: dict[str, Any]) -> None:
    console = Console(width=TABLE_WIDTH_COLUMNS + 40)
    show(training.by_family, console)
    show(training.by_shape, console)
    print(f"published: {facts['model']} (model {facts['model_id']})")
    show_recorded(facts)


def evaluate(arguments: argparse.Namespace) -> int:
    """Judge a model on any Helion logs: pick among the attempts of each run."""
    model = LearnedModel.load(arguments.model)
    loaded = load(
        arguments.logs,
        baseline=arguments.baseline,
        recompute=_Recompute(),
    )
    report = evaluate_logs(loaded.clean_runs, model, arguments.baseline)
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        _show_report(report)
    return 0


class _Recompute:
    """Recomputes defaults of runs that do not say theirs, and says so on stderr.

    Each takes the time of binding the kernel, up to a second, so that a folder of
    hundreds would otherwise be silent for minutes.
    """

    def __init__(self) -> None:
        self._n_done = 0

    def __call__(self, run: RecordedRun) -> Config | None:
        if run.record is None:
            return None
        self._n_done += 1
        if self._n_done % PROGRESS_STEP == 0:
            words = f"recomputing Helion's defaults: {self._n_done} runs so far"
            print(words, file=sys.stderr)
        scalars = None if run.side is None else dict(run.side.scalars)
        return rebuild_default(run.record, scalars)


def _show_report(report: dict[str, Any]) -> None:
    console = Console(width=TABLE_WIDTH_COLUMNS + 40)
    table = Table(title="Picks among the attempts of each run", title_justify="left")
    table.add_column("log")
    table.add_column("kernel")
    for name in ("default ms", "pick ms", "best ms", "speed-up", "regret"):
        table.add_column(name, justify="right")
    table.add_column("by")
    table.add_column("why")
    for row in report["workloads"]:
        table.add_row(
            row["log"],
            row["kernel"],
            *(_number(row[name], 4) for name in ("default_ms", "pick_ms", "best_ms")),
            _number(row["speedup"], 3) + ("!" if row.get("is_harm") else ""),
            "" if row["regret"] is None else f"{row['regret']:.1%}",
            row["source"],
            row["detail"],
        )
    console.print(table)
    for name, value in report["aggregate"].items():
        console.print(f"{name}: {value}", highlight=False)


def _number(value: float | None, digits: int) -> str:
    return "failed" if value is None else f"{value:.{digits}f}"


def ui(arguments: argparse.Namespace) -> int:
    """Start MLflow's page on this project's store, until interrupted."""
    command = [*ui_command().split(), "--port", str(arguments.port)]
    print(f"starting: {' '.join(command)}", file=sys.stderr)
    print(f"open http://127.0.0.1:{arguments.port} (ready in about 20 s)")
    sys.stdout.flush()
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true"}
    return subprocess.call([sys.executable, "-m", *command], env=environment)
