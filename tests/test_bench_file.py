"""Plans and results survive their files, whatever happened to the files."""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

import pytest
from bench_builder import planned
from bench_builder import result

from costmodel.datasets import bench_options
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
    said: list[str] = []
    found = read_results([path], said.append)
    # One byte less is only the end of the line.
    assert found == ([first, second] if cut == 1 else [first])
    assert len(said) == (cut != 1)
    assert all("bench-0.jsonl:2" in line and "half a line" in line for line in said)
    append_result(path, third)
    assert read_results([path], said.append) == [*found, third]
    assert len(said) == (cut != 1)


@pytest.mark.parametrize(
    "text", ["", "not json\n", '{"plan": {}}\n', '{"format": 99, "plan": {}}\n', "[]\n"]
)
def test_another_file_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.jsonl"
    path.write_text(text)
    with pytest.raises(CorruptRecordError, match=r"plan\.jsonl") as caught:
        read_plan(path)
    said = str(caught.value)
    assert "expected" in said and "found" in said and "costmodel bench plan" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [("not json", "no JSON"), ("{}", "no 'workload'"), ("[]", "'[]'"), ("7", "'7'")],
)
def test_a_line_of_a_plan_that_is_none_is_told_in_words(
    tmp_path: Path, line: str, said: str
) -> None:
    path = tmp_path / "plan.jsonl"
    write_plan(path, Plan({}, (planned(COLUMNS),)))
    head = path.read_text().splitlines()[0]
    path.write_text(f"{head}\n{line}\n")
    with pytest.raises(CorruptRecordError) as caught:
        read_plan(path)
    words = str(caught.value)
    assert "plan.jsonl:2: expected a workload" in words and said in words
    assert "object" not in words and "Error" not in words  # Python's own words


@pytest.mark.parametrize("wrong", ["-1", "0", "1.5", "many"])
@pytest.mark.parametrize("option", ["--rounds", "--workers", "--limit"])
def test_no_rounds_are_refused_in_one_line(
    option: str, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = argparse.ArgumentParser()
    bench_options.add_options(made)
    with pytest.raises(SystemExit):
        made.parse_args(["plan.jsonl", "-o", "out", f"{option}={wrong}"])
    last = capsys.readouterr().err.splitlines()[-1]
    assert option in last and f"found '{wrong}'" in last


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


def test_compressed_results_are_read_whatever_their_name(tmp_path: Path) -> None:
    one = result(COLUMNS, ROUNDS)
    plain = tmp_path / "bench-0.jsonl"
    append_result(plain, one)
    content = gzip.compress(plain.read_bytes())
    for name in ("x.jsonl.gz", "x.jsonl"):
        (tmp_path / name).write_bytes(content)
        assert read_results([tmp_path / name]) == [one]
    (tmp_path / "x.jsonl.gz").write_bytes(content[:-20])
    with pytest.raises(CorruptRecordError, match="cut short or damaged"):
        read_results([tmp_path / "x.jsonl.gz"])


@pytest.mark.parametrize(
    "bad", [b'{"format":1,"pl', b"text", b"\x89PNG\xff\x00", b"[]"]
)
def test_only_the_last_line_may_be_half_a_line(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "bench-0.jsonl"
    append_result(path, result(COLUMNS, ROUNDS))
    path.write_bytes(bad + b"\n" + path.read_bytes())
    said: list[str] = []
    with pytest.raises(CorruptRecordError, match=r"bench-0\.jsonl:1: exp") as caught:
        read_results([path], said.append)
    assert not said and "Error" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_folder_is_searched_for_the_names_that_are_told(tmp_path: Path) -> None:
    for name in ("plan.jsonl", "failures-0.jsonl"):
        (tmp_path / name).write_text("{}\n")
    with pytest.raises(
        CorruptRecordError, match=r"bench-\*\.jsonl or \*results\.jsonl"
    ):
        result_files([tmp_path])
    names = ["bench-0.jsonl", "bench-1.jsonl.gz", "h200-results.jsonl"]
    names.append("results.jsonl.gz")
    for name in names:
        (tmp_path / name).touch()
    assert [one.name for one in result_files([tmp_path])] == names
