"""A campaign loses at most the workload in flight, and a second start goes on."""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from costmodel.datasets import collect
from costmodel.datasets import worker_process
from costmodel.datasets.archive import member_names
from costmodel.datasets.archive import part_path
from costmodel.datasets.collect import Campaign
from costmodel.datasets.collect import archived_ids
from costmodel.datasets.collect import listed_ids
from costmodel.datasets.gpu_turn import FileTurn
from costmodel.datasets.worker_process import WorkerProcess
from costmodel.datasets.workloads.workload import Workload

# Talks as a worker does; what it does with a job is in the workload's arguments.
FAKE_WORKER = textwrap.dedent(
    """
    import json, os, sys
    behaviours = json.load(open(sys.argv[1]))

    def say(**fields):
        print(json.dumps(fields), flush=True)

    say(event="ready")
    for line in sys.stdin:
        job = json.loads(line)
        name = job["workload_id"]
        say(event="phase", phase="compile")
        behaviour = "good" if job["isolate"] else behaviours[name]
        if behaviour == "dies":
            print("CUDA error: device-side assert", file=sys.stderr, flush=True)
            os._exit(9)
        if behaviour == "hangs":
            say(event="phase", phase="measure")
            sys.stdin.read()
        if behaviour == "refuses":
            say(event="failed", error="BindError: no", broken=False)
            continue
        if behaviour == "breaks":
            say(event="failed", error="CUDA error: misaligned address", broken=True)
            sys.stdin.readline()  # a job that comes while it ends dies with it
            os._exit(3)
        for suffix in (".csv", ".costmodel.jsonl"):
            open(name + suffix, "w").write(f"of {name}")
        say(event="done", n_attempts=45, n_ok=40, default_us=20.0, best_us=10.0,
            regime="graph_replay", noise_floor_log=0.01, n_retimed=9)
    """
)


def _workloads(behaviours: list[str]) -> dict[Workload, str]:
    return {
        Workload(f"file:{name}{i}", ("f32[1]",), "family", "plain"): name
        for i, name in enumerate(behaviours)
    }


def _campaign(
    tmp_path: Path, behaviours: dict[Workload, str], *, seconds: float = 600.0
) -> Campaign:
    script = tmp_path / "fake_worker.py"
    script.write_text(FAKE_WORKER)
    table = tmp_path / "behaviours.json"
    table.write_text(json.dumps({w.workload_id: b for w, b in behaviours.items()}))
    out, work = tmp_path / "out", tmp_path / "work"
    out.mkdir(exist_ok=True)
    options = collect.parser().parse_args([str(out), "--workers", "2"])
    campaign = Campaign(out / "recorded-0", work, options, 1, time.time() + seconds)
    for worker in campaign._workers:
        worker.command = [sys.executable, str(script), str(table)]
    return campaign


@pytest.fixture
def short_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hang is noticed after a second here."""
    limits = {**worker_process._STALL_LIMITS_S, "measure": 1.0}
    monkeypatch.setattr(worker_process, "_STALL_LIMITS_S", limits)


def test_deaths_and_hangs_cost_no_other_workload(
    tmp_path: Path, short_stalls: None, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviours = _workloads(["good", "dies", "good", "hangs", "refuses", "good"])
    campaign = _campaign(tmp_path, behaviours)
    assert campaign.run(list(behaviours)) == 0
    names = member_names(part_path(tmp_path / "out" / "recorded-0", 1))
    # Those that died or hung came back in isolation; what was refused did not.
    expected = {w.workload_id for w, b in behaviours.items() if b != "refuses"}
    assert {n.removesuffix(".csv") for n in names if n.endswith(".csv")} == expected
    assert archived_ids(tmp_path / "out" / "recorded-0") == expected
    assert any(name.startswith("failures-") for name in names)
    printed = capsys.readouterr().err
    assert "device-side assert" in printed
    assert "hung in phase 'measure'" in printed
    assert "BindError: no" in printed
    assert "best 2.00x" in printed
    assert "recorded 5 of 6 workloads, 225 attempts" in printed


def test_a_broken_worker_takes_no_further_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviours = _workloads(["breaks", "good", "breaks", "good"])
    campaign = _campaign(tmp_path, behaviours)
    del campaign._workers[1:]
    assert campaign.run(list(behaviours)) == 0
    printed = capsys.readouterr().err
    assert "worker died" not in printed
    assert printed.count("misaligned address") == 2
    assert "recorded 4 of 4 workloads" in printed


def test_a_second_start_records_only_the_rest(tmp_path: Path) -> None:
    behaviours = _workloads(["good", "good", "good"])
    first, *rest = behaviours
    assert _campaign(tmp_path, behaviours).run([first]) == 0
    path = part_path(tmp_path / "out" / "recorded-0", 1)
    before = member_names(path)
    assert _campaign(tmp_path, behaviours).run([first, *rest]) == 0
    names = member_names(path)
    assert names[: len(before)] == before
    assert len(names) == 2 * len(behaviours)
    assert set(listed_ids(path)) == {w.workload_id for w in behaviours}


def test_nothing_starts_that_cannot_finish(tmp_path: Path) -> None:
    behaviours = _workloads(["good"])
    campaign = _campaign(tmp_path, behaviours, seconds=1.0)
    assert campaign.run(list(behaviours)) == 1
    assert not part_path(tmp_path / "out" / "recorded-0", 1).exists()


def test_a_worker_out_of_time_is_killed(tmp_path: Path) -> None:
    behaviours = _workloads(["hangs"])
    campaign = _campaign(tmp_path, behaviours)
    worker: WorkerProcess = campaign._workers[0]
    (workload,) = behaviours
    job = campaign._job(workload, isolate=False)
    outcome = worker.run(job, time.time() + 0.5)
    assert outcome.error == "out of time"
    assert not outcome.worth_retrying
    assert worker._process is None


def test_ids_to_skip_come_from_text_too(tmp_path: Path) -> None:
    path = tmp_path / "order.txt"
    path.write_text("aa no_rule family kernel\n\nbb dot family kernel\n")
    assert listed_ids(path) == ["aa", "bb"]


def test_the_gpu_is_exclusive_and_free_after_giving(tmp_path: Path) -> None:
    def free() -> bool:
        with (tmp_path / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    heard: list[str] = []
    turn = FileTurn(tmp_path / "lock", heard.append)
    turn.give()
    assert free()
    turn.take()
    turn.take()
    assert not free()
    turn.give()
    assert free()
    assert heard == ["wait", "measure", "compile"]


def test_progress_tells_rate_and_reach() -> None:
    lines: list[str] = []
    now = [0.0]
    say: Callable[[str], None] = lines.append
    progress = collect.Progress(say, stop_at_s=100.0, clock=lambda: now[0])
    progress.start(50)
    now[0] = 10.0
    summary: dict[str, Any] = {
        "n_attempts": 45,
        "n_ok": 45,
        "default_us": math.nan,
        "best_us": math.nan,
        "noise_floor_log": math.nan,
        "regime": "back_to_back",
    }
    progress.done(Workload("file:k", ("f32[1]",), "family", "plain"), summary)
    assert "4.5 configs/s" in lines[-1]
    assert "90 s left, about 10 workloads by then" in lines[-1]


def test_the_command_line_shows_help_and_refuses_nonsense() -> None:
    for bad in ([], ["out", "--seconds", "soon"]):
        with pytest.raises(SystemExit):
            collect.parser().parse_args(bad)
    options = collect.parser().parse_args(["out"])
    assert isinstance(options, argparse.Namespace)
    assert options.seconds < 600  # a command on a lent machine lasts ten minutes
