"""Replay of choosing measurements: how much does choice save against chance?

Run as `python benchmarks/replay_next.py [CORPUS]` from the root of a checkout that is
installed; about 150 seconds of processor time. Families are split in two: from one half
measurements are revealed step by step, and a model fitted on them picks a config for
each workload. It is judged twice: on the half that is recorded ("own"), where it may
pick any config, measured or not, and on the other half ("new"), whose families it has
never seen. Every strategy starts from the same few random measurements, pays for a
workload's default when it first touches it, and is told nothing that it has not paid
for. Printed is the mean regret, ln(pick / best), by number of measurements, and how
many each strategy needs for the regret that chance has at the end.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy starts its threads

import dataclasses
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import numpy as np

from costmodel.datasets.next_choice import OPTIMUM_SHARE
from costmodel.datasets.next_choice import Pool
from costmodel.datasets.next_choice import choose_next
from costmodel.datasets.store import Corpus
from costmodel.errors import CostModelError
from costmodel.features.schema import SCHEMA
from costmodel.forest import Forest
from costmodel.layout import RowLayout
from costmodel.training.fit import FitSettings
from costmodel.training.fit import fit
from costmodel.training.label import label_all
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.metrics import FAILED_SPEEDUP

CORPUS = "datasets/corpora/h200"
FIRST_SEED = 100  # the choice was made better on seeds 0 and 1, which prove nothing
N_REPEATS = 6
BUDGETS = (250, 400, 650, 1000, 1600, 2400)
SETTINGS = FitSettings(
    n_bags=4, n_trees=35, n_validity_trees=20, learning_rate=0.3, max_pair_rows=12_000
)
_MIN_VALID = 0.5
_CHANCE, _CHOSEN = "chance", "chosen"
_SHARES = {_CHANCE: None, _CHOSEN: OPTIMUM_SHARE}
_JUDGED = ("own workloads", "new families")


def main() -> int:
    """Replay and print; 0 if choice halves the measurements on both, else 1."""
    path = sys.argv[1] if len(sys.argv) > 1 else CORPUS
    try:
        workloads = label_all(Corpus.load(path).workloads()).workloads
    except CostModelError as error:
        print(f"replay_next: {error}", file=sys.stderr)
        return 1
    print(f"{len(workloads)} workloads, {N_REPEATS} splits of families in halves")
    seeds = range(FIRST_SEED, FIRST_SEED + N_REPEATS)
    with ThreadPoolExecutor(2) as pool:  # fits are one thread each
        curves = {
            name: np.array(
                list(pool.map(replay, repeat(workloads), repeat(share), seeds))
            )
            for name, share in _SHARES.items()
        }
    return 0 if all([_report(curves, i) for i in range(len(_JUDGED))]) else 1


def _report(curves: Mapping[str, np.ndarray], judged: int) -> bool:
    """Print both strategies on one half; whether choice halves the measurements."""
    print(f"\n{_JUDGED[judged]:<16}" + "".join(f"{budget:>8d}" for budget in BUDGETS))
    means = {name: runs[:, judged].mean(axis=0) for name, runs in curves.items()}
    for name, mean in means.items():
        print(f"{name:<16}" + "".join(f"{regret:8.3f}" for regret in mean))
    saved = curves[_CHANCE][:, judged] - curves[_CHOSEN][:, judged]
    print(f"{'difference':<16}" + "".join(f"{one:8.3f}" for one in saved.mean(axis=0)))
    print(f"{'  its std error':<16}" + "".join(f"{one:8.3f}" for one in _errors(saved)))
    goal = float(means[_CHANCE][-1])
    chance, chosen = (budget_for(means[name], goal) for name in (_CHANCE, _CHOSEN))
    if chosen is None or chance is None:
        print(f"choice never reaches the regret {goal:.3f} that chance ends with")
        return False
    print(
        f"regret {goal:.3f}: chance needs {chance:.0f} measurements, choice "
        f"{chosen:.0f} ({chosen / chance:.2f} of them)"
    )
    return chosen <= chance / 2


def _errors(runs: np.ndarray) -> np.ndarray:
    errors: np.ndarray = runs.std(axis=0, ddof=1) / np.sqrt(len(runs))
    return errors


def budget_for(curve: np.ndarray, goal: float) -> float | None:
    """Measurements at which a curve first reaches a regret, between two budgets by
    straight lines; None where it never does."""
    for i, regret in enumerate(curve):
        if regret <= goal:
            if i == 0:
                return float(BUDGETS[0])
            share = (curve[i - 1] - goal) / (curve[i - 1] - regret)
            return float(BUDGETS[i - 1] + share * (BUDGETS[i] - BUDGETS[i - 1]))
    return None


def replay(
    workloads: Sequence[LabelledWorkload], share: float | None, seed: int
) -> np.ndarray:
    """Regrets, float64[2, n_budgets], as `_JUDGED`; `share` None chooses by chance."""
    families = sorted({one.family for one in workloads})
    rng = np.random.default_rng(seed)
    held_out = set(rng.permutation(families)[: len(families) // 2])
    test = [one for one in workloads if one.family in held_out]
    known = Known([one for one in workloads if one.family not in held_out])
    known.reveal(rng.permutation(len(known.row)), BUDGETS[0])
    regrets = []
    for i, budget in enumerate(BUDGETS):
        forest = _fitted(known, seed)
        regrets.append((_regret(forest, known.workloads), _regret(forest, test)))
        if i + 1 < len(BUDGETS):
            n = BUDGETS[i + 1] - budget
            if share is None:
                order = rng.permutation(np.flatnonzero(~known.is_known))
            else:
                order = np.array(
                    choose_next(known.pool(forest), n, optimum_share=share)
                )
            known.reveal(order, BUDGETS[i + 1])
    return np.array(regrets).T


class Known:
    """What has been paid for of one half of a corpus."""

    def __init__(self, workloads: Sequence[LabelledWorkload]) -> None:
        self.workloads = workloads
        counts = [one.n_rows for one in workloads]
        self.of = np.repeat(np.arange(len(workloads)), counts)
        self.row = np.concatenate([np.arange(n) for n in counts])
        self.features = np.concatenate([one.features for one in workloads])
        starts = np.cumsum([0, *counts[:-1]])
        self._default = starts + [one.default_index for one in workloads]
        self.is_known = np.zeros(len(self.of), dtype=np.bool_)

    def reveal(self, order: np.ndarray, budget: int) -> None:
        """Measure rows in order until the budget is spent, defaults included."""
        for i in order:
            if self.is_known.sum() >= budget:
                return
            self.is_known[self._default[self.of[i]]] = True
            if self.is_known.sum() < budget:
                self.is_known[i] = True

    def subset(self) -> list[LabelledWorkload]:
        """Touched workloads with what is known of them alone."""
        return [
            _part(one, self.row[(self.of == i) & self.is_known])
            for i, one in enumerate(self.workloads)
            if self.is_known[self._default[i]]
        ]

    def pool(self, forest: Forest) -> Pool:
        """Everything that could be measured, with a model's view of it."""
        said = forest.predict(np.ascontiguousarray(self.features, dtype=np.float32))
        return Pool(
            workload=self.of,
            features=self.features,
            gain_log=said.gain_log,
            spread_log=said.spread_log,
            valid_probability=said.valid_probability,
            is_known=self.is_known,
        )


