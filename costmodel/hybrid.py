"""Who decides: the learned pick if the gate passes, else Helion, else our analysis.

The order of answers (`docs/architecture.md`, "What never changes"):

1. the learned pick, where the gate believes its gain;
2. Helion's default, where Helion has a rule for the kernel;
3. our analytic pick, where it has none;
4. the default, where nothing else is left.

Everything here is pure: the same candidates, in whatever order, give the same pick.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import Protocol

import numpy as np

from costmodel.forest import Predictions
from costmodel.frozen import dataclass
from costmodel.gate import Decision
from costmodel.gate import Gate
from costmodel.gate import expected_gain_log
from costmodel.layout import RowLayout
from costmodel.ordering import LazyTexts
from costmodel.ordering import rising
from costmodel.scorer import Scorer
from costmodel.types import Candidate
from costmodel.types import CandidateOrigin
from costmodel.types import Config
from costmodel.types import FloatArray
from costmodel.types import Pick
from costmodel.types import PickSource
from costmodel.types import ReasonCode
from costmodel.types import Scores

if TYPE_CHECKING:
    from costmodel.features.extract import FeatureExtractor

# Analytic favourites that serve as references where Helion has no rule; each costs one
# more scoring of all candidates.
N_FAVOURITES = 5

# Analytic favourites among which a pick is made where Helion has no rule: about as many
# as our heuristics propose. On 26 such H200 workloads, families left out, picks among
# them were 0.15 to 0.25 above the best in logs, among all 0.20 to 0.44, of which most
# were failures (2026-11).
N_TRUSTED = 8

# An analytic pick that our own estimate puts at more than this many times the default's
# time is not taken. Of 92 recorded first proposals without a rule none was (the largest
# ratio, 1.27, was 1.45x faster); of kernels written later a proposal at 222 times was
# 17 times slower (H200, 2026-12).
_ABSURD_RATIO = 1.5

# How many of the best candidates a pick carries for whoever can measure a few: eight is
# Helion's own number of configs in a final confirmation (design notes, anchors 3).
SHORTLIST_LENGTH = 8


class GatedScorer(Scorer, Protocol):
    """A scorer with the gate that was calibrated for it."""

    @property
    def gate(self) -> Gate:
        """When its gains are believed."""
        ...

    @property
    def layout(self) -> RowLayout:
        """Column blocks of the rows that it scores."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """Which candidate, who chose it and why; indices into the candidates.

    Attributes:
        index: The candidate to use.
        source: Who decided.
        reason: Why, as a code.
        detail: Why, in words.
        order: All candidates but the default, in the order in which to measure them:
            best first by whoever ranked, a second opinion among the first two.
    """

    index: int
    source: PickSource
    reason: ReasonCode
    detail: str
    order: tuple[int, ...]


def canonical_text(config: Any) -> str:
    """One spelling per config, or per value of one, to break ties by."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"), default=str)


