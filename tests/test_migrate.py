"""Old configs become current ones field by field; nothing that was there is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import helion
import helion.language as hl
import pytest
import torch
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel import helion_hook
from costmodel.arguments import parse_argument
from costmodel.cli import main
from costmodel.errors import ConfigFileError
from costmodel.hardware import load_hardware
from costmodel.migrate import ConfigReport
from costmodel.migrate import migrate_config
from costmodel.migrate_files import migrate_file
from costmodel.migrate_files import read_config_file
from costmodel.migrate_rules import FieldStatus
from costmodel.target import bind

CASES = Path(__file__).parent / "cases" / "09_old_and_foreign_configs"
FACTS = json.loads((CASES / "configs.json").read_text())

SOURCE = """
import torch, helion
import helion.language as hl

@helion.kernel(static_shapes=True)
def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    m, k = a.size()
    _, n = b.size()
    out = torch.empty([m, n], dtype=a.dtype, device=a.device)
    for tm, tn in hl.tile([m, n]):
        acc = hl.zeros([tm, tn], dtype=torch.float32)
        for tk in hl.tile(k):
            acc = torch.addmm(acc, a[tm, tk], b[tk, tn])
        out[tm, tn] = acc.to(a.dtype)
    return out
"""


@helion.kernel(static_shapes=True)
def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    m, k = a.size()
    _, n = b.size()
    out = torch.empty([m, n], dtype=a.dtype, device=a.device)
    for tm, tn in hl.tile([m, n]):
        acc = hl.zeros([tm, tn], dtype=torch.float32)
        for tk in hl.tile(k):
            acc = torch.addmm(acc, a[tm, tk], b[tk, tn])
        out[tm, tn] = acc.to(a.dtype)
    return out


@pytest.fixture(scope="module")
def bound() -> Any:
    specs = [parse_argument(text) for text in ("bf16[64,4096]", "bf16[4096,2048]")]
    return bind(product, specs, load_hardware("H200"))


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact["what"])
def test_each_field_is_reported(bound: Any, fact: dict[str, Any]) -> None:
    report = migrate_config(fact["config"], bound)
    assert report.status.value == fact["status"]
    assert [line.name for line in report.fields] == list(fact["config"])
    changed = {
        line.name: line.status.value
        for line in report.fields
        if line.status is not FieldStatus.KEPT
    }
    assert changed == fact["fields"]
    assert all(line.reason for line in report.fields if line.name in changed)
    assert_holds(report, bound)


def assert_holds(report: ConfigReport, bound: Any) -> None:
    """What any report promises."""
    assert {line.name: line.old for line in report.fields} == report.old
    if report.new is None:
        assert report.status is FieldStatus.REFUSED
        assert report.reason
        return
    assert helion_hook.is_legal(bound, report.new)
    assert helion_hook.normalize(bound, report.new) == report.new
    assert helion_hook.triton_code(bound, report.new)
    for line in report.fields:
        if line.status is FieldStatus.KEPT:
            assert line.new == line.old
            assert report.new.get(line.name, line.old) == line.old
    again = migrate_config(report.new, bound)
    assert again.status is FieldStatus.KEPT
    assert again.new == report.new
    assert not again.filled


NUMBERS = st.sampled_from(
    [-1, 0, 1, 3, 16, 64, 100, 4096, 2**30, "64", "x", None, True]
)
JUNK = st.one_of(
    NUMBERS, st.lists(NUMBERS, max_size=5), st.lists(st.lists(NUMBERS, max_size=2))
)
KNOBS = [
    "block_sizes",
    "indexing",
    "l2_groupings",
    "load_eviction_policies",
    "loop_orders",
    "num_sm_multiplier",
    "num_stages",
    "num_warps",
    "pid_type",
    "range_unroll_factors",
    "range_warp_specializes",
    "maxnreg",
    "no_such_knob",
]


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(config=st.dictionaries(st.sampled_from(KNOBS), JUNK, max_size=6))
def test_any_junk_gives_a_current_config_or_a_reason(
    bound: Any, config: dict[str, Any]
) -> None:
    assert_holds(migrate_config(config, bound), bound)


def test_what_helion_picks_itself_is_kept(bound: Any) -> None:
    for config in (helion_hook.default_config(bound), *helion_hook.seed_configs(bound)):
        report = migrate_config(config, bound)
        assert report.status is FieldStatus.KEPT
        assert report.new == config


LEAF = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
AROUND = st.recursive(
    LEAF,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "key", "config", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(around=AROUND, keep=st.booleans())
def test_everything_around_a_config_stays(
    tmp_path_factory: pytest.TempPathFactory, around: Any, keep: bool
) -> None:
    config = {"block_sizes": [32], "num_warps": 4}
    content = [around, {"key": {"m": 1}, "config": config, "note": around}, config]
    path = tmp_path_factory.mktemp("any") / "configs.json"
    path.write_text(json.dumps(content))
    new = {"block_sizes": [64]} if keep else None
    status = FieldStatus.REPAIRED if keep else FieldStatus.REFUSED
    made = migrate_file(
        path, lambda found: ConfigReport(status, config, new, (), {}, "x")
    )
    assert [found.place for found, _ in made.reports] == ["[1].config", "[2]"]
    assert made.reports[0][0].key == {"m": 1}
    if keep:
        assert made.content == [around, {**content[1], "config": new}, new]
        assert made.refused == ()
    else:
        assert made.content == [around]
        assert [one["entry"] for one in made.refused] == content[1:]


def test_a_cache_entry_of_helion_stays_one(tmp_path: Path) -> None:
    entry = {
        "config": json.dumps({"block_sizes": [32, 32, 32], "waves_per_eu": 2}),
        "key": {"type": "LooseAutotuneCacheKey", "fields": {"hardware": "NVIDIA H200"}},
    }
    path = tmp_path / "abc.best_config"
    path.write_text(json.dumps(entry))
    out = tmp_path / "out"
    assert main(["migrate", str(path), "--output", str(out)]) == 0
    written = json.loads((out / "abc.best_config").read_text())
    assert json.loads(written.pop("config")) == {"block_sizes": [32, 32, 32]}
    assert written == {"key": entry["key"]}


def test_the_command_writes_current_files_and_sets_refused_entries_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ops.py").write_text(SOURCE)
    entries = [
        {"key": {}, "config": {"block_sizes": [32, 64, 64], "indexing": "pointer"}},
        {"key": {"tokens": 8}, "config": {"block_sizes": [128, 64, 64]}, "note": "May"},
        {"key": {"tokens": 256}, "config": {"block_sizes": [128, 64, 64]}},
        {"key": {"tokens": 8}, "config": {"block_sizes": [64, 64]}},
    ]
    Path("h200.json").write_text(json.dumps(entries))
    command = ["migrate", "h200.json", "--kernel", "ops.py:product"]
    command += ["--arg", "bf16[tokens,512]", "--arg", "bf16[512,512]"]
    assert main([*command, "--output", "new", "--json"]) == 1
    assert "name a size" in capsys.readouterr().err
    command += ["--size", "tokens=64"]
    assert main([*command, "--output", "new", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    statuses = [one["status"] for one in answer["files"][0]["configs"]]
    # Each entry is judged at its own shape: eight rows allow no block of 128.
    assert statuses == ["repaired", "repaired", "kept", "refused"]
    current = json.loads(Path("new/h200.json").read_text())
    assert [entry["key"] for entry in current] == [e["key"] for e in entries[:3]]
    assert current[0]["config"]["block_sizes"] == [32, 64, 64]
    assert current[1]["config"]["block_sizes"] == [64, 64, 64]
    assert current[1]["note"] == "May"
    (aside,) = json.loads(Path("new/h200.json.refused.json").read_text())
    assert aside["entry"] == entries[3]
    assert json.loads(Path("h200.json").read_text()) == entries
    # A second run finds nothing to do; another answer never overwrites.
    assert main([*command, "--output", "new"]) == 0
    plain = ["migrate", "h200.json", "--output"]
    for folder in ("new", "."):
        assert main([*plain, folder]) == 1
    assert json.loads(Path("new/h200.json").read_text()) == current
    assert json.loads(Path("h200.json").read_text()) == entries


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1, 2]", b'{"a": {}}'])
def test_unreadable_input_ends_with_one_line(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text('{"num_warps": 4}')
    bad.write_bytes(content)
    out = tmp_path / "out"
    assert main(["migrate", str(good), str(bad), "--output", str(out)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "bad.json" in error
    assert ("not JSON" in error) == (content in (b"", b"{", b"\xff\xfe"))
    assert not out.exists()
    with pytest.raises(ConfigFileError, match="found no file"):
        read_config_file(tmp_path / "absent.json")
