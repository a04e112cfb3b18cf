"""The published model: trees in UBJ, a JSON card beside them, one `score`.

`costmodel.forest` says how trees become gains, `costmodel.gate` when a gain is
believed, `costmodel.card` what a model says about itself; here the three are joined,
and refused where they do not belong together.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from costmodel.card import ModelCard
from costmodel.errors import CorruptRecordError
from costmodel.errors import ModelNotFoundError
from costmodel.errors import SchemaMismatchError
from costmodel.features.schema import SCHEMA
from costmodel.forest import Forest
from costmodel.forest import Predictions
from costmodel.gate import Gate
from costmodel.layout import RowLayout
from costmodel.types import FloatArray
from costmodel.types import Scores

if TYPE_CHECKING:
    import xgboost

    from costmodel.features.schema import FeatureSchema

BUNDLED_NAME = "helion-costmodel"


def bundled_model_path() -> Path:
    """Where the model that ships with the package lies, whether or not it exists."""
    return Path(__file__).parent / "models" / f"{BUNDLED_NAME}.ubj"


class LearnedModel:
    """Owns a forest and its card, and the promise that they belong together."""

    def __init__(
        self,
        trees: xgboost.Booster | bytes,
        card: ModelCard,
        schema: FeatureSchema = SCHEMA,
    ) -> None:
        """Join trees and card.

        Args:
            trees: A booster, or what it writes as UBJSON.
            card: What they say about themselves.
            schema: Feature schema of this build.

        Raises:
            SchemaMismatchError: The card's schema is not the one this build computes.
        """
        if card.schema_hash != schema.hash:
            groups = [
                name
                for name, digest in sorted(schema.group_hashes.items())
                if card.group_hashes.get(name) != digest
            ]
            raise SchemaMismatchError(
                f"model {card.name} expects feature schema {card.schema_hash[:12]} "
                f"({len(card.feature_names)} features), this build computes "
                f"{schema.hash[:12]} ({len(schema.names)}; differs in "
                f"{', '.join(groups) or 'order'}): train again or install the version "
                f"that trained it"
            )
        self.schema = schema
        self.layout = RowLayout.of(schema)
        self._forest = Forest(
            trees, self.layout, card.n_bags, card.n_rank_trees, card.n_trees
        )
        self.card = card
        self.gate = Gate(card.gate, schema)

    @property
    def model_id(self) -> str:
        """First 16 hex digits of the digest of the trees."""
        return self.card.booster_sha256[:16]

    @classmethod
    def load(
        cls, path: Path | str | None = None, schema: FeatureSchema = SCHEMA
    ) -> LearnedModel:
        """Read a published model.

        Args:
            path: The `.ubj` file or its `.json` card; None means the bundled model.
            schema: Feature schema of this build.

        Raises:
            ModelNotFoundError: The trees or the card are missing.
            SchemaMismatchError: Trained on other features than this build computes.
            CorruptRecordError: A file is damaged, or the two do not belong together.
        """
        named = Path(path) if path else bundled_model_path()
        if named.is_dir():
            raise ModelNotFoundError(
                f"expected a model file (.ubj), found the folder {named}: name the "
                ".ubj file in it"
            )
        trees_path = named.with_suffix(".ubj")
        if named.suffix not in (".ubj", ".json") and named.is_file():
            raise ModelNotFoundError(
                f"expected a model file (.ubj), found {named}: name the .ubj file that "
                "`costmodel train` wrote"
            )
        card_path = trees_path.with_suffix(".json")
        try:
            trees = trees_path.read_bytes()
            card_text = card_path.read_bytes()
        except OSError as error:
            raise ModelNotFoundError(
                f"expected a model at {trees_path} with its card beside it, found "
                f"{error.strerror or error} ({error.filename}): run `costmodel train`, "
                f"or pass --model"
            ) from error
        try:
            card = ModelCard.from_json(card_text.decode())
        except (CorruptRecordError, UnicodeDecodeError) as error:
            raise CorruptRecordError(f"{card_path}: {error}") from error
        found = hashlib.sha256(trees).hexdigest()
        if found != card.booster_sha256:
            raise CorruptRecordError(
                f"{trees_path}: expected trees with digest {card.booster_sha256[:12]} "
                f"as the card says, found {found[:12]}: the file is damaged or belongs "
                f"to another card; publish the model again"
            )
        try:
            return cls(trees, card, schema)
        except ValueError as error:  # as xgboost says that it cannot read a file
            import xgboost

            first_line = (str(error).splitlines() or [""])[0]
            raise CorruptRecordError(
                f"{trees_path}: xgboost {xgboost.__version__} cannot read it "
                f"({first_line}): publish the model again"
            ) from error

    def score(self, features: FloatArray) -> Scores:
        """Score n candidates of one workload.

        Args:
            features: float32[n, len(SCHEMA)] as `FeatureExtractor.matrix` makes them.

        Returns:
            Gains over the default, their lower bounds and validity, float32[n] each.
        """
        rows = np.ascontiguousarray(features, dtype=np.float32)
        return self.gate.bounded(rows, self._forest.predict(rows))

    def predict(self, features: FloatArray, with_spread: bool = True) -> Predictions:
        """What the trees say, with no margin taken off and the bags' disagreement.

        Args:
            features: float32[n, len(SCHEMA)].
            with_spread: As of `Forest.predict`.
        """
        rows = np.ascontiguousarray(features, dtype=np.float32)
        return self._forest.predict(rows, with_spread)

    def mean(self, features: FloatArray) -> Predictions:
        """The same where nobody asks whether the bags agree.

        Args:
            features: float32[n, len(SCHEMA)].
        """
        return self.predict(features, with_spread=False)

    def importance(self) -> dict[str, float]:
        """Share of the ranking trees' total gain by feature name."""
        return self._forest.importance(self.card.feature_names)

    def ranker(self) -> xgboost.Booster:
        """A copy of the ranking trees alone, whose sum is ln(time / default time)."""
        return self._forest.booster[: self.card.n_rank_trees]
