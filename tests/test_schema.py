"""The layout of features: names, groups and hashes that a model can rely on."""

from __future__ import annotations

import dataclasses
import itertools

from costmodel.features.schema import SCHEMA
from costmodel.features.schema import Feature
from costmodel.features.schema import FeatureSchema


def test_names_are_unique_and_every_column_has_a_unit() -> None:
    assert len(set(SCHEMA.names)) == len(SCHEMA) == len(SCHEMA.units)
    assert all(SCHEMA.units)


def test_groups_are_neighbours_in_order() -> None:
    assert SCHEMA.groups == ("base", "difference", "workload")
    stops = [SCHEMA.columns(group) for group in SCHEMA.groups]
    assert stops[0].start == 0
    assert stops[-1].stop == len(SCHEMA)
    assert all(a.stop == b.start for a, b in itertools.pairwise(stops))


def test_differences_follow_the_base_group() -> None:
    base = SCHEMA.names[SCHEMA.columns("base")]
    difference = SCHEMA.names[SCHEMA.columns("difference")]
    assert difference == tuple(f"d_{name}" for name in base)


def test_a_group_that_joins_later_leaves_the_other_hashes_alone() -> None:
    joined = FeatureSchema(
        (*SCHEMA.features, Feature("registers", "count", "compiled"))
    )
    before, after = SCHEMA.group_hashes, joined.group_hashes
    assert {group: after[group] for group in before} == before
    assert set(after) - set(before) == {"compiled"}
    assert joined.hash != SCHEMA.hash


def test_any_change_of_a_column_changes_the_hash_of_its_group_only() -> None:
    first = SCHEMA.features[0]
    for change in (
        dataclasses.replace(first, name="other"),
        dataclasses.replace(first, unit="other"),
    ):
        changed = FeatureSchema((change, *SCHEMA.features[1:]))
        differing = {
            group
            for group, digest in SCHEMA.group_hashes.items()
            if changed.group_hashes[group] != digest
        }
        assert differing == {"base"}
        assert changed.hash != SCHEMA.hash


def test_order_and_version_count() -> None:
    swapped = (SCHEMA.features[1], SCHEMA.features[0], *SCHEMA.features[2:])
    assert FeatureSchema(swapped).hash != SCHEMA.hash
    assert FeatureSchema(SCHEMA.features, version=99).hash != SCHEMA.hash


def test_index_finds_columns_by_name() -> None:
    for name in ("analytic_us_log2", "d_num_stages", "w_n_dots"):
        assert SCHEMA.names[SCHEMA.index(name)] == name
