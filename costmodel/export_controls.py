"""Control files of configs that an export may choose.

Readers of exported files could not look a digest up, and a path that is not there fails
their compile. So a config is chosen and written without its control file, and what it
had is told beside it.
"""

from __future__ import annotations

from collections.abc import Iterable

from costmodel.acf.identity import KNOB
from costmodel.acf.identity import record_name
from costmodel.acf.identity import without_acf
from costmodel.features.canonical import canonical_id
from costmodel.types import Config


class ControlNames:
    """Which of the configs given had a control file.

    Args:
        given: Configs of a user's files.
    """

    def __init__(self, given: Iterable[Config]) -> None:
        self._given = [(without_acf(one), _name_of(one)) for one in given]

    @property
    def configs(self) -> list[Config]:
        """The configs without any."""
        return [config for config, _ in self._given]

    def name_of(self, chosen: Config) -> str | None:
        """`sha256:DIGEST` of the control file that a chosen config came with.

        None where it came with none, or with several: then nobody knows which of them
        is the one.
        """
        wanted = canonical_id(chosen, chosen)
        names = {
            name
            for config, name in self._given
            if canonical_id(config, chosen) == wanted
        }
        return names.pop() if len(names) == 1 else None


def _name_of(config: Config) -> str | None:
    path = config.get(KNOB)
    return record_name(path) if isinstance(path, str) and path else None
