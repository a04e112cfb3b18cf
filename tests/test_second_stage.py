"""The second look: what may be answered once code is known, and what loads."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from costmodel.code_model import CodeModel
from costmodel.code_model import Opinion
from costmodel.code_model import code_model_path
from costmodel.compile_check import Checked
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus
from costmodel.compiled_facts import Toolchain
from costmodel.disassembly import CodeShape
from costmodel.errors import CorruptRecordError
from costmodel.errors import ModelNotFoundError
from costmodel.errors import SchemaMismatchError
from costmodel.features.compiled import CODE_NAMES
from costmodel.features.schema import SCHEMA
from costmodel.forest import Predictions
from costmodel.hardware import load_hardware
from costmodel.learned import LearnedModel
from costmodel.learned import bundled_model_path
from costmodel.second_stage import second_look
from costmodel.second_stage import to_compile
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

TOOLS = Toolchain("1", "2", "3", "4")
GAINS = st.integers(-50, 50).map(lambda n: n / 100)
DEFAULT: Config = {"num_warps": 4, "block_sizes": [64]}


@pytest.fixture(scope="module")
def model() -> LearnedModel:
    return LearnedModel.load()


@pytest.fixture(scope="module")
def code_model(model: LearnedModel) -> CodeModel:
    return CodeModel.load(bundled_model_path(), model.model_id)


def _config(number: int) -> Config:
    return {"num_warps": 4, "block_sizes": [64 + number]}


def _checked(
    config: Config,
    digest: str = "",
    status: CompileStatus = CompileStatus.OK,
    spill_bytes: int = 0,
    registers: int = 64,
) -> Checked:
    code = CodeShape(
        n_instructions=400,
        counts={"global_load": 8, "float": 100},
        loops=(),
        load_bytes=128,
        bytes_in_flight=64,
        pending_copy_groups=None,
        has_wgmma=False,
        has_tcgen05=False,
        has_tma=False,
    )
    facts = CompiledFacts(
        status,
        "",
        "sm90",
        TOOLS,
        registers=registers,
        spill_store_bytes=spill_bytes,
        spill_load_bytes=0,
        stack_bytes=spill_bytes,
        smem_bytes=1024,
        num_warps=4,
        code_digest=digest or json.dumps(config),
        code=code,
    )
    return Checked(config, facts, False)


class _Extractor:
    """Rows in which only the number of a config shows."""

    hardware = load_hardware("H200")

    def matrix(self, configs: list[Config], default: Config) -> np.ndarray:
        rows = np.zeros((len(configs), len(SCHEMA.names)), dtype=np.float32)
        number = [config["block_sizes"][0] - 64 for config in configs]
        rows[:, SCHEMA.index("d_analytic_us_log2")] = number
        rows[:, SCHEMA.index("programs_log2")] = 10.0
        rows[:, SCHEMA.index("roofline_us_log2")] = 3.0
        return rows


def _stages(gains: dict[int, float], margin_log: float = 0.0) -> tuple[Any, Any]:
    """Two stages that agree on each config's gain; a gate that lets all in."""

    def of(rows: np.ndarray) -> np.ndarray:
        column = SCHEMA.index("d_analytic_us_log2")
        return np.array([gains.get(int(n), 0.0) for n in rows[:, column]], np.float32)

    def decide(features: Any, _v: Any, gain: Any, lower: Any, **more: Any) -> Any:
        order = tuple(int(i) for i in np.argsort(-gain) if i != 0)
        index = next((i for i in order if lower[i] > 0), None)
        why = ReasonCode.GAIN_CERTAIN if index else ReasonCode.GAIN_BELOW_MARGIN
        return SimpleNamespace(index=index, reason=why, detail="d", order=order)

    memory: dict[str, np.ndarray] = {}

    def predict(rows: np.ndarray) -> Predictions:
        memory["gain"] = of(rows)
        zero = np.zeros(len(rows), np.float32)
        return Predictions(memory["gain"], zero, zero + 1.0)

    def opinion(rows: np.ndarray, _default: np.ndarray) -> Opinion:
        return Opinion(memory["gain"], np.zeros(len(rows), np.float32))

    card = SimpleNamespace(
        spread_weight=1.0,
        margin_log=dict.fromkeys(("dot", "mixed", "other"), margin_log),
    )
    first = SimpleNamespace(
        predict=predict, gate=SimpleNamespace(decide_compiled=decide)
    )
    return first, SimpleNamespace(forest=SimpleNamespace(opinion=opinion), card=card)


def _answer(n_others: int) -> Pick:
    return Pick(
        config=DEFAULT,
        source=PickSource.DEFAULT,
        reason=ReasonCode.GAIN_BELOW_MARGIN,
        detail="first",
        default=DEFAULT,
        shortlist=(DEFAULT, *(_config(i) for i in range(1, n_others + 1))),
    )


def test_the_default_is_compiled_first_and_each_config_once() -> None:
    configs = to_compile(_answer(20), top=16)
    assert configs[0] == DEFAULT
    assert len(configs) == 17
    assert len({json.dumps(config) for config in configs}) == 17


