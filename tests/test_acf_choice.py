"""Control files in the choice: what is compiled, what measured, what handed out."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from typing import ClassVar

import pytest
import standin_ptxas
from helion.autotuner import search_algorithms
from helion_rig import Rig
from helion_rig import ShortSearch
from helion_rig import StubProvider
from helion_rig import rig
from helion_rig import stub_latency_ms
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

import costmodel
from costmodel import helion_hook
from costmodel.acf import live
from costmodel.acf import modes as acf_modes
from costmodel.acf.catalogue import DIR_VARIABLE
from costmodel.acf.catalogue import AcfCatalogue
from costmodel.acf.choice import MOST_MEASURED_PAIRS
from costmodel.acf.choice import PairBound
from costmodel.acf.choice import with_certain_pair
from costmodel.acf.choice import worth_measuring
from costmodel.acf.effects import Effect
from costmodel.acf.effects import Verdict
from costmodel.acf.effects import judged
from costmodel.acf.entry import AcfEntry
from costmodel.acf.identity import KNOB
from costmodel.acf.identity import KNOWN
from costmodel.acf.pairs import make_pairs
from costmodel.acf.toolchain import VARIABLES
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus
from costmodel.compiled_facts import Toolchain
from costmodel.datasets.load import load_logs
from costmodel.datasets.workload_data import WorkloadData
from costmodel.features.acf_effects import ACF_NAMES
from costmodel.hardware import load_hardware
from costmodel.hybrid import canonical_text
from costmodel.measured_choice import MOST_MEASURED
from costmodel.measured_choice import TIE
from costmodel.measured_choice import best_with_controls
from costmodel.training.acf_rows import all_recorded_pairs
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

H200 = load_hardware("H200")
SHAPE = (2048, 4096)
TOOLS = Toolchain("1", "2", "3", "13.3.73")
GOOD, NOOP = "regs=-8 delta=3", "noop"


def _id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _facts(
    registers: int = 64,
    spill: int = 0,
    digest: str | None = None,
    status: CompileStatus = CompileStatus.OK,
    n_instructions: int = 400,
) -> CompiledFacts:
    made = {
        "registers": registers,
        "spill_store_bytes": spill,
        "spill_load_bytes": 0,
        "stack_bytes": spill,
        "smem_bytes": 0,
        "num_warps": 4,
        "n_instructions": n_instructions,
        "code_digest": digest or f"{registers} {spill} {n_instructions}",
    }
    return CompiledFacts(
        status, "", "sm90", TOOLS, **(made if status is CompileStatus.OK else {})
    )


# What pairs there are, and what becomes of them.


@given(st.integers(0, 6), st.integers(0, 20), st.integers(1, 5), st.integers(0, 16))
def test_none_is_always_in_it_and_the_product_is_bounded(
    n_configs: int, n_acfs: int, most_configs: int, most_acfs: int
) -> None:
    configs: list[Config] = [{"num_warps": i} for i in range(n_configs)]
    entries = [AcfEntry(_id(str(i)), "13.3") for i in range(n_acfs)]
    pairs = make_pairs([*configs, *configs], entries, most_configs, most_acfs)
    kept = min(n_configs, most_configs)
    assert len(pairs) == kept * (1 + min(n_acfs, most_acfs))
    assert len({pair.key for pair in pairs}) == len(pairs)
    for config in configs[:kept]:
        mine = [pair.acf_id for pair in pairs if pair.config == config]
        assert mine[0] is None and None not in mine[1:]


def test_what_is_no_use_is_dropped_and_says_why() -> None:
    found = {
        "same": _facts(digest="none"),
        "less": _facts(registers=56),
        "twin": _facts(registers=56),
        "crash": _facts(status=CompileStatus.CRASH),
        "hang": _facts(status=CompileStatus.TIMEOUT),
        "refused": _facts(status=CompileStatus.PTXAS),
        "spills": _facts(spill=4096),
        "registers": _facts(status=CompileStatus.REGISTERS),
    }
    effects = judged({"num_warps": 4}, _facts(digest="none"), found)
    assert [one.verdict.value for one in effects] == [
        "none",
        "same_as_none",
        "useful",
        "same_as_other",
        "crashes",
        "hangs",
        "refused",
        "spills",
        "does_not_fit",
    ]
    assert effects[3].twin == "less"


def test_fewer_heavy_spills_are_worth_a_try_and_more_are_not() -> None:
    found = {"fewer": _facts(spill=3000), "more": _facts(spill=5000)}
    effects = judged({}, _facts(spill=4000, digest="none"), found)
    verdicts = [one.verdict for one in effects[1:]]
    assert verdicts == [Verdict.USEFUL, Verdict.SPILLS]


def _effects(
    changes: Sequence[Sequence[int]], none_spill: int = 200
) -> tuple[Effect, ...]:
    """One config for each row, one control file for each of its spills."""
    made: list[Effect] = []
    for place, spills in enumerate(changes):
        none = _facts(spill=none_spill, digest="none")
        found = {
            f"acf{i}": _facts(spill=spill, digest=f"{i}")
            for i, spill in enumerate(spills)
        }
        made += judged({"num_warps": place}, none, found)
    return tuple(made)


@given(st.lists(st.lists(st.integers(0, 500), max_size=6), max_size=4))
def test_few_are_measured_each_file_once_before_any_twice(
    changes: list[list[int]],
) -> None:
    effects = _effects(changes)
    useful = [one for one in effects if one.verdict is Verdict.USEFUL]
    chosen = worth_measuring(effects, H200)
    assert len(chosen) == min(MOST_MEASURED_PAIRS, len(useful))
    assert set(one.pair.key for one in chosen) <= {one.pair.key for one in useful}
    files = {one.pair.acf_id for one in useful}
    assert len({one.pair.acf_id for one in chosen}) == min(len(files), len(chosen))


def test_without_a_model_fewest_spills_are_tried_first_with_one_its_word_counts() -> (
    None
):
    effects = _effects([[100, 0, 50]])
    assert [one.pair.acf_id for one in worth_measuring(effects, H200)] == [
        "acf1",
        "acf2",
        "acf0",
    ]
    bounds = {
        one.pair.key: PairBound(0.3 if one.pair.acf_id == "acf0" else 0.0, 0.0)
        for one in effects
    }
    first = worth_measuring(effects, H200, bounds)[0]
    assert first.pair.acf_id == "acf0"


# What is handed out without measuring.

CONFIGS: tuple[Config, ...] = tuple({"num_warps": i} for i in range(3))


def _pick(index: int = 0, **changes: Any) -> Pick:
    default: Config = {"num_warps": 9}
    facts: dict[str, Any] = {
        "config": CONFIGS[index],
        "source": PickSource.LEARNED,
        "reason": ReasonCode.GAIN_CERTAIN,
        "detail": "d",
        "default": default,
        "shortlist": CONFIGS,
        "shortlist_speedups": ((1.2, 1.1), (1.15, 1.05), (0.9, 0.8)),
    }
    return Pick(**{**facts, **changes})


PATHS = {"acf0": "/c/acf0.acf", "acf1": "/c/acf1.acf"}


def _certain(lowers: dict[tuple[int, str], float], allowed: bool = True) -> Pick:
    effects = _effects([[0, 100]] * 3)
    bounds = {
        (canonical_text(CONFIGS[place]), acf_id): PairBound(lower + 0.05, lower)
        for (place, acf_id), lower in lowers.items()
    }
    names = frozenset(map(canonical_text, CONFIGS)) if allowed else frozenset()
    return with_certain_pair(_pick(), effects, bounds, PATHS, names)


def test_only_a_certain_gain_brings_a_control_file() -> None:
    assert _certain({}) == _pick()
    assert _certain({(0, "acf0"): 0.0, (0, "acf1"): -0.1}) == _pick()
    found = _certain({(0, "acf0"): 0.02, (0, "acf1"): 0.04})
    assert found.config == {**CONFIGS[0], KNOB: PATHS["acf1"]}
    assert found.reason is ReasonCode.ACF_CERTAIN
    assert found.predicted_speedup == pytest.approx(1.2 * 2.718281828**0.09)


def test_another_config_wins_with_its_file_only_where_both_are_sure() -> None:
    # ln(1.1 / 1.05) = 0.047 is what the other config's file must add at least.
    assert _certain({(1, "acf0"): 0.04}) == _pick()
    won = _certain({(1, "acf0"): 0.2})
    assert won.config == {**CONFIGS[1], KNOB: PATHS["acf0"]}
    assert _certain({(1, "acf0"): 0.2}, allowed=False) == _pick()
    assert _certain({(2, "acf0"): 0.3}) == _pick()


@given(st.floats(10.0, 100.0), st.floats(-0.05, 0.05))
@settings(deadline=None)
def test_a_control_file_has_to_win_by_more_than_a_tie(us: float, ahead: float) -> None:
    default: Config = {"num_warps": 4}
    plain, other = {"num_warps": 8}, {"num_warps": 8, KNOB: "/a"}
    timed = [
        helion_hook.Measured(default, us * 2, "ok"),
        helion_hook.Measured(plain, us * (1 + ahead), "ok"),
        helion_hook.Measured(other, us, "ok"),
    ]
    best = best_with_controls(timed, default)
    assert best is not None
    if ahead < TIE * 0.99:
        assert best.config == plain
    if ahead > TIE * 1.01:
        assert best.config == other
        left = best_with_controls(timed, default, [other])
        assert left is not None and left.config == plain


# Through Helion, on a described GPU, with a stand-in for ptxas.


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr("costmodel.process_provider._PROVIDER", None)
    # What it would say is planted; whether one is there is another test's question.
    monkeypatch.setattr("costmodel.provider.Provider.model", lambda _self: object())
    monkeypatch.setenv(DIR_VARIABLE, str(tmp_path / "acf"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tool = standin_ptxas.install(tmp_path)
    for name in VARIABLES:
        monkeypatch.setenv(name, str(tool))
    _forget_assembler()
    live._say_once.cache_clear()
    with rig(tmp_path, monkeypatch) as made:
        yield made
    costmodel.disable()
    monkeypatch.undo()
    _forget_assembler()


def _forget_assembler() -> None:
    """Triton asks the assembler for its version once in a process."""
    from triton.backends.nvidia import compiler

    compiler.get_ptxas_version.cache_clear()
    compiler.CUDABackend.hash.cache_clear()


def _add(*texts: str, **facts: Any) -> list[str]:
    """Put control files into the catalogue; their paths."""
    catalogue = AcfCatalogue.open()
    paths = []
    for text in texts:
        entry = AcfEntry(_id(text), **{"cuda": "13.3", **facts})
        catalogue.put(entry, text.encode())
        paths.append(str(catalogue.path(entry.acf_id)))
    return paths


def _listing(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Let the pipeline answer with a shortlist of two and these facts."""

    def choose_for(bound: Any, *_args: Any, **_options: Any) -> Pick:
        default = helion_hook.default_config(bound)
        configs = [{**default, "num_warps": warps} for warps in (2, 8)]
        facts: dict[str, Any] = {
            "config": configs[0],
            "source": PickSource.LEARNED,
            "reason": ReasonCode.GAIN_CERTAIN,
            "detail": "the test's",
            "default": default,
            "shortlist": tuple(configs),
            "shortlist_speedups": ((1.5, 1.48), (1.4, 1.3)),
        }
        return Pick(**{**facts, **changes})

    monkeypatch.setattr("costmodel.provider.choose_for", choose_for)


