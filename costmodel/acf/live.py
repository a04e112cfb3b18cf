"""Control files for a live bound kernel: which there are, what they do, what to try.

Whatever is missing or does not fit, the answer is "none", with one log line and a
reason code. Nothing here raises.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

from costmodel import helion_hook
from costmodel.acf.catalogue import AcfCatalogue
from costmodel.acf.choice import PairBound
from costmodel.acf.choice import with_certain_pair
from costmodel.acf.choice import with_controls
from costmodel.acf.choice import worth_measuring
from costmodel.acf.effect_check import live_effects
from costmodel.acf.effects import Effect
from costmodel.acf.entry import PTXAS_STAGE
from costmodel.acf.entry import AcfEntry
from costmodel.acf.identity import KNOWN
from costmodel.acf.identity import record_name
from costmodel.acf.pairs import MOST_ACFS
from costmodel.acf.pairs import MOST_CONFIGS
from costmodel.acf.toolchain import find_ptxas
from costmodel.acf.toolchain import how_to_get
from costmodel.errors import NoAcfToolchainError
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.hardware import match_hardware
from costmodel.hybrid import canonical_text
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import ReasonCode

if TYPE_CHECKING:
    from costmodel.acf.pair_model import PairModel
    from costmodel.learned import LearnedModel

log = logging.getLogger("costmodel")


@dataclass(frozen=True, slots=True)
class Applicable:
    """Control files that may be tried on a kernel, or why there are none.

    Attributes:
        hardware: The kernel's GPU.
        paths: Where each file lies, by its id, in the catalogue's order.
        problem: Why files that are meant for it cannot be used.
    """

    hardware: Hardware | None
    paths: Mapping[str, str]
    problem: tuple[ReasonCode, str] | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """Pairs of a kernel's best few configs, compiled.

    Attributes:
        applicable: Files and GPU.
        effects: Of all pairs, configs best first; () where nothing applies.
        bounds: What a model of pairs says of them; None without one.
        problem: Why there are none although files are meant for the kernel.
    """

    applicable: Applicable
    effects: tuple[Effect, ...] = ()
    bounds: Mapping[tuple[str, str], PairBound] | None = None
    problem: tuple[ReasonCode, str] | None = None

    def to_measure(self) -> tuple[tuple[Config, Config], ...]:
        """The few pairs worth measuring: a config, and itself with a control file."""
        hardware, paths = self.applicable.hardware, self.applicable.paths
        if hardware is None:
            return ()
        return tuple(
            (one.pair.config, with_controls(one.pair.config, paths[acf_id]))
            for one in worth_measuring(self.effects, hardware, self.bounds)
            if (acf_id := one.pair.acf_id) is not None
        )


NOTHING = Tried(Applicable(None, {}))


def applicable(bound: Any, args: Sequence[object] | None = None) -> Applicable:
    """Control files for a bound kernel; no file at all is no problem.

    Args:
        bound: What Helion passed to its `autotuner_fn`.
        args: The call's arguments.
    """
    catalogue = AcfCatalogue.open()
    entries = catalogue.entries()
    if not entries:
        return Applicable(None, {})
    kernel = helion_hook.underlying(bound)
    hardware = match_hardware(helion_hook.record_of(kernel, args).hardware).hardware
    name = str(kernel.kernel.name)
    meant = [one for one in entries if one.applies(name, hardware)]
    listed = helion_hook.searched_controls(bound)
    if listed:
        named = {record_name(path) for path in listed}
        if not named <= {KNOWN + one.acf_id for one in meant}:
            return _none(
                ReasonCode.ACF_UNSUPPORTED,
                "the kernel's own list of control files holds some that the catalogue "
                "does not: Helion searches it as it is",
            )
        meant = [one for one in meant if KNOWN + one.acf_id in named]
    if not meant:
        return Applicable(hardware, {})
    objection = helion_hook.controls_objection(bound)
    if objection is not None:
        return _none(ReasonCode.ACF_UNSUPPORTED, objection)
    usable = _usable(catalogue, meant, name, hardware)
    if isinstance(usable, str):
        return _none(ReasonCode.ACF_TOOLCHAIN, usable)
    if not usable:
        stages = ", ".join(sorted({one.stage for one in meant}))
        words = f"expected control files of stage {PTXAS_STAGE}, found {stages}"
        return _none(ReasonCode.ACF_UNSUPPORTED, words)
    paths = {one.acf_id: str(catalogue.path(one.acf_id)) for one in usable}
    return Applicable(hardware, paths)


def _usable(
    catalogue: AcfCatalogue, meant: Sequence[AcfEntry], kernel: str, hardware: Hardware
) -> list[AcfEntry] | str:
    """Those that the ptxas here takes, or why none."""
    major, minor = hardware.compute_capability
    try:
        tool = find_ptxas(arch=major * 10 + minor)
    except NoAcfToolchainError as error:
        return str(error)
    wanted = {one.acf_id for one in meant}
    fitting = [
        one
        for one in catalogue.applicable(kernel, hardware, tool.version)
        if one.acf_id in wanted
    ]
    if not fitting:
        cudas = sorted({one.cuda for one in meant})
        return (
            f"expected ptxas {' or '.join(cudas)} for this kernel's control files, "
            f"found {tool.version}: {how_to_get(cudas[-1])}"
        )
    return [one for one in fitting if one.stage == PTXAS_STAGE][:MOST_ACFS]


def _none(reason: ReasonCode, words: str) -> Applicable:
    return Applicable(None, {}, (reason, words))


def tried(
    bound: Any,
    args: Sequence[object] | None,
    pick: Pick,
    model: PairModel | None = None,
) -> Tried:
    """Compile the best few configs of a pick with each control file; never raises.

    Args:
        bound: What Helion passed to its `autotuner_fn`.
        args: The call's arguments; only their types, shapes and strides are read.
        pick: A choice without control files.
        model: What judges pairs.
    """
    try:
        found = applicable(bound, args)
        if found.problem is not None:
            return _said(Tried(found, problem=found.problem))
        if not found.paths or found.hardware is None:
            return NOTHING
        configs = _best(pick)
        answers = live_effects(bound, args, found.hardware, configs, found.paths)
        effects = tuple(one for of_config in answers for one in of_config)
        bounds = None if model is None else model.bounds(effects, found.hardware)
        return Tried(found, effects, bounds)
    except Exception as error:  # a compile here, or a folder, may fail in any way
        log.debug("control files could not be tried", exc_info=True)
        words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        problem = (ReasonCode.ACF_UNSUPPORTED, f"not tried: {words}")
        return _said(Tried(Applicable(None, {}), problem=problem))


def _best(pick: Pick) -> list[Config]:
    """The pick and what follows in its ranking."""
    ranking = {canonical_text(one): one for one in (pick.config, *pick.shortlist)}
    return list(ranking.values())[:MOST_CONFIGS]


def _said(found: Tried) -> Tried:
    if found.problem is not None:
        _say_once(*found.problem)
    return found


@functools.lru_cache(maxsize=256)
def _say_once(reason: ReasonCode, words: str) -> None:
    log.warning("costmodel: no control file (%s): %s", reason.value, words)


def with_evidence(
    bound: Any,
    args: Sequence[object] | None,
    pick: Pick,
    model: LearnedModel,
    pair_model: PairModel,
) -> tuple[Pick, tuple[ReasonCode, str] | None]:
    """The pick with a control file that is certain to gain, without measuring.

    Args:
        bound: As of `tried`.
        args: As of `tried`.
        pick: A prediction without control files.
        model: What predicted it.
        pair_model: What judges pairs.

    Returns:
        The pick, and why no control file could be used, where some are meant for it.
    """
    found = tried(bound, args, pick, pair_model)
    if not found.effects or found.bounds is None:
        return pick, found.problem
    try:
        allowed = _allowed(bound, args, pick, model)
        paths = found.applicable.paths
        return with_certain_pair(
            pick, found.effects, found.bounds, paths, allowed
        ), None
    except Exception as error:  # the pick stands, whatever fails here
        log.debug("control files could not be judged", exc_info=True)
        return pick, (ReasonCode.ACF_UNSUPPORTED, str(error))


def _allowed(
    bound: Any, args: Sequence[object] | None, pick: Pick, model: LearnedModel
) -> frozenset[str]:
    """Configs of the shortlist that the first stage's gate would let through."""
    from costmodel.features.extract import FeatureExtractor
    from costmodel.features.graph import KernelGraph
    from costmodel.heuristics.listed import with_list

    if pick.default is None or not pick.shortlist_speedups:
        return frozenset()
    # Without a rule of Helion's no bound over its default means anything.
    if pick.reason is ReasonCode.OUT_OF_RANGE:
        return frozenset()
    if not helion_hook.view(bound, args).promoted:
        return frozenset()
    record = helion_hook.record_of(helion_hook.underlying(bound), args)
    hardware = match_hardware(record.hardware).hardware
    extractor = FeatureExtractor(KernelGraph.from_record(record), hardware)
    with_list(extractor, pick.default)
    features = extractor.matrix(list(pick.shortlist), pick.default)
    likely = model.mean(features).valid_probability
    kept = model.gate.allows_compiled(features, likely)
    return frozenset(
        canonical_text(config)
        for config, is_kept in zip(pick.shortlist, kept, strict=True)
        if is_kept
    )