@given(
    st.lists(
        st.sampled_from(["ok", "smem", "spills", "same code"]), min_size=1, max_size=8
    ),
    st.lists(GAINS, min_size=8, max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_only_what_is_sound_and_other_code_replaces_the_default(
    kinds: list[str], gains: list[float]
) -> None:
    checked = [_checked(DEFAULT, "default")]
    for number, kind in enumerate(kinds, 1):
        config = _config(number)
        if kind == "smem":
            checked.append(_checked(config, status=CompileStatus.SHARED_MEMORY))
        elif kind == "spills":
            checked.append(_checked(config, spill_bytes=4096))
        elif kind == "same code":
            checked.append(_checked(config, "default"))
        else:
            checked.append(_checked(config))
    by_number = dict(enumerate(gains, 1))
    found = second_look(_Extractor(), _answer(len(kinds)), checked, *_stages(by_number))
    good = {i for i, kind in enumerate(kinds, 1) if kind == "ok"}
    best = max((by_number[i] for i in good), default=0.0)
    if best > 0:
        number = found.config["block_sizes"][0] - 64
        assert number in good
        assert by_number[number] == best
        assert found.source is PickSource.LEARNED
    else:
        assert found.config == DEFAULT
        assert found.predicted_speedup == 1.0
    listed = [config["block_sizes"][0] - 64 for config in found.shortlist]
    assert set(listed) == good | {0}


@given(st.permutations(range(1, 7)), st.lists(GAINS, min_size=6, max_size=6))
@settings(max_examples=30, deadline=None)
def test_the_order_of_compiling_decides_nothing(
    order: list[int], gains: list[float]
) -> None:
    by_number = {i: round(g, 3) + i * 1e-5 for i, g in enumerate(gains, 1)}
    straight = [_checked(DEFAULT), *(_checked(_config(i)) for i in range(1, 7))]
    moved = [_checked(DEFAULT), *(_checked(_config(i)) for i in order)]
    one = second_look(_Extractor(), _answer(6), straight, *_stages(by_number))
    two = second_look(_Extractor(), _answer(6), moved, *_stages(by_number))
    assert one.config == two.config


def test_a_margin_keeps_the_default() -> None:
    checked = [_checked(DEFAULT), _checked(_config(1))]
    stages = _stages({1: 0.2}, margin_log=0.3)
    found = second_look(_Extractor(), _answer(1), checked, *stages)
    assert (found.config, found.source) == (DEFAULT, PickSource.DEFAULT)
    assert "Helion's default stays" in found.detail


def test_without_the_defaults_code_the_first_answer_stays() -> None:
    failed = _checked(DEFAULT, status=CompileStatus.TIMEOUT)
    answer = _answer(1)
    found = second_look(
        _Extractor(), answer, [failed, _checked(_config(1))], *_stages({1: 0.4})
    )
    assert found == replace(answer, detail=found.detail)
    assert "no second look" in found.detail


@given(st.floats(-2, 2), st.floats(-2, 2), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_disagreement_is_doubt(a: float, b: float, of_a: float, of_b: float) -> None:
    def row(value: float) -> np.ndarray:
        return np.array([value], np.float32)

    both = Opinion(row(a), row(of_a)).blended(row(b), row(of_b))
    alone = Opinion(row(a), row(of_a)).blended(row(a), row(of_b))
    assert both.gain_log[0] == pytest.approx((a + b) / 2, abs=1e-5)
    assert both.spread_log[0] >= abs(a - b) / 2 - 1e-5
    assert both.spread_log[0] >= alone.spread_log[0] - 1e-6


def test_the_default_gains_nothing_over_itself(code_model: CodeModel) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(6, len(CODE_NAMES))).astype(np.float32)
    said = code_model.forest.opinion(rows, rows[2])
    assert said.gain_log[2] == 0.0
    assert said.spread_log[2] == 0.0
    order = rng.permutation(6)
    moved = code_model.forest.opinion(rows[order], rows[2])
    np.testing.assert_array_equal(moved.gain_log, said.gain_log[order])


def test_the_bundled_second_stage_holds_its_bounds(code_model: CodeModel) -> None:
    """What was measured when it was published; a worse one is not shipped unseen."""
    metrics = code_model.card.metrics
    assert metrics["n_workloads"] >= 200
    # 37 % since margins lie two scales of broken promises beyond the largest, where the
    # first stage keeps 46 % on the same workloads; 45 % (and 45 %) without them, 54 %
    # before the first knew the place in the analytic list and found 43 %.
    assert metrics["headroom_share"] >= 0.36
    assert metrics["harm_share"] <= 0.02


def test_a_stage_of_another_model_is_refused(
    tmp_path: Path, model: LearnedModel
) -> None:
    first = tmp_path / "m.ubj"
    with pytest.raises(ModelNotFoundError, match="second-stage"):
        CodeModel.load(first, model.model_id)
    bundled = code_model_path(bundled_model_path())
    trees = code_model_path(first)
    shutil.copy(bundled, trees)
    shutil.copy(bundled.with_suffix(".json"), trees.with_suffix(".json"))
    with pytest.raises(SchemaMismatchError, match="first stage"):
        CodeModel.load(first, "0" * 16)
    trees.write_bytes(trees.read_bytes()[:-10])
    with pytest.raises(CorruptRecordError, match="trees are not those"):
        CodeModel.load(first, model.model_id)
    trees.with_suffix(".json").write_text("{}")
    with pytest.raises(CorruptRecordError, match="card"):
        CodeModel.load(first, model.model_id)
