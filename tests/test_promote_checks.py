"""Each demand on a challenger refuses what breaks it, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.training.compare import compare
from costmodel.training.promote_checks import evaluation_checks
from costmodel.training.recipe import Bounds

N_KERNELS = 40
BOUNDS = Bounds(max_harm_share=0.05, max_class_harm_share=0.10)


def _rows(speedups, *, harmed=(), **changes):
    """One workload a kernel, of two classes in turn."""
    rows = []
    for i, speedup in enumerate(speedups):
        row = {
            "workload_id": f"w{i:03d}",
            "kernel": f"kernel{i}",
            "kernel_digest": f"source{i}",
            "family": f"family{i % 5}",
            "kernel_class": "matmul" if i % 2 else "reduction",
            "hardware": "NVIDIA H200",
            "fold": f"fold {i % 5}",
            "protocol": "leave one family out",
            "default_us": 100.0,
            "best_us": 50.0,
            "best_speedup": 2.0,
            "speedup": speedup,
            "noise_floor_log": 0.02,
            "harm_floor_log": 0.02,
            "is_harm": i in harmed,
            "pick_config_id": f"{speedup:.4f}",
        }
        rows.append(row | changes)
    return rows


BEFORE = _rows([1.1] * N_KERNELS)


def _refused(rows, bounds=BOUNDS, before=BEFORE):
    found = compare(before, rows) if before is not None else None
    checks = evaluation_checks(rows, found, bounds)
    assert all(one.found and one.demanded for one in checks)
    return {one.name for one in checks if not one.ok}


def test_a_better_challenger_is_refused_by_nothing() -> None:
    assert _refused(_rows([1.2] * N_KERNELS)) == set()


def test_an_equal_one_or_a_lucky_one_is_not_better_beyond_noise() -> None:
    assert _refused(BEFORE) == {"better than the champion"}
    lucky = [2.0, *[1.1] * (N_KERNELS - 1)]
    assert _refused(_rows(lucky)) == {"better than the champion"}
    rng = np.random.default_rng(0)
    noisy = 1.1 * np.exp(rng.normal(0.0, 0.02, N_KERNELS))
    assert "better than the champion" in _refused(_rows(noisy))


def test_other_measurements_folds_or_protocol_are_no_comparison() -> None:
    for change in ({"default_us": 99.0}, {"fold": "x"}, {"protocol": "other"}):
        rows = _rows([1.2] * N_KERNELS, **change)
        assert "same evaluation" in _refused(rows)
    assert "same evaluation" in _refused(_rows([1.2] * (N_KERNELS - 1)))


def test_no_class_pays_for_the_others() -> None:
    # Twice as fast on one class, 5 % slower on the other: better in the whole.
    rows = _rows([2.2 if i % 2 else 1.045 for i in range(N_KERNELS)])
    assert _refused(rows) == {"class reduction against the champion"}
    within = _rows([2.2 if i % 2 else 1.0995 for i in range(N_KERNELS)])
    assert _refused(within) == set()


def test_harm_is_bounded_as_a_whole() -> None:
    for n_harmed, names in ((2, set()), (4, {"harm"})):
        harmed = range(0, 2 * n_harmed, 2) if n_harmed < 3 else (0, 1, 2, 3)
        rows = _rows([1.2] * N_KERNELS, harmed=harmed)
        assert _refused(rows) == names, n_harmed


def test_harm_is_bounded_class_by_class() -> None:
    # 2 of 40 in all, and both of one class of 20: 10 %, then a bound of its own.
    rows = _rows([1.2] * N_KERNELS, harmed=(1, 3))
    assert _refused(rows) == set()
    own = Bounds(max_harm_share=0.05, classes={"matmul": 0.05})
    assert _refused(rows, own) == {"harm to matmul"}
    tight = Bounds(max_harm_share=0.05, max_class_harm_share=0.09)
    assert _refused(rows, tight) == {"harm to matmul"}


@pytest.mark.parametrize("harmed", [(), (0, 1, 2, 3, 4, 5)])
def test_a_first_champion_must_keep_to_the_bounds_too(harmed) -> None:
    rows = _rows([1.2] * N_KERNELS, harmed=harmed)
    refused = _refused(rows, before=None)
    assert refused == (
        {"harm", "harm to matmul", "harm to reduction"} if harmed else set()
    )
