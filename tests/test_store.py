"""A stored corpus: nothing twice, nothing lost, nothing of this machine."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from log_builder import Try
from log_builder import csv_rows
from log_builder import csv_text
from log_builder import full_config
from log_builder import meta_line
from log_builder import write_log
from log_builder import write_text

from costmodel.datasets import table_files
from costmodel.datasets.load import load_logs
from costmodel.datasets.store import ATTEMPTS_FILE
from costmodel.datasets.store import RUNS_FILE
from costmodel.datasets.store import Corpus
from costmodel.datasets.store_schema import without_paths
from costmodel.datasets.workload_data import WorkloadData
from costmodel.errors import CorruptRecordError
from costmodel.errors import StoreError

SAMPLE = Path(__file__).parents[1] / "datasets" / "corpora" / "h200_sample"
TRIES = [Try(full_config(2**i), perf_ms=0.05 + i / 100) for i in range(5)]


@pytest.fixture(scope="module")
def sample():
    return load_logs([SAMPLE]).clean_runs


def same(left: WorkloadData, right: WorkloadData) -> bool:
    """Equal in every field; arrays element by element, NaN equal to NaN."""
    for field in dataclasses.fields(WorkloadData):
        one, other = getattr(left, field.name), getattr(right, field.name)
        if isinstance(one, np.ndarray):
            if not np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
                return False
        elif field.name != "record" and one != other:
            return False
    return True


def test_a_corpus_gives_back_what_the_logs_gave(tmp_path, sample):
    corpus = Corpus.load(tmp_path / "corpus", create=True)
    report = corpus.append(sample)
    assert (report.n_added, report.n_attempts) == (8, 460)
    stored = Corpus.load(tmp_path / "corpus").workloads()
    direct = {one.run.log: WorkloadData.from_clean_run(one) for one in sample}
    assert [one.log for one in stored] == sorted(direct)
    for one in stored:
        assert same(one, direct[one.log])
        assert one.record.ir_graph == direct[one.log].record.ir_graph
        assert one.default_us > 0
        assert one.is_default.sum() == 1
        assert np.isfinite(one.latency_us[one.is_ok]).all()
        assert np.isnan(one.latency_us[one.is_failure]).all()


def test_importing_twice_adds_nothing_under_any_name(tmp_path, sample):
    corpus = Corpus.load(tmp_path / "corpus", create=True)
    first = corpus.append(sample)
    before = (tmp_path / "corpus" / ATTEMPTS_FILE).read_bytes()
    again = corpus.append(sample)
    assert (again.n_added, again.n_updated, again.n_known) == (0, 0, 8)
    assert again.digest == first.digest == corpus.digest
    assert (tmp_path / "corpus" / ATTEMPTS_FILE).read_bytes() == before
    renamed = [
        dataclasses.replace(one, run=dataclasses.replace(one.run, log="copy"))
        for one in sample
    ]
    assert corpus.append(renamed).n_known == 8


@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(order=st.permutations(range(8)), split=st.integers(0, 8))
def test_the_digest_knows_no_order(tmp_path_factory, sample, order, split):
    corpus = Corpus.load(tmp_path_factory.mktemp("corpus"), create=True)
    corpus.append([sample[i] for i in order[:split]])
    corpus.append([sample[i] for i in order[split:]])
    whole = Corpus.load(tmp_path_factory.mktemp("corpus"), create=True)
    whole.append(sample)
    assert corpus.digest == whole.digest
    assert [one.log for one in corpus.workloads()] == [
        one.log for one in whole.workloads()
    ]


def test_the_digest_knows_every_time_and_status(tmp_path):
    digests = set()
    for number, tries in enumerate(
        [TRIES, [*TRIES[:4], Try(TRIES[4].config, "error", None)], TRIES[:4]]
    ):
        folder = tmp_path / str(number)
        write_log(folder / "logs", tries)
        corpus = Corpus.load(folder / "corpus", create=True)
        corpus.append(load_logs([folder / "logs"]).clean_runs)
        digests.add(corpus.digest)
    assert len(digests) == 3


def test_a_log_that_has_grown_replaces_its_shorter_form(tmp_path):
    base = write_log(tmp_path / "logs", TRIES)
    corpus = Corpus.load(tmp_path / "corpus", create=True)
    corpus.append(load_logs([base]).clean_runs)
    more = [Try(full_config(2), perf_ms=0.09), Try(full_config(512), perf_ms=0.08)]
    text = csv_text(csv_rows(TRIES)) + csv_text(csv_rows(more), header=False)
    write_text(base, ".csv", text)
    write_text(base, ".meta.jsonl", meta_line(TRIES) + meta_line(more))
    report = corpus.append(load_logs([base]).clean_runs)
    assert (report.n_added, report.n_updated, corpus.n_runs) == (0, 1, 1)
    assert corpus.n_attempts == 6
    assert Corpus.load(tmp_path / "corpus").n_attempts == 6


def test_another_recording_of_the_same_workload_is_kept_beside_it(tmp_path):
    corpus = Corpus.load(tmp_path / "corpus", create=True)
    for number, shift_ms in enumerate((0.0, 0.001)):
        tries = [dataclasses.replace(t, perf_ms=t.perf_ms + shift_ms) for t in TRIES]
        base = write_log(tmp_path / str(number), tries)
        corpus.append(load_logs([base]).clean_runs)
    workloads = corpus.workloads()
    assert len(workloads) == 2
    assert len({one.workload_id for one in workloads}) == 1


# Writing that fails


def full_disk(_table, file, **_options):
    file.write(b"PAR1 half a file")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_loses_nothing_and_leaves_nothing(tmp_path, sample, monkeypatch):
    corpus = Corpus.load(tmp_path / "corpus", create=True)
    corpus.append(sample[:3])
    before = {p.name: p.read_bytes() for p in (tmp_path / "corpus").iterdir()}
    monkeypatch.setattr(table_files.pq, "write_table", full_disk)
    with pytest.raises(StoreError, match=r"No space left.*nothing was changed"):
        corpus.append(sample)
    after = {p.name: p.read_bytes() for p in (tmp_path / "corpus").iterdir()}
    assert before == after
    monkeypatch.undo()
    assert corpus.n_runs == 3  # in memory as on disk
    assert corpus.append(sample).n_added == 5


def test_dying_between_the_two_files_loses_nothing(tmp_path, sample, monkeypatch):
    corpus = Corpus.load(tmp_path / "corpus", create=True)
    corpus.append(sample[:3])
    digest, rename = corpus.digest, Path.replace

    def dies_at_the_runs(self, target):
        if Path(target).name == RUNS_FILE:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", dies_at_the_runs)
    with pytest.raises(StoreError):
        corpus.append(sample)
    monkeypatch.undo()
    reopened = Corpus.load(tmp_path / "corpus")
    assert (reopened.n_runs, reopened.digest) == (3, digest)
    assert len(reopened.workloads()) == 3
    assert reopened.append(sample).n_added == 5
    assert Corpus.load(tmp_path / "corpus").n_attempts == 460


def test_a_read_only_folder_is_one_clear_line(tmp_path, sample, monkeypatch):
    def denied(*_args, **_options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    folder = tmp_path / "corpus"
    Corpus.load(folder, create=True).append(sample[:1])
    monkeypatch.setattr(Path, "open", denied)  # root may write anywhere
    with pytest.raises(StoreError, match=r"^[^\n]*Permission denied[^\n]*$"):
        Corpus.load(folder).append(sample)
    monkeypatch.undo()
    assert Corpus.load(folder).n_runs == 1


def test_a_path_that_cannot_be_a_folder_is_one_clear_line(tmp_path, sample):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot write the corpus.*path is a file"):
        Corpus.load(tmp_path / "file" / "corpus", create=True).append(sample)
    with pytest.raises(StoreError, match=r"it is a file.*name a folder"):
        Corpus.load(tmp_path / "file", create=True).append(sample)


# Reading that fails


def test_no_corpus_there_says_how_to_make_one(tmp_path):
    with pytest.raises(CorruptRecordError, match="costmodel import"):
        Corpus.load(tmp_path)


def test_another_schema_version_is_refused(tmp_path, sample):
    Corpus.load(tmp_path, create=True).append(sample[:1])
    table = pq.read_table(tmp_path / RUNS_FILE)
    later = table.replace_schema_metadata({"costmodel_schema_version": "99"})
    pq.write_table(later, tmp_path / RUNS_FILE)
    with pytest.raises(StoreError, match=r"expected corpus schema 1, found 99"):
        Corpus.load(tmp_path)


def test_a_damaged_table_is_named(tmp_path, sample):
    Corpus.load(tmp_path, create=True).append(sample[:1])
    path = tmp_path / ATTEMPTS_FILE
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(CorruptRecordError, match=r"^[^\n]*attempts\.parquet[^\n]*$"):
        Corpus.load(tmp_path)


# Privacy and columns


def test_no_absolute_path_reaches_the_store(tmp_path):
    write_log(tmp_path / "logs", TRIES)  # its settings and graph hold such paths
    corpus = Corpus.load(tmp_path / "corpus", create=True)
    corpus.append(load_logs([tmp_path / "logs"]).clean_runs)
    for name in (RUNS_FILE, ATTEMPTS_FILE):
        rows = str(pq.read_table(tmp_path / "corpus" / name).to_pylist())
        for trace_of_it in ("/home/", "/a/b/", str(tmp_path)):
            assert trace_of_it not in rows
    (run,) = corpus.runs.to_pylist()
    assert "kernels.py:3" in run["ir_graph"]


def test_paths_are_cut_to_their_last_part():
    assert without_paths({"a": ["/x/y/z.py:3", "rel/z"]}) == {"a": ["z.py:3", "rel/z"]}
    assert without_paths("<function f at 0x7f69e899ccc0>") == "<function f>"
    assert without_paths("C:\\logs\\run") == "run"
    assert without_paths(3) == 3


def test_the_columns_that_everybody_relies_on_are_there(tmp_path, sample):
    corpus = Corpus.load(tmp_path, create=True)
    corpus.append(sample)
    wanted = {
        "workload_id", "run_id", "run_ordinal", "kernel", "family", "config_id",
        "canonical_id", "config", "status", "latency_us", "regime", "is_default",
        "label_quality", "helion_version", "triton_version", "code_digest", "acf_id",
    }  # fmt: skip
    assert wanted <= set(corpus.attempts.schema.names)
    assert corpus.attempts.schema.field("latency_us").type == pa.float64()
    assert set(corpus.attempts["triton_version"].to_pylist()) == {"3.6.0"}
