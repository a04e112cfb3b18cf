"""Read a recorded workload's configs again, in one regime: the labels to trust.

All configs get a reading in the workload's regime (Helion's own log has it already for
`back_to_back`), then the default and the best are read interleaved; see `retime.py`.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Any

from costmodel import helion_hook
from costmodel.datasets import machine_code
from costmodel.datasets import retime
from costmodel.datasets.plan import N_CONFIGS
from costmodel.datasets.side_file import BACK_TO_BACK
from costmodel.datasets.side_file import AttemptFacts
from costmodel.features.canonical import config_id
from costmodel.helion_hook import Benchmarked
from costmodel.types import Config

_REFERENCE_EVERY = 10  # readings between two of the default

MakeTimer = Callable[[str, Sequence[Any]], retime.Timer]


@dataclass(slots=True)
class Limits:
    """How much to record and when to stop; times in seconds.

    Attributes:
        n_configs: Configs per workload.
        search_s: First timings of one workload, from the first one on.
        retime_s: Interleaved readings of one workload.
        stop_at_s: Unix time after which nothing new is timed.
    """

    n_configs: int = N_CONFIGS
    search_s: float = 17.0
    retime_s: float = 6.0
    stop_at_s: float = math.inf
    _search_until_s: float = field(default=math.inf, init=False)

    def start_search(self) -> None:
        """The first timing begins now."""
        self._search_until_s = time.time() + self.search_s

    def stopped(self) -> bool:
        """Whether the recording as a whole is over."""
        return time.time() > self.stop_at_s

    def search_over(self) -> bool:
        """Whether the rest of the configs stays untimed."""
        return self.stopped() or time.time() > self._search_until_s


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """What came of it.

    Attributes:
        regime: Of all readings here.
        attempts: Readings and machine code of every config that ran, by config id.
        interleaved_us: Interleaved readings of the finalists, by config id.
        noise_floor_log: Of the default against itself; NaN if nothing was read.
    """

    regime: str
    attempts: Mapping[str, AttemptFacts]
    interleaved_us: Mapping[str, tuple[float, ...]]
    noise_floor_log: float


def read_again(
    rows: Sequence[Benchmarked],
    default: Config,
    args: Sequence[Any],
    make_timer: MakeTimer,
    limits: Limits,
    heartbeat: Callable[[], None],
) -> ReadAgain:
    """Read all configs that ran, then the finalists interleaved.

    Args:
        rows: What Helion's benchmark gave.
        default: The reference; the fastest stands in where it did not run.
        args: Arguments on the GPU.
        make_timer: Makes a timer for a regime and arguments.
        limits: Times.
        heartbeat: Called before each preparation.
    """
    default_id = config_id(default)
    first: dict[str, Benchmarked] = {}
    latencies: dict[str, list[float]] = {}
    for row in rows:
        if row.latency_us < math.inf:
            first.setdefault(config_id(row.config), row)
            latencies.setdefault(config_id(row.config), []).append(row.latency_us)
    if not first:
        return ReadAgain(BACK_TO_BACK, {}, {}, math.nan)
    about_us = {one: statistics.median(values) for one, values in latencies.items()}
    by_time = sorted(about_us, key=lambda one: about_us[one])
    reference = default_id if default_id in first else by_time[0]

    def prepare(timer: retime.Timer, one: str) -> Any:
        heartbeat()
        return timer.prepare(first[one].launch, about_us[one])

    timer = make_timer(retime.choose_regime(about_us[reference]), args)
    try:
        prepared_reference = prepare(timer, reference)
    except Exception:  # capture is refused, by a kernel that synchronises, say
        timer = make_timer(BACK_TO_BACK, args)
        prepared_reference = prepare(timer, reference)
    readings: dict[str, list[float]] = {one: [] for one in first}
    if timer.regime != BACK_TO_BACK:
        # Helion's readings are of the other regime, so each config gets one of this.
        for i, one in enumerate(by_time):
            if limits.search_over() and i > retime.N_BEST:
                break
            if i % _REFERENCE_EVERY == 0:
                readings[reference].append(timer.latency_us(prepared_reference))
            if one != reference:
                readings[one] += _one_reading(timer, prepare, one)
        about_us = {one: statistics.median(r) for one, r in readings.items() if r}
    attempts = {one: _facts(row, readings[one]) for one, row in first.items()}
    ids = list(about_us)
    finalists = [reference]
    prepared = [prepared_reference]
    for index in retime.choose_finalists(
        [about_us[one] for one in ids],
        [attempts[one].code_digest or one for one in ids],
        attempts[reference].code_digest or reference,
    ):
        try:
            prepared.append(prepare(timer, ids[index]))
        except Exception:  # it ran before: a capture that fails loses one finalist
            continue
        finalists.append(ids[index])
    rng = random.Random(default_id)
    rounds = retime.read_interleaved(timer, prepared, rng, seconds=limits.retime_s)
    interleaved: dict[str, list[float]] = {}
    for reading in rounds:
        interleaved.setdefault(finalists[reading.index], []).append(reading.latency_us)
    return ReadAgain(
        timer.regime,
        attempts,
        {one: tuple(values) for one, values in interleaved.items()},
        retime.noise_floor_log(rounds),
    )


def _facts(row: Benchmarked, readings_us: Sequence[float]) -> AttemptFacts:
    try:
        kernels = helion_hook.compiled_kernels(row.launch)
        return machine_code.attempt_facts(kernels, readings_us)
    except (
        Exception
    ):  # Triton keeps its results elsewhere: the readings are what counts
        return AttemptFacts(readings_us=tuple(readings_us))


def _one_reading(
    timer: retime.Timer, prepare: Callable[[retime.Timer, str], Any], one: str
) -> list[float]:
    try:
        return [timer.latency_us(prepare(timer, one))]
    except Exception:  # one config without a reading is a config less, no more
        return []
