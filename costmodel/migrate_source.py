"""Configs written as Python, `helion.Config(...)`, in source files and in plain text.

Nothing is executed: source is parsed, text is searched for calls that parse. A call
whose fields are no literals cannot be read, and is reported as such. Everything around
the calls stays as it is, to the byte; so does a call that needs no change, and one that
is refused, since taking it out would leave a program that does not run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from costmodel.errors import ConfigFileError
from costmodel.frozen import dataclass
from costmodel.migrate import ConfigReport
from costmodel.migrate_files import TELLING
from costmodel.migrate_files import FoundConfig
from costmodel.migrate_files import MigratedFile
from costmodel.migrate_rules import FieldStatus
from costmodel.types import Config

_CALL = re.compile(rb"\b(?:\w+\.)*Config\(")
_LONGEST_CALL = 20_000  # bytes; a config of a large kernel takes about 3,000
_UNREADABLE = "its fields are no literals: nothing is executed to find them out"


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """One call in a file.

    Attributes:
        start: Byte of the file at which the call begins.
        end: Byte after it.
        callee: How it names the class, such as "helion.Config".
        line: Line of its beginning, from 1.
        column: Column of its beginning, from 1.
        config: Its fields; None where they are no literals.
    """

    start: int
    end: int
    callee: str
    line: int
    column: int
    config: Config | None

    @property
    def found(self) -> FoundConfig:
        """As the rest of the migration sees it."""
        return FoundConfig((f"line {self.line}:{self.column}",), self.config or {}, {})


def holds_calls(content: bytes) -> bool:
    """Whether anything in a file looks like a config written as Python."""
    return _CALL.search(content) is not None


def read_calls(path: Path, content: bytes) -> list[SourceConfig]:
    """Every config written as Python in a file.

    Raises:
        ConfigFileError: A `.py` file is no Python, or no config is in the file.
    """
    try:
        text = content.decode("utf-8")
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if path.suffix == ".py":
            raise ConfigFileError(f"{path}: expected Python, found {error}") from error
        calls = list(_in_text(content))
    else:
        calls = list(_in_tree(tree, content))
    if not calls:
        raise ConfigFileError(
            f"{path}: expected configs, `helion.Config(...)` with block_sizes or "
            "num_warps, found none: is it another kind of file?"
        )
    return calls


def migrate_source(
    path: Path, migrate: Callable[[FoundConfig], ConfigReport]
) -> MigratedFile:
    """Migrate every config of a file of source or text.

    Raises:
        ConfigFileError: The file cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigFileError(f"{path}: {error.strerror}") from error
    calls = read_calls(path, content)
    reports = [(call, _judged(call, migrate)) for call in calls]
    fresh = content
    refused = []
    # From the back, so that positions before a call still hold.
    for call, report in reversed(reports):
        old = content[call.start : call.end]
        if report.new is None:
            words = old.decode("utf-8", "replace")
            reason = report.reason
            entry = {"place": call.found.place, "reason": reason, "entry": words}
            refused.append(entry)
        elif report.status is not FieldStatus.KEPT or report.filled:
            new = _spelled(call, report.new, old).encode()
            fresh = fresh[: call.start] + new + fresh[call.end :]
    refused.reverse()
    found = tuple((call.found, report) for call, report in reports)
    return MigratedFile(path, found, fresh.decode("utf-8", "replace"), tuple(refused))


def _judged(
    call: SourceConfig, migrate: Callable[[FoundConfig], ConfigReport]
) -> ConfigReport:
    if call.config is None:
        return ConfigReport(FieldStatus.REFUSED, {}, None, (), {}, _UNREADABLE)
    return migrate(call.found)


def _in_tree(tree: ast.AST, content: bytes) -> Iterator[SourceConfig]:
    # Columns of the syntax tree count bytes.
    starts = [0]
    for line in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls.sort(key=lambda node: (node.lineno, node.col_offset))
    for node in calls:
        if node.end_lineno is None or node.end_col_offset is None:
            continue
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        made = _source_config(node, start, end, node.lineno, node.col_offset + 1)
        if made is not None:
            yield made


def _in_text(content: bytes) -> Iterator[SourceConfig]:
    """Calls in a text that is no Python as a whole, such as the lines of a log."""
    done = 0
    for match in _CALL.finditer(content):
        start = match.start()
        if start < done:
            continue
        window = content[start : start + _LONGEST_CALL]
        for closing in re.finditer(rb"\)", window):
            end = closing.end()
            try:
                node = ast.parse(window[:end].decode("utf-8"), mode="eval").body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            line = content.count(b"\n", 0, start) + 1
            column = start - (content.rfind(b"\n", 0, start) + 1) + 1
            made = _source_config(node, start, start + end, line, column)
            if made is not None:
                done = start + end
                yield made
            break


def _source_config(
    node: ast.AST, start: int, end: int, line: int, column: int
) -> SourceConfig | None:
    """The call, if it makes a config."""
    if not isinstance(node, ast.Call):
        return None
    callee = ast.unparse(node.func)
    if callee.rpartition(".")[2] != "Config" or node.args:
        return None
    names = {keyword.arg for keyword in node.keywords}
    config = _literal_fields(node)
    telling = names if config is None else set(config)
    if not TELLING & telling:
        return None
    return SourceConfig(start, end, callee, line, column, config)


def _literal_fields(node: ast.Call) -> Config | None:
    fields: dict[str, Any] = {}
    for keyword in node.keywords:
        try:
            value = _plain(ast.literal_eval(keyword.value))
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            return None
        if keyword.arg is not None:
            fields[keyword.arg] = value
        elif isinstance(value, dict):  # `Config(**{...})`
            fields |= value
        else:
            return None
    return fields


def _plain(value: Any) -> Any:
    """As JSON has it: a config's tuples are lists everywhere else."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    return value


def _spelled(call: SourceConfig, config: Config, old: bytes) -> str:
    """The call with other fields, on one line or on many as it was."""
    fields = [f"{name}={value!r}" for name, value in config.items()]
    if b"\n" not in old:
        return f"{call.callee}({', '.join(fields)})"
    second = old.split(b"\n")[1].decode("utf-8", "replace")
    inner = second[: len(second) - len(second.lstrip())]
    last = old.split(b"\n")[-1].decode("utf-8", "replace")
    outer = last[: len(last) - len(last.lstrip())] if last.strip() == ")" else inner
    lines = "".join(f"{inner}{field},\n" for field in fields)
    return f"{call.callee}(\n{lines}{outer})"
