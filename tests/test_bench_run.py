"""A bench loses at most the workload in flight, and a second start goes on."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench_builder import planned
from bench_builder import result

from costmodel.datasets import bench_options
from costmodel.datasets import bench_run
from costmodel.datasets.bench_file import BenchResult
from costmodel.datasets.bench_file import Plan
from costmodel.datasets.bench_file import PlannedWorkload
from costmodel.datasets.bench_file import append_result
from costmodel.datasets.bench_file import read_results
from costmodel.datasets.bench_file import result_to_json
from costmodel.datasets.bench_file import write_plan
from costmodel.datasets.bench_run import Bench

# Talks as a worker does; what it does with a job is in a table beside it.
FAKE_WORKER = textwrap.dedent(
    """
    import json, os, sys, time
    table = json.load(open(sys.argv[1]))

    def say(**fields):
        print(json.dumps(fields), flush=True)

    say(event="ready")
    for line in sys.stdin:
        job = json.loads(line)
        behaviour, answer = table[job["workload_id"]]
        say(event="phase", phase="measure")
        with open(sys.argv[2], "a") as log:
            print(job["workload_id"], bool(job["autotune"]), job["careful"], file=log)
        if not job["careful"]:
            if behaviour == "dies":
                print("CUDA error: device-side assert", file=sys.stderr, flush=True)
                os._exit(9)
            if behaviour == "hangs":
                sys.stdin.read()
            if behaviour == "breaks":
                say(event="failed", error="CUDA error: misaligned", broken=True)
                os._exit(3)
        if behaviour == "refuses":
            say(event="failed", error="BindError: no", broken=False)
            continue
        if behaviour == "clock":
            say(event="failed", error="OutOfTimeError: stopped by the clock",
                broken=False)
            continue
        if behaviour == "odd":
            say(event="done", result={**answer, "compile_s": float("nan")})
            continue
        if behaviour == "slow":
            time.sleep(0.3)
        if job["autotune"]:
            answer["searched"] = {"n_configs": 30}
        say(event="done", result=answer)
    """
)


def _workloads(behaviours: Sequence[str]) -> dict[str, tuple[str, BenchResult]]:
    """Results to answer with, by workload id, and what the worker does first."""
    made = [
        result({"pick": ["p"]}, [{"d": 10.0, "p": 8.0}] * 3, kernel=f"file:{name}{i}")
        for i, name in enumerate(behaviours)
    ]
    return {
        one.planned.workload.workload_id: (name, one)
        for name, one in zip(behaviours, made, strict=True)
    }


def _options(tmp_path: Path, *more: str) -> argparse.Namespace:
    made = argparse.ArgumentParser()
    bench_options.add_options(made)
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    plan = tmp_path / "plan.jsonl"
    return made.parse_args([str(plan), "-o", str(out), "--workers", "2", *more])


def _bench(
    tmp_path: Path,
    table: dict[str, tuple[str, BenchResult]],
    *more: str,
    said: list[str] | None = None,
) -> Bench:
    script = tmp_path / "fake_worker.py"
    script.write_text(FAKE_WORKER)
    plain = {k: (name, result_to_json(one)) for k, (name, one) in table.items()}
    (tmp_path / "table.json").write_text(json.dumps(plain))
    wanted = [one.planned for _, one in table.values()]
    say = (said if said is not None else []).append
    bench = Bench(_options(tmp_path, *more), tmp_path / "work", wanted, say)
    for worker in bench.workers:
        worker.command = [
            sys.executable,
            str(script),
            str(tmp_path / "table.json"),
            str(tmp_path / "jobs.log"),
        ]
    return bench


def _measured(tmp_path: Path) -> list[str]:
    found = read_results(sorted((tmp_path / "out").glob("bench-*.jsonl")))
    return [one.planned.workload.workload_id for one in found]


def _jobs(tmp_path: Path) -> list[list[str]]:
    lines = (tmp_path / "jobs.log").read_text().splitlines()
    return [line.split() for line in lines]


@pytest.fixture
def short_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hang is noticed after a second here."""
    limits = {**bench_run._STALL_LIMITS_S, "measure": 1.0}
    monkeypatch.setattr(bench_run, "_STALL_LIMITS_S", limits)


