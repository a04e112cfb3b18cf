"""Rows of a Helion autotune csv, in each of the three layouts it has had.

Helion flushes row by row and appends to whatever is there, so a file may be cut in the
middle of a row, and the next process may have gone on in the same line. A csv parser
would swallow every later row into the cut row's open quote. A row is always one line
here, and only its last field (the config) is ever quoted, so lines are split by hand.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from costmodel.types import Config

HEADERS: dict[str, tuple[str, ...]] = {
    # Helion 1.2 and later.
    "run_id": (
        "run_id",
        "timestamp_s",
        "config_id",
        "generation",
        "status",
        "perf_ms",
        "compile_time_s",
        "config",
    ),
    # 9 to 18 June 2026, between releases.
    "sample_id": (
        "kernel_id",
        "sample_id",
        "timestamp_s",
        "config_index",
        "generation",
        "status",
        "perf_ms",
        "compile_time_s",
        "config",
    ),
    # Helion 0.2.2 to 1.1.0.
    "config_index": (
        "timestamp_s",
        "config_index",
        "generation",
        "status",
        "perf_ms",
        "compile_time_s",
        "config",
    ),
}
"""Columns of each layout, by the name of the column that is new in it."""

ANY_CONFIG = "*"
"""Stands for every config in `BadRow.ended_config_id`."""

_CONFIG_ID_CHARS = 16
# A csv spells times to 1 ns. Outside of these a number is no kernel's time, and ratios
# of it are no numbers either.
_SHORTEST_MS = 1e-6
_LONGEST_MS = 1e8

_RUN_ID_ROW = re.compile(r"[0-9a-f]{64},\d*\.?\d*,[0-9a-f]{16},")
"""How a row of the present layout begins: a run id, a time, a config id."""


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One data row, with numbers read but not judged.

    Attributes:
        line: Line in the file, from 1.
        layout: Key of `HEADERS`.
        run_id: Helion's run id, or the kernel id of the second layout, or "".
        sample_id: Only in the second layout.
        config_id: Only in the present layout.
        config_text: `Config(...)` as Python source; None where the line was cut in it.
        perf_text: As spelled, to join with the trace's full precision.
    """

    line: int
    layout: str
    run_id: str
    sample_id: str
    config_id: str
    timestamp_s: float | None
    generation: int
    status: str
    perf_ms: float | None
    perf_text: str
    compile_time_s: float | None
    config_text: str | None


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that holds no row that can be used.

    Attributes:
        ended_config_id: Config whose result the cut line was, as far as can be told;
            `ANY_CONFIG` where the line was cut before its config id, "" for none.
    """

    line: int
    reason: str
    detail: str = ""
    ended_config_id: str = ""


def layout_of(first_line: str) -> str | None:
    """Which layout a header line, or a row of a file without one, belongs to."""
    columns = tuple(part.strip() for part in first_line.lstrip("\ufeff").split(","))
    for name, header in HEADERS.items():
        if columns == header:
            return name
    return "run_id" if _RUN_ID_ROW.match(first_line) else None


def parse_rows(text: str) -> Iterator[CsvRow | BadRow]:
    """Read every row, in file order.

    Args:
        text: A whole csv whose first line `layout_of` knows.

    Yields:
        A row, or what is wrong with a line. Repeated header lines are skipped, a
        change of layout inside the file is followed.
    """
    layout = "run_id"
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.rstrip("\r").lstrip("\ufeff")
        if not line.strip("\0 "):
            continue
        if line.endswith(",config") and (found := layout_of(line)):
            layout = found
            continue
        row = _parse_row(line, layout, number)
        if not _is_suspicious(row):
            yield row
            continue
        for piece in _split_glued(line):
            # Helion before 1.2 wrote the header; a newer one may append below it.
            here = "run_id" if _RUN_ID_ROW.match(piece) else layout
            yield _parse_row(piece, here, number)


@functools.lru_cache(maxsize=65536)
def _parsed_config(text: str) -> Config | None:
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            return None
        return {
            str(keyword.arg): _plain(ast.literal_eval(keyword.value))
            for keyword in call.keywords
        }
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None


def parse_config_text(text: str) -> Config | None:
    """The config behind `Config(key=value, ...)`; None if it is not one."""
    config = _parsed_config(text)
    return None if config is None else dict(config)


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def _is_suspicious(row: CsvRow | BadRow) -> bool:
    """Whether a line may hold two rows, or a row of another layout."""
    if isinstance(row, BadRow) or row.config_text is None:
        return True
    text = row.config_text
    return not text.startswith("Config(") or text.count("Config(") > 1


def _split_glued(line: str) -> list[str]:
    """Separate a row that was written behind a cut one, in the same line."""
    later = _RUN_ID_ROW.search(line, 1)
    if later is None:
        return [line]
    return [line[: later.start()], line[later.start() :]]


def _parse_row(line: str, layout: str, number: int) -> CsvRow | BadRow:
    header = HEADERS[layout]
    parts = line.split(",", len(header) - 1)
    if len(parts) < len(header):
        ended = _ended_config_id(parts) if layout == "run_id" else ANY_CONFIG
        return BadRow(number, "line cut off", line[:40], ended)
    cells = dict(zip(header, parts, strict=True))
    try:
        return CsvRow(
            line=number,
            layout=layout,
            run_id=cells.get("run_id", cells.get("kernel_id", "")),
            sample_id=cells.get("sample_id", ""),
            config_id=cells.get("config_id", ""),
            timestamp_s=_number(cells["timestamp_s"]),
            generation=int(cells["generation"] or 0),
            status=cells["status"],
            perf_ms=_number(cells["perf_ms"]),
            perf_text=cells["perf_ms"],
            compile_time_s=_number(cells["compile_time_s"]),
            config_text=_unquote(cells["config"]),
        )
    except ValueError:
        return BadRow(number, "not a row of a Helion log", line[:40])


def _ended_config_id(parts: list[str]) -> str:
    """Whose result a cut row was; it may just as well have started a config."""
    if len(parts) < 3 or len(parts[2]) < _CONFIG_ID_CHARS:
        return ANY_CONFIG
    status = parts[4] if len(parts) > 4 else ""
    return "" if status and "started".startswith(status) else parts[2]


def _number(text: str) -> float | None:
    return float(text) if text else None


def _unquote(text: str) -> str | None:
    if text.startswith('"'):
        if len(text) < 2 or not text.endswith('"'):
            return None
        text = text[1:-1].replace('""', '"')
    return text if text.endswith(")") else None


def is_time_ms(value: float | None) -> bool:
    """Whether a reading can be a kernel's: at least 1 ns, at most a day or so."""
    return value is not None and _SHORTEST_MS <= value <= _LONGEST_MS
