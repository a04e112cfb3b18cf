"""Fit, cross-fit and calibrate the model of pairs, where there is evidence enough.

What it learns is ln(time without / time with a control file) from the file's static
effect on the code. Files differ from kernel to kernel in what they do (static effects
correlate between -0.8 and 0.5 across kernels; design notes), so evidence is counted in
kernels, and families are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costmodel.acf.pair_model import PairCard
from costmodel.acf.pair_model import PairForest
from costmodel.acf.pair_model import PairModel
from costmodel.acf.pair_model import pair_model_path
from costmodel.datasets.split import group_k_fold
from costmodel.datasets.split import leave_one_group_out
from costmodel.features.acf_effects import ACF_SCHEMA_HASH
from costmodel.features.acf_effects import N_DIFFERENCES
from costmodel.training.acf_rows import RecordedPairs
from costmodel.training.bagged_fit import fit_bags
from costmodel.training.calibrate import CalibrationPoint
from costmodel.training.calibrate import margin_of
from costmodel.training.publish import replace_whole
from costmodel.types import FloatArray

MIN_KERNELS = 12
"""Distinct kernels with recorded pairs; fewer are anecdotes, and no model is made."""

MIN_FAMILIES = 4
"""Families of those, so that one can be left out."""

MIN_PAIRS = 100
"""Recorded pairs in all."""

PRIOR_MARGIN_LOG = 0.05
"""Believed before any data: where gains of 1 to 5 % are what is reported of tuned
kernels (design notes), a promise must exceed that much."""

SPREAD_WEIGHT = 1.0

_MOST_FOLDS = 8
# e times slower or a failure: as wrong as any, and far more than any file gains.
_CLIP_LOG = 1.0


@dataclass(frozen=True, slots=True)
class PairSettings:
    """Numbers of the fit; small, as there are few kernels.

    Attributes:
        n_bags: Ensembles averaged, each weighing runs differently.
        n_trees: Boosting rounds of each.
        max_depth: Of each tree.
        learning_rate: Shrinkage per round.
        column_share: Features offered to each tree.
        row_share: Rows offered to each tree.
        min_child_weight: Smallest leaf.
        seed: Of every draw.
    """

    n_bags: int = 5
    n_trees: int = 60
    max_depth: int = 3
    learning_rate: float = 0.1
    column_share: float = 0.6
    row_share: float = 0.8
    min_child_weight: float = 5.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TrainedPairs:
    """A model of pairs, ready to publish.

    Attributes:
        model: Fitted on everything, with its card.
        trees: The booster's UBJ bytes.
    """

    model: PairModel
    trees: bytes


def too_little(pairs: Sequence[RecordedPairs]) -> str | None:
    """Why no model can be made of these; None where one can."""
    kernels = len({one.kernel_id for one in pairs})
    families = len({one.family for one in pairs})
    n_pairs = sum(map(len, pairs))
    enough = (
        kernels >= MIN_KERNELS and families >= MIN_FAMILIES and n_pairs >= MIN_PAIRS
    )
    if enough:
        return None
    return (
        f"expected control files measured on {MIN_KERNELS} kernels of {MIN_FAMILIES} "
        f"families, {MIN_PAIRS} pairs, found {kernels}, {families}, {n_pairs}: no "
        "control file is handed out unmeasured"
    )


def train_pairs(
    pairs: Sequence[RecordedPairs], settings: PairSettings | None = None
) -> TrainedPairs | None:
    """Fit on all, calibrate on families left out; None where there is too little."""
    if too_little(pairs) is not None:
        return None
    settings = settings or PairSettings()
    held_out = cross_fit_pairs(pairs, settings)
    points = [point for point in map(_point, pairs, held_out) if point is not None]
    margin = margin_of(points, len(pairs), PRIOR_MARGIN_LOG)
    forest = fit_pairs(pairs, settings)
    trees = bytes(forest.booster.save_raw("ubj"))
    rows = np.vstack([_with_none(one)[0] for one in pairs])
    card = PairCard(
        acf_schema_hash=ACF_SCHEMA_HASH,
        n_bags=forest.n_bags,
        n_trees=forest.n_trees,
        booster_sha256=hashlib.sha256(trees).hexdigest(),
        margin_log=margin,
        spread_weight=SPREAD_WEIGHT,
        range_low=tuple(map(float, rows.min(axis=0))),
        range_high=tuple(map(float, rows.max(axis=0))),
        n_kernels=len({one.kernel_id for one in pairs}),
        n_families=len({one.family for one in pairs}),
        n_acfs=len({acf_id for one in pairs for acf_id in one.acf_ids}),
        n_pairs=sum(map(len, pairs)),
        metrics=_metrics(pairs, held_out, margin),
        ptxas=tuple(sorted({one.ptxas for one in pairs})),
    )
    return TrainedPairs(PairModel(forest, card), trees)


def publish_pairs(trained: TrainedPairs | None, first_stage: Path) -> None:
    """Write the model of pairs beside a first stage, or take an old one away.

    Raises:
        StoreError: The folder cannot be written.
    """
    path = pair_model_path(first_stage)
    if trained is None:
        path.unlink(missing_ok=True)
        path.with_suffix(".json").unlink(missing_ok=True)
        return
    card = trained.model.card.to_json().encode()
    replace_whole([(path, trained.trees), (path.with_suffix(".json"), card)])


def fit_pairs(
    pairs: Sequence[RecordedPairs], settings: PairSettings | None = None
) -> PairForest:
    """Regression on the slowdown, robust to tails, averaged over bags of runs."""
    groups = [_with_none(one) for one in pairs]
    settings = settings or PairSettings()
    return PairForest(*fit_bags(groups, settings, 3, {"acf_schema": ACF_SCHEMA_HASH}))


def cross_fit_pairs(
    pairs: Sequence[RecordedPairs], settings: PairSettings | None = None
) -> list[FloatArray]:
    """What models that never saw a run's family say of its pairs.

    Returns:
        For each run float32[2, n]: gains, and gains less the weighted spread.
    """
    families = [one.family for one in pairs]
    if len(set(families)) <= _MOST_FOLDS:
        splits = leave_one_group_out(families)
    else:
        splits = group_k_fold(families, _MOST_FOLDS)
    said: list[FloatArray] = [np.zeros((2, 0), np.float32)] * len(pairs)
    for _name, train, test in splits:
        forest = fit_pairs([pairs[i] for i in train], settings)
        for i in test:
            opinion = forest.opinion(pairs[i].rows)
            lower = opinion.lower_log(SPREAD_WEIGHT, 0.0)
            said[i] = np.vstack([opinion.gain_log, lower])
    return said


def _with_none(one: RecordedPairs) -> tuple[FloatArray, np.ndarray]:
    """Rows and slowdowns of a run, each config itself among them: nothing changed."""
    slow = np.clip(-one.gain_log, -_CLIP_LOG, _CLIP_LOG)
    slow = np.where(np.isnan(slow), _CLIP_LOG, slow)
    distinct = [one.config_texts.index(text) for text in sorted(set(one.config_texts))]
    none = one.rows[distinct].copy()
    none[:, :N_DIFFERENCES] = 0.0
    return np.vstack([one.rows, none]), np.concatenate([slow, np.zeros(len(none))])


def _chosen(said: FloatArray, margin_log: float) -> int | None:
    """The pair that would be handed out of a run: certain, and the largest gain."""
    certain = np.flatnonzero(said[1] > margin_log)
    return None if not len(certain) else int(certain[np.argmax(said[0][certain])])


def _kept_log(one: RecordedPairs, chosen: int) -> float:
    gain = float(one.gain_log[chosen])
    return -_CLIP_LOG if np.isnan(gain) else gain


def _point(one: RecordedPairs, said: FloatArray) -> CalibrationPoint | None:
    chosen = _chosen(said, 0.0)
    if chosen is None:
        return None
    promised = float(said[1][chosen])
    # A control file that gains nothing is a risk for nothing: it counts as harm, so
    # the floor that a kept gain must exceed lies above zero.
    return CalibrationPoint(
        "acf", promised, _kept_log(one, chosen), -one.noise_floor_log
    )


def _metrics(
    pairs: Sequence[RecordedPairs], held_out: Sequence[FloatArray], margin_log: float
) -> dict[str, float]:
    """Of families left out: how often a file is handed out, and what that brings."""
    gains, harmed, idle, possible = [], 0, 0, []
    for one, said in zip(pairs, held_out, strict=True):
        best = np.nanmax(np.append(one.gain_log, 0.0))
        possible.append(float(best))
        chosen = _chosen(said, margin_log)
        if chosen is None:
            continue
        kept = _kept_log(one, chosen)
        gains.append(kept)
        harmed += kept < -one.noise_floor_log
        idle += abs(kept) <= one.noise_floor_log
    total = sum(gains)
    return {
        "picked_share": len(gains) / len(pairs),
        "picked_gain_log": total / len(gains) if gains else 0.0,
        "harm_share": harmed / len(pairs),
        "idle_share": idle / len(pairs),
        "recovered_share": total / sum(possible) if sum(possible) > 0 else 0.0,
    }
