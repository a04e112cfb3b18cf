"""What the situations of `plug_in_checks.py` stand on: a GPU, kernels, a provider.

Imports wait, because some situations are about what a process imports first.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any


class Skip(Exception):
    """This machine cannot show it."""


class Device:
    """A GPU with the kernels of the recorder; a dry run puts another in its place."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.is_real = True
        if not torch.cuda.is_available():
            raise Skip("no GPU")

    def args(self, name: str, shapes: Sequence[str] | None = None) -> tuple[Any, ...]:
        """Arguments of a kernel's first shape, or of the given one."""
        from costmodel.arguments import parse_argument

        generator = self.torch.Generator(device="cuda").manual_seed(0)
        texts = case(name).shapes[0] if shapes is None else shapes
        specs = [parse_argument(text) for text in texts]
        return tuple(spec.materialize("cuda", generator) for spec in specs)

    def call(self, launch: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Launch and wait."""
        result = launch(*args)
        self.torch.cuda.synchronize()
        return result

    def agree(self, found: Any, name: str, args: Sequence[Any]) -> None:
        """Raise where the result is not that of plain PyTorch."""
        known = case(name)
        self.torch.testing.assert_close(
            found.to(self.torch.float32),
            known.reference(*args).to(self.torch.float32),
            rtol=known.rtol,
            atol=known.atol,
        )

    def capture(self, launch: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        """A launch captured in a graph, and the replay of it."""
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            result = launch()

        def replay() -> None:
            graph.replay()
            self.torch.cuda.synchronize()

        return result, replay

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`torch.compile`, whole or not at all."""
        compiled: Callable[..., Any] = self.torch.compile(function)
        return compiled


def case(name: str) -> Any:
    """A kernel of the recorder with its reference."""
    from costmodel.datasets.workloads.registry import all_cases

    return all_cases()[name]


def kernel(name: str, **settings: Any) -> Any:
    """The kernel of a case with settings and caches of its own."""
    import helion

    quiet: dict[str, Any] = {"autotune_progress_bar": False, "autotune_log_level": 40}
    return helion.kernel(case(name).kernel.fn, **{**quiet, **settings})


def config_of(one: Any, args: Sequence[Any]) -> dict[str, Any]:
    """What a kernel runs with, in full form."""
    from costmodel import helion_hook

    bound = one.bind(tuple(args))
    assert bound._config is not None, "the kernel has no config"
    found = helion_hook.normalize(bound, dict(bound._config.config))
    assert found is not None, "the kernel's config is refused"
    return found


def our_pick(name: str, args: Sequence[Any]) -> dict[str, Any]:
    """The pick for a kernel that nobody answers for, in full form."""
    import costmodel
    from costmodel import helion_hook

    bound = kernel(name, autotune_effort="full").bind(tuple(args))
    found = helion_hook.normalize(bound, costmodel.pick(bound).config)
    assert found is not None, "our pick is refused"
    return found


def has_our_pick(one: Any, name: str, args: Sequence[Any]) -> str:
    """Raise unless a kernel runs with our pick; the number that says so."""
    found, pick = config_of(one, args), our_pick(name, args)
    assert found == pick, f"runs with {found}, our pick is {pick}"
    return f"block_sizes {found.get('block_sizes')}, num_warps {found.get('num_warps')}"


def make_provider(no_model: bool) -> tuple[Callable[[], Any], str]:
    """A provider, and what decides in it."""
    from costmodel.provider import Provider

    try:
        import xgboost  # noqa: F401
    except ImportError:
        no_model = True
    if not no_model:
        problem = Provider().model_problem()
        if problem is None:
            return Provider, "model"
        print(f"no model: {problem[1]}", file=sys.stderr)

    class Analytic(Provider):
        """Treats every GPU as one that no model was trained on."""

        def model(self) -> Any:
            card = types.SimpleNamespace(hardware=())
            return types.SimpleNamespace(card=card)

    return Analytic, "analytic"
