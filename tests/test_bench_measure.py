"""A planned workload measured with a stubbed GPU: what is timed and what is not."""

from __future__ import annotations

import dataclasses
import importlib
import math
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import helion
import pytest
from helion.autotuner.benchmark_provider import LocalBenchmarkProvider
from torch._subclasses.fake_tensor import FakeTensorMode

from costmodel import helion_hook
from costmodel.arguments import Argument
from costmodel.arguments import parse_argument
from costmodel.datasets import retime
from costmodel.datasets.bench_file import BenchResult
from costmodel.datasets.bench_file import Column
from costmodel.datasets.bench_file import PlannedWorkload
from costmodel.datasets.bench_file import result_from_json
from costmodel.datasets.bench_file import result_to_json
from costmodel.datasets.bench_measure import BenchLimits
from costmodel.datasets.bench_measure import BenchRig
from costmodel.datasets.bench_measure import OutOfTimeError
from costmodel.datasets.bench_measure import measure
from costmodel.datasets.bench_plan import plan_workload
from costmodel.datasets.bench_score import score
from costmodel.datasets.bench_select import BenchKernel
from costmodel.datasets.gpu_facts import GpuState
from costmodel.datasets.record_workload import Rig
from costmodel.datasets.workloads.workload import Workload
from costmodel.features.canonical import config_id
from costmodel.hardware import load_hardware
from costmodel.helion_hook import aligned_fakes
from costmodel.target import bind
from costmodel.target import targeting
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

H200 = load_hardware("NVIDIA H200")
REF = "gated_activation:clamped_swiglu"
ARGS = ("bf16[64,512]", "bf16[64,512]", "7.5")
# Times by num_warps, so that a test knows which config is which.
TIMES_US = {1: 40.0, 2: 20.0, 4: 10.0, 8: 25.0, 16: 50.0}
VERSIONS = {"helion_version": "1.5.0"}


class StubProvider(LocalBenchmarkProvider):
    """Helion's provider with everything that needs a GPU replaced."""

    broken: frozenset[int] = frozenset()

    def _compute_baseline(self) -> Any:
        return None, [], None

    def _compute_effective_tolerances(self) -> tuple[float, float]:
        return 1e-2, 1e-2

    def _decide_num_jobs(self) -> int:
        return 1

    def setup(self) -> None:
        pass

    def cleanup(self) -> None:
        self.budget_exceeded_fn = lambda: False

    def _benchmark_function(self, config: Any, fn: Any, **_: Any) -> float:
        warps = config.config["num_warps"]
        fn.warps = warps
        assert not self.settings.autotune_accuracy_check
        return math.inf if warps in self.broken else TIMES_US[warps] / 1e3


class StubTimer:
    """Reads a table of times; slower by a little in each later reading."""

    def __init__(self, regime: str, refuses: frozenset[int]) -> None:
        self.regime = regime
        self._refuses = refuses
        self.n_readings = 0

    def prepare(self, launch: Callable[..., Any], about_us: float) -> float:
        warps = getattr(launch, "warps", None)
        if warps in self._refuses and self.regime == "graph_replay":
            raise RuntimeError("capture is refused")
        return 5.0 if warps is None else TIMES_US[warps]

    def latency_us(self, prepared: float) -> float:
        self.n_readings += 1
        return prepared * (1.0 + 1e-6 * self.n_readings)


class StubJudge:
    """Convicts configs by their warps."""

    judged_by = "reference"

    def __init__(self, wrong: Mapping[int, str | Exception]) -> None:
        self._wrong = wrong

    def fault(self, launch: Callable[..., Any]) -> str | None:
        found = self._wrong.get(getattr(launch, "warps", 0))
        if isinstance(found, Exception):
            raise found
        return found


class StubTurn:
    """Says whether the GPU is held."""

    held = False

    def take(self) -> None:
        self.held = True

    def give(self) -> None:
        self.held = False


@pytest.fixture(scope="module", autouse=True)
def h200() -> Iterator[None]:
    """These tests run as on an H200: arguments have no memory, nothing is launched."""
    with targeting(H200), aligned_fakes():
        yield


@pytest.fixture(scope="module")
def kernel() -> BenchKernel:
    """A registered kernel with caches of its own."""
    module, _, name = REF.partition(":")
    cases = importlib.import_module(f"costmodel.datasets.workloads.{module}").CASES
    case = next(one for one in cases if one.name == name)
    twin = helion.kernel(case.kernel.fn, static_shapes=True)
    return BenchKernel(twin, case.reference, case.rtol, case.atol)


@pytest.fixture(scope="module")
def default(kernel: BenchKernel) -> Config:
    """Helion's default for the workload; four warps."""
    bound = bind(kernel.kernel, [parse_argument(text) for text in ARGS], H200)
    found = helion_hook.default_config(bound)
    assert found["num_warps"] == 4
    return found


