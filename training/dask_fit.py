"""Boosting on a Dask cluster: workers make the examples and grow the trees together.

Workers get places of rows, not rows: shards must lie where every worker can read them.
XGBoost's workers add up their histograms, so that the trees are those of one machine
but for the cuts between bins and the order of sums.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import numpy as np
import xgboost

from costmodel.errors import ClusterError
from costmodel.training.engine import History
from costmodel.training.external import BATCH_ROWS
from costmodel.training.external import feature_weights
from costmodel.training.objective import Examples
from costmodel.training.questions import Question

# For the scheduler to answer; one that is up does so in milliseconds.
_CONNECT_S = 20.0
# Batches for each worker: fewer, and one worker may hold twice what another holds.
_BATCHES_PER_WORKER = 4


class DaskCluster:
    """An `Engine` on the workers of a cluster.

    Attributes:
        n_parallel: Fits at once: one, since each uses all workers.
        n_workers: Workers when it was opened.
    """

    n_parallel = 1

    def __init__(self, client: Any, batch_rows: int = BATCH_ROWS) -> None:
        """Use a connected client; see `connected`."""
        self._client = client
        self._batch_rows = batch_rows
        self.n_workers = len(client.scheduler_info(n_workers=-1)["workers"])

    def boost(
        self,
        question: Question,
        parameters: Mapping[str, float | int | str],
        n_rounds: int,
        dropped_columns: tuple[int, ...] = (),
        watched: Question | None = None,
    ) -> tuple[xgboost.Booster, History]:
        """See `Engine.boost`.

        Raises:
            ClusterError: A worker failed.
        """
        from xgboost import dask as xgboost_dask

        max_bin = parameters["max_bin"]
        # XGBoost asks for the current client, which is one of a thread.
        with _reported(), self._client.as_current():
            data = self._matrix(question, max_bin, dropped_columns)
            evals = []
            if watched is not None:
                apart = self._matrix(watched, max_bin, dropped_columns, ref=data)
                evals = [(data, "train"), (apart, "held_out")]
            trained = xgboost_dask.train(
                self._client,
                dict(parameters),
                data,
                num_boost_round=n_rounds,
                evals=evals,
                verbose_eval=False,
            )
        booster = trained["booster"]
        history: History = trained["history"]
        return booster, history

    def _matrix(
        self,
        question: Question,
        max_bin: Any,
        dropped_columns: tuple[int, ...],
        ref: Any = None,
    ) -> Any:
        from dask import array
        from dask.delayed import delayed
        from xgboost import dask as xgboost_dask

        n_examples = question.n_examples
        share = n_examples // (self.n_workers * _BATCHES_PER_WORKER)
        batches = question.batches(max(1, min(self._batch_rows, share)))
        n_features = question.workloads[0].features.shape[1]
        rows: list[Any] = []
        targets: list[Any] = []
        weights: list[Any] = []
        for batch in batches:
            # Dask looks into dataclasses for work to do, and would read the rows here.
            work = functools.partial(_made, batch)
            made = delayed(work, pure=False, traverse=False)()
            n = batch.n_examples
            shapes = ((n, n_features), (n,), (n,))
            for found, part, shape in zip(
                (rows, targets, weights),
                (made[0], made[1], made[2]),
                shapes,
                strict=True,
            ):
                found.append(array.from_delayed(part, shape, np.float32))
        extra = {}
        if dropped_columns:
            extra["feature_weights"] = array.from_array(
                feature_weights(n_features, dropped_columns)
            )
        return xgboost_dask.DaskQuantileDMatrix(
            self._client,
            array.concatenate(rows),
            array.concatenate(targets),
            weight=array.concatenate(weights),
            max_bin=max_bin,
            ref=ref,
            **extra,
        )


def _made(batch: Question) -> tuple[Any, Any, Any]:
    """Runs on a worker: one batch of examples."""
    made: Examples = batch.examples()
    return made.rows, made.target, made.weight


@contextlib.contextmanager
def connected(address: str, batch_rows: int = BATCH_ROWS) -> Iterator[DaskCluster]:
    """An engine on an existing cluster, for the time of the block.

    Args:
        address: Of the scheduler, such as "tcp://10.0.0.1:8786".
        batch_rows: Example rows that a worker makes at once, about.

    Raises:
        ClusterError: Dask is not installed, nobody answers, there are no workers, or
            they do not have this package.
    """
    try:
        from distributed import Client
    except ImportError:
        raise ClusterError(
            "expected Dask for --dask, found it not installed: pip install "
            "helion-costmodel[scale]"
        ) from None
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"expected a Dask scheduler at {address}, found none "
            f"({str(error).splitlines()[0]}): start one with `dask scheduler`"
        ) from None
    with client:
        _check(client, address)
        yield DaskCluster(client, batch_rows)


def _check(client: Any, address: str) -> None:
    try:
        schemas = client.run(_schema_of_worker)
    except Exception as error:  # whatever a worker raised comes back as it is
        raise ClusterError(
            f"expected workers with this package at {address}, found one without "
            f"({error}): pip install helion-costmodel[scale] on every worker"
        ) from None
    if not schemas:
        raise ClusterError(
            f"expected workers at {address}, found a scheduler without any: start "
            f"them with `dask worker {address}`"
        )
    mine = _schema_of_worker()
    others = sorted({one for one in schemas.values() if one != mine})
    if others:
        raise ClusterError(
            f"expected workers of schema {mine[:12]} at {address}, found "
            f"{others[0][:12]}: install the same version everywhere"
        )


def _schema_of_worker() -> str:
    from costmodel.features.schema import SCHEMA

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return SCHEMA.hash


@contextlib.contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except ClusterError:
        raise
    except Exception as error:  # a worker's, or of the way there
        said = (str(error) or type(error).__name__).splitlines()[0]
        raise ClusterError(
            f"expected the cluster's workers to finish a fit, found: {said}: is every "
            "shard at a place that all workers can read, and is there memory left?"
        ) from error
