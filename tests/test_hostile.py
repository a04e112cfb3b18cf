"""Hostile input: what strangers' logs and disks do, through the command line."""

from __future__ import annotations

import json
import time

import pytest
from log_builder import RUN_ID
from log_builder import Try
from log_builder import csv_rows
from log_builder import csv_text
from log_builder import full_config
from log_builder import meta_line
from log_builder import write_log
from log_builder import write_text

from costmodel.cli import main
from costmodel.datasets.csv_layouts import is_time_ms
from costmodel.datasets.default import resolve_default
from costmodel.datasets.helion_log import read_logs
from costmodel.datasets.record import DefaultSource
from costmodel.features.canonical import config_id
from costmodel.hardware import load_hardware
from costmodel.kernel_file import load_kernel

TRIES = [Try(full_config(64), perf_ms=0.02), Try(full_config(128), perf_ms=0.01)]
DEFAULT_ID = config_id(full_config(64))


def with_first_time(folder, spelled):
    """A log whose first config, the default, reads `spelled` milliseconds."""
    base = write_log(folder, TRIES)
    rows = csv_rows(TRIES)
    rows[1][5] = spelled
    write_text(base, ".csv", csv_text(rows))
    return base


@pytest.mark.parametrize("value", [1e-320, 1e-9, 1e300, 0.0, -1.0, float("nan")])
def test_a_number_that_no_kernel_takes_is_no_time(value):
    assert not is_time_ms(value)


def test_ordinary_times_are_times():
    assert is_time_ms(1e-6)
    assert is_time_ms(3.6e6)


@pytest.mark.parametrize("spelled", ["nan", "-1.0", "inf", "", "1e-320"])
def test_a_default_without_a_usable_time_is_not_replaced_by_the_next_config(
    tmp_path, spelled
):
    base = with_first_time(tmp_path, spelled)
    [run], _ = read_logs([base])
    assert run.default_config_id == DEFAULT_ID
    assert DEFAULT_ID not in run.configs


def test_a_recomputed_default_whose_result_is_lost_is_found_under_its_id(tmp_path):
    base = with_first_time(tmp_path, "nan")
    [run], _ = read_logs([base])
    found = resolve_default(run, "helion", lambda _: full_config(64))
    assert found.default_config_id == DEFAULT_ID
    assert found.default_how is DefaultSource.RECOMPUTED


def test_a_default_read_again_counts_although_one_reading_is_lost(tmp_path):
    again = [*TRIES, Try(full_config(64), perf_ms=0.021)]
    base = write_log(tmp_path, again)
    rows = csv_rows(again)
    rows[1][5] = "nan"
    write_text(base, ".csv", csv_text(rows))
    [run], _ = read_logs([base])
    assert run.default_config_id == DEFAULT_ID
    assert DEFAULT_ID in run.configs


BAD_LOGS = {
    "csv_without_meta": ("", "run.csv:2", "no meta line"),
    "other_backend": (
        meta_line(TRIES, settings={"backend": "cute"}),
        "run.csv:2",
        "backend 'cute'",
    ),
    "several_shapes": (
        meta_line(TRIES, input_shapes="[[(4, 4)], [(8, 8)]]"),
        "run.csv:2",
        "several shapes",
    ),
    "cut_meta": (meta_line(TRIES)[:90], "run.meta.jsonl:1", "cut off"),
}


@pytest.mark.parametrize("name", BAD_LOGS)
@pytest.mark.parametrize("command", ["audit", "import"])
def test_a_log_that_cannot_be_used_is_a_line_with_file_and_line_and_exit_1(
    tmp_path, capsys, name, command
):
    meta, where, why = BAD_LOGS[name]
    base = write_log(tmp_path / "logs", TRIES)
    write_text(base, ".meta.jsonl", meta)
    if not meta:
        base.with_name("run.meta.jsonl").unlink()
    corpus = tmp_path / "corpus"
    rest = ["--corpus", str(corpus)] if command == "import" else []
    assert main([command, str(tmp_path / "logs"), *rest]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert any(where in line and why in line for line in lines)
    assert not any("Traceback" in line for line in lines)
    assert not corpus.exists()


def test_audit_json_is_whole_even_when_nothing_can_be_used(tmp_path, capsys):
    base = write_log(tmp_path, TRIES)
    base.with_name("run.meta.jsonl").unlink()
    assert main(["audit", str(base), "--json"]) == 1
    body = json.loads(capsys.readouterr().out)
    assert body["totals"]["set_aside"] == len(TRIES)
    assert {row["run_id"] for row in body["findings"]} == {RUN_ID}


@pytest.mark.parametrize(
    ("written", "device"),
    [
        ("RTX 5090", "NVIDIA GeForce RTX 5090"),
        ("rtx5090", "NVIDIA GeForce RTX 5090"),
        ("H100 PCIe", "NVIDIA H100 PCIe"),
    ],
)
def test_a_gpu_is_found_however_people_space_its_name(written, device):
    assert load_hardware(written).name == device


def test_what_a_kernel_file_prints_does_not_reach_stdout(tmp_path, capsys):
    path = tmp_path / "noisy.py"
    path.write_text(
        "print('noise')\nimport helion\nimport helion.language as hl\n"
        "@helion.kernel()\ndef k(x):\n    for t in hl.tile(4):\n        pass\n"
    )
    load_kernel(f"{path}:k")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "noise\n")


@pytest.mark.parametrize(
    "text", ["raise GeneratorExit", "class B(BaseException): pass\nraise B('boo')"]
)
def test_a_kernel_file_may_raise_anything_and_is_one_line(tmp_path, capsys, text):
    path = tmp_path / "odd.py"
    path.write_text(text)
    assert main(["pick", f"{path}:k", "--arg", "f32[4]"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert f"{path}:" in line


def test_an_interpreted_kernel_is_one_line(tmp_path, capsys):
    path = tmp_path / "interpreted.py"
    path.write_text(
        "import helion\nimport torch\nimport helion.language as hl\n"
        "@helion.kernel(ref_mode=helion.RefMode.EAGER)\n"
        "def k(x: torch.Tensor) -> torch.Tensor:\n"
        "    out = torch.empty_like(x)\n"
        "    for t in hl.tile(x.size()):\n        out[t] = x[t] + 1\n"
        "    return out\n"
    )
    assert main(["pick", f"{path}:k", "--arg", "f32[64]"]) == 1
    assert "interpret mode" in capsys.readouterr().err.splitlines()[-1]


def test_a_dead_tracking_server_is_given_up_soon():
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("costmodel.training.tracking")
    client = mlflow.MlflowClient(tracking_uri="http://127.0.0.1:9")
    began_s = time.monotonic()
    with pytest.raises(mlflow.exceptions.MlflowException):
        client.search_experiments()
    assert time.monotonic() - began_s < 30
