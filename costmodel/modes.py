"""Three ways to answer for a kernel: predict, verify a few by measuring, seed a search.

The order is the same in all of them: what Helion tuned before, then the mode's answer,
and Helion's default wherever we fail. Measuring is Helion's own, with its correctness
check, timeouts and logs. What was predicted, or measured among a few, never enters
Helion's cache; what its own search found does.
"""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from costmodel import helion_hook
from costmodel.measured_choice import best_measured
from costmodel.measured_choice import configs_to_measure
from costmodel.measured_choice import search_share
from costmodel.provider import STRICT_VARIABLE
from costmodel.provider import Provider
from costmodel.provider import default_pick
from costmodel.provider import default_provider
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

log = logging.getLogger("costmodel")

# Answers that nothing may be built on: either there is no list of candidates, or the
# environment switched us off.
_OF_OURS = (PickSource.LEARNED, PickSource.ANALYTIC)


class Mode(enum.StrEnum):
    """How a kernel gets its config."""

    PREDICT = "predict"
    VERIFY = "verify"
    SEED = "seed"


class Answerer:
    """A mode with the model behind it.

    Args:
        mode: How to answer.
        provider: What predicts; None means the process-wide one.
        verify_output: Whether a pick's first result is compared with that of Helion's
            default, on copies of the arguments.
    """

    def __init__(
        self,
        mode: Mode | str = Mode.PREDICT,
        provider: Provider | None = None,
        *,
        verify_output: bool = False,
    ) -> None:
        self.mode = mode_of(mode)
        self._provider = provider
        self._verify_output = verify_output

    @property
    def provider(self) -> Provider:
        """What predicts and counts."""
        return self._provider or default_provider()

    def answer(
        self,
        bound: Any,
        args: Sequence[object],
        *,
        skip_cache: bool = False,
        may_measure: bool = True,
        with_descriptors: bool = True,
        options: Mapping[str, object] | None = None,
    ) -> Pick:
        """Answer for one kernel; never raises.

        Args:
            bound: The bound kernel, or Helion's adapter around it for a fused one.
            args: The call's arguments.
            skip_cache: Leave what Helion tuned before aside.
            may_measure: Whether the GPU may be used to decide.
            with_descriptors: Whether tensor descriptors may be answered.
            options: What the user passed to `kernel.autotune`.
        """
        kernel = helion_hook.underlying(bound)
        try:
            if not skip_cache:
                tuned = self.provider.tuned(bound, args)
                if tuned is not None:
                    return tuned
            pick = self.provider.answer(kernel, args, with_descriptors=with_descriptors)
            if may_measure and pick.shortlist and self.mode is Mode.VERIFY:
                pick = self._measured(bound, args, pick)
            elif may_measure and pick.shortlist and self.mode is Mode.SEED:
                pick = self._searched(bound, args, pick, skip_cache, options or {})
            if self._verify_output and pick.source in _OF_OURS:
                pick = self._with_checked_output(kernel, args, pick)
            return pick
        except Exception as error:
            return self._failed(kernel, ReasonCode.INTERNAL_ERROR, error)

    def _measured(self, bound: Any, args: Sequence[object], pick: Pick) -> Pick:
        configs = configs_to_measure(pick)
        if len(configs) < 2:
            return pick
        default = configs[0]
        try:
            timed = helion_hook.measure(bound, args, configs)
        except Exception as error:
            return self._failed(bound, ReasonCode.MEASURE_FAILED, error)
        best = best_measured(timed, default)
        if best is None:
            detail = f"none of {len(configs)} configs ran"
            return self._counted(
                bound, default_pick(bound, ReasonCode.MEASURE_FAILED, detail)
            )
        default_us = next(one.latency_us for one in timed if one.config == default)
        detail = (
            f"{best.latency_us:.1f} us, the best of {len(configs)} measured; "
            f"Helion's default took {default_us:.1f} us"
        )
        return self._counted(
            bound,
            replace(
                pick,
                config=dict(best.config),
                source=PickSource.MEASURED,
                reason=ReasonCode.MEASURED_BEST,
                detail=detail,
            ),
        )

    def _searched(
        self,
        bound: Any,
        args: Sequence[object],
        pick: Pick,
        skip_cache: bool,
        options: Mapping[str, object],
    ) -> Pick:
        share = search_share(pick)
        budget = helion_hook.SearchBudget(share, (pick.config, *pick.shortlist))
        try:
            config = helion_hook.seeded_search(
                bound, args, budget, skip_cache=skip_cache, **options
            )
        except Exception as error:
            return self._failed(bound, ReasonCode.MEASURE_FAILED, error)
        return self._counted(
            bound,
            replace(
                pick,
                config=config,
                source=PickSource.SEARCHED,
                reason=ReasonCode.SEARCHED,
                detail=(
                    f"Helion's search from {len(pick.shortlist)} candidates of ours, "
                    f"with {share:.0%} of its rounds"
                ),
            ),
        )

    def _with_checked_output(
        self, bound: Any, args: Sequence[object], pick: Pick
    ) -> Pick:
        reference = helion_hook.default_config(bound)
        if pick.config == reference:
            return pick
        objection = helion_hook.output_objection(bound, args, pick.config, reference)
        if objection is None:
            return pick
        return self._counted(
            bound, default_pick(bound, ReasonCode.OUTPUT_DIFFERS, objection)
        )

    def _failed(self, bound: Any, reason: ReasonCode, error: Exception) -> Pick:
        if os.environ.get(STRICT_VARIABLE) == "1":
            raise error
        log.debug("costmodel failed", exc_info=error)
        words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return self._counted(bound, default_pick(bound, reason, words))

    def _counted(self, bound: Any, pick: Pick) -> Pick:
        self.provider.count(bound, pick)
        return pick


def mode_of(mode: Mode | str) -> Mode:
    """The mode of that name.

    Raises:
        ValueError: There is none.
    """
    try:
        return Mode(mode)
    except ValueError:
        names = ", ".join(one.value for one in Mode)
        raise ValueError(f"expected a mode among {names}, found {mode!r}") from None


def autotuner(
    model_path: str | os.PathLike[str] | None = None,
    *,
    mode: Mode | str = Mode.PREDICT,
    verify_output: bool = False,
) -> Callable[..., Any]:
    """Make an `autotuner_fn` that answers in place of Helion's search.

    Example:
        >>> @helion.kernel(autotuner_fn=costmodel.autotuner())
        ... def my_kernel(x: torch.Tensor) -> torch.Tensor: ...

    `"predict"` never benchmarks. `"verify"` measures Helion's default and up to seven
    of our candidates and keeps the best. `"seed"` runs Helion's own search from our
    candidates, shortened to what is left to gain. With `static_shapes=False` the first
    shape a kernel sees decides.

    Args:
        model_path: A published model; None means `COSTMODEL_MODEL`, else the bundled
            one.
        mode: One of "predict", "verify", "seed".
        verify_output: Compare the first result of a predicted config with that of
            Helion's default, on copies of the arguments; the default where they differ.

    Returns:
        A function for Helion's `autotuner_fn` setting.

    Raises:
        ValueError: There is no such mode.
    """
    owner = Provider(model_path) if model_path is not None else None
    answerer = Answerer(mode, owner, verify_output=verify_output)

    def decide(
        bound: Any,
        args: Sequence[object],
        *,
        skip_cache: bool,
        options: dict[str, object],
    ) -> Config:
        found = answerer.answer(bound, args, skip_cache=skip_cache, options=options)
        return found.config

    return helion_hook.make_autotuner(decide)
