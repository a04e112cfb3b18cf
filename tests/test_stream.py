"""Corpora in parts and feature shards: nothing twice, nothing lost, little memory."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from log_builder import Try
from log_builder import csv_rows
from log_builder import csv_text
from log_builder import full_config
from log_builder import meta_line
from log_builder import write_log
from log_builder import write_text

from costmodel import cli_scale
from costmodel.cli import main
from costmodel.datasets.load import load_logs
from costmodel.datasets.store import RUNS_FILE
from costmodel.datasets.store import Corpus
from costmodel.datasets.stream_import import stream_import
from costmodel.datasets.stream_logs import stream_logs
from costmodel.datasets.stream_store import PartedCorpus
from costmodel.datasets.stream_store import is_parted
from costmodel.datasets.synth import Generator
from costmodel.errors import SchemaMismatchError
from costmodel.errors import StoreError
from costmodel.features.schema import SCHEMA
from costmodel.training import shards
from costmodel.training.label import label_all
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.shards import load_shards
from costmodel.training.shards import write_shards

SAMPLE = Path(__file__).parents[1] / "datasets" / "corpora" / "h200_sample"


def imported(folder, logs=SAMPLE, part_attempts=100):
    corpus = PartedCorpus(folder)
    found = stream_logs([logs], is_known=corpus.knows_log)
    return corpus, stream_import(found, corpus, part_attempts)


@pytest.fixture(scope="module")
def parted(tmp_path_factory):
    return imported(tmp_path_factory.mktemp("parts"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    corpus = Corpus.load(tmp_path_factory.mktemp("whole"), create=True)
    corpus.append(load_logs([SAMPLE]).clean_runs)
    return corpus


# In parts


def test_parts_together_are_the_one_corpus(parted, whole):
    corpus, report = parted
    assert len(corpus.parts) > 3
    assert corpus.digest == whole.digest == report.appended.digest
    assert (corpus.n_runs, corpus.n_attempts) == (whole.n_runs, whole.n_attempts)
    assert {one.log: one.config_ids for one in corpus.workloads()} == {
        one.log: one.config_ids for one in whole.workloads()
    }
    assert report.audit.totals() == load_logs([SAMPLE]).audit.totals()


def test_a_second_import_reads_no_log(parted):
    corpus, _ = parted
    _, again = imported(corpus.directory)
    assert (again.n_logs, again.n_logs_known) == (0, 8)
    assert again.appended.n_added == 0


def test_a_killed_import_goes_on(tmp_path, whole):
    """Whatever part was being written, the next start makes it whole."""
    corpus, _ = imported(tmp_path)
    last = corpus.parts[-1]
    (last / RUNS_FILE).unlink()  # died between the two files of its last part
    known = tmp_path / "known_logs.jsonl"
    text = known.read_text()
    known.write_text(text[: len(text) - 30])  # and in the middle of a line
    (tmp_path / "part-99999").mkdir()
    # Its logs were noted, so only an import that does not believe the notes helps.
    known.unlink()
    corpus, _ = imported(tmp_path)
    assert corpus.digest == whole.digest


def test_a_part_is_complete_before_its_logs_are_noted(tmp_path, monkeypatch):
    def full(*_arguments):
        raise StoreError("no space")

    monkeypatch.setattr(Corpus, "append", full)
    with pytest.raises(StoreError):
        imported(tmp_path)
    assert not (tmp_path / "known_logs.jsonl").exists()
    monkeypatch.undo()
    assert imported(tmp_path)[0].n_runs == 8


def test_a_log_that_has_grown_replaces_its_shorter_form(tmp_path):
    tries = [Try(full_config(2**i), perf_ms=0.05 + i / 100) for i in range(5)]
    base = write_log(tmp_path / "logs", tries)
    imported(tmp_path / "corpus", tmp_path / "logs")
    more = [Try(full_config(512), perf_ms=0.08)]
    text = csv_text(csv_rows(tries)) + csv_text(csv_rows(more), header=False)
    write_text(base, ".csv", text)
    write_text(base, ".meta.jsonl", meta_line(tries) + meta_line(more))
    corpus, report = imported(tmp_path / "corpus", tmp_path / "logs")
    done = report.appended
    assert (done.n_added, done.n_updated, corpus.n_runs) == (0, 1, 1)
    assert corpus.n_attempts == 6


def test_describing_parts_names_one_of_them(parted, capsys):
    folder = parted[0].directory
    assert main(["corpus", "describe", str(folder)]) == 1
    assert f"{folder}/part-00000" in capsys.readouterr().err
    assert main(["corpus", "describe", f"{folder}/part-00000", "--json"]) == 0


def test_a_corpus_in_one_piece_is_not_overwritten(whole):
    with pytest.raises(StoreError, match=r"^[^\n]*leave out --stream$"):
        PartedCorpus(whole.directory)


# Shards


@pytest.fixture(scope="module")
def sharded(tmp_path_factory, whole):
    location = str(tmp_path_factory.mktemp("shards"))
    return location, write_shards(iter(whole.workloads()), location, shard_rows=150)


def test_a_stored_workload_is_the_labelled_one(sharded, whole):
    location, report = sharded
    labelled = {one.workload_id: one for one in label_all(whole.workloads()).workloads}
    stored = load_shards(location)
    assert report.n_shards > 1
    assert report.n_rows == sum(one.n_rows for one in labelled.values())
    assert [one.workload_id for one in stored] == sorted(labelled)
    for one in stored:
        expected = labelled[one.workload_id]
        for field in dataclasses.fields(LabelledWorkload):
            mine, theirs = getattr(one, field.name), getattr(expected, field.name)
            if isinstance(theirs, np.ndarray):
                assert mine.dtype == theirs.dtype
                assert np.array_equal(mine, theirs, equal_nan=theirs.dtype.kind == "f")
            else:
                assert mine == theirs, field.name


def test_to_another_process_go_places_and_no_rows(sharded):
    (one, *_) = load_shards(sharded[0])
    there = copy.copy(one)  # by the same steps
    assert np.array_equal(there.features, one.features)
    assert there.workload_id == one.workload_id and there.place == one.place
    _, (_, _, facts) = one.__reduce__()
    assert not {"features", "configs", "analytic_us"} & facts.keys()
    assert Path(one.place.location).is_absolute()


def test_what_is_written_is_not_written_again(sharded, whole):
    location, first = sharded
    again = write_shards(iter(whole.workloads()), location)
    assert again.n_new_rows == 0
    assert again.digest == first.digest


def test_a_killed_writer_goes_on(tmp_path, sharded, whole):
    """Only whole shards count; the digest does not know how often it was killed."""

    def killed():
        yield from whole.workloads()[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(killed(), str(tmp_path), shard_rows=50)
    assert len(load_shards(str(tmp_path))) == 3
    report = write_shards(iter(whole.workloads()), str(tmp_path), shard_rows=10**6)
    assert report.digest == sharded[1].digest
    assert report.n_rows == sharded[1].n_rows


def test_other_measurements_of_a_run_are_refused(sharded, whole):
    one = whole.workloads()[0]
    other = dataclasses.replace(one, latency_us=one.latency_us * 2)
    with pytest.raises(StoreError, match=r"^[^\n]*to a new folder$"):
        write_shards(iter([other]), sharded[0])


def test_shards_of_other_features_are_refused(sharded, monkeypatch):
    class Other:
        hash = "0" * 64

        def __len__(self):
            return len(SCHEMA)

    monkeypatch.setattr(shards, "SCHEMA", Other())
    with pytest.raises(
        SchemaMismatchError, match=r"^[^\n]*expected features of schema"
    ):
        load_shards(sharded[0])


# On the command line


def test_synth_import_and_features_in_one_row(tmp_path, capsys):
    logs, corpus, rows = (str(tmp_path / one) for one in ("logs", "corpus", "shards"))
    made = str(tmp_path / "sample")
    assert main(["import", str(SAMPLE), "--corpus", made, "--json"]) == 0
    synth = ["corpus", "synth", logs, "--attempts", "90", "--per-run", "40"]
    assert main([*synth, "--from", made]) == 0
    stream = ["--stream", "--part-attempts", "50", "--json"]
    capsys.readouterr()
    assert main(["import", logs, "--corpus", corpus, *stream]) == 0
    told = json.loads(capsys.readouterr().out)
    assert is_parted(Path(corpus)) and told["n_runs"] == told["n_logs"] == 3
    assert main(["corpus", "features", corpus, "--out", rows, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["n_workloads"] == 3 and told["n_rows"] <= 90
    assert main(["corpus", "synth", logs, "--attempts", "90", "--from", rows]) == 1


@pytest.mark.parametrize("store", [[], ["--store"]])
def test_an_interrupted_synth_keeps_its_finished_runs(
    tmp_path, whole, monkeypatch, capsys, store
):
    made = Generator.run
    monkeypatch.setattr(Generator, "run", lambda self, index, n: stop_at(2, index, n))

    def stop_at(last, index, n):
        if index == last:
            raise KeyboardInterrupt
        return made(Generator(whole, 0, 40), index, n)

    out = str(tmp_path / "out")
    synth = ["corpus", "synth", out, "--attempts", "120", "--per-run", "40", *store]
    synth += ["--from", str(whole.directory), "--json"]
    assert main(synth) == 130
    assert f"interrupted; 2 finished runs are in {out}" in capsys.readouterr().err
    monkeypatch.setattr(Generator, "run", made)
    assert main(synth) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["n_runs"], told["n_attempts"]) == (3, 120)


def test_synth_finds_the_bundled_corpus_from_anywhere(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    synth = ["corpus", "synth", "out", "--attempts", "2"]
    assert main(synth) == 0
    # As in a wheel, which carries no corpora.
    monkeypatch.setattr(cli_scale.store, "__file__", str(tmp_path / "store.py"))
    assert main(synth) == 1
    assert "name one with --from" in capsys.readouterr().err
