"""Who is champion: only a better result on the same evaluation moves the alias."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costmodel.training.train import Training

# A cross-validated geometric mean repeats exactly for the same code and corpus, so any
# difference is a change; this only keeps rounding of the tag from counting as one.
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Standing:
    """What a version showed, and on which evaluation.

    Attributes:
        corpus_digest: Of the measurements.
        protocol: Such as "leave one family out".
        n_workloads: Held out in turn.
        harm_share: Share of workloads made slower beyond noise, with the gate.
        speedup: Geometric mean over the default, with the gate.
        regret_at_5: What is left after measuring five, which breaks ties.
    """

    corpus_digest: str
    protocol: str
    n_workloads: int
    harm_share: float
    speedup: float
    regret_at_5: float

    @classmethod
    def of(cls, training: Training) -> Standing:
        """The standing of a fresh training."""
        metrics = training.model.card.metrics
        return cls(
            corpus_digest=training.model.card.corpus_digest,
            protocol=training.by_family.protocol,
            n_workloads=int(metrics["n_workloads"]),
            harm_share=metrics["harm_share"],
            speedup=metrics["speedup_geomean"],
            regret_at_5=metrics["regret_at_5"],
        )

    def as_tags(self) -> dict[str, str]:
        """As strings, to be kept on a model version."""
        return {
            "corpus_digest": self.corpus_digest,
            "protocol": self.protocol,
            "n_workloads": str(self.n_workloads),
            "harm_share": repr(self.harm_share),
            "speedup": repr(self.speedup),
            "regret_at_5": repr(self.regret_at_5),
        }

    @classmethod
    def from_tags(cls, tags: Mapping[str, str]) -> Standing | None:
        """Read back; None where a version was not made by us."""
        try:
            return cls(
                corpus_digest=tags["corpus_digest"],
                protocol=tags["protocol"],
                n_workloads=int(tags["n_workloads"]),
                harm_share=float(tags["harm_share"]),
                speedup=float(tags["speedup"]),
                regret_at_5=float(tags["regret_at_5"]),
            )
        except (KeyError, ValueError):
            return None


def beats(
    mine: Standing, theirs: Standing | None, their_version: str
) -> tuple[bool, str]:
    """Whether a new version takes the alias, and why, in words.

    Less harm wins; with equal harm more speed-up; with equal speed-up less regret after
    five measured picks. Results on different evaluations are not compared.

    Args:
        mine: The new version's.
        theirs: The champion's; None if there is none that can be compared.
        their_version: The champion's version, "" if there is none.
    """
    if not their_version:
        return True, "first version of this model"
    champion = f"champion version {their_version}"
    if theirs is None:
        return False, f"{champion} carries no evaluation of ours to compare with"
    if (theirs.corpus_digest, theirs.protocol) != (mine.corpus_digest, mine.protocol):
        return False, (
            f"{champion} was judged on corpus {theirs.corpus_digest[:12]} "
            f"({theirs.protocol}), this one on {mine.corpus_digest[:12]} "
            f"({mine.protocol}): not comparable; train the champion's code on this "
            f"corpus, or move the alias by hand"
        )
    for better, words in (
        (theirs.harm_share - mine.harm_share, "less harm"),
        (mine.speedup - theirs.speedup, "more speed-up"),
        (theirs.regret_at_5 - mine.regret_at_5, "less regret after five picks"),
    ):
        if better > _EPSILON:
            return True, f"{words} than {champion}"
        if better < -_EPSILON:
            return False, f"not better than {champion}: it has {words}"
    return False, f"equal to {champion}"
