"""What Helion says about a kernel, and that it is what its log says."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import helion
import helion.language as hl
import pytest
import torch
from helion.autotuner.benchmark_provider import LocalBenchmarkProvider

from costmodel import helion_hook
from costmodel.arguments import parse_argument
from costmodel.hardware import load_hardware
from costmodel.helion_hook import installed_versions
from costmodel.helion_hook import support
from costmodel.target import bind

pytestmark = pytest.mark.helion


def since_1_5(why: str) -> pytest.MarkDecorator:
    """What Helion 1.4 lacks, named by `make test-helion`."""
    is_older = installed_versions()["helion"] < "1.5"
    return pytest.mark.skipif(is_older, reason=f"not on this Helion: {why}")


GPUS = ("A100", "H200", "B200", "RTX-5090")


@helion.kernel()
def add_rows(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(a)
    for tile in hl.tile(a.size()):
        out[tile] = a[tile] + b[tile[1]]
    return out


@helion.kernel()
def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = y.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([m, n]):
        acc = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            acc = torch.addmm(acc, x[rows, inner], y[inner, columns])
        out[rows, columns] = acc.to(x.dtype)
    return out


@helion.kernel()
def row_norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        value = x[rows, :].to(torch.float32)
        scale = torch.rsqrt((value * value).mean(-1) + eps)
        out[rows, :] = (value * scale[:, None]).to(x.dtype)
    return out


@helion.kernel(static_shapes=False)
def dynamic_sum(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for rows in hl.tile(x.size(0)):
        out[rows] = x[rows, :].to(torch.float32).sum(-1)
    return out


CASES = {
    "add_rows": (add_rows, ("bf16[2048,4096]", "bf16[4096]")),
    "product": (product, ("bf16[512,1024]", "bf16[1024,2048]")),
    "row_norm": (row_norm, ("bf16[512,5120]", "1e-5")),
    "dynamic_sum": (dynamic_sum, ("f32[300,1000]",)),
}


class _StubProvider(LocalBenchmarkProvider):
    """Measures nothing: seeded times, and one config in five fails."""

    def _compute_baseline(self) -> Any:
        return None, [], None

    def _compute_effective_tolerances(self) -> Any:
        return 1e-2, 1e-2

    def _decide_num_jobs(self) -> int:
        return 1

    def setup(self) -> None:
        pass

    def cleanup(self) -> None:
        pass

    def _benchmark_function(self, config: Any, fn: Any, **_options: Any) -> float:
        draw = random.Random(repr(config)).random()
        return float("inf") if draw < 0.2 else draw


class _FreeGpu:
    """A GPU that nobody else wants."""

    def take(self) -> None:
        pass

    def give(self) -> None:
        pass


def _bound(name: str, gpu: str = "H200") -> Any:
    kernel, specs = CASES[name]
    return bind(kernel, [parse_argument(spec) for spec in specs], load_hardware(gpu))


@contextlib.contextmanager
def _settings(bound: Any, **changes: Any) -> Any:
    before = {name: getattr(bound.settings, name) for name in changes}
    for name, value in changes.items():
        setattr(bound.settings, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(bound.settings, name, value)


@pytest.fixture(scope="module", params=sorted(CASES))
def bound(request: pytest.FixtureRequest) -> Any:
    return _bound(request.param)


@since_1_5("recording, its search takes no benchmark provider")
def test_record_equals_the_line_helion_logs(bound: Any, tmp_path: Path) -> None:
    args = helion_hook.cache_of(bound)["args"]
    default = helion_hook.default_config(bound)
    configs = [default, *({**default, "num_warps": w} for w in (1, 2, 32))]
    with _settings(
        bound,
        autotune_log=str(tmp_path / "run"),
        autotune_log_details=True,
        autotune_precompile=None,
        autotune_progress_bar=False,
        autotune_benchmark_subprocess=False,
        autotune_log_level=100,
    ):
        before = helion_hook.record_of(bound, args)
        run_id = helion_hook.run_id_of(bound, args)
        with helion_hook.device_of(bound):
            helion_hook.recording_search(
                bound,
                args,
                configs,
                settings={},
                turn=_FreeGpu(),
                before_timing=lambda: None,
                expired=lambda: False,
                provider_base=_StubProvider,
            )
        after = helion_hook.record_of(bound, args)
    (line,) = (tmp_path / "run.meta.jsonl").read_text().splitlines()
    logged = json.loads(line)
    assert len(logged.pop("configs")) == 4
    assert logged.pop("run_id") == run_id
    ours = {name: getattr(before, name) for name in before.__slots__}
    assert str(list(ours.pop("input_shapes"))) == logged.pop("input_shapes")
    assert str(list(ours.pop("dtypes"))) == logged.pop("dtypes")
    # Text equality also pins the order of keys and of nodes.
    assert json.dumps(ours) == json.dumps(logged)
    assert after == before


def test_graph_is_the_same_in_a_fresh_extraction_after_code_was_generated(
    bound: Any,
) -> None:
    before = helion_hook.record_of(bound).ir_graph
    helion_hook.triton_code(bound, helion_hook.default_config(bound))
    helion_hook.cache_of(bound).pop("ir_graph")
    assert json.dumps(helion_hook.record_of(bound).ir_graph) == json.dumps(before)


def test_view_is_plain_data_in_full_form(bound: Any) -> None:
    view = helion_hook.view(bound)
    assert view.backend == "triton"
    assert view.device_type == "cuda"
    assert view.record.hardware == "NVIDIA H200"
    for config in (view.default, *view.seeds):
        assert json.loads(json.dumps(config)) == config
        assert helion_hook.normalize(bound, config) == config
        assert helion_hook.objections(bound, config) == []


@since_1_5("rules for matmuls")
def test_a_rule_promotes_on_hopper_and_blackwell_only() -> None:
    promoted = {gpu: helion_hook.view(_bound("product", gpu)).promoted for gpu in GPUS}
    assert {gpu for gpu, was in promoted.items() if was} >= {"H200", "B200"}
    assert not {"T4", "A100", "L40S", "RTX-5090"} & {
        g for g, p in promoted.items() if p
    }


@since_1_5("rules for matmuls")
def test_promoted_default_is_the_first_seed() -> None:
    view = helion_hook.view(_bound("product"))
    assert view.promoted
    assert view.seeds[0] == view.default


def test_normalize_refuses_what_helion_refuses(bound: Any) -> None:
    default = helion_hook.default_config(bound)
    for change in (
        {"pid_type": "spiral"},
        {"no_such_knob": 1},
        {"num_sm_multiplier": 4, "pid_type": "flat"},
        {"block_sizes": [3] * len(default["block_sizes"])},
        {"block_sizes": [16] * 9},
    ):
        assert helion_hook.normalize(bound, {**default, **change}) is None


def test_legal_refuses_what_normalize_lets_through() -> None:
    bound = _bound("product")
    default = helion_hook.default_config(bound)
    slots = len(default["indexing"])
    for change in (
        {"num_warps": 64},
        {"num_stages": 9},
        {"block_sizes": [8192, 8192, 64]},
        {"indexing": ["pointer"] * (slots + 1)},
        {"load_eviction_policies": ["first"] * 7},
        {"num_warps": True},
        {"num_warps": "many"},
        {"num_stages": -1},
        {"indexing": "somehow"},
    ):
        config = {**default, **change}
        assert not helion_hook.is_legal(bound, config), change
    assert helion_hook.is_legal(bound, {**default, "num_warps": 16})
    assert helion_hook.is_legal(bound, {**default, "indexing": "pointer"})
    # Nothing fills in block sizes, everything else has a default.
    assert not helion_hook.is_legal(bound, {})
    assert helion_hook.is_legal(bound, {"block_sizes": [64, 64, 32]})


def test_legal_keeps_tensors_under_tritons_limit() -> None:
    bound = _bound("add_rows")
    default = helion_hook.default_config(bound)
    # 2048 x 4096 elements are eight times Triton's 2^20.
    found = helion_hook.objections(bound, {**default, "block_sizes": [2048, 4096]})
    assert found and all("limit" in line for line in found)


def test_legal_obeys_the_kernels_own_filter_and_overrides() -> None:
    bound = _bound("product")
    default = helion_hook.default_config(bound)

    def at_most_four_warps(config: Any) -> Any:
        return config if config.config.get("num_warps", 4) <= 4 else None

    with _settings(bound, autotune_config_filter=at_most_four_warps):
        assert not helion_hook.is_legal(bound, {**default, "num_warps": 8})
        assert helion_hook.is_legal(bound, {**default, "num_warps": 4})
    with _settings(bound, autotune_config_overrides={"num_stages": 2}):
        assert not helion_hook.is_legal(bound, {**default, "num_stages": 3})
        assert helion_hook.is_legal(bound, {**default, "num_stages": 2})


def test_space_holds_everything_helions_search_draws(bound: Any) -> None:
    with helion_hook.device_of(bound):
        generation = bound.config_spec.create_config_generation()
        drawn = [generation.random_config() for _ in range(40)]
    for config in drawn:
        plain = json.loads(json.dumps(config.config))
        assert helion_hook.space(bound).objections(plain) == []


def test_space_follows_the_target() -> None:
    def indexing(gpu: str) -> set[str]:
        space = helion_hook.space(_bound("product", gpu))
        return {v for slot in space.knobs["indexing"].slots for v in slot.choices}

    assert "tensor_descriptor" in indexing("H200")
    assert "tensor_descriptor" not in indexing("A100")


def test_every_knob_value_alone_compiles_or_is_refused_by_helion() -> None:
    bound = _bound("product")
    default = helion_hook.default_config(bound)
    for name, knob in helion_hook.space(bound).knobs.items():
        for index, slot in enumerate(knob.slots):
            value = slot.choices[-1]
            changed: Any = value
            if knob.is_list:
                changed = [item.default for item in knob.slots]
                changed = list(default.get(name, changed))
                changed[index] = value
            config = {**default, name: changed}
            if helion_hook.is_legal(bound, config):
                assert "def product" in helion_hook.triton_code(bound, config)


def test_autotuner_asks_and_never_measures() -> None:
    asked = []

    def decide(
        bound: Any, args: Any, *, skip_cache: bool, options: dict[str, object]
    ) -> dict[str, Any]:
        asked.append((bound, args))
        assert not skip_cache and not options
        return {"block_sizes": [1, 1024], "num_warps": 2}

    kernel = helion.kernel(add_rows.fn, autotuner_fn=helion_hook.make_autotuner(decide))
    specs = [parse_argument(spec) for spec in CASES["add_rows"][1]]
    bound = bind(kernel, specs, load_hardware("H200"))
    with helion_hook.device_of(bound):
        config = bound.autotune(helion_hook.cache_of(bound)["args"], force=False)
    assert (config.config["block_sizes"], config.config["num_warps"]) == ([1, 1024], 2)
    assert [known for known, _args in asked] == [bound]


def test_supported_here() -> None:
    assert helion_hook.unsupported_reason() is None
    assert helion_hook.unsupported_reason(_bound("add_rows")) is None
    assert set(helion_hook.installed_versions()) == {"helion", "torch", "triton"}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1.2.0", "expected Helion"),
        ("1.6.0", "expected Helion"),
        ("absent", "not inst"),
    ],
)
def test_other_versions_are_named(
    version: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support, "installed_versions", lambda: {"helion": version})
    reason = helion_hook.unsupported_reason()
    assert reason is not None and expected in reason


def test_a_missing_name_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = (("helion.autotuner.base_search", "NoSuchSearch"),)
    monkeypatch.setattr(support, "_NEEDED", gone)
    assert "NoSuchSearch" in (helion_hook.unsupported_reason() or "")
    monkeypatch.setattr(support, "_NEEDED", (("helion.no_such_module", "x"),))
    assert "cannot read Helion" in (helion_hook.unsupported_reason() or "")


def test_interpreted_and_strange_kernels_are_reasons() -> None:
    kernel = helion.kernel(add_rows.fn, ref_mode=helion.RefMode.EAGER)
    bound = kernel.bind((torch.ones(4, 8), torch.ones(8)))
    assert "interpret" in (helion_hook.unsupported_reason(bound) or "")
    assert "cannot read" in (helion_hook.unsupported_reason(object()) or "")
