"""Measure one planned workload: compile, check, time everything interleaved.

What differs between a GPU and a test without one is a `BenchRig`. The order is that of
a recording: compile all distinct configs in parallel without the GPU, take the GPU,
let Helion's benchmark time each once, compare results with the reference, then read
all that are right in rounds, the default at both ends.
"""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from costmodel import helion_hook
from costmodel.arguments import parse_argument
from costmodel.datasets import gpu_facts
from costmodel.datasets import machine_code
from costmodel.datasets import retime
from costmodel.datasets.bench_check import Judge
from costmodel.datasets.bench_check import Launch
from costmodel.datasets.bench_file import DEFAULT
from costmodel.datasets.bench_file import BenchResult
from costmodel.datasets.bench_file import Column
from costmodel.datasets.bench_file import ConfigResult
from costmodel.datasets.bench_file import PlannedWorkload
from costmodel.datasets.bench_first import ERROR
from costmodel.datasets.bench_first import OK
from costmodel.datasets.bench_first import WRONG
from costmodel.datasets.bench_first import first_readings
from costmodel.datasets.bench_first import first_results
from costmodel.datasets.bench_plan import full_config
from costmodel.datasets.bench_rounds import one_line
from costmodel.datasets.bench_rounds import read_rounds
from costmodel.datasets.bench_select import BenchKernel
from costmodel.datasets.record_workload import Rig
from costmodel.features.canonical import config_id
from costmodel.helion_hook import GpuTurn
from costmodel.types import Config

AUTOTUNE = "autotune"
"""Column of Helion's own search."""

REFUSED = "refused"

_ARGUMENT_SEED_DIGITS = 8

MakeJudge = Callable[[BenchKernel, Sequence[Any], Launch | None, bool], Judge]
Search = Callable[
    [Any, Sequence[Any], Mapping[str, Any]], tuple[Config, dict[str, Any]]
]


@dataclass(frozen=True, slots=True)
class BenchRig:
    """What a bench runs on.

    Attributes:
        rig: What a recording runs on.
        make_judge: Judge of a kernel's results on its arguments.
        search: Helion's own search within its limits, as the best config and facts for
            people; None leaves the column out.
    """

    rig: Rig
    make_judge: MakeJudge
    search: Search | None = None


@dataclass(frozen=True, slots=True)
class BenchLimits:
    """When to stop; seconds.

    Attributes:
        first_s: First readings of one workload, from the first one on.
        rounds_s: Interleaved readings of one workload; three rounds are always made.
        stop_at_s: Unix time after which nothing new is timed.
        n_rounds: Interleaved rounds.
        search_s: What Helion's search takes; none begins that could not end.
    """

    first_s: float = 25.0
    rounds_s: float = 8.0
    stop_at_s: float = math.inf
    n_rounds: int = retime.N_ROUNDS
    search_s: float = 0.0


class OutOfTimeError(Exception):
    """The clock stopped a workload; it was not measured, whatever was read."""


