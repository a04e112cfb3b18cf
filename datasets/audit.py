"""What became of every row: kept, merged or dropped, per file and run, with the reason.

The reader and the cleaner add findings; nobody prints until the command line asks for
`rows` (plain data) or `table` (for people). Every data row of a csv is counted exactly
once among kept, merged and dropped.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from rich.table import Table


class Outcome(enum.StrEnum):
    """What happened to the rows of a finding."""

    KEPT = "kept"
    MERGED = "merged"
    """Counted with another row: a started row with its result, a repeat, a twin."""
    DROPPED = "dropped"
    SET_ASIDE = "set_aside"
    """Read, but the whole run must not be used."""
    NOTED = "noted"
    """Nothing was lost; worth knowing."""
    PROBLEM = "problem"
    """A file, or part of it, that could not be read."""


class Stage(enum.StrEnum):
    """Who found it."""

    READ = "read"
    CLEAN = "clean"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Finding:
    """Rows that went one way for one reason.

    Attributes:
        stage: Reading, cleaning or storing.
        outcome: What happened to the rows.
        reason: Why, in a few words; equal reasons are counted together.
        rows: How many rows (reading), attempts (cleaning) or runs (storing); 0 where
            the finding is about a file.
        file: Name of the file, without folders.
        line: First line it concerns, from 1; None for the whole file.
        run_id: Helion's run id, or empty.
        detail: Example or advice, for people.
    """

    stage: Stage
    outcome: Outcome
    reason: str
    rows: int = 0
    file: str = ""
    line: int | None = None
    run_id: str = ""
    detail: str = ""

    @property
    def where(self) -> str:
        """`file:line`, or whichever of the two is known."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def as_line(self) -> str:
        """One line for a person."""
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.where}: {self.reason}{detail}"


_STAGES = tuple(Stage)
_OUTCOMES = tuple(Outcome)


def _table_order(finding: Finding) -> tuple[str, str, int, int]:
    return (
        finding.file,
        finding.run_id,
        _STAGES.index(finding.stage),
        _OUTCOMES.index(finding.outcome),
    )


class Audit:
    """An append-only collection of findings; equal ones are counted together."""

    def __init__(self, findings: Iterable[Finding] = ()) -> None:
        self._findings: dict[tuple[str, ...], Finding] = {}
        self.extend(findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._findings.values())

    def __len__(self) -> int:
        return len(self._findings)

    def add(self, finding: Finding) -> None:
        """Add one finding, or its rows to an equal one (the first line stays)."""
        key = (
            finding.stage,
            finding.outcome,
            finding.reason,
            finding.file,
            finding.run_id,
            # Findings about a file stay apart, so that each names its own line.
            "" if finding.rows else str(finding.line),
        )
        known = self._findings.get(key)
        if known is not None:
            finding = dataclasses.replace(known, rows=known.rows + finding.rows)
        self._findings[key] = finding

    def extend(self, findings: Iterable[Finding]) -> None:
        """Add several."""
        for finding in findings:
            self.add(finding)

    def problems(self) -> list[Finding]:
        """Files or lines that could not be read, each worth a line on stderr."""
        return [one for one in self if one.outcome is Outcome.PROBLEM]

    def unusable_runs(self) -> list[Finding]:
        """Runs that were read and must not be used, each worth a line as well."""
        return [
            one
            for one in self
            if one.outcome is Outcome.SET_ASIDE and one.stage is Stage.READ
        ]

    def totals(self) -> dict[str, int]:
        """Rows by outcome over everything read from csv files."""
        counts: Counter[str] = Counter()
        for one in self:
            if one.stage is Stage.READ and one.rows:
                counts[one.outcome.value] += one.rows
        return dict(counts)

    def rows(self) -> list[dict[str, Any]]:
        """Plain data, one dictionary a finding, in the order found."""
        return [
            {
                "stage": one.stage.value,
                "file": one.file,
                "line": one.line,
                "run_id": one.run_id,
                "outcome": one.outcome.value,
                "rows": one.rows,
                "reason": one.reason,
                "detail": one.detail,
            }
            for one in self
        ]

    def table(self) -> Table:
        """A table for the terminal: one row per file, run, outcome and reason."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title="What was read", title_justify="left")
        for name in ("file", "run", "outcome", "rows", "reason"):
            table.add_column(name, justify="right" if name == "rows" else "left")
        for one in sorted(self, key=_table_order):
            text = one.reason if not one.detail else f"{one.reason} ({one.detail})"
            cells = (
                one.where if one.outcome is not Outcome.KEPT else one.file,
                one.run_id[:8],
                one.outcome.value.replace("_", " "),
                str(one.rows) if one.rows else "",
                text,
            )
            # Text, not markup: a reason may quote "[...]" from a file.
            table.add_row(*(Text(cell) for cell in cells))
        return table
