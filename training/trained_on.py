"""Whether a model was trained on what it is about to be judged by.

A card knows the digest of all runs that the model was trained on, and their families,
not each run. So the very corpus is told exactly, a part of it by its families only.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence

from costmodel.card import ModelCard
from costmodel.datasets.clean import CleanRun
from costmodel.datasets.identity import digest_of
from costmodel.datasets.store_schema import run_key


def digest_of_keys(keys: Iterable[str]) -> str:
    """Digest of measurements by the keys of their runs, as 64 hex digits."""
    return digest_of(sorted(set(keys)), 64)


def seen_in_training(runs: Sequence[CleanRun], card: ModelCard) -> str:
    """What a reader of an evaluation must know of it, in one line; "" for nothing.

    Args:
        runs: What the model is judged by.
        card: Of the model.
    """
    if not runs:
        return ""
    if digest_of_keys(run_key(one) for one in runs) == card.corpus_digest:
        return (
            "the model was trained on these very runs: this is how well it remembers, "
            "not how well it picks; `costmodel train` prints what it does on families "
            "left out"
        )
    known = [one for one in runs if one.family in card.families]
    if not known:
        return ""
    names = ", ".join(sorted({one.family for one in known}))
    return (
        f"{len(known)} of {len(runs)} runs are of families that the model was trained "
        f"on ({names}), perhaps on these runs: families it never saw do worse"
    )
