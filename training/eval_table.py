"""The evaluation as data: one row per held-out workload, kept with each run.

Two trainings are compared by these rows alone, so that a comparison needs neither the
corpus nor the models.
"""

from __future__ import annotations

import hashlib
import html
import io
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

import numpy as np
import pyarrow
import pyarrow.parquet

from costmodel.errors import CorruptRecordError
from costmodel.training.crossfit import FoldResult
from costmodel.training.judge import ANALYTIC
from costmodel.training.judge import Evaluation
from costmodel.training.judge import JudgedWorkload

Row: TypeAlias = dict[str, Any]
"""One workload; the keys are `COLUMNS`."""

COLUMNS = (
    *("workload_id", "kernel", "kernel_digest", "family", "kernel_class", "hardware"),
    *("fold", "promoted", "default_us", "pick_us", "best_us", "speedup"),
    *("ungated_speedup", "analytic_speedup", "best_speedup", "predicted_speedup"),
    *("regret", "regret_at_1", "regret_at_3", "regret_at_5", "noise_floor_log"),
    *("harm_floor_log", "is_harm", "failed", "source", "reason", "detail"),
    *("default_config_id", "pick_config_id", "protocol"),
)


def evaluation_rows(evaluation: Evaluation, folds: Sequence[FoldResult]) -> list[Row]:
    """One row per judged workload, by workload id.

    Args:
        evaluation: Judged workloads.
        folds: The folds that they were judged in.
    """
    said = {
        one.workload.workload_id: (result.fold.name, one)
        for result in folds
        for one in result.predictions
    }
    rows = []
    for one in evaluation.judged:
        fold, prediction = said.get(one.workload.workload_id, ("", None))
        gain = None
        if prediction is not None:
            gain = float(np.exp(prediction.said.gain_log[one.choice.index]))
        rows.append(_row(one, evaluation.protocol, fold, gain))
    return rows


def _row(one: JudgedWorkload, protocol: str, fold: str, predicted: float | None) -> Row:
    workload, gated = one.workload, one.gated
    return {
        "workload_id": workload.workload_id,
        "kernel": workload.kernel,
        "kernel_digest": workload.source_digest,
        "family": workload.family,
        "kernel_class": str(workload.kernel_class),
        "hardware": workload.hardware,
        "fold": fold,
        "promoted": workload.promoted,
        "default_us": workload.default_us,
        "pick_us": None if gated.failed else workload.default_us / gated.speedup,
        "best_us": workload.default_us / gated.best_speedup,
        "speedup": gated.speedup,
        "ungated_speedup": one.ungated.speedup,
        "analytic_speedup": one.outcomes[ANALYTIC][0].speedup,
        "best_speedup": gated.best_speedup,
        "predicted_speedup": predicted,
        "regret": gated.regret,
        **{f"regret_at_{k}": gated.regret_at[k] for k in (1, 3, 5)},
        "noise_floor_log": workload.noise_floor_log,
        "harm_floor_log": workload.harm_floor_log,
        "is_harm": gated.is_harm,
        "failed": gated.failed,
        "source": one.choice.source.value,
        "reason": one.choice.reason.value,
        "detail": one.choice.detail,
        "default_config_id": workload.config_ids[workload.default_index],
        "pick_config_id": workload.config_ids[one.choice.index],
        "protocol": protocol,
    }


def evaluation_digest(rows: Sequence[Mapping[str, Any]]) -> str:
    """What two evaluations must have in common to be the same one, as 64 hex digits.

    The protocol, and of each workload what was measured of it and with whom it was
    left out; not what a model did.
    """
    lines = sorted(
        f"{row['protocol']} {row['fold']} {row['workload_id']} {row['default_us']!r} "
        f"{row['best_us']:.9g} {row['noise_floor_log']!r} {row['harm_floor_log']!r}"
        for row in rows
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def worst(rows: Sequence[Row], n: int = 10) -> list[Row]:
    """The picks that lost most against the default, then against the best."""
    return sorted(rows, key=lambda row: (row["speedup"], -row["regret"]))[:n]


def to_parquet(rows: Sequence[Row]) -> bytes:
    """The table as a Parquet file."""
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer, compression="zstd")
    return buffer.getvalue()


def from_parquet(content: bytes) -> list[Row]:
    """The rows of a Parquet file.

    Raises:
        CorruptRecordError: Not such a table.
    """
    try:
        table = pyarrow.parquet.read_table(io.BytesIO(content))
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise CorruptRecordError(
            f"expected an evaluation table in Parquet, found {error}"
        ) from error
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise CorruptRecordError(
            f"expected an evaluation table with {missing[0]}, found none: train again"
        )
    rows: list[Row] = table.select(COLUMNS).to_pylist()
    return rows


_SHOWN = (
    *("kernel", "family", "kernel_class", "hardware", "default_us", "pick_us"),
    *("best_us", "speedup", "ungated_speedup", "predicted_speedup", "regret"),
    *("regret_at_5", "source", "reason", "detail", "workload_id"),
)
_STYLE = """
body{font:14px system-ui,sans-serif;margin:1.5rem;color:#1b1b1b}
table{border-collapse:collapse}td,th{padding:.25rem .6rem;border-bottom:1px solid #ddd}
th{position:sticky;top:0;background:#fff;text-align:left}
td.n{text-align:right;font-variant-numeric:tabular-nums}
tr.harm{background:#fde8e0}tr.gain{background:#e6f3ec}
"""


def to_html(rows: Sequence[Row], title: str) -> str:
    """A page of its own, with harm and gains beyond noise marked."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in _SHOWN)
    body = []
    for row in rows:
        gain = np.log(row["speedup"]) > row["noise_floor_log"]
        mark = "harm" if row["is_harm"] else "gain" if gain else ""
        cells = "".join(_cell(row[name]) for name in _SHOWN)
        body.append(f'<tr class="{mark}">{cells}</tr>')
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{html.escape(title)}</h1><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></html>\n"
    )


def _cell(value: object) -> str:
    if value is None:
        return '<td class="n">failed</td>'
    if isinstance(value, float):
        return f'<td class="n">{value:.4g}</td>'
    return f"<td>{html.escape(str(value))}</td>"
