"""Configs in Python source and in text: read without running, the rest untouched."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel.cli import main
from costmodel.errors import ConfigFileError
from costmodel.migrate import ConfigReport
from costmodel.migrate import migrate_config
from costmodel.migrate_files import FoundConfig
from costmodel.migrate_rules import FieldStatus
from costmodel.migrate_source import migrate_source
from costmodel.migrate_source import read_calls

SOURCE = """\
# π: helion.Config(block_sizes=[1]) in a comment is none
import sys, helion
from helion import Config
sys.exit("this file must not run")
TEXT = "helion.Config(block_sizes=[2])"

KEPT = helion.Config(block_sizes=[64, 64], num_warps=8)   # stays
π = Config(
    block_sizes=[32, 64],
    indexing="block_ptr",
    num_warps=4,
)
BLOCK = 64
OPEN = helion.Config(block_sizes=[BLOCK, 64])
SPREAD = helion.Config(**{"block_sizes": (16,), "num_stages": 2})
PART = helion.Config(num_warps=4)
other = dict(Config=1); Config(debug=True); Config([64])
"""


def _judge(found: FoundConfig) -> ConfigReport:
    return migrate_config(found.config, None)


def test_calls_are_found_in_order_and_only_calls(tmp_path: Path) -> None:
    calls = read_calls(tmp_path / "ops.py", SOURCE.encode())
    read = [(call.found.place, call.config) for call in calls]
    assert read == [
        ("line 7:8", {"block_sizes": [64, 64], "num_warps": 8}),
        (
            "line 8:6",  # columns count bytes, as Python's own do
            {"block_sizes": [32, 64], "indexing": "block_ptr", "num_warps": 4},
        ),
        ("line 14:8", None),
        ("line 15:10", {"block_sizes": [16], "num_stages": 2}),
        ("line 16:8", {"num_warps": 4}),
    ]


def test_only_what_changes_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "ops.py"
    path.write_text(SOURCE, encoding="utf-8")
    done = migrate_source(path, _judge)
    statuses = [report.status for _, report in done.reports]
    assert statuses == [
        FieldStatus.KEPT,
        FieldStatus.REPAIRED,
        FieldStatus.REFUSED,
        FieldStatus.KEPT,
        FieldStatus.KEPT,
    ]
    old, new = SOURCE.splitlines(), done.content.splitlines()
    pairs = enumerate(zip(old, new, strict=True))
    changed = [i for i, (one, other) in pairs if one != other]
    assert [old[i].strip() for i in changed] == ['indexing="block_ptr",']
    assert [new[i].strip() for i in changed] == ["indexing='pointer',"]
    ast.parse(done.content)
    assert [one["place"] for one in done.refused] == ["line 14:8"]
    assert done.refused[0]["entry"] == "helion.Config(block_sizes=[BLOCK, 64])"
    assert "no literals" in done.refused[0]["reason"]
    assert path.read_text(encoding="utf-8") == SOURCE


def test_text_that_is_no_python_is_searched(tmp_path: Path) -> None:
    path = tmp_path / "tuning.log"
    line = (
        "[12s] best: @helion.kernel(config=helion.Config(block_sizes=[8, 1], "
        "indexing='block_ptr'), static_shapes=True)\r\n"
    )
    path.write_bytes(b"\xff Config(\n" + line.encode() + b"Config(block_sizes=[4]) end")
    done = migrate_source(path, _judge)
    assert [found.place for found, _ in done.reports] == ["line 2:35", "line 3:1"]
    assert "indexing='pointer'), static_shapes=True)" in done.content


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.py", "def broken(:\n helion.Config(block_sizes=[1])"),
        ("a.py", "x = 1"),
        ("a.txt", "Config(nothing=1)"),
        ("a.txt", "Config(block_sizes=[1"),
        ("a.txt", "{"),
    ],
)
def test_without_a_config_one_line_says_so(
    tmp_path: Path, name: str, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(content)
    out = tmp_path / "out"
    assert main(["migrate", str(path), "--output", str(out)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and name in error
    assert not out.exists()
    with pytest.raises(ConfigFileError):
        migrate_source(tmp_path / "absent.py", _judge)


def test_the_command_writes_source_and_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, text = tmp_path / "ops.py", tmp_path / "best.txt"
    source.write_text(SOURCE, encoding="utf-8")
    text.write_text("Config(block_sizes=[32, 64], indexing='block_ptr')\n")
    out = tmp_path / "out"
    files = [str(source), str(text), "--output", str(out)]
    assert main(["migrate", *files, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [len(one["configs"]) for one in answer["files"]] == [5, 1]
    assert (out / "best.txt").read_text() == (
        "Config(block_sizes=[32, 64], indexing='pointer')\n"
    )
    assert "indexing='pointer'" in (out / "ops.py").read_text(encoding="utf-8")
    assert len(json.loads((out / "ops.py.refused.json").read_text())) == 1
    assert main(["migrate", *files]) == 0  # nothing left to do, nothing overwritten


values: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("aπ'\"\\\n)", max_size=4),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)
configs = st.dictionaries(
    st.sampled_from(["indexing", "pid_type", "num_warps"]), values
)


@settings(deadline=None, max_examples=60)
@given(configs, st.text("aπ()#'\" \n", max_size=12))
def test_any_literal_is_read_back_wherever_it_stands(config: Any, around: str) -> None:
    config = {"block_sizes": [1], **config}
    fields = ", ".join(f"{name}={value!r}" for name, value in config.items())
    content = f"{around} \nhelion.Config({fields}) \x00".encode()
    calls = read_calls(Path("any.txt"), content)
    assert [call.config for call in calls] == [config]
    assert content[calls[0].start : calls[0].end].decode().startswith("helion.Config(")
