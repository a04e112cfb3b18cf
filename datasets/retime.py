"""Time the default and the best configs again, interleaved: the oracle of a workload.

A search reads each config once, minutes apart, on a GPU whose clocks drift; the best
of such readings is biased towards luck. Here a few finalists are read in rounds, each
round in another order, with the default read twice per round: the difference between
its own readings is the noise floor that any claimed gain has to beat.

Two regimes, chosen per workload from the warmed default and never mixed:

- `graph_replay`: short kernels. One CUDA graph holds many launches, each on the next of
  several copies of the arguments, so that a launch finds inputs it has not just read
  (the copies together exceed twice the L2 where they fit) and no launch overhead is
  timed. Outputs reuse one buffer and may stay in the L2.
- `back_to_back`: all others, and the regime of Helion's own log. One event pair around
  each launch, the L2 overwritten before it; the median of the launches is one reading.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Protocol

from costmodel.datasets.side_file import BACK_TO_BACK
from costmodel.datasets.side_file import GRAPH_REPLAY

SHORT_KERNEL_US = 30.0  # below this, readings vary by 10-20 %; measured on H200
N_BEST = 8  # finalists besides the default
KEEP_WITHIN = 1.5  # finalists are at most this many times slower than the best
N_ROUNDS = 6
MIN_ROUNDS = 3  # the least that still has a median, if time runs out

_SAMPLE_US = 2_000.0  # GPU time of one graph sample; 100x the event resolution
_MAX_GRAPH_LAUNCHES = 200  # nodes per graph; capture costs about 30 us each
_GRAPH_SAMPLES = 5  # a reading is their median: one disturbed sample does not show
_MAX_ARGUMENT_SETS = 32
_MAX_ARGUMENT_SHARE = 0.1  # of the GPU's free memory, for argument copies
_EVENT_READING_US = 20_000.0  # GPU time of one event reading, without the L2 clears
_MAX_EVENT_LAUNCHES = 50
_L2_MARGIN = 2.0  # copies exceed the L2 this many times; the L2 is not fully LRU

Launch = Callable[..., Any]
"""A compiled config: called with the workload's arguments, it launches and returns."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of one finalist.

    Attributes:
        index: Which finalist, 0 is the default.
        round: Interleaving round, from 0.
        position: Place within the round, from 0.
        latency_us: Microseconds per launch.
    """

    index: int
    round: int
    position: int
    latency_us: float


class Timer(Protocol):
    """Times one launch of a prepared finalist, in one regime."""

    regime: str

    def prepare(self, launch: Launch, about_us: float) -> Any:
        """Compile, capture, warm up; raises if this config cannot run.

        `about_us` is what a launch takes, roughly, in microseconds: it sizes readings.
        """

    def latency_us(self, prepared: Any) -> float:
        """One reading, in microseconds per launch."""


def choose_regime(default_us: float) -> str:
    """Regime for a workload whose warmed default takes `default_us` microseconds."""
    return GRAPH_REPLAY if default_us < SHORT_KERNEL_US else BACK_TO_BACK


def choose_finalists(
    latencies_us: Sequence[float],
    identities: Sequence[str],
    default_identity: str,
    *,
    n_best: int = N_BEST,
    keep_within: float = KEEP_WITHIN,
) -> list[int]:
    """Indices of the configs worth reading again, fastest first, without the default.

    Args:
        latencies_us: First readings; infinite or NaN where a config failed.
        identities: What makes two configs the same program, one per config.
        default_identity: Identity of the default, which is read again anyway.
        n_best: How many to keep.
        keep_within: Largest ratio to the fastest of all.
    """
    usable = [i for i, value in enumerate(latencies_us) if 0 < value < math.inf]
    if not usable:
        return []
    limit = keep_within * min(latencies_us[i] for i in usable)
    chosen: list[int] = []
    seen = {default_identity}
    for i in sorted(usable, key=lambda i: (latencies_us[i], i)):
        if latencies_us[i] > limit or len(chosen) == n_best:
            break
        if identities[i] not in seen:
            seen.add(identities[i])
            chosen.append(i)
    return chosen


def round_order(n: int, rng: random.Random) -> list[int]:
    """One round over finalists 0..n-1: shuffled, with the default (0) at both ends.

    The two readings of the default bracket the others, so that a drift shows.
    """
    others = list(range(1, n))
    rng.shuffle(others)
    return [0, *others, 0]


def read_interleaved(
    timer: Timer,
    prepared: Sequence[Any],
    rng: random.Random,
    *,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    n_rounds: int = N_ROUNDS,
) -> list[Reading]:
    """Read all finalists in rounds; the first prepared is the default.

    Stops after `n_rounds`, or after `MIN_ROUNDS` once `seconds` have passed. A round is
    never left half done: each finalist has as many readings as any other.
    """
    stop = clock() + seconds
    readings: list[Reading] = []
    for number in range(n_rounds):
        if number >= MIN_ROUNDS and clock() >= stop:
            break
        for position, index in enumerate(round_order(len(prepared), rng)):
            latency_us = timer.latency_us(prepared[index])
            readings.append(Reading(index, number, position, latency_us))
    return readings


def noise_floor_log(readings: Sequence[Reading]) -> float:
    """Median |ln(first / second reading)| of the default within a round."""
    pairs: dict[int, list[float]] = {}
    for reading in readings:
        if reading.index == 0:
            pairs.setdefault(reading.round, []).append(reading.latency_us)
    gaps = [abs(math.log(a / b)) for a, b in pairs.values() if a > 0 and b > 0]
    return statistics.median(gaps) if gaps else math.nan


def graph_launches(about_us: float, n_sets: int) -> int:
    """Launches in one graph: `_SAMPLE_US` of work, each argument set at least once."""
    wanted = math.ceil(_SAMPLE_US / max(about_us, 0.1))
    return max(n_sets, min(wanted, _MAX_GRAPH_LAUNCHES))


def event_launches(about_us: float) -> int:
    """Launches of one event reading: `_EVENT_READING_US` of work, at least one."""
    wanted = int(_EVENT_READING_US / max(about_us, 0.1))
    return max(1, min(wanted, _MAX_EVENT_LAUNCHES))


def argument_bytes(args: Sequence[Any]) -> int:
    """Bytes of all tensors among the arguments, as laid out."""
    return sum(a.numel() * a.element_size() for a in args if hasattr(a, "numel"))


def argument_copies(args: Sequence[Any], l2_bytes: int, free_bytes: int) -> int:
    """How many sets of arguments to rotate through, at least 1."""
    one = max(1, argument_bytes(args))
    wanted = math.ceil(_L2_MARGIN * l2_bytes / one)
    affordable = int(_MAX_ARGUMENT_SHARE * free_bytes / one)
    return max(1, min(wanted, affordable, _MAX_ARGUMENT_SETS))


class GraphTimer:
    """Graph replay over rotated arguments; see the module's text."""

    regime = GRAPH_REPLAY

    def __init__(self, args: Sequence[Any]) -> None:
        """Copy the arguments as often as rotation needs."""
        import torch

        self._torch = torch
        device = torch.cuda.current_device()
        free_bytes, _ = torch.cuda.mem_get_info(device)
        l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        n_sets = argument_copies(args, l2_bytes, free_bytes)
        self._sets = [list(args), *(copy_arguments(args) for _ in range(n_sets - 1))]

    def prepare(self, launch: Launch, about_us: float) -> Any:
        """Capture one graph of many launches; raises where capture is refused."""
        torch = self._torch
        n_launches = graph_launches(about_us, len(self._sets))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                launch(*self._sets[0])
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(n_launches):
                launch(*self._sets[i % len(self._sets)])
        graph.replay()
        torch.cuda.synchronize()
        return graph, n_launches

    def latency_us(self, prepared: Any) -> float:
        """Median of a few replays after an untimed one, per launch."""
        torch = self._torch
        graph, n_launches = prepared
        graph.replay()
        samples_us = []
        for _ in range(_GRAPH_SAMPLES):
            start = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            samples_us.append(start.elapsed_time(end) * 1e3 / n_launches)
        return float(statistics.median(samples_us))


