"""Move the alias `champion`, or refuse and say by which check.

A challenger must be better than the champion beyond noise on the same evaluation, harm
no class beyond its bound, be the model that was judged (golden rows), fit this build,
and score fast enough to be asked at compile time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mlflow.exceptions import MlflowException

from costmodel.code_model import CodeModel
from costmodel.code_model import code_model_path
from costmodel.errors import CostModelError
from costmodel.errors import PromotionError
from costmodel.features.schema import SCHEMA
from costmodel.features.schema import FeatureSchema
from costmodel.learned import LearnedModel
from costmodel.training.compare import Comparison
from costmodel.training.compare import Verdict
from costmodel.training.compare import compare
from costmodel.training.eval_table import Row
from costmodel.training.golden_rows import n_changed
from costmodel.training.golden_rows import read_golden
from costmodel.training.mlflow_store import CHALLENGER
from costmodel.training.mlflow_store import CHAMPION
from costmodel.training.mlflow_store import PREVIOUS
from costmodel.training.mlflow_store import Store
from costmodel.training.mlflow_store import version_of_alias
from costmodel.training.recipe import Bounds
from costmodel.training.recipe import parse_recipe
from costmodel.training.run_files import GOLDEN
from costmodel.training.run_files import PUBLISHED
from costmodel.training.run_files import RECIPE
from costmodel.training.run_files import artifact
from costmodel.training.run_lookup import rows_of

# As many as serving ranks at most.
_N_CANDIDATES = 512
# The best of so many on a busy machine is what an idle one takes.
_N_TIMED = 10


@dataclass(frozen=True, slots=True)
class Check:
    """One demand on a challenger.

    Attributes:
        name: What is asked.
        ok: Whether it is met.
        found: What was found, in words.
        demanded: What is demanded, in words.
    """

    name: str
    ok: bool
    found: str
    demanded: str


@dataclass(frozen=True, slots=True)
class Promotion:
    """What became, or with `--dry-run` would become, of a challenger.

    Attributes:
        name: Registered model.
        challenger: Its version.
        champion: Version of the champion before, or "".
        checks: All demands, in order.
        moved: Whether the alias was moved.
    """

    name: str
    challenger: str
    champion: str
    checks: tuple[Check, ...]
    moved: bool

    @property
    def ok(self) -> bool:
        """Whether every demand is met."""
        return all(one.ok for one in self.checks)


def promote(
    store: Store,
    name: str,
    *,
    bounds: Bounds | None = None,
    dry_run: bool = False,
    schema: FeatureSchema = SCHEMA,
) -> Promotion:
    """Judge the challenger and make it champion if every check is met.

    Args:
        store: Where models are registered.
        name: Of the registered model.
        bounds: What it must keep to; None means those of the champion's recipe, so
            that a challenger cannot loosen them for itself.
        dry_run: Judge only.
        schema: Of the features that this build computes.

    Raises:
        PromotionError: There is no challenger.
    """
    challenger = version_of_alias(store, name, CHALLENGER)
    champion = version_of_alias(store, name, CHAMPION)
    if challenger is None:
        raise PromotionError(
            f"expected a version of {name} with alias '{CHALLENGER}', found none: "
            "`costmodel train` makes one"
        )
    if champion is not None and champion.version == challenger.version:
        raise PromotionError(
            f"version {champion.version} of {name} is the champion already"
        )
    rows = rows_of(store, challenger.run_id)
    judge = champion if champion is not None else challenger
    bounds = bounds or recorded_bounds(store, judge.run_id)
    found = None
    if champion is not None:
        found = compare(rows_of(store, champion.run_id), rows)
    checks = (
        *evaluation_checks(rows, found, bounds),
        *model_checks(store, challenger, bounds, schema),
    )
    promotion = Promotion(
        name=name,
        challenger=str(challenger.version),
        champion="" if champion is None else str(champion.version),
        checks=checks,
        moved=not dry_run and all(one.ok for one in checks),
    )
    if promotion.moved:
        _move(store, promotion)
    return promotion


def evaluation_checks(
    rows: Sequence[Row], found: Comparison | None, bounds: Bounds
) -> list[Check]:
    """Demands on what the challenger did to held-out workloads.

    Args:
        rows: Its evaluation.
        found: Against the champion; None where there is none.
        bounds: What it must keep to.
    """
    checks = []
    if found is not None:
        all_ = found.overall
        checks += [
            Check(
                "same evaluation",
                found.same_evaluation,
                "the same" if found.same_evaluation else "measurements or folds differ",
                "the champion's measurements, folds and protocol",
            ),
            Check(
                "better than the champion",
                all_.verdict is Verdict.BETTER,
                f"{all_.ratio:.3f}x ({all_.low:.3f} to {all_.high:.3f}): "
                f"{all_.verdict.value}",
                "better beyond noise",
            ),
        ]
        checks += [
            Check(
                f"class {one.name} against the champion",
                one.ratio >= bounds.worst_class_ratio
                or abs(np.log(one.ratio)) <= one.noise_log,
                f"{one.ratio:.3f}x",
                f"{bounds.worst_class_ratio:.3f}x, or within noise",
            )
            for one in found.of("class")
        ]
    share = _harm_share(rows)
    checks.append(
        Check(
            "harm",
            share <= bounds.max_harm_share,
            f"{share:.1%} of {len(rows)}",
            f"at most {bounds.max_harm_share:.1%}",
        )
    )
    for kind in sorted({row["kernel_class"] for row in rows}):
        some = [row for row in rows if row["kernel_class"] == kind]
        share = _harm_share(some)
        allowed = bounds.classes.get(kind, bounds.max_class_harm_share)
        checks.append(
            Check(
                f"harm to {kind}",
                share <= allowed,
                f"{share:.1%} of {len(some)}",
                f"at most {allowed:.1%}",
            )
        )
    return checks


def _harm_share(rows: Sequence[Row]) -> float:
    return sum(bool(row["is_harm"]) for row in rows) / max(1, len(rows))


def model_checks(
    store: Store, version: Any, bounds: Bounds, schema: FeatureSchema
) -> list[Check]:
    """Demands on the model itself, loaded as serving loads it."""
    try:
        model = published_model(store, version, schema)
        golden = artifact(store, version.run_id, GOLDEN)
        changed, n = n_changed(model, golden)
        rows, _ = read_golden(golden, model.card.feature_names)
    except (CostModelError, MlflowException, OSError) as error:
        found = " ".join(str(error).split())[:160]
        return [Check("loads in this build", False, found, "the published files")]
    spent_ms = score_ms(model, rows)
    return [
        Check("loads in this build", True, f"model {model.model_id}", "no error"),
        Check(
            "golden rows",
            changed == 0 and n > 0,
            f"{changed} of {n} answered differently",
            "what it said when it was trained",
        ),
        Check(
            f"scoring {_N_CANDIDATES} candidates",
            spent_ms <= bounds.max_score_ms,
            f"{spent_ms:.1f} ms",
            f"at most {bounds.max_score_ms:g} ms",
        ),
    ]


def published_model(store: Store, version: Any, schema: FeatureSchema) -> LearnedModel:
    """The model that a version was published as, read back from its run.

    A second stage that was published with it must load too; no more is asked of it.

    Raises:
        CostModelError: Damaged, of another schema, or of another training.
    """
    with tempfile.TemporaryDirectory() as folder:
        listed = store.client.list_artifacts(version.run_id, PUBLISHED)
        for suffix in (".ubj", ".json", ".code.ubj", ".code.json"):
            path = f"{PUBLISHED}/{version.name}{suffix}"
            if suffix.startswith(".code") and path not in {one.path for one in listed}:
                continue  # not every model has a second stage
            content = artifact(store, version.run_id, path)
            (Path(folder) / f"model{suffix}").write_bytes(content)
        trees = Path(folder) / "model.ubj"
        model = LearnedModel.load(trees, schema)
        if code_model_path(trees).exists():
            CodeModel.load(trees, model.model_id)
    judged = version.tags.get("model_id")
    if judged != model.model_id:
        raise PromotionError(
            f"expected model {judged} as it was judged, found {model.model_id}"
        )
    return model


def score_ms(model: LearnedModel, rows: np.ndarray) -> float:
    """Milliseconds of scoring 512 candidates, the best of ten."""
    some = rows[np.arange(_N_CANDIDATES) % len(rows)]
    spent = []
    for _ in range(_N_TIMED):
        start = time.perf_counter()
        model.score(some)
        spent.append(time.perf_counter() - start)
    return 1000.0 * min(spent)


def recorded_bounds(store: Store, run_id: str) -> Bounds:
    """Bounds of the recipe that a run was trained by."""
    try:
        text = artifact(store, run_id, RECIPE).decode()
    except (MlflowException, OSError):
        return Bounds()
    return parse_recipe(text, f"recipe of run {run_id}").bounds


def _move(store: Store, done: Promotion) -> None:
    client = store.client
    if done.champion:
        client.set_registered_model_alias(done.name, PREVIOUS, done.champion)
    client.set_registered_model_alias(done.name, CHAMPION, done.challenger)
    client.delete_registered_model_alias(done.name, CHALLENGER)
    reasons = "; ".join(f"{one.name}: {one.found}" for one in done.checks)
    client.set_model_version_tag(done.name, done.challenger, "promoted", reasons[:4000])


def rollback(store: Store, name: str, *, dry_run: bool = False) -> tuple[str, str]:
    """Make the champion before the present one champion again.

    The one that goes keeps the alias `previous-champion`, so that a second rollback
    undoes the first.

    Returns:
        Versions: the one that went and the one that came back.

    Raises:
        PromotionError: There was none before.
    """
    champion = version_of_alias(store, name, CHAMPION)
    before = version_of_alias(store, name, PREVIOUS)
    if champion is None or before is None:
        raise PromotionError(
            f"expected versions of {name} with aliases '{CHAMPION}' and '{PREVIOUS}', "
            "found no such pair: nothing was promoted that could be undone"
        )
    if not dry_run:
        client = store.client
        client.set_registered_model_alias(name, CHAMPION, str(before.version))
        client.set_registered_model_alias(name, PREVIOUS, str(champion.version))
    return str(champion.version), str(before.version)
