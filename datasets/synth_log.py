"""Synthetic runs as Helion writes them to a log, or as its reader would read them."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

from costmodel.arguments import contiguous_strides
from costmodel.datasets.csv_layouts import HEADERS
from costmodel.datasets.record import Attempt
from costmodel.datasets.record import DefaultSource
from costmodel.datasets.record import RecordedRun
from costmodel.datasets.record import Status
from costmodel.datasets.sessions import STARTED
from costmodel.datasets.side_file import BACK_TO_BACK
from costmodel.datasets.side_file import GpuFacts
from costmodel.datasets.side_file import SideFacts
from costmodel.datasets.side_file import side_path
from costmodel.datasets.side_file import to_json_line
from costmodel.datasets.synth import SyntheticRun
from costmodel.features.canonical import config_id
from costmodel.types import Config

_HEADER = HEADERS["run_id"]
_STEP_S = 0.5  # between two attempts of a log's clock
_COMPILE_S = "0.25"
# What the log says it is of, so that nobody takes it for a measurement.
VERSION = "synthetic"


def log_name(run: SyntheticRun) -> str:
    """Base name of the run's log."""
    return f"synthetic-{run.index:06d}"


def write_log(run: SyntheticRun, folder: Path) -> Path:
    """Write csv, meta and side file of one run; returns the log's base path.

    The csv is written last: a log without one is no log, so that a killed generator
    leaves none half written, and a second start writes it again.
    """
    base = folder / log_name(run)
    ids = [config_id(one) for one in run.configs]
    meta = {
        "run_id": run.run_id,
        "kernel_name": run.record.kernel_name,
        "kernel_source": run.record.kernel_source,
        "input_shapes": repr(list(run.record.input_shapes)),
        "dtypes": repr(list(run.record.dtypes)),
        "hardware": run.record.hardware,
        "settings": dict(run.record.settings),
        "ir_graph": dict(run.record.ir_graph),
        "configs": dict(zip(ids, run.configs, strict=True)),
    }
    _write(base, ".meta.jsonl", json.dumps(meta) + "\n")
    side_path(base).write_text(to_json_line(side_of(run)) + "\n", encoding="utf-8")
    unfinished = base.with_name(base.name + ".unfinished")
    unfinished.write_text(_csv_text(run, ids), encoding="utf-8", newline="")
    unfinished.replace(base.with_name(base.name + ".csv"))
    return base


def is_written(index: int, folder: Path) -> bool:
    """Whether the log of a run is there in full."""
    return (folder / f"synthetic-{index:06d}.csv").is_file()


def recorded(run: SyntheticRun) -> RecordedRun:
    """What reading the run's log gives."""
    attempts = tuple(
        Attempt(
            config_id=config_id(config),
            config=config,
            status=status,
            latency_us=None if math.isnan(latency_us) else float(latency_us),
            ordinal=number,
            is_first_reading=number == 0,
        )
        for number, (config, status, latency_us) in enumerate(
            zip(run.configs, run.status, run.latency_us, strict=True)
        )
    )
    side = side_of(run)
    return RecordedRun(
        log=log_name(run),
        run_id=run.run_id,
        run_ordinal=0,
        record=run.record,
        attempts=attempts,
        side=side,
        default_config_id=side.default_config_id,
        default_how=DefaultSource.SIDE_FILE,
        started_at_s=side.started_at_s,
    )


def side_of(run: SyntheticRun) -> SideFacts:
    """Our own facts of the run; the versions say that it is synthetic."""
    return SideFacts(
        run_id=run.run_id,
        started_at_s=float(run.index),
        family=run.family,
        strides=tuple(contiguous_strides(shape) for shape in run.record.input_shapes),
        helion_version=VERSION,
        torch_version=VERSION,
        triton_version=VERSION,
        gpu=GpuFacts(name=run.record.hardware),
        regime=BACK_TO_BACK,
        default_config_id=config_id(run.configs[0]),
        promoted=run.promoted,
    )


def _csv_text(run: SyntheticRun, ids: list[str]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_HEADER)
    clock_s = 0.0
    for one, config, status, latency_us in zip(
        ids, run.configs, run.status, run.latency_us, strict=True
    ):
        text = _config_text(config)
        perf = f"{latency_us / 1e3:.6f}" if status is Status.OK else ""
        clock_s += _STEP_S
        started = (run.run_id, f"{clock_s:.2f}", one, 0, STARTED, "", _COMPILE_S, text)
        clock_s += _STEP_S
        ended = (run.run_id, f"{clock_s:.2f}", one, 0, status, perf, _COMPILE_S, text)
        writer.writerows((started, ended))
    return out.getvalue()


def _config_text(config: Config) -> str:
    return f"Config({', '.join(f'{key}={config[key]!r}' for key in sorted(config))})"


def _write(base: Path, suffix: str, text: str) -> None:
    base.with_name(base.name + suffix).write_text(text, encoding="utf-8")
