"""Compiled configs as training sees them, and the fit of the second stage."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costmodel.code_model import CodeForest
from costmodel.datasets.compiled_table import CompiledTable
from costmodel.features.compiled import CODE_SCHEMA_HASH
from costmodel.features.compiled import code_matrix
from costmodel.hardware import match_hardware
from costmodel.training.bagged_fit import fit_bags
from costmodel.training.code_settings import CodeSettings
from costmodel.training.labelled import LabelledWorkload
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
    groups = []
    for one in workloads:
        slowdown = np.clip(one.log_ratio[one.is_ok], -_CLIP_LOG, _CLIP_LOG)
        groups.append((one.code[one.is_ok], slowdown))
    settings = settings or CodeSettings()
    return CodeForest(*fit_bags(groups, settings, 2, {"code_schema": CODE_SCHEMA_HASH}))
