"""Labels: twins and repeats merged, first readings distrusted, order irrelevant."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from log_builder import RUN_ID
from log_builder import Try
from log_builder import csv_rows
from log_builder import csv_text
from log_builder import full_config
from log_builder import trace_text
from log_builder import write_log
from log_builder import write_text

from costmodel.datasets.clean import clean
from costmodel.datasets.helion_log import read_logs
from costmodel.datasets.noise import noise_floor_log
from costmodel.datasets.record import LabelQuality
from costmodel.datasets.record import Status
from costmodel.datasets.side_file import GRAPH_REPLAY
from costmodel.datasets.side_file import AttemptFacts
from costmodel.datasets.side_file import SideFacts
from costmodel.datasets.side_file import append_side_facts
from costmodel.datasets.side_file import side_path
from costmodel.features.canonical import config_id

SAMPLE = Path(__file__).parents[1] / "datasets" / "corpora" / "h200_sample"
DEFAULT = full_config(64)
OTHER = full_config(32)


def cleaned(folder, tries, side=None, **options):
    base = write_log(folder, tries)
    if side is not None:
        append_side_facts(side_path(base), [SideFacts(RUN_ID, **side)])
    (run,), _ = read_logs([folder])
    return clean(run, **options)


def by_id(clean_run):
    return {one.config_id: one for one in clean_run.measurements}


# Twins and repeats


def test_a_sparse_config_and_its_full_twin_are_one_measurement(tmp_path):
    sparse = {"block_sizes": [32, 128]}
    result = cleaned(tmp_path, [Try(DEFAULT), Try(OTHER), Try(sparse, perf_ms=0.07)])
    assert len(result.measurements) == 2
    merged = by_id(result)[config_id(OTHER)]  # the fullest spelling stands for both
    assert set(merged.twin_ids) == {config_id(OTHER), config_id(sparse)}
    assert merged.latency_us == pytest.approx(60.0)
    assert merged.label_quality is LabelQuality.REPEATED


def test_the_defaults_spelling_stands_for_its_twins(tmp_path):
    sparse = {"block_sizes": [64, 128]}
    result = cleaned(tmp_path, [Try(sparse), Try(DEFAULT, perf_ms=0.06), Try(OTHER)])
    default = result.measurements[result.default_index]
    assert default.config_id == config_id(sparse)
    assert default.canonical_id == config_id(DEFAULT)


def test_a_first_reading_is_not_used_where_there_is_another(tmp_path):
    sparse = {"block_sizes": [64, 128]}
    slow, fair = Try(DEFAULT, perf_ms=0.017), Try(sparse, perf_ms=0.014)
    result = cleaned(tmp_path, [slow, Try(OTHER), fair])
    default = result.measurements[result.default_index]
    assert default.latency_us == pytest.approx(14.0)
    assert default.label_quality is LabelQuality.SINGLE


def test_a_lone_first_reading_is_marked_and_distrusted(tmp_path):
    tries = [Try(DEFAULT, perf_ms=0.014), Try(OTHER, perf_ms=0.014)]
    result = cleaned(tmp_path, tries)
    first, second = (by_id(result)[config_id(one)] for one in (DEFAULT, OTHER))
    assert first.label_quality is LabelQuality.SINGLE_FIRST
    assert first.noise_floor_log > second.noise_floor_log + 0.1
    assert any("reads slow" in one.reason for one in result.findings)


def test_the_samples_default_of_add_takes_its_twins_reading():
    runs, _ = read_logs([SAMPLE / "add"])
    result = clean(runs[0])
    default = result.measurements[result.default_index]
    assert default.latency_us == pytest.approx(14.016, abs=1e-3)
    assert len(default.twin_ids) == 2


def test_later_readings_of_one_program_in_the_sample_lie_within_the_floor():
    n_pairs = 0
    for run in read_logs([SAMPLE])[0]:
        for one in clean(run).measurements:
            if one.label_quality is not LabelQuality.REPEATED:
                continue
            n_pairs += 1
            spread = math.log(one.readings_us[-1] / one.readings_us[0])
            single = noise_floor_log(one.latency_us, 1, LabelQuality.SINGLE)
            assert spread <= math.hypot(single, single)
    assert n_pairs == 11


# Kinds of readings


def test_the_best_kind_of_readings_is_used_and_kinds_do_not_mix(tmp_path):
    tries = [Try(DEFAULT, perf_ms=0.1), Try(OTHER, perf_ms=0.2)]
    base = write_log(tmp_path, tries)
    again = [(OTHER, 0.15), (OTHER, 0.17), (OTHER, 0.16)]
    write_text(base, ".trace.jsonl", trace_text(tries, again))
    append_side_facts(
        side_path(base),
        [SideFacts(RUN_ID, interleaved_us={config_id(DEFAULT): (90.0, 92.0, 91.0)})],
    )
    (run,), _ = read_logs([tmp_path])
    found = by_id(clean(run))
    default, other = found[config_id(DEFAULT)], found[config_id(OTHER)]
    assert (default.latency_us, default.label_quality) == (
        91.0,
        LabelQuality.INTERLEAVED,
    )
    assert other.latency_us == pytest.approx(160.0)
    assert other.label_quality is LabelQuality.REBENCHMARKED


def test_regimes_never_mix(tmp_path):
    default_id, other_id = config_id(DEFAULT), config_id(OTHER)
    third = full_config(8)
    side = {
        "regime": GRAPH_REPLAY,
        "attempts": {other_id: AttemptFacts(readings_us=(5.0,))},
        "interleaved_us": {default_id: (6.0, 6.2, 6.1)},
    }
    tries = [Try(DEFAULT, perf_ms=0.02), Try(OTHER, perf_ms=0.02), Try(third)]
    failed = Try(full_config(256), "error", None)
    result = cleaned(tmp_path, [*tries, failed], side)
    assert result.regime == GRAPH_REPLAY
    found = by_id(result)
    assert found[default_id].latency_us == 6.1
    assert found[other_id].latency_us == 5.0
    assert config_id(third) not in found  # timed in Helion's regime only
    assert found[config_id(failed.config)].status is Status.ERROR


def test_a_regime_without_readings_leaves_helions_times(tmp_path):
    result = cleaned(tmp_path, [Try(DEFAULT), Try(OTHER)], {"regime": GRAPH_REPLAY})
    assert result.regime == "back_to_back"
    assert all(one.latency_us == pytest.approx(50.0) for one in result.measurements)


# Failures


def test_failures_stay_and_flaky_configs_keep_their_time(tmp_path):
    tries = [
        Try(DEFAULT),
        Try(OTHER, "error", None),
        Try(OTHER, perf_ms=0.04, generation=1),
        Try(full_config(8), "timeout", None),
        Try(full_config(16), "accuracy_error", None),
        Try(full_config(16), perf_ms=0.01, generation=1),
        Try(full_config(128), "peer_compilation_fail", None),
    ]
    found = by_id(cleaned(tmp_path, tries))
    flaky = found[config_id(OTHER)]
    assert (flaky.status, flaky.n_failures) == (Status.OK, 1)
    assert found[config_id(full_config(8))].status is Status.TIMEOUT
    wrong = found[config_id(full_config(16))]
    assert (wrong.status, wrong.latency_us) == (Status.ACCURACY_ERROR, None)
    assert math.isnan(wrong.noise_floor_log)
    assert config_id(full_config(128)) not in found


def test_same_machine_code_merges_only_with_the_same_launch(tmp_path):
    staged = full_config(32, num_stages=3)
    wider = full_config(32, num_warps=8)
    facts = AttemptFacts(code_digest="c0de", smem_bytes=0)
    side = {"attempts": {config_id(one): facts for one in (OTHER, staged, wider)}}
    tries = [Try(DEFAULT), Try(OTHER), Try(staged, perf_ms=0.052), Try(wider)]
    result = cleaned(tmp_path, tries, side)
    twins = [one.twin_ids for one in result.measurements if len(one.twin_ids) > 1]
    assert [set(one) for one in twins] == [{config_id(OTHER), config_id(staged)}]


def test_a_key_of_the_callers_merges_further(tmp_path):
    tries = [Try(DEFAULT), Try(OTHER), Try(full_config(32, num_stages=4))]
    result = cleaned(tmp_path, tries, key_of=lambda full: str(full["block_sizes"]))
    assert len(result.measurements) == 2


def test_a_family_is_the_label_else_the_class(tmp_path):
    tries = [Try(DEFAULT), Try(OTHER)]
    labelled = cleaned(
        tmp_path / "a", tries, {"family": "norm"}, classify=lambda _record: "pointwise"
    )
    assert labelled.family == "norm"
    guessed = cleaned(tmp_path / "b", tries, classify=lambda _record: "pointwise")
    assert guessed.family == "pointwise"
    assert cleaned(tmp_path / "c", tries).family == "unknown"


# Laws

tries_strategy = st.lists(
    st.builds(
        Try,
        config=st.sampled_from([full_config(2**i) for i in range(4)])
        | st.sampled_from([{"block_sizes": [2**i, 128]} for i in range(4)]),
        status=st.sampled_from(["ok", "ok", "ok", "error", "timeout"]),
        perf_ms=st.floats(0.002, 3.0).map(lambda x: round(x, 6)),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(tries=tries_strategy, seed=st.integers(0, 2**16))
def test_the_order_of_attempts_changes_nothing(tmp_path_factory, tries, seed):
    folder = tmp_path_factory.mktemp("log")
    write_log(folder, tries)
    (run,), _ = read_logs([folder])
    attempts = list(run.attempts)
    random.Random(seed).shuffle(attempts)
    shuffled = dataclasses.replace(run, attempts=tuple(attempts))
    assert repr(clean(run).measurements) == repr(clean(shuffled).measurements)


@settings(max_examples=60, deadline=None)
@given(tries=tries_strategy)
def test_each_program_is_measured_once_within_its_readings(tmp_path_factory, tries):
    folder = tmp_path_factory.mktemp("log")
    write_log(folder, tries)
    (run,), _ = read_logs([folder])
    result = clean(run)
    ids = [one.canonical_id for one in result.measurements]
    assert len(set(ids)) == len(ids) and ids == sorted(ids)
    twins = [twin for one in result.measurements for twin in one.twin_ids]
    assert sorted(twins) == sorted({one.config_id for one in run.attempts})
    for one in result.measurements:
        if one.status is Status.OK:
            assert one.readings_us[0] <= one.latency_us <= one.readings_us[-1]
            assert one.noise_floor_log > 0
    assert result.default_index is not None


@given(
    st.floats(1.0, 1e5),
    st.integers(1, 20),
    st.sampled_from([q for q in LabelQuality if q is not LabelQuality.NONE]),
)
def test_noise_shrinks_with_time_and_readings_and_care(latency_us, n_readings, quality):
    floor = noise_floor_log(latency_us, n_readings, quality)
    assert 0 < floor < 0.5
    assert noise_floor_log(latency_us * 2, n_readings, quality) <= floor
    assert noise_floor_log(latency_us, n_readings + 1, quality) <= floor
    assert noise_floor_log(latency_us, n_readings, LabelQuality.INTERLEAVED) <= floor
    first = noise_floor_log(latency_us, n_readings, LabelQuality.SINGLE_FIRST)
    assert first >= floor


def test_rows_shuffled_in_the_file_give_the_same_labels(tmp_path):
    tries = [
        Try(full_config(2**i, num_warps=warps), perf_ms=0.05 + i / 100 + warps / 1000)
        for i in range(8)
        for warps in (2, 4, 8)
    ]
    base = write_log(tmp_path, tries)
    (run,), _ = read_logs([tmp_path])
    expected = clean(run)
    rows = csv_rows(tries)
    for seed in range(5):
        random.Random(seed).shuffle(rows)
        write_text(base, ".csv", csv_text(rows))
        (shuffled,), _ = read_logs([tmp_path])
        assert shuffled.default_config_id == run.default_config_id
        assert repr(clean(shuffled).measurements) == repr(expected.measurements)
