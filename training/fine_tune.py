"""Train on a base corpus and a user's own logs, and keep the result only if it helps.

Two questions are asked of the same folds before and after the logs are added. *Theirs*:
are kernels and shapes of the user's own, left out crosswise, picked better by a model
that saw the others of them? *Elsewhere*: are families of the base corpus, left out as
ever, picked as well as before? A model that is worse at either is not kept: with less
weight on the logs it is tried again, and at last the base alone is what is returned, so
that adding logs, even one, does no harm that the measurements can show.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace

import numpy as np

from costmodel.errors import NotEnoughDataError
from costmodel.features.schema import FeatureSchema
from costmodel.training.code_stage import CompiledRuns
from costmodel.training.crossfit import Fold
from costmodel.training.crossfit import cross_fit
from costmodel.training.crossfit import family_folds
from costmodel.training.eval_table import Row
from costmodel.training.eval_table import evaluation_rows
from costmodel.training.judge import judge
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.no_worse import Part
from costmodel.training.no_worse import part
from costmodel.training.recipe import Recipe
from costmodel.training.train import Training
from costmodel.training.train import train

# A workload of the user's counts as so many of the corpus; tried in this order. Four,
# because kernels that are served matter more than those of a stranger; one, because a
# few workloads at four can bend a model; what is gained is measured either way.
WEIGHTS = (4.0, 1.0)
# Kernels of the user's are left out one by one up to here, then in so many groups.
MAX_KERNEL_FOLDS = 8

KERNELS = "your kernels, each left out"
SHAPES = "your shapes, each left out"
ELSEWHERE = "the base corpus, families left out"


@dataclass(frozen=True, slots=True)
class Attempted:
    """One weight, what it did, and why it was not kept ("" if it was).

    Attributes:
        weight: Of each workload of the user's.
        parts: Before and after, theirs first.
        refusal: Why it was not kept.
    """

    weight: float
    parts: tuple[Part, ...]
    refusal: str


@dataclass(frozen=True, slots=True)
class FineTuned:
    """What came of it.

    Attributes:
        training: To be published: with the logs, or of the base alone.
        learned_from: The workloads that it was trained on.
        attempts: Every weight that was tried; the last is kept unless all were refused.
        n_replaced: Workloads of the base that the logs hold as well.
        n_repeated: Runs of the user's that were given twice.
        n_mine: Workloads of the user's.
    """

    training: Training
    learned_from: tuple[LabelledWorkload, ...]
    attempts: tuple[Attempted, ...]
    n_replaced: int
    n_repeated: int
    n_mine: int

    @property
    def weight(self) -> float:
        """Weight of a workload of the user's in the training; 0 for the base alone."""
        last = self.attempts[-1]
        return 0.0 if last.refusal else last.weight


def fine_tune(
    base: Sequence[LabelledWorkload],
    mine: Sequence[LabelledWorkload],
    schema: FeatureSchema,
    corpus_digest: str,
    recipe: Recipe | None = None,
    *,
    weights: Sequence[float] = WEIGHTS,
    git_commit: str = "unknown",
    compiled: CompiledRuns | None = None,
) -> FineTuned:
    """Combine, compare, and keep what does not hurt.

    Args:
        base: Labelled workloads of at least two families.
        mine: The user's, at least one.
        schema: Of their features.
        corpus_digest: Over both, for the card.
        recipe: Numbers of the fit, the gate and the second stage; None is what ships.
        weights: Of a workload of the user's, in the order to be tried.
        git_commit: Of this project, for the card.
        compiled: What a compiler made of their configs, for a second stage.

    Raises:
        NotEnoughDataError: The base has fewer than two families, or has them only in
            runs that the user's logs hold as well.
    """
    recipe = recipe or Recipe()
    settings, limits = recipe.model, recipe.gate
    kept, own, n_repeated = deduplicated(base, mine)
    n_base = len(kept)
    if n_base < len(base) and len({one.family for one in kept}) < 2:
        raise NotEnoughDataError(
            f"expected a base with runs that your logs do not hold, found "
            f"{len(base) - n_base} of its {len(base)} runs among yours: name another "
            "base, or only logs that the base was not made from"
        )
    base_folds = family_folds(kept)
    results = cross_fit(kept, base_folds, schema, settings, limits=limits)
    said = [one for result in results for one in result.predictions]
    # The model that a user would have without logs, asked about theirs.
    alone = Fold("base", tuple(range(n_base)), tuple(range(n_base, n_base + len(own))))
    on_mine = cross_fit([*kept, *own], [alone], schema, settings, said, limits)
    asked = [*results, *on_mine]
    before = evaluation_rows(judge("before", asked, schema), asked)

    def trained(
        workloads: Sequence[LabelledWorkload], folds: Sequence[Fold] | None
    ) -> Training:
        return train(
            workloads,
            schema,
            corpus_digest,
            settings,
            recipe.name,
            git_commit,
            compiled,
            folds=folds,
            limits=limits,
            code_settings=recipe.second_stage,
        )

    attempts: list[Attempted] = []
    for weight in weights:
        # Never more than the whole base, however long the logs are.
        share = max(min(weight, 1.0), min(weight, n_base / len(own)))
        combined = [*kept, *(replace(one, weight=share) for one in own)]
        folds = [
            *(_with_mine(fold, kept, own) for fold in base_folds),
            *kernel_folds(n_base, own),
        ]
        training = trained(combined, folds)
        parts = _parts(before, training, n_base, combined)
        refusal = "; ".join(f"{one.name}: {one.worse}" for one in parts if one.worse)
        attempts.append(Attempted(share, parts, refusal))
        if not refusal:
            break
    else:
        combined = kept
        training = trained(kept, None)
    return FineTuned(
        training,
        tuple(combined),
        tuple(attempts),
        len(base) - n_base,
        n_repeated,
        len(own),
    )


