"""Judge cross-fitted predictions: each method's pick, workload by workload.

The serving code decides here too (`hybrid.decide`), on the candidates that the corpus
measured, so that what is judged is what is shipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.card import GateCard
from costmodel.features.schema import FeatureSchema
from costmodel.gate import Gate
from costmodel.gate import ranked
from costmodel.hybrid import Choice
from costmodel.hybrid import canonical_text
from costmodel.hybrid import decide
from costmodel.layout import RowLayout
from costmodel.training import baselines
from costmodel.training.calibrate import HeldOutPrediction
from costmodel.training.crossfit import FoldResult
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.metrics import Outcome
from costmodel.training.metrics import outcome
from costmodel.training.metrics import summary

GATED = "costmodel"
UNGATED = "costmodel, no gate"
DEFAULT = "Helion default"
ANALYTIC = "analytic alone"
NEIGHBOUR = "nearest neighbour"
RANDOM = "random"
METHODS = (GATED, UNGATED, DEFAULT, ANALYTIC, NEIGHBOUR, RANDOM)

# How many measured picks the regret curve goes to; eight is Helion's own confirmation.
CURVE_KS = (1, 2, 3, 4, 5, 6, 7, 8)


@dataclass(frozen=True, slots=True)
class JudgedWorkload:
    """One held-out workload and what every method did to it.

    Attributes:
        workload: The workload.
        choice: What the gated model decided.
        outcomes: By method; chance has one outcome per draw.
    """

    workload: LabelledWorkload
    choice: Choice
    outcomes: dict[str, tuple[Outcome, ...]]

    @property
    def gated(self) -> Outcome:
        """What the shipped way of picking did."""
        return self.outcomes[GATED][0]

    @property
    def ungated(self) -> Outcome:
        """The same model, believed blindly."""
        return self.outcomes[UNGATED][0]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All held-out workloads under one protocol.

    Attributes:
        protocol: Such as "leave one family out".
        judged: One per held-out workload.
        not_applicable: Why there is nothing to judge, or "".
    """

    protocol: str
    judged: tuple[JudgedWorkload, ...]
    not_applicable: str = ""

    def summary_of(
        self,
        method: str,
        kernel_class: str | None = None,
        promoted: bool | None = None,
    ) -> dict[str, float]:
        """Aggregate numbers of one method, over all workloads or some.

        Args:
            method: One of `METHODS`.
            kernel_class: Only workloads of this class.
            promoted: Only those that Helion has a rule for, or has none for.
        """
        outcomes: list[Outcome] = []
        groups: list[str] = []
        for one in self.judged:
            workload = one.workload
            if kernel_class not in (None, workload.kernel_class):
                continue
            if promoted not in (None, workload.promoted):
                continue
            outcomes += one.outcomes[method]
            groups += [workload.source_digest] * len(one.outcomes[method])
        return summary(outcomes, groups)

    @property
    def classes(self) -> tuple[str, ...]:
        """Kernel classes among the judged workloads, sorted."""
        return tuple(sorted({str(one.workload.kernel_class) for one in self.judged}))

    def metrics(self) -> dict[str, float]:
        """Numbers of the gated and the ungated model, flat, for card and tracking.

        Those of the gated model also apart, by whether Helion has a rule.
        """
        if not self.judged:
            return {}
        parts = {
            "": self.summary_of(GATED),
            "ungated_": self.summary_of(UNGATED),
            "with_rule_": self.summary_of(GATED, promoted=True),
            "without_rule_": self.summary_of(GATED, promoted=False),
        }
        return {
            f"{prefix}{name}": value
            for prefix, numbers in parts.items()
            for name, value in numbers.items()
        }


def judge(
    protocol: str, results: Sequence[FoldResult], schema: FeatureSchema
) -> Evaluation:
    """Let every method pick on every held-out workload."""
    judged = [
        _judge_one(prediction, result, schema)
        for result in results
        for prediction in result.predictions
    ]
    judged.sort(key=lambda one: one.workload.workload_id)
    return Evaluation(protocol, tuple(judged))


def _judge_one(
    prediction: HeldOutPrediction, result: FoldResult, schema: FeatureSchema
) -> JudgedWorkload:
    workload = prediction.workload
    default = workload.default_index
    keys = [canonical_text(config) for config in workload.configs]
    choice = choice_of(prediction, result.gate, schema, keys)
    blind, by_merit = ungated_pick(prediction, keys)
    analytic = baselines.analytic_ranking(workload)
    neighbour = baselines.neighbour_ranking(result.neighbour, workload)
    layout = RowLayout.of(schema)
    picks: dict[str, list[tuple[int, Sequence[int]]]] = {
        GATED: [(choice.index, (choice.index, *_without(choice.order, choice.index)))],
        UNGATED: [(blind, by_merit)],
        DEFAULT: [(default, ())],
        ANALYTIC: [(analytic[0], analytic)],
        NEIGHBOUR: [(neighbour[0], neighbour)],
        RANDOM: [(one[0], one) for one in baselines.random_rankings(workload, layout)],
    }
    outcomes = {
        method: tuple(outcome_of(workload, pick, order) for pick, order in choices)
        for method, choices in picks.items()
    }
    return JudgedWorkload(workload, choice, outcomes)


def choice_of(
    prediction: HeldOutPrediction,
    card: GateCard,
    schema: FeatureSchema,
    keys: Sequence[str] | None = None,
) -> Choice:
    """What the serving code decides, given what a model that saw nothing says.

    Args:
        prediction: Of a workload's configs.
        card: The gate of that model.
        schema: Of the features.
        keys: Canonical texts of the configs, if they are at hand.
    """
    workload = prediction.workload
    gate = Gate(card, schema)
    if keys is None:
        keys = [canonical_text(config) for config in workload.configs]
    return decide(
        workload.features,
        gate.bounded(workload.features, prediction.said),
        prediction.merit,
        gate,
        default_index=workload.default_index,
        promoted=workload.promoted,
        analytic_order=baselines.analytic_ranking(workload),
        keys=keys,
        estimate_us=lambda chosen: workload.analytic_us[list(chosen)],
    )


def ungated_pick(
    prediction: HeldOutPrediction, keys: Sequence[str]
) -> tuple[int, Sequence[int]]:
    """The same model believed blindly: its pick, and its ranking."""
    merit, default = prediction.merit, prediction.workload.default_index
    by_merit = ranked(merit, keys, default)
    if by_merit and merit[by_merit[0]] > merit[default]:
        return by_merit[0], by_merit
    return default, by_merit


def _without(order: Sequence[int], index: int) -> tuple[int, ...]:
    return tuple(i for i in order if i != index)


def outcome_of(workload: LabelledWorkload, pick: int, order: Sequence[int]) -> Outcome:
    """What a pick and its ranking did to a workload, as it was measured."""
    return outcome(
        workload.log_ratio,
        workload.is_ok,
        workload.default_index,
        pick,
        order,
        workload.noise_floor_log,
        workload.harm_floor_log,
        CURVE_KS,
    )
