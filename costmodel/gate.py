"""When a predicted gain is believed.

The gate answers one question: may the best-ranked candidate replace Helion's default?
Yes if nothing about the workload or the candidate is stranger than what was seen in
training, no guard forbids it, it will very likely run, and the calibrated lower bound
of its gain is above zero. Otherwise it says which of these failed, in words.

Where Helion promoted no rule its default is 3 to 39 times slower than a sane config
(measured on an H200, 2026-11, design notes). There a bound on the gain over it means
nothing: the best-ranked of our analytic favourites is taken, if it ranks above the
default; the first of them where the model sees next to no difference. Only favourites,
because there the rest of the candidates are far from any reference that the model
knows, and a few of them fail.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from costmodel.card import GateCard
from costmodel.forest import Predictions
from costmodel.frozen import dataclass
from costmodel.layout import RowLayout
from costmodel.ordering import rising
from costmodel.types import FloatArray
from costmodel.types import ReasonCode
from costmodel.types import Scores

if TYPE_CHECKING:
    from costmodel.features.schema import FeatureSchema

BoolArray = npt.NDArray[np.bool_]

# What a failed pick counts for: evaluation charges it a speed-up of 0.1.
FAILURE_LOG = float(np.log(0.1))


# log2 of a ratio. Within 2x, as on the first 34 workloads, refused 15 right picks and 4
# wrong ones on 156 left-out workloads; three of the wrong ones promised less than 1.13x
# and fall to the margin, the fourth to the rule for dots.
_MAX_WARP_CHANGE_LOG2 = 2.0


@dataclass(frozen=True, slots=True)
class Guard:
    """A cheap rule that a replacement of Helion's promoted default must keep.

    Each exists because of a catastrophe seen (23x slower with 2 warps and 6 stages) and
    costs next to none of the headroom (design notes; H200 corpus, 2026-11).

    Attributes:
        words: What the rule demands, for a person.
        keeps: bool[n] from feature rows and their schema.
    """

    words: str
    keeps: Callable[[FloatArray, FeatureSchema], BoolArray]


def _is_dot(rows: FloatArray, schema: FeatureSchema) -> BoolArray:
    return rows[:, schema.index("w_n_dots")] > 0


def _keeps_warps(rows: FloatArray, schema: FeatureSchema) -> BoolArray:
    change: FloatArray = rows[:, schema.index("d_num_warps_log2")]
    return np.abs(change) <= _MAX_WARP_CHANGE_LOG2


def _keeps_dot_warps(rows: FloatArray, schema: FeatureSchema) -> BoolArray:
    log2_warps = rows[:, schema.index("num_warps_log2")]
    same: BoolArray = rows[:, schema.index("d_num_warps_log2")] == 0
    few: BoolArray = (log2_warps >= 2) & (log2_warps <= 3)
    allowed: BoolArray = ~_is_dot(rows, schema) | same | few
    return allowed


def _keeps_flat(rows: FloatArray, schema: FeatureSchema) -> BoolArray:
    becomes_persistent = rows[:, schema.index("d_is_persistent")] > 0
    return _is_dot(rows, schema) | ~becomes_persistent


def _keeps_smem(rows: FloatArray, schema: FeatureSchema) -> BoolArray:
    return rows[:, schema.index("smem_share")] <= 1.0


GUARDS: tuple[Guard, ...] = (
    Guard("warps within 4x of the default", _keeps_warps),
    Guard("4 or 8 warps for a kernel with dots", _keeps_dot_warps),
    Guard("no new persistence in a kernel without dots", _keeps_flat),
    Guard("shared memory within the device's limit", _keeps_smem),
)


# Without a rule of Helion's: what the model must see in another favourite before our
# first one gives way, in log time. Averaged over references, differences are seen at a
# fraction of their size, so it is small. On 92 such H200 workloads, families left out,
# 6.5 % were slower than the default at 2.97x without it, 2.2 % at 3.01x with 0.05, and
# 3.3 % at 3.00x with 0.10 (2026-12).
_TIE_LOG = 0.05

# Without a rule: a favourite that the model, asked directly, puts this far below the
# default is not taken, whatever the ranking against other references says. None of 92
# recorded picks was (the lowest, at -0.18, gained 2x); of kernels written later, two
# foretold at 0.70x and 0.53x ran at 0.69x and 0.25x (H200, 2026-12).
_FORETOLD_SLOWER_LOG = -0.25

CLASS_GROUPS = ("dot", "mixed", "other")

# Of a config that compiles: what is left are wrong results and launches that fail, 14
# of 103 recorded failures, and configs many times slower (H200, 2026-11).
MIN_VALID_COMPILED = 0.3

# Standard deviations over bags that a promise is lowered by, before the margin that
# calibration finds for it. The bags differ in how much each workload weighs, so a gain
# that hangs on a few kernels of another kind shows as spread. Of weights 0.5 to 3 for
# dots and 1 to 2 for others, on 195 workloads of 18 development families: 43.8 % of
# the log headroom and 0.5 % harm with these, 41.1 % with three for dots (2026-11).
_SPREAD_WEIGHT = {"dot": 1.0, "mixed": 1.0, "other": 2.0}


def class_group(schema: FeatureSchema) -> Callable[[FloatArray], list[str]]:
    """A function from feature rows to the class group whose margin applies.

    Three groups, because promises are broken for different reasons: "other" has no
    dots; "dot" multiplies in a loop what it loads; "mixed" are products that no loop
    pipelines as they are. Those load something narrower than what they multiply (packed
    weights, 8-bit caches), so that operands pass through registers, or multiply outside
    any loop, so that an accumulator lives for one product only; or their default is
    held to spill, but in no loop. There our estimate of registers is furthest off, and
    the worst picks came from there (H200 corpus, 2026-11; design notes say the same of
    37 other workloads): a default of 255 registers and 8 spilled bytes was held to
    spill 70 registers, and one that was held to spill 168 after its loop was 1.14x
    faster than the pick that promised 1.86x. Of 18 defaults that were held to spill in
    a loop, 17 were slower than the pick.
    """
    narrowest = schema.index("w_itemsize_min")
    multiplied = schema.index("w_dot_itemsize")
    n_loops = schema.index("w_n_loops")
    spilled = schema.index("spill_registers_log2")
    in_loop = schema.index("loop_spill_registers_log2")
    less_spilled = schema.index("d_spill_registers_log2")
    less_in_loop = schema.index("d_loop_spill_registers_log2")

    def spills_outside(rows: FloatArray) -> BoolArray:
        """Whether the reference spills, but in no loop; 0.5 is less than a register."""
        anywhere = rows[:, spilled] - rows[:, less_spilled] > 0.5
        inside = rows[:, in_loop] - rows[:, less_in_loop] > 0.5
        found: BoolArray = anywhere & ~inside
        return found

    def group_of(rows: FloatArray) -> list[str]:
        is_mixed = (rows[:, narrowest] < rows[:, multiplied]) | (rows[:, n_loops] == 0)
        is_mixed |= spills_outside(rows)
        dots = _is_dot(rows, schema)
        return [
            ("mixed" if mixed else "dot") if dot else "other"
            for dot, mixed in zip(dots, is_mixed, strict=True)
        ]

    return group_of


@dataclass(frozen=True, slots=True)
class Decision:
    """What the gate says of one workload.

    Attributes:
        index: The candidate to use, or None where the gate does not decide.
        reason: Why, as a code.
        detail: Why, in words.
        order: All candidates but the default, best first.
    """

    index: int | None
    reason: ReasonCode
    detail: str
    order: tuple[int, ...]


class Gate:
    """Owns the calibrated numbers of one model; pure, the same answer every time."""

    def __init__(self, card: GateCard, schema: FeatureSchema) -> None:
        self._card = card
        self._names = schema.names
        self._schema = schema
        self._layout = RowLayout.of(schema)
        self._group_of = class_group(schema)
        n_features = len(schema.names)
        self._own = np.delete(np.arange(n_features), self._layout.difference)
        self._low = np.asarray(card.range_low, dtype=np.float32)[self._own]
        self._high = np.asarray(card.range_high, dtype=np.float32)[self._own]
        # Half an octave, or half a unit: one step of a power-of-two knob away from the
        # nearest training value is still between neighbours of the training set.
        self._slack = np.maximum(0.05 * (self._high - self._low), 0.5)

    def bounded(self, rows: FloatArray, predictions: Predictions) -> Scores:
        """Turn predictions into scores: lower bound = gain - weighted spread - margin.

        The spread over bags is this candidate's own doubt, the margin what picks of its
        class group broke of their promises on families left out. The default's gain
        over itself is known.
        """
        groups = self._group_of(rows)
        margins = self._card.margin_log
        margin = np.array([margins[g] for g in groups], dtype=np.float32)
        weight = np.array([_SPREAD_WEIGHT[g] for g in groups], dtype=np.float32)
        margin[self._layout.is_reference(rows)] = 0.0
        return Scores(
            gain_log=predictions.gain_log,
            lower_log=predictions.gain_log - weight * predictions.spread_log - margin,
            valid_probability=predictions.valid_probability,
        )

    def outside_share(self, rows: FloatArray) -> npt.NDArray[np.float64]:
        """float64[n]: share of a row's own features outside the training range."""
        own = rows[:, self._own]
        outside = (own < self._low - self._slack) | (own > self._high + self._slack)
        share: npt.NDArray[np.float64] = outside.mean(axis=1)
        return share

    def decide(
        self,
        features: FloatArray,
        scores: Scores,
        merit: FloatArray,
        *,
        default_index: int,
        favourites: Sequence[int],
        promoted: bool,
        keys: Sequence[str],
    ) -> Decision:
        """Choose a candidate to replace the default, or say why none may.

        Args:
            features: float32[n, len(SCHEMA)] of all candidates, the default's included.
            scores: Of the same rows, against the default.
            merit: float32[n], what to rank by; see `costmodel.hybrid.merit_of`.
            default_index: Row of Helion's default.
            favourites: Rows that may be picked where Helion has no rule, in our
                analytic order; the first wins ties of the model's, and
                then stands for the workload when its strangeness is judged;
                none means any.
            promoted: Whether Helion has a rule for this kernel.
            keys: Canonical text of each config; breaks ties.
        """
        order = ranked(merit, keys, default_index)
        outside = self.outside_share(features)
        limit = self._card.max_outside
        anchor = default_index if promoted or not favourites else favourites[0]
        if outside[anchor] > limit:
            detail = (
                f"{outside[anchor]:.0%} of the features lie outside the training "
                f"range (limit {limit:.0%}; first: "
                f"{self._first_outside(features[anchor])})"
            )
            return Decision(None, ReasonCode.OUT_OF_RANGE, detail, order)
        if promoted:
            return self._with_rule(features, scores, outside, order, keys)
        inside = [i for i in order if outside[i] <= limit]
        if not inside:
            detail = "every candidate lies outside the training range"
            return Decision(None, ReasonCode.OUT_OF_RANGE, detail, order)
        trusted = set(favourites)
        pick = next((i for i in inside if i in trusted), inside[0])
        first = next((i for i in favourites if outside[i] <= limit), pick)
        if merit[pick] - merit[first] <= _TIE_LOG:
            pick = first
        is_foretold_slower = scores.gain_log[pick] < _FORETOLD_SLOWER_LOG
        if merit[default_index] >= merit[pick] or is_foretold_slower:
            detail = "the model ranks Helion's default first, even without a rule"
            return Decision(
                default_index, ReasonCode.DEFAULT_RANKED_FIRST, detail, order
            )
        detail = "Helion has no rule here; best of the analytic favourites"
        return Decision(pick, ReasonCode.NO_HELION_RULE, detail, order)

    def _with_rule(
        self,
        features: FloatArray,
        scores: Scores,
        outside: npt.NDArray[np.float64],
        order: tuple[int, ...],
        keys: Sequence[str],
    ) -> Decision:
        refusals = self._refusals(features, scores, outside)
        for index in order:
            if not refusals[index] and scores.lower_log[index] > 0.0:
                detail = _promise(scores, index)
                return Decision(index, ReasonCode.GAIN_CERTAIN, detail, order)
        others = set(order)
        by_gain = [i for i in rising(-scores.gain_log, keys) if i in others]
        hopeful = [i for i in by_gain if scores.gain_log[i] > 0.0]
        first = next((i for i in hopeful if not refusals[i]), None)
        if first is not None:
            detail = f"{_promise(scores, first)}: the bound does not beat the default"
            return Decision(None, ReasonCode.GAIN_BELOW_MARGIN, detail, order)
        detail = "no candidate is predicted faster than the default"
        if hopeful:
            detail = (
                f"no allowed candidate is predicted faster than the default; the "
                f"fastest is refused: {refusals[hopeful[0]]}"
            )
        return Decision(None, ReasonCode.DEFAULT_RANKED_FIRST, detail, order)

    def decide_compiled(
        self,
        features: FloatArray,
        valid_probability: FloatArray,
        gain_log: FloatArray,
        lower_log: FloatArray,
        *,
        default_index: int,
        keys: Sequence[str],
    ) -> Decision:
        """The same for candidates that were compiled, where Helion has a rule.

        That they compile and fit is known, so no failure of the compiler is charged
        any more; guards and range stay.

        Args:
            features: float32[n, len(SCHEMA)] of candidates that compile.
            valid_probability: float32[n], by the first stage.
            gain_log: float32[n], with the second opinion.
            lower_log: float32[n], their calibrated lower bounds.
            default_index: Row of Helion's default.
            keys: Canonical text of each config; breaks ties.
        """
        order = ranked(gain_log, keys, default_index)
        outside = self.outside_share(features)
        if outside[default_index] > self._card.max_outside:
            detail = f"{outside[default_index]:.0%} of the features lie outside"
            return Decision(None, ReasonCode.OUT_OF_RANGE, detail, order)
        allowed = self.allows_compiled(features, valid_probability)
        scores = Scores(gain_log, lower_log, valid_probability)
        for index in order:
            if allowed[index] and lower_log[index] > 0.0:
                detail = f"{_promise(scores, index)}, its code seen"
                return Decision(index, ReasonCode.GAIN_CERTAIN, detail, order)
        hopeful = [i for i in order if allowed[i] and gain_log[i] > 0.0]
        if hopeful:
            detail = f"{_promise(scores, hopeful[0])}, its code seen: not certain"
            return Decision(None, ReasonCode.GAIN_BELOW_MARGIN, detail, order)
        detail = "no allowed candidate's code looks faster than the default's"
        return Decision(None, ReasonCode.DEFAULT_RANKED_FIRST, detail, order)

    def allows_compiled(
        self, features: FloatArray, valid_probability: FloatArray
    ) -> BoolArray:
        """bool[n]: which candidates that compile may replace a promoted default.

        Args:
            features: float32[n, len(SCHEMA)].
            valid_probability: float32[n], by the first stage.
        """
        allowed: BoolArray = (
            self.outside_share(features) <= self._card.max_outside
        ) & (valid_probability >= MIN_VALID_COMPILED)
        for guard in GUARDS:
            allowed &= guard.keeps(features, self._schema)
        return allowed

    def _refusals(
        self, features: FloatArray, scores: Scores, outside: npt.NDArray[np.float64]
    ) -> list[str]:
        """Why each candidate may not replace a promoted default; "" where it may."""
        words = [""] * len(features)
        for index in np.flatnonzero(self._layout.is_reference(features)):
            words[index] = "the same as the default in every feature"
        for guard in GUARDS:
            for index in np.flatnonzero(~guard.keeps(features, self._schema)):
                words[index] = words[index] or f"guard: {guard.words}"
        unlikely = scores.valid_probability < self._card.min_valid_probability
        for index in np.flatnonzero(unlikely):
            chance = scores.valid_probability[index]
            words[index] = words[index] or f"{chance:.0%} likely to run well"
        expected = expected_gain_log(scores)
        for index in np.flatnonzero((expected <= 0.0) & (scores.gain_log > 0.0)):
            words[index] = words[index] or "no gain once failures are counted"
        for index in np.flatnonzero(outside > self._card.max_outside):
            words[index] = words[index] or "outside the training range"
        return words

    def _first_outside(self, row: FloatArray) -> str:
        own = row[self._own]
        outside = (own < self._low - self._slack) | (own > self._high + self._slack)
        at = int(np.flatnonzero(outside)[0])
        return f"{self._names[self._own[at]]}={own[at]:.4g}"


def _promise(scores: Scores, index: int) -> str:
    gain, lower = scores.gain_log[index], scores.lower_log[index]
    return f"predicted {np.exp(gain):.2f}x, at least {np.exp(lower):.2f}x"


def expected_gain_log(scores: Scores | Predictions) -> FloatArray:
    """float32[n]: gain in logs with a failure charged as a tenfold slowdown."""
    chance = scores.valid_probability
    return (chance * scores.gain_log + (1.0 - chance) * FAILURE_LOG).astype(np.float32)


def ranked(
    values: FloatArray, keys: Sequence[str], default_index: int
) -> tuple[int, ...]:
    """Candidates but the default, largest value first, ties by canonical text."""
    return tuple(i for i in rising(-values, keys) if i != default_index)