def deduplicated(
    base: Sequence[LabelledWorkload], mine: Sequence[LabelledWorkload]
) -> tuple[list[LabelledWorkload], list[LabelledWorkload], int]:
    """Each workload from one side, each run once, and how many runs were repeated.

    A workload of both sides is taken from the user's, whose machine will run it. The
    returned workloads have ids of their own, whatever their logs were called.
    """
    seen: set[str] = set()
    own: list[LabelledWorkload] = []
    for one in mine:
        digest = _content_digest(one)
        if digest not in seen:
            seen.add(digest)
            own.append(replace(one, workload_id=f"{one.workload_id}#{digest[:12]}"))
    theirs = {(one.source_digest, one.shape_id) for one in own}
    kept = [one for one in base if (one.source_digest, one.shape_id) not in theirs]
    return kept, own, len(mine) - len(own)


def _content_digest(one: LabelledWorkload) -> str:
    """Of a run's measurements: equal for a log that was given twice."""
    order = np.argsort(np.asarray(one.config_ids), kind="stable")
    digest = hashlib.sha256(f"{one.source_digest}/{one.shape_id}".encode())
    digest.update("/".join(one.config_ids[i] for i in order).encode())
    digest.update(np.nan_to_num(one.log_ratio[order]).tobytes())
    digest.update(np.float64(one.default_us).tobytes())
    return digest.hexdigest()


def kernel_folds(n_base: int, mine: Sequence[LabelledWorkload]) -> list[Fold]:
    """Leave the user's kernels out, in turn or in groups; none for a single kernel."""
    kernels = sorted({one.source_digest for one in mine})
    if len(kernels) < 2:
        return []
    n_folds = min(len(kernels), MAX_KERNEL_FOLDS)
    fold_of = {kernel: place % n_folds for place, kernel in enumerate(kernels)}
    everything = range(n_base + len(mine))
    folds = []
    for place in range(n_folds):
        test = {
            n_base + i
            for i, one in enumerate(mine)
            if fold_of[one.source_digest] == place
        }
        train = tuple(i for i in everything if i not in test)
        folds.append(Fold(f"own {place}", train, tuple(sorted(test))))
    return folds


def _with_mine(
    fold: Fold, base: Sequence[LabelledWorkload], mine: Sequence[LabelledWorkload]
) -> Fold:
    """A fold of the base with the logs to learn from, but none akin to its test."""
    families = {base[i].family for i in fold.test}
    kernels = {base[i].source_digest for i in fold.test}
    others = tuple(
        len(base) + i
        for i, one in enumerate(mine)
        if one.family not in families and one.source_digest not in kernels
    )
    return replace(fold, train=(*fold.train, *others))


def _parts(
    before: Sequence[Row],
    training: Training,
    n_base: int,
    combined: Sequence[LabelledWorkload],
) -> tuple[Part, ...]:
    """Theirs by kernel and by shape, and the base, as far as each can be judged."""
    own = combined[n_base:]
    own_ids = {one.workload_id for one in own}
    after = evaluation_rows(training.by_family, training.folds)
    shapes: dict[str, set[str]] = {}
    for one in own:
        shapes.setdefault(one.source_digest, set()).add(one.shape_id)
    with_siblings = {
        one.workload_id for one in own if len(shapes[one.source_digest]) > 1
    }
    by_shape = evaluation_rows(training.by_shape, ())
    found = (
        part(KERNELS, before, [one for one in after if one["workload_id"] in own_ids]),
        part(
            SHAPES,
            before,
            [one for one in by_shape if one["workload_id"] in with_siblings],
        ),
        part(
            ELSEWHERE,
            before,
            [one for one in after if one["workload_id"] not in own_ids],
        ),
    )
    return tuple(one for one in found if one is not None)
