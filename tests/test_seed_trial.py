"""What a search tried, when it arrived, and what that says about two seedings."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench_builder import planned
from bench_builder import result
from hypothesis import given
from hypothesis import strategies as st

from costmodel.datasets.bench_file import Plan
from costmodel.datasets.bench_file import write_plan
from costmodel.datasets.bench_plan import plan_workload
from costmodel.datasets.seed_trial import NEAR
from costmodel.datasets.seed_trial import OURS
from costmodel.datasets.seed_trial import OWN
from costmodel.datasets.seed_trial import SEEDS
from costmodel.datasets.seed_trial import Step
from costmodel.datasets.seed_trial import Tried
from costmodel.datasets.seed_trial import choose_workloads
from costmodel.datasets.seed_trial import incumbents
from costmodel.datasets.seed_trial import judge
from costmodel.datasets.seed_trial import steps_of
from costmodel.datasets.seed_trial import with_searches

ROOT = Path(__file__).resolve().parents[1]
HEADER = (
    "run_id,timestamp_s,config_id,generation,status,perf_ms,compile_time_s,config\n"
)
TIMES = st.floats(1.0, 1000.0) | st.just(math.inf)


def _row(config: int, status: str, ms: str, seconds: float = 1.0) -> str:
    spelled = f'"Config(block_sizes=[{config}], num_warps=4)"'
    return f"{'a' * 64},{seconds},{config:016x},0,{status},{ms},0.1,{spelled}\n"


def test_each_config_counts_once_when_its_result_is_known() -> None:
    rows = [
        _row(1, "started", ""),
        _row(2, "started", ""),
        _row(2, "error", "", 2.0),
        _row(1, "ok", "0.020", 3.0),
        _row(1, "ok", "0.010", 4.0),  # timed again: it is no new config
        _row(3, "timeout", "", 5.0),
        _row(4, "ok", "0.005", 6.5),
        "cut off in the mid",
    ]
    steps = steps_of(HEADER + "".join(rows))
    assert [(one.n, one.status, one.seconds) for one in steps] == [
        (1, "error", 2.0),
        (2, "ok", 3.0),
        (3, "timeout", 5.0),
        (4, "ok", 6.5),
    ]
    assert [one.latency_us for one in steps] == [math.inf, 20.0, math.inf, 5.0]
    assert steps[-1].config == {"block_sizes": [4], "num_warps": 4}


@given(st.lists(TIMES, max_size=40))
def test_incumbents_only_get_faster_and_end_with_the_fastest(
    times: list[float],
) -> None:
    steps = [Step(i + 1, float(i), "ok", us, {"n": i}) for i, us in enumerate(times)]
    best = incumbents(steps)
    values = [one.latency_us for one in best]
    assert values == sorted(set(values), reverse=True)
    assert [one.n for one in best] == sorted(one.n for one in best)
    finite = [us for us in times if us < math.inf]
    assert (values[-1] if values else None) == min(finite, default=None)


def _tried(ns: list[int], n_configs: int = 100) -> Tried:
    return Tried(n_configs, 50.0, {n: n / 2 for n in ns})


def _trial(own: dict[int, str], ours: dict[int, str], rounds: Any, **more: Any) -> Any:
    columns = {"pick": ["p"], OWN: ["o"], OURS: ["u"]}
    columns |= {f"{OWN}@{n}": [name] for n, name in own.items()}
    columns |= {f"{OURS}@{n}": [name] for n, name in ours.items()}
    measured = result(columns, rounds, **more)
    return judge(measured, 0, {OWN: _tried(list(own)), OURS: _tried(list(ours))})


def test_a_search_arrives_with_its_first_incumbent_near_the_best() -> None:
    rounds = [
        {"d": 20.0, "p": 15.0, "o": 10.0, "u": 10.2, "far": 12.0, "near": 10.4}
    ] * 3
    trial = _trial({3: "far", 40: "o"}, {2: "far", 8: "near", 60: "u"}, rounds)
    own, ours = trial.searches[OWN], trial.searches[OURS]
    assert (own.arrived_n, own.arrived_s) == (40, 20.0)
    assert (ours.arrived_n, ours.arrived_s) == (8, 4.0)
    assert trial.ratio == pytest.approx(8 / 40)
    assert own.speedup == pytest.approx(2.0)
    assert trial.best_speedup == pytest.approx(2.0)
    assert set(trial.speedups) == {"default", "pick"}
    assert not trial.default_is_near


def test_who_never_arrives_counts_with_more_than_it_tried() -> None:
    rounds = [{"d": 20.0, "p": 15.0, "o": 15.0, "u": 10.0, "far": 12.0}] * 3
    trial = _trial({3: "far", 90: "o"}, {2: "u"}, rounds)
    assert trial.searches[OWN].arrived_n is None
    assert trial.ratio == pytest.approx(2 / 101)
    rounds = [{"d": 20.0, "p": 5.0, "o": 15.0, "u": 15.0}] * 3
    assert _trial({3: "o"}, {2: "u"}, rounds).ratio is None


def test_a_wrong_result_is_no_arrival() -> None:
    rounds = [{"d": 20.0, "p": 15.0, "o": 10.0, "u": 10.0, "bad": 1.0}] * 3
    trial = _trial({1: "bad", 9: "o"}, {5: "u"}, rounds, failed={"bad": "wrong"})
    assert trial.searches[OWN].arrived_n == 9


def test_a_default_that_is_near_is_said_to_be() -> None:
    rounds = [{"d": 10.0, "p": 10.0, "o": 9.9, "u": 9.9}] * 3
    assert _trial({1: "d"}, {1: "d"}, rounds).default_is_near
    assert NEAR == 1.05


def test_the_re_timing_has_a_column_for_each_incumbent() -> None:
    plan = planned({"pick": ["p"], SEEDS: ["p", "q"]})
    step = Step(7, 1.0, "ok", 5.0, {"block_sizes": [9]})
    made = with_searches(plan, {OWN: step.config, OURS: None}, {OWN: [step]})
    names = [one.name for one in made.columns]
    assert names == ["default", "pick", OWN, f"{OWN}@7"]


def test_workloads_are_chosen_by_headroom_alone_one_a_group() -> None:
    def one(best_us: float, **facts: Any) -> Any:
        return result({"pick": ["p"]}, [{"d": 10.0, "p": best_us}] * 3, **facts)

    many = [one(us, kernel=f"matmul:k{us}") for us in (9.9, 9.0, 5.0, 2.0, 1.0)]
    few = [one(4.0, kernel="scan:s", promoted=False, kernel_class="reduction")]
    none = [one(9.8, kernel="x:y", kernel_class="pointwise")]
    chosen = choose_workloads([*few, *none, *many], 8)
    # Of five matmuls four leave a tenth; the lower one of the two in the middle.
    assert [one.kernel for one in chosen] == ["matmul:k5.0", "scan:s"]
    assert choose_workloads([*many, *few], 1) == chosen[:1]


@pytest.mark.slow
@pytest.mark.helion
def test_plan_run_and_report_without_a_gpu(tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.jsonl", tmp_path / "out"
    write_plan(plan, Plan({"gpu": "stub"}, (_planned_here(),)))
    script = str(ROOT / "benchmarks" / "seeds_h200.py")
    stub = str(ROOT / "tests" / "seeds_stub_child.py")
    limits = ["--max-configs", "12", "--search-seconds", "300", "--seconds", "900"]
    command = [sys.executable, script, "run", str(plan), "--out", str(out)]
    subprocess.run([*command, *limits, "--child", stub], check=True, timeout=900)
    lines = [json.loads(x) for x in (out / "seeds.jsonl").read_text().splitlines()]
    assert [(one["what"], one.get("way")) for one in lines] == [
        ("search", OWN),
        ("search", OURS),
        ("timing", None),
    ]
    assert all(0 < one["n_configs"] <= 12 for one in lines[:2])
    # A second start finds nothing to do.
    subprocess.run([*command, *limits, "--child", stub], check=True, timeout=900)
    assert len((out / "seeds.jsonl").read_text().splitlines()) == 3
    page = tmp_path / "page.md"
    shown = subprocess.run(
        [sys.executable, script, "report", str(out), "--json", "--markdown", str(page)],
        check=True,
        capture_output=True,
        text=True,
    )
    answer = json.loads(shown.stdout)
    assert answer["summary"]["n"] == 1 == len(answer["trials"])
    assert answer["trials"][0]["best_speedup"] >= 1.0
    assert "arrived at" in page.read_text()


def _planned_here() -> Any:
    """A plan of one small workload, its seeds Helion's default with other warps."""
    import dataclasses

    from costmodel import helion_hook
    from costmodel.datasets.bench_file import Column
    from costmodel.datasets.workloads.registry import all_cases
    from costmodel.datasets.workloads.workload import Workload
    from costmodel.hardware import load_hardware
    from costmodel.types import Pick
    from costmodel.types import PickSource
    from costmodel.types import ReasonCode

    name = "gated_activation:clamped_swiglu"
    case = all_cases()[name]
    args = ("bf16[64,512]", "bf16[64,512]", "7.5")
    workload = Workload(name, args, case.family, case.variant)

    def pick(bound: Any) -> Pick:
        default = helion_hook.default_config(bound)
        return Pick(
            default, PickSource.DEFAULT, ReasonCode.NO_MODEL, "", default=default
        )

    hardware = load_hardware("H200")
    made, view = plan_workload(workload, case.kernel, hardware, lambda _: pick)
    seeds = tuple({**view.default, "num_warps": warps} for warps in (1, 2, 8))
    return dataclasses.replace(made, columns=(*made.columns, Column(SEEDS, seeds)))
