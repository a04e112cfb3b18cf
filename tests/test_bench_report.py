"""The report adds up, and says what went wrong."""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from bench_builder import planned
from bench_builder import result
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from costmodel import cli
from costmodel import cli_bench
from costmodel.datasets.bench_file import BenchResult
from costmodel.datasets.bench_file import Plan
from costmodel.datasets.bench_file import append_result
from costmodel.datasets.bench_file import write_plan
from costmodel.training.bench_plot import shown_ticks
from costmodel.training.bench_report import WITH_RULE
from costmodel.training.bench_report import WITHOUT_RULE
from costmodel.training.bench_report import ColumnSummary
from costmodel.training.bench_report import as_json
from costmodel.training.bench_report import make_report
from costmodel.training.bench_report import upper_share
from costmodel.training.bench_show import markdown

COLUMNS = {"pick": ["p"], "top2": ["d", "p", "q"]}


def _measured(pick_us: float, best_us: float = 5.0, **facts: object) -> BenchResult:
    times = {"d": 10.0, "p": pick_us, "q": best_us}
    return result(COLUMNS, [times] * 3, **facts)  # type: ignore[arg-type]


def _results() -> list[BenchResult]:
    return [
        _measured(8.0, kernel="a:one"),
        _measured(10.0, kernel="a:one"),
        _measured(12.5, kernel="b:two"),
        _measured(9.0, kernel="b:three", failed={"p": "wrong"}),
        _measured(2.5, kernel="c:four", promoted=False, kernel_class="reduction"),
        _measured(9.0, kernel="c:five", failed={"d": "error"}),
    ]


def _column(part_title: str, name: str, results: list[BenchResult]) -> ColumnSummary:
    report = make_report(results)
    (part,) = [one for one in report.parts if one.title == part_title]
    (column,) = [one for one in part.columns if one.name == name]
    return column


def test_the_summary_of_a_column_is_what_its_workloads_say() -> None:
    pick = _column(WITH_RULE, "pick", _results())
    expected = (1.25 * 1.0 * 0.8 * 0.1) ** (1 / 4)
    assert pick.n == 4
    assert pick.speedup == pytest.approx(expected)
    assert pick.best == pytest.approx(2.0)
    assert pick.headroom_share == pytest.approx(math.log(expected) / math.log(2.0))
    assert (pick.n_gain, pick.n_harm, pick.n_failed) == (1, 2, 1)
    assert pick.worst == pytest.approx(0.1)
    assert pick.low <= pick.speedup <= pick.high
    top2 = _column(WITH_RULE, "top2", _results())
    assert top2.headroom_share == pytest.approx(1.0)
    assert top2.n_failed == 0
    without = _column(WITHOUT_RULE, "pick", _results())
    assert (without.n, without.speedup) == (1, pytest.approx(4.0))


def test_the_order_of_results_does_not_matter() -> None:
    results = _results()
    forward = _column(WITH_RULE, "pick", results)
    backward = _column(WITH_RULE, "pick", results[::-1])
    assert forward.speedup == pytest.approx(backward.speedup)
    assert (forward.low, forward.high) == pytest.approx((backward.low, backward.high))
    assert forward.n_harm == backward.n_harm


def test_a_column_that_some_workloads_lack_is_summed_over_the_others() -> None:
    extra = {**COLUMNS, "autotune": ["q"]}
    results = [*_results(), result(extra, [{"d": 10.0, "p": 10.0, "q": 5.0}] * 3)]
    assert _column(WITH_RULE, "autotune", results).n == 1
    assert _column(WITH_RULE, "pick", results).n == 5


def test_classes_and_rules_partition_the_workloads() -> None:
    report = make_report(_results())
    assert len(report.scores) == 5 and len(report.unscored) == 1
    assert [one.title for one in report.parts] == [WITH_RULE, WITHOUT_RULE]
    for parts in (report.parts, report.classes):
        assert sum(one.n for one in parts) == 5


