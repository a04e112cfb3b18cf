"""A corpus remembers what became of the logs it was made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.cli import main
from costmodel.datasets.audit import Finding
from costmodel.datasets.audit import Outcome
from costmodel.datasets.audit import Stage
from costmodel.datasets.audit_file import AUDIT_FILE
from costmodel.datasets.audit_file import add_to_audit
from costmodel.datasets.audit_file import read_audit
from costmodel.errors import StoreError

SAMPLE = Path(__file__).parent.parent / "datasets" / "corpora" / "h200_sample"


def finding(file: str, rows: int) -> Finding:
    return Finding(Stage.READ, Outcome.KEPT, "attempts", rows=rows, file=file)


def test_what_is_added_comes_back(tmp_path: Path) -> None:
    add_to_audit(tmp_path, [finding("a.csv", 3)])
    add_to_audit(tmp_path, [finding("b.csv", 4)])
    assert {one.file: one.rows for one in read_audit(tmp_path)} == {
        "a.csv": 3,
        "b.csv": 4,
    }


def test_a_log_seen_again_is_counted_once(tmp_path: Path) -> None:
    add_to_audit(tmp_path, [finding("a.csv", 3)])
    add_to_audit(tmp_path, [finding("a.csv", 5)])
    assert read_audit(tmp_path).totals() == {"kept": 5}


@pytest.mark.parametrize("content", ["", "{", "[1]", '[{"stage": "no"}]', "null"])
def test_a_damaged_audit_is_an_empty_one(tmp_path: Path, content: str) -> None:
    (tmp_path / AUDIT_FILE).write_text(content)
    assert len(read_audit(tmp_path)) == 0


def test_a_folder_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="audit"):
        add_to_audit(tmp_path / "file", [finding("a.csv", 1)])


def test_import_keeps_the_audit_beside_the_tables(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    assert main(["import", str(SAMPLE), "--corpus", str(corpus)]) == 0
    kept = read_audit(corpus)
    rows = sum(len(f.read_text().splitlines()) - 1 for f in SAMPLE.glob("*.csv"))
    assert sum(kept.totals().values()) == rows
    assert main(["import", str(SAMPLE), "--corpus", str(corpus)]) == 0
    assert read_audit(corpus).totals() == kept.totals()
