"""The replay pays for what it sees, and reads its curves right."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from synthetic import make_corpus


@pytest.fixture(scope="module")
def replay_next() -> ModuleType:
    path = Path(__file__).parent.parent / "benchmarks" / "replay_next.py"
    spec = importlib.util.spec_from_file_location("replay_next", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_touched_workload_costs_its_default(replay_next: ModuleType) -> None:
    workloads = make_corpus(0, planted=True, n_families=4, n_configs=10)
    known = replay_next.Known(workloads)
    order = np.random.default_rng(0).permutation(40)
    for budget in (1, 2, 7, 30, 40, 99):
        known.reveal(order, budget)
        assert known.is_known.sum() == min(budget, 40)
        parts = known.subset()
        assert sum(one.n_rows for one in parts) == min(budget, 40)
        for one in parts:
            assert one.log_ratio[one.default_index] == 0.0


def test_what_is_known_is_what_was_measured(replay_next: ModuleType) -> None:
    workloads = make_corpus(1, planted=True, n_families=3, n_configs=12)
    known = replay_next.Known(workloads)
    known.reveal(np.arange(36)[::-1], 15)
    by_name = {one.workload_id: one for one in workloads}
    for part in known.subset():
        whole = by_name[part.workload_id]
        for i, config in enumerate(part.configs):
            row = whole.configs.index(config)
            assert np.array_equal(part.features[i], whole.features[row])
            assert np.array_equal(
                part.log_ratio[i], whole.log_ratio[row], equal_nan=True
            )


def test_a_goal_between_two_budgets_is_interpolated(replay_next: ModuleType) -> None:
    budgets = replay_next.BUDGETS
    curve = np.linspace(1.0, 0.0, len(budgets))
    middle = float(curve[1] + curve[2]) / 2
    assert replay_next.budget_for(curve, middle) == (budgets[1] + budgets[2]) / 2
    assert replay_next.budget_for(curve, 2.0) == budgets[0]
    assert replay_next.budget_for(curve, -1.0) is None
