"""A workload recorded end to end with a stubbed GPU reads back as what was recorded."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import helion
import pytest
from helion.autotuner.benchmark_provider import LocalBenchmarkProvider
from torch._subclasses.fake_tensor import FakeTensorMode

from costmodel.arguments import Argument
from costmodel.datasets import offers
from costmodel.datasets import side_file
from costmodel.datasets.gpu_facts import GpuState
from costmodel.datasets.helion_log import read_logs
from costmodel.datasets.oracle import Limits
from costmodel.datasets.record import DefaultSource
from costmodel.datasets.record import Status
from costmodel.datasets.record_workload import Rig
from costmodel.datasets.record_workload import Summary
from costmodel.datasets.record_workload import record_workload
from costmodel.datasets.workloads.workload import KernelCase
from costmodel.datasets.workloads.workload import Workload
from costmodel.features.canonical import config_id
from costmodel.hardware import load_hardware
from costmodel.helion_hook import aligned_fakes
from costmodel.target import targeting

H200 = load_hardware("NVIDIA H200")
N_CONFIGS = 14
VERSIONS = {
    "helion_version": "1.5.0",
    "torch_version": "2.11.0",
    "triton_version": "3.6.0",
}


def _stub_us(config: dict[str, Any]) -> float:
    """A made-up time, equal for equal configs; one config in seven fails.

    All within 1.4x, so that whatever is proposed, some are worth timing again.
    """
    digits = int(config_id(config), 16)
    return math.inf if digits % 7 == 0 else 500.0 + digits % 200


class StubProvider(LocalBenchmarkProvider):
    """Helion's provider with everything that needs a GPU replaced."""

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
        self._autotune_metrics.num_configs_tested += 1
        return _stub_us(json.loads(json.dumps(config.config))) / 1e3


class StubTimer:
    """Reads what it was told a launch takes, a little more with every reading."""

    def __init__(self, regime: str) -> None:
        self.regime = regime
        self.n_readings = 0

    def prepare(self, launch: Callable[..., Any], about_us: float) -> float:
        return about_us

    def latency_us(self, prepared: float) -> float:
        self.n_readings += 1
        return prepared * (1.0 + 1e-6 * self.n_readings)


class StubTurn:
    """Says whether the GPU was held; taking twice is allowed, as in the real one."""

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


def _case(ref: str) -> KernelCase:
    """A registered case with a kernel of its own, so that caches do not leak."""
    module, _, name = ref.partition(":")
    cases = importlib.import_module(f"costmodel.datasets.workloads.{module}").CASES
    case = next(one for one in cases if one.name == name)
    twin = helion.kernel(case.kernel.fn, static_shapes=True)
    return dataclasses.replace(case, kernel=twin)


def _rig(turn: StubTurn, timers: list[StubTimer]) -> Rig:
    mode = FakeTensorMode()

    def materialize(specs: Sequence[Argument], seed: int) -> list[Any]:
        assert turn.held
        return [spec.fake(mode) for spec in specs]

    def make_timer(regime: str, args: Sequence[Any]) -> StubTimer:
        timers.append(StubTimer(regime))
        return timers[-1]

    def warm_up(launch: Callable[..., Any], args: Sequence[Any]) -> None:
        assert turn.held

    return Rig(
        materialize=materialize,
        make_timer=make_timer,
        warm_up=warm_up,
        look=lambda: GpuState(name="NVIDIA H200", sm_clock_mhz=1980.0),
        check=lambda: None,
        settings={
            "autotune_log_details": True,
            "autotune_log_level": 40,
            "autotune_precompile": None,
            "autotune_benchmark_subprocess": False,
            "autotune_progress_bar": False,
            "autotune_random_seed": 0,
        },
        versions=VERSIONS,
        provider_base=StubProvider,
    )


def _record(
    ref: str, args: tuple[str, ...], folder: Path, limits: Limits | None = None
) -> tuple[Workload, Summary, list[StubTimer]]:
    case = _case(ref)
    workload = Workload(ref, args, case.family, case.variant)
    turn, timers = StubTurn(), []
    beats: list[None] = []
    summary = record_workload(
        workload,
        case,
        H200,
        _rig(turn, timers),
        turn,
        limits or Limits(n_configs=N_CONFIGS),
        folder,
        lambda: beats.append(None),
    )
    assert not turn.held
    assert beats
    return workload, summary, timers


@pytest.fixture
def unanalysed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans without our own candidates: seconds less per recording."""
    monkeypatch.setattr(offers, "_analyse", lambda *_: ([], lambda c: [True] * len(c)))


WORKLOADS = (
    ("matmul:gemm_nn", ("bf16[512,1024]", "bf16[1024,512]")),
    ("gated_activation:clamped_swiglu", ("bf16[64,512]", "bf16[64,512]", "7.5")),
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """Both workloads, recorded into one folder."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder, [_record(ref, args, Path()) for ref, args in WORKLOADS]