def _with(default: Config, **changes: Any) -> Config:
    return {**default, **changes}


def _planned(columns: Mapping[str, Sequence[Config]]) -> PlannedWorkload:
    return PlannedWorkload(
        workload=Workload(REF, ARGS, "gated_activation", "plain"),
        kernel_digest="digest",
        kernel_class="pointwise",
        promoted=True,
        columns=tuple(
            Column(name, tuple(configs), 0.01) for name, configs in columns.items()
        ),
    )


def _bench(
    turn: StubTurn,
    *,
    broken: frozenset[int] = frozenset(),
    wrong: Mapping[int, str | Exception] | None = None,
    refuses: frozenset[int] = frozenset(),
    search: Any = None,
) -> BenchRig:
    mode = FakeTensorMode()

    def materialize(specs: Sequence[Argument], seed: int) -> list[Any]:
        assert turn.held
        return [spec.fake(mode) for spec in specs]

    provider = type("Provider", (StubProvider,), {"broken": broken})
    rig = Rig(
        materialize=materialize,
        make_timer=lambda regime, args: StubTimer(regime, refuses),
        warm_up=lambda launch, args: None,
        look=lambda: GpuState(name="NVIDIA H200", driver_version="580"),
        check=lambda: None,
        settings={
            "autotune_log_level": 40,
            "autotune_precompile": None,
            "autotune_benchmark_subprocess": False,
            "autotune_progress_bar": False,
            "autotune_random_seed": 0,
        },
        versions=VERSIONS,
        provider_base=provider,
    )
    return BenchRig(rig, lambda *_: StubJudge(wrong or {}), search)


def _measure(
    planned: PlannedWorkload,
    kernel: BenchKernel,
    limits: BenchLimits | None = None,
    **stubs: Any,
) -> BenchResult:
    turn = StubTurn()
    beats: list[None] = []
    bench = _bench(turn, **stubs)
    limits = limits or BenchLimits()
    try:
        found = measure(
            planned, kernel, bench, turn, limits, lambda: beats.append(None)
        )
    finally:
        assert not turn.held
    assert beats
    return found


def test_every_column_gets_its_time(kernel: BenchKernel, default: Config) -> None:
    fast, slow = _with(default, num_warps=2), _with(default, num_warps=8)
    planned = _planned(
        {"default": [default], "pick": [slow], "top2": [default, fast, slow]}
    )
    result = _measure(planned, kernel)
    # Through the file and back: what a report reads is what was measured.
    scored = score(result_from_json(result_to_json(result)))
    assert scored is not None
    assert scored.default_us == pytest.approx(10.0, rel=1e-3)
    assert scored.columns["pick"].speedup == pytest.approx(10 / 25, rel=1e-3)
    assert scored.columns["pick"].is_harm
    assert scored.columns["top2"].chosen == config_id(default)
    assert scored.best == config_id(default)
    assert result.regime == "graph_replay"
    assert result.versions == VERSIONS
    assert result.gpu["driver_version"] == "580"
    for one in result.results.values():
        n_each = 2 if config_id(one.config or {}) == result.default_id else 1
        assert len(one.readings) == n_each * retime.N_ROUNDS


def test_one_config_in_several_columns_is_read_once(
    kernel: BenchKernel, default: Config
) -> None:
    fast = _with(default, num_warps=2)
    columns = {"default": [default], "pick": [fast], "other": [fast, default]}
    result = _measure(_planned(columns), kernel)
    assert len(result.results) == 2
    assert result.members["pick"] == (config_id(fast),)


def test_what_fails_or_is_wrong_is_never_timed(
    kernel: BenchKernel, default: Config
) -> None:
    by_warps = {n: _with(default, num_warps=n) for n in (1, 8, 16)}
    planned = _planned(
        {
            "default": [default],
            "errs": [by_warps[1]],
            "differs": [by_warps[8]],
            "raises": [by_warps[16]],
            "refused": [_with(default, block_sizes=["many"])],
        }
    )
    result = _measure(
        planned,
        kernel,
        broken=frozenset({1}),
        wrong={8: "3 of 7 elements differ", 16: RuntimeError("no launch")},
    )
    scored = score(result)
    assert scored is not None
    statuses = {name: one.status for name, one in scored.columns.items()}
    assert statuses == {
        "default": "ok",
        "errs": "error",
        "differs": "wrong",
        "raises": "error",
        "refused": "refused",
    }
    assert "3 of 7" in scored.columns["differs"].detail
    assert "no launch" in scored.columns["raises"].detail
    for name, one in scored.columns.items():
        assert one.speedup == (1.0 if name == "default" else 0.1)
    timed = [one for one in result.results.values() if one.readings]
    assert [config_id(one.config or {}) for one in timed] == [result.default_id]


