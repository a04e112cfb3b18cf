"""The optional model of pairs: what a control file's static effect is worth.

A third file of a published set, there only where logs with control files from enough
kernels were trained on (`costmodel.training.acf_fit`). It sees effects alone, never a
kernel's or a control file's name, so a file it has not seen is judged by what it does.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.acf.choice import PairBound
from costmodel.acf.choice import effect_facts
from costmodel.acf.effects import Effect
from costmodel.acf.effects import Verdict
from costmodel.bagged_trees import BaggedTrees
from costmodel.bagged_trees import booster_of
from costmodel.bagged_trees import read_beside
from costmodel.code_model import Opinion
from costmodel.errors import CorruptRecordError
from costmodel.errors import SchemaMismatchError
from costmodel.features.acf_effects import ACF_NAMES
from costmodel.features.acf_effects import ACF_SCHEMA_HASH
from costmodel.features.acf_effects import N_DIFFERENCES
from costmodel.features.acf_effects import effect_matrix
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware
from costmodel.types import FloatArray

PAIR_CARD_FORMAT = 1

_SLACK = 0.05
"""Share of a feature's range in training by which a pair may lie outside of it."""


@dataclass(frozen=True, slots=True)
class PairCard:
    """What a model of pairs says about itself: JSON beside its trees.

    Attributes:
        acf_schema_hash: Hash of the features it was trained on.
        n_bags: Ensembles whose mean is the opinion and whose spread its doubt.
        n_trees: All trees.
        booster_sha256: Digest of the `.ubj` file.
        margin_log: Taken off a gain, besides its spread, to get its lower bound;
            calibrated on families left out.
        spread_weight: Standard deviations taken off.
        range_low: Smallest value of each feature in training.
        range_high: Largest.
        n_kernels: Kernels with recorded pairs.
        n_families: Families of those.
        n_acfs: Control files in them.
        n_pairs: Recorded pairs.
        metrics: Cross-validated, families left out.
        ptxas: Assemblers that made the code.
    """

    acf_schema_hash: str
    n_bags: int
    n_trees: int
    booster_sha256: str
    margin_log: float
    spread_weight: float
    range_low: tuple[float, ...]
    range_high: tuple[float, ...]
    n_kernels: int
    n_families: int
    n_acfs: int
    n_pairs: int
    metrics: dict[str, float]
    ptxas: tuple[str, ...]

    def to_json(self) -> str:
        """The card as indented JSON; equal cards give equal text."""
        content = {"pair_card_format": PAIR_CARD_FORMAT, **dataclasses.asdict(self)}
        return json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> PairCard:
        """Read a card.

        Raises:
            CorruptRecordError: Not a card of this format.
        """
        try:
            content: dict[str, Any] = json.loads(text)
            if content.pop("pair_card_format") != PAIR_CARD_FORMAT:
                raise ValueError("another format")
            for name in ("range_low", "range_high", "ptxas"):
                content[name] = tuple(content[name])
            return cls(**content)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise CorruptRecordError(
                f"expected the card of a model of control files, found something else "
                f"({type(error).__name__}: {error}): publish the model again"
            ) from error


class PairForest(BaggedTrees):
    """The trees of a model of pairs."""

    def opinion(self, rows: FloatArray) -> Opinion:
        """Gains of n pairs over the same configs without a control file.

        Args:
            rows: float32[n, len(ACF_NAMES)].
        """
        # The config itself: no difference, and the same code without the file.
        none = rows.copy()
        none[:, :N_DIFFERENCES] = 0.0
        slowdown = self.by_bag(np.vstack([rows, none]))
        gains = slowdown[:, len(rows) :] - slowdown[:, : len(rows)]
        return Opinion(gains.mean(axis=0), gains.std(axis=0))


def pair_model_path(first_stage: Path) -> Path:
    """Where the model of pairs of a published set lies: `<name>.acf.ubj`."""
    return first_stage.with_name(f"{first_stage.stem}.acf.ubj")


@dataclass(frozen=True, slots=True)
class PairModel:
    """Trees and card, loaded and found to belong together."""

    forest: PairForest
    card: PairCard

    @classmethod
    def load(cls, first_stage: Path) -> PairModel:
        """Read the model of pairs that lies beside a first-stage model.

        Args:
            first_stage: The first stage's `.ubj` file. Pairs are compared with their
                own config, so any first stage will do.

        Raises:
            ModelNotFoundError: There is none, as without logs with control files.
            SchemaMismatchError: Of other features.
            CorruptRecordError: Damaged.
        """
        trees_path = pair_model_path(first_stage)
        trees, card = read_beside(
            trees_path,
            "model of control files",
            "train on logs with control files",
            PairCard.from_json,
        )
        if card.acf_schema_hash != ACF_SCHEMA_HASH:
            raise SchemaMismatchError(
                f"{trees_path}: expected effect features {ACF_SCHEMA_HASH}, found "
                f"{card.acf_schema_hash}: train again"
            )
        booster = booster_of(trees, trees_path, len(ACF_NAMES))
        return cls(PairForest(booster, card.n_bags, card.n_trees), card)

    def bounds(
        self, effects: Sequence[Effect], hardware: Hardware
    ) -> dict[tuple[str, str], PairBound]:
        """What is predicted of each pair with a control file, by `Pair.key`.

        A pair outside the range of training keeps its gain and has no bound.
        """
        judged = []
        for one in effects:
            found, none = effect_facts(one.facts), effect_facts(one.none)
            if one.verdict is Verdict.USEFUL and found is not None and none is not None:
                judged.append((one.pair.key, found, none))
        if not judged:
            return {}
        rows = effect_matrix(
            [found for _, found, _ in judged], [none for _, _, none in judged], hardware
        )
        return dict(zip([key for key, _, _ in judged], self.judge(rows), strict=True))

    def judge(self, rows: FloatArray) -> list[PairBound]:
        """The same of feature rows; float32[n, len(ACF_NAMES)]."""
        said = self.forest.opinion(rows)
        lower = said.lower_log(self.card.spread_weight, self.card.margin_log)
        low, high = np.array(self.card.range_low), np.array(self.card.range_high)
        slack = _SLACK * (high - low)
        inside = ((rows >= low - slack) & (rows <= high + slack)).all(axis=1)
        lower = np.where(inside, lower, -np.inf)
        return [
            PairBound(float(gain), float(bound))
            for gain, bound in zip(said.gain_log, lower, strict=True)
        ]
