"""Move the alias `champion`, or refuse and say by which check.

A challenger must be better than the champion beyond noise on the same evaluation, harm
no class beyond its bound, be the model that was judged (golden rows), fit this build,
and score fast enough to be asked at compile time.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlflow.exceptions import MlflowException

from costmodel.errors import PromotionError
from costmodel.features.schema import SCHEMA
from costmodel.features.schema import FeatureSchema
from costmodel.training.compare import compare
from costmodel.training.mlflow_store import CHALLENGER
from costmodel.training.mlflow_store import CHAMPION
from costmodel.training.mlflow_store import PREVIOUS
from costmodel.training.mlflow_store import Store
from costmodel.training.mlflow_store import other_models
from costmodel.training.mlflow_store import version_of_alias
from costmodel.training.promote_checks import Check
from costmodel.training.promote_checks import evaluation_checks
from costmodel.training.promote_checks import model_checks
from costmodel.training.recipe import Bounds
from costmodel.training.recipe import parse_recipe
from costmodel.training.run_files import RECIPE
from costmodel.training.run_files import artifact
from costmodel.training.run_lookup import rows_of


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
            f"{other_models(store, name) or '`costmodel train` makes one'}"
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
            "found no such pair: "
            f"{other_models(store, name) or 'nothing was promoted that can be undone'}"
        )
    if not dry_run:
        client = store.client
        client.set_registered_model_alias(name, CHAMPION, str(before.version))
        client.set_registered_model_alias(name, PREVIOUS, str(champion.version))
    return str(champion.version), str(before.version)
