"""Laws of the features of machine code, and of the table that keeps it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel.datasets.compiled_table import COMPILED_FILE
from costmodel.datasets.compiled_table import CompiledTable
from costmodel.datasets.compiled_table import append_compiled
from costmodel.errors import CorruptRecordError
from costmodel.features.compiled import CODE_FEATURES
from costmodel.features.compiled import CODE_NAMES
from costmodel.features.compiled import CodeFacts
from costmodel.features.compiled import LoopCode
from costmodel.features.compiled import code_matrix
from costmodel.features.compiled import occupancy_ctas
from costmodel.features.schema import SCHEMA
from costmodel.hardware import known_hardware
from costmodel.hardware import load_hardware

H200 = load_hardware("H200")

CLASSES = ("global_load", "shared_load", "async_copy", "wgmma", "float", "integer")


@st.composite
def codes(draw: st.DrawFn) -> CodeFacts:
    """Machine code that a compiler could have made."""
    counts = {name: draw(st.integers(0, 200)) for name in CLASSES}
    n_loops = draw(st.integers(0, 3))
    inner = {name: count // (n_loops + 1) for name, count in counts.items()}
    loops = tuple(LoopCode(max(8, sum(inner.values())), inner) for _ in range(n_loops))
    return CodeFacts(
        registers=draw(st.integers(16, 255)),
        stack_bytes=draw(st.integers(0, 4096)),
        spill_bytes=draw(st.integers(0, 4096)),
        smem_bytes=draw(st.integers(0, H200.smem_per_cta_bytes)),
        num_warps=draw(st.sampled_from([1, 2, 4, 8, 16, 32])),
        n_instructions=sum(counts.values()) + 100,
        counts=counts,
        innermost=loops,
        load_bytes=draw(st.integers(0, 4096)),
        bytes_in_flight=draw(st.integers(0, 512)),
        pending_copy_groups=draw(st.none() | st.integers(0, 6)),
        has_wgmma=counts["wgmma"] > 0,
        has_tma=draw(st.booleans()),
    )


def _row(programs_log2: float = 10.0, trips_log2: float = 4.0) -> np.ndarray:
    row = np.zeros(len(SCHEMA.names), dtype=np.float32)
    row[SCHEMA.index("programs_log2")] = programs_log2
    row[SCHEMA.index("trips_log2")] = trips_log2
    row[SCHEMA.index("roofline_us_log2")] = 3.0
    return row


@given(st.lists(codes(), min_size=1, max_size=5), codes())
@settings(max_examples=60, deadline=None)
def test_rows_are_finite_and_the_default_differs_in_nothing(
    others: list[CodeFacts], default: CodeFacts
) -> None:
    rows = np.stack([_row()] * (len(others) + 1))
    matrix = code_matrix([default, *others], default, rows, _row(), H200)
    assert matrix.shape == (len(others) + 1, len(CODE_NAMES))
    assert matrix.dtype == np.float32
    assert np.isfinite(matrix).all()
    assert not matrix[0, len(CODE_FEATURES) :].any()


@given(st.lists(codes(), min_size=2, max_size=5), codes(), st.randoms())
@settings(max_examples=40, deadline=None)
def test_permuting_configs_permutes_rows(
    others: list[CodeFacts], default: CodeFacts, chance: object
) -> None:
    rows = np.stack([_row(float(i)) for i in range(len(others))])
    order = list(range(len(others)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    straight = code_matrix(others, default, rows, _row(), H200)
    moved = code_matrix([others[i] for i in order], default, rows[order], _row(), H200)
    np.testing.assert_array_equal(moved, straight[order])


@given(codes(), st.integers(0, 100), st.integers(0, 50_000))
@settings(max_examples=80, deadline=None)
def test_more_resources_never_raise_the_occupancy(
    code: CodeFacts, registers: int, smem_bytes: int
) -> None:
    hungrier = replace(
        code,
        registers=min(255, code.registers + registers),
        smem_bytes=code.smem_bytes + smem_bytes,
    )
    assert occupancy_ctas(hungrier, H200) <= occupancy_ctas(code, H200)


@given(codes(), st.sampled_from(known_hardware()))
@settings(max_examples=80, deadline=None)
def test_occupancy_stays_within_the_threads_of_an_sm(
    code: CodeFacts, name: str
) -> None:
    hardware = load_hardware(name)
    occupancy = occupancy_ctas(code, hardware)
    assert 1 <= occupancy <= hardware.max_ctas_per_sm
    threads = code.num_warps * hardware.warp_size
    assert occupancy == 1 or occupancy * threads <= hardware.max_threads_per_sm


def _line(run_id: str, config_id: str, registers: int = 40) -> dict[str, object]:
    return {
        "run_id": run_id,
        "config_id": config_id,
        "facts": {
            "status": "ok",
            "detail": "",
            "registers": registers,
            "stack_bytes": 0,
            "spill_store_bytes": 8,
            "spill_load_bytes": 16,
            "smem_bytes": 1024,
            "num_warps": 4,
            "code_digest": "ab" * 8,
            "toolchain": {"helion": "1", "torch": "2", "triton": "3", "ptxas": "4"},
            "code": {
                "n_instructions": 300,
                "counts": {"global_load": 4},
                "loops": [
                    {
                        "start": 10,
                        "end": 29,
                        "depth": 1,
                        "is_innermost": True,
                        "counts": {"global_load": 2},
                    },
                    {
                        "start": 5,
                        "end": 40,
                        "depth": 1,
                        "is_innermost": False,
                        "counts": {"global_load": 2},
                    },
                ],
                "load_bytes": 64,
                "bytes_in_flight": 32,
                "pending_copy_groups": None,
                "has_wgmma": False,
                "has_tcgen05": False,
                "has_tma": False,
            },
        },
    }


def test_a_table_keeps_what_was_compiled_and_takes_the_latest(tmp_path: Path) -> None:
    assert append_compiled(tmp_path, [_line("r", "a"), _line("r", "b")]) == 2
    assert append_compiled(tmp_path, [_line("r", "b", registers=80)]) == 2
    table = CompiledTable.load(tmp_path)
    code = table.code_of("r", "b")
    assert code is not None
    assert (code.registers, code.spill_bytes, code.n_instructions) == (80, 24, 300)
    assert [loop.n_instructions for loop in code.innermost] == [20]
    assert table.digest_of("r", "a") == "ab" * 8
    assert table.code_of("r", "c") is None


def test_a_corpus_without_compiled_configs_is_an_empty_table(tmp_path: Path) -> None:
    assert len(CompiledTable.load(tmp_path)) == 0


def test_a_failure_has_no_code_and_is_known_to_fail(tmp_path: Path) -> None:
    line = _line("r", "a")
    facts = dict(line["facts"], status="shared_memory")  # type: ignore[call-overload]
    append_compiled(tmp_path, [{**line, "facts": facts}])
    table = CompiledTable.load(tmp_path)
    assert table.code_of("r", "a") is None
    assert table.fails("r", "a")
    assert not table.fails("r", "b")


def test_a_line_without_facts_changes_nothing(tmp_path: Path) -> None:
    append_compiled(tmp_path, [_line("r", "a")])
    before = (tmp_path / COMPILED_FILE).read_bytes()
    broken = json.loads('{"run_id": "r", "config_id": "b"}')
    with pytest.raises(CorruptRecordError, match="compile_corpus"):
        append_compiled(tmp_path, [broken])
    assert (tmp_path / COMPILED_FILE).read_bytes() == before