def _speller() -> Callable[[Config], str]:
    """`canonical_text` for many configs that share values, each spelled once."""
    # By identity; kept with their values, so that no other can take their place.
    pieces: dict[int, str] = {}
    kept: list[Any] = []
    forms: dict[tuple[str, ...], tuple[tuple[str, ...], str]] = {}

    def form_of(keys: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        ordered = tuple(sorted(keys))
        spelled = [canonical_text(key).replace("%", "%%") + ":%s" for key in ordered]
        forms[keys] = (ordered, "{" + ",".join(spelled) + "}")
        return forms[keys]

    def spell(config: Config) -> str:
        keys = tuple(config)
        ordered, form = forms.get(keys) or form_of(keys)
        values = [config[key] for key in ordered]
        try:
            return form % tuple([pieces[id(value)] for value in values])
        except KeyError:
            for value in values:
                if id(value) not in pieces:
                    kept.append(value)
                    pieces[id(value)] = canonical_text(value)
            return form % tuple([pieces[id(value)] for value in values])

    return spell


def merit_of(
    score: Callable[[FloatArray], Scores | Predictions],
    layout: RowLayout,
    features: FloatArray,
    scores: Scores | Predictions,
    *,
    default_index: int,
    promoted: bool,
    analytic_order: Sequence[int],
) -> FloatArray:
    """What candidates are ranked by: expected gain over a reference that is good.

    A model of pairs can compare with any reference, and was trained on good ones. Where
    Helion has a rule that is its default. Where it has none, its default is far from
    anything trained on, and our analytic favourites take its place, averaged: with a
    slow config playing the default of eight H200 workloads, families left out
    (2026-11), the best-ranked config was 0.12 in logs above the best measured, against
    0.37 with the slow config as reference and 0.14 by the analytic estimate alone.

    Args:
        score: Gains over the reference that the rows name.
        layout: Column blocks of the rows.
        features: float32[n, n_features] of the candidates, against the default.
        scores: Of the same rows.
        default_index: Candidate that is Helion's default.
        promoted: Whether Helion has a rule for this kernel.
        analytic_order: Candidates by our analytic estimate, best first.

    Returns:
        float32[n]; larger is better, comparable within the workload only.
    """
    favourites = [i for i in analytic_order if i != default_index][:N_FAVOURITES]
    if promoted or not favourites:
        return expected_gain_log(scores)
    total = np.zeros(len(features), dtype=np.float32)
    for reference in favourites:
        rows = layout.against(features, features[reference])
        total += expected_gain_log(score(rows))
    return total / np.float32(len(favourites))


def decide(
    features: FloatArray,
    scores: Scores | None,
    merit: FloatArray | None,
    gate: Gate | None,
    *,
    default_index: int,
    promoted: bool,
    analytic_order: Sequence[int],
    keys: Sequence[str],
    model_problem: tuple[ReasonCode, str] | None = None,
    estimate_us: Callable[[Sequence[int]], Any] | None = None,
) -> Choice:
    """Decide on arrays alone; serving and evaluation both end here.

    Args:
        features: float32[n, len(SCHEMA)] of the candidates.
        scores: Of the same rows; None without a model.
        merit: float32[n] from `merit_of`; None without a model.
        gate: When to believe the scores; None without a model.
        default_index: Candidate that is Helion's default.
        promoted: Whether Helion has a rule for this kernel.
        analytic_order: Candidates by our analytic estimate, best first.
        keys: Canonical text of each candidate.
        model_problem: Why there is no model, to be repeated in the answer.
        estimate_us: Estimated times of candidates by index, float64[k]; without it no
            analytic pick is doubted.
    """
    others = tuple(i for i in analytic_order if i != default_index)
    if scores is None or merit is None or gate is None:
        code, words = model_problem or (ReasonCode.NO_MODEL, "no model")
        decision = Decision(None, code, words, others)
    else:
        decision = gate.decide(
            features,
            scores,
            merit,
            default_index=default_index,
            favourites=others[:N_TRUSTED],
            promoted=promoted,
            keys=keys,
        )
    reason, detail = decision.reason, decision.detail
    order = _with_second_opinion(decision.order, others)
    if decision.index is not None:
        is_default = decision.index == default_index
        source = PickSource.DEFAULT if is_default else PickSource.LEARNED
        return Choice(decision.index, source, reason, detail, order)
    if promoted or not others:
        detail += "; Helion's default stays"
        return Choice(default_index, PickSource.DEFAULT, reason, detail, order)
    first = _not_absurd(others[:N_TRUSTED], default_index, estimate_us)
    if first is None:
        detail += "; our estimate puts every analytic pick far above Helion's default"
        return Choice(default_index, PickSource.DEFAULT, reason, detail, order)
    detail += "; Helion has no rule for this kernel, so the analytic pick is used"
    return Choice(first, PickSource.ANALYTIC, reason, detail, order)


def _not_absurd(
    favourites: Sequence[int],
    default_index: int,
    estimate_us: Callable[[Sequence[int]], Any] | None,
) -> int | None:
    """The first favourite that our own estimate does not put far above the default."""
    if estimate_us is None:
        return favourites[0]
    default_us, *ours_us = estimate_us([default_index, *favourites])
    return next(
        (
            index
            for index, time_us in zip(favourites, ours_us, strict=True)
            if time_us <= _ABSURD_RATIO * default_us
        ),
        None,
    )


def _with_second_opinion(
    order: Sequence[int], analytic: Sequence[int]
) -> tuple[int, ...]:
    """The order of whoever ranked, our first analytic proposal no later than second.

    Model and list err on different kernels: after measuring the default and three, 91 %
    of the log headroom was found so, 83 % by the model alone and 87 % by the list alone
    (311 H200 workloads that Helion has a rule for, families left out, 2026-11).
    """
    if not analytic or analytic[0] in order[:2]:
        return tuple(order)
    rest = [i for i in order if i != analytic[0]]
    return (*rest[:1], analytic[0], *rest[1:])


def choose(
    extractor: FeatureExtractor,
    candidates: Sequence[Candidate],
    *,
    model: GatedScorer | None,
    promoted: bool,
    default_index: int = 0,
    analytic_order: Sequence[int] | None = None,
    model_problem: tuple[ReasonCode, str] | None = None,
    n_shortlist: int = SHORTLIST_LENGTH,
) -> Pick:
    """Pick one of the candidates and say why.

    Args:
        extractor: Features of the workload.
        candidates: Feasible configs of it, Helion's default among them.
        model: What scores them, with its gate; None means no usable model.
        promoted: Whether Helion has a rule for this kernel.
        default_index: Where the default is.
        analytic_order: Candidates by analytic merit, best first; None means those that
            the analytic heuristics proposed, as listed, then by estimated time.
        model_problem: Why there is no model.
        n_shortlist: Configs that the pick carries, itself among them.

    Raises:
        UnreadableKernelError: A candidate's features cannot be resolved.
    """
    configs = [candidate.config for candidate in candidates]
    default = configs[default_index]
    features = extractor.matrix(configs, default)
    keys = LazyTexts(configs, _speller())
    if analytic_order is None:
        # Beside a model, nobody looks at more than the first few of our own order.
        n_sorted = None if model is None else N_TRUSTED + 1
        analytic_order = analytic_ranking(extractor, candidates, keys, n_sorted)
    scores = merit = None
    if model is not None:
        scores = model.score(features)
        # Expected gains need no bounds, and the mean over bags alone is half the work.
        merit = merit_of(
            getattr(model, "mean", model.score),
            model.layout,
            features,
            scores,
            default_index=default_index,
            promoted=promoted,
            analytic_order=analytic_order,
        )
    choice = decide(
        features,
        scores,
        merit,
        model.gate if model is not None else None,
        default_index=default_index,
        promoted=promoted,
        analytic_order=analytic_order,
        keys=keys,
        model_problem=model_problem,
        estimate_us=lambda chosen: extractor.analytic_us([configs[i] for i in chosen]),
    )
    others = [i for i in choice.order if i != choice.index]
    runner_up = others[0] if others else None
    if scores is not None and len(others) > 1:
        # One of the first two is the second opinion, which is there to be measured.
        runner_up = max(others[:2], key=lambda i: float(scores.gain_log[i]))
    shortlist = [choice.index, *others][:n_shortlist]
    return Pick(
        config=configs[choice.index],
        source=choice.source,
        reason=choice.reason,
        detail=choice.detail,
        predicted_speedup=_speedup(scores, choice.index, default_index),
        speedup_lower=_speedup(scores, choice.index, default_index, lower=True),
        runner_up=None if runner_up is None else configs[runner_up],
        runner_up_speedup=_speedup(scores, runner_up, default_index),
        default=default,
        kernel_class=extractor.kernel_class,
        model_id=model.model_id if model is not None else None,
        n_candidates=len(candidates),
        shortlist=tuple(configs[i] for i in shortlist),
        shortlist_speedups=_speedups(scores, shortlist),
    )


def analytic_ranking(
    extractor: FeatureExtractor,
    candidates: Sequence[Candidate],
    keys: Sequence[str],
    n_sorted: int | None = None,
) -> tuple[int, ...]:
    """Analytic proposals in their own order, then the rest by estimated time.

    Args:
        extractor: The workload.
        candidates: Configs of it.
        keys: Their texts, which decide between equal times.
        n_sorted: Places from the front that matter; equal times behind them are left
            in the order of the candidates. None means all.
    """
    estimate_us = extractor.analytic_us([candidate.config for candidate in candidates])
    proposed = [
        i
        for i, candidate in enumerate(candidates)
        if candidate.origin is CandidateOrigin.ANALYTIC
    ]
    first = set(proposed)
    if n_sorted is not None:
        n_sorted = 0 if len(proposed) >= n_sorted else n_sorted + len(proposed)
    rest = (i for i in rising(estimate_us, keys, n_sorted) if i not in first)
    return (*proposed, *rest)


def _speedups(
    scores: Scores | None, indices: Sequence[int]
) -> tuple[tuple[float, float], ...]:
    if scores is None:
        return ()
    gain, lower = np.exp(scores.gain_log), np.exp(scores.lower_log)
    return tuple((float(gain[i]), float(lower[i])) for i in indices)


def _speedup(
    scores: Scores | None, index: int | None, default_index: int, lower: bool = False
) -> float | None:
    """Predicted default time / candidate time; exactly 1 for the default."""
    if index is None:
        return None
    if index == default_index:
        return 1.0
    if scores is None:
        return None
    logs = scores.lower_log if lower else scores.gain_log
    return float(np.exp(np.float64(logs[index])))
