"""Remote places: the same commands, the same bytes, and one line where they fail."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import fsspec
import pytest

from costmodel.cli import main
from costmodel.datasets import archive
from costmodel.datasets import collect
from costmodel.datasets import locations
from costmodel.datasets.store import Corpus
from costmodel.errors import LocationError

SAMPLE = Path(__file__).parents[1] / "datasets" / "corpora" / "h200_sample"
LOGS = ("add", "softmax2")


@pytest.fixture(params=["file", "memory"])
def bucket(request, tmp_path):
    """A place of two logs; empty again afterwards."""
    root = {"file": f"file://{tmp_path}/bucket", "memory": "memory://bucket"}[
        request.param
    ]
    for file in sorted(SAMPLE.iterdir()):
        if file.name.split(".")[0] in LOGS:
            locations.send(file, f"{root}/logs/{file.name}")
    yield root
    system, path = fsspec.core.url_to_fs(root)
    system.rm(path, recursive=True)


@pytest.fixture
def local(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    for file in SAMPLE.iterdir():
        if file.name.split(".")[0] in LOGS:
            shutil.copy(file, folder)
    return folder


def told(capsys, *words) -> dict:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_audit_reads_what_a_local_folder_holds(bucket, local, capsys):
    assert told(capsys, "audit", f"{bucket}/logs") == told(capsys, "audit", str(local))


def test_import_writes_the_corpus_that_a_local_import_writes(bucket, local, capsys):
    there = told(capsys, "import", f"{bucket}/logs", "--corpus", f"{bucket}/corpus")
    folder = str(local.parent / "corpus")
    here = told(capsys, "import", str(local), "--corpus", folder)
    assert there["n_added"] == here["n_added"] == 2
    assert there["digest"] == here["digest"]
    with locations.inputs([f"{bucket}/corpus"]) as (path,):
        assert Corpus.load(path).digest == here["digest"]
    again = told(capsys, "import", f"{bucket}/logs", "--corpus", f"{bucket}/corpus")
    assert (again["n_added"], again["n_known"]) == (0, 2)
    names = locations.names_in(f"{bucket}/corpus")
    assert names == ["attempts.parquet", "audit.json", "runs.parquet"]


def test_one_log_is_found_by_any_of_its_files(bucket, capsys):
    found = told(capsys, "audit", f"{bucket}/logs/add.csv")
    assert {one["file"].split(".")[0] for one in found["findings"]} == {"add"}
    assert found["totals"]["kept"] > 0


def test_parts_and_shards_lie_there_too(bucket, capsys):
    corpus, rows = f"{bucket}/parts", f"{bucket}/shards"
    stream = ("--stream", "--part-attempts", "10")
    made = told(capsys, "import", f"{bucket}/logs", "--corpus", corpus, *stream)
    assert made["n_runs"] == 2
    shards = told(capsys, "corpus", "features", corpus, "--out", rows)
    assert shards["n_workloads"] == 2
    again = told(capsys, "corpus", "features", corpus, "--out", rows)
    assert again["n_new_rows"] == 0 and again["digest"] == shards["digest"]
    from costmodel.training.shards import load_shards

    assert [one.features.shape[0] for one in load_shards(rows)] == [
        one.n_rows for one in load_shards(rows)
    ]


def test_describe_and_export(bucket, capsys):
    told(capsys, "import", f"{bucket}/logs", "--corpus", f"{bucket}/corpus")
    assert told(capsys, "corpus", "describe", f"{bucket}/corpus")["n_workloads"] == 2
    words = ["corpus", "export", f"{bucket}/corpus", f"{bucket}/shared", "--anonymise"]
    assert main(words) == 0
    assert "runs.parquet" in locations.names_in(f"{bucket}/shared")


def test_a_recording_is_there_part_by_part_and_goes_on(bucket, tmp_path):
    """What the collector archives is sent when it is archived, and fetched to go on."""
    out = f"{bucket}/recorded"
    options = collect.parser().parse_args([out, "--seconds", "1"])
    (tmp_path / "w1.csv").write_text("one")
    (tmp_path / "w1.costmodel.jsonl").write_text("{}")
    with collect.local_out(options) as local:
        base = local.out / "recorded-0"
        kept = archive.Archive(base, written=lambda p: collect._send(p, local.sent_to))
        kept.add([tmp_path / "w1.csv", tmp_path / "w1.costmodel.jsonl"])
        assert locations.names_in(out) == ["recorded-0.tar.xz"], "sent at once"
    options = collect.parser().parse_args([out])
    with collect.local_out(options) as local:
        assert collect.archived_ids(local.out / "recorded-0") == {"w1"}


def test_a_plan_is_written_there(bucket):
    words = ["collect", f"{bucket}/plan", "--dry-run", "--limit", "1"]
    assert main(words) == 0
    assert locations.names_in(f"{bucket}/plan") == ["order.txt"]


def test_a_local_path_is_never_copied(tmp_path):
    with locations.inputs([str(tmp_path)]) as (path,):
        assert path == str(tmp_path)
    with locations.folder_of(str(tmp_path / "new")) as folder:
        assert folder == str(tmp_path / "new") and not Path(folder).exists()


def test_nothing_is_sent_of_what_failed(bucket):
    with (
        pytest.raises(RuntimeError),
        locations.folder_of(f"{bucket}/half") as folder,
    ):
        (Path(folder) / "file").write_text("half")
        raise RuntimeError
    assert locations.names_in(f"{bucket}/half") == []


def test_what_makes_a_corpus_one_is_sent_last(bucket, monkeypatch):
    sent = []
    monkeypatch.setattr(locations, "send", lambda path, to: sent.append(path.name))
    with locations.folder_of(f"{bucket}/c", last=("runs.parquet",)) as folder:
        for name in ("runs.parquet", "attempts.parquet", "zz.json"):
            (Path(folder) / name).write_text(name)
    assert sent[-1] == "runs.parquet" and len(sent) == 3


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("s3://bucket/logs", "expected a driver for s3://"),
        ("nowhere://bucket/logs", "expected a scheme that fsspec knows"),
        ("memory://not/there", "no such file or folder"),
    ],
)
def test_what_cannot_be_reached_is_one_line(location, says, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "s3fs", None)
    assert main(["audit", location]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and says in error and location in error


def test_without_fsspec_there_is_one_line(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(LocationError, match=r"pip install helion-costmodel\[scale\]$"):
        locations.filesystem("s3://bucket")