def test_deaths_and_hangs_cost_no_other_workload(
    tmp_path: Path, short_stalls: None
) -> None:
    table = _workloads(
        ["good", "dies", "good", "hangs", "refuses", "breaks", "odd", "good"]
    )
    said: list[str] = []
    assert _bench(tmp_path, table, said=said).run() == 0
    # Those that died, hung or broke came back in isolation; what was refused did not.
    lost = {"refuses", "odd"}
    expected = {k for k, (name, _) in table.items() if name not in lost}
    assert set(_measured(tmp_path)) == expected
    retried = {job[0] for job in _jobs(tmp_path) if job[2] == "True"}
    troubled = {"dies", "hangs", "breaks"}
    assert retried == {k for k, (name, _) in table.items() if name in troubled}
    printed = "\n".join(said)
    for words in ("device-side assert", "hung in phase", "BindError", "pick 1.250x"):
        assert words in printed
    failures = (tmp_path / "out" / "failures-0.jsonl").read_text().splitlines()
    assert len(failures) == 5


def test_a_second_start_measures_only_the_rest(tmp_path: Path) -> None:
    table = _workloads(["good", "good", "good"])
    first = next(iter(table))
    assert _bench(tmp_path, {first: table[first]}).run() == 0
    assert _bench(tmp_path, table).run() == 0
    assert [job[0] for job in _jobs(tmp_path)].count(first) == 1
    assert sorted(_measured(tmp_path)) == sorted(table)
    assert _bench(tmp_path, table).run() == 0
    assert len(_jobs(tmp_path)) == len(table)


def test_results_of_another_machine_are_skipped(tmp_path: Path) -> None:
    table = _workloads(["good", "good"])
    first, second = table
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    append_result(elsewhere / "bench-0.jsonl", table[first][1])
    assert _bench(tmp_path, table, "--skip", str(elsewhere)).run() == 0
    assert _measured(tmp_path) == [second]


def test_nothing_starts_that_cannot_finish(tmp_path: Path) -> None:
    table = _workloads(["good"])
    assert _bench(tmp_path, table, "--seconds", "1").run() == 1
    assert not (tmp_path / "jobs.log").exists()


def test_what_the_clock_stopped_is_neither_result_nor_failure(tmp_path: Path) -> None:
    table = _workloads(["good", "clock"])
    said: list[str] = []
    assert _bench(tmp_path, table, said=said).run() == 0
    assert _measured(tmp_path) == [
        k for k, (name, _) in table.items() if name == "good"
    ]
    assert not (tmp_path / "out" / "failures-0.jsonl").exists()
    assert any("stopped by the clock" in line for line in said)


def test_searches_come_last_and_are_kept_beside_the_rest(tmp_path: Path) -> None:
    table = _workloads(["good"] * 4)
    options = ["--autotune-seconds", "5", "--autotune-limit", "2", "--workers", "1"]
    assert _bench(tmp_path, table, *options).run() == 0
    searched = [job[1] == "True" for job in _jobs(tmp_path)]
    assert searched == [False] * 4 + [True] * 2
    found = read_results([tmp_path / "out" / "bench-0.jsonl"])
    assert len(found) == 4
    assert sum(bool(one.searched) for one in found) == 2
    # Searched ones are spread over the plan, the first among them, and not redone.
    assert [job[0] for job in _jobs(tmp_path)[4:]] == list(table)[::2]
    assert _bench(tmp_path, table, *options).run() == 0
    assert len(_jobs(tmp_path)) == 6


