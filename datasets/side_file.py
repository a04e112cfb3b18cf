"""Our own facts beside a Helion log: `<base>.costmodel.jsonl`, one object per run.

Helion logs neither scalar arguments nor strides, versions, clocks or its own default
(see `record.py`), so whoever records a log writes them here. The reader joins an
object to a run by `run_id` and, where one id was used several times, by start time.

Only this module knows the file's spelling. A later version adds optional keys without
touching `schema_version`; a reader ignores keys it does not know and refuses a version
it does not know.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any

from costmodel.errors import CorruptRecordError
from costmodel.types import Config

SCHEMA_VERSION = 1
SUFFIX = ".costmodel.jsonl"

BACK_TO_BACK = "back_to_back"
"""Regime of Helion's own benchmark: CUDA events, launches back to back, L2 cleared."""
GRAPH_REPLAY = "graph_replay"
"""Regime of replayed CUDA graphs, for kernels of a few microseconds."""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """The device a run was timed on; all optional, since not every driver tells.

    Attributes:
        name: As the driver prints it, such as "NVIDIA H200".
        uuid_digest: First 8 hex digits of a hash of the device's UUID, to tell two
            cards apart without naming either.
        sm_clock_start_mhz: SM clock before the first timing.
        sm_clock_end_mhz: SM clock after the last timing.
        memory_clock_mhz: Memory clock.
        temperature_start_c: Degrees Celsius before the first timing.
        temperature_end_c: Degrees Celsius after the last timing.
        power_limit_w: Enforced power limit in watts.
    """

    name: str | None = None
    uuid_digest: str | None = None
    sm_clock_start_mhz: float | None = None
    sm_clock_end_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_start_c: float | None = None
    temperature_end_c: float | None = None
    power_limit_w: float | None = None


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """What the recorder knows of one config beyond Helion's row.

    Attributes:
        readings_us: Our own timings in microseconds, in the order taken, not
            interleaved with other configs.
        code_digest: Digest of the machine instructions. Configs with equal digests and
            equal launches are one program.
        registers: Registers per thread of the compiled kernel.
        spill_bytes: Bytes spilled per thread.
        smem_bytes: Shared memory per block in bytes.
        acf_id: Identity of the ptxas control file used, if any.
    """

    readings_us: tuple[float, ...] = ()
    code_digest: str | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    smem_bytes: int | None = None
    acf_id: str | None = None


@dataclass(frozen=True, slots=True)
class SideFacts:
    """One run's facts. Every field but `run_id` may be unknown.

    Attributes:
        run_id: Helion's id of the run, the join key.
        started_at_s: Unix seconds when the run began; separates runs of one id.
        kernel: Reference of the form `family_module:kernel_name`.
        family: Label that splits use, such as "attention".
        variant: Which way of writing the operation this is.
        arguments: All arguments in the command line's grammar, scalars included.
        scalars: Scalar arguments by name.
        strides: Strides in elements, one tuple per tensor argument.
        helion_version: Version of Helion that recorded the run.
        torch_version: Version of PyTorch.
        triton_version: Version of Triton.
        ptxas_version: Version of the assembler in use.
        driver_version: NVIDIA driver.
        gpu: The device.
        regime: How the readings in this file were taken, such as "back_to_back";
            Helion's own rows always are that. Readings of two regimes never mix.
        default_config_id: Id of the config Helion would have picked by itself.
        default_config: That config, for a log that does not hold it.
        promoted: Whether a heuristic of Helion's made the default.
        seed_config_ids: Ids of the other configs Helion's heuristics offered.
        attempts: Extras by config id.
        interleaved_us: Re-timed readings in microseconds by config id, taken in
            rounds over all of these configs; the best labels there are.
        noise_floor_log: ln ratio under which two of this run's timings are equal, as
            the recorder measured it.
    """

    run_id: str
    started_at_s: float | None = None
    kernel: str | None = None
    family: str | None = None
    variant: str | None = None
    arguments: tuple[str, ...] = ()
    scalars: Mapping[str, Any] = field(default_factory=dict)
    strides: tuple[tuple[int, ...], ...] = ()
    helion_version: str | None = None
    torch_version: str | None = None
    triton_version: str | None = None
    ptxas_version: str | None = None
    driver_version: str | None = None
    gpu: GpuFacts = field(default_factory=GpuFacts)
    regime: str | None = None
    default_config_id: str | None = None
    default_config: Config | None = None
    promoted: bool | None = None
    seed_config_ids: tuple[str, ...] = ()
    attempts: Mapping[str, AttemptFacts] = field(default_factory=dict)
    interleaved_us: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    noise_floor_log: float | None = None


def side_path(base: Path) -> Path:
    """Where the side file of the log with this base path (no suffix) lies."""
    return base.with_name(base.name + SUFFIX)


def to_json_line(facts: SideFacts) -> str:
    """One line without a newline; unknown fields are left out, keys are sorted."""
    body = {
        name: value
        for name, value in dataclasses.asdict(facts).items()
        if value is not None and value != () and value != {}
    }
    body["gpu"] = {k: v for k, v in body.get("gpu", {}).items() if v is not None}
    body["attempts"] = {
        config_id: {k: v for k, v in extras.items() if v is not None and v != ()}
        for config_id, extras in body.get("attempts", {}).items()
    }
    body["schema_version"] = SCHEMA_VERSION
    return json.dumps(
        {k: v for k, v in body.items() if v != {}}, sort_keys=True, allow_nan=False
    )


