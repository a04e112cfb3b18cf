"""The two files of a bench: the plan (what to time) and the results (what came of it).

Both hold one JSON object a line, so that a plan can be made on one machine and timed
on another, and a result is safe as soon as its line is written. The first line of a
plan describes it. Only this module knows the spelling.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import zlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any
from typing import BinaryIO

from costmodel.datasets.workloads.workload import Workload
from costmodel.errors import CorruptRecordError
from costmodel.types import Config

FORMAT = 1

_SHOWN_CHARACTERS = 60  # of a line in an error

RESULT_FILES = ("bench-*.jsonl", "*results.jsonl")
"""Names of files of results in a folder, each also with `.gz` behind it."""

_GZIP_MAGIC = b"\x1f\x8b"

DEFAULT = "default"
"""Column of Helion's own pick; every workload has it."""


@dataclass(frozen=True, slots=True)
class Column:
    """One way to choose a config, and what it chose.

    Attributes:
        name: Such as "pick" or "top5".
        configs: One config is the answer itself; several are measured and the fastest
            is the answer.
        decide_s: Seconds to choose, without compiling or measuring anything.
        by: Who decided, such as "learned".
        why: Why, in one line for a person.
        predicted_speedup: Over the default, where something was predicted.
    """

    name: str
    configs: tuple[Config, ...]
    decide_s: float | None = None
    by: str = ""
    why: str = ""
    predicted_speedup: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedWorkload:
    """One workload and every column to time.

    Attributes:
        workload: What to run.
        kernel_digest: Digest of the kernel's source: what intervals are drawn over.
        kernel_class: By structure.
        promoted: Whether Helion has a rule for it.
        columns: The default first.
        bind_s: Seconds to bind it on the planning machine.
        model_id: Model that picked, or "".
    """

    workload: Workload
    kernel_digest: str
    kernel_class: str
    promoted: bool
    columns: tuple[Column, ...]
    bind_s: float | None = None
    model_id: str = ""

    @property
    def default(self) -> Config:
        """Helion's own config as the planning machine's Helion has it."""
        return self.columns[0].configs[0]


@dataclass(frozen=True, slots=True)
class Plan:
    """All of a plan.

    Attributes:
        facts: How it was made: hardware, versions, models, what could not be planned.
        planned: The workloads, in the order to time.
    """

    facts: Mapping[str, Any]
    planned: tuple[PlannedWorkload, ...]


@dataclass(frozen=True, slots=True)
class ConfigResult:
    """What came of one config, or of one callable that is no Helion config.

    Attributes:
        status: "ok", "wrong", "timeout", "refused" or "error".
        config: None for a foreign callable.
        detail: What failed, in one line.
        first_us: First reading, by Helion's own benchmark.
        readings: Interleaved readings: round, position in it, microseconds.
        code_digest: Of its machine code.
        registers: Per thread.
        spill_bytes: Per thread.
    """

    status: str
    config: Config | None = None
    detail: str = ""
    first_us: float | None = None
    readings: tuple[tuple[int, int, float], ...] = ()
    code_digest: str | None = None
    registers: int | None = None
    spill_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One measured workload.

    Attributes:
        planned: The plan's line, with the columns that were added while measuring.
        results: By id: config ids, and names of foreign callables.
        members: Ids of each column's configs, by column name.
        default_id: Id of Helion's default on the measuring machine.
        regime: How readings were taken.
        noise_floor_log: Of the default against itself.
        judged_by: What results were compared with.
        compile_s: Wall seconds to compile all configs, several at a time.
        first_s: Seconds of all first readings with their checks.
        searched: Facts of Helion's own search, where one was made.
        gpu: The device and its clocks.
        versions: Versions of the measuring machine.
        started_at_s: Unix time.
        seconds: Of this workload, from start to end.
    """

    planned: PlannedWorkload
    results: Mapping[str, ConfigResult]
    members: Mapping[str, tuple[str, ...]]
    default_id: str
    regime: str
    noise_floor_log: float | None
    judged_by: str
    compile_s: float
    first_s: float
    searched: Mapping[str, Any] = field(default_factory=dict)
    gpu: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    started_at_s: float = 0.0
    seconds: float = 0.0


def plan_to_json(planned: PlannedWorkload) -> dict[str, Any]:
    """A workload's line of a plan, as an object."""
    body = dataclasses.asdict(planned)
    body["workload"]["workload_id"] = planned.workload.workload_id
    return body


