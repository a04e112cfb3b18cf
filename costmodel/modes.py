"""Ways to answer for a kernel: predict, look at code, verify a few, seed a search.

The order is the same in all of them: what Helion tuned before, then the mode's answer,
and Helion's default wherever we fail. Measuring is Helion's own, with its correctness
check, timeouts and logs. What was predicted, or measured among a few, never enters
Helion's cache; what its own search found does.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from costmodel import helion_hook
from costmodel.acf.modes import ControlFiles
from costmodel.measuring import failed
from costmodel.measuring import measured
from costmodel.measuring import searched
from costmodel.measuring import with_checked_output
from costmodel.process_provider import default_provider
from costmodel.process_provider import provider_for
from costmodel.provider import Provider
from costmodel.provider import default_pick
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

# Sources whose configs nobody has run yet.
_PREDICTED = (PickSource.LEARNED, PickSource.ANALYTIC)


class Mode(enum.StrEnum):
    """How a kernel gets its config."""

    PREDICT = "predict"
    CODE = "code"
    VERIFY = "verify"
    SEED = "seed"


_MEASURING = (Mode.VERIFY, Mode.SEED)


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

    @property
    def _control_files(self) -> ControlFiles:
        return ControlFiles(self.provider)

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
            found = self._answer(
                bound, args, skip_cache, may_measure, with_descriptors, options or {}
            )
        except Exception as error:
            found = failed(kernel, ReasonCode.INTERNAL_ERROR, error)
        self.provider.count(bound, found)
        return found

    def _answer(
        self,
        bound: Any,
        args: Sequence[object],
        skip_cache: bool,
        may_measure: bool,
        with_descriptors: bool,
        options: Mapping[str, object],
    ) -> Pick:
        kernel = helion_hook.underlying(bound)
        known = None if skip_cache else self.provider.tuned(bound, args)
        if known is not None and known.source is PickSource.TUNED:
            return known
        capturing = helion_hook.is_capturing()
        measures = may_measure and not capturing and self.mode in _MEASURING
        # What was exported stays, as whoever rolled it out expects; but it was
        # predicted too, and where we may measure that counts for more.
        pick = known
        if pick is None or measures:
            pick = self.provider.answer(
                kernel,
                args,
                with_descriptors=with_descriptors,
                look_at_code=self.mode is Mode.CODE,
            )
        # A capture forbids to wait for the GPU, which a measurement has to.
        if may_measure and pick.shortlist and not capturing:
            if self.mode is Mode.VERIFY:
                pairs = self._control_files.to_measure(bound, args, pick)
                return measured(bound, args, pick, pairs)
            if self.mode is Mode.SEED:
                pairs = self._control_files.to_measure(bound, args, pick)
                return searched(bound, args, pick, skip_cache, options, pairs)
            pick = self._control_files.with_evidence(bound, args, pick)
        if pick.source not in _PREDICTED:
            return pick
        objection = helion_hook.codegen_objection(kernel, pick.config)
        if objection is not None:
            return default_pick(kernel, ReasonCode.COMPILE_REFUSED, objection)
        if self._verify_output and not capturing:
            return with_checked_output(kernel, args, pick)
        helion_hook.guard_first_run(
            kernel,
            pick.config,
            lambda: self.provider.count_reason(ReasonCode.LAUNCH_REFUSED),
        )
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

    `"predict"` never benchmarks. Nor does `"code"`, which compiles our best sixteen in
    child processes first and chooses by their machine code. `"verify"` measures
    Helion's default and up to seven of our candidates and keeps the best. `"seed"` runs
    Helion's own search from our candidates, shortened to what is left to gain. With
    `static_shapes=False` the first shape a kernel sees decides.

    Control files for ptxas that `costmodel acf add` keeps join where something is
    measured: up to four pairs with our best configs in `"verify"`, those files as the
    list that Helion searches in `"seed"`. The others return one only if the model was
    trained on enough logs with control files, and none otherwise.

    Args:
        model_path: A published model; None means `COSTMODEL_MODEL`, else the bundled
            one.
        mode: One of "predict", "code", "verify", "seed".
        verify_output: Compare the first result of a predicted config with that of
            Helion's default, on copies of the arguments; the default where they differ.

    Returns:
        A function for Helion's `autotuner_fn` setting.

    Raises:
        ValueError: There is no such mode.
    """
    owner = provider_for(model_path) if model_path is not None else None
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
