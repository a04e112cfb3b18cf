"""Open an MLflow store: which one, quietly, and with one kind of error.

The store is `sqlite:///mlruns/mlflow.db` under the current folder, with artifacts under
`mlruns/` beside it; `MLFLOW_TRACKING_URI` wins, so that a team's server needs no change
of code. Credentials are MLflow's own variables (`MLFLOW_TRACKING_USERNAME`,
`MLFLOW_TRACKING_PASSWORD`, `MLFLOW_TRACKING_TOKEN`): they are read by MLflow from the
environment and nowhere else, and written nowhere.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.errors import CostModelError
from costmodel.errors import TrackingError

# Telemetry is on by default in MLflow 3; a build tool must not phone home.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")
# By default MLflow asks a dead server for minutes before it gives up.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")

EXPERIMENT = "helion-costmodel"
URI_VARIABLE = "MLFLOW_TRACKING_URI"
DEFAULT_STORE = "mlruns/mlflow.db"
CHAMPION = "champion"
CHALLENGER = "challenger"
PREVIOUS = "previous-champion"
_N_NAMED = 5  # registered models that an error lists


def tracking_uri(root: Path | str | None = None) -> str:
    """The store: `MLFLOW_TRACKING_URI`, else a database under `root` (None: here)."""
    chosen = os.environ.get(URI_VARIABLE)
    if chosen:
        return chosen
    folder = Path(root) if root is not None else Path()
    return f"sqlite:///{(folder / DEFAULT_STORE).as_posix()}"


def without_credentials(text: str) -> str:
    """The same without `user:password@`, which a URI may hold; for people and logs."""
    return re.sub(r"://[^/@\s]*@", "://", text)


def ui_command(root: Path | str | None = None) -> str:
    """A command line that opens the store in a browser."""
    return f"mlflow ui --backend-store-uri {tracking_uri(root)}"


@dataclass(frozen=True, slots=True)
class Store:
    """An open store.

    Attributes:
        uri: Of the store, without credentials.
        mlflow: The module, set to the store.
        client: MLflow's client of it.
    """

    uri: str
    mlflow: Any
    client: Any


@contextlib.contextmanager
def opened(root: Path | str | None = None, lost: str = "") -> Iterator[Store]:
    """An open store; leaves the environment as it was.

    Args:
        root: Folder of the default store.
        lost: What is and is not lost where the store fails, for the error.

    Raises:
        TrackingError: The store cannot be reached, read or written.
    """
    uri = tracking_uri(root)
    given = os.environ.get(URI_VARIABLE)
    try:
        with _quiet():
            mlflow = _mlflow()
            if not given:
                _make_default(uri, Path(root) if root is not None else Path(), mlflow)
            mlflow.set_tracking_uri(uri)
            mlflow.set_experiment(EXPERIMENT)
            yield Store(without_credentials(uri), mlflow, mlflow.MlflowClient())
    except (CostModelError, AssertionError):
        raise
    except Exception as error:
        # MLflow, SQLAlchemy, alembic and the network raise dozens of types here; none
        # of them may cost the user a trained model.
        found = without_credentials(" ".join(str(error).split()))[:200]
        raise TrackingError(
            f"expected an MLflow store at {without_credentials(uri)}, found "
            f"{type(error).__name__}: {found}: {lost}set {URI_VARIABLE} to a store "
            f"that can be read and written"
        ) from error
    finally:
        # MLflow writes the URI into the environment, where the next call would take it
        # for the user's wish.
        if given is None:
            os.environ.pop(URI_VARIABLE, None)


def _make_default(uri: str, root: Path, mlflow: Any) -> None:
    folder = (root / DEFAULT_STORE).parent.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    mlflow.set_tracking_uri(uri)
    if mlflow.get_experiment_by_name(EXPERIMENT) is None:
        # Named, because MLflow would put them under the current folder's `mlruns`.
        location = (folder / "artifacts").as_uri()
        mlflow.create_experiment(EXPERIMENT, artifact_location=location)


def _mlflow() -> Any:
    """MLflow, imported late because it costs seconds, and told to be quiet."""
    import mlflow
    import mlflow.xgboost

    # After the import, which sets them.
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return mlflow


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep MLflow's chatter on stderr and its warnings from hiding our one line."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def version_of_alias(store: Store, name: str, alias: str) -> Any:
    """The version of a registered model that has an alias, or None."""
    from mlflow.exceptions import MlflowException

    try:
        aliases = store.client.get_registered_model(name).aliases
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
    if alias not in aliases:
        return None
    return store.client.get_model_version(name, str(aliases[alias]))


def other_models(store: Store, name: str) -> str:
    """What to do where no model of this name is registered but others are; else ""."""
    names = sorted(one.name for one in store.client.search_registered_models())
    if name in names or not names:
        return ""
    listed = ", ".join(names[:_N_NAMED]) + (" and more" if names[_N_NAMED:] else "")
    return f"registered here is {listed}: --name {names[0]}"
