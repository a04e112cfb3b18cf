"""What a compiler made of a corpus's configs: `compiled.parquet`, beside its tables.

One row a config of a run: how compiling it for the run's GPU ended, exact resources,
and what its code is made of. Written from lines that `benchmarks/compile_corpus.py`
makes; optional, as a corpus without it still trains the first stage.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from costmodel.datasets.store_schema import SCHEMA_VERSION
from costmodel.datasets.store_schema import VERSION_KEY
from costmodel.datasets.table_files import locked
from costmodel.datasets.table_files import read_table
from costmodel.datasets.table_files import write_table
from costmodel.errors import CorruptRecordError
from costmodel.features.compiled import CodeFacts
from costmodel.features.compiled import LoopCode

COMPILED_FILE = "compiled.parquet"

COMPILED_SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),  # Helion's id, joins the runs
        ("config_id", pa.string()),  # as the log spells it
        ("status", pa.string()),  # costmodel.compiled_facts.CompileStatus
        ("detail", pa.string()),
        ("registers", pa.int32()),
        ("stack_bytes", pa.int32()),
        ("spill_bytes", pa.int32()),
        ("smem_bytes", pa.int32()),
        ("num_warps", pa.int32()),
        ("n_instructions", pa.int32()),
        ("code_digest", pa.string()),
        ("toolchain", pa.string()),  # helion, torch, triton, ptxas
        ("code", pa.string()),  # JSON: counts, innermost loops, loads
    ],
    metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()},
)

_SHAPE_FIELDS = (
    "counts",
    "load_bytes",
    "bytes_in_flight",
    "pending_copy_groups",
    "has_wgmma",
    "has_tma",
)


def has_compiled(corpus: Path) -> bool:
    """Whether a corpus folder holds compiled facts."""
    return (corpus / COMPILED_FILE).is_file()


def row_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """A table row from one line of a compilation.

    Args:
        line: `{"run_id", "config_id", "facts"}`, facts as `compiled_facts.to_json`.

    Raises:
        CorruptRecordError: A field is missing.
    """
    try:
        facts = line["facts"]
        shape = facts["code"]
        stores, loads = facts["spill_store_bytes"], facts["spill_load_bytes"]
        toolchain = facts["toolchain"]
        code = None
        if shape is not None:
            code = {name: shape[name] for name in _SHAPE_FIELDS}
            code["innermost"] = [
                [loop["end"] - loop["start"] + 1, loop["counts"]]
                for loop in shape["loops"]
                if loop["is_innermost"]
            ]
        return {
            "run_id": line["run_id"],
            "config_id": line["config_id"],
            "status": facts["status"],
            "detail": facts["detail"],
            "registers": facts["registers"],
            "stack_bytes": facts["stack_bytes"],
            "spill_bytes": None if stores is None or loads is None else stores + loads,
            "smem_bytes": facts["smem_bytes"],
            "num_warps": facts["num_warps"],
            "n_instructions": None if shape is None else shape["n_instructions"],
            "code_digest": facts["code_digest"],
            "toolchain": " ".join(
                toolchain[name] for name in ("helion", "torch", "triton", "ptxas")
            ),
            "code": None if code is None else json.dumps(code, sort_keys=True),
        }
    except (KeyError, TypeError) as error:
        raise CorruptRecordError(
            f"expected a line of a compilation with facts, found one without {error}: "
            "write it with `benchmarks/compile_corpus.py run`"
        ) from error


def append_compiled(corpus: Path, lines: Iterable[Mapping[str, Any]]) -> int:
    """Add lines to a corpus's compiled facts; the latest of one config counts.

    Returns:
        How many rows the table has afterwards.
    """
    path = corpus / COMPILED_FILE
    with locked(corpus):
        known = read_table(path, COMPILED_SCHEMA) if path.is_file() else None
        rows = {} if known is None else _by_config(known.to_pylist())
        rows |= _by_config(row_of(line) for line in lines)
        ordered = [rows[key] for key in sorted(rows)]
        write_table(path, pa.Table.from_pylist(ordered, schema=COMPILED_SCHEMA))
    return len(ordered)


def _by_config(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["run_id"], row["config_id"]): row for row in rows}


class CompiledTable:
    """Compiled facts of a corpus, by run and config."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self._rows = _by_config(rows)

    @classmethod
    def load(cls, corpus: Path | str) -> CompiledTable:
        """Read a corpus's compiled facts; empty where it has none."""
        path = Path(corpus) / COMPILED_FILE
        if not path.is_file():
            return cls([])
        return cls(read_table(path, COMPILED_SCHEMA).to_pylist())

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def toolchains(self) -> tuple[str, ...]:
        """Versions that compiled, each set of them once."""
        return tuple(sorted({row["toolchain"] for row in self._rows.values()}))

    def merged(self, other: CompiledTable) -> CompiledTable:
        """Both together; the other's rows count where both have one."""
        both = CompiledTable([])
        both._rows = {**self._rows, **other._rows}
        return both

    def code_of(self, run_id: str, config_id: str) -> CodeFacts | None:
        """Machine code of a config that compiled and fits; None where unknown."""
        row = self._rows.get((run_id, config_id))
        if row is None or row["status"] != "ok" or row["code"] is None:
            return None
        return _code_facts(row, json.loads(row["code"]))

    def digest_of(self, run_id: str, config_id: str) -> str | None:
        """Digest of its instructions, where known."""
        row = self._rows.get((run_id, config_id))
        return None if row is None else row["code_digest"]

    def fails(self, run_id: str, config_id: str) -> bool:
        """Whether it is known not to compile, or not to fit."""
        row = self._rows.get((run_id, config_id))
        return row is not None and row["status"] not in ("ok", "error")


def _code_facts(row: Mapping[str, Any], code: Mapping[str, Any]) -> CodeFacts:
    return CodeFacts(
        registers=row["registers"],
        stack_bytes=row["stack_bytes"] or 0,
        spill_bytes=row["spill_bytes"] or 0,
        smem_bytes=row["smem_bytes"],
        num_warps=row["num_warps"],
        n_instructions=row["n_instructions"],
        counts=code["counts"],
        innermost=tuple(LoopCode(int(n), counts) for n, counts in code["innermost"]),
        load_bytes=code["load_bytes"],
        bytes_in_flight=code["bytes_in_flight"],
        pending_copy_groups=code["pending_copy_groups"],
        has_wgmma=code["has_wgmma"],
        has_tma=code["has_tma"],
    )