def measure(
    planned: PlannedWorkload,
    kernel: BenchKernel,
    bench: BenchRig,
    turn: GpuTurn,
    limits: BenchLimits,
    heartbeat: Callable[[], None],
    *,
    careful: bool = False,
) -> BenchResult:
    """Measure one workload; the turn is given back whatever happens.

    Args:
        planned: Its line of the plan.
        kernel: What it runs.
        bench: What to run on.
        turn: The GPU's queue.
        limits: Times.
        heartbeat: Called between steps that take up to seconds.
        careful: Leave out what may break or hang besides the configs: the reference.

    Raises:
        OutOfTimeError: Stopped before all was read.
        Exception: Whatever a broken device raises.
    """
    rig = bench.rig
    started_at_s = time.time()
    looks: list[gpu_facts.GpuState] = []
    searched: dict[str, Any] = {}
    timed_turn = _TimedTurn(turn)
    seed = int(planned.workload.workload_id[:_ARGUMENT_SEED_DIGITS], 16)
    specs = [parse_argument(text) for text in planned.workload.args]
    try:
        timed_turn.take()
        args = rig.materialize(specs, seed)
        timed_turn.give()
        bound = kernel.kernel.bind(tuple(args))
        view = helion_hook.view(bound, args)
        if bench.search is not None:
            timed_turn.take()
            if time.time() + limits.search_s > limits.stop_at_s:
                raise OutOfTimeError("stopped by the clock before Helion's search")
            column, searched = _search(bench.search, bound, args, rig.settings)
            planned = dataclasses.replace(planned, columns=(*planned.columns, column))
            timed_turn.give()
        members, configs, refused = _distinct(planned, bound, view.default)
        default_id = config_id(view.default)
        stop_first_s = math.inf
        compile_s = 0.0
        cut_short = False

        def before_timing() -> None:
            nonlocal stop_first_s, compile_s
            stop_first_s = time.time() + limits.first_s
            compile_s = timed_turn.last_apart_s
            try:
                launch = bound.compile_config(view.default, allow_print=False)
                rig.warm_up(launch, args)
            except Exception:  # a default that cannot run gets its status below
                heartbeat()
            looks.append(rig.look())

        def expired() -> bool:
            nonlocal cut_short
            heartbeat()
            cut_short = cut_short or time.time() > min(limits.stop_at_s, stop_first_s)
            return cut_short

        order = _order(configs, default_id, planned.workload.workload_id)
        rows = first_readings(
            bound,
            args,
            order,
            view.default,
            kernel,
            rig,
            timed_turn,
            before_timing,
            expired,
        )
        first_s = max(0.0, time.time() - (stop_first_s - limits.first_s))
        if cut_short:
            raise OutOfTimeError(
                f"first readings took over {limits.first_s:g} s"
                if time.time() < limits.stop_at_s
                else "stopped by the clock"
            )
        rig.check()
        results, launches = first_results(rows)
        results |= refused
        foreign = dict(kernel.foreign or {})
        launches |= foreign
        judge = bench.make_judge(kernel, args, launches.get(default_id), not careful)
        faults = _faults(judge, launches, heartbeat)
        for one, (status, detail) in faults.items():
            known = results.get(one, ConfigResult(OK))
            results[one] = dataclasses.replace(known, status=status, detail=detail)
            del launches[one]
        for label in foreign:
            results.setdefault(label, ConfigResult(OK))
            members[label] = (label,)
        rig.check()
        timed = read_rounds(
            launches,
            {one: results[one].first_us for one in launches},
            default_id,
            args,
            rig.make_timer,
            heartbeat,
            seconds=limits.rounds_s,
            n_rounds=limits.n_rounds,
        )
        looks.append(rig.look())
    finally:
        timed_turn.give()
    for one, detail in timed.failed.items():
        results[one] = dataclasses.replace(results[one], status=ERROR, detail=detail)
    for one, launch in launches.items():
        readings = timed.readings.get(one, ())
        results[one] = dataclasses.replace(
            results[one], readings=tuple(readings), **_code_facts(launch)
        )
    columns = (
        *planned.columns,
        *(Column(label, (), 0.0, "foreign") for label in foreign),
    )
    gpu = gpu_facts.merge(looks[0], looks[-1])
    floor = timed.noise_floor_log
    return BenchResult(
        planned=dataclasses.replace(planned, columns=columns),
        results=results,
        members=members,
        default_id=default_id,
        regime=timed.regime,
        noise_floor_log=floor if math.isfinite(floor) else None,
        judged_by=judge.judged_by,
        compile_s=compile_s,
        first_s=first_s,
        searched=searched,
        gpu={**dataclasses.asdict(gpu), "driver_version": looks[0].driver_version},
        versions=dict(rig.versions),
        started_at_s=started_at_s,
        seconds=time.time() - started_at_s,
    )


class _TimedTurn:
    """A turn that knows how long its holder last went without it: compiling."""

    def __init__(self, turn: GpuTurn) -> None:
        self._turn = turn
        self._given_at_s: float | None = None
        self.last_apart_s = 0.0

    def take(self) -> None:
        if self._given_at_s is not None:
            # Waiting for the GPU comes after this and is no work of ours.
            self.last_apart_s = time.time() - self._given_at_s
            self._given_at_s = None
        self._turn.take()

    def give(self) -> None:
        self._turn.give()
        if self._given_at_s is None:
            self._given_at_s = time.time()


