"""A corpus that can be shared: what its owner chose to call things is gone.

Kept are shapes, dtypes, strides, numbers, configs, times, versions and the name of the
GPU: what features and labels are made of, byte for byte. Renamed, per kernel and in an
order that keeps the old one: the words of its source, the nodes of its graph, its
tunables. Dropped: text, paths, dates, serials, logs' names, and every field that is not
known to be harmless. Shapes stay, so whoever counts them as a secret must not share.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from costmodel.datasets.anonymise_config import anonymous_config
from costmodel.datasets.anonymise_config import anonymous_settings
from costmodel.datasets.anonymise_config import config_words
from costmodel.datasets.anonymise_config import is_number
from costmodel.datasets.anonymise_graph import anonymous_graph
from costmodel.datasets.anonymise_graph import graph_words
from costmodel.datasets.anonymise_source import anonymous_source
from costmodel.datasets.anonymise_source import private_words
from costmodel.datasets.identity import digest_of
from costmodel.datasets.identity import kernel_digest
from costmodel.datasets.identity import workload_id
from costmodel.datasets.store import ATTEMPTS_FILE
from costmodel.datasets.store import RUNS_FILE
from costmodel.datasets.store import Corpus
from costmodel.datasets.store_schema import ATTEMPTS_SCHEMA
from costmodel.datasets.store_schema import RUNS_SCHEMA
from costmodel.datasets.store_schema import record_of
from costmodel.datasets.store_schema import to_json
from costmodel.datasets.table_files import locked
from costmodel.datasets.table_files import write_table
from costmodel.errors import StoreError
from costmodel.errors import UnreadableKernelError
from costmodel.features.canonical import config_id
from costmodel.types import KernelClass

_SIDE_KEPT = frozenset(
    [
        "strides",
        "helion_version",
        "torch_version",
        "triton_version",
        "ptxas_version",
        "driver_version",
        "regime",
        "promoted",
        "noise_floor_log",
    ]
)
_GPU_DROPPED = frozenset({"uuid_digest"})
_PLAIN_ARGUMENT = re.compile(
    r"[a-z0-9]+\[[\d,]*\](?::[\d,]+)?(?:@[a-z]+(?:\(\d+\))?)?"
    r"|-?[\d.]+(?:e-?\d+)?|true|false|none"
)
_CLASSES = frozenset(one.value for one in KernelClass)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Anonymised:
    """Both tables' rows, and the runs that had to stay behind.

    Attributes:
        runs: Rows of `RUNS_SCHEMA`.
        attempts: Rows of `ATTEMPTS_SCHEMA`.
        left_out: One line per run that could not be anonymised.
    """

    runs: tuple[Row, ...]
    attempts: tuple[Row, ...]
    left_out: tuple[str, ...]


class Names:
    """New names for old words, in the order of the old ones: what sorts the same way
    before sorts the same way after."""

    def __init__(self, words: Iterable[str]) -> None:
        ordered = sorted(set(words))
        self._new = {word: f"v{i:04d}" for i, word in enumerate(ordered)}

    def __call__(self, word: str) -> str:
        return self._new[word]


def export(corpus: Corpus, directory: Path) -> Anonymised:
    """Write an anonymised copy into a new folder.

    Raises:
        StoreError: The folder holds something already, or cannot be written.
    """
    if directory.exists() and any(directory.iterdir()):
        raise StoreError(
            f"{directory}: expected a new or empty folder, found files in it: choose "
            "another"
        )
    made = anonymise(corpus)
    with locked(directory):
        for name, rows, schema in (
            (ATTEMPTS_FILE, made.attempts, ATTEMPTS_SCHEMA),
            (RUNS_FILE, made.runs, RUNS_SCHEMA),
        ):
            write_table(directory / name, pa.Table.from_pylist(list(rows), schema))
    return made


def anonymise(corpus: Corpus) -> Anonymised:
    """Anonymise every run of a corpus; runs come in the order of their new keys."""
    by_run: dict[str, list[Row]] = {}
    for row in corpus.attempts.to_pylist():
        by_run.setdefault(row["run_key"], []).append(row)
    kernels: dict[str, list[Row]] = {}
    for run in corpus.runs.to_pylist():
        kernels.setdefault(run["kernel_id"], []).append(run)
    labels = {run["family"] for runs in kernels.values() for run in runs} - _CLASSES
    family = {label: f"family_{i:02d}" for i, label in enumerate(sorted(labels))}
    pairs: list[tuple[Row, list[Row]]] = []
    left_out: list[str] = []
    for mine in kernels.values():
        rows = {run["run_key"]: by_run.get(run["run_key"], []) for run in mine}
        names = Names(_words(mine, [row for own in rows.values() for row in own]))
        for run in mine:
            try:
                pairs.append(_pair(run, rows[run["run_key"]], names, family))
            except UnreadableKernelError as error:
                left_out.append(f"{run['log']} ({run['kernel']}): {error}")
    pairs.sort(key=lambda pair: pair[0]["run_key"])
    for number, (run, own) in enumerate(pairs):
        run["log"] = f"run_{number:04d}"
        own.sort(key=lambda row: row["canonical_id"])
    return Anonymised(
        runs=tuple(run for run, _ in pairs),
        attempts=tuple(row for _, own in pairs for row in own),
        left_out=tuple(left_out),
    )


def _words(runs: Sequence[Row], rows: Sequence[Row]) -> Iterable[str]:
    """Every private word of one kernel."""
    yield from private_words(runs[0]["kernel_source"])
    for run in runs:
        yield from graph_words(json.loads(run["ir_graph"]))
        yield from (_side(run).get("scalars") or {})
    for row in rows:
        for spelling in (row["config"], row["spelled"]):
            yield from config_words(json.loads(spelling))


def _side(run: Row) -> Row:
    side: Row = json.loads(run["side"]) if run["side"] else {}
    return side


def _pair(
    run: Row, rows: Sequence[Row], names: Names, family: Mapping[str, str]
) -> tuple[Row, list[Row]]:
    source = anonymous_source(run["kernel_source"], names)
    graph = anonymous_graph(json.loads(run["ir_graph"]), names)
    settings = anonymous_settings(json.loads(run["settings"]))
    new = {
        **run,
        "kernel_source": source,
        "ir_graph": to_json(graph),
        "settings": to_json(settings),
        "family": family.get(run["family"], run["family"]),
        "variant": None,
        "started_at_s": None,
        "run_ordinal": 0,
    }
    kernel = digest_of(source or digest_of(run["kernel_id"]))
    new["kernel"] = f"kernel_{kernel[:8]}"
    record = record_of(new)
    new["kernel_id"] = kernel_digest(record)
    new["workload_id"] = workload_id(record)
    ids: dict[str, str] = {}
    attempts = [_attempt(row, names, ids) for row in rows]
    default = run["default_config_id"]
    new["default_config_id"] = None if default is None else ids.get(default, default)
    new["side"] = to_json(_anonymous_side(_side(run), names, ids, new))
    codes = {one: i for i, one in enumerate(sorted(_codes(attempts)))}
    for row in attempts:
        if row["code_digest"] is not None:
            row["code_digest"] = f"code_{codes[row['code_digest']]:03d}"
    labels = [
        [row["config_id"], row["status"], row["readings_us"], row["latency_us"]]
        for row in attempts
    ]
    key = digest_of([new["workload_id"], new["side"], labels], digits=32)
    run_id = digest_of(["run", key], digits=64)
    for row in (new, *attempts):
        row["run_key"], row["run_id"], row["run_ordinal"] = key, run_id, 0
    for row in attempts:
        for name in ("workload_id", "kernel", "family"):
            row[name] = new[name]
    return new, attempts


def _codes(attempts: Iterable[Row]) -> set[str]:
    return {row["code_digest"] for row in attempts if row["code_digest"] is not None}


def _attempt(row: Row, names: Names, ids: dict[str, str]) -> Row:
    """One row with its config renamed; `ids` learns what its ids have become."""
    full = anonymous_config(json.loads(row["config"]), names)
    spelled = anonymous_config(json.loads(row["spelled"]), names)
    canonical_id, as_spelled = row["canonical_id"], row["config_id"]
    if full != json.loads(row["config"]):
        canonical_id = config_id(full)
    if spelled != json.loads(row["spelled"]):
        as_spelled = config_id(spelled)
    ids |= dict.fromkeys(row["twin_ids"], as_spelled) | {row["config_id"]: as_spelled}
    return {
        **row,
        "config": to_json(full),
        "spelled": to_json(spelled),
        "canonical_id": canonical_id,
        "config_id": as_spelled,
        "twin_ids": [as_spelled],
        "acf_id": None if row["acf_id"] is None else "acf",
    }


def _anonymous_side(
    side: Row, names: Names, ids: Mapping[str, str], run: Row
) -> Row | None:
    if not side:
        return None
    kept = {name: value for name, value in side.items() if name in _SIDE_KEPT}
    default = side.get("default_config") or {}
    known = all(_is_known(word, names) for word in config_words(default))
    return {
        **kept,
        "kernel": run["kernel"],
        "family": run["family"],
        "arguments": [
            one if _PLAIN_ARGUMENT.fullmatch(one) else "none"
            for one in side.get("arguments") or ()
        ],
        "scalars": {
            names(name): value
            for name, value in (side.get("scalars") or {}).items()
            if is_number(value) and (value is None or math.isfinite(value))
        },
        "gpu": {
            name: value
            for name, value in (side.get("gpu") or {}).items()
            if name not in _GPU_DROPPED
        },
        "default_config_id": run["default_config_id"],
        "default_config": anonymous_config(default, names)
        if default and known
        else None,
        "seed_config_ids": [
            ids.get(one, one) for one in side.get("seed_config_ids") or ()
        ],
    }


def _is_known(word: str, names: Names) -> bool:
    try:
        names(word)
    except KeyError:
        return False
    return True
