"""The second stage's model: gains read from machine code, blended with the first's.

Trees of their own, trained on configs that were compiled: they see nothing but code
(`costmodel.features.compiled`), so that what they say is a second opinion and no echo
of the estimates. The mean of the two opinions ranks better than either: on 223 H200
workloads with a rule of Helion's, families left out, the best-ranked compiled config
recovered 58 % of the log headroom by the first, 60 % by the second and 67 % by their
mean (2026-11).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.bagged_trees import BaggedTrees
from costmodel.bagged_trees import booster_of
from costmodel.bagged_trees import read_beside
from costmodel.errors import CorruptRecordError
from costmodel.errors import SchemaMismatchError
from costmodel.features.compiled import CODE_NAMES
from costmodel.features.compiled import CODE_SCHEMA_HASH
from costmodel.frozen import dataclass
from costmodel.types import FloatArray

CODE_CARD_FORMAT = 1

# Half each: the middle of the three weights tried (0.3, 0.5, 0.7), all within noise.
SECOND_OPINION_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class CodeCard:
    """What the second-stage model says about itself: JSON beside its trees.

    Attributes:
        first_stage: `model_id` of the first-stage model whose gains it is blended with.
        code_schema_hash: Hash of the code features it was trained on.
        n_bags: Ensembles whose mean is the opinion and whose spread its doubt.
        n_trees: All trees.
        booster_sha256: Digest of the `.ubj` file.
        margin_log: By class group, what is taken off a blended log gain, besides its
            spread, to get its lower bound; calibrated on families left out.
        spread_weight: Standard deviations taken off.
        n_workloads: Workloads it was trained on.
        n_rows: Compiled configs it was trained on.
        metrics: Cross-validated, families left out.
        toolchains: Versions that compiled them.
    """

    first_stage: str
    code_schema_hash: str
    n_bags: int
    n_trees: int
    booster_sha256: str
    margin_log: Mapping[str, float]
    spread_weight: float
    n_workloads: int
    n_rows: int
    metrics: Mapping[str, float]
    toolchains: tuple[str, ...]

    def to_json(self) -> str:
        """The card as indented JSON; equal cards give equal text."""
        content = {"code_card_format": CODE_CARD_FORMAT, **dataclasses.asdict(self)}
        return json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> CodeCard:
        """Read a card.

        Raises:
            CorruptRecordError: Not a card of this format.
        """
        try:
            content: dict[str, Any] = json.loads(text)
            if content.pop("code_card_format") != CODE_CARD_FORMAT:
                raise ValueError("another format")
            content["toolchains"] = tuple(content["toolchains"])
            return cls(**content)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise CorruptRecordError(
                f"expected the card of a second-stage model, found something else "
                f"({type(error).__name__}: {error}): publish the model again"
            ) from error


@dataclass(frozen=True, slots=True)
class Opinion:
    """What code says of n configs; float32[n] each.

    Attributes:
        gain_log: ln(default time / config time), mean over bags.
        spread_log: Standard deviation over bags.
    """

    gain_log: FloatArray
    spread_log: FloatArray

    def lower_log(self, spread_weight: float, margin_log: float) -> FloatArray:
        """float32[n], lower bounds: gain less the weighted spread and a margin."""
        weighted = np.float32(spread_weight) * self.spread_log
        lower: FloatArray = self.gain_log - weighted - np.float32(margin_log)
        return lower

    def blended(self, gain_log: FloatArray, spread_log: FloatArray) -> Opinion:
        """The mean of this and the first stage's.

        Doubts add as if independent, and half of what the two differ by is a doubt
        too: of nine picks that lost over 5 % where the bags agreed, the stages
        disagreed by 0.4 or more in five (H200, families left out, 2026-11).
        """
        share = np.float32(SECOND_OPINION_SHARE)
        rest = np.float32(1.0) - share
        within = np.hypot(share * self.spread_log, rest * spread_log)
        between = np.abs(self.gain_log - gain_log) / np.float32(2.0)
        return Opinion(
            gain_log=share * self.gain_log + rest * gain_log,
            spread_log=np.hypot(within, between),
        )


class CodeForest(BaggedTrees):
    """The second stage's trees."""

    def opinion(self, rows: FloatArray, default_row: FloatArray) -> Opinion:
        """Gains of n configs over the default.

        Args:
            rows: float32[n, len(CODE_NAMES)].
            default_row: float32[len(CODE_NAMES)], of the default itself.
        """
        slowdown = self.by_bag(np.vstack([rows, default_row]))
        gains = slowdown[:, -1:] - slowdown[:, :-1]
        same = (rows == default_row).all(axis=1)
        gains[:, same] = 0.0
        return Opinion(gains.mean(axis=0), gains.std(axis=0))


def code_model_path(first_stage: Path) -> Path:
    """Where the second stage of a first-stage model lies: `<name>.code.ubj`."""
    return first_stage.with_name(f"{first_stage.stem}.code.ubj")


@dataclass(frozen=True, slots=True)
class CodeModel:
    """Trees and card of a second stage, loaded and found to belong together."""

    forest: CodeForest
    card: CodeCard

    @classmethod
    def load(cls, first_stage: Path, first_stage_id: str) -> CodeModel:
        """Read the second stage that lies beside a first-stage model.

        Args:
            first_stage: The first stage's `.ubj` file.
            first_stage_id: Its `model_id`; margins hold for this blend alone.

        Raises:
            ModelNotFoundError: There is none.
            SchemaMismatchError: Of another first stage or other code features.
            CorruptRecordError: Damaged.
        """
        trees_path = code_model_path(first_stage)
        trees, card = read_beside(
            trees_path,
            "second-stage model",
            "train on a corpus with compiled configs",
            CodeCard.from_json,
        )
        if card.code_schema_hash != CODE_SCHEMA_HASH:
            raise SchemaMismatchError(
                f"{trees_path}: expected code features {CODE_SCHEMA_HASH}, found "
                f"{card.code_schema_hash}: train again"
            )
        if card.first_stage != first_stage_id:
            raise SchemaMismatchError(
                f"{trees_path}: made for first stage {card.first_stage}, found "
                f"{first_stage_id}: train again"
            )
        booster = booster_of(trees, trees_path, len(CODE_NAMES))
        return cls(CodeForest(booster, card.n_bags, card.n_trees), card)