def _part(one: LabelledWorkload, rows: np.ndarray) -> LabelledWorkload:
    place = {int(row): i for i, row in enumerate(rows)}
    return dataclasses.replace(
        one,
        default_index=place[one.default_index],
        features=np.ascontiguousarray(one.features[rows]),
        log_ratio=one.log_ratio[rows],
        is_ok=one.is_ok[rows],
        analytic_us=one.analytic_us[rows],
        analytic_order=tuple(place[i] for i in one.analytic_order if i in place),
        configs=tuple(one.configs[i] for i in rows),
        config_ids=tuple(one.config_ids[i] for i in rows),
    )


def _fitted(known: Known, seed: int) -> Forest:
    settings = dataclasses.replace(SETTINGS, seed=seed)
    forest, _ = fit(known.subset(), RowLayout.of(SCHEMA), settings, SCHEMA.hash)
    return forest


def _regret(forest: Forest, test: Sequence[LabelledWorkload]) -> float:
    """Mean ln(pick / best); a failed pick counts as ten times the default's time."""
    rows = np.ascontiguousarray(np.concatenate([one.features for one in test]))
    said = forest.predict(rows)
    merit = np.where(said.valid_probability >= _MIN_VALID, said.gain_log, -np.inf)
    ends = np.cumsum([one.n_rows for one in test])
    regrets = []
    for one, end in zip(test, ends, strict=True):
        pick = int(np.argmax(merit[end - one.n_rows : end]))
        failed = -float(np.log(FAILED_SPEEDUP))
        taken = float(one.log_ratio[pick]) if one.is_ok[pick] else failed
        regrets.append(taken - one.best_log)
    return float(np.mean(regrets))


if __name__ == "__main__":
    sys.exit(main())
