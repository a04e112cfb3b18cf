"""Who answers for one bound Helion kernel, and what is counted and said about it.

Nothing here benchmarks, and nothing here can break a compile: whatever fails in us,
the answer is Helion's own default with a reason code. One `Provider` owns one model,
loaded once; picks are pure functions of kernel, shapes, GPU and model file, so every
rank and every restart gets the same config. An entry that Helion tuned comes before any
pick of ours; it is the one thing that is read from the machine.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from costmodel import helion_hook
from costmodel.acf.identity import KNOB
from costmodel.choosing import LookAgain
from costmodel.choosing import choose_for
from costmodel.errors import CostModelError
from costmodel.errors import ModelNotFoundError
from costmodel.errors import SchemaMismatchError
from costmodel.errors import UnknownHardwareError
from costmodel.errors import UnreadableKernelError
from costmodel.hybrid import SHORTLIST_LENGTH
from costmodel.learned import LearnedModel
from costmodel.learned import bundled_model_path
from costmodel.pick_cache import Missing
from costmodel.pick_cache import PickCache
from costmodel.pick_cache import arguments_key
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

if TYPE_CHECKING:
    from costmodel.code_model import CodeModel
    from costmodel.features.extract import FeatureExtractor

log = logging.getLogger("costmodel")

DISABLE_VARIABLE = "COSTMODEL_DISABLE"
MODEL_VARIABLE = "COSTMODEL_MODEL"
STRICT_VARIABLE = "COSTMODEL_STRICT"

DEFAULT_TOP = 16
"""Configs to compile where code is looked at; eight lose winners (design notes)."""


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
        self._second: CodeModel | None = None
        self._counts: Counter[ReasonCode] = Counter()
        self._announced: weakref.WeakKeyDictionary[Any, set[int]] = (
            weakref.WeakKeyDictionary()
        )
        self._answers = PickCache()
        _PROVIDERS.add(self)

    @property
    def model_path(self) -> Path:
        """Where the model is read from."""
        chosen = self._path or os.environ.get(MODEL_VARIABLE)
        if not chosen:
            return bundled_model_path()
        from costmodel.remote_model import is_remote
        from costmodel.remote_model import local_model

        return local_model(os.fspath(chosen)) if is_remote(chosen) else Path(chosen)

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

    def pick(
        self,
        bound: Any,
        args: Sequence[object] | None = None,
        *,
        verify: str | None = None,
        top: int = DEFAULT_TOP,
    ) -> Pick:
        """Choose a config for a bound kernel; never benchmarks, and never fails it.

        A pure function: nothing that was tuned on this machine is looked at.

        Args:
            bound: What `kernel.bind(args)` returned.
            args: The call's arguments; only their shapes and dtypes are read.
            verify: "compile" to compile the choice for its GPU in a child process, and
                to take the next one where that fails or spills heavily; "code" to
                compile the best few and choose again by their machine code.
            top: Choices to compile at most.

        Returns:
            The config with its source, reason, predicted gain and runner-up.

        Raises:
            ValueError: `verify` is something else.
        """
        asks: dict[str | None, Callable[[], Pick]] = {
            None: lambda: self._pick(bound, args),
            "compile": lambda: self._compiled(bound, args, top),
            "code": lambda: self._seen(bound, args, top),
        }
        if verify not in asks:
            raise ValueError(
                f"expected verify=None, 'compile' or 'code', found {verify!r}"
            )
        kind, ask = f"pick {verify} {top}", asks[verify]
        found = self._remembered(bound, args, kind, ask)
        self.count(bound, found)
        return found

    def _compiled(
        self,
        bound: Any,
        args: Sequence[object] | None,
        top: int,
        neighbours: Sequence[Config] = (),
        with_descriptors: bool = True,
    ) -> Pick:
        """The pick, once a compiler has accepted it."""
        from costmodel.verified import verified_live

        def choose_without(refused: frozenset[str]) -> Pick:
            return self._pick(
                bound,
                args,
                neighbours,
                with_descriptors=with_descriptors,
                without=refused,
            )

        first = choose_without(frozenset())
        return verified_live(bound, args, first, choose_without, top)

    def _seen(
        self,
        bound: Any,
        args: Sequence[object] | None,
        top: int,
        neighbours: Sequence[Config] = (),
        with_descriptors: bool = True,
    ) -> Pick:
        """The pick by what the best few compile to; else one that compiles."""
        from costmodel.second_stage import second_look_live

        model, code_model = self.model(), self._code_model()
        if model is None or code_model is None:
            return self._compiled(bound, args, top, neighbours, with_descriptors)
        looked: list[Pick] = []

        def look_again(extractor: FeatureExtractor, answer: Pick) -> Pick:
            found = second_look_live(
                bound, args, extractor, answer, model, code_model, top
            )
            looked.extend([] if found is None else [found])
            return answer if found is None else found

        answer = self._pick(
            bound,
            args,
            neighbours,
            with_descriptors=with_descriptors,
            n_shortlist=top + 1,
            look_again=look_again,
        )
        if looked:
            return answer
        return self._compiled(bound, args, top, neighbours, with_descriptors)

    def _code_model(self) -> CodeModel | None:
        """The second stage beside the model, or None where it has none."""
        from costmodel.code_model import CodeModel

        with self._lock:
            if self._second is None and self._model is not None:
                try:
                    self._second = CodeModel.load(self.model_path, self._model.model_id)
                except CostModelError as error:
                    log.debug("no second stage: %s", error)
            return self._second

    def answer(
        self,
        bound: Any,
        args: Sequence[object] | None = None,
        *,
        with_descriptors: bool = True,
        look_at_code: bool = False,
    ) -> Pick:
        """What `pick` says, with configs tuned for other shapes among the candidates.

        Not counted yet: a measurement may follow.

        Args:
            bound: What `kernel.bind(args)` returned.
            args: The call's arguments; only their shapes and dtypes are read.
            with_descriptors: Whether configs with tensor descriptors may be answered.
            look_at_code: Whether the best few are compiled and chosen from by their
                machine code, as `pick(verify="code")` does.
        """
        kind = f"answer {with_descriptors} {look_at_code}"
        if look_at_code:
            return self._remembered(
                bound,
                args,
                kind,
                lambda: self._seen(
                    bound,
                    args,
                    DEFAULT_TOP,
                    helion_hook.neighbour_configs(bound),
                    with_descriptors,
                ),
            )
        return self._remembered(
            bound,
            args,
            kind,
            lambda: self._pick(
                bound,
                args,
                helion_hook.neighbour_configs(bound),
                with_descriptors=with_descriptors,
            ),
        )

    def tuned(self, bound: Any, args: Sequence[object] | None = None) -> Pick | None:
        """What is written down for this kernel and shape, or None; not counted yet.

        Helion's exact tuned entry, else what `costmodel export` chose.
        """
        if is_disabled():
            return None
        key = ("tuned", helion_hook.tuned_epoch(), arguments_key(args))
        found = self._answers.get(bound, key)
        if isinstance(found, Missing):
            found = _tuned_pick(bound, args)
            if found is not None and found.config.get(KNOB):
                found = self._with_controls_of_here(bound, found)
            self._answers.put(bound, key, found)
        return found

    def _with_controls_of_here(self, bound: Any, found: Pick) -> Pick:
        """The pick with its control file as it lies here, or without, saying why."""
        from costmodel.acf.resolving import resolved

        config, problem = resolved(bound, found.config)
        if problem is None:
            return replace(found, config=config)
        reason, words = problem
        self.count_reason(reason)
        log.warning("costmodel: no control file (%s): %s", reason.value, words)
        return replace(found, config=config, detail=f"{found.detail}; {words}")

    def _remembered(
        self,
        bound: Any,
        args: Sequence[object] | None,
        kind: str,
        ask: Callable[[], Pick],
    ) -> Pick:
        key = (kind, is_disabled(), arguments_key(args), _rules_key(bound))
        known = self._answers.get(bound, key)
        if known is None or isinstance(known, Missing):
            known = self._guarded(bound, ask)
            if known.reason is not ReasonCode.INTERNAL_ERROR:
                self._answers.put(bound, key, known)
        return known

    def _guarded(self, bound: Any, ask: Callable[[], Pick]) -> Pick:
        """The answer, or Helion's default where asking for it fails."""
        try:
            with helion_hook.device_of(bound):
                return ask()
        except UnreadableKernelError as error:
            return default_pick(bound, ReasonCode.UNKNOWN_KERNEL, _one_line(error))
        except UnknownHardwareError as error:
            return default_pick(bound, ReasonCode.UNKNOWN_GPU, _one_line(error))
        except Exception as error:
            # The promise to never break a user's compile outranks the rule to let
            # programming errors surface; COSTMODEL_STRICT=1 turns it round for tests.
            if os.environ.get(STRICT_VARIABLE) == "1":
                raise
            log.debug("costmodel failed", exc_info=True)
            detail = f"{type(error).__name__}: {_one_line(error)}"
            code = (
                ReasonCode.UNKNOWN_KERNEL
                if isinstance(error, CostModelError)
                else ReasonCode.INTERNAL_ERROR
            )
            return default_pick(bound, code, detail)

    def _pick(
        self,
        bound: Any,
        args: Sequence[object] | None,
        neighbours: Sequence[Config] = (),
        *,
        with_descriptors: bool = True,
        without: frozenset[str] = frozenset(),
        n_shortlist: int = SHORTLIST_LENGTH,
        look_again: LookAgain | None = None,
    ) -> Pick:
        if is_disabled():
            return default_pick(
                bound, ReasonCode.DISABLED, f"{DISABLE_VARIABLE} is set"
            )
        refusal = helion_hook.refusal(bound)
        if refusal is not None:
            return default_pick(bound, refusal.code, refusal.detail)
        model = self.model()
        if model is None:
            # A failure of ours, and the answer to those is always Helion's default.
            problem = self._model_problem or (ReasonCode.NO_MODEL, "none")
            return default_pick(bound, *problem)
        return choose_for(
            bound,
            args,
            model,
            neighbours,
            with_descriptors=with_descriptors,
            without=without,
            n_shortlist=n_shortlist,
            look_again=look_again,
        )

    def count(self, bound: Any, answer: Pick) -> None:
        """Count an answer; say it once for each kernel, at INFO, or WARNING if ours."""
        ours = answer.reason in {ReasonCode.INTERNAL_ERROR, ReasonCode.MODEL_REFUSED}
        level = logging.WARNING if ours else logging.INFO
        kernel = getattr(helion_hook.underlying(bound), "kernel", None)
        with self._lock:
            self._counts[answer.reason] += 1
            if kernel is None:
                return
            said = self._announced.setdefault(kernel, set())
            if level in said:
                return
            said.add(level)
        gain = ""
        if answer.predicted_speedup is not None and answer.predicted_speedup != 1.0:
            gain = f", {answer.predicted_speedup:.2f}x predicted"
        log.log(
            level,
            "costmodel: %s: %s (%s%s): %s",
            getattr(kernel, "name", "kernel"),
            answer.source.value,
            answer.reason.value,
            gain,
            answer.detail,
        )

    def count_reason(self, reason: ReasonCode) -> None:
        """Count without an answer: a kernel that was left to Helion."""
        with self._lock:
            self._counts[reason] += 1

    def stats(self) -> dict[str, int]:
        """How often each reason decided, by reason code."""
        with self._lock:
            return {code.value: n for code, n in sorted(self._counts.items())}

    def renew_locks(self) -> None:
        """In a forked child: a lock that another thread held there stays held."""
        self._lock = threading.Lock()
        self._answers = PickCache()