def plan_from_json(body: Mapping[str, Any]) -> PlannedWorkload:
    """The reverse of `plan_to_json`; keys of later versions are ignored.

    Raises:
        KeyError, TypeError, ValueError: It is something else.
    """
    workload = body["workload"]
    columns = tuple(
        _known(Column, {**one, "configs": tuple(map(dict, one["configs"]))})
        for one in body["columns"]
    )
    if not columns or columns[0].name != DEFAULT or len(columns[0].configs) != 1:
        raise ValueError(f"the first column must be {DEFAULT!r} with one config")
    return _known(  # type: ignore[no-any-return]
        PlannedWorkload,
        {
            **body,
            "workload": Workload(
                kernel=str(workload["kernel"]),
                args=tuple(map(str, workload["args"])),
                family=str(workload["family"]),
                variant=str(workload["variant"]),
            ),
            "columns": columns,
        },
    )


def result_to_json(result: BenchResult) -> dict[str, Any]:
    """A line of results, as an object."""
    body = dataclasses.asdict(result)
    body["planned"] = plan_to_json(result.planned)
    return {"format": FORMAT, **body}


def result_from_json(body: Mapping[str, Any]) -> BenchResult:
    """The reverse of `result_to_json`."""
    if body["format"] != FORMAT:
        raise ValueError(f"format {body['format']}, this version reads {FORMAT}")
    results = {
        name: _known(
            ConfigResult,
            {
                **one,
                "readings": tuple(
                    (int(number), int(place), float(us))
                    for number, place, us in one["readings"]
                ),
            },
        )
        for name, one in body["results"].items()
    }
    members = {name: tuple(ids) for name, ids in body["members"].items()}
    return _known(  # type: ignore[no-any-return]
        BenchResult,
        {
            **body,
            "planned": plan_from_json(body["planned"]),
            "results": results,
            "members": members,
        },
    )


def write_plan(path: Path, plan: Plan) -> None:
    """Write a plan, replacing an older one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines: list[Mapping[str, Any]] = [{"format": FORMAT, "plan": dict(plan.facts)}]
    lines += [plan_to_json(one) for one in plan.planned]
    text = "".join(_line(one) for one in lines)
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def read_plan(path: Path) -> Plan:
    """Read a plan.

    Raises:
        CorruptRecordError: No such file, or a line that `write_plan` did not write.
    """
    facts: Mapping[str, Any] | None = None
    planned = []
    for number, text in enumerate(_lines(path, "costmodel bench plan"), start=1):
        try:
            body = json.loads(text)
            if facts is None:
                if body["format"] != FORMAT:
                    raise _of_another_format(path, body["format"])
                facts = dict(body["plan"])
            else:
                planned.append(plan_from_json(body))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            expected = (
                "a workload with its columns, the first of them "
                f"{DEFAULT!r} with one config"
                if facts is not None
                else "the first line of a bench plan"
            )
            raise CorruptRecordError(
                f"{path}:{number}: expected {expected}, found {_found(text, error)}: "
                "make it again with `costmodel bench plan`"
            ) from None
    if facts is None:
        raise CorruptRecordError(
            f"{path}: expected a bench plan, found an empty file: make it again with "
            "`costmodel bench plan`"
        )
    return Plan(facts, tuple(planned))


def _of_another_format(path: Path, found: object) -> CorruptRecordError:
    return CorruptRecordError(
        f"{path}:1: expected a bench plan of format {FORMAT}, found format {found!r}: "
        "make it again with `costmodel bench plan` of this version"
    )


def _found(text: str, error: Exception) -> str:
    """What a line is instead, in a person's words."""
    shown = repr(text[:_SHOWN_CHARACTERS])
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON ({shown})"
    if isinstance(error, KeyError):
        return f"no {error.args[0]!r} in {shown}"
    return shown


