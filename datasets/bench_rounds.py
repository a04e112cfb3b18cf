"""Read all that runs and is right in interleaved rounds, in one regime."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.datasets import retime
from costmodel.datasets.bench_check import Launch
from costmodel.datasets.side_file import BACK_TO_BACK

MAX_WORDS = 300  # characters of an error that are kept


@dataclass(frozen=True, slots=True)
class Rounds:
    """What was read.

    Attributes:
        regime: Of all readings.
        readings: By id: round, position in it, microseconds.
        failed: Why some could not be read, by id.
        noise_floor_log: Of the default against itself; NaN where it was not read.
    """

    regime: str
    readings: Mapping[str, Sequence[tuple[int, int, float]]]
    failed: Mapping[str, str]
    noise_floor_log: float


def read_rounds(
    launches: Mapping[str, Launch],
    about_us: Mapping[str, float | None],
    default_id: str,
    args: Sequence[Any],
    make_timer: Callable[[str, Sequence[Any]], retime.Timer],
    heartbeat: Callable[[], None],
    *,
    seconds: float,
    n_rounds: int,
) -> Rounds:
    """Read everything in one regime, in rounds; the default opens and closes each.

    Args:
        launches: By id.
        about_us: What a launch takes, roughly, in microseconds; None if unknown.
        default_id: Which is the default; where it does not run, another opens.
        args: Arguments on the device.
        make_timer: Makes a timer for a regime and arguments.
        heartbeat: Called before each reading.
        seconds: After this the round in progress is the last, from the third on.
        n_rounds: At most so many rounds.
    """
    if not launches:
        return Rounds(BACK_TO_BACK, {}, {}, math.nan)
    known = {one: us for one, us in about_us.items() if us is not None}
    first = default_id if default_id in launches else next(iter(launches))
    typical_us = known.get(first, min(known.values(), default=retime.SHORT_KERNEL_US))
    ids = [first, *(one for one in launches if one != first)]
    regime = retime.choose_regime(typical_us)

    def prepare(regime: str) -> tuple[_BeatingTimer, dict[str, Any], dict[str, str]]:
        timer = _BeatingTimer(make_timer(regime, args), heartbeat)
        prepared: dict[str, Any] = {}
        failed: dict[str, str] = {}
        for one in ids:
            heartbeat()
            try:
                us = known.get(one, typical_us)
                prepared[one] = timer.prepare(launches[one], us)
            except Exception as error:
                failed[one] = one_line(error)
        return timer, prepared, failed

    timer, prepared, failed = prepare(regime)
    if failed and regime != BACK_TO_BACK:
        # One that cannot be captured, since it synchronises, say, decides for all:
        # regimes never mix.
        timer, prepared, failed = prepare(BACK_TO_BACK)
    read = [one for one in ids if one in prepared]
    rounds = retime.read_interleaved(
        timer,
        [prepared[one] for one in read],
        random.Random(default_id),
        seconds=seconds,
        n_rounds=n_rounds,
    )
    readings: dict[str, list[tuple[int, int, float]]] = {}
    for one in rounds:
        entry = (one.round, one.position, one.latency_us)
        readings.setdefault(read[one.index], []).append(entry)
    floor = retime.noise_floor_log(rounds) if first == default_id else math.nan
    return Rounds(timer.regime, readings, failed, floor)


class _BeatingTimer:
    """A timer whose readings are signs of life."""

    def __init__(self, timer: retime.Timer, heartbeat: Callable[[], None]) -> None:
        self._timer = timer
        self._heartbeat = heartbeat
        self.regime = timer.regime

    def prepare(self, launch: Launch, about_us: float) -> Any:
        return self._timer.prepare(launch, about_us)

    def latency_us(self, prepared: Any) -> float:
        self._heartbeat()
        return self._timer.latency_us(prepared)


def one_line(error: BaseException) -> str:
    """An error in one line, cut where it gets long."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:MAX_WORDS]
