"""What boosting from disk and on two local workers is worth beside memory.

Run as `python benchmarks/compare_engines.py` from the root of a checkout that is
installed with its extra `scale`. Every fourth workload of the bundled corpus, a third
of the families held out; printed are error of the predicted gain and speed-up of the
pick without a gate on those, of five seeds in memory and of the first seed elsewhere.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy starts its threads

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from distributed import LocalCluster

from costmodel.datasets.store import Corpus
from costmodel.features.schema import SCHEMA
from costmodel.forest import Forest
from costmodel.layout import RowLayout
from costmodel.training.dask_fit import connected
from costmodel.training.external import ExternalMemory
from costmodel.training.fit import FitSettings
from costmodel.training.fit_engine import IN_MEMORY
from costmodel.training.fit_engine import ByEngine
from costmodel.training.fit_engine import Fitter
from costmodel.training.label import label_all
from costmodel.training.labelled import LabelledWorkload

BUNDLED = Path(__file__).parents[1] / "datasets" / "corpora" / "h200"
N_SEEDS = 5
BATCH_ROWS = 2000


def main() -> None:
    """Fit, predict, print."""
    workloads = label_all(Corpus.load(BUNDLED).workloads()[::4]).workloads
    families = sorted({one.family for one in workloads})[::3]
    learned = [one for one in workloads if one.family not in families]
    unseen = [one for one in workloads if one.family in families]
    print(f"{len(learned)} workloads learned from, {len(unseen)} held out")
    print(f"{'fitted':24s} {'rmse (ln)':>10s} {'speed-up':>9s}")
    for seed in range(N_SEEDS):
        show(f"memory, seed {seed}", IN_MEMORY, learned, unseen, seed)
    disk = ByEngine(ExternalMemory(BATCH_ROWS))
    show("disk, seed 0", disk, learned, unseen)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        connected(cluster.scheduler_address, BATCH_ROWS) as engine,
    ):
        show("two Dask workers, seed 0", ByEngine(engine), learned, unseen)


def show(
    name: str,
    fitter: Fitter,
    learned: Sequence[LabelledWorkload],
    unseen: Sequence[LabelledWorkload],
    seed: int = 0,
) -> None:
    """One line of the table."""
    settings = FitSettings(n_bags=1, n_trees=20, n_validity_trees=5, seed=seed)
    forest, _ = fitter(learned, RowLayout.of(SCHEMA), settings, SCHEMA.hash)
    error, speedup = metrics(forest, unseen)
    print(f"{name:24s} {error:10.4f} {speedup:9.4f}", flush=True)


def metrics(forest: Forest, unseen: Sequence[LabelledWorkload]) -> tuple[float, float]:
    """Root mean square error of the gain, and the picks' geometric mean speed-up."""
    errors, gains = [], []
    for one in unseen:
        said = forest.predict(one.features).gain_log
        errors.append((said + one.log_ratio)[one.is_ok])
        best = int(np.argmax(np.where(one.is_ok, said, -np.inf)))
        gains.append(-one.log_ratio[best])
    rmse = float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))
    return rmse, float(np.exp(np.mean(gains)))


if __name__ == "__main__":  # workers must never run this again
    main()
