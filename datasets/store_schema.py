"""Columns of a stored corpus, and the rows that a cleaned run becomes.

Everything machine-specific is taken out on the way in: folders of paths, addresses of
objects. Neither changes a feature.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from costmodel.acf.identity import KNOB
from costmodel.acf.identity import KNOWN
from costmodel.acf.identity import record_name
from costmodel.datasets.clean import CleanRun
from costmodel.datasets.identity import digest_of
from costmodel.datasets.identity import kernel_digest
from costmodel.datasets.labels import Measurement
from costmodel.types import WorkloadRecord

SCHEMA_VERSION = 1
VERSION_KEY = b"costmodel_schema_version"

_META = {VERSION_KEY: str(SCHEMA_VERSION).encode()}

RUNS_SCHEMA = pa.schema(
    [
        ("run_key", pa.string()),  # content digest of the run, joins the attempts
        ("workload_id", pa.string()),
        ("run_id", pa.string()),
        ("run_ordinal", pa.int32()),
        ("log", pa.string()),
        ("kernel", pa.string()),
        ("kernel_id", pa.string()),
        ("family", pa.string()),
        ("variant", pa.string()),
        ("gpu", pa.string()),
        ("regime", pa.string()),
        ("default_config_id", pa.string()),
        ("default_how", pa.string()),
        ("promoted", pa.bool_()),
        ("n_attempts", pa.int32()),
        ("helion_version", pa.string()),
        ("torch_version", pa.string()),
        ("triton_version", pa.string()),
        ("ptxas_version", pa.string()),
        ("driver_version", pa.string()),
        ("started_at_s", pa.float64()),  # Unix seconds
        ("kernel_source", pa.string()),
        ("input_shapes", pa.string()),  # JSON
        ("dtypes", pa.string()),  # JSON
        ("settings", pa.string()),  # JSON
        ("ir_graph", pa.string()),  # JSON
        ("side", pa.string()),  # JSON: scalars, strides, seeds, clocks
    ],
    metadata=_META,
)

ATTEMPTS_SCHEMA = pa.schema(
    [
        ("run_key", pa.string()),
        ("workload_id", pa.string()),
        ("run_id", pa.string()),
        ("run_ordinal", pa.int32()),
        ("kernel", pa.string()),
        ("family", pa.string()),
        ("config_id", pa.string()),
        ("canonical_id", pa.string()),
        ("config", pa.string()),  # JSON, the full form
        ("spelled", pa.string()),  # JSON, as logged under config_id
        ("twin_ids", pa.list_(pa.string())),
        ("status", pa.string()),
        ("latency_us", pa.float64()),
        ("readings_us", pa.list_(pa.float64())),
        ("n_readings", pa.int32()),
        ("n_failures", pa.int32()),
        ("noise_floor_log", pa.float64()),
        ("label_quality", pa.string()),
        ("is_default", pa.bool_()),
        ("regime", pa.string()),
        ("gpu", pa.string()),
        ("helion_version", pa.string()),
        ("triton_version", pa.string()),
        ("code_digest", pa.string()),
        ("acf_id", pa.string()),
        ("registers", pa.int32()),
        ("spill_bytes", pa.int32()),
        ("smem_bytes", pa.int32()),
    ],
    metadata=_META,
)

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_ABSOLUTE = re.compile(r"^(?:[A-Za-z]:)?[\\/].*[\\/]")


def without_paths(value: Any) -> Any:
    """A JSON value whose strings keep of an absolute path only its last part."""
    if isinstance(value, str):
        return _ADDRESS.sub("", _ABSOLUTE.sub("", value))
    if isinstance(value, Mapping):
        return {key: without_paths(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(one) for one in value]
    return value


def run_key(clean_run: CleanRun) -> str:
    """32 hex digits over what a run says, wherever and under whatever name it lies."""
    run = clean_run.run
    return digest_of(
        [
            SCHEMA_VERSION,
            clean_run.workload_id,
            run.run_id,
            clean_run.regime,
            run.default_config_id,
            [
                [
                    one.config_id,
                    one.status,
                    one.readings_us,
                    one.latency_us,
                    one.label_quality,
                ]
                for one in clean_run.measurements
            ],
            _side_json(clean_run),
        ],
        digits=32,
    )


def run_row(clean_run: CleanRun, record: WorkloadRecord, key: str) -> dict[str, Any]:
    """The row of `RUNS_SCHEMA`."""
    run, side = clean_run.run, clean_run.run.side
    return {
        **_common(clean_run, key),
        "log": run.log,
        "kernel_id": kernel_digest(record),
        "variant": side.variant if side else None,
        "default_config_id": run.default_config_id,
        "default_how": run.default_how.value,
        "promoted": side.promoted if side else None,
        "n_attempts": run.n_attempts,
        "torch_version": side.torch_version if side else None,
        "ptxas_version": side.ptxas_version if side else None,
        "driver_version": side.driver_version if side else None,
        "started_at_s": run.started_at_s,
        "kernel_source": record.kernel_source,
        "input_shapes": to_json(record.input_shapes),
        "dtypes": to_json(record.dtypes),
        "settings": to_json(without_paths(record.settings)),
        "ir_graph": to_json(without_paths(record.ir_graph)),
        "side": _side_json(clean_run),
    }


def record_of(run: Mapping[str, Any]) -> WorkloadRecord:
    """The workload that a row of `RUNS_SCHEMA` is about."""
    return WorkloadRecord(
        kernel_name=run["kernel"],
        kernel_source=run["kernel_source"],
        input_shapes=tuple(tuple(shape) for shape in json.loads(run["input_shapes"])),
        dtypes=tuple(json.loads(run["dtypes"])),
        hardware=run["gpu"],
        settings=json.loads(run["settings"]),
        ir_graph=json.loads(run["ir_graph"]),
    )


def attempt_rows(clean_run: CleanRun, key: str) -> list[dict[str, Any]]:
    """Rows of `ATTEMPTS_SCHEMA`, one per measurement."""
    common = _common(clean_run, key)
    return [{**common, **_attempt_row(one)} for one in clean_run.measurements]


def to_json(value: Any) -> str:
    """Compact JSON that keeps the order of keys."""
    return json.dumps(value, separators=(",", ":"), default=str)


def _attempt_row(one: Measurement) -> dict[str, Any]:
    floor = one.noise_floor_log
    return {
        "config_id": one.config_id,
        "canonical_id": one.canonical_id,
        "config": to_json(without_paths(one.canonical)),
        "spelled": to_json(without_paths(one.config)),
        "twin_ids": list(one.twin_ids),
        "status": one.status.value,
        "latency_us": one.latency_us,
        "readings_us": list(one.readings_us),
        "n_readings": len(one.readings_us),
        "n_failures": one.n_failures,
        "noise_floor_log": None if math.isnan(floor) else floor,
        "label_quality": one.label_quality.value,
        "is_default": one.is_default,
        "code_digest": one.facts.code_digest,
        "acf_id": one.facts.acf_id or _acf_of(one),
        "registers": one.facts.registers,
        "spill_bytes": one.facts.spill_bytes,
        "smem_bytes": one.facts.smem_bytes,
    }


def _acf_of(one: Measurement) -> str | None:
    """Digest of the control file that a config names, or `unknown:...`."""
    name = one.canonical.get(KNOB)
    if not isinstance(name, str) or not name:
        return None
    return record_name(name).removeprefix(KNOWN)


def _common(clean_run: CleanRun, key: str) -> dict[str, Any]:
    run, side = clean_run.run, clean_run.run.side
    return {
        "run_key": key,
        "workload_id": clean_run.workload_id,
        "run_id": run.run_id,
        "run_ordinal": run.run_ordinal,
        "kernel": run.kernel_name,
        "family": clean_run.family,
        "gpu": run.record.hardware if run.record else None,
        "regime": clean_run.regime,
        "helion_version": side.helion_version if side else None,
        "triton_version": side.triton_version if side else None,
    }


_IN_ATTEMPTS = ("attempts", "interleaved_us", "run_id")


def _side_json(clean_run: CleanRun) -> str | None:
    side = clean_run.run.side
    if side is None:
        return None
    body = {
        name: value
        for name, value in dataclasses.asdict(side).items()
        if name not in _IN_ATTEMPTS
    }
    return to_json(without_paths(body))
