"""The reader: what it keeps, what it says, and that no content can make it raise."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from log_builder import HEADER
from log_builder import RUN_ID
from log_builder import Try
from log_builder import csv_rows
from log_builder import csv_text
from log_builder import full_config
from log_builder import meta_line
from log_builder import trace_text
from log_builder import write_log
from log_builder import write_text

from costmodel.datasets.audit import Outcome
from costmodel.datasets.clean import clean
from costmodel.datasets.csv_layouts import parse_config_text
from costmodel.datasets.helion_log import read_logs
from costmodel.datasets.record import DefaultSource
from costmodel.datasets.record import Phase
from costmodel.datasets.record import Status
from costmodel.datasets.side_file import SideFacts
from costmodel.datasets.side_file import append_side_facts
from costmodel.datasets.side_file import side_path
from costmodel.errors import CorruptRecordError
from costmodel.features.canonical import config_id

SAMPLE = Path(__file__).parents[1] / "datasets" / "corpora" / "h200_sample"

TRIES = [
    Try(full_config(64), perf_ms=0.061),
    Try(full_config(32), perf_ms=0.050),
    Try(full_config(128), "error", None),
    Try(full_config(256), "timeout", None, started=False),
]


def one_run(paths, **options):
    runs, audit = read_logs(paths, **options)
    assert len(runs) == 1
    return runs[0], audit


# The bundled sample


def test_the_sample_is_read_whole():
    runs, audit = read_logs([SAMPLE])
    assert len(runs) == 8
    assert not audit.problems()
    statuses = Counter(one.status for run in runs for one in run.attempts)
    assert statuses == {Status.OK: 412, Status.ERROR: 51, Status.TIMEOUT: 15}
    n_lines = sum(
        len(path.read_text().splitlines()) - 1 for path in SAMPLE.glob("*.csv")
    )
    assert sum(audit.totals().values()) == n_lines


def test_the_sample_has_full_precision_times_and_known_defaults():
    runs, _ = read_logs([SAMPLE])
    for run in runs:
        assert run.default_how is DefaultSource.SIDE_FILE
        assert run.default_config_id == run.attempts[0].config_id
        assert run.side.promoted is True
        assert run.has_graph
        times_ms = [one.latency_us / 1e3 for one in run.attempts if one.latency_us]
        assert any(time_ms != round(time_ms, 6) for time_ms in times_ms)


@pytest.mark.parametrize(
    "given_path", ["folder", "csv", "meta", "base"], ids=lambda one: one
)
def test_a_log_is_found_by_folder_file_or_base_path(given_path):
    paths = {
        "folder": SAMPLE,
        "csv": SAMPLE / "attn.csv",
        "meta": SAMPLE / "attn.meta.jsonl",
        "base": SAMPLE / "attn",
    }
    runs, _ = read_logs([paths[given_path], paths[given_path]])
    assert "attn" in [run.log for run in runs]
    assert len(runs) == (8 if given_path == "folder" else 1)


def test_config_text_of_the_sample_gives_its_logged_id():
    for line in (SAMPLE / "gemm_nn_64.csv").read_text().splitlines()[1:]:
        ident, text = line.split(",")[2], line.split(",", 7)[7].strip('"')
        assert config_id(parse_config_text(text)) == ident


# Pairs, sessions, defaults


def test_started_rows_pair_with_their_results(tmp_path):
    run, audit = one_run([write_log(tmp_path, TRIES)])
    assert [one.status for one in run.attempts] == [
        Status.OK,
        Status.OK,
        Status.ERROR,
        Status.TIMEOUT,
    ]
    assert audit.totals() == {"kept": 4, "merged": 3}
    assert [one.is_first_reading for one in run.attempts] == [True, False, False, False]


def test_the_default_is_the_first_started_even_if_a_refusal_is_logged_before(tmp_path):
    tries = [TRIES[3], *TRIES[:3]]
    run, _ = one_run([write_log(tmp_path, tries)])
    assert run.default_config_id == config_id(full_config(64))
    assert run.default_how is DefaultSource.FIRST_STARTED


def test_the_side_files_default_wins_over_the_first_started(tmp_path):
    base = write_log(tmp_path, TRIES)
    ident = config_id(full_config(32))
    append_side_facts(side_path(base), [SideFacts(RUN_ID, default_config_id=ident)])
    run, _ = one_run([tmp_path])
    assert (run.default_config_id, run.default_how) == (ident, DefaultSource.SIDE_FILE)
    first, _ = one_run([tmp_path], baseline="first")
    assert first.default_config_id == config_id(full_config(64))


def test_a_recomputed_default_is_found_under_a_sparse_spelling(tmp_path):
    sparse = {"block_sizes": [16, 128]}
    run, _ = one_run(
        [write_log(tmp_path, [*TRIES, Try(sparse)])],
        recompute=lambda _run: full_config(16),
    )
    assert run.default_config_id == config_id(sparse)
    assert run.default_how is DefaultSource.RECOMPUTED


def test_a_default_that_the_log_lacks_falls_back_unless_helion_is_forced(tmp_path):
    base = write_log(tmp_path, TRIES)
    auto, _ = one_run([base], recompute=lambda _run: full_config(8))
    assert auto.default_how is DefaultSource.FIRST_STARTED
    forced, _ = one_run(
        [base], baseline="helion", recompute=lambda _run: full_config(8)
    )
    assert forced.default_config_id is None
    assert forced.default_how is DefaultSource.UNKNOWN


def test_sessions_of_one_workload_are_one_run(tmp_path):
    again = [Try(full_config(64), perf_ms=0.055), Try(full_config(8), perf_ms=0.04)]
    text = csv_text(csv_rows(TRIES)) + csv_text(csv_rows(again), header=False)
    write_text(tmp_path / "run", ".csv", text)
    write_text(tmp_path / "run", ".meta.jsonl", meta_line(TRIES) + meta_line(again))
    run, _ = one_run([tmp_path])
    assert [one.session for one in run.attempts] == [0, 0, 0, 0, 1, 1]
    assert sum(one.is_first_reading for one in run.attempts) == 2
    assert [one.ordinal for one in run.attempts] == list(range(6))


def test_a_session_of_sparse_configs_is_no_other_program(tmp_path):
    sparse = [Try({"num_warps": 8}), Try({"block_sizes": [8, 128]})]
    text = csv_text(csv_rows(TRIES)) + csv_text(csv_rows(sparse), header=False)
    for graphs in ({}, {"ir_graph": None}):
        metas = meta_line(TRIES, **graphs) + meta_line(sparse[:1], ir_graph=None)
        write_text(tmp_path / "run", ".csv", text)
        write_text(tmp_path / "run", ".meta.jsonl", metas)
        run, _ = one_run([tmp_path])
        assert run.problem is None
        assert len(run.attempts) == 6
        assert run.has_graph is not bool(graphs)


def test_configs_of_two_kernels_under_one_id_are_two_runs(tmp_path):
    others = [Try({"block_sizes": [64]}), Try({"block_sizes": [32]})]
    text = csv_text(csv_rows(TRIES)) + csv_text(csv_rows(others), header=False)
    metas = meta_line(TRIES, ir_graph=None) + meta_line(others, ir_graph=None)
    write_text(tmp_path / "run", ".csv", text)
    write_text(tmp_path / "run", ".meta.jsonl", metas)
    runs, _ = read_logs([tmp_path])
    assert [len(run.attempts) for run in runs] == [4, 2]
    assert [run.run_ordinal for run in runs] == [0, 1]


# Trace


def test_rebenchmarks_come_after_the_trials(tmp_path):
    base = write_log(tmp_path, TRIES)
    precise = [dataclasses.replace(TRIES[0], perf_ms=0.06100049), *TRIES[1:]]
    again = [(full_config(32), 0.0512), (full_config(32), 0.0508)]
    write_text(base, ".trace.jsonl", trace_text(precise, again, started_at_s=77.0))
    run, audit = one_run([tmp_path])
    assert run.attempts[0].latency_us == pytest.approx(61.00049, abs=1e-6)
    late = [one for one in run.attempts if one.phase is Phase.REBENCHMARK]
    assert [one.latency_us for one in late] == pytest.approx([51.2, 50.8])
    assert run.started_at_s == 77.0
    assert audit.totals()["kept"] == 4  # re-timings are not rows of the csv


def test_a_trace_of_ratios_is_not_read_as_times(tmp_path):
    base = write_log(tmp_path, TRIES)
    text = trace_text(TRIES, [(full_config(32), 0.9)])
    write_text(base, ".trace.jsonl", text.replace('"ms"', '"ratio"'))
    run, _ = one_run([tmp_path])
    assert all(one.phase is Phase.TRIAL for one in run.attempts)


def test_each_workload_of_a_log_gets_its_own_trace_run(tmp_path):
    others = [Try(full_config(64), perf_ms=0.2), Try(full_config(32), perf_ms=0.3)]
    rows = csv_rows(TRIES) + csv_rows(others, run_id="cd" * 32)
    write_text(tmp_path / "run", ".csv", csv_text(rows))
    metas = meta_line(TRIES) + meta_line(others, run_id="cd" * 32, width=8192)
    write_text(tmp_path / "run", ".meta.jsonl", metas)
    traces = trace_text(others, [(full_config(64), 0.21)], "t1") + trace_text(
        TRIES, [(full_config(64), 0.059)], "t0"
    )
    write_text(tmp_path / "run", ".trace.jsonl", traces)
    runs, _ = read_logs([tmp_path])
    late = [
        [one.latency_us for one in run.attempts if one.phase is Phase.REBENCHMARK]
        for run in runs
    ]
    assert late == [[pytest.approx(59.0)], [pytest.approx(210.0)]]


# Bad input


def test_an_empty_folder_is_one_clear_line(tmp_path):
    with pytest.raises(CorruptRecordError, match=r"expected Helion .* found none"):
        read_logs([tmp_path])
    with pytest.raises(CorruptRecordError, match="no such file or folder"):
        read_logs([tmp_path / "nowhere"])


def test_a_csv_without_meta_is_a_run_with_a_problem(tmp_path):
    write_text(tmp_path / "run", ".csv", csv_text(csv_rows(TRIES)))
    run, audit = one_run([tmp_path])
    assert run.record is None
    assert "no meta line" in run.problem
    assert len(run.attempts) == 4
    assert audit.totals() == {"set_aside": 4, "merged": 3}


def test_a_meta_without_csv_names_file_and_line(tmp_path):
    write_text(tmp_path / "run", ".meta.jsonl", meta_line(TRIES))
    with pytest.raises(CorruptRecordError, match=r"run\.meta\.jsonl:1: .*no csv"):
        read_logs([tmp_path])


def test_a_foreign_csv_and_a_foreign_json_do_not_stop_the_rest(tmp_path):
    write_log(tmp_path, TRIES)
    write_text(tmp_path / "prices", ".csv", "date,price\n2026,3\n")
    write_text(tmp_path / "run", ".meta.jsonl", meta_line(TRIES) + '{"a": 1}\n[2]\n')
    _, audit = one_run([tmp_path])
    assert [one.where for one in audit.problems()] == [
        "prices.csv:1",
        "run.meta.jsonl:2",
        "run.meta.jsonl:3",
    ]


@pytest.mark.parametrize("nodes", [None, 1.5, "x", [1], [[]]])
def test_a_malformed_graph_leaves_the_rows_readable(tmp_path, nodes):
    base = write_log(tmp_path, TRIES)
    write_text(base, ".meta.jsonl", meta_line(TRIES, ir_graph={"nodes": nodes}))
    run, _ = one_run([tmp_path])
    assert len(clean(run).measurements) == 4


@pytest.mark.parametrize("perf", ["nan", "-0.01", "0.0", "inf"])
def test_impossible_times_are_dropped_by_line(tmp_path, perf):
    base = write_log(tmp_path, TRIES)
    text = csv_text(csv_rows(TRIES)).replace("0.050000", perf)
    write_text(base, ".csv", text)
    run, audit = one_run([tmp_path])
    assert len(run.attempts) == 3
    (found,) = [one for one in audit if "impossible time" in one.reason]
    assert (found.line, found.rows) == (5, 1)


def test_another_backend_is_set_aside(tmp_path):
    base = write_log(tmp_path, TRIES)
    write_text(base, ".meta.jsonl", meta_line(TRIES, settings={"backend": "cute"}))
    run, audit = one_run([tmp_path])
    assert "'cute'" in run.problem
    assert audit.totals()["set_aside"] == 4


def test_a_row_written_behind_a_cut_one_is_found(tmp_path):
    first, second = csv_text(csv_rows(TRIES[:2])), csv_rows([Try(full_config(16))])
    for cut in (8, 60, 90, 120, 200):
        text = first[:-cut] + csv_text(second, header=False)
        base = write_log(tmp_path, TRIES)
        write_text(base, ".csv", text)
        run, _ = one_run([tmp_path])
        last = run.attempts[-1]
        assert (last.config_id, last.status) == (config_id(full_config(16)), Status.OK)


def test_rows_appended_below_an_old_header_keep_their_own_layout(tmp_path):
    old = (
        "timestamp_s,config_index,generation,status,perf_ms,compile_time_s,config\r\n"
        '1.00,1,0,ok,0.02,0.5,"Config(block_sizes=[64, 64])"\r\n'
    )
    base = write_log(tmp_path, TRIES)
    write_text(base, ".csv", old + csv_text(csv_rows(TRIES), header=False))
    runs, audit = read_logs([tmp_path])
    assert [run.run_id for run in runs] == [RUN_ID]
    assert audit.totals()["dropped"] == 1


def test_an_interrupted_search_has_no_crash_if_only_its_result_line_is_cut(tmp_path):
    text = csv_text(csv_rows(TRIES[:2]))
    base = write_log(tmp_path, TRIES)
    write_text(base, ".csv", text[: text.rindex(",0.050000")])
    run, _ = one_run([tmp_path])
    assert [one.status for one in run.attempts] == [Status.OK]


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_log_cut_at_any_byte_never_raises(tmp_path, data):
    texts = {
        ".csv": csv_text(csv_rows(TRIES)),
        ".meta.jsonl": meta_line(TRIES),
        ".trace.jsonl": trace_text(TRIES, [(full_config(32), 0.0512)]),
    }
    victim = data.draw(st.sampled_from(sorted(texts)))
    cut = data.draw(st.integers(0, len(texts[victim])))
    texts[victim] = texts[victim][:cut]
    for suffix, text in texts.items():
        write_text(tmp_path / "run", suffix, text)
    try:
        runs, audit = read_logs([tmp_path])
    except CorruptRecordError:
        assert victim == ".csv"
        return
    whole = {config_id(one.config) for one in TRIES}
    assert {one.config_id for run in runs for one in run.attempts} <= whole
    n_lines = len([line for line in texts[".csv"].split("\n") if line.strip()])
    has_header = texts[".csv"].startswith(",".join(HEADER))
    assert sum(audit.totals().values()) == n_lines - has_header


@settings(max_examples=60, deadline=None)
@given(noise=st.binary(max_size=300), where=st.integers(0, 10_000))
def test_bytes_thrown_into_a_log_never_raise(tmp_path_factory, noise, where):
    folder = tmp_path_factory.mktemp("noise")
    for suffix in (".csv", ".meta.jsonl", ".trace.jsonl", ".costmodel.jsonl"):
        path = SAMPLE / f"add{suffix}"
        body = path.read_bytes()[:20_000]
        spot = where % (len(body) + 1)
        (folder / path.name).write_bytes(body[:spot] + noise + body[spot:])
    try:
        runs, _ = read_logs([folder])
    except CorruptRecordError:
        return  # not one run left: the one error that may come out
    times_us = [one.latency_us for run in runs for one in run.attempts]
    assert all(time is None or 0.0 < time < math.inf for time in times_us)


def test_every_finding_is_plain_data_and_a_table(tmp_path):
    write_log(tmp_path, TRIES)
    write_text(tmp_path / "prices", ".csv", "[red]date,price\n")
    _, audit = read_logs([tmp_path])
    assert json.loads(json.dumps(audit.rows())) == audit.rows()
    assert audit.table().row_count == len(audit)
    assert {row["outcome"] for row in audit.rows()} <= set(Outcome)
