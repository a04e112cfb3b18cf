"""Control files for ptxas in a log: from paths, as Helion writes them, to contents.

A path is good for the machine and the day it was written. What the recorder noted of a
config comes first; then a catalogue's path, which names the content itself; then the
file, if it is still there and was not written since. What is left stays apart from
known control files and from none at all, under a name of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from costmodel.acf.entry import is_acf_id
from costmodel.acf.identity import KNOB
from costmodel.acf.identity import KNOWN
from costmodel.acf.identity import record_name
from costmodel.datasets.side_file import SideFacts
from costmodel.types import Config


class AcfNames:
    """Names the control files of one log's configs; reads each file once.

    Args:
        sides: What the recorder noted; the first that knows a config counts.
        as_of_s: Unix seconds when the log was recorded; None if nobody knows.
    """

    def __init__(self, sides: Iterable[SideFacts], as_of_s: float | None) -> None:
        self._noted: dict[str, str] = {}
        for side in sides:
            for config_id, facts in side.attempts.items():
                if facts.acf_id is not None and is_acf_id(facts.acf_id):
                    self._noted.setdefault(config_id, facts.acf_id)
        self._as_of_s = as_of_s
        self._names: dict[str, str] = {}

    def named(self, config_id: str, config: Config) -> Config:
        """The config with its control file named by content; as it is without one.

        Args:
            config_id: As the log spells it.
            config: As the log spells it.
        """
        path = config.get(KNOB)
        if not isinstance(path, str) or not path:
            return config
        if config_id in self._noted:
            return {**config, KNOB: KNOWN + self._noted[config_id]}
        if path not in self._names:
            self._names[path] = record_name(path, self._as_of_s)
        return {**config, KNOB: self._names[path]}
