"""Control files in the choice: through Helion, with a stand-in for ptxas."""

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

import costmodel
from costmodel import helion_hook
from costmodel.acf import live
from costmodel.acf import modes as acf_modes
from costmodel.acf.catalogue import DIR_VARIABLE
from costmodel.acf.catalogue import AcfCatalogue
from costmodel.acf.choice import MOST_MEASURED_PAIRS
from costmodel.acf.choice import PairBound
from costmodel.acf.effects import Effect
from costmodel.acf.effects import Verdict
from costmodel.acf.entry import AcfEntry
from costmodel.acf.identity import KNOB
from costmodel.acf.identity import KNOWN
from costmodel.acf.toolchain import VARIABLES
from costmodel.compiled_facts import Toolchain
from costmodel.datasets.load import load_logs
from costmodel.datasets.workload_data import WorkloadData
from costmodel.features.acf_effects import ACF_NAMES
from costmodel.hardware import load_hardware
from costmodel.measured_choice import MOST_MEASURED
from costmodel.training.acf_rows import all_recorded_pairs
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

H200 = load_hardware("H200")
SHAPE = (2048, 4096)
TOOLS = Toolchain("1", "2", "3", "13.3.73")
GOOD, NOOP = "regs=-8 delta=3", "noop"


CONFIGS: tuple[Config, ...] = tuple({"num_warps": i} for i in range(3))


def _id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
