"""The public way in: pick a config for a bound Helion kernel, or plug into Helion.

Nothing here benchmarks, and nothing here can break a compile: whatever fails in us,
the answer is Helion's own default with a reason code. One `Provider` owns one model,
loaded once; picks are pure functions of kernel, shapes, GPU and model file, so every
rank and every restart gets the same config.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodel import helion_hook
from costmodel.candidates import make_candidates
from costmodel.errors import CostModelError
from costmodel.errors import ModelNotFoundError
from costmodel.errors import SchemaMismatchError
from costmodel.errors import UnreadableKernelError
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.hardware import match_hardware
from costmodel.hybrid import choose
from costmodel.learned import LearnedModel
from costmodel.learned import bundled_model_path
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

log = logging.getLogger("costmodel")

DISABLE_VARIABLE = "COSTMODEL_DISABLE"
MODEL_VARIABLE = "COSTMODEL_MODEL"


def is_disabled() -> bool:
    """True where the environment switches everything of ours off."""
    return os.environ.get(DISABLE_VARIABLE, "").lower() in {"1", "true", "yes", "on"}


class Provider:
    """One model and the counters of what it answered.

    Args:
        model_path: A published model (`.ubj`, with its card beside it); None means
            `COSTMODEL_MODEL`, else the model bundled with the package.
    """

    def __init__(self, model_path: str | os.PathLike[str] | None = None) -> None:
        self._path = model_path
        self._lock = threading.Lock()
        self._loaded = False
        self._model: LearnedModel | None = None
        self._model_problem: tuple[ReasonCode, str] | None = None
        self._counts: Counter[ReasonCode] = Counter()
        self._announced: set[str] = set()

    @property
    def model_path(self) -> Path:
        """Where the model is read from."""
        chosen = self._path or os.environ.get(MODEL_VARIABLE) or bundled_model_path()
        return Path(chosen)

    def model(self) -> LearnedModel | None:
        """The model, loaded on first use; None where it cannot be used."""
        with self._lock:
            if not self._loaded:
                self._load()
                self._loaded = True
            return self._model

    def model_problem(self) -> tuple[ReasonCode, str] | None:
        """Why there is no usable model, or None."""
        self.model()
        return self._model_problem

    def _load(self) -> None:
        try:
            self._model = LearnedModel.load(self.model_path)
        except ModelNotFoundError as error:
            self._model_problem = (ReasonCode.NO_MODEL, str(error))
        except SchemaMismatchError as error:
            self._model_problem = (ReasonCode.MODEL_REFUSED, str(error))
        except Exception as error:
            # A damaged file can fail anywhere in xgboost; it must not fail a compile.
            reason = f"{self.model_path}: {type(error).__name__}: {_one_line(error)}"
            self._model_problem = (ReasonCode.MODEL_REFUSED, reason)

    def pick(self, bound: Any, args: Sequence[object] | None = None) -> Pick:
        """Choose a config for a bound kernel; never raises, never benchmarks.

        Args:
            bound: What `kernel.bind(args)` returned.
            args: The call's arguments; only their shapes and dtypes are read.

        Returns:
            The config with its source, reason, predicted gain and runner-up.
        """
        try:
            answer = self._pick(bound, args)
        except UnreadableKernelError as error:
            answer = _default_pick(bound, ReasonCode.UNKNOWN_KERNEL, _one_line(error))
        except Exception as error:
            # The promise to never break a user's compile outranks the rule to let
            # programming errors surface; COSTMODEL_STRICT=1 turns it round for tests.
            if os.environ.get("COSTMODEL_STRICT") == "1":
                raise
            log.debug("costmodel failed", exc_info=True)
            detail = f"{type(error).__name__}: {_one_line(error)}"
            code = (
                ReasonCode.UNKNOWN_KERNEL
                if isinstance(error, CostModelError)
                else ReasonCode.INTERNAL_ERROR
            )
            answer = _default_pick(bound, code, detail)
        self._count(bound, answer)
        return answer

    def _pick(self, bound: Any, args: Sequence[object] | None) -> Pick:
        if is_disabled():
            return _default_pick(
                bound, ReasonCode.DISABLED, f"{DISABLE_VARIABLE} is set"
            )
        refusal = helion_hook.refusal(bound)
        if refusal is not None:
            return _default_pick(bound, refusal.code, refusal.detail)
        view = helion_hook.view(bound, args)
        model, problem = self.model(), self._model_problem
        if model is None:
            # A failure of ours, and the answer to those is always Helion's default.
            return _default_pick(bound, *(problem or (ReasonCode.NO_MODEL, "none")))
        match = match_hardware(view.record.hardware, trained=model.card.hardware)
        if match.hardware.compute_capability == (0, 0):
            return _default_pick(bound, ReasonCode.UNKNOWN_GPU, match.why)
        scorer: LearnedModel | None = model
        if match.kind == "fallback":
            # Timings do not carry over to another architecture; its limits do.
            scorer, problem = None, (ReasonCode.OUT_OF_RANGE, match.why)
        graph = KernelGraph.from_record(view.record)
        extractor = FeatureExtractor(graph, match.hardware)
        candidates = make_candidates(view, helion_hook.space(bound), extractor)
        legal = [
            candidate
            for index, candidate in enumerate(candidates)
            if index == 0 or helion_hook.is_legal(bound, candidate.config)
        ]
        return choose(
            extractor,
            legal,
            model=scorer,
            model_problem=problem,
            promoted=view.promoted,
        )

    def _count(self, bound: Any, answer: Pick) -> None:
        with self._lock:
            self._counts[answer.reason] += 1
            name = str(getattr(getattr(bound, "kernel", None), "name", "kernel"))
            line = (
                f"costmodel: {name}: {answer.source.value} "
                f"({answer.reason.value}): {answer.detail}"
            )
            if line in self._announced or len(self._announced) > 10_000:
                return
            self._announced.add(line)
        ours = answer.reason in {ReasonCode.INTERNAL_ERROR, ReasonCode.MODEL_REFUSED}
        log.log(logging.WARNING if ours else logging.INFO, line)

    def stats(self) -> dict[str, int]:
        """How often each reason decided, by reason code."""
        with self._lock:
            return {code.value: n for code, n in sorted(self._counts.items())}


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _default_pick(bound: Any, reason: ReasonCode, detail: str) -> Pick:
    config = helion_hook.default_config(bound)
    return Pick(
        config=config,
        source=PickSource.DEFAULT,
        reason=reason,
        detail=detail,
        default=config,
    )


_PROVIDER: Provider | None = None
_PROVIDER_LOCK = threading.Lock()


def default_provider() -> Provider:
    """The process-wide provider, made on first use."""
    global _PROVIDER
    with _PROVIDER_LOCK:
        if _PROVIDER is None:
            _PROVIDER = Provider()
        return _PROVIDER


def pick(bound: Any, args: Sequence[object] | None = None) -> Pick:
    """Choose a config for a bound Helion kernel at compile time, with no benchmark.

    Example:
        >>> bound = my_kernel.bind((x, y))
        >>> answer = costmodel.pick(bound)
        >>> answer.config, answer.source, answer.detail

    Args:
        bound: What `kernel.bind(args)` returned.
        args: The call's arguments; only shapes and dtypes are read.

    Returns:
        A `Pick`. On any failure of ours it holds Helion's default and says why.
    """
    return default_provider().pick(bound, args)


def autotuner(
    model_path: str | os.PathLike[str] | None = None,
) -> Callable[..., Any]:
    """Make an `autotuner_fn` that answers with the predicted config.

    Example:
        >>> @helion.kernel(autotuner_fn=costmodel.autotuner())
        ... def my_kernel(x: torch.Tensor) -> torch.Tensor: ...

    The kernel runs with the predicted config and never benchmarks. With
    `static_shapes=False` the first shape a kernel sees decides.

    Args:
        model_path: A published model; None means `COSTMODEL_MODEL`, else the bundled
            one.

    Returns:
        A function for Helion's `autotuner_fn` setting.
    """
    owner = Provider(model_path) if model_path is not None else None

    def decide(bound: Any, args: Sequence[object]) -> Config:
        return (owner or default_provider()).pick(bound, args).config

    return helion_hook.make_autotuner(decide)


def stats() -> dict[str, int]:
    """How often each reason decided in this process, by reason code."""
    return default_provider().stats()
