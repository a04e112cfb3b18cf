"""Verify and seed by Helion's own searches; rules of the author; checked outputs."""

from __future__ import annotations

import math
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from typing import ClassVar

import helion
import pytest
import torch
from helion.autotuner import search_algorithms
from helion_rig import Rig
from helion_rig import ShortSearch
from helion_rig import StubProvider
from helion_rig import answer_with
from helion_rig import norm_rows
from helion_rig import rig
from helion_rig import stub_latency_ms
from helion_rig import twice
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

import costmodel
from costmodel import helion_hook
from costmodel.helion_hook.outputs import output_objection
from costmodel.measured_choice import LEAST_SHARE
from costmodel.measured_choice import MOST_MEASURED
from costmodel.measured_choice import TIE
from costmodel.measured_choice import best_measured
from costmodel.measured_choice import configs_to_measure
from costmodel.measured_choice import search_share
from costmodel.provider import Provider
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

pytestmark = pytest.mark.helion

SHAPE = (2048, 4096)


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr("costmodel.process_provider._PROVIDER", None)
    with rig(tmp_path, monkeypatch) as made:
        yield made
    costmodel.disable()


def _shortlist(bound: Any) -> list[Config]:
    default = helion_hook.default_config(bound)
    return [{**default, "num_warps": warps} for warps in (2, 8, 16)]


def _listing(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Let the pipeline answer with a shortlist of three and these facts."""

    def choose_for(bound: Any, *_args: Any, **_options: Any) -> Pick:
        configs = _shortlist(bound)
        facts: dict[str, Any] = {
            "config": configs[0],
            "source": PickSource.LEARNED,
            "reason": ReasonCode.GAIN_CERTAIN,
            "detail": "the test's",
            "default": helion_hook.default_config(bound),
            "shortlist": tuple(configs),
            "shortlist_speedups": ((1.5, 1.2), (1.4, 1.1), (1.3, 1.0)),
        }
        return Pick(**{**facts, **changes})

    monkeypatch.setattr("costmodel.provider.choose_for", choose_for)


def test_verify_keeps_the_fastest_of_our_few_and_the_default(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    _listing(monkeypatch)
    kernel = one.kernel(autotuner_fn=costmodel.autotuner(mode="verify"))
    found = one.call(kernel, one.args(SHAPE))
    bound = one.bound(kernel, one.args(SHAPE))
    offered = [helion_hook.default_config(bound), *_shortlist(bound)]
    timed = sorted(one["num_warps"] for one in StubProvider.measured)
    assert timed == sorted(config["num_warps"] for config in offered)
    best = min(StubProvider.measured, key=stub_latency_ms)
    assert found["num_warps"] == best["num_warps"]
    assert costmodel.stats() == {"measured_best": 1}
    assert not list(one.folder.rglob("*.best_config"))


def test_where_nothing_runs_verify_answers_helions_default(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    _listing(monkeypatch)
    monkeypatch.setattr(
        StubProvider, "_benchmark_function", lambda *a, **k: float("inf")
    )
    kernel = one.kernel(autotuner_fn=costmodel.autotuner(mode="verify"))
    assert one.call(kernel, one.args(SHAPE))["num_warps"] == 4
    assert costmodel.stats() == {"measure_failed": 1}


class Planted(ShortSearch):
    """A search with the numbers of Helion's full effort, which notes what it got."""

    seen: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        kernel: Any,
        args: Any,
        *,
        initial_population: int = 100,
        copies: int = 5,
        max_generations: int = 20,
    ) -> None:
        super().__init__(kernel, args)
        self.numbers = (initial_population, copies, max_generations)

    @classmethod
    def get_kwargs_from_profile(cls, profile: Any, settings: Any) -> dict[str, Any]:
        return {"initial_population": 100, "copies": 5, "max_generations": 20}

    def _autotune(self) -> Any:
        Planted.seen = {
            "numbers": self.numbers,
            "seeds": list(self.settings.autotune_seed_configs),
        }
        return super()._autotune()


