"""Published models that saw nothing of a family, for benches of that family.

The same folds, fits and margins as the cross-fit that judges a training; each fold's
model is written as the shipped one is, so that a bench picks through the serving code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path

from costmodel.card import ModelCard
from costmodel.errors import CorruptRecordError
from costmodel.errors import ModelNotFoundError
from costmodel.errors import NotEnoughDataError
from costmodel.features.schema import FeatureSchema
from costmodel.learned import LearnedModel
from costmodel.training.code_stage import CompiledRuns
from costmodel.training.code_stage import second_stage
from costmodel.training.crossfit import FoldResult
from costmodel.training.crossfit import cross_fit
from costmodel.training.crossfit import family_folds
from costmodel.training.fit import FitSettings
from costmodel.training.judge import Evaluation
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.publish import publish
from costmodel.training.train import Training
from costmodel.training.train import library_versions

INDEX = "held-out.json"
_PROTOCOL = "families left out"


@dataclass(frozen=True, slots=True)
class HeldOutModel:
    """A model and what it has not seen.

    Attributes:
        path: Its `.ubj` file.
        model_id: As picks name it.
        left_out: Families that it was not trained on.
        kernels: Digests of the kernel sources that it was trained on.
        n_trained_on: Workloads that it was trained on.
    """

    path: Path
    model_id: str
    left_out: frozenset[str]
    kernels: frozenset[str]
    n_trained_on: int


@dataclass(frozen=True, slots=True)
class HeldOutModels:
    """One model for each block of families.

    Attributes:
        models: In the order of the folds.
        corpus_digest: Of the measurements that they were trained on.
    """

    models: tuple[HeldOutModel, ...]
    corpus_digest: str

    def unaware_of(self, family: str, kernel_digest: str) -> HeldOutModel:
        """A model that saw neither this family nor this kernel.

        Of a family that is in no block every model knows nothing; the one that was
        trained on most is taken.

        Raises:
            NotEnoughDataError: Every model that missed the family saw the kernel,
                under another family's name.
        """
        apart = [one for one in self.models if family in one.left_out]
        known = any(family in one.left_out for one in self.models)
        fitting = [
            one
            for one in (apart if known else self.models)
            if kernel_digest not in one.kernels
        ]
        if not fitting:
            raise NotEnoughDataError(
                f"expected a model that saw no kernel of family {family!r}, found this "
                "very kernel in training under another family: label the corpus's "
                "families, or leave its logs out"
            )
        return max(fitting, key=lambda one: (one.n_trained_on, one.model_id))


def held_out_models(
    workloads: Sequence[LabelledWorkload],
    schema: FeatureSchema,
    corpus_digest: str,
    folder: Path,
    settings: FitSettings | None = None,
    compiled: CompiledRuns | None = None,
) -> HeldOutModels:
    """Fit, calibrate and publish one model for each block of families left out.

    Args:
        workloads: Labelled workloads of at least two families.
        schema: Schema of their features.
        corpus_digest: Digest of the measurements, for the cards.
        folder: Where the models go, as `held-out-<k>.ubj`.
        settings: Numbers of the fit.
        compiled: What a compiler made of their configs, for second stages that saw
            nothing of the families either.

    Raises:
        NotEnoughDataError: Fewer than two families.
    """
    settings = settings or FitSettings()
    results = cross_fit(workloads, family_folds(workloads), schema, settings)
    models = []
    for number, result in enumerate(results):
        train = [workloads[i] for i in result.fold.train]
        left_out = {workloads[i].family for i in result.fold.test}
        assert left_out.isdisjoint(one.family for one in train)
        training = _training(
            f"held-out-{number}", result, train, schema, corpus_digest, settings
        )
        if compiled is not None:
            others = [one for one in results if one is not result]
            first_id = training.model.model_id
            second = second_stage(train, compiled, others, schema, first_id)
            training = replace(training, second=second)
        models.append(
            HeldOutModel(
                path=publish(training, folder),
                model_id=training.model.model_id,
                left_out=frozenset(left_out),
                kernels=frozenset(one.source_digest for one in train),
                n_trained_on=len(train),
            )
        )
    found = HeldOutModels(tuple(models), corpus_digest)
    _write_index(folder / INDEX, found)
    return found


def read_held_out_models(folder: Path) -> HeldOutModels:
    """Models that `held_out_models` wrote.

    Raises:
        ModelNotFoundError: There are none.
        CorruptRecordError: Their list is damaged.
    """
    path = folder / INDEX
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        models = tuple(
            HeldOutModel(
                path=folder / one["file"],
                model_id=one["model_id"],
                left_out=frozenset(one["left_out"]),
                kernels=frozenset(one["kernels"]),
                n_trained_on=int(one["n_trained_on"]),
            )
            for one in body["models"]
        )
        return HeldOutModels(models, body["corpus_digest"])
    except OSError as error:
        raise ModelNotFoundError(
            f"{path}: expected models of a cross-fit, found none ({error.strerror}): "
            "make them with `costmodel bench plan --cross-fit CORPUS`"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptRecordError(
            f"{path}: expected a list of cross-fitted models, found other content "
            f"({type(error).__name__}): make them again with --cross-fit"
        ) from None


def _write_index(path: Path, found: HeldOutModels) -> None:
    models = [
        {
            "file": one.path.name,
            "model_id": one.model_id,
            "left_out": sorted(one.left_out),
            "kernels": sorted(one.kernels),
            "n_trained_on": one.n_trained_on,
        }
        for one in found.models
    ]
    body = {"corpus_digest": found.corpus_digest, "models": models}
    path.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def _training(
    name: str,
    result: FoldResult,
    train: Sequence[LabelledWorkload],
    schema: FeatureSchema,
    corpus_digest: str,
    settings: FitSettings,
) -> Training:
    """One fold's model as `publish` takes it; nothing was judged with it."""
    forest = result.forest
    trees = bytes(forest.booster.save_raw("ubj"))
    card = ModelCard(
        name=name,
        schema_hash=schema.hash,
        group_hashes=dict(schema.group_hashes),
        feature_names=tuple(schema.names),
        n_bags=forest.n_bags,
        n_rank_trees=forest.n_rank_trees,
        n_trees=forest.n_trees,
        booster_sha256=hashlib.sha256(trees).hexdigest(),
        gate=result.gate,
        corpus_digest=corpus_digest,
        families=tuple(sorted({one.family for one in train})),
        hardware=tuple(sorted({one.hardware for one in train})),
        n_workloads=len(train),
        n_rows=sum(one.n_rows for one in train),
        metrics={},
        parameters=settings.as_parameters(),
        versions=library_versions(),
        git_commit="unknown",
    )
    nothing = Evaluation(_PROTOCOL, (), "a model of one fold")
    return Training(
        model=LearnedModel(forest.booster, card, schema),
        trees=trees,
        by_family=nothing,
        by_shape=nothing,
        curves=result.curves,
        settings=settings,
    )
