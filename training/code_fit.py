"""Compiled configs as training sees them, and the fit of the second stage."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xgboost

from costmodel.code_model import CodeForest
from costmodel.datasets.compiled_table import CompiledTable
from costmodel.features.compiled import CODE_SCHEMA_HASH
from costmodel.features.compiled import code_matrix
from costmodel.hardware import match_hardware
from costmodel.training.code_settings import CodeSettings
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.merge import merged
from costmodel.types import FloatArray

# Fewer compiled configs than this besides the default say nothing about a ranking.
_MIN_CONFIGS = 3
# ln(20): a config 20 times slower is as wrong as one 100 times slower.
_CLIP_LOG = 3.0


@dataclass(frozen=True, slots=True)
class CodeWorkload:
    """The compiled configs of a labelled workload.

    Attributes:
        workload: The workload.
        rows: int64[n], which of its rows were compiled and fit, the default among them.
        code: float32[n, len(CODE_NAMES)], their code features.
        default: Position of the default among `rows`.
        digests: Digest of each one's instructions, "" where unknown.
    """

    workload: LabelledWorkload
    rows: npt.NDArray[np.int64]
    code: FloatArray
    default: int
    digests: tuple[str, ...]

    @property
    def log_ratio(self) -> npt.NDArray[np.float64]:
        """float64[n], ln(time / default time) of the compiled configs."""
        return self.workload.log_ratio[self.rows]

    @property
    def is_ok(self) -> npt.NDArray[np.bool_]:
        """bool[n]."""
        return self.workload.is_ok[self.rows]


def code_workloads(
    workloads: Sequence[LabelledWorkload],
    run_ids: Mapping[str, str],
    compiled: CompiledTable,
) -> list[CodeWorkload]:
    """Those labelled workloads whose configs were compiled, with code features.

    Args:
        workloads: Labelled workloads.
        run_ids: Helion's run id by `workload_id`.
        compiled: What the compiler said.
    """
    found = []
    for one in workloads:
        run_id = run_ids.get(one.workload_id)
        if run_id is None:
            continue
        codes = [compiled.code_of(run_id, name) for name in one.config_ids]
        default_code = codes[one.default_index]
        rows = np.flatnonzero([code is not None for code in codes])
        if default_code is None or len(rows) <= _MIN_CONFIGS:
            continue
        matrix = code_matrix(
            [code for code in codes if code is not None],
            default_code,
            one.features[rows],
            one.features[one.default_index],
            match_hardware(one.hardware).hardware,
        )
        default = int(np.searchsorted(rows, one.default_index))
        digests = tuple(
            compiled.digest_of(run_id, one.config_ids[i]) or "" for i in rows
        )
        found.append(CodeWorkload(one, rows, matrix, default, digests))
    return found


def fit_code(
    workloads: Sequence[CodeWorkload], settings: CodeSettings | None = None
) -> CodeForest:
    """Fit the second stage: regression on ln(time / default time), robust to tails."""
    settings = settings or CodeSettings()
    parts = []
    for bag in range(settings.n_bags):
        rng = np.random.default_rng([settings.seed, bag, 2])
        weight = rng.exponential(size=len(workloads)) + 0.25
        rows, target, share = [], [], []
        for one, heavy in zip(workloads, weight, strict=True):
            ok = one.is_ok
            rows.append(one.code[ok])
            target.append(np.clip(one.log_ratio[ok], -_CLIP_LOG, _CLIP_LOG))
            share.append(np.full(int(ok.sum()), heavy / np.sqrt(max(1, ok.sum()))))
        weights = np.concatenate(share)
        data = xgboost.DMatrix(
            np.ascontiguousarray(np.concatenate(rows), np.float32),
            label=np.concatenate(target),
            weight=weights / weights.mean(),
            nthread=1,
        )
        booster = xgboost.train(
            {
                "objective": "reg:pseudohubererror",
                "tree_method": "hist",
                "max_depth": settings.max_depth,
                "eta": settings.learning_rate,
                "subsample": settings.row_share,
                "colsample_bytree": settings.column_share,
                "min_child_weight": settings.min_child_weight,
                "base_score": 0.0,
                "nthread": 1,
                "seed": settings.seed * 1000 + bag,
            },
            data,
            num_boost_round=settings.n_trees,
            verbose_eval=False,
        )
        parts.append((booster, 1.0))
    n_trees = settings.n_bags * settings.n_trees
    joined = merged(parts, {"code_schema": CODE_SCHEMA_HASH})
    return CodeForest(joined, settings.n_bags, n_trees)