def append_side_facts(path: Path, facts: Iterable[SideFacts]) -> None:
    """Append one line per run, flushed, so that a killed recorder loses one at most."""
    with path.open("a", encoding="utf-8") as file:
        for one in facts:
            file.write(to_json_line(one) + "\n")
            file.flush()


def parse_side_line(line: str, where: str) -> SideFacts:
    """Read one line.

    Args:
        line: One JSON object.
        where: File and line for the error message.

    Raises:
        CorruptRecordError: Not an object, no run id, or an unknown schema version.
    """
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        raise CorruptRecordError(
            f"{where}: expected one JSON object, found a line that is not JSON "
            "(cut off?): delete the line"
        ) from None
    if not isinstance(body, dict) or not isinstance(body.get("run_id"), str):
        raise CorruptRecordError(
            f"{where}: expected an object with a run_id, found none: is this a "
            "costmodel side file?"
        )
    if body.get("schema_version") != SCHEMA_VERSION:
        raise CorruptRecordError(
            f"{where}: expected side-file schema_version {SCHEMA_VERSION}, found "
            f"{body.get('schema_version')!r}: update helion-costmodel"
        )
    try:
        return _side_facts(body)
    except (TypeError, ValueError, AttributeError) as error:
        raise CorruptRecordError(
            f"{where}: expected a costmodel side record, found a field of another "
            f"type ({error}): record the run again or delete the line"
        ) from None


def read_side_file(path: Path) -> tuple[list[SideFacts], list[str]]:
    """Read every line that can be read.

    Returns:
        The facts in file order, and one message per line that was refused.
    """
    facts, refused = [], []
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            facts.append(parse_side_line(line, f"{path.name}:{number}"))
        except CorruptRecordError as error:
            refused.append(str(error))
    return facts, refused


def merge_side_facts(facts: list[SideFacts]) -> SideFacts | None:
    """Facts of several sessions of one run as one.

    The earliest session's word counts. Extras are joined, and so are the readings of
    sessions of the same regime; those of another regime are left out.
    """
    if not facts:
        return None
    ordered = sorted(facts, key=lambda one: one.started_at_s or 0.0)
    attempts: dict[str, AttemptFacts] = {}
    readings: dict[str, tuple[float, ...]] = {}
    for one in ordered:
        same_regime = one.regime == ordered[0].regime
        for config_id, extras in one.attempts.items():
            if not same_regime:
                extras = dataclasses.replace(extras, readings_us=())
            known = attempts.get(config_id)
            attempts[config_id] = (
                extras
                if known is None
                else dataclasses.replace(
                    known, readings_us=known.readings_us + extras.readings_us
                )
            )
        for config_id, values in one.interleaved_us.items() if same_regime else ():
            readings[config_id] = readings.get(config_id, ()) + values
    return dataclasses.replace(ordered[0], attempts=attempts, interleaved_us=readings)


_TEXTS = (
    "kernel",
    "family",
    "variant",
    "helion_version",
    "torch_version",
    "triton_version",
    "ptxas_version",
    "driver_version",
    "regime",
    "default_config_id",
)
_MAPPINGS = ("scalars", "default_config", "gpu", "attempts", "interleaved_us")


def _side_facts(body: Mapping[str, Any]) -> SideFacts:
    known = {f.name for f in dataclasses.fields(SideFacts)}
    fields = {k: v for k, v in body.items() if k in known and v is not None}
    for name in ("started_at_s", "noise_floor_log"):
        if name in fields:
            fields[name] = float(fields[name])
    for names, kind in ((_TEXTS, str), (_MAPPINGS, dict), (("promoted",), bool)):
        for name in names:
            if name in fields and not isinstance(fields[name], kind):
                raise ValueError(f"{name} is no {kind.__name__}")
    fields["arguments"] = tuple(map(str, fields.get("arguments", ())))
    fields["seed_config_ids"] = tuple(map(str, fields.get("seed_config_ids", ())))
    fields["strides"] = tuple(
        tuple(int(step) for step in one) for one in fields.get("strides", ())
    )
    fields["gpu"] = _only_known(GpuFacts, fields.get("gpu", {}))
    fields["attempts"] = {
        str(config_id): dataclasses.replace(
            _only_known(AttemptFacts, extras),
            readings_us=_times_us(extras.get("readings_us", ())),
        )
        for config_id, extras in fields.get("attempts", {}).items()
    }
    fields["interleaved_us"] = {
        str(config_id): _times_us(values)
        for config_id, values in fields.get("interleaved_us", {}).items()
    }
    return SideFacts(**fields)


def _only_known(kind: type, body: Mapping[str, Any]) -> Any:
    known = {f.name for f in dataclasses.fields(kind)}
    return kind(**{k: v for k, v in body.items() if k in known})


def _times_us(values: Iterable[Any]) -> tuple[float, ...]:
    """Positive finite readings; a failed re-timing may be spelled null or NaN."""
    numbers = (float(value) for value in values if value is not None)
    return tuple(one for one in numbers if math.isfinite(one) and one > 0)
