"""`torch.compile` around a kernel that we answer for, as far as a CPU can show it.

Dynamo, Helion's higher-order operator and AOTAutograd are the real ones; only Triton's
launcher does nothing. Inductor itself has no template for Helion's kernels on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import helion
import helion.language as hl
import helion.runtime
import pytest
import torch

from costmodel import helion_hook
from costmodel.types import Config

pytestmark = [pytest.mark.helion, pytest.mark.slow]

OURS = 2  # warps; Helion's default has four
LAUNCHED: list[int] = []


def negate(x: torch.Tensor) -> torch.Tensor:
    """Only this file launches it, so that its programs take this file's launcher."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = -x[tile]
    return out


def _launch(*_args: Any, num_warps: int, **_options: Any) -> None:
    LAUNCHED.append(num_warps)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The bound kernels that were asked for; our answer is guarded as a pick is."""
    monkeypatch.setattr(helion.runtime, "default_launcher", _launch)
    found: list[Any] = []

    def decide(bound: Any, _args: Any) -> Config:
        found.append(bound)
        config = {**helion_hook.default_config(bound), "num_warps": OURS}
        helion_hook.guard_first_run(bound, config, pytest.fail)
        return config

    torch._dynamo.reset()
    LAUNCHED.clear()
    helion_hook.install(decide)
    yield found
    helion_hook.uninstall()
    torch._dynamo.reset()


@pytest.mark.parametrize("is_warm", [False, True], ids=["first call", "warm"])
@pytest.mark.parametrize("is_fused", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_function_runs_our_config(
    asked: list[Any], backend: str, is_fused: bool, is_warm: bool
) -> None:
    kernel = helion.kernel(negate, static_shapes=True, torch_compile_fusion=is_fused)
    x = torch.randn(8, 16)
    if is_warm:
        kernel(x)
    compiled = torch.compile(lambda value: kernel(value) + 1, backend=backend)
    compiled(x)
    compiled(x)
    assert len(asked) == 1
    assert set(LAUNCHED) == {OURS} and len(LAUNCHED) == 2 + is_warm
    assert kernel.bind((x,))._config.num_warps == OURS
