"""Models of a server: cached, checked, and never waited for."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler
from http.server import ThreadingHTTPServer

import pytest

from costmodel import remote_model
from costmodel.cli import main
from costmodel.errors import CostModelError
from costmodel.errors import ModelNotFoundError
from costmodel.learned import LearnedModel
from costmodel.learned import bundled_model_path
from costmodel.provider import MODEL_VARIABLE
from costmodel.provider import Provider

URI = "models:/team@champion"


class _Server(ThreadingHTTPServer):
    """Answers the two calls that fetching makes, as MLflow's server does."""

    daemon_threads = True
    version = "3"
    files: dict[str, bytes]
    headers_seen: list[str | None]


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.headers_seen.append(self.headers.get("Authorization"))
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        if parts.path == "/api/2.0/mlflow/registered-models/alias":
            assert query == {"name": "team", "alias": "champion"}
            found = {"version": self.server.version, "run_id": "r1"}
            self._answer(json.dumps({"model_version": found}).encode())
        elif parts.path == "/get-artifact" and query["run_uuid"] == "r1":
            self._answer(self.server.files.get(query["path"]))
        else:
            self._answer(None)

    def _answer(self, content: bytes | None) -> None:
        self.send_response(404 if content is None else 200)
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch, tmp_path):
    bundled = bundled_model_path()
    found = _Server(("127.0.0.1", 0), _Handler)
    found.headers_seen = []
    found.files = {
        f"published/team{suffix}": bundled.with_suffix(suffix).read_bytes()
        for suffix in (".ubj", ".json")
    }
    thread = threading.Thread(target=found.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{found.server_port}")
    _clean(monkeypatch, tmp_path)
    yield found
    found.shutdown()
    found.server_close()


def _clean(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv(remote_model.CACHE_VARIABLE, str(tmp_path / "cache"))
    for name in ("USERNAME", "PASSWORD", "TOKEN"):
        monkeypatch.delenv(f"MLFLOW_TRACKING_{name}", raising=False)
    monkeypatch.setattr(
        remote_model,
        "local_model",
        remote_model.local_model.__wrapped__,
    )


def test_a_fetched_model_is_the_one_of_the_server(server, capsys) -> None:
    assert remote_model.cached(URI) is None
    assert main(["fetch-model", URI, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    bundled = LearnedModel.load()
    assert facts["model_id"] == bundled.model_id
    path = remote_model.cached(URI)
    assert str(path) == facts["model"]
    assert path.read_bytes() == bundled_model_path().read_bytes()
    # A newer champion is another folder; a name of another server another cache.
    server.version = "4"
    assert remote_model.fetch(URI).parent.name == "4"
    assert remote_model.cached(URI).parent.name == "4"


def test_credentials_are_those_of_the_environment(server, monkeypatch) -> None:
    remote_model.fetch(URI)
    assert set(server.headers_seen) == {None}
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0ken")
    server.version = "4"
    remote_model.fetch(URI)
    assert server.headers_seen[-1] == "Bearer t0ken"
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")
    server.version = "5"
    remote_model.fetch(URI)
    pair = server.headers_seen[-1].removeprefix("Basic ")
    assert base64.b64decode(pair) == b"me:secret"


@pytest.mark.parametrize("damage", ["trees", "schema", "html"])
def test_a_model_that_is_none_never_enters_the_cache(server, damage) -> None:
    if damage == "trees":
        server.files["published/team.ubj"] = b"{}"
    elif damage == "schema":
        card = json.loads(server.files["published/team.json"])
        card["schema_hash"] = "0" * 64
        server.files["published/team.json"] = json.dumps(card).encode()
    else:
        server.files["published/team.json"] = b"<html>log in</html>"
    with pytest.raises(CostModelError):
        remote_model.fetch(URI)
    assert remote_model.cached(URI) is None


def test_the_cache_outlives_the_server_and_another_schema_does_not(
    server, monkeypatch
) -> None:
    path = remote_model.fetch(URI)
    server.shutdown()
    assert remote_model.cached(URI) == path
    card = json.loads(path.with_suffix(".json").read_text())
    card["schema_hash"] = "0" * 64
    path.with_suffix(".json").write_text(json.dumps(card))
    assert remote_model.cached(URI) is None
    assert remote_model.local_model(URI) == bundled_model_path()
    shutil.rmtree(path.parent)
    assert remote_model.cached(URI) is None


def test_a_silent_server_delays_no_compile(monkeypatch, tmp_path) -> None:
    # It takes the connection and never answers: the slowest way of being dead.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
        monkeypatch.setenv(remote_model.TIMEOUT_VARIABLE, "30")
        monkeypatch.setenv(MODEL_VARIABLE, URI)
        _clean(monkeypatch, tmp_path)
        remote_model.local_model("models:/team/1")  # threads and imports are warm
        start = time.perf_counter()
        path = Provider().model_path
        spent = time.perf_counter() - start
        assert path == bundled_model_path()
        assert spent < 2.0  # of 30 that the server would be waited for


def test_the_background_renews_the_cache_for_the_next_start(server) -> None:
    assert remote_model.local_model(URI) == bundled_model_path()
    renewing = [
        one for one in threading.enumerate() if one._target is remote_model._renew
    ]
    for thread in renewing:
        thread.join(30)
    assert remote_model.local_model(URI) == remote_model.cached(URI)
    assert remote_model.cached(URI) is not None


@pytest.mark.parametrize(
    "text", ["models:/", "models:/a", "models:/a@", "models:/../x@y", "models:/a/b"]
)
def test_a_name_that_is_none_is_one_clear_line(text, capsys) -> None:
    assert main(["fetch-model", text]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert remote_model.local_model(text) == bundled_model_path()


def test_no_server_no_fetch(monkeypatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///here.db")
    with pytest.raises(ModelNotFoundError, match="http"):
        remote_model.fetch(URI)


def test_a_remote_name_imports_no_mlflow() -> None:
    code = (
        "import sys\n"
        "from costmodel.remote_model import local_model\n"
        "local_model('models:/team@champion')\n"
        "assert 'mlflow' not in sys.modules\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
