"""Runs by the names that people use: a run id, an alias or a version."""

from __future__ import annotations

from mlflow.exceptions import MlflowException

from costmodel.errors import TrackingError
from costmodel.training.eval_table import Row
from costmodel.training.eval_table import from_parquet
from costmodel.training.mlflow_store import CHALLENGER
from costmodel.training.mlflow_store import CHAMPION
from costmodel.training.mlflow_store import PREVIOUS
from costmodel.training.mlflow_store import Store
from costmodel.training.mlflow_store import other_models
from costmodel.training.mlflow_store import version_of_alias
from costmodel.training.run_files import TABLE
from costmodel.training.run_files import artifact

_ALIASES = (CHAMPION, CHALLENGER, PREVIOUS)


def run_named(store: Store, text: str, model: str) -> str:
    """The run id that a text names.

    Args:
        store: Where to look.
        text: A run id, "champion", "challenger", "NAME@ALIAS" or "NAME/VERSION".
        model: Registered model whose alias a bare one is.

    Raises:
        TrackingError: Nothing of that name.
    """
    plain = text.removeprefix("models:/")
    name, at, alias = plain.rpartition("@")
    if plain in _ALIASES:
        name, at, alias = model, "@", plain
    try:
        if at:
            version = version_of_alias(store, name, alias)
            if version is None:
                others = other_models(store, name) or "`costmodel train` makes one"
                raise TrackingError(
                    f"expected a version of {name} with alias '{alias}', found none: "
                    f"{others}"
                )
            return str(version.run_id)
        if "/" in plain:
            name, _, number = plain.rpartition("/")
            return str(store.client.get_model_version(name, number).run_id)
        return str(store.client.get_run(text).info.run_id)
    except MlflowException as error:
        raise TrackingError(
            f"expected a run id, an alias, NAME@ALIAS or NAME/VERSION of "
            f"{store.uri}, found '{text}': {' '.join(str(error).split())[:120]}"
        ) from error


def rows_of(store: Store, run_id: str) -> list[Row]:
    """The evaluation table of a run.

    Raises:
        TrackingError: It has none.
        CorruptRecordError: It is of another build.
    """
    try:
        content = artifact(store, run_id, TABLE)
    except (MlflowException, OSError) as error:
        raise TrackingError(
            f"expected an evaluation table in run {run_id}, found none: it was made "
            "before tables were kept, or is a fold; train again"
        ) from error
    return from_parquet(content)
