"""The model of pairs: what it needs, what it learns, where it says nothing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel import cli_pairs
from costmodel.acf.choice import with_certain_pair
from costmodel.acf.effects import judged
from costmodel.acf.identity import KNOB
from costmodel.acf.pair_model import PairCard
from costmodel.acf.pair_model import PairModel
from costmodel.acf.pair_model import pair_model_path
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus
from costmodel.compiled_facts import Toolchain
from costmodel.errors import CorruptRecordError
from costmodel.errors import ModelNotFoundError
from costmodel.errors import SchemaMismatchError
from costmodel.features.acf_effects import ACF_NAMES
from costmodel.features.acf_effects import ACF_SCHEMA_HASH
from costmodel.features.acf_effects import N_DIFFERENCES
from costmodel.features.acf_effects import EffectFacts
from costmodel.features.acf_effects import effect_matrix
from costmodel.hardware import load_hardware
from costmodel.training.acf_fit import MIN_KERNELS
from costmodel.training.acf_fit import TrainedPairs
from costmodel.training.acf_fit import cross_fit_pairs
from costmodel.training.acf_fit import publish_pairs
from costmodel.training.acf_fit import too_little
from costmodel.training.acf_fit import train_pairs
from costmodel.training.acf_rows import FoundPairs
from costmodel.training.acf_rows import RecordedPairs
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

H200 = load_hardware("H200")
HELPS, HARMS, IDLE = "helps", "harms", "idle"
FACTS = st.builds(
    EffectFacts,
    registers=st.integers(16, 255),
    stack_bytes=st.integers(0, 4096),
    spill_bytes=st.integers(0, 8192),
    smem_bytes=st.integers(0, 200_000),
    num_warps=st.sampled_from([1, 2, 4, 8, 16, 32]),
    n_instructions=st.integers(16, 20_000),
)


def _code(registers: int, spill: int, n_instructions: int) -> EffectFacts:
    return EffectFacts(registers, spill, spill, 16_384, 8, n_instructions)


def corpus(
    seed: int, n_kernels: int = 24, n_families: int = 6, law: bool = True
) -> list[RecordedPairs]:
    """Every other kernel spills. One file takes spills away and speeds those kernels
    up by what they spilled, another makes code longer and slower, one only moves it.

    Args:
        seed: Of everything.
        n_kernels: One run each.
        n_families: Each with kernels of both kinds.
        law: Without, times follow nothing.
    """
    rng = np.random.default_rng(seed)
    made = []
    for kernel in range(n_kernels):
        spills = kernel % 2 == 0
        none, found, gains, ids, texts = [], [], [], [], []
        for config in range(3):
            spill = int(rng.integers(200, 900)) if spills else 0
            length = int(rng.integers(400, 4000))
            registers = 255 if spills else int(rng.integers(60, 200))
            for acf in (HELPS, HARMS, IDLE):
                gain = 0.0
                after = _code(registers, spill, length + int(rng.integers(1, 8)))
                if acf == HELPS:
                    after = _code(registers, 0, length - spill // 16)
                    gain = 0.15 + spill / 6000 if spills else -0.06
                elif acf == HARMS:
                    after = _code(registers - 8, spill, int(length * 1.3))
                    gain = -0.12
                none.append(_code(registers, spill, length))
                found.append(after)
                gain = gain if law else float(rng.normal(0.0, 0.1))
                gains.append(gain + float(rng.normal(0.0, 0.004)))
                ids.append(acf)
                texts.append(f"config {config}")
        made.append(
            RecordedPairs(
                workload_id=f"workload {kernel}",
                kernel_id=f"kernel {kernel}",
                family=f"family {kernel // 2 % n_families}",
                acf_ids=tuple(ids),
                config_texts=tuple(texts),
                rows=effect_matrix(found, none, H200),
                gain_log=np.array(gains),
                noise_floor_log=0.01,
                ptxas="13.3.73",
            )
        )
    return made


@pytest.fixture(scope="module")
def trained() -> TrainedPairs:
    made = train_pairs(corpus(1))
    assert made is not None
    return made


@given(FACTS)
@settings(deadline=None)
def test_a_file_that_changes_nothing_differs_in_nothing(code: EffectFacts) -> None:
    (row,) = effect_matrix([code], [code], H200)
    assert row.shape == (len(ACF_NAMES),) and np.isfinite(row).all()
    assert not row[:N_DIFFERENCES].any()


@given(FACTS, FACTS)
@settings(deadline=None)
def test_there_and_back_again_is_nothing(one: EffectFacts, other: EffectFacts) -> None:
    there, back = effect_matrix([one, other], [other, one], H200)
    ratios = [i for i, name in enumerate(ACF_NAMES) if name.startswith("acf_")]
    ratios = [i for i in ratios if not ACF_NAMES[i].endswith("_spills")]
    assert there[ratios] == pytest.approx(-back[ratios], abs=1e-4)


def test_the_schema_is_frozen() -> None:
    """Another hash means that published models of pairs are refused: train again."""
    assert ACF_SCHEMA_HASH == "dd12d6c979c2dc21"


@pytest.mark.parametrize(
    ("n_kernels", "n_families"), [(MIN_KERNELS - 1, 4), (24, 3), (0, 1)]
)
def test_few_kernels_or_families_make_no_model(n_kernels: int, n_families: int) -> None:
    few = corpus(0, n_kernels, n_families)
    assert train_pairs(few) is None
    assert "12 kernels of 4 families" in str(too_little(few))


def test_a_file_that_helps_kernels_that_spill_is_found_in_families_left_out(
    trained: TrainedPairs,
) -> None:
    pairs = corpus(1)
    for one, said in zip(pairs, cross_fit_pairs(pairs), strict=True):
        spills = bool(one.rows[0, ACF_NAMES.index("none_spill_log2")] > 0)
        certain = {one.acf_ids[i] for i in np.flatnonzero(said[1] > 0.05)}
        assert certain == ({HELPS} if spills else set())
    metrics = trained.model.card.metrics
    assert metrics["harm_share"] == 0.0 and metrics["idle_share"] <= 0.05
    assert 0.45 <= metrics["picked_share"] <= 0.55
    assert metrics["recovered_share"] > 0.8


def test_a_family_it_never_saw_gets_the_file_where_it_spills_and_nowhere_else() -> None:
    pairs = corpus(2, n_kernels=30, n_families=5)
    unseen = [one for one in pairs if one.family == "family 0"]
    trained = train_pairs([one for one in pairs if one.family != "family 0"])
    assert trained is not None
    picked = 0
    for one in unseen:
        spills = bool(one.rows[0, ACF_NAMES.index("none_spill_log2")] > 0)
        bounds = trained.model.judge(one.rows)
        sure = [
            (acf, gain)
            for acf, gain, bound in zip(one.acf_ids, one.gain_log, bounds, strict=True)
            if bound.lower_log > 0
        ]
        assert all(acf == HELPS and spills and gain > 0 for acf, gain in sure)
        picked += bool(sure)
    assert picked >= len(unseen) // 2 - 1


def _compiled(code: EffectFacts) -> CompiledFacts:
    """As the compile check would tell it."""
    return CompiledFacts(
        CompileStatus.OK,
        "",
        "sm90",
        Toolchain("1", "2", "3", "13.3.73"),
        registers=code.registers,
        spill_store_bytes=code.spill_bytes,
        spill_load_bytes=0,
        stack_bytes=code.stack_bytes,
        smem_bytes=code.smem_bytes,
        num_warps=code.num_warps,
        n_instructions=code.n_instructions,
        code_digest=repr(code),
    )


@pytest.mark.parametrize("spill", [500, 0])
def test_a_pick_gets_the_file_where_its_config_spills(
    trained: TrainedPairs, spill: int
) -> None:
    """From compiled facts to the answer, for a kernel the model has not seen."""
    config: Config = {"num_warps": 8}
    registers = 255 if spill else 128
    effects = judged(
        config,
        _compiled(_code(registers, spill, 1500)),
        {
            HELPS: _compiled(_code(registers, 0, 1500 - spill // 16 + 1)),
            HARMS: _compiled(_code(registers - 8, spill, 1950)),
        },
    )
    pick = Pick(
        config=config,
        source=PickSource.DEFAULT,
        reason=ReasonCode.GAIN_BELOW_MARGIN,
        detail="",
        default=config,
        shortlist=(config,),
        shortlist_speedups=((1.0, 1.0),),
    )
    paths = {HELPS: "/c/helps.acf", HARMS: "/c/harms.acf"}
    bounds = trained.model.bounds(effects, H200)
    found = with_certain_pair(pick, effects, bounds, paths)
    assert found.config.get(KNOB) == (paths[HELPS] if spill else None)
    assert (found == pick) == (spill == 0)


@pytest.mark.parametrize("seed", [3, 4])
def test_where_times_follow_nothing_nothing_is_certain(seed: int) -> None:
    trained = train_pairs(corpus(seed, law=False))
    assert trained is not None
    assert trained.model.card.metrics["harm_share"] <= 0.05
    fresh = corpus(seed + 100, law=False)
    certain = [b.lower_log > 0 for one in fresh for b in trained.model.judge(one.rows)]
    assert np.mean(certain) < 0.05


def test_what_lies_outside_the_training_has_no_bound(trained: TrainedPairs) -> None:
    far = corpus(1)[0].rows[:1].copy()
    far[0, ACF_NAMES.index("none_spill_log2")] = 30.0
    (bound,) = trained.model.judge(far)
    assert bound.lower_log == -np.inf


def test_published_it_loads_and_says_the_same(
    trained: TrainedPairs, tmp_path: Path
) -> None:
    first = tmp_path / "some.ubj"
    with pytest.raises(ModelNotFoundError):
        PairModel.load(first)
    publish_pairs(trained, first)
    loaded = PairModel.load(first)
    rows = corpus(5)[0].rows
    assert loaded.judge(rows) == trained.model.judge(rows)
    again = train_pairs(corpus(1))
    assert again is not None and again.trees == trained.trees
    assert PairCard.from_json(loaded.card.to_json()) == loaded.card
    publish_pairs(None, first)
    assert not list(tmp_path.iterdir())


def test_train_makes_the_model_where_logs_hold_enough_and_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = tmp_path / "some.ubj"
    runs: list[Any] = [SimpleNamespace(has_acf=np.array([True, False]))]
    found = FoundPairs(tuple(corpus(1)), ("log (kernel): why not",))
    monkeypatch.setattr(cli_pairs, "all_recorded_pairs", lambda _runs: found)
    facts = cli_pairs.publish_pair_model(runs, first)["control_files"]
    assert facts["model"] == str(pair_model_path(first))
    assert facts["n_kernels"] == 24 == PairModel.load(first).card.n_kernels
    assert "left out: log (kernel): why not" in capsys.readouterr().err
    few = FoundPairs(tuple(corpus(1, n_kernels=4)), ())
    monkeypatch.setattr(cli_pairs, "all_recorded_pairs", lambda _runs: few)
    facts = cli_pairs.publish_pair_model(runs, first)["control_files"]
    assert facts["model"] is None and "12 kernels" in facts["why"]
    assert "12 kernels" in capsys.readouterr().err
    assert not pair_model_path(first).exists()
    plain: list[Any] = [SimpleNamespace(has_acf=np.array([False]))]
    assert cli_pairs.publish_pair_model(plain, first) == {}


def test_a_damaged_or_foreign_model_is_refused(
    trained: TrainedPairs, tmp_path: Path
) -> None:
    first = tmp_path / "some.ubj"
    publish_pairs(trained, first)
    path = pair_model_path(first)
    card = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps({**card, "acf_schema_hash": "0"}))
    with pytest.raises(SchemaMismatchError, match="train again"):
        PairModel.load(first)
    path.with_suffix(".json").write_text(json.dumps({**card, "n_bags": "many"})[:40])
    with pytest.raises(CorruptRecordError):
        PairModel.load(first)
    path.with_suffix(".json").write_text(json.dumps(card))
    path.write_bytes(b"rubbish")
    with pytest.raises(CorruptRecordError, match="trees are not those"):
        PairModel.load(first)