def test_every_planned_config_is_an_attempt(recorded: tuple[Path, list[Any]]) -> None:
    folder, results = recorded
    runs, _ = read_logs([folder])
    assert len(runs) == len(results)
    by_log = {run.log: run for run in runs}
    for workload, summary, _ in results:
        run = by_log[workload.workload_id]
        assert run.problem is None
        assert run.has_graph
        assert len(run.configs) == N_CONFIGS
        statuses = Counter(one.status for one in run.attempts)
        assert set(statuses) <= {Status.OK, Status.ERROR}
        assert statuses[Status.OK] == summary.n_ok
        assert len(run.attempts) == summary.n_attempts > N_CONFIGS
        for one in run.attempts:
            if one.latency_us is not None:
                assert one.latency_us == pytest.approx(_stub_us(one.config), rel=1e-3)


def test_the_side_file_joins_and_tells_the_rest(
    recorded: tuple[Path, list[Any]],
) -> None:
    folder, results = recorded
    by_log = {run.log: run for run in read_logs([folder])[0]}
    for workload, summary, _ in results:
        run = by_log[workload.workload_id]
        side = run.side
        assert side is not None
        assert run.default_how is DefaultSource.SIDE_FILE
        assert run.default_config_id == side.default_config_id
        assert (side.kernel, side.family) == (workload.kernel, workload.family)
        assert side.arguments == workload.args
        assert side.gpu.sm_clock_start_mhz == 1980.0
        assert side.helion_version == "1.5.0"
        assert side.regime == summary.regime
        assert len(side.strides) == sum("[" in text for text in workload.args)
        assert side.promoted is True
        assert set(side.interleaved_us) <= set(run.configs)
        # A default that no other comes near is read alone.
        assert summary.n_retimed == len(side.interleaved_us) >= 1
        reference = side.default_config_id
        if reference in side.interleaved_us:
            n_rounds = len(side.interleaved_us[reference]) // 2
            others = [v for k, v in side.interleaved_us.items() if k != reference]
            assert n_rounds >= 5
            assert all(len(values) == n_rounds for values in others)
        assert side.noise_floor_log is not None
        assert side.noise_floor_log < 1e-3
    assert max(summary.n_retimed for _, summary, _ in results) >= 2
    assert by_log[results[1][0].workload_id].side.scalars == {"limit": 7.5}


def test_the_default_is_read_again_and_again_but_not_first(
    recorded: tuple[Path, list[Any]],
) -> None:
    folder, _ = recorded
    for run in read_logs([folder])[0]:
        ids = [one.config_id for one in run.attempts]
        assert ids.count(run.default_config_id) >= 2
        assert ids[0] != run.default_config_id


def test_all_readings_of_a_run_share_one_regime(
    recorded: tuple[Path, list[Any]],
) -> None:
    folder, results = recorded
    by_log = {run.log: run for run in read_logs([folder])[0]}
    for workload, _, timers in results:
        side = by_log[workload.workload_id].side
        assert {timer.regime for timer in timers} == {side.regime}
        has_readings = [bool(one.readings_us) for one in side.attempts.values()]
        if side.regime == side_file.BACK_TO_BACK:
            assert not any(has_readings)  # Helion's log has them
        else:
            assert all(has_readings)


def test_nothing_of_this_machine_enters_the_files(
    recorded: tuple[Path, list[Any]],
) -> None:
    folder, _ = recorded
    for path in folder.iterdir():
        if path.suffix != ".log":
            assert str(folder) not in path.read_text(encoding="utf-8")


def test_recording_again_replaces_what_was_there(
    tmp_path: Path, unanalysed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ref, args = WORKLOADS[1]
    for _ in range(2):
        _record(ref, args, Path(), Limits(n_configs=4))
    runs, _ = read_logs([tmp_path])
    assert len(runs) == 1
    assert len({one.session for one in runs[0].attempts}) == 1


def test_out_of_time_leaves_a_readable_part(
    tmp_path: Path, unanalysed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ref, args = WORKLOADS[1]
    _, summary, _ = _record(ref, args, Path(), Limits(N_CONFIGS, search_s=-1.0))
    (run,), _ = read_logs([tmp_path])
    assert run.problem is None
    assert len(run.attempts) == summary.n_attempts < N_CONFIGS


def test_a_workload_barely_begun_at_the_end_does_not_count(
    tmp_path: Path, unanalysed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ref, args = WORKLOADS[1]
    with pytest.raises(TimeoutError):
        _record(ref, args, Path(), Limits(N_CONFIGS, stop_at_s=0.0))


def test_a_kernel_keeps_its_settings(
    tmp_path: Path, unanalysed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ref, args = WORKLOADS[1]
    case = _case(ref)
    before = case.kernel.settings.to_dict()
    turn = StubTurn()
    workload = Workload(ref, args, case.family, case.variant)
    limits = Limits(n_configs=4)
    record_workload(
        workload, case, H200, _rig(turn, []), turn, limits, Path(), lambda: None
    )
    assert case.kernel.settings.to_dict() == before
