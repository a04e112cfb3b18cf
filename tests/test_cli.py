"""The command line's promises: exit codes, one-line errors, nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from costmodel.cli import main

SAMPLE = Path(__file__).parent.parent / "datasets" / "corpora" / "h200_sample"


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def one_error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The last line on stderr; there must be no traceback before it."""
    err = capsys.readouterr().err
    assert "Traceback" not in err
    lines = err.strip().splitlines()
    assert lines and lines[-1].startswith("costmodel: ")
    return lines[-1]


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    for name in ("audit", "import", "train", "evaluate", "pick", "explain", "doctor"):
        assert name in out


@pytest.mark.parametrize(
    "options", [[], ["a.py:k", "--top", "0"], ["a.py:k", "--top=-3"]]
)
def test_wrong_usage_exits_with_2(options: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["pick", *options])
    assert stop.value.code == 2


@pytest.mark.parametrize(
    "words",
    [
        "corpus synth out --attempts -5",
        "corpus synth out --attempts 0",
        "corpus synth out --attempts 9 --per-run 0",
        "corpus features logs --out out --shard-rows 0",
        "import logs --corpus out --part-attempts 0",
        "bench run plan.jsonl --output out --seconds -5",
        "bench run plan.jsonl --output out --seconds nan",
    ],
)
def test_what_counts_from_one_is_refused_below(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 2
    assert "expected 1 or more" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["audit", "nofolder"], "name a log"),
        (["export", "--list", "nope.toml", "--output", "o"], "[[kernel]]"),
        (["pick", "g.bin:mm"], "name a Python file"),
        (["pick", "a.py:k", "--gpu", "H900"], "give one of these names"),
        (["evaluate", "logs", "--model", "."], "name the .ubj file"),
        (["corpus", "describe", "nothing"], "make one"),
    ],
)
def test_a_mistake_is_told_with_what_to_do(
    arguments: list[str],
    advice: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    assert advice in one_error_line(capsys)


def test_a_place_that_cannot_be_written_is_one_line_with_advice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(_arguments: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/proc/x")

    monkeypatch.setattr("costmodel.cli_data.audit", refused)
    assert main(["audit", "logs"]) == 1
    line = one_error_line(capsys)
    assert "/proc/x" in line and "name a place" in line


def test_audit_of_the_sample_counts_every_row_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["audit", str(SAMPLE), "--json"]) == 0
    totals = json.loads(capsys.readouterr().out)["totals"]
    rows = sum(len(f.read_text().splitlines()) - 1 for f in SAMPLE.glob("*.csv"))
    assert sum(totals.values()) == rows


def test_import_twice_adds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = str(tmp_path / "corpus")
    assert main(["import", str(SAMPLE), "--corpus", corpus, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["import", str(SAMPLE), "--corpus", corpus, "--json"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert (first["n_added"], second["n_added"]) == (8, 0)
    assert first["digest"] == second["digest"]


@pytest.mark.parametrize("command", ["audit", "import", "train", "evaluate"])
def test_an_empty_folder_is_one_line_and_exit_1(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    extra = ["--corpus", str(tmp_path / "c")] if command == "import" else []
    assert main([command, str(empty), *extra]) == 1
    assert "empty" in one_error_line(capsys) or command == "evaluate"
    assert not (tmp_path / "c").exists()


def test_a_corpus_is_not_imported_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(SAMPLE / "add.csv"), "--corpus", "c"]) == 0
    assert main(["import", "c", "--corpus", "d"]) == 1
    assert "this is a corpus already" in one_error_line(capsys)
    assert not Path("d").exists()


def test_a_csv_without_meta_cannot_be_imported_and_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    shutil.copy(SAMPLE / "attn.csv", logs)
    assert main(["import", str(logs), "--corpus", str(tmp_path / "c")]) == 1
    assert "HELION_AUTOTUNE_LOG_DETAILS=1" in one_error_line(capsys)


def test_training_on_one_family_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for file in SAMPLE.glob("attn.*"):
        shutil.copy(file, logs)
    assert main(["train", str(logs), "--no-track", "--output", "model"]) == 1
    assert "at least two" in one_error_line(capsys)
    assert not Path("model").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["pick", "missing.py:kernel"], "missing.py"),
        (["pick", "missing.py"], "FILE.py:KERNEL"),
        (["pick", "kernels.py:nothing", "--arg", "bf16[8,8]"], "nothing"),
        (["pick", "broken.py:kernel", "--arg", "bf16[8,8]"], "broken.py"),
        (["pick", "kernels.py:double", "--arg", "bf17[8,8]"], "bf17"),
        (["pick", "kernels.py:double", "--arg", "bf16[8,8]", "--gpu", "H900"], "H900"),
        (["pick", "kernels.py:double"], "give them with --arg"),
        (["pick", "kernels.py:double", "--model", "kernels.py"], "found kernels.py"),
        (["pick", "kernels.py:double", "--arg", "bf16[8]", "--model", "no.ubj"], "no"),
    ],
)
def test_bad_input_to_pick_is_one_line(
    arguments: list[str],
    word: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "broken.py").write_text("import torch\nraise RuntimeError('no')\n")
    (tmp_path / "kernels.py").write_text(
        "import torch, helion\n"
        "import helion.language as hl\n"
        "@helion.kernel()\n"
        "def double(x: torch.Tensor) -> torch.Tensor:\n"
        "    out = torch.empty_like(x)\n"
        "    for t in hl.tile(x.size()):\n"
        "        out[t] = x[t] * 2\n"
        "    return out\n"
    )
    assert main(arguments) == 1
    assert word in one_error_line(capsys)


def test_the_oldest_layout_is_read_once_it_is_told_what_it_is_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(Path(__file__).parent / "cases" / "01_log_v1_config_index")
    assert main(["audit", log]) == 1
    assert "names no kernel" in one_error_line(capsys)
    told = ["--kernel", "k", "--arg", "bf16[64,64]", "--gpu", "H200"]
    assert main(["audit", log, *told]) == 1
    assert "--helion-version" in one_error_line(capsys)
    assert main(["audit", log, *told, "--helion-version", "1.1.0", "--json"]) == 0
    totals = json.loads(capsys.readouterr().out)["totals"]
    assert totals == {"kept": 4}


def test_collect_plans_without_a_gpu_and_refuses_to_record_without_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    out = str(tmp_path / "out")
    assert main(["collect", out, "--seconds", "60"]) == 1
    assert "--dry-run" in one_error_line(capsys)
    assert main(["collect", out, "--dry-run", "--limit", "1", "--configs", "5"]) == 0
    planned = capsys.readouterr().out
    assert "1 workloads of 1 kernels" in planned
    order = tmp_path / "out" / "order.txt"
    assert order.read_text().splitlines()[0] in planned
    assert main(["collect", out, "--dry-run", "--order", "missing.txt"]) == 1
    assert "missing.txt" in one_error_line(capsys)


@pytest.mark.parametrize("bad", ["1", "2/2", "a/b", "-1/2"])
def test_collect_refuses_a_nonsense_shard(
    bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["collect", "out", f"--shard={bad}"])
    assert stop.value.code == 2
    assert "I/N" in capsys.readouterr().err


def test_unknown_options_are_wrong_usage_elsewhere() -> None:
    with pytest.raises(SystemExit) as stop:
        main(["audit", "logs", "--shard", "0/1"])
    assert stop.value.code == 2
