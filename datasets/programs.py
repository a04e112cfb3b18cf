"""Which sessions under one run id timed which program.

Helion's run id covers neither scalar arguments nor strides: two programs can share it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.datasets.csv_layouts import CsvRow
from costmodel.datasets.meta_file import NO_GRAPH
from costmodel.datasets.meta_file import MetaLine


@dataclass(frozen=True, slots=True)
class Program:
    """One workload under a run id.

    Attributes:
        metas: Its meta lines.
        sessions: Numbers of the sessions that timed it.
        problem: Why its timings must not be used, or None.
    """

    metas: tuple[MetaLine, ...]
    sessions: tuple[int, ...]
    problem: str | None = None


def find_programs(
    metas: Sequence[MetaLine], sessions: Sequence[Sequence[CsvRow]]
) -> list[Program]:
    """Tell the programs of one run id apart; see `meta_file.program_digest`.

    Args:
        metas: All meta lines of the id, in file order.
        sessions: All sessions of the id, in file order.

    Returns:
        One program per distinct IR graph; a single one with a `problem` where nothing
        says which session timed which.
    """
    everything = tuple(range(len(sessions)))
    groups: dict[str, list[MetaLine]] = defaultdict(list)
    for meta in metas:
        groups[meta.program].append(meta)
    # A session that does not tell its program is taken for the only one that does.
    telling = [key for key in groups if not key.startswith(NO_GRAPH)]
    telling = telling or [key for key in groups if key != NO_GRAPH]
    if len(telling) == 1:
        for key in [key for key in groups if key != telling[0]]:
            groups[telling[0]] += groups.pop(key)
    if len(groups) <= 1:
        problem = next((one.problem for one in metas if one.problem), None)
        return [Program(tuple(metas), everything, problem)]
    owner = _owners(metas, groups, sessions)
    if owner is None:
        reason = (
            f"{len(groups)} programs share this run id and its {len(sessions)} "
            "sessions cannot be told apart: record each workload to its own log"
        )
        return [Program(tuple(metas), everything, reason)]
    return [
        Program(
            tuple(group),
            tuple(index for index in everything if owner[index] == key),
            next((one.problem for one in group if one.problem), None),
        )
        for key, group in groups.items()
        if key in owner
    ]


def _owners(
    metas: Sequence[MetaLine],
    groups: Mapping[str, Sequence[MetaLine]],
    sessions: Sequence[Sequence[CsvRow]],
) -> list[str] | None:
    """Program of each session: by order, since Helion writes one meta line per
    finished session; else by which program's configs it used."""
    if len(metas) == len(sessions):
        program_of = {meta.line: key for key, group in groups.items() for meta in group}
        return [program_of[meta.line] for meta in sorted(metas, key=lambda m: m.line)]
    known = {
        key: frozenset(config_id for meta in group for config_id in meta.configs)
        for key, group in groups.items()
    }
    owner = []
    for session in sessions:
        used = {row.config_id for row in session}
        fitting = [key for key, ids in known.items() if used <= ids]
        if len(fitting) != 1:
            return None
        owner.append(fitting[0])
    return owner
