"""Commands about models: train, evaluate, ui."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from costmodel.cli_data import TABLE_WIDTH_COLUMNS
from costmodel.cli_data import load
from costmodel.cli_data import report_unusable_runs
from costmodel.cli_data import show_audit
from costmodel.cli_recipe import recipe_of
from costmodel.code_model import code_model_path
from costmodel.datasets.audit import Audit
from costmodel.datasets.audit_file import read_audit
from costmodel.datasets.compiled_table import CompiledTable
from costmodel.datasets.identity import digest_of
from costmodel.datasets.record import RecordedRun
from costmodel.datasets.store import Corpus
from costmodel.datasets.store import is_corpus
from costmodel.datasets.store_schema import run_key
from costmodel.datasets.workload_data import WorkloadData
from costmodel.errors import NotEnoughDataError
from costmodel.errors import TrackingError
from costmodel.features.schema import SCHEMA
from costmodel.learned import LearnedModel
from costmodel.rebuild import rebuild_default
from costmodel.training.code_stage import CompiledRuns
from costmodel.training.evaluate import evaluate_logs
from costmodel.training.label import label_all
from costmodel.training.label import labelled_id
from costmodel.training.mlflow_store import ui_command
from costmodel.training.plan import fixed_folds
from costmodel.training.plan import selected
from costmodel.training.publish import publish
from costmodel.training.table import show
from costmodel.training.tracking import track
from costmodel.training.train import Training
from costmodel.training.train import train as train_model
from costmodel.types import Config

# Runs between two lines of progress: about ten seconds of binding.
PROGRESS_STEP = 20


def _compiled(
    paths: Sequence[str], recorded: Sequence[WorkloadData]
) -> CompiledRuns | None:
    """What a compiler made of the corpora's configs, if they hold that."""
    table = CompiledTable([])
    for path in paths:
        if is_corpus(Path(path)):
            table = table.merged(CompiledTable.load(path))
    if not len(table):
        return None
    run_ids = {labelled_id(one): one.run_id for one in recorded}
    return CompiledRuns(table, run_ids, table.toolchains)


def _recorded(paths: Sequence[str]) -> tuple[list[WorkloadData], str, Audit]:
    """Workloads of corpora and logs, one digest over all, and what was dropped."""
    workloads: list[WorkloadData] = []
    keys: list[str] = []
    audit = Audit()
    logs = []
    for path in paths:
        if is_corpus(Path(path)):
            corpus = Corpus.load(path)
            audit.extend(read_audit(path))
            workloads += corpus.workloads()
            keys += corpus.runs["run_key"].to_pylist()
        else:
            logs.append(path)
    if logs:
        loaded = load(logs)
        report_unusable_runs(loaded)
        audit.extend(loaded.audit)
        for run in loaded.usable:
            data = WorkloadData.from_clean_run(run)
            if data.has_graph:
                workloads.append(data)
                keys.append(run_key(run))
    return workloads, digest_of(sorted(set(keys)), 64), audit


def train(arguments: argparse.Namespace) -> int:
    """Train, judge on families left out, publish, and record in MLflow."""
    recipe = recipe_of(arguments)
    arguments.data = list(recipe.data.paths)
    recorded, corpus_digest, audit = _recorded(arguments.data)
    if not arguments.json and not all(is_corpus(Path(one)) for one in arguments.data):
        # What a corpus was made from was shown when it was imported.
        show_audit(audit)
    labelled = label_all(recorded)
    for reason in labelled.skipped:
        print(f"costmodel: left out: {reason}", file=sys.stderr)
    if not labelled.workloads:
        raise NotEnoughDataError(
            f"{', '.join(arguments.data)}: expected workloads to train on, found none "
            "that can be used: see `costmodel audit`"
        )
    workloads = selected(recipe, labelled.workloads)
    print(
        f"training on {len(workloads)} workloads "
        f"({sum(one.n_rows for one in workloads)} configs) ...",
        file=sys.stderr,
    )
    training = train_model(
        workloads,
        SCHEMA,
        corpus_digest,
        settings=recipe.model,
        name=recipe.name,
        git_commit=_git_commit(),
        compiled=_compiled(arguments.data, recorded),
        folds=fixed_folds(recipe, workloads),
        limits=recipe.gate,
    )
    # Published before it is tracked: a dead tracking server must not cost the model.
    path = publish(training, arguments.output)
    tracked = None
    if not arguments.no_track:
        try:
            tracked = track(
                training,
                workloads,
                audit_text=_audit_text(audit, labelled.skipped),
                corpus_name=" ".join(Path(one).name for one in arguments.data),
                artifacts=_published(path),
                recipe=recipe,
            )
        except TrackingError as error:
            print(f"costmodel: {error}", file=sys.stderr)
    facts = _facts(training, path, corpus_digest)
    if tracked is not None:
        facts |= {
            "mlflow_uri": tracked.uri,
            "mlflow_run": tracked.run_id,
            "model_version": tracked.model_version,
            "champion": tracked.is_champion,
            "champion_why": tracked.why,
        }
    if arguments.json:
        print(json.dumps(facts, indent=2))
        return 0
    _show_training(training, facts)
    return 0


def _published(path: Path) -> dict[str, bytes]:
    """Files of a published model, those of its second stage included."""
    trees = (path, code_model_path(path))
    files = [one for tree in trees for one in (tree, tree.with_suffix(".json"))]
    return {file.name: file.read_bytes() for file in files if file.exists()}


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
    if "mlflow_run" in facts:
        print(f"MLflow: run {facts['mlflow_run']} in {facts['mlflow_uri']}")
        print(
            f"registered: version {facts['model_version']}, "
            f"{'champion' if facts['champion'] else 'challenger'}: "
            f"{facts['champion_why']}"
        )


def _audit_text(audit: Audit, skipped: Sequence[str]) -> str:
    lines = [
        f"{row['stage']:<6} {row['outcome']:<10} {row['rows']:>6} "
        f"{row['file']} {row['run_id'][:8]} {row['reason']} {row['detail']}".rstrip()
        for row in audit.rows()
    ]
    return "\n".join([*lines, *(f"left out: {one}" for one in skipped)]) + "\n"


def _git_commit() -> str:
    """Commit of this checkout, for the card; "unknown" outside of one."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip() or "unknown"


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
