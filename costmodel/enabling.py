"""Answer for every kernel of a process, with no change to any of them.

`enable` puts one wrapper where Helion decides on a config, `disable` takes it away.
Who may answer in which situation is one pure function, `plan_for`; docs/plug-in.md
prints it as a table.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from costmodel import helion_hook
from costmodel.errors import KernelFileError
from costmodel.errors import WrongArgumentError
from costmodel.frozen import dataclass
from costmodel.modes import Answerer
from costmodel.modes import Mode
from costmodel.modes import mode_of
from costmodel.process_provider import provider_for
from costmodel.provider import STRICT_VARIABLE
from costmodel.provider import is_disabled
from costmodel.ranking import pick_from_list
from costmodel.types import Config
from costmodel.types import ReasonCode

log = logging.getLogger("costmodel")


class Action(enum.Enum):
    """Whose turn it is."""

    LEAVE = "Helion does what it would do without us"
    ANSWER = "we answer"
    ORDER = "we choose from the author's list"


@dataclass(frozen=True, slots=True)
class Plan:
    """Whose turn it is, whether the GPU may be used, and why."""

    action: Action
    may_measure: bool = False
    why: str = ""


def plan_for(
    situation: helion_hook.Situation,
    *,
    user_lists: bool,
    any_autotuner: bool = False,
) -> Plan:
    """Whose turn it is.

    Args:
        situation: What Helion would do.
        user_lists: Whether kernels with a list of configs are ours too.
        any_autotuner: Whether kernels with an autotuner of their own are ours too.
    """
    why = _not_ours(situation, any_autotuner)
    if why is not None:
        return Plan(Action.LEAVE, why=why)
    may_measure = situation.effort != "none" and not situation.is_disallowed
    if situation.n_user_configs > 1:
        if not user_lists:
            return Plan(Action.LEAVE, why="the kernel lists its configs")
        return Plan(Action.ORDER, may_measure=not situation.is_disallowed)
    return Plan(Action.ANSWER, may_measure)


def _not_ours(situation: helion_hook.Situation, any_autotuner: bool) -> str | None:
    if situation.is_reference:
        return "the kernel runs in Helion's interpret mode"
    if situation.backend != "triton":
        return f"the kernel uses the backend {situation.backend}"
    if situation.is_forced:
        return "a search is forced"
    if situation.n_user_configs == 1:
        return "the kernel names its config"
    if situation.effort == "none" or situation.n_user_configs > 1:
        return None  # Helion asks no autotuner there, so what follows is not consulted
    if not situation.is_default_autotuner:
        if any_autotuner:
            return None  # what follows is about Helion's own search
        return "the kernel has an autotuner of its own"
    if situation.asserts_cache_hit:
        return "a missing cache entry shall be an error"
    if situation.hands_off:
        return "the search is handed to an agent"
    if situation.aot_mode in ("collect", "measure", "compile"):
        return f"Helion's AOT workflow is in mode {situation.aot_mode}"
    return None


def enable(
    mode: Mode | str = Mode.PREDICT,
    *,
    model_path: str | os.PathLike[str] | None = None,
    user_lists: bool = False,
    verify_output: bool = False,
) -> None:
    """Answer for kernels that use Helion's default autotuner, or effort "none".

    Kernels that already run with a config keep it. Where Helion is not imported yet
    this waits for its import. Calling it again replaces the former call's options.

    Args:
        mode: One of "predict", "code", "verify", "seed"; nothing is measured at effort
            "none".
        model_path: A published model; None means `COSTMODEL_MODEL`, else the bundled
            one.
        user_lists: Also choose for kernels with `configs=[a, b, ...]`.
        verify_output: As for `costmodel.autotuner`.

    Raises:
        ValueError: There is no such mode.
    """
    helion_hook.install(
        make_decider(
            mode,
            model_path=model_path,
            user_lists=user_lists,
            verify_output=verify_output,
        )
    )


def disable() -> None:
    """Take `enable` back: Helion's function returns, and configs of ours are dropped.

    A kernel that runs with one is asked anew by Helion at its next call; call this
    while no kernel is running in another thread.
    """
    helion_hook.uninstall()


@contextlib.contextmanager
def override(
    *kernels: Any,
    mode: Mode | str = Mode.PREDICT,
    model_path: str | os.PathLike[str] | None = None,
    user_lists: bool = False,
    verify_output: bool = False,
) -> Iterator[None]:
    """Answer for these kernels alone, also where they have an autotuner of their own.

    For kernels that are somebody else's: their settings are not touched. A config that
    a kernel has already is laid aside, so that it asks again, and comes back at the
    end; a kernel that names its config in `config=` keeps it. Overrides may be nested,
    and one for a kernel comes before `enable`. No kernel of these may be running in
    another thread while the block begins or ends.

    Example:
        >>> with costmodel.override(engine.ops.rms_norm_kernel):
        ...     engine.warm_up()

    Args:
        kernels: What `helion.kernel` returned.
        mode: As for `enable`.
        model_path: As for `enable`.
        user_lists: As for `enable`.
        verify_output: As for `enable`.

    Raises:
        KernelFileError: One of them is no Helion kernel.
        WrongArgumentError: No kernel is named.
        ValueError: There is no such mode.
    """
    for one in kernels:
        if not helion_hook.is_kernel(one):
            raise KernelFileError(
                f"expected what helion.kernel returned, found {type(one).__name__}: "
                "name the kernel object inside the wrapper"
            )
    decide = make_decider(
        mode,
        model_path=model_path,
        user_lists=user_lists,
        verify_output=verify_output,
        any_autotuner=True,
    )
    if not kernels:
        raise WrongArgumentError(
            "expected the kernels to answer for, found none: "
            "costmodel.override(my_kernel), or costmodel.enable() for all"
        )
    with contextlib.ExitStack() as stack:
        for one in kernels:
            stack.callback(helion_hook.install_for(one, decide))
        yield


def make_decider(
    mode: Mode | str = Mode.PREDICT,
    *,
    model_path: str | os.PathLike[str] | None = None,
    user_lists: bool = False,
    verify_output: bool = False,
    any_autotuner: bool = False,
) -> helion_hook.Decide:
    """What Helion's dispatch asks while we are enabled.

    Arguments as for `enable`, and whether kernels with an autotuner of their own are
    answered for too.
    """
    owner = provider_for(model_path) if model_path is not None else None
    answerer = Answerer(mode_of(mode), owner, verify_output=verify_output)
    return _Decider(answerer, user_lists, any_autotuner)


class _Decider:
    """What the wrapper asks."""

    def __init__(
        self, answerer: Answerer, user_lists: bool, any_autotuner: bool
    ) -> None:
        self._answerer = answerer
        self._user_lists = user_lists
        self._any_autotuner = any_autotuner
        self._said = False

    def __call__(self, bound: Any, args: Sequence[object]) -> Config | None:
        try:
            return self._decide(bound, args)
        except Exception:
            if os.environ.get(STRICT_VARIABLE) == "1":
                raise
            log.warning("costmodel failed; Helion goes on alone", exc_info=True)
            return None

    def _decide(self, bound: Any, args: Sequence[object]) -> Config | None:
        if is_disabled():
            self._leave(bound, "switched off")
            return None
        refusal = helion_hook.refusal(bound)
        if refusal is not None:
            if refusal.code is ReasonCode.UNSUPPORTED_HELION and not self._said:
                self._said = True
                log.info("costmodel: Helion goes on alone: %s", refusal.detail)
            self._leave(bound, refusal.detail)
            return None
        situation = helion_hook.situation_of(bound)
        plan = plan_for(
            situation,
            user_lists=self._user_lists,
            any_autotuner=self._any_autotuner,
        )
        if plan.action is Action.LEAVE:
            self._leave(bound, plan.why)
            return None
        if plan.action is Action.ORDER:
            return pick_from_list(
                self._answerer, bound, args, may_measure=plan.may_measure
            )
        with_descriptors = (
            situation.effort != "none" or helion_hook.can_guard_descriptors(bound)
        )
        return self._answerer.answer(
            bound,
            args,
            may_measure=plan.may_measure,
            with_descriptors=with_descriptors,
        ).config

    def _leave(self, bound: Any, why: str) -> None:
        log.debug("costmodel: %s left to Helion: %s", bound.kernel.name, why)
        self._answerer.provider.count_reason(ReasonCode.STEPPED_ASIDE)
