"""A search as MLflow runs: a parent for the campaign, one nested run for each trial.

The journal is the memory; MLflow is a copy of it. Whatever could not be recorded, by a
server that was away or a process that was ended, is recorded by the next trial or the
next start, into the same parent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from costmodel.training.mlflow_store import Store
from costmodel.training.mlflow_store import opened
from costmodel.training.recipe import Recipe
from costmodel.training.recipe_space import shown
from costmodel.training.tune import Tuned
from costmodel.training.tune_show import as_facts
from costmodel.training.tune_show import search_figure
from costmodel.training.tune_study import SearchStudy
from costmodel.training.tune_study import TrialRow

KIND = "tune"
_RUN = "mlflow_run"
_LOST = "no trial is lost, only its record; the next start records it; "


class TuneRecord:
    """Writes what is not yet written; owns the id of the parent run."""

    def __init__(
        self, recipe: Recipe, facts: Mapping[str, str], study: SearchStudy
    ) -> None:
        """Join a search and its run.

        Args:
            recipe: What is searched.
            facts: What the search is of.
            study: That of all families, where the run's id is kept.
        """
        self._recipe = recipe
        self._facts = facts
        self._study = study

    def trials(self, rows: Sequence[TrialRow]) -> None:
        """Record finished trials.

        Raises:
            TrackingError: The store cannot be reached or written.
        """
        with opened(None, _LOST) as store:
            parent = self._parent(store)
            self._missing(store, parent, rows)

    def end(self, made: Tuned, recipe_text: str) -> tuple[str, str]:
        """Record what was found.

        Args:
            made: All of it.
            recipe_text: The recipe that was found.

        Returns:
            Where: the store and the run id.

        Raises:
            TrackingError: The store cannot be reached or written.
        """
        with opened(None, _LOST) as store:
            parent = self._parent(store)
            self._missing(store, parent, made.trials)
            client = store.client
            numbers = {"n_trials": float(len(made.trials))}
            for name, one in (("own", made.first), ("best", made.best)):
                for key in ("regret", "speedup", "harm_share"):
                    if one is not None:
                        numbers[f"{name}_{key}"] = float(one.facts[key])
            if made.report is not None:
                whole = made.report.overall
                numbers |= {
                    "outer_ratio": whole.ratio,
                    "outer_low": whole.low,
                    "outer_high": whole.high,
                    "outer_harm_own": whole.harm_a,
                    "outer_harm_chosen": whole.harm_b,
                }
            entities = store.mlflow.entities
            now_ms = int(time.time() * 1000)
            metrics = [entities.Metric(k, v, now_ms, 0) for k, v in numbers.items()]
            client.log_batch(parent, metrics=metrics)
            client.set_tag(parent, "ended", made.ended)
            space = self._recipe.tune
            facts = json.dumps(as_facts(made, space), indent=1)
            client.log_text(parent, facts, "tune/tune.json")
            client.log_text(parent, recipe_text, "recipe/found.toml")
            client.log_figure(parent, search_figure(made, space), "plots/search.png")
            client.set_terminated(parent)
            return store.uri, parent

    def _parent(self, store: Store) -> str:
        """The run of this campaign, begun where there is none in this store."""
        known = self._study.study.user_attrs.get(_RUN, {}).get(store.uri)
        if known is not None and _exists(store, known):
            store.client.update_run(known, status="RUNNING")
            return str(known)
        experiment = store.mlflow.get_experiment_by_name(_experiment())
        run = store.client.create_run(
            experiment.experiment_id,
            run_name=f"tune {self._recipe.name}",
            tags={"kind": KIND, **self._facts},
        )
        run_id = str(run.info.run_id)
        params = {
            f"recipe.{key}": value
            for key, value in self._recipe.as_parameters().items()
        }
        entities = store.mlflow.entities
        store.client.log_batch(
            run_id, params=[entities.Param(k, v) for k, v in params.items()]
        )
        if self._recipe.text:
            store.client.log_text(run_id, self._recipe.text, "recipe/as_given.toml")
        runs = self._study.study.user_attrs.get(_RUN, {})
        self._study.study.set_user_attr(_RUN, {**runs, store.uri: run_id})
        return run_id

    def _missing(self, store: Store, parent: str, rows: Sequence[TrialRow]) -> None:
        client, entities = store.client, store.mlflow.entities
        experiment_id = client.get_run(parent).info.experiment_id
        kept = client.search_runs(
            [experiment_id],
            filter_string=f"tags.mlflow.parentRunId = '{parent}'",
            max_results=10_000,
        )
        # A run that was begun and not ended is one whose process died: written again.
        written = {
            (one.data.tags["search"], one.data.tags["trial"])
            for one in kept
            if one.info.status == "FINISHED"
        }
        for row in rows:
            if (row.search, str(row.number)) in written:
                continue
            run = client.create_run(
                experiment_id,
                run_name=f"{row.search}: trial {row.number}",
                tags={
                    "mlflow.parentRunId": parent,
                    "kind": "trial",
                    "search": row.search,
                    "trial": str(row.number),
                    "state": row.state,
                },
            )
            run_id = run.info.run_id
            now_ms = int(time.time() * 1000)
            numbers: dict[str, float] = dict(row.facts)
            if row.loss is not None:
                numbers["loss"] = row.loss
            client.log_batch(
                run_id,
                params=[entities.Param(k, shown(v)) for k, v in row.values.items()],
                metrics=[
                    entities.Metric(k, float(v), now_ms, 0) for k, v in numbers.items()
                ],
            )
            client.set_terminated(run_id)


def _exists(store: Store, run_id: str) -> bool:
    from mlflow.exceptions import MlflowException

    try:
        found: Any = store.client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return False
        raise
    return bool(found.info.lifecycle_stage == "active")


def _experiment() -> str:
    from costmodel.training.mlflow_store import EXPERIMENT

    return EXPERIMENT