def test_seed_starts_helions_search_from_us_and_cuts_its_budget(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    _listing(monkeypatch)
    monkeypatch.setitem(search_algorithms, "Planted", Planted)
    monkeypatch.setenv("HELION_AUTOTUNER", "Planted")
    theirs = helion.Config(block_sizes=[1, 64])
    kernel = one.kernel(
        autotuner_fn=costmodel.autotuner(mode="seed"), autotune_seed_configs=theirs
    )
    args = one.args(SHAPE)
    one.call(kernel, args)
    warps = [dict(seed).get("num_warps") for seed in Planted.seen["seeds"]]
    assert Planted.seen["seeds"][0] == theirs
    assert warps[1:] == [2, 2, 8, 16]
    # ln(1.875 / 1.2) of what ln(1.42) would justify is more than all of it; the bound
    # of a sure prediction below justifies less.
    assert Planted.seen["numbers"] == (100, 5, 20)
    assert kernel.settings.autotune_seed_configs is theirs
    # What Helion found by its own search is a tuned entry, and wins from now on.
    again = one.kernel(autotuner_fn=costmodel.autotuner(), autotune_seed_configs=theirs)
    assert one.call(again, args) == one.config_of(kernel, args)
    assert costmodel.stats() == {"searched": 1, "tuned_entry": 1}


def test_a_sure_prediction_cuts_the_search(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    _listing(monkeypatch, shortlist_speedups=((1.5, 1.48), (1.4, 1.3), (1.3, 1.2)))
    monkeypatch.setitem(search_algorithms, "Planted", Planted)
    monkeypatch.setenv("HELION_AUTOTUNER", "Planted")
    kernel = one.kernel(autotuner_fn=costmodel.autotuner(mode="seed"))
    one.call(kernel, one.args(SHAPE))
    population, copies, generations = Planted.seen["numbers"]
    assert (population, copies, generations) == (10, 1, 2)


@pytest.mark.slow
def test_seed_runs_helions_default_search(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    _listing(monkeypatch, shortlist_speedups=((1.5, 1.48), (1.4, 1.3), (1.3, 1.2)))
    monkeypatch.delenv("HELION_AUTOTUNER")
    kernel = one.kernel(
        autotuner_fn=costmodel.autotuner(mode="seed"),
        autotune_effort="quick",
        # How Helion times finalists against each other, without a GPU.
        autotune_benchmark_fn=lambda fns, **_options: [1.0 for _ in fns],
    )
    found = one.call(kernel, one.args(SHAPE))
    warps = [config["num_warps"] for config in StubProvider.measured]
    assert {2, 8, 16} <= set(warps[:8])
    bound = one.bound(kernel, one.args(SHAPE))
    measured = [helion_hook.normalize(bound, one) for one in StubProvider.measured]
    assert found in measured
    assert costmodel.stats() == {"searched": 1}


speedups = st.tuples(
    st.floats(0.2, 5.0, allow_nan=False), st.floats(0.1, 1.0, allow_nan=False)
).map(lambda pair: (pair[0], pair[0] * pair[1]))


def _pick(bounds: list[tuple[float, float]]) -> Pick:
    configs = tuple({"num_warps": i} for i in range(len(bounds)))
    default = {"num_warps": -1}
    return Pick(
        config=configs[0] if configs else default,
        source=PickSource.LEARNED,
        reason=ReasonCode.GAIN_CERTAIN,
        detail="",
        default=default,
        shortlist=configs,
        shortlist_speedups=tuple(bounds),
    )


@settings(deadline=None)
@given(st.lists(speedups, max_size=12))
def test_what_is_measured_starts_with_the_default_and_is_few(bounds: Any) -> None:
    pick = _pick(bounds)
    chosen = configs_to_measure(pick)
    assert chosen[0] == pick.default
    assert len(chosen) <= MOST_MEASURED
    assert len(chosen) >= min(2, 1 + len(bounds))
    places = [pick.shortlist.index(one) for one in chosen[1:]]
    assert places == sorted(set(places))


@settings(deadline=None)
@given(st.lists(speedups, min_size=1, max_size=8), st.floats(1.0, 3.0))
def test_surer_predictions_need_fewer_measurements(bounds: Any, factor: float) -> None:
    surer = [(gain, gain * (low / gain) ** (1 / factor)) for gain, low in bounds]
    less, more = (configs_to_measure(_pick(one)) for one in (surer, bounds))
    assert len(less) <= len(more)
    assert search_share(_pick(surer)) <= search_share(_pick(bounds)) + 1e-9
    assert LEAST_SHARE <= search_share(_pick(bounds)) <= 1.0


def test_without_predictions_seven_are_measured_and_the_whole_search_is_run() -> None:
    configs = tuple({"num_warps": i} for i in range(12))
    pick = Pick(
        config={"num_warps": -1},
        source=PickSource.DEFAULT,
        reason=ReasonCode.OUT_OF_RANGE,
        detail="",
        default={"num_warps": -1},
        shortlist=({"num_warps": -1}, *configs),
    )
    assert configs_to_measure(pick) == ({"num_warps": -1}, *configs[:7])
    assert search_share(pick) == 1.0


@settings(deadline=None)
@given(st.floats(1.0, 1e4), st.floats(0.0, 0.1))
def test_ties_go_to_the_default(latency_us: float, slower: float) -> None:
    default, other = {"num_warps": 4}, {"num_warps": 8}
    timed = [
        helion_hook.Measured(other, latency_us, "ok"),
        helion_hook.Measured({"num_warps": 2}, math.inf, "error"),
        helion_hook.Measured(default, latency_us * (1 + slower), "ok"),
    ]
    best = best_measured(timed, default)
    assert best is not None
    if slower < TIE * 0.99:
        assert best.config == default
    if slower > TIE * 1.01:
        assert best.config == other
    assert best_measured(timed[1:2], default) is None


def test_a_pick_keeps_the_authors_overrides_and_filter(one: Rig) -> None:
    def at_most_eight_warps(config: Any) -> Any:
        if config.num_warps > 8:
            return None
        return helion.Config(**{**config.config, "num_stages": 2})

    kernel = one.kernel(
        norm_rows,
        autotune_config_overrides={"pid_type": "persistent_blocked"},
        autotune_config_filter=at_most_eight_warps,
    )
    bound = one.bound(kernel, one.args((2048, 4096), (4096,)))
    answer = Provider().pick(bound)
    assert answer.reason not in {ReasonCode.INTERNAL_ERROR, ReasonCode.UNKNOWN_KERNEL}
    for config in (answer.config, *answer.shortlist):
        assert config["pid_type"] == "persistent_blocked"
        assert config["num_stages"] == 2 and config["num_warps"] <= 8
        assert helion_hook.is_legal(bound, config)


def test_a_default_that_the_filter_refuses_is_not_answered(one: Rig) -> None:
    plain = one.bound(one.kernel(norm_rows), one.args((2048, 4096), (4096,)))
    warps = helion_hook.default_config(plain)["num_warps"]
    kernel = one.kernel(
        norm_rows,
        autotune_config_filter=lambda c: None if c.num_warps == warps else c,
    )
    bound = one.bound(kernel, one.args((2048, 4096), (4096,)))
    answer = Provider().pick(bound)
    assert answer.config["num_warps"] != warps


def test_seeds_of_the_author_and_tuned_neighbours_are_candidates(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from costmodel import choosing

    seen: list[Any] = []
    genuine = choosing.choose

    def noting(extractor: Any, candidates: Any, **options: Any) -> Pick:
        seen.extend(candidates)
        return genuine(extractor, candidates, **options)

    monkeypatch.setattr(choosing, "choose", noting)
    kernel = one.kernel(autotune_seed_configs=helion.Config(block_sizes=[1, 16]))
    neighbour = {**_default(one, (1024, 4096)), "num_warps": 32, "num_stages": 8}
    one.tune(one.kernel(), one.args((1024, 4096)), neighbour)
    bound = one.bound(kernel, one.args(SHAPE))
    Provider().answer(bound)
    reasons = {candidate.reason: candidate.config for candidate in seen}
    assert reasons["a seed of the kernel's author"]["block_sizes"] == [1, 16]
    words = "tuned for another shape of this kernel"
    assert reasons[words]["num_warps"] == 32 and reasons[words]["num_stages"] == 8
    # The pure question does not look at this machine's cache.
    seen.clear()
    Provider().pick(bound)
    assert words not in {candidate.reason for candidate in seen}


def _default(one: Rig, shape: tuple[int, int]) -> Config:
    return helion_hook.default_config(one.bound(one.kernel(), one.args(shape)))


class _Bound:
    """A bound kernel whose configs are Python functions, on the CPU."""

    def __init__(self, programs: dict[int, Any], **settings: Any) -> None:
        self.env = types.SimpleNamespace(
            process_group_name=None, device=torch.device("cpu")
        )
        usual = {
            "autotune_baseline_accuracy_check_fn": None,
            "autotune_baseline_atol": None,
            "autotune_baseline_rtol": None,
        }
        self.settings = types.SimpleNamespace(**{**usual, **settings})
        self._programs = programs

    def compile_config(self, config: Any, allow_print: bool = True) -> Any:
        return self._programs[config.num_warps]


def _raise(*_args: Any) -> Any:
    raise RuntimeError("out of resources")


def _overwrite(x: torch.Tensor) -> torch.Tensor:
    x.zero_()
    return torch.full((4,), 2.0)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (lambda x: x * 2 + 1e-4, None),
        (lambda x: x * 2.5, "its output differs"),
        (_raise, "it does not run: RuntimeError: out of resources"),
        (_overwrite, "its output differs"),
    ],
)
def test_outputs_and_written_arguments_are_compared(
    program: Any, words: str | None
) -> None:
    bound = _Bound({1: lambda x: x * 2, 2: program})
    x = torch.ones(4)
    found = output_objection(bound, (x,), {"num_warps": 2}, {"num_warps": 1})
    assert (found or "").startswith(words or "") and (found is None) == (words is None)
    assert torch.equal(x, torch.ones(4))


def test_a_default_that_does_not_run_accuses_nobody() -> None:
    bound = _Bound({1: _raise, 2: lambda x: x})
    args = (torch.ones(4),)
    assert output_objection(bound, args, {"num_warps": 2}, {"num_warps": 1}) is None


def test_the_authors_own_comparison_decides() -> None:
    def equal_bits(found: Any, expected: Any) -> None:
        assert torch.equal(found, expected), "not the same bits"

    bound = _Bound(
        {1: lambda x: x * 2, 2: lambda x: x * 2 + 1e-4},
        autotune_baseline_accuracy_check_fn=equal_bits,
    )
    args = (torch.ones(4),)
    found = output_objection(bound, args, {"num_warps": 2}, {"num_warps": 1})
    assert found is not None and "not the same bits" in found


@pytest.mark.parametrize("way", ["autotuner", "enable"])
def test_a_differing_output_leaves_helions_default(
    one: Rig, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    asked = []

    def objection(bound: Any, args: Any, config: Config, reference: Config) -> str:
        asked.append((config["num_warps"], reference["num_warps"]))
        return "its output differs"

    monkeypatch.setattr(helion_hook, "output_objection", objection)
    answer_with(monkeypatch, lambda bound: _shortlist(bound)[0])
    settings = {}
    if way == "enable":
        costmodel.enable(verify_output=True)
    else:
        settings["autotuner_fn"] = costmodel.autotuner(verify_output=True)
    kernel, args = one.kernel(twice, **settings), one.args(SHAPE)
    assert one.call(kernel, args)["num_warps"] == 4
    assert one.call(kernel, args)["num_warps"] == 4
    assert asked == [(2, 4)]
    assert costmodel.stats() == {"output_differs": 1}


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="predict, code, verify, seed"):
        costmodel.autotuner(mode="guess")
    with pytest.raises(ValueError, match="predict, code, verify, seed"):
        costmodel.enable("guess")


def test_a_list_is_ordered_and_what_cannot_run_comes_last(one: Rig) -> None:
    kernel = one.kernel(norm_rows)
    bound = one.bound(kernel, one.args((2048, 4096), (4096,)))
    default = helion_hook.default_config(bound)
    given = [
        helion.Config(**{**default, "num_warps": 1}),
        {"block_sizes": [3]},
        helion.Config(**default),
        helion.Config(block_sizes=[1]),
    ]
    order = costmodel.rank(bound, given)
    assert sorted(one.index for one in order) == [0, 1, 2, 3]
    assert all(given[one.index] is one.config for one in order)
    assert order[-1].index == 1 and not order[-1].runs
    # Whatever the list's order, the outcome is the same.
    backwards = costmodel.rank(bound, given[::-1])
    assert [3 - one.index for one in backwards] == [one.index for one in order]
    assert all(one.predicted_speedup is not None for one in order[:-1])


def test_a_list_that_cannot_be_judged_keeps_its_order(
    one: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bound = one.bound(one.kernel(), one.args(SHAPE))
    given = [helion.Config(block_sizes=[1, n]) for n in (64, 16, 32)]
    order = costmodel.rank(bound, given, model_path=tmp_path / "none.ubj")
    assert [one.index for one in order] == [0, 1, 2]
    assert all(one.predicted_speedup is None and one.why for one in order)


@pytest.mark.parametrize("model", [None, "none.ubj"])
def test_what_is_no_config_does_not_run(
    one: Rig, tmp_path: Path, model: str | None
) -> None:
    bound = one.bound(one.kernel(), one.args(SHAPE))
    path = None if model is None else tmp_path / model
    given = ["x", 3, helion.Config(block_sizes=[1, 64])]
    order = costmodel.rank(bound, given, model_path=path)
    assert [one.index for one in order] == [2, 0, 1]
    assert [one.runs for one in order] == [True, False, False]
    assert "expected helion.Config or dict, found str" in order[1].why


def test_a_measured_list_keeps_its_fastest(one: Rig) -> None:
    costmodel.enable("verify", user_lists=True)
    default = _default(one, SHAPE)
    configs = [helion.Config(**{**default, "num_warps": n}) for n in (1, 2, 8)]
    found = one.call(one.kernel(configs=configs), one.args(SHAPE))
    assert len(StubProvider.measured) == 3
    best = min(StubProvider.measured, key=stub_latency_ms)
    assert found["num_warps"] == best["num_warps"]
    assert costmodel.stats() == {"user_list": 1}
