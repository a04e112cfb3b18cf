"""Our sums over trees are those of xgboost, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
import xgboost

from costmodel.card import ModelCard
from costmodel.errors import CorruptRecordError
from costmodel.learned import bundled_model_path
from costmodel.tree_file import read_trees
from costmodel.tree_sums import TreeSums

CONTENT = bundled_model_path().read_bytes()
TREES = read_trees(CONTENT)
SUMS = TreeSums(TREES)
_CARD = ModelCard.from_json(bundled_model_path().with_suffix(".json").read_text())
N_FEATURES = len(_CARD.feature_names)


@pytest.fixture(scope="module")
def booster() -> xgboost.Booster:
    found = xgboost.Booster()
    found.load_model(bytearray(CONTENT))
    found.set_param({"nthread": 1})
    return found


def _rows(n_rows: int, seed: int, n_alike: int = 0) -> np.ndarray:
    """Rows whose values are thresholds and what lies between, some columns constant."""
    random = np.random.default_rng(seed)
    rows = random.choice(TREES.threshold, size=(n_rows, N_FEATURES))
    rows += random.choice([0.0, 0.0, 1e-3], size=rows.shape).astype(np.float32)
    alike = random.choice(N_FEATURES, size=n_alike, replace=False)
    rows[:, alike] = rows[:1, alike]
    return np.ascontiguousarray(rows, dtype=np.float32)


@pytest.mark.parametrize("n_rows", [1, 2, 63, 64, 65, 500, 513, 1300])
@pytest.mark.parametrize("n_alike", [0, 100])
def test_sums_are_those_of_xgboost(
    booster: xgboost.Booster, n_rows: int, n_alike: int
) -> None:
    rows = _rows(n_rows, n_rows, n_alike)
    n_trees = TREES.n_trees
    parts = [(0, n_trees), (0, 1), (n_trees // 3, n_trees // 2), (n_trees - 7, n_trees)]
    for part, ours in zip(parts, SUMS.sums(rows, parts), strict=True):
        theirs = booster.inplace_predict(
            rows,
            iteration_range=part,
            predict_type="margin",
            validate_features=False,
        )
        assert ours.dtype == theirs.dtype
        assert ours.tobytes() == theirs.tobytes(), part


def test_a_row_does_not_depend_on_the_rows_around_it() -> None:
    rows = _rows(200, 7, n_alike=60)
    parts = [(0, TREES.n_trees)]
    together = SUMS.sums(rows, parts)[0]
    alone = [SUMS.sums(rows[i : i + 1], parts)[0] for i in range(0, 200, 17)]
    assert np.concatenate(alone).tobytes() == together[::17].tobytes()
    assert len(SUMS.sums(rows[:0], parts)[0]) == 0


def test_other_models_and_cut_files_are_refused() -> None:
    other = CONTENT.replace(b"reg:squarederror", b"reg:squaredERROR")
    for content in (b"", other, CONTENT[: len(CONTENT) // 2]):
        with pytest.raises(CorruptRecordError):
            read_trees(content)
