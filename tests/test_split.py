"""Splits: whole groups out, never a row of a workload on both sides."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.datasets.load import load_logs
from costmodel.datasets.split import by_family
from costmodel.datasets.split import group_k_fold
from costmodel.datasets.split import iter_groups
from costmodel.datasets.split import leave_one_family_out
from costmodel.datasets.split import leave_one_group_out
from costmodel.datasets.split import leave_one_kernel_out
from costmodel.datasets.split import leave_one_shape_out
from costmodel.datasets.workload_data import WorkloadData
from costmodel.errors import NotEnoughDataError

SAMPLE = Path(__file__).parents[1] / "datasets" / "corpora" / "h200_sample"
groups_strategy = st.lists(st.sampled_from("abcd"), min_size=2, max_size=20).filter(
    lambda groups: len(set(groups)) > 1
)


@pytest.fixture(scope="module")
def sample():
    return [WorkloadData.from_clean_run(one) for one in load_logs([SAMPLE]).usable]


@given(groups_strategy)
def test_each_group_is_left_out_once_and_whole(groups):
    splits = leave_one_group_out(groups)
    assert [name for name, _, _ in splits] == sorted(set(groups))
    for name, train, held_out in splits:
        assert {groups[i] for i in held_out} == {name}
        assert name not in {groups[i] for i in train}
        assert sorted([*train, *held_out]) == list(range(len(groups)))


@given(groups_strategy, st.integers(2, 5))
def test_folds_keep_groups_whole_and_cover_everything(groups, n_folds):
    splits = group_k_fold(groups, n_folds)
    covered = sorted(i for _, _, held_out in splits for i in held_out)
    assert covered == list(range(len(groups)))
    for _, train, held_out in splits:
        assert not {groups[i] for i in train} & {groups[i] for i in held_out}


def test_one_group_is_not_enough():
    with pytest.raises(NotEnoughDataError, match="found 1"):
        leave_one_group_out(["a", "a"])
    with pytest.raises(NotEnoughDataError):
        leave_one_family_out([])


def test_the_sample_splits_by_family_and_kernel_but_not_by_shape(sample):
    assert len(leave_one_family_out(sample)) == 8
    assert len(leave_one_kernel_out(sample)) == 8
    with pytest.raises(NotEnoughDataError, match="record more shapes"):
        leave_one_shape_out(sample)


def test_a_shape_is_left_out_only_where_a_sibling_stays(sample):
    attn, add = sample[1], sample[0]
    wide = dataclasses.replace(attn, workload_id="wide")
    again = dataclasses.replace(attn, run_ordinal=1)  # a second run of one shape
    splits = leave_one_shape_out([attn, wide, again, add])
    left_out = {name: sorted(held_out) for name, _, held_out in splits}
    assert left_out == {attn.workload_id: [0, 2], "wide": [1]}


def test_groups_come_sorted(sample):
    names = [name for name, _ in iter_groups(sample, by_family)]
    assert names == sorted(names)
    assert sum(len(members) for _, members in iter_groups(sample, by_family)) == 8
