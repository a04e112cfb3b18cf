"""Helion's real dispatch on a machine with no GPU: bind, caches, searches, launches.

Torch describes an H200, arguments are fake tensors, and only two things are stubbed:
Triton's launcher does nothing, and the benchmark of Helion's searches gives times that
depend on the config alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from typing import ClassVar

import helion
import helion.language as hl
import helion.runtime
import pytest
import torch
from helion.autotuner import search_algorithms
from helion.autotuner.base_search import BaseSearch
from helion.autotuner.benchmark_provider import LocalBenchmarkProvider
from torch._subclasses.fake_tensor import FakeTensorMode

from costmodel import helion_hook
from costmodel.hardware import load_hardware
from costmodel.provider import Provider
from costmodel.target import targeting
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode


def twice(x: torch.Tensor) -> torch.Tensor:
    """As cheap to bind as a kernel can be."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 2
    return out


def norm_rows(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Helion has a rule for it."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :].to(torch.float32)
        norm = torch.rsqrt((row * row).mean(-1) + 1e-6)
        out[tile, :] = (row * norm[:, None] * w[:].to(torch.float32)).to(x.dtype)
    return out


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Its loads can go through tensor descriptors, which need guards."""
    m, k = x.size()
    n = y.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([m, n]):
        acc = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            acc = torch.addmm(acc, x[rows, inner], y[inner, columns])
        out[rows, columns] = acc.to(x.dtype)
    return out


def stub_latency_ms(config: Any) -> float:
    """A time for a config, the same in every process; no two are alike."""
    text = json.dumps(dict(config), sort_keys=True, default=str)
    return 0.1 + int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32


class StubProvider(LocalBenchmarkProvider):
    """Helion's own benchmark provider without a GPU."""

    measured: ClassVar[list[Config]] = []

    def _compute_baseline(self) -> Any:
        return None, [], None

    def _compute_effective_tolerances(self) -> Any:
        return 1e-2, 1e-2

    def _decide_num_jobs(self) -> int:
        return 1

    def setup(self) -> None:
        pass

    def cleanup(self) -> None:
        self.budget_exceeded_fn = lambda: False

    def _benchmark_function(self, config: Any, fn: Any, **_options: Any) -> float:
        StubProvider.measured.append(dict(config.config))
        self._autotune_metrics.num_configs_tested += 1
        return stub_latency_ms(config.config)


class ShortSearch(BaseSearch):
    """A search by Helion's rules that is over after two configs."""

    def _autotune(self) -> Any:
        generation = self.config_spec.create_config_generation()
        configs = [self.config_spec.default_config(), generation.random_config()]
        results = self.benchmark_batch(configs)
        return min(results, key=lambda one: one.perf).config


class Rig:
    """What a test needs to call kernels on the described GPU."""

    def __init__(self, mode: FakeTensorMode, folder: Path) -> None:
        self.mode = mode
        self.folder = folder

    def args(self, *shapes: Sequence[int], offset: int = 0) -> tuple[Any, ...]:
        """bf16 tensors of these shapes on the GPU, without memory."""
        with self.mode:
            return tuple(
                torch.empty(
                    torch.Size(shape).numel() + offset,
                    device="cuda",
                    dtype=torch.bfloat16,
                )[offset:].view(*shape)
                for shape in shapes
            )

    def kernel(self, fn: Any = twice, **settings: Any) -> Any:
        """A kernel whose searches are short, quiet and stay in this process."""
        quiet: dict[str, Any] = {
            "autotune_precompile": None,
            "autotune_progress_bar": False,
            "autotune_random_seed": 1,
            "autotune_benchmark_subprocess": False,
            "autotune_log_level": 0,
            "static_shapes": True,
        }
        return helion.kernel(fn, **{**quiet, **settings})

    def call(self, kernel: Any, args: Sequence[Any]) -> Config:
        """Call the kernel as a user does; what it ran with."""
        with self.mode:
            kernel(*args)
        return self.config_of(kernel, args)

    def config_of(self, kernel: Any, args: Sequence[Any]) -> Config:
        """The config that a kernel has for these arguments, in full form."""
        with self.mode:
            bound = kernel.bind(tuple(args))
        assert bound._config is not None
        found = helion_hook.normalize(bound, dict(bound._config.config))
        assert found is not None
        return found

    def bound(self, kernel: Any, args: Sequence[Any]) -> Any:
        """The bound kernel."""
        with self.mode:
            return kernel.bind(tuple(args))

    def tune(self, kernel: Any, args: Sequence[Any], config: Config) -> None:
        """Let Helion's cache write a tuned entry for this kernel, as a search does."""
        tuning = helion.kernel(
            kernel.fn, **{**_changed(kernel), "autotune_effort": "quick"}
        )
        bound = self.bound(tuning, args)
        cache_class = helion.autotuner.cache_classes[kernel.settings.autotune_cache]
        cache_class(ShortSearch(bound, tuple(args))).put(
            helion.Config(**json.loads(json.dumps(config)))
        )


def _changed(kernel: Any) -> dict[str, Any]:
    names = ("static_shapes", "autotune_cache")
    return {name: getattr(kernel.settings, name) for name in names}


def answer_with(patch: pytest.MonkeyPatch, config_for: Callable[[Any], Config]) -> None:
    """Let the pipeline of features, model and gate come to this config."""

    def choose_for(bound: Any, *_args: Any, **_options: Any) -> Pick:
        config = config_for(bound)
        default = helion_hook.default_config(bound)
        return Pick(
            config=config,
            source=PickSource.LEARNED,
            reason=ReasonCode.GAIN_CERTAIN,
            detail="the test's",
            predicted_speedup=1.5,
            default=default,
            shortlist=(config, default),
        )

    patch.setattr("costmodel.provider.choose_for", choose_for)
    # Whatever the bundled model is: these tests are about what becomes of an answer.
    genuine = Provider.model
    patch.setattr(Provider, "model", lambda self: genuine(self) or object())


@contextlib.contextmanager
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A described H200, empty caches, no launches."""
    monkeypatch.setenv("HELION_CACHE_DIR", str(tmp_path / "helion"))
    monkeypatch.setenv("HELION_AUTOTUNE_FINAL_SELECTION_ROUNDS", "0")
    for name in ("HELION_AUTOTUNE_EFFORT", "HELION_SKIP_CACHE", "COSTMODEL_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(search_algorithms, "ShortSearch", ShortSearch)
    monkeypatch.setenv("HELION_AUTOTUNER", "ShortSearch")
    monkeypatch.setattr(helion.runtime, "default_launcher", lambda *a, **k: None)
    for module in ("base_search", "finite_search"):
        monkeypatch.setattr(
            f"helion.autotuner.{module}.LocalBenchmarkProvider",
            StubProvider,
            raising=False,
        )
    defaults = BaseSearch.__init__.__defaults__
    assert defaults is not None
    monkeypatch.setattr(
        BaseSearch.__init__, "__defaults__", (*defaults[:-1], StubProvider)
    )
    StubProvider.measured.clear()
    # Providers of other models, which tests before this one may have asked.
    monkeypatch.setattr("costmodel.process_provider._BY_PATH", {})
    with targeting(load_hardware("H200")), helion_hook.aligned_fakes():
        yield Rig(FakeTensorMode(), tmp_path)