class EventTimer:
    """Event pairs around single launches, L2 cleared; see the module's text."""

    regime = BACK_TO_BACK

    def __init__(self, args: Sequence[Any]) -> None:
        """The L2 is cleared with the buffer that Triton's own benchmark uses."""
        import torch
        import triton

        self._torch = torch
        self._args = list(args)
        self._driver = triton.runtime.driver.active
        self._flush = self._driver.get_empty_cache_for_benchmark()

    def prepare(self, launch: Launch, about_us: float) -> Any:
        """Run once, so that nothing is compiled or loaded while timing."""
        launch(*self._args)
        self._torch.cuda.synchronize()
        return launch, event_launches(about_us)

    def latency_us(self, prepared: Any) -> float:
        """Median over launches, each after its own L2 clear."""
        torch = self._torch
        launch, n_launches = prepared
        pairs = []
        for _ in range(n_launches):
            start = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            self._driver.clear_cache(self._flush)
            start.record()
            launch(*self._args)
            end.record()
            pairs.append((start, end))
        torch.cuda.synchronize()
        return float(statistics.median(a.elapsed_time(b) * 1e3 for a, b in pairs))


def warm_up(launch: Launch, args: Sequence[Any], seconds: float = 0.2) -> None:
    """Run on copies of the arguments until clocks have risen; nothing is timed."""
    import torch

    copies = copy_arguments(args)  # a kernel may write into its arguments
    stop = time.monotonic() + seconds
    launch(*copies)
    torch.cuda.synchronize()
    while time.monotonic() < stop:
        launch(*copies)
        torch.cuda.synchronize()


def copy_arguments(args: Sequence[Any]) -> list[Any]:
    """Arguments with every tensor copied, strides kept; broadcast ones are shared."""
    return [_copy_one(a) if hasattr(a, "element_size") else a for a in args]


def _copy_one(tensor: Any) -> Any:
    overlapping = any(
        stride == 0 and size > 1
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    if overlapping:
        return tensor
    copy = tensor.new_empty_strided(tensor.shape, tensor.stride())
    copy.copy_(tensor)
    return copy