def test_a_default_that_another_helion_planned_gives_way_to_the_live_one(
    kernel: BenchKernel, default: Config
) -> None:
    theirs = _with(default, num_warps=16)
    planned = _planned({"default": [theirs], "pick": [theirs], "other": [default]})
    result = _measure(planned, kernel)
    assert result.default_id == config_id(default)
    assert set(result.results) == {config_id(default)}
    assert result.members["pick"] == result.members["default"] == (config_id(default),)


def test_a_knob_that_this_helion_lacks_is_left_out(
    kernel: BenchKernel, default: Config
) -> None:
    newer = _with(default, num_warps=8, knob_of_tomorrow=False)
    planned = _planned({"default": [default], "pick": [newer]})
    result = _measure(planned, kernel)
    assert result.members["pick"] == (config_id(_with(default, num_warps=8)),)
    scored = score(result)
    assert scored is not None
    assert scored.columns["pick"].status == "ok"


def test_a_refused_capture_changes_the_regime_of_all(
    kernel: BenchKernel, default: Config
) -> None:
    odd = _with(default, num_warps=2)
    planned = _planned({"default": [default], "pick": [odd]})
    result = _measure(planned, kernel, refuses=frozenset({2}))
    assert result.regime == "back_to_back"
    assert all(len(one.readings) >= retime.N_ROUNDS for one in result.results.values())


def test_a_foreign_callable_is_a_column_but_never_the_best_config(
    kernel: BenchKernel, default: Config
) -> None:
    with_foreign = dataclasses.replace(kernel, foreign={"theirs": lambda *a: a[0]})
    result = _measure(_planned({"default": [default]}), with_foreign)
    scored = score(result)
    assert scored is not None
    assert scored.columns["theirs"].speedup == pytest.approx(2.0, rel=1e-3)
    assert scored.best_speedup == 1.0
    again = result_from_json(result_to_json(result))
    assert again.results["theirs"].config is None


def test_helions_search_is_a_column_with_its_seconds(
    kernel: BenchKernel, default: Config
) -> None:
    found = _with(default, num_warps=8)
    planned = _planned({"default": [default]})
    result = _measure(
        planned, kernel, search=lambda *_: (found, {"n_configs": 31, "seconds": 9.0})
    )
    scored = score(result)
    assert scored is not None
    assert scored.columns["autotune"].chosen == config_id(found)
    assert result.searched["n_configs"] == 31

    def fails(*_: Any) -> Any:
        raise RuntimeError("no config found")

    scored = score(_measure(planned, kernel, search=fails))
    assert scored is not None
    assert scored.columns["autotune"].is_failure
    assert "no config found" in scored.columns["autotune"].detail


@pytest.mark.parametrize("limit", ["first", "clock", "search"])
def test_a_workload_out_of_time_has_no_result(
    kernel: BenchKernel, default: Config, limit: str
) -> None:
    planned = _planned({"default": [default], "pick": [_with(default, num_warps=2)]})
    limits = {
        "first": BenchLimits(first_s=-1.0),
        "search": BenchLimits(stop_at_s=time.time() + 60.0, search_s=90.0),
        "clock": BenchLimits(stop_at_s=time.time() - 1.0),
    }[limit]
    with pytest.raises(OutOfTimeError):
        search = (lambda *_: (default, {})) if limit == "search" else None
        _measure(planned, kernel, limits, search=search)


def test_without_a_default_there_is_nothing_to_compare_with(
    kernel: BenchKernel, default: Config
) -> None:
    planned = _planned({"default": [default], "pick": [_with(default, num_warps=2)]})
    result = _measure(planned, kernel, broken=frozenset({4}))
    assert result.results[result.default_id].status == "error"
    assert result.noise_floor_log is None
    assert score(result) is None


def test_a_plan_holds_what_each_way_chose(kernel: BenchKernel, default: Config) -> None:
    ranked = [_with(default, num_warps=n) for n in (2, 8, 1)]

    def pick(bound: Any) -> Pick:
        return Pick(
            config=default,
            source=PickSource.DEFAULT,
            reason=ReasonCode.GAIN_BELOW_MARGIN,
            detail="too little",
            default=default,
            shortlist=(default, *ranked),
        )

    workload = Workload(REF, ARGS, "gated_activation", "plain")
    planned, _ = plan_workload(workload, kernel.kernel, H200, lambda _: pick, n_seeds=2)
    columns = {one.name: one for one in planned.columns}
    assert planned.default == default
    assert columns["pick"].configs == (default,)
    assert columns["pick"].why == "gain_below_margin: too little"
    assert columns["no_gate"].configs == (ranked[0],)
    assert columns["top2"].configs == (default, *ranked[:2])
    assert columns["top5"].configs == (default, *ranked)
    assert len(columns["analytic"].configs) == 1
    assert columns["seeds"].configs[0] == default
    assert planned.promoted and planned.kernel_digest
