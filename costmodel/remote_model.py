"""Models of a tracking server: `models:/NAME@champion`, with a cache and no waiting.

Serving never waits for a server. What is used is what the cache holds when the process
first needs a model, else the bundled model; a daemon thread asks the server meanwhile
and renews the cache for the next start. One process so keeps one model, and a dead or
slow server delays no compile. `costmodel fetch-model` fills the cache beforehand and
does wait.

MLflow is not imported: two of its REST calls are made with the standard library. The
server is `MLFLOW_TRACKING_URI`; credentials are MLflow's own variables.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import logging
import os
import re
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from costmodel.code_model import code_model_path
from costmodel.errors import CostModelError
from costmodel.errors import ModelNotFoundError
from costmodel.features.schema import SCHEMA
from costmodel.frozen import dataclass
from costmodel.learned import LearnedModel
from costmodel.learned import bundled_model_path

log = logging.getLogger("costmodel")

PREFIX = "models:/"
CACHE_VARIABLE = "COSTMODEL_CACHE"
TIMEOUT_VARIABLE = "COSTMODEL_MODEL_TIMEOUT"
_SERVER_VARIABLE = "MLFLOW_TRACKING_URI"
_DEFAULT_TIMEOUT_S = 5.0
# A model is about 1 MB; what is this large is none.
_MAX_BYTES = 64 * 1024 * 1024
_CURRENT = "current.json"


@dataclass(frozen=True, slots=True)
class RemoteName:
    """A registered model by alias or version.

    Attributes:
        name: Of the registered model.
        alias: Such as "champion", or "".
        version: A number, or "".
    """

    name: str
    alias: str
    version: str

    @classmethod
    def parse(cls, text: str) -> RemoteName:
        """Read `models:/NAME@ALIAS` or `models:/NAME/VERSION`.

        Raises:
            ModelNotFoundError: It is neither.
        """
        found = re.fullmatch(r"models:/([^@/\\]+)(?:@([^@/]+)|/(\d+))", text)
        if found is None or found[1].startswith("."):
            raise ModelNotFoundError(
                f"expected models:/NAME@ALIAS or models:/NAME/VERSION, found {text}"
            )
        return cls(found[1], found[2] or "", found[3] or "")


def is_remote(text: str | os.PathLike[str]) -> bool:
    """Whether a model is named by a registry and not by a path."""
    return os.fspath(text).startswith(PREFIX)


@functools.cache
def local_model(text: str) -> Path:
    """A model to use now for a remote name; asks the server in the background.

    Never raises and never waits: the cached model where there is one that this build
    can use, else the bundled one. Decided once in a process.
    """
    try:
        RemoteName.parse(text)
    except ModelNotFoundError:
        return bundled_model_path()
    found = cached(text)
    if found is None:
        log.warning(
            "costmodel: %s is not cached for this build; the bundled model is used "
            "(`costmodel fetch-model %s` caches it)",
            text,
            text,
        )
    # A daemon, so that a process that is done does not wait for a server either.
    threading.Thread(target=_renew, args=(text,), daemon=True).start()
    return found if found is not None else bundled_model_path()


def _renew(text: str) -> None:
    # Nothing that a server or a disk does may reach a compile.
    try:
        fetch(text)
    except Exception as error:
        log.info("costmodel: %s was not renewed: %s", text, error)


def cached(text: str) -> Path | None:
    """The cached `.ubj` of a remote name, or None: none, damaged, of another schema."""
    folder = cache_folder(text)
    try:
        version = json.loads((folder / _CURRENT).read_text())["version"]
        path = folder / str(version) / "model.ubj"
        card = json.loads(path.with_suffix(".json").read_text())
        is_usable = path.exists() and card["schema_hash"] == SCHEMA.hash
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return path if is_usable else None


def cache_folder(text: str) -> Path:
    """Where a remote name is cached; one folder for each server and name."""
    root = os.environ.get(CACHE_VARIABLE)
    base = Path(root) if root else Path.home() / ".cache" / "helion-costmodel"
    server = _without_credentials(os.environ.get(_SERVER_VARIABLE, ""))
    key = hashlib.sha256(f"{server} {text}".encode()).hexdigest()[:16]
    return base / "models" / key


def fetch(text: str, timeout_s: float | None = None) -> Path:
    """Ask the server for a model and put it in the cache.

    Args:
        text: `models:/NAME@ALIAS` or `models:/NAME/VERSION`.
        timeout_s: Of each request; None means `COSTMODEL_MODEL_TIMEOUT`, else 5.

    Returns:
        Path of the cached `.ubj`.

    Raises:
        ModelNotFoundError: No server is named, or it does not answer, or has no such
            model.
        CostModelError: What it has is damaged, or of other features.
    """
    wanted = RemoteName.parse(text)
    server = os.environ.get(_SERVER_VARIABLE, "").rstrip("/")
    if not server.startswith(("http://", "https://")):
        raise ModelNotFoundError(
            f"expected {_SERVER_VARIABLE} to be http:// or https:// to fetch {text}, "
            f"found {_without_credentials(server) or 'nothing'}"
        )
    spent = _timeout_s() if timeout_s is None else timeout_s
    version, run_id = _version_of(server, wanted, spent)
    folder = cache_folder(text)
    path = folder / version / "model.ubj"
    if not path.exists():
        _download(server, wanted.name, run_id, path, spent)
    _write(folder / _CURRENT, json.dumps({"version": version}).encode())
    return path


def _version_of(server: str, wanted: RemoteName, timeout_s: float) -> tuple[str, str]:
    """Number and run id of the version that a name means now."""
    if wanted.alias:
        call, keys = "registered-models/alias", {"alias": wanted.alias}
    else:
        call, keys = "model-versions/get", {"version": wanted.version}
    query = urllib.parse.urlencode({"name": wanted.name, **keys})
    content = _get(server, f"api/2.0/mlflow/{call}?{query}", timeout_s)
    try:
        found = json.loads(content)["model_version"]
        version, run_id = str(int(found["version"])), str(found["run_id"])
    except (ValueError, KeyError, TypeError) as error:
        raise ModelNotFoundError(
            f"expected an MLflow server at {_without_credentials(server)}, found one "
            f"that answers otherwise ({type(error).__name__})"
        ) from error
    return version, run_id


def _download(
    server: str, name: str, run_id: str, path: Path, timeout_s: float
) -> None:
    """All files of a version, checked before any is where it would be found."""
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    published = Path(f"{name}.ubj")
    second = code_model_path(published)
    with tempfile.TemporaryDirectory(dir=path.parent.parent) as scratch:
        staged = Path(scratch) / "version"
        staged.mkdir()
        wanted = [(published, path.name), (second, code_model_path(path).name)]
        for source, target in wanted:
            for suffix in (".ubj", ".json"):
                file = source.with_suffix(suffix).name
                query = urllib.parse.urlencode(
                    {"path": f"published/{file}", "run_uuid": run_id}
                )
                try:
                    content = _get(server, f"get-artifact?{query}", timeout_s)
                except ModelNotFoundError as error:
                    answered = isinstance(error.__cause__, urllib.error.HTTPError)
                    if source == published or not answered:
                        raise
                    continue  # not every model has a second stage
                _write(staged / Path(target).with_suffix(suffix).name, content)
        LearnedModel.load(staged / path.name)
        if path.parent.exists():
            return  # another process was faster
        os.replace(staged, path.parent)


def _get(server: str, path: str, timeout_s: float) -> bytes:
    parts = urllib.parse.urlsplit(server)
    plain = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.split("@")[-1]))
    request = urllib.request.Request(f"{plain}/{path}", headers=_headers(parts))
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            content: bytes = answer.read(_MAX_BYTES + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise ModelNotFoundError(
            f"expected {path.split('?')[0]} of the tracking server at {plain}, found "
            f"{error}"
        ) from error
    if len(content) > _MAX_BYTES:
        raise ModelNotFoundError(f"{plain}/{path}: larger than any model")
    return content


def _headers(server: urllib.parse.SplitResult) -> dict[str, str]:
    """Credentials as MLflow's own client reads them from the environment."""
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    user = os.environ.get("MLFLOW_TRACKING_USERNAME") or server.username
    password = os.environ.get("MLFLOW_TRACKING_PASSWORD") or server.password
    if user:
        pair = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    return {"Authorization": f"Bearer {token}"} if token else {}


def _timeout_s() -> float:
    try:
        return max(0.1, float(os.environ[TIMEOUT_VARIABLE]))
    except (KeyError, ValueError):
        return _DEFAULT_TIMEOUT_S


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all: other processes read the cache at any time."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise CostModelError(f"{path}: {error.strerror or error}") from error


def _without_credentials(text: str) -> str:
    return re.sub(r"://[^/@\s]*@", "://", text)