def append_result(path: Path, result: BenchResult) -> None:
    """Append one line, on disk before this returns, instead of one cut short before."""
    with path.open("ab+") as file:
        _end_line(file)
        file.write(_line(result_to_json(result)).encode())
        file.flush()
        os.fsync(file.fileno())


def read_results(
    paths: Iterable[Path], say: Callable[[str], None] | None = None
) -> list[BenchResult]:
    """Results of several files; of one workload measured twice the last one stays.

    A last line that was cut short, by a kill in the middle of writing, is left out:
    its workload counts as not measured.

    Args:
        paths: Files of results, compressed by gzip or not.
        say: Told of each line that is left out, in one line for a person.

    Raises:
        CorruptRecordError: A file is missing, or a whole line is something else.
    """
    found: dict[str, BenchResult] = {}
    for path in paths:
        lines = list(_lines(path, "costmodel bench run"))
        for number, text in enumerate(lines, start=1):
            try:
                result = result_from_json(json.loads(text))
            except json.JSONDecodeError:
                if number < len(lines) or not text.startswith("{"):
                    raise _no_result(path, number, text) from None
                if say is not None:
                    say(
                        f"{path}:{number}: half a line, of a run that was stopped "
                        "in it, is left out; `costmodel bench run` measures it again"
                    )
                continue
            except (ValueError, KeyError, TypeError, AttributeError):
                raise _no_result(path, number, text) from None
            found.pop(result.planned.workload.workload_id, None)
            found[result.planned.workload.workload_id] = result
    return list(found.values())


def result_files(places: Sequence[Path]) -> list[Path]:
    """Result files among files and folders; in folders, those named `RESULT_FILES`.

    Raises:
        CorruptRecordError: A place holds none.
    """
    files: list[Path] = []
    for place in places:
        inside = _results_in(place) if place.is_dir() else [place]
        if not inside or not all(one.is_file() for one in inside):
            looked_for = (
                f", no file named {' or '.join(RESULT_FILES)}, with .gz or without"
                if place.is_dir()
                else ""
            )
            raise CorruptRecordError(
                f"{place}: expected bench results, found none{looked_for}: make them "
                "with `costmodel bench run PLAN --output DIR`"
            )
        files += inside
    return files


def _results_in(folder: Path) -> list[Path]:
    return sorted(
        {
            path
            for name in RESULT_FILES
            for pattern in (name, f"{name}.gz")
            for path in folder.glob(pattern)
        }
    )


def _no_result(path: Path, number: int, text: str) -> CorruptRecordError:
    is_text = "\ufffd" not in text and "\0" not in text
    found = repr(text[:60]) if is_text else "bytes that are no text"
    return CorruptRecordError(
        f"{path}:{number}: expected a bench result, found {found}: give results that "
        "this version's `costmodel bench run` wrote"
    )


def _known(kind: Any, body: Mapping[str, Any]) -> Any:
    names = {one.name for one in dataclasses.fields(kind)}
    return kind(**{key: value for key, value in body.items() if key in names})


def _line(body: Mapping[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"), allow_nan=False) + "\n"


def _lines(path: Path, made_by: str) -> Iterator[str]:
    try:
        content = path.read_bytes()
        if content.startswith(_GZIP_MAGIC):
            content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise CorruptRecordError(
            f"{path}: expected a file of `{made_by}`, found a gzip file that is cut "
            "short or damaged: copy it again"
        ) from None
    except OSError as error:
        raise CorruptRecordError(
            f"{path}: expected a file of `{made_by}`, cannot read it ({error.strerror})"
        ) from None
    text = content.decode("utf-8", errors="replace")
    return (line for line in text.splitlines() if line.strip())


def _end_line(file: BinaryIO) -> None:
    """Make the end of a file the start of a line: a whole one ends, half a one goes."""
    if not file.tell():
        return
    file.seek(-1, os.SEEK_END)
    if file.read(1) == b"\n":
        return
    file.seek(0)
    last = file.read().rpartition(b"\n")[2]
    try:
        json.loads(last)
    except ValueError:
        file.truncate(file.tell() - len(last))
    else:
        file.write(b"\n")
