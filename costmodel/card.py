"""What a published model says about itself: the JSON beside its trees.

The card is data, not code: everything a pick needs besides the trees (margins, ranges,
thresholds) and everything a person needs to trust or refuse the model (schema, corpus,
metrics, versions). It holds no clock time, so that the same training writes the same
bytes.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from costmodel.errors import CorruptRecordError
from costmodel.frozen import dataclass

CARD_FORMAT = 1


@dataclass(frozen=True, slots=True)
class GateCard:
    """What the gate needs to know; see `costmodel.gate`.

    Attributes:
        margin_log: By class group ("dot", "mixed", "other"): what is taken off a
            predicted log gain, besides the weighted spread over bags, to get its lower
            bound; calibrated on families left out.
        range_low: Smallest value of each feature in training.
        range_high: Largest value of each feature in training.
        max_outside: Largest share of features outside the range that is still answered.
        min_valid_probability: Below it a candidate is refused where Helion has a rule.
    """

    margin_log: Mapping[str, float]
    range_low: tuple[float, ...]
    range_high: tuple[float, ...]
    max_outside: float
    min_valid_probability: float


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The whole card.

    Attributes:
        name: Registered name of the model.
        schema_hash: Hash of the feature schema it was trained on.
        group_hashes: The same, by feature group.
        feature_names: Feature names in column order.
        n_bags: Ensembles whose mean is the prediction and whose spread its doubt.
        n_rank_trees: Trees that predict the gain; those after them predict validity.
        n_trees: All trees of the booster.
        booster_sha256: Digest of the `.ubj` file.
        gate: Numbers of the gate.
        corpus_digest: Digest of the measurements it was trained on.
        families: Families it was trained on, sorted.
        hardware: Devices it was trained on, sorted.
        n_workloads: How many workloads.
        n_rows: How many labelled configs, failures included.
        metrics: Cross-validated metrics of the training protocol.
        parameters: Settings of the fit.
        versions: Library versions by name.
        git_commit: Commit of this project, or "unknown".
    """

    name: str
    schema_hash: str
    group_hashes: Mapping[str, str]
    feature_names: tuple[str, ...]
    n_bags: int
    n_rank_trees: int
    n_trees: int
    booster_sha256: str
    gate: GateCard
    corpus_digest: str
    families: tuple[str, ...]
    hardware: tuple[str, ...]
    n_workloads: int
    n_rows: int
    metrics: Mapping[str, float]
    parameters: Mapping[str, float]
    versions: Mapping[str, str]
    git_commit: str

    def to_json(self) -> str:
        """The card as indented JSON; equal cards give equal text."""
        content = {"card_format": CARD_FORMAT, **dataclasses.asdict(self)}
        return json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> ModelCard:
        """Read a card.

        Raises:
            CorruptRecordError: Not JSON, another format, or a field is missing.
        """
        try:
            content: dict[str, Any] = json.loads(text)
            if content.pop("card_format") != CARD_FORMAT:
                raise CorruptRecordError(
                    f"expected a model card of format {CARD_FORMAT}: publish again"
                )
            gate = _with_tuples(content.pop("gate"))
            return cls(gate=GateCard(**gate), **_with_tuples(content))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise CorruptRecordError(
                f"expected a model card, found something else "
                f"({type(error).__name__}: {error}): publish the model again"
            ) from error


def _with_tuples(content: Mapping[str, Any]) -> dict[str, Any]:
    """The same with tuples for JSON's lists, as frozen dataclasses hold them."""
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in content.items()
    }
