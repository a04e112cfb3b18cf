"""Find the configs in a JSON file, whatever holds them, and put others in their place.

A config is an object with one of Helion's own keys; everything around it stays as it
is. Helion's cache files hold a config as text, which is read and written as text.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.errors import ConfigFileError
from costmodel.frozen import dataclass
from costmodel.json_problem import found_instead
from costmodel.migrate import ConfigReport
from costmodel.types import Config

# Keys that no object but a config has; the same since the first release.
TELLING = frozenset({"block_sizes", "num_warps", "num_stages", "indexing", "pid_type"})

Steps = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class FoundConfig:
    """A config in a file.

    Attributes:
        steps: Keys and indices from the top of the file to it.
        config: Its fields.
        key: The named sizes beside it, where a serving layout has them.
        is_text: Whether the file spells it as text.
    """

    steps: Steps
    config: Config
    key: Mapping[str, Any]
    is_text: bool = False

    @property
    def place(self) -> str:
        """The steps as people write them: `[3].config`; "." for the whole file."""
        words = [f"[{s}]" if isinstance(s, int) else f".{s}" for s in self.steps]
        return "".join(words).removeprefix(".") or "."


def read_config_file(path: Path) -> tuple[Any, list[FoundConfig]]:
    """A file's content and every config in it.

    Raises:
        ConfigFileError: No such file, no JSON, or no config in it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigFileError(
            f"{path}: expected a file of configs, found {found_instead(error)}: name "
            "one of JSON, or source or text with helion.Config(...)"
        ) from error
    found = list(_configs(content, (), {}))
    if not found:
        raise ConfigFileError(
            f"{path}: expected configs (objects with block_sizes or num_warps), found "
            "none: is it another kind of file?"
        )
    return content, found


def _configs(value: Any, steps: Steps, key: Mapping[str, Any]) -> Iterator[FoundConfig]:
    if isinstance(value, list):
        for place, item in enumerate(value):
            yield from _configs(item, (*steps, place), key)
    if isinstance(value, str) and steps and steps[-1] == "config":
        inside = _parsed(value)
        if isinstance(inside, dict) and TELLING & inside.keys():
            yield FoundConfig(steps, inside, key, is_text=True)
    if not isinstance(value, dict):
        return
    if TELLING & value.keys():
        yield FoundConfig(steps, value, key)
        return
    beside = value.get("key")
    named = beside if isinstance(beside, dict) else key
    for name, item in value.items():
        if name != "key":
            yield from _configs(item, (*steps, name), named)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class MigratedFile:
    """A file after migration.

    Attributes:
        path: Where it was read.
        reports: One for each config, in the file's order.
        content: The file with current configs, refused ones left out; None where
            nothing is left. Text where the file is source or text, which keeps refused
            ones as they were.
        refused: The refused entries, whole, each with its place and reason.
    """

    path: Path
    reports: tuple[tuple[FoundConfig, ConfigReport], ...]
    content: Any
    refused: tuple[dict[str, Any], ...]


def migrate_file(
    path: Path, migrate: Callable[[FoundConfig], ConfigReport]
) -> MigratedFile:
    """Migrate every config of a file.

    Raises:
        ConfigFileError: The file cannot be read.
    """
    content, found = read_config_file(path)
    reports = tuple((one, migrate(one)) for one in found)
    fresh = copy.deepcopy(content)
    refused = []
    # From the back, so that indices still hold after an entry is taken out.
    for one, report in reversed(reports):
        if report.new is not None:
            new = report.new
            fresh = _put(fresh, one.steps, json.dumps(new) if one.is_text else new)
            continue
        steps = _entry_of(content, one.steps)
        entry = _at(content, steps)
        reason = {"place": one.place, "reason": report.reason, "entry": entry}
        refused.append(reason)
        fresh = _taken_out(fresh, steps)
    refused.reverse()
    return MigratedFile(path, reports, fresh, tuple(refused))


def _entry_of(content: Any, steps: Steps) -> Steps:
    """The list element that only exists for this config, or the config itself."""
    if len(steps) >= 2 and isinstance(steps[-2], int) and steps[-1] == "config":
        return steps[:-1]
    if steps == ("config",) and isinstance(content, dict):
        return ()  # a file about one config, such as a cache entry
    return steps


def _at(content: Any, steps: Steps) -> Any:
    for step in steps:
        content = content[step]
    return content


def _put(content: Any, steps: Steps, value: Any) -> Any:
    if not steps:
        return value
    _at(content, steps[:-1])[steps[-1]] = value
    return content


def _taken_out(content: Any, steps: Steps) -> Any:
    if not steps:
        return None
    del _at(content, steps[:-1])[steps[-1]]
    return content