def test_a_search_that_cannot_finish_leaves_the_plain_result(tmp_path: Path) -> None:
    table = _workloads(["good"])
    options = ["--autotune-seconds", "500", "--seconds", "60"]
    assert _bench(tmp_path, table, *options).run() == 0
    (found,) = read_results([tmp_path / "out" / "bench-0.jsonl"])
    assert not found.searched


@pytest.mark.parametrize("n", [0, 1, 3, 7, 20])
def test_spread_takes_distinct_workloads(n: int) -> None:
    wanted = [planned({}) for _ in range(7)]
    taken = bench_run.spread(wanted, n)
    assert len(taken) == min(n, 7)
    assert len({one.workload.workload_id for one in taken}) == len(taken)


_PARENT = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    import test_bench_run
    test_bench_run.run_in_child(Path(sys.argv[1]))
    """
)


def run_in_child(tmp_path: Path) -> None:
    """A bench of what `table.json` holds, to be killed."""
    body = json.loads((tmp_path / "table.json").read_text())
    table = {
        key: (name, bench_run.result_from_json(one))
        for key, (name, one) in body.items()
    }
    _bench(tmp_path, table, "--workers", "1").run()


def test_a_killed_bench_goes_on_where_it_was(tmp_path: Path) -> None:
    table = _workloads(["slow"] * 6)
    _bench(tmp_path, table)  # writes the table
    process = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path), str(Path(__file__).parent)],
        start_new_session=True,
    )
    results = tmp_path / "out" / "bench-0.jsonl"
    deadline = time.monotonic() + 60.0
    while not (results.exists() and results.read_text().count("\n") >= 2):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    # As if it died while writing: half a line is at the end.
    kept = _measured(tmp_path)
    assert 2 <= len(kept) < len(table)
    with results.open("a") as file:
        file.write('{"format":1,"planned":{"wor')
    before = len(_jobs(tmp_path))
    assert _bench(tmp_path, table).run() == 0
    assert sorted(_measured(tmp_path)) == sorted(table)
    again = [job[0] for job in _jobs(tmp_path)[before:]]
    assert not set(kept) & set(again)


def test_a_plan_is_read_by_the_command(tmp_path: Path) -> None:
    table = _workloads(["good"])
    wanted: list[PlannedWorkload] = [one.planned for _, one in table.values()]
    write_plan(tmp_path / "plan.jsonl", Plan({"gpu": "H200"}, tuple(wanted)))
    append_result(tmp_path / "bench-0.jsonl", table[wanted[0].workload.workload_id][1])
    # Everything is measured, so no worker and no GPU is needed.
    options = _options(tmp_path, "--skip", str(tmp_path / "bench-0.jsonl"))
    assert bench_run.run(options) == 0


def test_a_dry_run_counts_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = tuple(planned({"pick": ["p"], "top2": ["d", "p", "q"]}) for _ in range(3))
    write_plan(tmp_path / "plan.jsonl", Plan({}, wanted))
    options = _options(tmp_path, "--dry-run", "--limit", "2")
    options.output.rmdir()
    assert bench_run.run(options) == 0
    assert "2 workloads, 6 configs" in capsys.readouterr().out
    assert not options.output.exists()


def test_measuring_loads_no_model_library() -> None:
    code = (
        "import sys, costmodel.cli_bench, costmodel.datasets.bench_worker,"
        " costmodel.datasets.bench_measure, costmodel.datasets.bench_check,"
        " costmodel.datasets.cuda_rig, costmodel.datasets.bench_select;"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"xgboost", "mlflow", "matplotlib"} & set(done.stdout.split())


def test_a_result_replaces_an_older_one_of_its_workload(tmp_path: Path) -> None:
    (_, one), (_, other) = _workloads(["good", "good"]).values()
    later = dataclasses.replace(one, compile_s=99.0)
    for each in (one, other, later):
        append_result(tmp_path / "bench-0.jsonl", each)
    found = read_results([tmp_path / "bench-0.jsonl"])
    assert [each.compile_s for each in found] == [other.compile_s, 99.0]
