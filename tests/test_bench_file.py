"""Plans and results survive their files, whatever happened to the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_builder import planned
from bench_builder import result

from costmodel.datasets.bench_file import Plan
from costmodel.datasets.bench_file import append_result
from costmodel.datasets.bench_file import plan_from_json
from costmodel.datasets.bench_file import plan_to_json
from costmodel.datasets.bench_file import read_plan
from costmodel.datasets.bench_file import read_results
from costmodel.datasets.bench_file import result_files
from costmodel.datasets.bench_file import result_from_json
from costmodel.datasets.bench_file import result_to_json
from costmodel.datasets.bench_file import write_plan
from costmodel.errors import CorruptRecordError

COLUMNS = {"pick": ["p"], "top2": ["d", "p", "q"]}
ROUNDS = [{"d": 10.0, "p": 9.0, "q": 8.0}] * 3


def test_a_plan_comes_back_as_it_was(tmp_path: Path) -> None:
    plan = Plan({"gpu": "H200"}, (planned(COLUMNS), planned({})))
    write_plan(tmp_path / "deep" / "plan.jsonl", plan)
    assert read_plan(tmp_path / "deep" / "plan.jsonl") == plan


def test_a_result_comes_back_as_it_was(tmp_path: Path) -> None:
    one = result(COLUMNS, ROUNDS, failed={"q": "error"})
    body = json.loads(json.dumps(result_to_json(one)))
    assert result_from_json(body) == one
    append_result(tmp_path / "bench-0.jsonl", one)
    assert read_results(result_files([tmp_path])) == [one]


def test_keys_of_a_later_version_are_ignored() -> None:
    one = planned(COLUMNS)
    body = {**plan_to_json(one), "later": 1}
    body["columns"][0]["later"] = 2
    assert plan_from_json(body) == one


@pytest.mark.parametrize("cut", [1, 40, 400])
def test_half_a_line_costs_that_line_only(tmp_path: Path, cut: int) -> None:
    first, second, third = (result(COLUMNS, ROUNDS) for _ in range(3))
    path = tmp_path / "bench-0.jsonl"
    append_result(path, first)
    append_result(path, second)
    path.write_bytes(path.read_bytes()[:-cut])
    append_result(path, third)
    said: list[str] = []
    found = read_results([path], said.append)
    # One byte less is only the end of the line.
    assert found == ([first, second, third] if cut == 1 else [first, third])
    assert len(said) == (cut != 1)
    assert all("bench-0.jsonl:2" in line and "half a line" in line for line in said)


@pytest.mark.parametrize(
    "text", ["", "not json\n", '{"plan": {}}\n', '{"format": 99, "plan": {}}\n', "[]\n"]
)
def test_another_file_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.jsonl"
    path.write_text(text)
    with pytest.raises(CorruptRecordError, match=r"plan\.jsonl"):
        read_plan(path)


def test_a_plan_without_a_default_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.jsonl"
    write_plan(path, Plan({}, (planned(COLUMNS),)))
    head, line = path.read_text().splitlines()
    body = json.loads(line)
    body["columns"] = body["columns"][1:]
    path.write_text(f"{head}\n{json.dumps(body)}\n")
    with pytest.raises(CorruptRecordError, match=r"plan\.jsonl:2"):
        read_plan(path)


def test_results_of_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptRecordError, match="none"):
        result_files([tmp_path])
    (tmp_path / "bench-0.jsonl").write_text('{"format": 1}\n')
    with pytest.raises(CorruptRecordError, match=r"bench-0\.jsonl:1"):
        read_results(result_files([tmp_path]))
