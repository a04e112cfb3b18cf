"""Helion's own measuring: a few configs of ours, or its search started from them.

Correctness check, timeouts, subprocesses and logs are Helion's. Settings are read from
copies, so a kernel's own settings are never touched.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections.abc import Sequence
from typing import Any

from costmodel.frozen import dataclass
from costmodel.helion_hook.controls import searching_controls
from costmodel.helion_hook.plain import helion_config
from costmodel.helion_hook.plain import plain_config
from costmodel.types import Config


@dataclass(frozen=True, slots=True)
class Measured:
    """One config as Helion's benchmark saw it.

    Attributes:
        config: As given.
        latency_us: Microseconds; infinite unless `status` is ok.
        status: Helion's word: ok, error, timeout, filtered.
    """

    config: Config
    latency_us: float
    status: str


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """How much of Helion's search is run.

    Attributes:
        share: Of the generations, copies and first population of the kernel's effort;
            above 0, at most 1.
        seeds: Configs to start from, best first.
        controls: Paths of control files to search besides none; () leaves the kernel's
            own list.
    """

    share: float
    seeds: tuple[Config, ...]
    controls: tuple[str, ...] = ()


def measure(
    bound: Any, args: Sequence[object], configs: Sequence[Config]
) -> list[Measured]:
    """Benchmark at least two configs with Helion's finite search.

    Args:
        bound: What Helion passed to its `autotuner_fn`.
        args: The call's arguments, on the GPU.
        configs: At least two, in the order to time.

    Raises:
        Exception: Whatever Helion raises where nothing can be measured.
    """
    search = _finite_search()(bound, args, [helion_config(one) for one in configs])
    search.autotune()
    return [
        Measured(config, result.perf * 1e3, str(result.status))
        for config, result in zip(configs, search.results, strict=True)
    ]


def seeded_search(
    bound: Any,
    args: Sequence[object],
    budget: SearchBudget,
    *,
    skip_cache: bool,
    **options: object,
) -> Config:
    """Run the search that Helion would run, from our seeds and with less of a budget.

    The result is what Helion found by measuring, so Helion's cache keeps it.

    Args:
        bound: What Helion passed to its `autotuner_fn`.
        args: The call's arguments, on the GPU.
        budget: Seeds and share.
        skip_cache: Helion's word that no cache may be read.
        options: What Helion passed on to the autotuner.
    """
    from helion.runtime.settings import default_autotuner_fn

    if budget.controls:
        bound = searching_controls(bound, budget.controls)
    scaled = {**_scaled(bound, budget.share), **options}
    autotuner: Any = default_autotuner_fn(bound, args, **scaled)
    plant(autotuner.autotuner, budget.seeds)
    make = getattr(autotuner, "_autotuner_factory", None)
    if make is not None:
        autotuner._autotuner_factory = functools.partial(_planted, make, budget.seeds)
    return plain_config(autotuner.autotune(skip_cache=skip_cache))


def _planted(make: Any, seeds: Sequence[Config]) -> Any:
    search = make()
    plant(search, seeds)
    return search


def plant(search: Any, seeds: Sequence[Config]) -> None:
    """Start a search from our configs, after those that the kernel's author gave."""
    ours = [helion_config(seed) for seed in seeds]
    given = search.settings.autotune_seed_configs
    if given is None:
        given = []
    elif not isinstance(given, (list, tuple)):
        given = [given]
    settings = copy.copy(search.settings)
    settings.autotune_seed_configs = [*given, *ours]
    search.settings = settings


def _scaled(bound: Any, share: float) -> dict[str, object]:
    """The search's own numbers for this effort, cut to a share, as keywords."""
    from helion.autotuner import LFBOTreeSearch
    from helion.autotuner import search_algorithms
    from helion.autotuner.effort_profile import get_effort_profile
    from helion.runtime import settings as helion_settings

    name = helion_settings._env_get_str("HELION_AUTOTUNER", "")
    algorithm = search_algorithms.get(name, LFBOTreeSearch)
    profile = get_effort_profile(bound.settings.autotune_effort)
    accepted = inspect.signature(algorithm.__init__).parameters
    full = algorithm.get_kwargs_from_profile(profile, bound.settings)
    return {
        key: max(1, math.ceil(full[key] * share))
        for key in _SCALED
        if key in accepted and isinstance(full.get(key), int)
    }


# What makes a search of Helion's long: how many configs it starts from, how many it
# follows at once and for how many rounds, in the names of its algorithms.
_SCALED = (
    "initial_population",
    "population_size",
    "copies",
    "max_generations",
    "count",
)


@functools.cache
def _finite_search() -> Any:
    from helion.autotuner.finite_search import FiniteSearch

    class Measuring(FiniteSearch):  # type: ignore[misc,unused-ignore]
        """A finite search that keeps all of its results."""

        results: Sequence[Any] = ()

        def _autotune(self) -> Any:
            self.results = self.benchmark_batch(self.configs, desc="costmodel: verify")
            return min(self.results, key=lambda one: one.perf).config

    return Measuring