@given(st.integers(1, 120).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_bound_of_a_share_is_what_binomials_say(seen: tuple[int, int]) -> None:
    n_seen, n = seen
    bound = upper_share(n_seen, n)
    assert n_seen / n <= bound <= 1.0
    exact = 1.0 if n_seen == n else stats.beta.ppf(0.95, n_seen + 1, n - n_seen)
    assert bound == pytest.approx(exact, abs=1e-6)


@given(low=st.floats(0.01, 0.99), high=st.floats(1.01, 1000.0))
def test_labels_of_the_plot_do_not_overlap(low: float, high: float) -> None:
    ticks = shown_ticks(low, high)
    assert 1.0 in ticks and ticks == sorted(set(ticks))
    assert all(low <= one <= high for one in ticks)
    gaps = [math.log(b / a) for a, b in itertools.pairwise(ticks)]
    assert all(gap >= 0.07 * math.log(high / low) - 1e-12 for gap in gaps)


def test_the_page_names_every_bad_pick_and_every_workload() -> None:
    report = make_report(_results())
    page = markdown(report, [("command", "`x`")], "plot.png")
    wrong = page.split("## Where it went wrong")[1].split("## Every workload")[0]
    assert wrong.count("- `") == 3
    assert "c:five" in wrong and "not counted" in wrong
    assert "b:two" in wrong and "wrong!" in wrong
    for one in report.scores:
        assert " ".join(one.result.planned.workload.args) in page
    for words in ("NVIDIA H200", "580.0", "2.11.0", "plot.png", "1 whose default"):
        assert words in page
    # Tables are whole: as many cells in each row as in its head.
    rows = [line.count("|") for line in page.splitlines() if line.startswith("| ")]
    assert len(set(rows)) == 3


def test_the_command_writes_all_three(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = _results()
    for one in results:
        append_result(tmp_path / "bench-0.jsonl", one)
    facts = {"command": "costmodel bench plan x", "made": "2026-11-30"}
    write_plan(tmp_path / "plan.jsonl", Plan(facts, (planned(COLUMNS),)))
    plot, page = tmp_path / "speedup.png", tmp_path / "page.md"
    command = ["bench", "report", str(tmp_path), "--json"]
    command += ["--plot", str(plot), "--markdown", str(page)]
    assert cli.main(command) == 0
    body = json.loads(capsys.readouterr().out)
    assert body == json.loads(json.dumps(as_json(make_report(results))))
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "costmodel bench plan x" in page.read_text()
    assert cli.main(["bench", "report", str(tmp_path)]) == 0
    assert "0.1" in capsys.readouterr().out


def test_an_empty_bench_is_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", "report", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "no_such_family", "--output", "x.jsonl"],
        ["run", "missing.jsonl", "--output", "out"],
    ],
)
def test_a_mistake_is_an_error_of_one_line(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench", *arguments]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_all_steps_hand_their_options_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, argparse.Namespace]] = []

    def note(name: str) -> Callable[..., int]:
        def step(options: argparse.Namespace, *_: object) -> int:
            steps.append((name, options))
            return 0

        return step

    monkeypatch.setattr(cli_bench, "_require_gpu", lambda: None)
    monkeypatch.setattr(cli_bench, "_write_plan", note("plan"))
    monkeypatch.setattr(cli_bench.bench_run, "run", note("run"))
    monkeypatch.setattr(cli_bench, "_report", note("report"))
    command = ["bench", "all", "matmul", "--output", str(tmp_path), "--seconds", "60"]
    assert cli.main([*command, "--autotune-seconds", "9", "--json"]) == 0
    assert [name for name, _ in steps] == ["plan", "run", "report"]
    plan, run, report = (options for _, options in steps)
    assert plan.words == ["matmul"] and report.json
    assert (run.seconds, run.autotune_seconds, run.autotune_limit) == (60.0, 9.0, 8)
    assert run.plan == tmp_path / "plan.jsonl" and run.output == tmp_path
    assert run.shard == (0, 1) and run.skip == []
    assert report.results == [tmp_path]
    # A plan that is there is gone on with.
    (tmp_path / "plan.jsonl").write_text("")
    assert cli.main(command) == 0
    assert [name for name, _ in steps][3:] == ["run", "report"]
