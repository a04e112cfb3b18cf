"""Laws of choosing what to measure next, and the list that the collector reads."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from test_plan import DEFAULT
from test_plan import _offers

from costmodel.cli import main
from costmodel.datasets import collect
from costmodel.datasets.next_choice import Pool
from costmodel.datasets.next_choice import choose_next
from costmodel.datasets.next_choice import embedded
from costmodel.datasets.next_choice import most_informative
from costmodel.datasets.next_choice import near_optima
from costmodel.datasets.next_choice import representativeness
from costmodel.datasets.next_file import read_next
from costmodel.datasets.next_file import write_next
from costmodel.datasets.plan import Origin
from costmodel.datasets.plan import listed_configs
from costmodel.datasets.workloads.workload import Workload
from costmodel.errors import CorruptRecordError
from costmodel.forest import Predictions
from costmodel.learned import LearnedModel

WORKLOAD = Workload("file:kernel", ("bf16[8,8]", "0.5"), "family", "plain")


def _pool(seed: int, n: int = 60, *, known_share: float = 0.3) -> Pool:
    rng = np.random.default_rng(seed)
    return Pool(
        workload=rng.integers(5, size=n),
        features=rng.normal(size=(n, 7)).astype(np.float32),
        gain_log=rng.normal(0.0, 0.3, n),
        spread_log=rng.uniform(0.0, 0.2, n),
        valid_probability=rng.uniform(0.0, 1.0, n),
        is_known=rng.random(n) < known_share,
    )


@given(
    st.integers(0, 10_000),
    st.integers(0, 80),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
)
@settings(max_examples=40, deadline=None)
def test_chosen_rows_are_new_distinct_and_as_many_as_there_are(
    seed: int, n: int, share: float, known_share: float
) -> None:
    pool = _pool(seed, known_share=known_share)
    chosen = choose_next(pool, n, optimum_share=share)
    assert len(set(chosen)) == len(chosen)
    assert not pool.is_known[chosen].any()
    assert len(chosen) == min(n, int((~pool.is_known).sum()))
    assert chosen == choose_next(pool, n, optimum_share=share)


@given(st.integers(0, 10_000), st.floats(0.01, 100.0))
@settings(max_examples=20, deadline=None)
def test_units_of_features_and_of_doubt_do_not_matter(seed: int, unit: float) -> None:
    pool = _pool(seed)
    scaled = Pool(
        pool.workload,
        pool.features * np.float32(2.0) ** np.arange(7),
        pool.gain_log,
        pool.spread_log * unit,
        pool.valid_probability,
        pool.is_known,
    )
    chosen = most_informative(pool, 10, pool.is_known)
    assert most_informative(scaled, 10, pool.is_known) == chosen


def test_optima_take_turns_among_workloads_and_skip_what_will_fail() -> None:
    pool = Pool(
        workload=np.array([0, 0, 0, 1, 1, 1]),
        features=np.zeros((6, 2)),
        gain_log=np.array([0.1, 0.9, 0.5, 0.2, 0.1, 2.0]),
        spread_log=np.array([0.1, 0.1, 0.1, 0.2, 0.2, 0.2]),
        valid_probability=np.array([0.9, 0.9, 0.9, 0.9, 0.9, 0.1]),
        is_known=np.array([False] * 6),
    )
    # Workload 1 is less certain and comes first; its best row would fail.
    assert near_optima(pool, 4) == [3, 1, 4, 2]


def test_doubt_decides_between_equals_and_distance_between_doubts() -> None:
    places = np.array([[0.0, 0.0], [0.0, 0.1], [5.0, 5.0], [5.0, 5.1], [0.1, 0.0]])
    pool = Pool(
        workload=np.zeros(5, np.int64),
        features=places,
        gain_log=np.zeros(5),
        spread_log=np.array([0.3, 0.1, 0.2, 0.1, 0.1]),
        valid_probability=np.ones(5),
        is_known=np.array([True, False, False, False, False]),
    )
    first, second, *_ = most_informative(pool, 4, pool.is_known)
    assert first == 2  # far from what is known, and in doubt
    assert second != 3  # its twin, which would say the same again


def test_a_crowd_is_more_representative_than_a_hermit() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(80, 4)), np.full((1, 4), 30.0)])
    density = representativeness(embedded(rows))
    assert density[-1] == density.min()
    assert np.all((density > 0.0) & (density <= 1.0))


def test_features_that_never_change_are_no_trouble() -> None:
    pool = Pool(
        workload=np.zeros(3, np.int64),
        features=np.ones((3, 4)),
        gain_log=np.zeros(3),
        spread_log=np.ones(3),
        valid_probability=np.ones(3),
        is_known=np.zeros(3, np.bool_),
    )
    assert sorted(choose_next(pool, 5)) == [0, 1, 2]


def test_the_list_comes_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "next.jsonl"
    other = Workload("file:kernel", ("bf16[16,8]", "0.5"), "family", "plain")
    chosen = {other: [{"num_warps": 4}], WORKLOAD: [{"num_warps": 8}, {}]}
    write_next(path, chosen)
    assert list(read_next(path).items()) == [
        (workload.workload_id, configs) for workload, configs in chosen.items()
    ]


@pytest.mark.parametrize("text", ["[]\n", "{}\n", "nonsense\n", '{"configs": []}\n'])
def test_a_damaged_list_names_its_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "next.jsonl"
    path.write_text(text)
    with pytest.raises(CorruptRecordError, match=r"next\.jsonl:1"):
        read_next(path)
    with pytest.raises(CorruptRecordError, match="cannot read"):
        read_next(tmp_path / "missing.jsonl")


def test_listed_configs_come_after_the_default_and_once() -> None:
    other = {**DEFAULT, "num_warps": 8}
    refused = {**DEFAULT, "num_warps": 16, "num_stages": 8}
    planned = listed_configs(_offers(), [other, DEFAULT, refused, other])
    assert [one.config for one in planned] == [DEFAULT, other]
    assert [one.origin for one in planned] == [Origin.DEFAULT, Origin.LISTED]


def test_the_campaign_hands_listed_configs_to_workers(tmp_path: Path) -> None:
    path = tmp_path / "next.jsonl"
    write_next(path, {WORKLOAD: [{"num_warps": 8}]})
    command = [str(tmp_path), "--plan", str(path), "--workers", "1"]
    options: argparse.Namespace = collect.parser().parse_args(command)
    base, work = tmp_path / "recorded-0", tmp_path / "work"
    campaign = collect.Campaign(base, work, options, 1, 0.0)
    assert campaign._job(WORKLOAD, isolate=False)["configs"] == [{"num_warps": 8}]
    options.plan = None
    campaign = collect.Campaign(base, work, options, 1, 0.0)
    assert campaign._job(WORKLOAD, isolate=False)["configs"] is None


class _Unsure:
    """Stands in for a model; doubts every config by its place."""

    def predict(self, features: np.ndarray) -> Predictions:
        doubt = np.linspace(0.1, 0.2, len(features), dtype=np.float32)
        return Predictions(doubt, doubt, np.ones_like(doubt))


def test_next_lists_what_a_recording_then_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LearnedModel, "load", lambda path: _Unsure())
    out = tmp_path / "out"
    command = ["collect", str(out), "--limit", "2", "--configs", "6"]
    assert main([*command, "--next", "5"]) == 0
    assert "5 measurements of 2 workloads" in capsys.readouterr().out
    listed = read_next(out / "next.jsonl")
    assert sum(len(configs) for configs in listed.values()) == 5
    options = collect.parser().parse_args([str(out), "--plan", str(out / "next.jsonl")])
    assert [one.workload_id for one in collect.workloads_of(options)] == list(listed)
    assert all(json.dumps(one) for configs in listed.values() for one in configs)


def test_next_without_a_model_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "none.ubj")
    assert main(["collect", str(tmp_path), "--next", "3", "--model", missing]) == 1
    assert "costmodel train" in capsys.readouterr().err
