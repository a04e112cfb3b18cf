"""Bags of trees that lie beside a first-stage model: read, checked, asked.

The second stage and the model of pairs are both of this kind: trees in UBJ, a card in
JSON under the same name, one row of features of their own a candidate. What each says
about itself and what its answer means is theirs; that the two files belong together,
and what the bags say apart, is here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Protocol
from typing import TypeVar

import numpy as np

from costmodel.booster_bytes import booster_from
from costmodel.errors import CorruptRecordError
from costmodel.errors import ModelNotFoundError
from costmodel.errors import SchemaMismatchError
from costmodel.types import FloatArray

if TYPE_CHECKING:
    import xgboost


class BaggedCard(Protocol):
    """What every such card says."""

    @property
    def booster_sha256(self) -> str:
        """Digest of the `.ubj` file."""
        ...


CardT = TypeVar("CardT", bound=BaggedCard)


class BaggedTrees:
    """Owns the trees.

    Attributes:
        booster: All bags, one after the other.
        n_bags: Ensembles whose mean is the opinion and whose spread its doubt.
        n_trees: All trees.
    """

    def __init__(self, booster: xgboost.Booster, n_bags: int, n_trees: int) -> None:
        booster.set_param({"nthread": 1})
        self.booster = booster
        self.n_bags = n_bags
        self.n_trees = n_trees

    def by_bag(self, rows: FloatArray) -> FloatArray:
        """What each bag says of n rows: float32[n_bags, n]."""
        rows = np.ascontiguousarray(rows, np.float32)
        per_bag = self.n_trees // self.n_bags
        said = np.empty((self.n_bags, len(rows)), dtype=np.float32)
        for bag in range(self.n_bags):
            said[bag] = self.booster.inplace_predict(
                rows,
                iteration_range=(bag * per_bag, (bag + 1) * per_bag),
                predict_type="margin",
                validate_features=False,
            )
        return said


def read_beside(
    trees_path: Path, what: str, remedy: str, parse: Callable[[str], CardT]
) -> tuple[bytes, CardT]:
    """Trees and card that belong together.

    Args:
        trees_path: The `.ubj` file; its card has the same name.
        what: What lies there, for the error.
        remedy: What makes one, for the error.
        parse: Reads the card.

    Raises:
        ModelNotFoundError: A file is missing or cannot be read.
        CorruptRecordError: The two do not belong together, or the card is none.
    """
    try:
        trees = trees_path.read_bytes()
        card_text = trees_path.with_suffix(".json").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelNotFoundError(
            f"expected a {what} at {trees_path} with its card, found none ({error}): "
            f"{remedy}"
        ) from error
    card = parse(card_text)
    if hashlib.sha256(trees).hexdigest() != card.booster_sha256:
        raise CorruptRecordError(
            f"{trees_path}: the trees are not those of the card: publish again"
        )
    return trees, card


def booster_of(trees: bytes, trees_path: Path, n_features: int) -> xgboost.Booster:
    """The trees, loaded.

    Raises:
        CorruptRecordError: XGBoost cannot read them.
        SchemaMismatchError: They look at another number of features.
    """
    import xgboost

    try:
        booster = booster_from(trees)
    except xgboost.core.XGBoostError as error:
        raise CorruptRecordError(
            f"{trees_path}: xgboost cannot read it: publish the model again"
        ) from error
    if booster.num_features() != n_features:
        raise SchemaMismatchError(
            f"{trees_path}: expected {n_features} features, found "
            f"{booster.num_features()}: train again"
        )
    return booster
