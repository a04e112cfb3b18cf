"""A bench's report for people: tables on a terminal, a page in Markdown, a plot."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from costmodel.datasets.bench_file import DEFAULT
from costmodel.datasets.bench_plan import PICK
from costmodel.datasets.bench_score import ColumnScore
from costmodel.datasets.bench_score import WorkloadScore
from costmodel.training.bench_report import BenchReport
from costmodel.training.bench_report import ColumnSummary
from costmodel.training.bench_report import conditions

MEANING = (
    "speed-up: Helion's default time / this column's time, median over interleaved "
    "rounds; interval: 95 %, bootstrap over kernels; headroom: share of the log gain "
    "of the best config timed here; slower, faster: beyond the noise of both; a config "
    "that fails or is wrong counts as 0.1x and as slower."
)
CHOOSING = (
    "Columns that measure several configs choose by the first round and are judged by "
    "the others. Their seconds hold all compiling and first readings of the workload."
)

_SUMMARY_HEAD = (
    "column",
    "n",
    "speed-up",
    "95 %",
    "headroom",
    "faster",
    "slower",
    "failed",
    "worst",
    "measured",
    "decide s",
)
_DPI = 130
# Okabe and Ito's palette: told apart by colour-blind readers and in grey.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
_GREY = "#999999"


def show(report: BenchReport, console: Console) -> None:
    """All tables, on a terminal."""
    table = Table(title="Workloads", title_justify="left")
    head, rows = workload_rows(report)
    for name in head:
        table.add_column(name, justify="left" if name == "workload" else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for part in report.parts:
        title = _title(part.title, part.n, part.n_kernels, part.best)
        summary = Table(title=title, title_justify="left")
        for name in _SUMMARY_HEAD:
            summary.add_column(name, justify="left" if name == "column" else "right")
        for column in part.columns:
            summary.add_row(*_summary_cells(column))
        console.print(summary)
    console.print(f"{MEANING} {CHOOSING}", highlight=False)


def workload_rows(report: BenchReport) -> tuple[list[str], list[list[str]]]:
    """One row for each workload, and the head of the table."""
    head = ["workload", "rule", "default us"]
    head += [*report.columns, "best", "pick by", "pick s"]
    rows = [_workload_cells(one, report.columns) for one in report.scores]
    return head, rows


def _workload_cells(one: WorkloadScore, columns: Sequence[str]) -> list[str]:
    planned = one.result.planned
    pick = one.columns.get(PICK)
    return [
        f"{planned.workload.kernel} {' '.join(planned.workload.args)}",
        "yes" if planned.promoted else "no",
        f"{one.default_us:.1f}",
        *(_cell(one.columns.get(name)) for name in columns),
        f"{one.best_speedup:.3f}",
        "" if pick is None else pick.column.by,
        "" if pick is None else _seconds(pick.decide_s),
    ]


def _cell(column: ColumnScore | None) -> str:
    """Speed-up; `!` is slower beyond noise, `=` the default itself or its code."""
    if column is None:
        return ""
    if column.is_failure:
        return f"{column.status}!"
    is_default = column.chosen is not None and column.floor_log == 0.0
    mark = "=" if is_default or column.same_code else "!" if column.is_harm else ""
    return f"{column.speedup:.3f}{mark}"


def _summary_cells(one: ColumnSummary) -> tuple[str, ...]:
    return (
        one.name,
        str(one.n),
        f"{one.speedup:.3f}x",
        f"{one.low:.3f}-{one.high:.3f}",
        f"{one.headroom_share:.0%}",
        f"{one.n_gain}",
        f"{one.n_harm} ({one.n_harm / one.n:.1%})",
        f"{one.n_failed}",
        f"{one.worst:.3f}",
        f"{one.n_measured:.1f}",
        _seconds(one.decide_s),
    )


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value < 1 else f"{value:.1f}"


def _title(name: str, n: int, n_kernels: int, best: float) -> str:
    return f"{name}: {n} workloads of {n_kernels} kernels, best timed {best:.3f}x"


def markdown(
    report: BenchReport,
    facts: Iterable[tuple[str, Any]] = (),
    plot: str | None = None,
) -> str:
    """A page for `docs/measurements/`.

    Args:
        report: What to show.
        facts: Further lines of the head: date, command, models.
        plot: File name of a picture beside the page.
    """
    lines = ["# Picks against Helion's default, live on a GPU", ""]
    lines += [f"- {name}: {value}" for name, value in [*facts, *_conditions(report)]]
    lines += ["", f"{MEANING[0].upper()}{MEANING[1:]} {CHOOSING}", ""]
    if plot is not None:
        lines += [f"![speed-up of each workload]({plot})", ""]
    for part in report.parts:
        lines += [f"## {_title(part.title, part.n, part.n_kernels, part.best)}", ""]
        lines += _markdown_table(_SUMMARY_HEAD, map(_summary_cells, part.columns))
    lines += ["## Where it went wrong", ""]
    lines += _troubles(report)
    lines += ["", "## Every workload", ""]
    lines += ["`!` is slower beyond noise, `=` the default itself or its code.", ""]
    head, rows = workload_rows(report)
    lines += _markdown_table(head, rows)
    return "\n".join(lines).rstrip() + "\n"


def _conditions(report: BenchReport) -> list[tuple[str, str]]:
    found = conditions(report)
    versions = ", ".join(
        f"{name.removesuffix('_version')} {'/'.join(values)}"
        for name, values in found["versions"].items()
    )
    lines = [
        ("GPU", f"{', '.join(found['gpu'])}, driver {', '.join(found['driver'])}"),
        ("clocks", f"SM {found['sm_clock_mhz']} MHz, {found['temperature_c']} C"),
        ("versions", versions),
        ("workloads", f"{len(report.scores)}, results judged by {found['judged_by']}"),
        ("readings", f"{found['regimes']}"),
    ]
    if report.floor_log is not None:
        lines.append(("noise floor", f"{report.floor_log:.2%} in the median"))
    if found["other_defaults"]:
        words = "workloads where this Helion's default is not the planning one's"
        lines.append(("other defaults", f"{found['other_defaults']} {words}"))
    if report.unscored:
        lines.append(("left out", f"{len(report.unscored)} whose default did not run"))
    return lines


def _troubles(report: BenchReport) -> list[str]:
    """Every pick that was harmful or failed, with what was said about it."""
    lines = []
    for one in report.scores:
        column = one.columns.get(PICK)
        if column is None or not column.is_harm:
            continue
        words = column.detail if column.is_failure else column.column.why
        workload = one.result.planned.workload
        lines.append(
            f"- `{workload.kernel} {' '.join(workload.args)}`: "
            f"{_cell(column)} of {one.best_speedup:.3f}, {words}"
        )
    return lines or ["No pick was slower than the default beyond noise; none failed."]


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [
        f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows
    ]
    return [*lines, ""]


def save_plot(report: BenchReport, path: Path) -> None:
    """Speed-up of each workload by column, sorted by the best config timed."""
    names = [name for name in report.columns if name != DEFAULT][: len(_COLOURS)]
    scores = sorted(report.scores, key=lambda one: one.best_speedup)
    figure = Figure(figsize=(8.0, 2.2 + 0.17 * max(len(scores), 6)), dpi=_DPI)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    rows = np.arange(len(scores))
    axes.plot(
        [one.best_speedup for one in scores],
        rows,
        "|",
        color=_GREY,
        markersize=9,
        label="best timed",
    )
    for name, colour in zip(names, _COLOURS, strict=False):
        points = [
            (one.columns[name].speedup, row)
            for row, one in enumerate(scores)
            if name in one.columns
        ]
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            "o",
            color=colour,
            markersize=5 if name == PICK else 3,
            alpha=0.9 if name == PICK else 0.6,
            label=name,
        )
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    ticks = [x for x in (0.1, 0.25, 0.5, 0.8, 1, 1.25, 1.5, 2, 4, 8, 16, 32, 64, 128)]
    low, high = axes.get_xlim()
    axes.set_xticks(
        [x for x in ticks if low <= x <= high],
        labels=[f"{x:g}x" for x in ticks if low <= x <= high],
    )
    axes.minorticks_off()
    labels = [one.result.planned.workload.kernel for one in scores]
    axes.set_yticks(rows, labels=labels, fontsize=5)
    axes.set_ylim(-1, max(len(scores), 1))
    axes.set_xlabel("Helion's default time / this column's time")
    axes.grid(axis="x", linewidth=0.3)
    axes.legend(loc="lower right", fontsize=7)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
