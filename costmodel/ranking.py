"""The order of a kernel author's own list of configs, best first by prediction."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodel import helion_hook
from costmodel.features.canonical import canonical_config
from costmodel.features.extract import FeatureExtractor
from costmodel.features.feasible import feasible
from costmodel.features.graph import KernelGraph
from costmodel.frozen import dataclass
from costmodel.hardware import match_hardware
from costmodel.heuristics.listed import with_list
from costmodel.hybrid import analytic_ranking
from costmodel.hybrid import canonical_text
from costmodel.hybrid import merit_of
from costmodel.measured_choice import MOST_MEASURED
from costmodel.modes import Answerer
from costmodel.modes import Mode
from costmodel.process_provider import check_bound
from costmodel.process_provider import provider_for
from costmodel.provider import STRICT_VARIABLE
from costmodel.provider import Provider
from costmodel.types import Candidate
from costmodel.types import CandidateOrigin
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode

log = logging.getLogger("costmodel")


@dataclass(frozen=True, slots=True)
class Ranked:
    """One config of a list, with its place by prediction.

    Attributes:
        config: As it was given.
        index: Where it stood in the list.
        runs: False where it is no config, or where Helion, the author's filter or the
            GPU's limits refuse it.
        predicted_speedup: Predicted default time / its time, or None.
        why: In words, where it does not run or nothing was predicted.
    """

    config: Any
    index: int
    runs: bool
    predicted_speedup: float | None
    why: str = ""


def rank(
    bound: Any,
    configs: Sequence[Any],
    args: Sequence[object] | None = None,
    *,
    model_path: str | os.PathLike[str] | None = None,
) -> tuple[Ranked, ...]:
    """Order configs by predicted time, those that cannot run last.

    Example:
        >>> best = costmodel.rank(my_kernel.bind(args), my_configs)[0].config

    Args:
        bound: What `kernel.bind(args)` returned.
        configs: `helion.Config` objects or dictionaries; fields may be missing.
        args: The call's arguments; only shapes and dtypes are read.
        model_path: A published model; None means `COSTMODEL_MODEL`, else the bundled
            one.

    Returns:
        All of them. Where nothing can be predicted, in the order given, saying why.
        No failure of ours raises.

    Raises:
        WrongArgumentError: `bound` is no bound kernel.
    """
    check_bound(bound)
    return ranked(provider_for(model_path), bound, configs, args)


def ranked(
    provider: Provider,
    bound: Any,
    configs: Sequence[Any],
    args: Sequence[object] | None,
) -> tuple[Ranked, ...]:
    """`rank` with a provider at hand."""
    try:
        refusal = helion_hook.refusal(bound)
        if refusal is not None:
            return _as_given(configs, refusal.detail)
        with helion_hook.device_of(bound):
            return _ranked(provider, bound, configs, args)
    except Exception as error:
        if os.environ.get(STRICT_VARIABLE) == "1":
            raise
        log.debug("costmodel: a list was not ordered", exc_info=True)
        return _as_given(configs, f"{type(error).__name__}: {error}")


def pick_from_list(
    answerer: Answerer, bound: Any, args: Sequence[object], *, may_measure: bool
) -> Config | None:
    """One of the configs that the kernel's author lists, or None to leave it to Helion.

    Predicted in mode "predict"; else the best eight by prediction are measured.
    """
    order = [
        one for one in ranked(answerer.provider, bound, bound.kernel.configs, args)
    ]
    usable = [one for one in order if one.runs]
    if not usable or usable[0].predicted_speedup is None:
        return None
    best = usable[0]
    detail = f"first of {len(order)} listed configs by prediction"
    if may_measure and answerer.mode in (Mode.VERIFY, Mode.SEED) and len(usable) > 1:
        first = [helion_hook.plain_config(one.config) for one in usable[:MOST_MEASURED]]
        timed = helion_hook.measure(bound, args, first)
        fastest = min(range(len(timed)), key=lambda place: timed[place].latency_us)
        best = usable[fastest]
        detail = f"fastest of {len(timed)} measured of {len(order)} listed configs"
    config = helion_hook.plain_config(best.config)
    answerer.provider.count(
        bound,
        Pick(
            config=config,
            source=PickSource.MEASURED if "measured" in detail else PickSource.LEARNED,
            reason=ReasonCode.USER_LIST,
            detail=detail,
            predicted_speedup=best.predicted_speedup,
        ),
    )
    return config


def _as_given(configs: Sequence[Any], why: str) -> tuple[Ranked, ...]:
    words = " ".join(why.split())[:300]
    given = [
        Ranked(config, index, not wrong, None, wrong or words)
        for index, config in enumerate(configs)
        for wrong in (_no_config(config),)
    ]
    return tuple(sorted(given, key=lambda one: not one.runs))


def _no_config(config: Any) -> str:
    """Why it cannot be a config of any kernel, or ""; Helion's are mappings."""
    if isinstance(config, Mapping):
        return ""
    return f"expected helion.Config or dict, found {type(config).__name__}"


def _ranked(
    provider: Provider,
    bound: Any,
    configs: Sequence[Any],
    args: Sequence[object] | None,
) -> tuple[Ranked, ...]:
    model = provider.model()
    if model is None:
        return _as_given(configs, (provider.model_problem() or ("", "no model"))[1])
    view = helion_hook.view(bound, args)
    match = match_hardware(view.record.hardware, trained=model.card.hardware)
    if match.kind == "fallback":
        return _as_given(configs, match.why)
    extractor = FeatureExtractor(KernelGraph.from_record(view.record), match.hardware)
    default = canonical_config(view.default)
    with_list(extractor, default)
    refused: list[Ranked] = []
    usable: list[tuple[int, Any, Config]] = []
    for index, config in enumerate(configs):
        full, why = _full(bound, config, default)
        if full is not None and not bool(feasible(extractor, [full])[0]):
            full, why = None, f"over a limit of {match.hardware.name}"
        if full is None:
            refused.append(Ranked(config, index, False, None, why))
        else:
            usable.append((index, config, full))
    if not usable:
        return tuple(refused)
    candidates = [
        Candidate(default, CandidateOrigin.DEFAULT),
        *(Candidate(full, CandidateOrigin.USER) for _i, _c, full in usable),
    ]
    fulls = [one.config for one in candidates]
    keys = [canonical_text(config) for config in fulls]
    features = extractor.matrix(fulls, default)
    scores = model.score(features)
    merit = merit_of(
        model.score,
        model.layout,
        features,
        scores,
        default_index=0,
        promoted=view.promoted,
        analytic_order=analytic_ranking(extractor, candidates, keys),
    )
    order = sorted(
        range(1, len(fulls)), key=lambda row: (-float(merit[row]), keys[row], row)
    )
    best_first = [
        Ranked(
            usable[row - 1][1],
            usable[row - 1][0],
            True,
            float(np.exp(np.float64(scores.gain_log[row]))),
        )
        for row in order
    ]
    return (*best_first, *refused)


def _full(bound: Any, config: Any, default: Config) -> tuple[Config | None, str]:
    """The config in full form, or why it does not run."""
    wrong = _no_config(config)
    if wrong:
        return None, wrong
    plain = (
        helion_hook.plain_value(config)
        if isinstance(config, dict)
        else helion_hook.plain_config(config)
    )
    ruled = helion_hook.under_user_rules(bound, plain)
    if ruled is None:
        return None, "the kernel's config filter refuses it"
    normalized = helion_hook.normalize(bound, ruled)
    if normalized is None:
        return None, "Helion's normalize refuses it"
    return canonical_config(normalized, default), ""
