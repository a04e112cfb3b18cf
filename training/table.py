"""The evaluation as tables for people, and what they do and do not show."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from costmodel.training.judge import DEFAULT
from costmodel.training.judge import GATED
from costmodel.training.judge import METHODS
from costmodel.training.judge import UNGATED
from costmodel.training.judge import Evaluation
from costmodel.training.judge import JudgedWorkload

# From this many workloads of independent kernels on, an interval of a few per cent can
# be told from none: proving a few per cent needs 40 to 140 (design notes, prototype).
PROVING_WORKLOADS = 40


def workload_table(evaluation: Evaluation) -> Table:
    """One row per held-out workload: what each way of picking did, and why."""
    table = Table(title=f"Picks, {evaluation.protocol}", title_justify="left")
    table.add_column("workload", overflow="fold")
    table.add_column("family", overflow="fold")
    for name in ("default us", "pick us", "best us", "speed-up", "regret", "no gate"):
        table.add_column(name, justify="right")
    table.add_column("source")
    table.add_column("why", overflow="fold")
    for one in evaluation.judged:
        table.add_row(*_workload_cells(one))
    return table


def _workload_cells(one: JudgedWorkload) -> tuple[str, ...]:
    workload = one.workload
    gated, ungated = one.gated, one.ungated
    default_us = workload.default_us
    pick_us = "failed" if gated.failed else f"{default_us / gated.speedup:.1f}"
    return (
        workload.kernel,
        workload.family,
        f"{default_us:.1f}",
        pick_us,
        f"{default_us / gated.best_speedup:.1f}",
        f"{gated.speedup:.3f}" + ("!" if gated.is_harm else ""),
        f"{gated.regret:.1%}",
        f"{ungated.speedup:.3f}" + ("!" if ungated.is_harm else ""),
        one.choice.source.value,
        f"{one.choice.reason.value}: {one.choice.detail}",
    )


def summary_table(evaluation: Evaluation) -> Table:
    """One row per method, over all held-out workloads."""
    table = Table(title=f"Methods, {evaluation.protocol}", title_justify="left")
    table.add_column("method")
    for name in ("speed-up", "95% interval", "worst", "harm", "failed", "regret"):
        table.add_column(name, justify="right")
    for k in (1, 3, 5):
        table.add_column(f"regret@{k}", justify="right")
    for method in METHODS:
        numbers = evaluation.summary_of(method)
        table.add_row(
            method,
            f"{numbers['speedup_geomean']:.3f}",
            f"{numbers['speedup_low']:.2f}-{numbers['speedup_high']:.2f}",
            f"{numbers['speedup_worst']:.2f}",
            f"{numbers['harm_share']:.0%}",
            f"{numbers['failed_share']:.0%}",
            f"{numbers['regret_mean']:.1%}",
            *(f"{numbers[f'regret_at_{k}']:.1%}" for k in (1, 3, 5)),
            style="bold" if method == GATED else "",
        )
    best = evaluation.summary_of(DEFAULT)["best_geomean"]
    table.add_row("best known", f"{best:.3f}", *[""] * 8, style="dim")
    return table


def rule_table(evaluation: Evaluation) -> Table:
    """The methods apart where Helion has a rule and where it has none."""
    table = Table(title=f"By rule, {evaluation.protocol}", title_justify="left")
    table.add_column("Helion has")
    table.add_column("method")
    for name in ("workloads", "speed-up", "95% interval", "worst", "harm", "headroom"):
        table.add_column(name, justify="right")
    for k in (1, 2, 5):
        table.add_column(f"regret@{k}", justify="right")
    for promoted in (True, False):
        for method in METHODS:
            numbers = evaluation.summary_of(method, promoted=promoted)
            if not numbers["n_workloads"]:
                continue
            table.add_row(
                "a rule" if promoted else "no rule",
                method,
                f"{numbers['n_workloads']:.0f}",
                f"{numbers['speedup_geomean']:.3f}",
                f"{numbers['speedup_low']:.2f}-{numbers['speedup_high']:.2f}",
                f"{numbers['speedup_worst']:.2f}",
                f"{numbers['harm_share']:.1%}",
                f"{numbers['headroom_share']:.0%}",
                *(f"{numbers[f'regret_at_{k}']:.1%}" for k in (1, 2, 5)),
            )
    return table


def class_table(evaluation: Evaluation) -> Table:
    """One row per kernel class: the model with and without its gate."""
    table = Table(title=f"Classes, {evaluation.protocol}", title_justify="left")
    table.add_column("class")
    for name in ("workloads", "best", "speed-up", "harm", "no gate", "no-gate harm"):
        table.add_column(name, justify="right")
    for name in evaluation.classes:
        gated = evaluation.summary_of(GATED, name)
        ungated = evaluation.summary_of(UNGATED, name)
        table.add_row(
            name,
            f"{gated['n_workloads']:.0f}",
            f"{gated['best_geomean']:.3f}",
            f"{gated['speedup_geomean']:.3f}",
            f"{gated['harm_share']:.0%}",
            f"{ungated['speedup_geomean']:.3f}",
            f"{ungated['harm_share']:.0%}",
        )
    return table


def reading(evaluation: Evaluation) -> str:
    """What the numbers show, in words, with nothing claimed that they do not."""
    numbers = evaluation.summary_of(GATED)
    ungated = evaluation.summary_of(UNGATED)
    n = len(evaluation.judged)
    kernels = len({one.workload.source_digest for one in evaluation.judged})
    low, high = numbers["speedup_low"], numbers["speedup_high"]
    acted = sum(
        one.choice.index != one.workload.default_index for one in evaluation.judged
    )
    lines = [
        f"With the gate: {numbers['speedup_geomean']:.3f}x over Helion's default, "
        f"{numbers['harm_share']:.0%} of {n} workloads slower beyond noise; "
        f"the pick differs from the default in {acted}.",
        f"Without the gate: {ungated['speedup_geomean']:.3f}x, "
        f"{ungated['harm_share']:.0%} slower beyond noise.",
    ]
    if n < PROVING_WORKLOADS:
        lines.append(
            f"{n} workloads of {kernels} kernels prove nothing: the 95% interval is "
            f"{low:.2f} to {high:.2f}, and showing a few per cent takes "
            f"{PROVING_WORKLOADS} or more held-out workloads."
        )
    elif low <= 1.0:
        lines.append(
            f"Not proven: the 95% interval over kernels is {low:.2f} to {high:.2f}."
        )
    lines.append(
        "regret@k: the default and the k best-ranked configs measured, the fastest "
        "kept. A mark '!' is a speed-up below 1 beyond the workload's noise floor."
    )
    return "\n".join(lines)


def show(evaluation: Evaluation, console: Console) -> None:
    """Print everything about one evaluation."""
    if evaluation.not_applicable:
        console.print(f"{evaluation.protocol}: {evaluation.not_applicable}")
        return
    console.print(workload_table(evaluation))
    console.print(summary_table(evaluation))
    console.print(rule_table(evaluation))
    console.print(class_table(evaluation))
    console.print(reading(evaluation), highlight=False)


def as_text(evaluation: Evaluation, width: int = 160) -> str:
    """The same as plain text, for an artifact."""
    buffer = io.StringIO()
    show(evaluation, Console(file=buffer, width=width, color_system=None))
    return buffer.getvalue()
