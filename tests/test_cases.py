"""Inputs distilled from public bug reports, each with what good software does."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from log_builder import Try
from log_builder import trace_text

from costmodel.datasets.clean import clean
from costmodel.datasets.helion_log import LogIdentity
from costmodel.datasets.helion_log import read_logs
from costmodel.datasets.record import LabelQuality
from costmodel.datasets.record import Status
from costmodel.datasets.side_file import SideFacts
from costmodel.datasets.side_file import append_side_facts
from costmodel.datasets.side_file import side_path
from costmodel.datasets.store import Corpus
from costmodel.errors import CorruptRecordError

CASES = Path(__file__).parent / "cases"

V1_IDENTITY = LogIdentity(
    kernel_name="gemm_nn",
    input_shapes=((64, 2048), (2048, 4096)),
    dtypes=("torch.bfloat16", "torch.bfloat16"),
    hardware="NVIDIA H100 80GB HBM3",
    helion_version="1.0.0",
)


def statuses(run) -> Counter:
    return Counter(one.status for one in run.attempts)


def reasons(audit) -> Counter:
    counts = Counter()
    for one in audit:
        counts[one.reason] += one.rows
    return counts


def test_01_the_oldest_layout_stops_without_an_identity():
    with pytest.raises(CorruptRecordError, match=r"tune\.csv:1: .*names no kernel"):
        read_logs([CASES / "01_log_v1_config_index"])


def test_01_the_oldest_layout_reads_with_an_identity():
    runs, _ = read_logs([CASES / "01_log_v1_config_index"], identity=V1_IDENTITY)
    (run,) = runs
    assert run.problem is None
    assert run.kernel_name == "gemm_nn"
    assert run.side.helion_version == "1.0.0"
    assert statuses(run) == {Status.OK: 2, Status.ERROR: 1, Status.TIMEOUT: 1}
    failed = [one for one in run.attempts if one.status is Status.ERROR]
    assert failed[0].latency_us is None
    assert run.attempts[0].config["block_sizes"] == [64, 64, 64]


def test_02_duplicated_samples_count_once_and_join_the_meta_object():
    runs, audit = read_logs([CASES / "02_log_v2_sample_id"])
    (run,) = runs
    assert run.record.input_shapes == ((32, 4096), (1,))
    assert run.record.hardware == "NVIDIA H100 80GB HBM3"
    assert [one.latency_us for one in run.attempts] == [21.0, 17.0]
    assert reasons(audit) == {"sample id seen before": 1, "attempts": 2}


def test_03_a_shape_tuned_twice_is_one_run_with_all_its_configs():
    runs, audit = read_logs([CASES / "03_log_v3_append_two_runs"])
    assert [run.record.input_shapes[0] for run in runs] == [(64, 2048), (4096, 2048)]
    assert [len(run.attempts) for run in runs] == [8, 4]
    assert len(runs[0].configs) == 8  # 4 of each session's meta line
    assert {one.session for one in runs[0].attempts} == {0, 1}
    assert reasons(audit)["started row of a result"] == 12
    # From the meta line's JSON, not from the csv's repr.
    assert runs[0].attempts[0].config["loop_orders"] == [[0, 1]]


def test_04_a_killed_process_leaves_a_crash_suspect_and_a_count_of_what_is_lost():
    runs, audit = read_logs([CASES / "04_log_process_died"])
    (run,) = runs
    assert statuses(run) == {Status.OK: 1, Status.CRASHED: 1}
    (suspect,) = [one for one in run.attempts if one.status is Status.CRASHED]
    assert suspect.config_id == "a1fdd1d12757f1e2"
    assert suspect.latency_us is None
    assert suspect.status.is_failure
    assert "no meta line" in run.problem
    (lost,) = [one for one in audit if one.reason == "line cut off"]
    assert (lost.file, lost.line, lost.rows) == ("tune.csv", 5, 1)
    assert audit.totals() == {"dropped": 1, "merged": 1, "set_aside": 2}


def test_05_every_status_means_what_it_says():
    runs, audit = read_logs([CASES / "05_statuses_all"])
    (run,) = runs
    assert statuses(run) == dict.fromkeys(
        (
            Status.OK,
            Status.ERROR,
            Status.TIMEOUT,
            Status.PEER_COMPILATION_FAIL,
            Status.FILTERED,
            Status.DEDUPLICATED,
            Status.ACCURACY_ERROR,
            Status.SOURCE_REJECTED,
        ),
        1,
    )
    (unknown,) = [one for one in audit if "brand_new_status" in one.reason]
    assert (unknown.rows, unknown.line) == (1, 11)
    assert not Status.PEER_COMPILATION_FAIL.is_failure
    assert Status.PEER_COMPILATION_FAIL.says_nothing
    cleaned = {one.config_id: one for one in clean(run).measurements}
    copied = cleaned["6b495f3ec88e01ce"]
    assert copied.label_quality is LabelQuality.COPIED
    assert copied.readings_us == ()  # no sample of its own
    assert copied.latency_us == pytest.approx(12.3)
    # Neither the peer's failure nor the filtered config is a label.
    assert "5887aa6c8a9f8a74" not in cleaned
    assert "5e3601fe707a0c33" not in cleaned
    # Timed once and found wrong once: a wrong result is never fast.
    assert cleaned["f3472b132fd8357d"].status is Status.ACCURACY_ERROR


def test_06_repeats_are_aggregated_and_near_ties_are_reported():
    runs, _ = read_logs([CASES / "06_noise_repeats"])
    cleaned = clean(runs[0])
    assert len(cleaned.measurements) == 5
    assert {len(one.readings_us) for one in cleaned.measurements} <= {5, 6}
    best = sorted(cleaned.measurements, key=lambda one: one.latency_us)[:3]
    assert set(cleaned.tie_ids) == {one.canonical_id for one in best}


@pytest.mark.parametrize("seed", range(4))
def test_06_shuffled_rows_give_the_same_labels(tmp_path, seed):
    source = CASES / "06_noise_repeats"
    header, *rows = (source / "tune.csv").read_text().splitlines()
    random.Random(seed).shuffle(rows)
    (tmp_path / "tune.csv").write_text("\n".join([header, *rows]) + "\n")
    meta = (source / "tune.meta.jsonl").read_text()
    (tmp_path / "tune.meta.jsonl").write_text(meta)
    ordered, shuffled = (
        clean(read_logs([folder])[0][0]) for folder in (source, tmp_path)
    )
    assert ordered.measurements == shuffled.measurements
    assert ordered.tie_ids == shuffled.tie_ids


def test_07_two_programs_under_one_run_id_are_two_runs():
    runs, audit = read_logs([CASES / "07_run_id_collision"])
    assert [run.run_ordinal for run in runs] == [0, 1]
    assert runs[0].run_id == runs[1].run_id
    assert runs[0].record.ir_graph != runs[1].record.ir_graph
    assert [run.attempts[0].latency_us for run in runs] == pytest.approx([4.0, 7.6])
    ids = {clean(run).workload_id for run in runs}
    assert len(ids) == 2
    assert any("collision" in one.reason for one in audit)


@pytest.mark.parametrize("with_trace", [True, False])
def test_07_side_facts_go_to_the_session_they_belong_to(tmp_path, with_trace):
    source = CASES / "07_run_id_collision"
    for name in ("tune.csv", "tune.meta.jsonl"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    run_id = read_logs([source])[0][0].run_id
    facts = [
        SideFacts(run_id, started_at_s=900.0, scalars={"group": 128}),
        SideFacts(run_id, started_at_s=100.0, scalars={"group": 64}),
    ]
    append_side_facts(side_path(tmp_path / "tune"), facts[:1] if with_trace else facts)
    if with_trace:  # the first session has no side facts: times tell whose they are
        traces = []
        for number, run in enumerate(read_logs([source])[0]):
            tries = [
                Try(one.config, "ok", one.latency_us / 1e3) for one in run.attempts
            ]
            traces.append(trace_text(tries, (), f"t{number}", 101.0 + 800 * number))
        (tmp_path / "tune.trace.jsonl").write_text("".join(traces))
    runs, _ = read_logs([tmp_path])
    groups = [run.side.scalars["group"] if run.side else None for run in runs]
    assert groups == ([None, 128] if with_trace else [64, 128])


def test_07_sessions_that_cannot_be_told_apart_are_set_aside(tmp_path):
    source = CASES / "07_run_id_collision"
    lines = (source / "tune.csv").read_text().splitlines()
    # A third session of a process that was killed: no meta line says whose it is.
    (tmp_path / "tune.csv").write_text("\n".join([*lines, *lines[1:4]]) + "\n")
    meta = (source / "tune.meta.jsonl").read_text()
    (tmp_path / "tune.meta.jsonl").write_text(meta)
    runs, _ = read_logs([tmp_path])
    (run,) = runs
    assert "cannot be told apart" in run.problem
    assert len(run.attempts) == 9


def test_08_settings_that_change_code_keep_runs_apart():
    runs, _ = read_logs([CASES / "08_settings_change_timing"])
    assert len(runs) == 2
    assert [run.record.settings["index_dtype"] for run in runs] == [None, "torch.int64"]
    assert len({clean(run).workload_id for run in runs}) == 2


def test_21_the_default_is_always_there_and_small_wins_are_ties():
    runs, _ = read_logs([CASES / "21_default_best"])
    wins, tie = (clean(run) for run in runs)
    for one in (wins, tie):
        default = one.measurements[one.default_index]
        assert default.config_id == "df7058b75c1b5265"
        assert default.canonical_id in one.tie_ids
    best = min(wins.measurements, key=lambda one: one.latency_us)
    assert best.is_default
    assert len(tie.tie_ids) == 2


def test_22_an_aggregate_over_shapes_is_never_a_timing(tmp_path):
    runs, audit = read_logs([CASES / "22_multi_shape_log"])
    (run,) = runs
    assert "aggregate over several shapes" in run.problem
    assert audit.totals() == {"set_aside": 2}
    report = Corpus.load(tmp_path / "corpus", create=True).append([clean(run)])
    assert (report.n_added, report.n_skipped) == (0, 1)


def test_all_cases_at_once_are_read_and_named_apart():
    runs, audit = read_logs([CASES])
    assert len({(run.log, run.run_id, run.run_ordinal) for run in runs}) == len(runs)
    assert {run.log for run in runs} >= {"default_wins", "near_tie"}
    assert [one.where for one in audit.problems()] == [
        "cases/01_log_v1_config_index/tune.csv:1"
    ]
