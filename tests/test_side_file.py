"""The side file: what is written is read back, and nothing else is believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.datasets.side_file import AttemptFacts
from costmodel.datasets.side_file import GpuFacts
from costmodel.datasets.side_file import SideFacts
from costmodel.datasets.side_file import append_side_facts
from costmodel.datasets.side_file import merge_side_facts
from costmodel.datasets.side_file import parse_side_line
from costmodel.datasets.side_file import read_side_file
from costmodel.datasets.side_file import side_path
from costmodel.datasets.side_file import to_json_line
from costmodel.errors import CorruptRecordError

times_us = st.lists(st.floats(0.1, 1e6), max_size=4).map(tuple)
words = st.text(max_size=12)
maybe_words = st.none() | words
attempts = st.builds(
    AttemptFacts,
    readings_us=times_us,
    code_digest=maybe_words,
    registers=st.none() | st.integers(0, 255),
    spill_bytes=st.none() | st.integers(0, 4096),
    smem_bytes=st.none() | st.integers(0, 232448),
)
side_facts = st.builds(
    SideFacts,
    run_id=words,
    started_at_s=st.none() | st.floats(0, 2e9),
    family=maybe_words,
    arguments=st.lists(words, max_size=3).map(tuple),
    scalars=st.dictionaries(words, st.integers() | st.booleans(), max_size=3),
    strides=st.lists(
        st.lists(st.integers(0, 9999), max_size=3).map(tuple), max_size=3
    ).map(tuple),
    helion_version=maybe_words,
    gpu=st.builds(GpuFacts, name=maybe_words, sm_clock_start_mhz=st.just(1980.0)),
    regime=maybe_words,
    default_config_id=maybe_words,
    default_config=st.none() | st.just({"block_sizes": [64], "num_warps": 4}),
    promoted=st.none() | st.booleans(),
    seed_config_ids=st.lists(words, max_size=3).map(tuple),
    attempts=st.dictionaries(words, attempts, max_size=3),
    interleaved_us=st.dictionaries(words, times_us, max_size=3),
    noise_floor_log=st.none() | st.floats(0, 1),
)


@given(side_facts)
def test_what_is_written_is_read_back(facts):
    line = to_json_line(facts)
    assert "\n" not in line
    assert parse_side_line(line, "f:1") == facts


def test_lines_are_appended_and_bad_ones_reported_by_line(tmp_path):
    path = side_path(tmp_path / "run.v1")
    assert path.name == "run.v1.costmodel.jsonl"
    append_side_facts(path, [SideFacts("a")])
    append_side_facts(path, [SideFacts("b")])
    with path.open("a") as file:
        file.write('{"run_id": "c", "schema_ver')
    facts, refused = read_side_file(path)
    assert [one.run_id for one in facts] == ["a", "b"]
    assert len(refused) == 1
    assert refused[0].startswith("run.v1.costmodel.jsonl:3: ")


def test_an_unknown_version_is_refused_and_an_unknown_key_is_not():
    body = json.loads(to_json_line(SideFacts("a", family="norm")))
    assert parse_side_line(json.dumps({**body, "new": 1}), "f:1").family == "norm"
    later = json.dumps({**body, "schema_version": 2})
    with pytest.raises(CorruptRecordError, match=r"f:1: expected .* 1, found 2"):
        parse_side_line(later, "f:1")


@pytest.mark.parametrize(
    "broken",
    [
        {"promoted": "yes"},
        {"family": 3},
        {"scalars": [1]},
        {"default_config": "Config()"},
        {"attempts": [1]},
        {"strides": 3},
        {"interleaved_us": {"a": ["fast"]}},
        {"gpu": "H200"},
        {"started_at_s": "noon"},
    ],
)
def test_a_field_of_another_type_is_refused_in_one_line(broken):
    body = json.loads(to_json_line(SideFacts("a"))) | broken
    with pytest.raises(CorruptRecordError, match=r"^f:7: [^\n]*$"):
        parse_side_line(json.dumps(body), "f:7")


def test_failed_re_timings_are_left_out():
    line = (
        '{"run_id": "a", "schema_version": 1, "interleaved_us": {"x": [1, null, -2]}}'
    )
    assert parse_side_line(line, "f:1").interleaved_us == {"x": (1.0,)}


def test_sessions_merge_with_the_earliest_first():
    later = SideFacts("a", 20.0, family="b", interleaved_us={"x": (2.0,)})
    earlier = SideFacts(
        "a",
        10.0,
        family="a",
        interleaved_us={"x": (1.0,), "y": (3.0,)},
        attempts={"x": AttemptFacts(readings_us=(1.5,), registers=32)},
    )
    merged = merge_side_facts([later, earlier])
    assert merged.family == "a"
    assert merged.interleaved_us == {"x": (1.0, 2.0), "y": (3.0,)}
    assert merged.attempts["x"].registers == 32
    assert merge_side_facts([]) is None


def test_readings_of_two_regimes_do_not_merge():
    first = SideFacts("a", 1.0, regime="back_to_back", interleaved_us={"x": (9.0,)})
    second = SideFacts(
        "a",
        2.0,
        regime="graph_replay",
        interleaved_us={"x": (5.0,)},
        attempts={"x": AttemptFacts(readings_us=(5.0,), registers=64)},
    )
    merged = merge_side_facts([first, second])
    assert (merged.regime, merged.interleaved_us) == ("back_to_back", {"x": (9.0,)})
    assert merged.attempts == {"x": AttemptFacts(registers=64)}


def test_the_bundled_side_files_are_of_this_version():
    folder = Path(__file__).parents[1] / "datasets" / "corpora" / "h200_sample"
    for path in sorted(folder.glob("*.costmodel.jsonl")):
        facts, refused = read_side_file(path)
        assert (len(facts), refused) == (1, [])
        assert facts[0].promoted is True
        assert facts[0].helion_version == "1.5.1"