def _search(
    search: Search, bound: Any, args: Sequence[Any], settings: Mapping[str, Any]
) -> tuple[Column, dict[str, Any]]:
    """The column of Helion's search; without a config if it found none."""
    began_s = time.time()
    configs: tuple[Config, ...] = ()
    try:
        config, facts = search(bound, args, settings)
        configs = (full_config(bound, config) or config,)
        why = f"{facts.get('n_configs')} configs"
    except Exception as error:  # Helion's search may fail in any way: that is a result
        facts = {"error": one_line(error)}
        why = facts["error"]
    seconds = time.time() - began_s
    return Column(AUTOTUNE, configs, seconds, "helion", why), facts


def _distinct(
    planned: PlannedWorkload, bound: Any, default: Config
) -> tuple[dict[str, tuple[str, ...]], dict[str, Config], dict[str, ConfigResult]]:
    """Ids of each column's configs, all configs by id, and those that are refused.

    The default is this machine's Helion's: another version may have planned another,
    and a column that chose the default means whatever it is here.
    """
    planned_default = config_id(planned.default)
    members: dict[str, tuple[str, ...]] = {}
    configs = {config_id(default): default}
    refused: dict[str, ConfigResult] = {}
    for column in planned.columns:
        ids = []
        for config in column.configs:
            if config_id(config) == planned_default:
                ids.append(config_id(default))
                continue
            full = config_here(bound, config, default)
            one = config_id(full or config)
            ids.append(one)
            if full is None:
                words = "Helion refuses it on this machine"
                refused[one] = ConfigResult(REFUSED, dict(config), words)
            else:
                configs[one] = full
        members[column.name] = tuple(dict.fromkeys(ids))
    members[DEFAULT] = (config_id(default),)
    return members, configs, refused


def config_here(bound: Any, config: Config, default: Config) -> Config | None:
    """A planned config as this machine's Helion compiles it; None if it is refused.

    Knobs that this Helion has not are left out, such as one that a later version added
    to every default.
    """
    return full_config(bound, config) or _without_unknown(bound, config, default)


def _without_unknown(bound: Any, config: Config, default: Config) -> Config | None:
    """The config without knobs that this machine's Helion has not; None if that is not
    why it is refused."""
    known = set(default) | set(helion_hook.space(bound).knobs)
    kept = {name: value for name, value in config.items() if name in known}
    return full_config(bound, kept) if len(kept) < len(config) else None


def _order(
    configs: Mapping[str, Config], default_id: str, workload_id: str
) -> list[Config]:
    """The order of first readings: shuffled, and the default never the very first,
    since the first reading of a process reads slow."""
    others = [config for one, config in configs.items() if one != default_id]
    random.Random(f"bench {workload_id}").shuffle(others)
    default = configs[default_id]
    # Helion's search wants two configs at least.
    return [*others[:1], default, *others[1:]] if others else [default, default]


def _faults(
    judge: Judge, launches: Mapping[str, Launch], heartbeat: Callable[[], None]
) -> dict[str, tuple[str, str]]:
    """Status and words of every launch that is wrong or does not run."""
    faults = {}
    for one, launch in launches.items():
        heartbeat()
        try:
            fault = judge.fault(launch)
        except Exception as error:  # a foreign callable may raise anything
            faults[one] = (ERROR, one_line(error))
            continue
        if fault is not None:
            faults[one] = (WRONG, f"against {judge.judged_by}: {fault}")
    return faults


def _code_facts(launch: Launch) -> dict[str, Any]:
    """Digest, registers and spills of what was compiled; none if it is not found."""
    try:
        kernels = helion_hook.compiled_kernels(launch)
        facts = machine_code.attempt_facts(kernels, ())
    except (
        Exception
    ):  # Triton keeps its results elsewhere: the readings are what counts
        return {}
    return {
        "code_digest": facts.code_digest,
        "registers": facts.registers,
        "spill_bytes": facts.spill_bytes,
    }
