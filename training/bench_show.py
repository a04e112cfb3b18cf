"""A bench's report for people: tables on a terminal, a page in Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

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
    by_class = Table(title="By class", title_justify="left")
    head, rows = _class_rows(report)
    for name in head:
        by_class.add_column(name, justify="left" if name == "class" else "right")
    for row in rows:
        by_class.add_row(*row)
    console.print(by_class)
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
        f"{one.n_failed} (<{one.failed_upper:.1%})",
        f"{one.worst:.3f}",
        f"{one.n_measured:.1f}",
        _seconds(one.decide_s),
    )


def _class_rows(report: BenchReport) -> tuple[list[str], list[list[str]]]:
    """One row for each class: speed-ups, and how many are slower beyond noise."""
    head = ["class", "n", "kernels", "best", *report.columns]
    rows = []
    for part in report.classes:
        columns = {one.name: one for one in part.columns}
        row = [part.title, str(part.n), str(part.n_kernels), f"{part.best:.3f}"]
        for name in report.columns:
            one = columns.get(name)
            slower = "" if one is None or not one.n_harm else f" ({one.n_harm} slower)"
            row.append("" if one is None else f"{one.speedup:.3f}{slower}")
        rows.append(row)
    return head, rows


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
    lines += ["## By class", ""]
    lines += _markdown_table(*_class_rows(report))
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
        (
            "clocks",
            f"SM {_between(found['sm_clock_mhz'])} MHz, "
            f"{_between(found['temperature_c'])} C, "
            f"power limit {', '.join(map(str, found['power_limit_w']))} W",
        ),
        ("versions", versions),
        ("measured", ", ".join(found["measured"])),
        ("workloads", str(len(report.scores))),
        ("results judged by", _counted(found["judged_by"])),
        ("readings", _counted(found["regimes"])),
    ]
    if report.floor_log is not None:
        lines.append(("noise floor", f"{report.floor_log:.2%} in the median"))
    if found["other_defaults"]:
        words = "workloads where this Helion's default is not the planning one's"
        lines.append(("other defaults", f"{found['other_defaults']} {words}"))
    if report.unscored:
        lines.append(("left out", f"{len(report.unscored)} whose default did not run"))
    return lines


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in counts.items())


def _between(ends: tuple[float, float] | None) -> str:
    return "unknown" if ends is None else f"{ends[0]:g}-{ends[1]:g}"


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
    if not lines:
        lines.append("No pick was slower than the default beyond noise; none failed.")
    for result in report.unscored:
        workload = result.planned.workload
        default = result.results.get(result.default_id)
        ours = result.results.get(next(iter(result.members.get(PICK, ())), ""))
        lines.append(
            f"- `{workload.kernel} {' '.join(workload.args)}`: Helion's default has no "
            f"time ({default.status if default else 'missing'}), our pick "
            f"{ours.status if ours else 'missing'}; not counted"
        )
    return lines


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [
        f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows
    ]
    return [*lines, ""]
