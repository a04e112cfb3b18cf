"""What a model said of a few rows when it was trained, to ask it again later.

A model that was stored, fetched or loaded by another build of xgboost must say the same
but for rounding, or it is not the model that was judged.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow
import pyarrow.parquet

from costmodel.errors import CorruptRecordError
from costmodel.learned import LearnedModel
from costmodel.training.labelled import LabelledWorkload

_N_WORKLOADS = 8
_N_ROWS = 16
# Builds of xgboost may round an exponential differently; other trees differ by more.
_TOLERANCE = 1e-5
_ANSWERS = ("gain_log", "lower_log", "valid_probability")


def golden_rows(model: LearnedModel, workloads: Sequence[LabelledWorkload]) -> bytes:
    """Rows of a few workloads and the model's answers, as a Parquet file."""
    step = max(1, len(workloads) // _N_WORKLOADS)
    rows = np.concatenate(
        [one.features[:_N_ROWS] for one in workloads[::step][:_N_WORKLOADS]]
    )
    answers = _answers(model, rows)
    names = model.card.feature_names
    columns = {name: rows[:, i] for i, name in enumerate(names)}
    table = pyarrow.table(columns | {f"said.{k}": v for k, v in answers.items()})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def read_golden(
    content: bytes, feature_names: Sequence[str]
) -> tuple[npt.NDArray[np.float32], dict[str, npt.NDArray[np.float32]]]:
    """Rows and the answers that belong to them.

    Raises:
        CorruptRecordError: Not such a file, or of other features.
    """
    try:
        table = pyarrow.parquet.read_table(io.BytesIO(content))
        rows = np.column_stack([table[name].to_numpy() for name in feature_names])
        answers = {name: table[f"said.{name}"].to_numpy() for name in _ANSWERS}
    except (pyarrow.ArrowInvalid, OSError, KeyError) as error:
        raise CorruptRecordError(
            f"expected golden rows of {len(feature_names)} features, found {error}"
        ) from error
    return np.ascontiguousarray(rows, dtype=np.float32), answers


def n_changed(model: LearnedModel, content: bytes) -> tuple[int, int]:
    """How many golden rows a model answers differently, and of how many.

    Raises:
        CorruptRecordError: Not golden rows of this model's features.
    """
    rows, answers = read_golden(content, model.card.feature_names)
    now = _answers(model, rows)
    differs = np.zeros(len(rows), dtype=bool)
    for name in _ANSWERS:
        differs |= ~(np.abs(now[name] - answers[name]) <= _TOLERANCE)
    return int(differs.sum()), len(rows)


def _answers(
    model: LearnedModel, rows: npt.NDArray[np.float32]
) -> dict[str, npt.NDArray[np.float32]]:
    scores = model.score(rows)
    return {name: np.asarray(getattr(scores, name)) for name in _ANSWERS}