def _tuned_pick(bound: Any, args: Sequence[object] | None) -> Pick | None:
    if helion_hook.refusal(helion_hook.underlying(bound)) is not None:
        return None
    config = helion_hook.tuned_config(bound, args)
    if config is None:
        return _exported_pick(bound, args)
    return Pick(
        config=config,
        source=PickSource.TUNED,
        reason=ReasonCode.TUNED_ENTRY,
        detail="Helion tuned this kernel at this shape before",
    )


def _exported_pick(bound: Any, args: Sequence[object] | None) -> Pick | None:
    config = helion_hook.exported_config(bound, args)
    if config is None:
        return None
    return Pick(
        config=config,
        source=PickSource.LEARNED,
        reason=ReasonCode.EXPORTED,
        detail="costmodel export chose it for this kernel; nobody has timed it",
    )


def default_pick(bound: Any, reason: ReasonCode, detail: str) -> Pick:
    """Helion's default as an answer."""
    config = helion_hook.default_config(bound)
    return Pick(
        config=config,
        source=PickSource.DEFAULT,
        reason=reason,
        detail=detail,
        default=config,
    )


def _rules_key(bound: Any) -> Hashable:
    """What an author may change on a kernel between two questions."""
    settings = getattr(bound, "settings", None)
    return (
        id(getattr(settings, "autotune_config_filter", None)),
        id(getattr(settings, "autotune_config_overrides", None)),
        id(getattr(settings, "autotune_seed_configs", None)),
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


_PROVIDERS: weakref.WeakSet[Provider] = weakref.WeakSet()


def _renew_locks() -> None:
    for provider in list(_PROVIDERS):
        provider.renew_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