def _fastest(monkeypatch: pytest.MonkeyPatch, path: str, num_warps: int) -> None:
    """Let one pair be the fastest of all."""

    def timed(self: Any, config: Any, _fn: Any, **_options: Any) -> float:
        plain = dict(config.config)
        StubProvider.measured.append(plain)
        wins = (plain.get(KNOB), plain["num_warps"]) == (path, num_warps)
        return 0.01 if wins else stub_latency_ms(plain)

    monkeypatch.setattr(StubProvider, "_benchmark_function", timed)


def _measured_pairs() -> list[tuple[str, int]]:
    return [(c[KNOB], c["num_warps"]) for c in StubProvider.measured if c.get(KNOB)]


@pytest.mark.helion
def test_verify_measures_few_pairs_and_a_file_wins_by_time_alone(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    useful = _add(GOOD, "regs=-8 delta=9", "regs=-8 delta=1")
    useless = _add(NOOP, f"{GOOD} #twin", "crash", "rubbish")
    _listing(monkeypatch)
    # The second config with the file that makes the shortest code: of files that do
    # not differ otherwise that one is tried first, and first with a second config.
    chosen = useful[2]
    _fastest(monkeypatch, chosen, 8)
    compared: list[tuple[Any, Any]] = []
    monkeypatch.setattr(
        helion_hook,
        "output_objection",
        lambda bound, args, config, reference: compared.append((config, reference)),
    )
    kernel = one.kernel(autotuner_fn=costmodel.autotuner(mode="verify"))
    found = one.call(kernel, one.args(SHAPE))
    assert found[KNOB] == chosen and found["num_warps"] == 8
    pairs = _measured_pairs()
    assert len(pairs) == MOST_MEASURED_PAIRS
    assert len(StubProvider.measured) <= MOST_MEASURED + MOST_MEASURED_PAIRS
    measured = {path for path, _ in pairs}
    # Of two files with one code the first in the catalogue stands for both.
    assert measured - set(useless[1:2]) <= set(useful)
    assert not measured & {useless[0], *useless[2:]}
    # Every pair was measured beside the same config without its file.
    without = {c["num_warps"] for c in StubProvider.measured if not c.get(KNOB)}
    assert {warps for _, warps in pairs} <= without
    ((config, reference),) = compared
    assert config[KNOB] == chosen and KNOB not in reference
    assert costmodel.stats() == {"measured_best": 1}


@pytest.mark.helion
def test_a_file_that_computes_something_else_is_left_out(
    one: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (path,) = _add(GOOD)
    _listing(monkeypatch)
    _fastest(monkeypatch, path, 2)
    monkeypatch.setattr(helion_hook, "output_objection", lambda *_a: "it differs")
    kernel = one.kernel(autotuner_fn=costmodel.autotuner(mode="verify"))
    with caplog.at_level(logging.WARNING, "costmodel"):
        found = one.call(kernel, one.args(SHAPE))
    assert _measured_pairs() and not found.get(KNOB)
    assert "it differs" in caplog.text


@pytest.mark.helion
def test_what_verify_measured_can_train_the_model_of_pairs(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helion's own log holds paths; rows hold digests, gains and effects."""
    (path,) = _add(GOOD)
    _add(NOOP)
    _listing(monkeypatch)
    _fastest(monkeypatch, path, 2)
    log = one.folder / "logs" / "run"
    kernel = one.kernel(
        autotuner_fn=costmodel.autotuner(mode="verify"),
        autotune_log=str(log),
        autotune_log_details=True,
    )
    assert one.call(kernel, one.args(SHAPE))[KNOB] == path
    (run,) = load_logs([log.parent]).usable
    data = WorkloadData.from_clean_run(run)
    assert data.has_acf.sum() == len(_measured_pairs())
    assert str(one.folder) not in str(data.configs)
    found = all_recorded_pairs([data])
    assert not found.skipped
    (pairs,) = found.pairs
    assert set(pairs.acf_ids) == {_id(GOOD)}
    times = {(c.get(KNOB), c["num_warps"]): c for c in StubProvider.measured}
    slow = stub_latency_ms(times[None, 2])
    gains = pairs.gain_log[['num_warps":2' in text for text in pairs.config_texts]]
    assert gains == pytest.approx([math.log(slow / 0.01)], abs=1e-3)
    assert (pairs.rows[:, ACF_NAMES.index("acf_registers")] == -8).all()
    assert pairs.ptxas == standin_ptxas.DEFAULT_VERSION


class Planted(ShortSearch):
    """A search of Helion's that notes what it got."""

    seen: ClassVar[dict[str, Any]] = {}

    def _autotune(self) -> Any:
        Planted.seen = {
            "list": list(self.settings.autotune_search_acf),
            "seeds": [dict(s) for s in self.settings.autotune_seed_configs],
            "space": self.config_spec.create_config_generation(
                advanced_controls_files=self.settings.autotune_search_acf
            ).flat_spec[-1],
        }
        return super()._autotune()


@pytest.mark.helion
def test_seed_hands_helion_the_reduced_list(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    useful = _add(*(f"{GOOD} delta={i + 4}" for i in range(7)))
    _add(NOOP, "crash", "rubbish")
    _listing(monkeypatch)
    monkeypatch.setitem(search_algorithms, "Planted", Planted)
    monkeypatch.setenv("HELION_AUTOTUNER", "Planted")
    kernel = one.kernel(autotuner_fn=costmodel.autotuner(mode="seed"))
    one.call(kernel, one.args(SHAPE))
    # None comes first: what names no file, the default and our seeds, has none.
    none, *listed = Planted.seen["list"]
    assert none == "" == Planted.seen["space"].default()
    assert 0 < len(listed) <= MOST_MEASURED_PAIRS and set(listed) <= set(useful)
    assert "" in Planted.seen["space"].choices
    seeded = [seed[KNOB] for seed in Planted.seen["seeds"] if seed.get(KNOB)]
    assert set(seeded) == set(listed)
    assert list(kernel.settings.autotune_search_acf) == []


@pytest.mark.helion
@pytest.mark.slow
def test_a_search_with_control_files_costs_a_few_measurements_more(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helion's own search, its timing stubbed, with sixteen control files and none."""
    _listing(monkeypatch)
    monkeypatch.delenv("HELION_AUTOTUNER")
    counts = {}
    for n_files in (0, 16):
        _add(*(f"{GOOD} delta={i + 4}" for i in range(n_files)))
        StubProvider.measured.clear()
        kernel = one.kernel(
            autotuner_fn=costmodel.autotuner(mode="seed"),
            autotune_effort="quick",
            autotune_cache="LocalAutotuneCache",
            autotune_benchmark_fn=lambda fns, **_options: [1.0 for _ in fns],
        )
        one.call(kernel, one.args((1024 + n_files, 4096)))
        counts[n_files] = len(StubProvider.measured)
    # 28 and 38 with 8 pairs among them, as recorded; paths, and so times, vary.
    assert _measured_pairs()
    assert counts[16] <= 2 * counts[0]
    assert len(_measured_pairs()) <= counts[16] / 2


class Sure:
    """A model of pairs that is sure of every useful pair."""

    def bounds(self, effects: Sequence[Effect], _hardware: Any) -> Any:
        return {
            e.pair.key: PairBound(0.2, 0.1)
            for e in effects
            if e.verdict is Verdict.USEFUL
        }


@pytest.mark.helion
def test_predict_returns_no_control_file_without_evidence(
    one: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = _add(GOOD)
    _listing(monkeypatch)
    asked = []
    monkeypatch.setattr(live, "live_effects", lambda *a, **k: asked.append(1))
    kernel = one.kernel(autotuner_fn=costmodel.autotuner())
    assert not one.call(kernel, one.args(SHAPE)).get(KNOB)
    assert not asked and not StubProvider.measured
    monkeypatch.undo()
    assert path


@pytest.mark.helion
@pytest.mark.parametrize("objection", [None, "it differs"])
def test_with_evidence_predict_returns_one_whose_result_was_compared(
    one: Rig, monkeypatch: pytest.MonkeyPatch, objection: str | None
) -> None:
    (path,) = _add(GOOD)
    _add(NOOP)
    _listing(monkeypatch)
    compared = []

    def output_objection(_bound: Any, _args: Any, config: Any, other: Any) -> Any:
        compared.append((config.get(KNOB), other["num_warps"], other.get(KNOB)))
        return objection

    monkeypatch.setattr(helion_hook, "output_objection", output_objection)
    monkeypatch.setattr(acf_modes, "_pair_model", lambda _path: Sure())
    monkeypatch.setattr(live, "_allowed", lambda *_a: frozenset())
    kernel = one.kernel(autotuner_fn=costmodel.autotuner())
    found = one.call(kernel, one.args(SHAPE))
    assert not StubProvider.measured
    assert compared[0] == (path, 2, None)  # the run without, then Helion's default
    if objection is None:
        assert found[KNOB] == path and len(compared) == 2
        assert costmodel.stats() == {"acf_certain": 1}
    else:
        assert not found.get(KNOB)
        assert costmodel.stats() == {"acf_differs": 1, "gain_certain": 1}


# Fail closed.


@pytest.mark.helion
@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"cuda": "13.4"}, "acf_toolchain"),
        ({"stage": "nvcc"}, "acf_unsupported"),
        ({"kernels": ("other",)}, None),
        ({"gpus": ("B200",)}, None),
    ],
)
def test_what_does_not_fit_is_not_tried_and_said_once(
    one: Rig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    facts: dict[str, Any],
    reason: str | None,
) -> None:
    _add(GOOD, **facts)
    _listing(monkeypatch)
    kernel = one.kernel(autotuner_fn=costmodel.autotuner(mode="verify"))
    with caplog.at_level(logging.WARNING, "costmodel"):
        for rows in (512, 1024):
            assert not one.call(kernel, one.args((rows, 4096))).get(KNOB)
    assert not _measured_pairs()
    lines = [r for r in caplog.records if "control file" in r.getMessage()]
    assert len(lines) == (0 if reason is None else 1)
    counted = {"measured_best": 2} | ({} if reason is None else {reason: 2})
    assert costmodel.stats() == counted


@pytest.mark.helion
def test_an_older_ptxas_means_none(
    one: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _add(GOOD)
    _listing(monkeypatch)
    tool = standin_ptxas.install(tmp_path, "12.9.86")
    for name in VARIABLES:
        monkeypatch.setenv(name, str(tool))
    kernel = one.kernel(autotuner_fn=costmodel.autotuner(mode="verify"))
    assert not one.call(kernel, one.args(SHAPE)).get(KNOB)
    assert costmodel.stats() == {"measured_best": 1, "acf_toolchain": 1}


@pytest.mark.helion
@pytest.mark.parametrize("state", ["here", "gone", "other ptxas"])
def test_a_tuned_entry_names_its_file_by_digest(
    one: Rig, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    kernel = one.kernel(autotuner_fn=costmodel.autotuner())
    args = one.args(SHAPE)
    config = helion_hook.default_config(one.bound(one.kernel(), args))
    tuned = {**config, "num_warps": 16, KNOB: KNOWN + _id(GOOD)}
    one.tune(kernel, args, tuned)
    paths = []
    if state != "gone":
        paths = _add(GOOD, cuda="13.3" if state == "here" else "13.4")
    with caplog.at_level(logging.WARNING, "costmodel"):
        found = one.call(kernel, args)
    assert found["num_warps"] == 16
    if state == "here":
        assert [found[KNOB]] == paths
        assert costmodel.stats() == {"tuned_entry": 1}
    else:
        assert not found.get(KNOB) and "control file" in caplog.text
        reason = "acf_missing" if state == "gone" else "acf_toolchain"
        assert costmodel.stats() == {"tuned_entry": 1, reason: 1}


@pytest.mark.helion
def test_a_list_of_the_authors_is_reduced_if_the_catalogue_knows_it(one: Rig) -> None:
    first, second = _add(GOOD, "regs=-8 delta=9")
    own = one.folder / "own.acf"
    own.write_text("regs=-16 delta=7")
    for listed, kept in ((["", second], [second]), ([first, str(own)], [])):
        kernel = one.kernel(autotune_search_acf=listed)
        found = live.applicable(one.bound(kernel, one.args(SHAPE)), one.args(SHAPE))
        assert list(found.paths.values()) == kept
    assert found.problem is not None


def test_nothing_is_asked_where_there_is_no_catalogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIR_VARIABLE, str(tmp_path / "none"))
    monkeypatch.setattr(live, "find_ptxas", lambda **_o: pytest.fail("asked"))
    assert live.tried(SimpleNamespace(), (), _pick()).effects == ()
